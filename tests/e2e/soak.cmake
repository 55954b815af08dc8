# Batches of random shapes through one daemon; COPPICE_SOAK_BATCHES lengthens it, COPPICE_SEED
# repeats a run.
if(TARGET coppiced AND TARGET coppice)
	coppice_test(NAME soak_test SOURCES e2e/soak_test.c
		LIBS e2e_fixtures coppice coppice_proto
		ARGS $<TARGET_FILE:coppiced> LABELS e2e TIMEOUT 300)
	add_dependencies(soak_test coppiced)
	target_include_directories(soak_test PRIVATE
		${CMAKE_CURRENT_SOURCE_DIR}/fuzz
		${PROJECT_SOURCE_DIR}/client)
endif()
if(TARGET soak_test)
	add_test(NAME soak_devices_test COMMAND soak_test $<TARGET_FILE:coppiced>)
	set_tests_properties(soak_devices_test PROPERTIES TIMEOUT 300 LABELS e2e
		ENVIRONMENT "COPPICE_TEST_DEVICES=cpu,cpu,cpu,cpu")
endif()
