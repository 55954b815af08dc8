# Attacks by name, against a real daemon while an honest client steps.
if(TARGET coppiced AND TARGET coppice)
	coppice_test(NAME hostile_test
		SOURCES e2e/hostile_test.c e2e/raw_lane.c e2e/control_harness.c fuzz/honest.c
		LIBS coppice coppice_proto ARGS $<TARGET_FILE:coppiced> LABELS e2e TIMEOUT 300)
	add_dependencies(hostile_test coppiced)
	target_include_directories(hostile_test PRIVATE ${CMAKE_CURRENT_SOURCE_DIR}/fuzz)
endif()
