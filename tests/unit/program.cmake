# What the GPU is given to run; needs neither nvcc nor a device.
coppice_test(NAME program_test
	SOURCES ${CMAKE_CURRENT_LIST_DIR}/program_test.c ${CMAKE_CURRENT_LIST_DIR}/oracle.c
		${planner_sources}
	LIBS coppice_kernels LABELS unit kernels)
