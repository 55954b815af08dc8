# Tests of kernels/: against float64, and of the backend's own promises.
coppice_test(NAME attention_test SOURCES unit/attention_test.c
	LIBS unit_fixtures coppice_kernels LABELS unit kernels)
coppice_test(NAME rows_test SOURCES unit/rows_test.c LIBS coppice_rows LABELS unit kernels)
coppice_test(NAME no_memory_test SOURCES unit/no_memory_test.c
	LIBS unit_fixtures coppice_kernels LABELS unit kernels)
target_link_options(no_memory_test PRIVATE
	-Wl,--wrap=malloc -Wl,--wrap=calloc -Wl,--wrap=realloc -Wl,--wrap=posix_memalign
	-Wl,--wrap=aligned_alloc -Wl,--wrap=free)
coppice_test(NAME backend_test SOURCES unit/backend_test.c unit/played_cores.c
	LIBS coppice_kernels LABELS unit kernels)
target_link_options(backend_test PRIVATE -Wl,--wrap=sched_getaffinity)
coppice_test(NAME huge_test SOURCES unit/huge_test.c LIBS coppice_kernels LABELS unit kernels)

# Whole tokens.
coppice_test(NAME program_check_test SOURCES unit/program_check_test.c
	LIBS unit_fixtures coppice_kernels LABELS unit kernels)
coppice_test(NAME program_cpu_test SOURCES unit/program_cpu_test.c unit/program_machine.c
	LIBS unit_fixtures coppice_kernels LABELS unit kernels tsan)
coppice_test(NAME program_run_test
	SOURCES unit/program_run_test.c unit/program_machine.c unit/played_cores.c
	LIBS unit_fixtures coppice_kernels LABELS unit kernels)
target_link_options(program_run_test PRIVATE -Wl,--wrap=sched_getaffinity)
coppice_test(NAME linear_test SOURCES unit/linear_test.c
	LIBS unit_fixtures coppice_kernels coppice_rows LABELS unit kernels)

foreach(name mover legs summary)
	coppice_test(NAME ${name}_test SOURCES unit/${name}_test.c
		LIBS unit_fixtures coppice_kernels ${CMAKE_DL_LIBS} LABELS unit kernels tsan)
	if(TARGET coppice_cuda)
		coppice_path(cuda_module coppice_cuda)
		add_test(NAME ${name}_test_cuda COMMAND ${name}_test ${cuda_module})
		set_tests_properties(${name}_test_cuda PROPERTIES
			SKIP_RETURN_CODE 77 LABELS "unit;gpu" TIMEOUT 120)
	endif()
endforeach()

# Variants that no model has yet, on the CPU and, by a module of their own, on the GPU.
coppice_test(NAME variant_test SOURCES unit/variant_test.c
	LIBS unit_fixtures coppice_kernels ${CMAKE_DL_LIBS} LABELS unit kernels)
if(TARGET coppice_cuda_capped)
	add_test(NAME variant_test_cuda COMMAND variant_test $<TARGET_FILE:coppice_cuda_capped>)
	set_tests_properties(variant_test_cuda PROPERTIES
		SKIP_RETURN_CODE 77 LABELS "unit;gpu" TIMEOUT 120)
	add_dependencies(variant_test coppice_cuda_capped)
endif()

# Host code of the GPU's backend over a runtime of the test's own: needs CUDA's headers alone.
if(COPPICE_CUDA_INCLUDE)
	coppice_test(NAME tier_runs_cuda_test SOURCES unit/tier_runs_cuda_test.c unit/fake_copies.c
		LIBS cuda_host coppice_kernels LABELS unit)
	coppice_test(NAME tier_cuda_test SOURCES unit/tier_cuda_test.c unit/fake_copies.c
		LIBS cuda_host coppice_kernels LABELS unit)
endif()
