# What the GPU is given to run; needs neither nvcc nor a device.
coppice_test(NAME program_test
	SOURCES ${CMAKE_CURRENT_LIST_DIR}/program_test.c ${CMAKE_CURRENT_LIST_DIR}/oracle.c
		${PROJECT_SOURCE_DIR}/kernels/cuda/program.c
		${PROJECT_SOURCE_DIR}/kernels/cuda/costs.c
		${PROJECT_SOURCE_DIR}/kernels/cuda/program_cost.c
		${PROJECT_SOURCE_DIR}/kernels/cuda/program_runs.c
		${PROJECT_SOURCE_DIR}/kernels/cuda/program_strips.c
		${PROJECT_SOURCE_DIR}/kernels/cuda/program_slots.c
		${PROJECT_SOURCE_DIR}/kernels/cuda/program_tails.c
	LIBS coppice_kernels LABELS unit kernels)
