# The same through a pool that is much too small, with tiers below it.
foreach(name flock hostile soak)
	if(TARGET ${name}_test)
		add_test(NAME ${name}_tiers_test COMMAND ${name}_test $<TARGET_FILE:coppiced>)
		set_tests_properties(${name}_tiers_test PROPERTIES
			TIMEOUT 300 LABELS e2e ENVIRONMENT COPPICE_TEST_TIERS=1)
	endif()
endforeach()
if(TARGET coppiced AND TARGET coppice)
	foreach(name tiers tiers_file tiers_kill)
		coppice_test(NAME ${name}_test SOURCES e2e/${name}_test.c
			LIBS e2e_fixtures coppice coppice_proto coppice_kvstore
			ARGS $<TARGET_FILE:coppiced> LABELS e2e TIMEOUT 300)
		set_tests_properties(${name}_test PROPERTIES SKIP_RETURN_CODE 77)
		add_dependencies(${name}_test coppiced)
	endforeach()
endif()
