# Tests of kernels/: against float64, and of the backend's own promises.
coppice_test(NAME attention_test
	SOURCES ${CMAKE_CURRENT_LIST_DIR}/attention_test.c ${CMAKE_CURRENT_LIST_DIR}/world.c
		${CMAKE_CURRENT_LIST_DIR}/world_cases.c
		${CMAKE_CURRENT_LIST_DIR}/oracle.c
	LIBS coppice_kernels LABELS unit kernels)
coppice_test(NAME backend_test SOURCES ${CMAKE_CURRENT_LIST_DIR}/backend_test.c
	LIBS coppice_kernels LABELS unit kernels)
