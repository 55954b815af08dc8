# The same through a pool that is much too small, with tiers below it.
foreach(name flock hostile soak)
	if(TARGET ${name}_test)
		add_test(NAME ${name}_tiers_test COMMAND ${name}_test $<TARGET_FILE:coppiced>)
		set_tests_properties(${name}_tiers_test PROPERTIES TIMEOUT 300 LABELS e2e ENVIRONMENT COPPICE_TEST_TIERS=1)
	endif()
endforeach()
