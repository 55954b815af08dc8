# Many processes over one daemon; the agent's program; what the library's user may get wrong.
if(TARGET coppiced AND TARGET coppice)
	foreach(name flock api api_append api_failure)
		coppice_test(NAME ${name}_test SOURCES e2e/${name}_test.c
			LIBS e2e_fixtures coppice coppice_proto m
			ARGS $<TARGET_FILE:coppiced> LABELS e2e)
		add_dependencies(${name}_test coppiced)
	endforeach()
	target_sources(flock_test PRIVATE e2e/flock_stem.c)
endif()
if(TARGET coppiced AND TARGET coppice-agent)
	pkg_check_modules(JANSSON REQUIRED IMPORTED_TARGET jansson)
	coppice_path(agent coppice-agent)
	foreach(name agent agent_faults)
		coppice_test(NAME ${name}_test SOURCES e2e/${name}_test.c e2e/agent_fixture.c
			LIBS e2e_fixtures coppice_proto PkgConfig::JANSSON
			ARGS $<TARGET_FILE:coppiced> LABELS e2e)
		target_compile_definitions(${name}_test PRIVATE AGENT_PATH="${agent}"
			MODEL_DIR="${coppice_data}/tests/model")
		add_dependencies(${name}_test coppiced coppice-agent)
	endforeach()
endif()
# The ranks of an engine.
if(TARGET coppiced AND TARGET coppice)
	coppice_test(NAME heads_test SOURCES e2e/heads_test.c
		LIBS e2e_fixtures coppice coppice_proto m ARGS $<TARGET_FILE:coppiced> LABELS e2e)
	add_dependencies(heads_test coppiced)
endif()
# Daemons of several hosts, here of one.
if(TARGET coppiced)
	coppice_test(NAME rendezvous_test SOURCES e2e/rendezvous_test.c
		LIBS e2e_fixtures coppice_proto ARGS $<TARGET_FILE:coppiced> LABELS e2e)
	add_dependencies(rendezvous_test coppiced)
endif()
# The same over several devices.
if(TARGET flock_test)
	add_test(NAME flock_devices_test COMMAND flock_test $<TARGET_FILE:coppiced>)
	set_tests_properties(flock_devices_test PROPERTIES TIMEOUT 120 LABELS e2e
		ENVIRONMENT "COPPICE_TEST_DEVICES=cpu,cpu,cpu")
endif()
# Whole tokens by the daemon.
if(TARGET coppiced AND TARGET coppice_agent)
	coppice_path(coppiced coppiced)
	coppice_path(coppicectl coppicectl)
	coppice_fixtures(decode_fixtures e2e/decode_fixture.c)
	target_link_libraries(decode_fixtures PUBLIC coppice_agent coppice_model coppice)
	target_compile_definitions(decode_fixtures PUBLIC
		COPPICED_PATH="${coppiced}"
		COPPICECTL_PATH="${coppicectl}"
		MODEL_DIR="${coppice_data}/tests/model")
	foreach(name
		decode_test decode_attack_test decode_cancel_test decode_draft_test
		decode_refusal_test decode_tiers_test weights_faults_test weights_map_test)
		coppice_test(NAME ${name} SOURCES e2e/${name}.c LIBS decode_fixtures LABELS e2e)
		add_dependencies(${name} coppiced coppicectl)
	endforeach()
	target_sources(weights_faults_test PRIVATE e2e/hung_file.c)
endif()
