# Tests of kernels/: against float64, and of the backend's own promises.
coppice_test(NAME backend_test SOURCES ${CMAKE_CURRENT_LIST_DIR}/backend_test.c
	LIBS coppice_kernels LABELS unit kernels)
