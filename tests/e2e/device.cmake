# Device arenas and streams: on a GPU, and everywhere over a driver and a module that have none. The
# fakes stand where the real ones are looked for.
if(NOT TARGET coppiced OR NOT TARGET coppice_static)
	return()
endif()
set(fakes ${CMAKE_CURRENT_BINARY_DIR}/fakes)
add_library(fake_driver SHARED ${CMAKE_CURRENT_LIST_DIR}/fake_driver.c)
set_target_properties(fake_driver PROPERTIES
	OUTPUT_NAME cuda SOVERSION 1 LIBRARY_OUTPUT_DIRECTORY ${fakes})
target_link_libraries(fake_driver PRIVATE Threads::Threads)
add_library(fake_module MODULE ${CMAKE_CURRENT_LIST_DIR}/fake_module.c)
set_target_properties(fake_module PROPERTIES
	PREFIX "" OUTPUT_NAME coppice-cuda LIBRARY_OUTPUT_DIRECTORY ${fakes})
target_link_libraries(fake_module PRIVATE coppice_kernels)

add_executable(device_test
	filter.c
	${CMAKE_CURRENT_LIST_DIR}/device_test.c
	${CMAKE_CURRENT_LIST_DIR}/device_stem.c
	${CMAKE_CURRENT_LIST_DIR}/device_memory.c
	${CMAKE_CURRENT_LIST_DIR}/device_fixture.c
	${CMAKE_CURRENT_LIST_DIR}/device_process.c
	${CMAKE_CURRENT_LIST_DIR}/device_client.c
	${CMAKE_CURRENT_LIST_DIR}/device_numbers.c
	${CMAKE_CURRENT_LIST_DIR}/device_gpu.c)
coppice_reference(${CMAKE_CURRENT_LIST_DIR}/device_numbers.c)
target_link_libraries(device_test PRIVATE
	e2e_fixtures coppice_static coppice_proto PkgConfig::CMOCKA ${CMAKE_DL_LIBS} m)
add_dependencies(device_test coppiced fake_driver fake_module)
add_dependencies(tsan_tests device_test)
add_test(NAME device_test COMMAND device_test $<TARGET_FILE:coppiced>)
set_tests_properties(device_test PROPERTIES TIMEOUT 300 LABELS "gpu" SKIP_RETURN_CODE 77)
set(where_fakes_are "LD_LIBRARY_PATH=${fakes};COPPICE_MODULE_DIR=${fakes}")
add_test(NAME device_fake_test COMMAND device_test $<TARGET_FILE:coppiced>)
set_tests_properties(device_fake_test PROPERTIES TIMEOUT 300 LABELS "e2e;tsan"
	ENVIRONMENT "FAKE_CUDA=1;${where_fakes_are}")
# The same under MPS, where the library's streams take turns by kernels. Here and below nobody spins
# who has nothing to do: half of what these tests take was that.
add_test(NAME device_fake_mps_test COMMAND device_test $<TARGET_FILE:coppiced>)
set_tests_properties(device_fake_mps_test PROPERTIES TIMEOUT 300 LABELS "e2e;tsan"
	ENVIRONMENT "COPPICE_TEST_SLEEP=1;FAKE_CUDA=1;FAKE_CUDA_MPS=1;${where_fakes_are}")
# Several devices: clients notice nothing, so that their tests are the same. And what there is to be
# noticed.
coppice_test(NAME devices_test SOURCES e2e/devices_test.c
	LIBS e2e_fixtures coppice_proto ARGS $<TARGET_FILE:coppiced> LABELS e2e)
add_dependencies(devices_test coppiced fake_module)
set_tests_properties(devices_test PROPERTIES ENVIRONMENT "COPPICE_MODULE_DIR=${fakes}")
add_test(NAME device_fake_devices_test COMMAND device_test $<TARGET_FILE:coppiced>)
set_tests_properties(device_fake_devices_test PROPERTIES TIMEOUT 300 LABELS "e2e;tsan"
	ENVIRONMENT
		"COPPICE_TEST_SLEEP=1;FAKE_CUDA=1;${where_fakes_are};COPPICE_TEST_DEVICES=0,1")
