# Attacks by name, against a real daemon while an honest client steps.
if(TARGET coppiced AND TARGET coppice)
	foreach(name hostile hostile_memory)
		coppice_test(NAME ${name}_test SOURCES e2e/${name}_test.c
			LIBS e2e_fixtures coppice coppice_proto
			ARGS $<TARGET_FILE:coppiced> LABELS e2e TIMEOUT 300)
		add_dependencies(${name}_test coppiced)
	endforeach()
	foreach(name shares foreign)
		coppice_test(NAME ${name}_test SOURCES e2e/${name}_test.c
			LIBS e2e_fixtures coppice coppice_proto
			ARGS $<TARGET_FILE:coppiced> LABELS e2e TIMEOUT 180)
		add_dependencies(${name}_test coppiced)
		set_tests_properties(${name}_test PROPERTIES SKIP_RETURN_CODE 77)
	endforeach()
	# Who has how much of the backend's time.
	coppice_test(NAME fair_test SOURCES e2e/fair_test.c bench/busy.c
		LIBS e2e_fixtures coppice coppice_proto
		ARGS $<TARGET_FILE:coppiced> LABELS e2e TIMEOUT 300)
	target_include_directories(fair_test PRIVATE ${CMAKE_CURRENT_SOURCE_DIR})
	add_dependencies(fair_test coppiced)
	set_tests_properties(fair_test PROPERTIES SKIP_RETURN_CODE 77)
	# What one user can do to hold up another: each measured beside an honest neighbour.
	foreach(name attack attack_hoard attack_kinds attack_lanes attack_device)
		coppice_test(NAME ${name}_test SOURCES e2e/${name}_test.c e2e/attack_fixture.c
			LIBS e2e_fixtures coppice coppice_proto
			ARGS $<TARGET_FILE:coppiced> LABELS e2e TIMEOUT 300)
		add_dependencies(${name}_test coppiced)
		set_tests_properties(${name}_test PROPERTIES SKIP_RETURN_CODE 77)
	endforeach()
	# What it compares are times of products, which sanitizers make many times longer.
	if(TARGET coppice_agent AND NOT COPPICE_SANITIZE)
		coppice_test(NAME attack_program_test
			SOURCES e2e/attack_program_test.c e2e/attack_fixture.c e2e/decode_fixture.c
				e2e/heavy.c
			LIBS e2e_fixtures coppice_model coppice coppice_proto
			ARGS $<TARGET_FILE:coppiced> LABELS e2e TIMEOUT 120)
		coppice_path(coppiced coppiced)
		coppice_path(coppicectl coppicectl)
		target_compile_definitions(attack_program_test PRIVATE
			COPPICED_PATH="${coppiced}"
			COPPICECTL_PATH="${coppicectl}"
			MODEL_DIR="${coppice_data}/tests/model")
		add_dependencies(attack_program_test coppiced)
		set_tests_properties(attack_program_test PROPERTIES SKIP_RETURN_CODE 77)
	endif()
	foreach(name attack_device shares)
		add_dependencies(${name}_test fake_module)
		set_tests_properties(${name}_test PROPERTIES
			ENVIRONMENT "COPPICE_MODULE_DIR=${fakes}")
	endforeach()
endif()
