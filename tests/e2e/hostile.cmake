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
	# What one user can do to hold up another: each measured beside an honest neighbour. What
	# programs do is compared by times of products, which sanitizers make many times longer.
	if(TARGET coppice-agent)
		set(attacks attack attack_device attack_hoard attack_kinds attack_lanes
			attack_steps)
		if(NOT COPPICE_SANITIZE)
			list(APPEND attacks attack_program)
		endif()
		pkg_check_modules(JANSSON REQUIRED IMPORTED_TARGET jansson)
		coppice_path(agent coppice-agent)
		coppice_fixtures(attack_fixtures e2e/agent_fixture.c e2e/attack_before.c
			e2e/attack_fixture.c e2e/attack_tokens.c e2e/attack_victims.c
			e2e/attack_watch.c e2e/heavy.c)
		target_link_libraries(attack_fixtures PUBLIC
			e2e_fixtures decode_fixtures coppice_proto PkgConfig::JANSSON)
		target_compile_definitions(attack_fixtures PUBLIC AGENT_PATH="${agent}")
		foreach(name ${attacks})
			coppice_test(NAME ${name}_test SOURCES e2e/${name}_test.c
				LIBS attack_fixtures
				ARGS $<TARGET_FILE:coppiced> LABELS e2e TIMEOUT 300)
			add_dependencies(${name}_test coppiced coppice-agent)
			set_tests_properties(${name}_test PROPERTIES SKIP_RETURN_CODE 77)
		endforeach()
	endif()
	foreach(name attack_device shares)
		if(NOT TARGET ${name}_test)
			continue()
		endif()
		add_dependencies(${name}_test fake_module)
		set_tests_properties(${name}_test PROPERTIES
			ENVIRONMENT "COPPICE_MODULE_DIR=${fakes}")
	endforeach()
endif()
