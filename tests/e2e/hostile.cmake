# Attacks by name, against a real daemon while an honest client steps.
if(TARGET coppiced AND TARGET coppice)
	coppice_test(NAME hostile_test SOURCES e2e/hostile_test.c e2e/raw_lane.c
		LIBS e2e_fixtures coppice coppice_proto ARGS $<TARGET_FILE:coppiced> LABELS e2e TIMEOUT 300)
	add_dependencies(hostile_test coppiced)
	foreach(name shares foreign)
		coppice_test(NAME ${name}_test SOURCES e2e/${name}_test.c
			LIBS e2e_fixtures coppice coppice_proto ARGS $<TARGET_FILE:coppiced> LABELS e2e TIMEOUT 180)
		add_dependencies(${name}_test coppiced)
		set_tests_properties(${name}_test PROPERTIES SKIP_RETURN_CODE 77)
	endforeach()
	# What one user can do to hold up another: each measured beside an honest neighbour.
	foreach(name attack attack_hoard)
		coppice_test(NAME ${name}_test SOURCES e2e/${name}_test.c e2e/attack_fixture.c e2e/stepper.c e2e/raw_lane.c
			LIBS e2e_fixtures coppice coppice_proto ARGS $<TARGET_FILE:coppiced> LABELS e2e TIMEOUT 300)
		add_dependencies(${name}_test coppiced)
		set_tests_properties(${name}_test PROPERTIES SKIP_RETURN_CODE 77)
	endforeach()
endif()
