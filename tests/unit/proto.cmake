if(TARGET coppice_proto)
	coppice_test(NAME ring_test SOURCES unit/ring_test.c
		LIBS coppice_proto Threads::Threads LABELS tsan)
	coppice_test(NAME channel_test SOURCES unit/channel_test.c LIBS coppice_proto)
	coppice_test(NAME listen_test SOURCES unit/listen_test.c LIBS coppice_proto)
	target_link_options(listen_test PRIVATE
		-Wl,--wrap=poll -Wl,--wrap=flock -Wl,--wrap=bind -Wl,--wrap=listen)
	coppice_test(NAME segment_fill_test SOURCES unit/segment_fill_test.c LIBS coppice_proto)
	target_link_options(segment_fill_test PRIVATE -Wl,--wrap=madvise)
endif()
if(TARGET coppice_static)
	coppice_test(NAME client_failure_test SOURCES unit/client_failure_test.c
		LIBS coppice_static coppice_proto LABELS unit)
	coppice_test(NAME sized_test SOURCES unit/sized_test.c
		LIBS coppice_static coppice_proto LABELS unit)
	coppice_test(NAME client_wait_test SOURCES unit/client_wait_test.c
		LIBS coppice_static coppice_proto LABELS unit tsan)
	target_link_options(client_wait_test PRIVATE -Wl,--wrap=syscall -Wl,--wrap=clock_gettime)
	coppice_test(NAME watch_test SOURCES unit/watch_test.c
		LIBS coppice_static coppice_proto LABELS unit tsan)
	coppice_test(NAME connect_test SOURCES unit/connect_test.c
		LIBS coppice_static coppice_proto LABELS unit)
	coppice_test(NAME capture_test SOURCES unit/capture_test.c
		LIBS coppice_static coppice_proto LABELS unit)
endif()
if(TARGET coppice_static AND TARGET coppiced)
	foreach(name client client_life client_memory client_seq)
		coppice_test(NAME ${name}_test SOURCES unit/${name}_test.c
			LIBS unit_fixtures coppice_static ARGS $<TARGET_FILE:coppiced> LABELS tsan)
		add_dependencies(${name}_test coppiced)
	endforeach()
	target_link_options(client_test PRIVATE -Wl,--wrap=syscall -Wl,--wrap=calloc)
	# The library's and the daemon's own code, with its atomics taken from it.
	add_library(stepped OBJECT
		${PROJECT_SOURCE_DIR}/client/lib/lane/lane.c
		${PROJECT_SOURCE_DIR}/client/lib/lane/submit.c
		${PROJECT_SOURCE_DIR}/client/lib/lane/wait.c
		${PROJECT_SOURCE_DIR}/daemon/sched/rest.c
		${PROJECT_SOURCE_DIR}/daemon/sched/seq/complete.c
		${CMAKE_CURRENT_LIST_DIR}/napping_daemon.c)
	target_compile_options(stepped PRIVATE
		-DTSO_REPLACES_ATOMICS
		"SHELL:-include ${CMAKE_CURRENT_LIST_DIR}/tso.h")
	target_link_libraries(stepped PRIVATE coppice_static coppice_proto coppice_daemon)
	coppice_test(NAME ring_order_test
		SOURCES unit/ring_order_test.c unit/tso.c $<TARGET_OBJECTS:stepped>
		LIBS coppice_static coppice_proto coppice_daemon LABELS unit)
	target_link_options(ring_order_test PRIVATE
		-Wl,--wrap=syscall -Wl,--wrap=write -Wl,--wrap=send -Wl,--wrap=recv)
endif()
