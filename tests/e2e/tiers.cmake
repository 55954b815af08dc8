# The same through a pool that is much too small, with tiers below it.
foreach(name flock hostile soak)
	if(TARGET ${name}_test)
		add_test(NAME ${name}_tiers_test COMMAND ${name}_test $<TARGET_FILE:coppiced>)
		set_tests_properties(${name}_tiers_test PROPERTIES TIMEOUT 300 LABELS e2e ENVIRONMENT COPPICE_TEST_TIERS=1)
	endif()
endforeach()
if(TARGET coppiced AND TARGET coppice)
	coppice_test(NAME tiers_kill_test SOURCES e2e/tiers_kill_test.c e2e/control_harness.c
		LIBS coppice coppice_proto ARGS $<TARGET_FILE:coppiced> LABELS e2e TIMEOUT 300)
	add_dependencies(tiers_kill_test coppiced)
endif()
