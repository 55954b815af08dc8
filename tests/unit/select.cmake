if(TARGET coppice_kernels)
	coppice_test(NAME estimate_test
		SOURCES ${CMAKE_CURRENT_LIST_DIR}/estimate_test.c ${CMAKE_CURRENT_LIST_DIR}/oracle.c
		LIBS coppice_kernels LABELS unit kernels)
	coppice_test(NAME select_test
		SOURCES ${CMAKE_CURRENT_LIST_DIR}/select_test.c ${CMAKE_CURRENT_LIST_DIR}/world.c
			${CMAKE_CURRENT_LIST_DIR}/oracle.c
		LIBS coppice_kernels LABELS unit kernels)
endif()
if(TARGET coppice_kernels)
	coppice_test(NAME sparse_test
		SOURCES ${CMAKE_CURRENT_LIST_DIR}/sparse_test.c ${CMAKE_CURRENT_LIST_DIR}/oracle.c
		LIBS coppice_kernels LABELS unit kernels)
endif()
if(TARGET coppice_daemon)
	coppice_test(NAME sched_sparse_test
		SOURCES ${CMAKE_CURRENT_LIST_DIR}/sched_sparse_test.c ${CMAKE_CURRENT_LIST_DIR}/sched_harness.c
			${CMAKE_CURRENT_LIST_DIR}/oracle.c
		LIBS coppice_daemon LABELS unit tsan)
endif()
