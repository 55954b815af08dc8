# The GPU planner's constants from times; needs neither nvcc nor a device.
if(NOT COPPICE_BENCH)
	return()
endif()
coppice_test(NAME fit_test
	SOURCES ${CMAKE_CURRENT_LIST_DIR}/fit_test.c ${CMAKE_CURRENT_LIST_DIR}/oracle.c
		${PROJECT_SOURCE_DIR}/tests/bench/fit_model.c ${PROJECT_SOURCE_DIR}/tests/bench/workload.c ${planner_sources}
	LIBS coppice_kernels LABELS unit kernels)
target_compile_definitions(fit_test PRIVATE BENCH_HAVE_KERNELS)
target_include_directories(fit_test PRIVATE ${PROJECT_SOURCE_DIR})

coppice_test(NAME program_cut_test
	SOURCES ${CMAKE_CURRENT_LIST_DIR}/program_cut_test.c ${CMAKE_CURRENT_LIST_DIR}/oracle.c ${PROJECT_SOURCE_DIR}/tests/bench/fit_model.c
		${PROJECT_SOURCE_DIR}/tests/bench/workload.c ${planner_sources}
	LIBS coppice_kernels LABELS unit kernels)
target_compile_definitions(program_cut_test PRIVATE BENCH_HAVE_KERNELS)
target_include_directories(program_cut_test PRIVATE ${PROJECT_SOURCE_DIR})
