# Random and nearly valid nonsense, bounded in count and time; COPPICE_SEED repeats a run,
# COPPICE_SECONDS lengthens it.
if(TARGET coppice_daemon)
	coppice_test(NAME lane_fuzz
		SOURCES fuzz/lane_fuzz.c fuzz/lane_hostile.c fuzz/lane_nonsense.c
			fuzz/lane_program.c fuzz/lane_honest.c fuzz/draw.c
		LIBS unit_fixtures coppice_daemon LABELS fuzz)
endif()
if(TARGET coppiced AND TARGET coppice)
	coppice_test(NAME control_fuzz SOURCES fuzz/control_fuzz.c
		LIBS e2e_fixtures coppice coppice_proto ARGS $<TARGET_FILE:coppiced> LABELS fuzz)
	add_dependencies(control_fuzz coppiced)
endif()
# The same with a daemon that has a device, of a kind.
if(TARGET control_fuzz AND TARGET fake_module)
	set(module_dir ${CMAKE_CURRENT_BINARY_DIR}/fakes)
	add_test(NAME control_fuzz_device COMMAND control_fuzz $<TARGET_FILE:coppiced>)
	set_tests_properties(control_fuzz_device PROPERTIES TIMEOUT 120 LABELS fuzz
		ENVIRONMENT "COPPICE_TEST_BACKEND=cuda;COPPICE_MODULE_DIR=${module_dir}")
	add_dependencies(control_fuzz fake_module)
endif()
