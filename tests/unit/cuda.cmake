# The GPU's backend; skipped, with a sentence, where there is no device.
if(TARGET coppice_cuda)
	coppice_test(NAME cuda_test SOURCES unit/cuda_test.c
		LIBS unit_fixtures coppice_kernels ${CMAKE_DL_LIBS}
		ARGS $<TARGET_FILE:coppice_cuda> LABELS gpu TIMEOUT 300)
	set_tests_properties(cuda_test PROPERTIES SKIP_RETURN_CODE 77)
	add_dependencies(cuda_test coppice_cuda)
	coppice_test(NAME stand_cuda_test SOURCES unit/stand_cuda_test.c
		LIBS unit_fixtures coppice_kernels ${CMAKE_DL_LIBS}
		ARGS $<TARGET_FILE:coppice_cuda> LABELS gpu TIMEOUT 300)
	set_tests_properties(stand_cuda_test PROPERTIES SKIP_RETURN_CODE 77)
	add_dependencies(stand_cuda_test coppice_cuda)
	coppice_test(NAME group_cuda_test SOURCES unit/group_cuda_test.c unit/group_growing.c
		LIBS unit_fixtures coppice_kernels ${CMAKE_DL_LIBS}
		ARGS $<TARGET_FILE:coppice_cuda> LABELS gpu TIMEOUT 300)
	set_tests_properties(group_cuda_test PROPERTIES SKIP_RETURN_CODE 77)
	add_dependencies(group_cuda_test coppice_cuda)
	foreach(name program_cuda_test program_products_cuda_test)
		coppice_test(NAME ${name}
			SOURCES unit/${name}.c unit/program_gpu.c unit/program_machine.c
			LIBS unit_fixtures coppice_kernels ${CMAKE_DL_LIBS}
			ARGS $<TARGET_FILE:coppice_cuda> LABELS gpu TIMEOUT 300)
		set_tests_properties(${name} PROPERTIES SKIP_RETURN_CODE 77)
		target_compile_definitions(${name} PRIVATE MACHINE_TOKENS=640)
		add_dependencies(${name} coppice_cuda)
	endforeach()
	target_sources(program_cuda_test PRIVATE unit/program_speed.c)
endif()

# Host code of the backend, under sanitizers too: the runtime's headers are CUDA's, what is behind
# them is the tests'.
if(COPPICE_CUDA_INCLUDE)
	# What is said where no GPU can compute: the runtime's part is the test's.
	coppice_test(NAME card_test SOURCES unit/card_test.c
		LIBS cuda_host coppice_kernels LABELS unit kernels)
	# What is said of a shape that the kernels cannot work with.
	coppice_test(NAME shape_test SOURCES unit/shape_test.c
		LIBS cuda_host coppice_kernels LABELS unit kernels)
	coppice_test(NAME hosts_test SOURCES unit/hosts_test.c
		LIBS unit_fixtures cuda_host coppice_kernels LABELS unit kernels)
	# How products of some rows are cut, and of more.
	coppice_test(NAME some_cut_test SOURCES unit/some_cut_test.c
		LIBS cuda_host coppice_kernels LABELS unit kernels)
	coppice_test(NAME tall_cut_test SOURCES unit/tall_cut_test.c
		LIBS cuda_host coppice_kernels LABELS unit kernels)
	# Rows in legs; the runtime and the fold are the test's.
	coppice_test(NAME tier_leg_test SOURCES unit/tier_leg_test.c
		LIBS unit_fixtures cuda_host coppice_kernels m LABELS unit kernels)
	# Plans that share so much memory of a device; the runtime's part is the test's, too.
	coppice_test(NAME plans_test
		SOURCES unit/plans_test.c unit/plans_fixture.c unit/no_launches.c
		LIBS unit_fixtures cuda_host coppice_kernels LABELS unit kernels)
	coppice_test(NAME schedule_cache_test SOURCES unit/schedule_cache_test.c
		LIBS unit_fixtures cuda_host coppice_kernels LABELS unit kernels)
	# What plans that are kept from token to token have rows read.
	if(TARGET coppice_daemon)
		coppice_test(NAME kept_plans_test
			SOURCES unit/kept_plans_test.c unit/kept_plans.c unit/no_launches.c
			LIBS memory_fixtures unit_fixtures cuda_host coppice_daemon coppice_kernels
			LABELS unit kernels)
	endif()
	# Launches that wait for their batches, on a stream that is played.
	coppice_test(NAME stand_test SOURCES unit/stand_test.c unit/fake_stream.c
		LIBS unit_fixtures cuda_host coppice_kernels LABELS unit kernels)
	# Batches that a group gives up, on the same stream.
	coppice_test(NAME abandon_test SOURCES unit/abandon_test.c unit/fake_stream.c
		LIBS unit_fixtures cuda_host coppice_kernels LABELS unit kernels)
	# A pass's layers, on the same stream.
	coppice_test(NAME layers_test SOURCES unit/layers_test.c unit/fake_stream.c
		LIBS unit_fixtures cuda_host coppice_kernels LABELS unit kernels)
	# Programs on a device that is played: the same tests as on a GPU.
	set(played_device
		device_fixtures memory_fixtures unit_fixtures cuda_host coppice_kernels
		coppice_rows)
	foreach(name program program_products)
		coppice_test(NAME ${name}_device_test
			SOURCES unit/${name}_cuda_test.c unit/program_gpu.c unit/program_machine.c
			LIBS ${played_device} LABELS unit kernels)
		target_compile_definitions(${name}_device_test
			PRIVATE PROGRAM_FAKE MACHINE_TOKENS=640)
	endforeach()
	coppice_test(NAME slices_test SOURCES unit/slices_test.c
		LIBS ${played_device} LABELS unit kernels)
	# Attention's kernels themselves, as C++ on the CPU. Builds under sanitizers, which do not
	# follow the jumps of their threads, have none.
	if(TARGET coppice_cuda_played)
		coppice_test(NAME attend_played_test SOURCES unit/attend_played_test.c
			LIBS ${PROJECT_BINARY_DIR}/kernels/cuda/played_attend.o
				unit_fixtures cuda_host coppice_kernels
			LABELS unit kernels)
		add_dependencies(attend_played_test coppice_cuda_played)
	endif()
	# Memory of weights that others map.
	coppice_test(NAME cuda_weights_test SOURCES unit/cuda_weights_test.c
		LIBS memory_fixtures unit_fixtures cuda_host coppice_kernels
		LABELS unit kernels tsan)
	coppice_test(NAME cuda_arenas_test SOURCES unit/cuda_arenas_test.c
		LIBS memory_fixtures unit_fixtures cuda_host coppice_kernels
		LABELS unit kernels)
	# How devices find ways to each other; NCCL's part is played by a library of its name.
	set(fakes ${CMAKE_CURRENT_BINARY_DIR}/fakes)
	add_library(fake_nccl SHARED ${CMAKE_CURRENT_LIST_DIR}/fake_nccl.c)
	set_target_properties(fake_nccl PROPERTIES
		OUTPUT_NAME nccl SOVERSION 2 LIBRARY_OUTPUT_DIRECTORY ${fakes}
		C_VISIBILITY_PRESET default)
	coppice_test(NAME peers_test SOURCES unit/peers_test.c unit/no_launches.c
		LIBS cuda_host coppice_kernels ${CMAKE_DL_LIBS} LABELS unit kernels tsan)
	add_dependencies(peers_test fake_nccl)
	set_tests_properties(peers_test PROPERTIES ENVIRONMENT "LD_LIBRARY_PATH=${fakes}")
endif()
