# Sparse prefill: estimates, selection, and both behind a scheduler.
if(TARGET coppice_kernels)
	coppice_test(NAME estimate_test SOURCES unit/estimate_test.c
		LIBS unit_fixtures coppice_kernels LABELS unit kernels)
	coppice_test(NAME sparse_test SOURCES unit/sparse_test.c unit/sparse_fixture.c
		LIBS unit_fixtures coppice_kernels ${CMAKE_DL_LIBS} LABELS unit kernels)
	coppice_test(NAME select_test SOURCES unit/select_test.c
		LIBS unit_fixtures coppice_kernels LABELS unit kernels)
endif()
if(TARGET coppice_daemon)
	coppice_test(NAME sched_sparse_test
		SOURCES unit/sched_sparse_test.c unit/sched_sparse_long.c
		LIBS unit_fixtures coppice_daemon ${CMAKE_DL_LIBS} LABELS unit tsan)
endif()

# The device's own, linked without the module; skipped where there is no device.
if(TARGET coppice_cuda)
	foreach(name estimate select)
		coppice_test(NAME ${name}_cuda_test SOURCES
				unit/${name}_cuda_test.c
				${PROJECT_SOURCE_DIR}/kernels/cuda/device/launch.c
				${PROJECT_SOURCE_DIR}/kernels/cuda/device/tensor_map.c
			LIBS
				unit_fixtures coppice_kernels
				${PROJECT_BINARY_DIR}/kernels/cuda/small.o
				${COPPICE_CUDART} Threads::Threads ${CMAKE_DL_LIBS} rt m
			LABELS gpu TIMEOUT 300)
		target_include_directories(${name}_cuda_test SYSTEM PRIVATE ${COPPICE_CUDA_INCLUDE})
		set_tests_properties(${name}_cuda_test PROPERTIES SKIP_RETURN_CODE 77)
		add_dependencies(${name}_cuda_test coppice_cuda)
	endforeach()
	coppice_path(module coppice_cuda)
	foreach(name sparse sched_sparse)
		if(TARGET ${name}_test)
			add_test(NAME ${name}_cuda_test COMMAND ${name}_test ${module})
			set_tests_properties(${name}_cuda_test PROPERTIES
				SKIP_RETURN_CODE 77 LABELS gpu TIMEOUT 300)
		endif()
	endforeach()
endif()
