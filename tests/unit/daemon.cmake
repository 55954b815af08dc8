# Config and loop; the daemon as a whole is tested with real clients in tests/e2e/control_test.c.
if(TARGET coppice_daemon)
	coppice_test(NAME config_test SOURCES unit/config_test.c unit/config_fixture.c
		LIBS coppice_daemon LABELS unit)
	coppice_test(NAME config_pages_test SOURCES unit/config_pages_test.c unit/config_fixture.c
		LIBS coppice_daemon LABELS unit ARGS ${coppice_data}/packaging)
	coppice_test(NAME config_file_test SOURCES unit/config_file_test.c unit/config_fixture.c
		LIBS coppice_daemon LABELS unit)
	coppice_test(NAME arena_room_test SOURCES unit/arena_room_test.c
		LIBS coppice_daemon LABELS unit)
	coppice_test(NAME unread_test SOURCES unit/unread_test.c LIBS coppice_daemon LABELS unit)
	coppice_test(NAME session_test SOURCES unit/session_test.c LIBS coppice_daemon LABELS unit)
	coppice_test(NAME rest_test SOURCES unit/rest_test.c LIBS coppice_daemon LABELS unit)
	coppice_test(NAME reply_test SOURCES unit/reply_test.c LIBS coppice_daemon LABELS unit)
	target_link_options(reply_test PRIVATE -Wl,--wrap=sendmsg)
	coppice_test(NAME log_user_test SOURCES unit/log_user_test.c
		LIBS coppice_daemon LABELS unit)
	coppice_test(NAME weights_content_test SOURCES unit/weights_content_test.c
		LIBS coppice_daemon LABELS unit)
	target_link_options(weights_content_test PRIVATE -Wl,--wrap=strstr)
	coppice_test(NAME weights_verbs_test SOURCES unit/weights_verbs_test.c
		LIBS coppice_daemon LABELS unit)
	target_link_options(weights_verbs_test PRIVATE
		-Wl,--wrap=weights_real -Wl,--wrap=weights_lend)
	coppice_test(NAME loop_test SOURCES unit/loop_test.c
		LIBS unit_fixtures coppice_daemon LABELS unit)
	coppice_test(NAME loop_turns_test SOURCES unit/loop_turns_test.c
		LIBS unit_fixtures coppice_daemon LABELS unit)
	coppice_test(NAME loop_uring_test SOURCES unit/loop_uring_test.c
		LIBS unit_fixtures coppice_daemon LABELS unit)
	target_link_options(loop_uring_test PRIVATE -Wl,--wrap=io_uring_submit_and_wait)
	coppice_test(NAME errands_test SOURCES unit/errands_test.c
		LIBS unit_fixtures coppice_daemon LABELS unit)
	coppice_test(NAME held_program_test SOURCES unit/held_program_test.c
		LIBS unit_fixtures coppice_daemon LABELS unit)
	coppice_test(NAME lent_test SOURCES unit/lent_test.c
		LIBS coppice_daemon LABELS unit)
	coppice_test(NAME aside_test SOURCES unit/aside_test.c
		LIBS coppice_daemon LABELS unit tsan)
	target_link_options(aside_test PRIVATE -Wl,--wrap=pthread_create)
	coppice_test(NAME shm_pages_test SOURCES unit/shm_pages_test.c
		LIBS unit_fixtures coppice_daemon LABELS unit tsan)
endif()
if(TARGET coppiced)
	foreach(name ledger_wait weights weights_loader weights_shares)
		coppice_test(NAME ${name}_test SOURCES unit/${name}_test.c
			LIBS unit_fixtures coppice_daemon
			ARGS $<TARGET_FILE:coppiced> LABELS unit tsan)
		add_dependencies(${name}_test coppiced)
	endforeach()
	coppice_test(NAME ledger_test SOURCES unit/ledger_test.c
		LIBS unit_fixtures coppice_daemon ARGS $<TARGET_FILE:coppiced> LABELS unit)
	add_dependencies(ledger_test coppiced)
	foreach(name control control_memory control_pins control_program service)
		coppice_test(NAME ${name}_test SOURCES e2e/${name}_test.c
			LIBS e2e_fixtures coppice_proto
			ARGS $<TARGET_FILE:coppiced> LABELS e2e TIMEOUT 300)
		add_dependencies(${name}_test coppiced)
	endforeach()
endif()
