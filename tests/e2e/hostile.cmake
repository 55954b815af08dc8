# Attacks by name, against a real daemon while an honest client steps.
if(TARGET coppiced AND TARGET coppice)
	coppice_test(NAME hostile_test SOURCES e2e/hostile_test.c e2e/raw_lane.c
		LIBS e2e_fixtures coppice coppice_proto ARGS $<TARGET_FILE:coppiced> LABELS e2e TIMEOUT 300)
	add_dependencies(hostile_test coppiced)
endif()
