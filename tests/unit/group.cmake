# Several devices as one: the merge, the exchange, the group.
if(TARGET coppice_kernels)
	coppice_test(NAME merge_test SOURCES unit/merge_test.c
		LIBS unit_fixtures coppice_kernels LABELS unit kernels)
	coppice_test(NAME exchange_test SOURCES unit/exchange_test.c
		LIBS unit_fixtures coppice_kernels Threads::Threads LABELS unit kernels tsan)
	coppice_test(NAME ranks_test SOURCES unit/ranks_test.c
		LIBS coppice_kernels LABELS unit kernels)
	coppice_test(NAME group_test SOURCES unit/group_test.c
		LIBS unit_fixtures coppice_kernels LABELS unit kernels tsan)
	coppice_test(NAME group_extents_test SOURCES unit/group_extents_test.c
		LIBS unit_fixtures coppice_kernels LABELS unit kernels tsan)
	coppice_test(NAME group_ahead_test SOURCES unit/group_ahead_test.c
		LIBS unit_fixtures coppice_kernels LABELS unit kernels)
	coppice_test(NAME group_meet_test SOURCES unit/group_meet_test.c unit/meeting.c
		LIBS unit_fixtures coppice_kernels Threads::Threads LABELS unit kernels tsan)
	coppice_test(NAME group_ranks_test SOURCES unit/group_ranks_test.c
		LIBS unit_fixtures coppice_kernels ${CMAKE_DL_LIBS} LABELS unit kernels tsan)
	# GPUs of COPPICE_DEVICES, one to a process; skipped, with a sentence, where there is one.
	if(TARGET coppice_cuda)
		add_test(NAME group_ranks_cuda_test
			COMMAND group_ranks_test $<TARGET_FILE:coppice_cuda>)
		set_tests_properties(group_ranks_cuda_test PROPERTIES
			LABELS gpu TIMEOUT 300 SKIP_RETURN_CODE 77)
	endif()
endif()
