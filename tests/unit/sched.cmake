foreach(unit sched sched_seqs sched_device input_wait)
	coppice_test(NAME ${unit}_test SOURCES unit/${unit}_test.c
		LIBS unit_fixtures coppice_daemon LABELS unit tsan)
endforeach()
target_link_options(sched_seqs_test PRIVATE -Wl,--wrap=store_seq_publish)

# For callgrind; built when it is asked for.
add_executable(sched_count EXCLUDE_FROM_ALL unit/sched_count.c)
target_link_libraries(sched_count PRIVATE unit_fixtures coppice_daemon PkgConfig::CMOCKA m)

coppice_test(NAME window_test SOURCES unit/window_test.c
	LIBS unit_fixtures coppice_daemon LABELS unit tsan)

coppice_test(NAME sched_random_test SOURCES unit/sched_random_test.c
	LIBS unit_fixtures coppice_daemon LABELS unit TIMEOUT 300)

# The same where little fits: pages come and go, paths stream.
coppice_test(NAME sched_random_tiers_test SOURCES unit/sched_random_tiers_test.c
	LIBS unit_fixtures coppice_daemon LABELS unit tsan TIMEOUT 300)

# Who has how much of the backend's time, and how long a batch may keep the others.
foreach(unit turns budget pieces sched_paths path_limits queues neighbour branched evict_turns)
	coppice_test(NAME ${unit}_test SOURCES unit/${unit}_test.c
		LIBS unit_fixtures coppice_daemon LABELS unit)
endforeach()

foreach(unit pass pass_rows pass_cancel pass_charge pass_company pass_turns pass_held pass_bound)
	coppice_test(NAME ${unit}_test SOURCES unit/${unit}_test.c
		LIBS unit_fixtures coppice_daemon LABELS unit)
endforeach()

foreach(unit pass_plans pass_foresee pass_longer)
	coppice_test(NAME ${unit}_test SOURCES unit/${unit}_test.c
		LIBS unit_fixtures coppice_daemon LABELS unit tsan)
endforeach()

foreach(unit pass_layers pass_awaited pass_claims pass_draft pass_requests pass_ending)
	coppice_test(NAME ${unit}_test SOURCES unit/${unit}_test.c
		LIBS unit_fixtures coppice_daemon LABELS unit)
endforeach()

target_link_options(pass_ending_test PRIVATE -Wl,--wrap=syscall)

# What the store and the planner say of a path's length.
foreach(asked store_node_n_tokens store_node_pos store_seq_n_tokens store_seq_view plan_make)
	target_link_options(path_limits_test PRIVATE -Wl,--wrap=${asked})
endforeach()

target_link_options(branched_test PRIVATE -Wl,--wrap=store_node_parent -Wl,--wrap=store_seq_node)

coppice_test(NAME step_moves_test SOURCES unit/step_moves_test.c LIBS coppice_daemon LABELS unit)

coppice_test(NAME plan_cache_test SOURCES unit/plan_cache_test.c LIBS coppice_daemon LABELS unit)

coppice_test(NAME batch_test SOURCES unit/batch_test.c
	LIBS unit_fixtures coppice_daemon LABELS unit)

coppice_test(NAME extents_ahead_test SOURCES unit/extents_ahead_test.c
	LIBS unit_fixtures coppice_daemon LABELS unit tsan)
coppice_test(NAME plan_ahead_test SOURCES unit/plan_ahead_test.c
	LIBS unit_fixtures coppice_daemon LABELS unit tsan)
coppice_test(NAME plan_ahead_random_test SOURCES unit/plan_ahead_random_test.c
	LIBS unit_fixtures coppice_daemon LABELS unit tsan)

coppice_test(NAME chosen_windows_test SOURCES unit/chosen_windows_test.c
	LIBS unit_fixtures coppice_daemon LABELS unit)

coppice_test(NAME pace_test SOURCES unit/pace_test.c
	LIBS unit_fixtures coppice_daemon LABELS unit tsan)

# Where arrays cannot grow.
foreach(unit cut sched_long_memory)
	coppice_test(NAME ${unit}_test SOURCES unit/${unit}_test.c unit/short_memory.c
		LIBS unit_fixtures coppice_daemon LABELS unit)
	target_link_options(${unit}_test PRIVATE -Wl,--wrap=realloc)
endforeach()

foreach(unit sched_tiers sched_long sched_ahead)
	coppice_test(NAME ${unit}_test SOURCES unit/${unit}_test.c
		LIBS unit_fixtures coppice_daemon ${CMAKE_DL_LIBS} LABELS unit tsan TIMEOUT 300)
	if(TARGET coppice_cuda)
		coppice_path(cuda_module coppice_cuda)
		add_test(NAME ${unit}_cuda_test COMMAND ${unit}_test ${cuda_module})
		set_tests_properties(${unit}_cuda_test PROPERTIES
			SKIP_RETURN_CODE 77 LABELS gpu TIMEOUT 300)
	endif()
	# in fp16, as devices have it
	if(TARGET fake_module)
		add_test(NAME ${unit}_fake_test COMMAND ${unit}_test $<TARGET_FILE:fake_module>)
		set_tests_properties(${unit}_fake_test PROPERTIES LABELS unit TIMEOUT 120)
		add_dependencies(${unit}_test fake_module)
	endif()
endforeach()

# How many files a decode step passes, and how often it goes from one to another: daemon/README.md
# has the way. It counts calls as they are written, so that nothing is inlined; and without
# optimizing it builds in half the time. That needs objects of its own, which no sanitizer could
# look at; the same sources are under the sanitizers in all the other tests.
if(NOT COPPICE_SANITIZE)
	file(GLOB_RECURSE way_sources CONFIGURE_DEPENDS
		${PROJECT_SOURCE_DIR}/daemon/sched/*.c
		${PROJECT_SOURCE_DIR}/kvstore/*.c)
	add_executable(way_test unit/way_test.c ${way_sources})
	target_compile_options(way_test PRIVATE
		-O0 -fno-inline -finstrument-functions
		-finstrument-functions-exclude-file-list=.h)
	target_link_options(way_test PRIVATE -no-pie)
	target_link_libraries(way_test PRIVATE
		unit_fixtures coppice_daemon PkgConfig::CMOCKA xxhash)
	add_test(NAME way_test
		COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/unit/way.py $<TARGET_FILE:way_test> 13 24
			${PROJECT_SOURCE_DIR}/daemon/README.md)
	set_tests_properties(way_test PROPERTIES LABELS unit TIMEOUT 60)
endif()
