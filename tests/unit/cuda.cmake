# The GPU's backend; skipped, with a sentence, where there is no device.
if(TARGET coppice_cuda)
	coppice_test(NAME cuda_test
		SOURCES ${CMAKE_CURRENT_LIST_DIR}/cuda_test.c ${CMAKE_CURRENT_LIST_DIR}/world.c
			${CMAKE_CURRENT_LIST_DIR}/world_cases.c ${CMAKE_CURRENT_LIST_DIR}/probe.c
			${CMAKE_CURRENT_LIST_DIR}/device_ops.c ${CMAKE_CURRENT_LIST_DIR}/oracle.c
		LIBS coppice_kernels ${CMAKE_DL_LIBS} ARGS $<TARGET_FILE:coppice_cuda> LABELS gpu TIMEOUT 300)
	set_tests_properties(cuda_test PROPERTIES SKIP_RETURN_CODE 77)
	add_dependencies(cuda_test coppice_cuda)
	coppice_test(NAME stand_cuda_test
		SOURCES ${CMAKE_CURRENT_LIST_DIR}/stand_cuda_test.c ${CMAKE_CURRENT_LIST_DIR}/world.c
			${CMAKE_CURRENT_LIST_DIR}/probe.c ${CMAKE_CURRENT_LIST_DIR}/device_ops.c
			${CMAKE_CURRENT_LIST_DIR}/oracle.c
		LIBS coppice_kernels ${CMAKE_DL_LIBS} ARGS $<TARGET_FILE:coppice_cuda> LABELS gpu TIMEOUT 300)
	set_tests_properties(stand_cuda_test PROPERTIES SKIP_RETURN_CODE 77)
	add_dependencies(stand_cuda_test coppice_cuda)
	coppice_test(NAME group_cuda_test
		SOURCES ${CMAKE_CURRENT_LIST_DIR}/group_cuda_test.c ${CMAKE_CURRENT_LIST_DIR}/group_growing.c
			${CMAKE_CURRENT_LIST_DIR}/world.c ${CMAKE_CURRENT_LIST_DIR}/oracle.c
		LIBS coppice_kernels ${CMAKE_DL_LIBS} ARGS $<TARGET_FILE:coppice_cuda> LABELS gpu TIMEOUT 300)
	set_tests_properties(group_cuda_test PROPERTIES SKIP_RETURN_CODE 77)
	add_dependencies(group_cuda_test coppice_cuda)
endif()

# Host code of the backend, the sanitizers' too: it takes the runtime's headers, and what is behind them is the tests'.
if(COPPICE_CUDA_INCLUDE)
	# What is said where no GPU can compute: the runtime's part is the test's.
	coppice_test(NAME card_test
		SOURCES ${CMAKE_CURRENT_LIST_DIR}/card_test.c ${PROJECT_SOURCE_DIR}/kernels/cuda/device/card.c
		LIBS coppice_kernels LABELS unit kernels)
	target_include_directories(card_test SYSTEM PRIVATE ${COPPICE_CUDA_INCLUDE})
	# Plans that share so much memory of a device; the runtime's part is the test's, too.
	coppice_test(NAME plans_test
		SOURCES ${CMAKE_CURRENT_LIST_DIR}/plans_test.c ${CMAKE_CURRENT_LIST_DIR}/oracle.c
			${PROJECT_SOURCE_DIR}/kernels/cuda/batch/batch_memory.c
			${PROJECT_SOURCE_DIR}/kernels/cuda/batch/batch_plans.c
			${PROJECT_SOURCE_DIR}/kernels/cuda/batch/batch_ahead.c
			${PROJECT_SOURCE_DIR}/kernels/cuda/batch/batch_shape.c
			${planner_sources}
		LIBS coppice_kernels LABELS unit kernels)
	target_include_directories(plans_test SYSTEM PRIVATE ${COPPICE_CUDA_INCLUDE})
	# Launches that wait for their batches, on a stream that is played.
	coppice_test(NAME stand_test
		SOURCES ${CMAKE_CURRENT_LIST_DIR}/stand_test.c ${CMAKE_CURRENT_LIST_DIR}/fake_stream.c
			${CMAKE_CURRENT_LIST_DIR}/oracle.c
			${PROJECT_SOURCE_DIR}/kernels/cuda/batch/stand.c
			${PROJECT_SOURCE_DIR}/kernels/cuda/batch/batch.c
			${PROJECT_SOURCE_DIR}/kernels/cuda/batch/batch_memory.c
			${PROJECT_SOURCE_DIR}/kernels/cuda/batch/batch_plans.c
			${PROJECT_SOURCE_DIR}/kernels/cuda/batch/batch_ahead.c
			${PROJECT_SOURCE_DIR}/kernels/cuda/batch/batch_shape.c
			${PROJECT_SOURCE_DIR}/kernels/cuda/batch/batch_tables.c
			${planner_sources}
		LIBS coppice_kernels LABELS unit kernels)
	target_include_directories(stand_test SYSTEM PRIVATE ${COPPICE_CUDA_INCLUDE})
	# How devices find ways to each other; NCCL's part is played by a library of its name beside the test.
	set(fakes ${CMAKE_CURRENT_BINARY_DIR}/fakes)
	add_library(fake_nccl SHARED ${CMAKE_CURRENT_LIST_DIR}/fake_nccl.c)
	set_target_properties(fake_nccl PROPERTIES OUTPUT_NAME nccl SOVERSION 2 LIBRARY_OUTPUT_DIRECTORY ${fakes}
		C_VISIBILITY_PRESET default)
	coppice_test(NAME peers_test
		SOURCES ${CMAKE_CURRENT_LIST_DIR}/peers_test.c ${PROJECT_SOURCE_DIR}/kernels/cuda/peers/peer.c
			${PROJECT_SOURCE_DIR}/kernels/cuda/peers/nccl.c ${PROJECT_SOURCE_DIR}/kernels/cuda/batch/batch_memory.c
		LIBS coppice_kernels ${CMAKE_DL_LIBS} LABELS unit kernels tsan)
	target_include_directories(peers_test SYSTEM PRIVATE ${COPPICE_CUDA_INCLUDE})
	add_dependencies(peers_test fake_nccl)
	set_tests_properties(peers_test PROPERTIES ENVIRONMENT "LD_LIBRARY_PATH=${fakes}")
endif()
