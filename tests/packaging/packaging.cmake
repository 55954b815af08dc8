# Scripts of packaging/ that decide what passes: over logs of the tests' own, and programs in stubs/
# in place of CUDA's; and those of benches: the one that draws the picture in README.md, and what
# tells where threads are.
add_test(NAME racecheck_test COMMAND python3 ${CMAKE_CURRENT_LIST_DIR}/racecheck_test.py)
set_tests_properties(racecheck_test PROPERTIES TIMEOUT 60 LABELS "unit;script")
add_test(NAME check_pages_test COMMAND python3 ${CMAKE_CURRENT_LIST_DIR}/check_pages_test.py)
set_tests_properties(check_pages_test PROPERTIES TIMEOUT 60 LABELS "unit;script")
add_test(NAME check_sizes_test COMMAND python3 ${CMAKE_CURRENT_LIST_DIR}/check_sizes_test.py)
set_tests_properties(check_sizes_test PROPERTIES TIMEOUT 60 LABELS "unit;script")
add_test(NAME check_layers_test COMMAND python3 ${CMAKE_CURRENT_LIST_DIR}/check_layers_test.py)
set_tests_properties(check_layers_test PROPERTIES TIMEOUT 60 LABELS "unit;script")
add_test(NAME device_pack_test COMMAND python3 ${CMAKE_CURRENT_LIST_DIR}/device_pack_test.py)
set_tests_properties(device_pack_test PROPERTIES TIMEOUT 60 LABELS "unit;script")
add_test(NAME man_counters_test COMMAND python3 ${CMAKE_CURRENT_LIST_DIR}/man_counters_test.py)
set_tests_properties(man_counters_test PROPERTIES TIMEOUT 60 LABELS "unit;script")
add_test(NAME demo_table_test COMMAND python3 ${CMAKE_CURRENT_LIST_DIR}/demo_table_test.py)
set_tests_properties(demo_table_test PROPERTIES TIMEOUT 60 LABELS "unit;script")
add_test(NAME draw_test COMMAND python3 ${CMAKE_CURRENT_LIST_DIR}/draw_test.py)
set_tests_properties(draw_test PROPERTIES TIMEOUT 60 LABELS "unit;script")
add_test(NAME threads_test COMMAND python3 ${CMAKE_CURRENT_LIST_DIR}/threads_test.py)
set_tests_properties(threads_test PROPERTIES TIMEOUT 60 LABELS "unit;script")
add_test(NAME cuda_stand_ins_test COMMAND python3 ${CMAKE_CURRENT_LIST_DIR}/cuda_stand_ins_test.py)
set_tests_properties(cuda_stand_ins_test PROPERTIES TIMEOUT 60 LABELS "unit;script")
if(TARGET coppiced AND TARGET coppicectl AND TARGET coppice-agent)
	add_test(NAME demo_test
		COMMAND python3 ${CMAKE_CURRENT_LIST_DIR}/demo_test.py ${PROJECT_BINARY_DIR})
	set_tests_properties(demo_test PROPERTIES TIMEOUT 120 LABELS e2e)
endif()
if(TARGET coppice_cuda)
	add_test(NAME order_test
		COMMAND python3 ${CMAKE_CURRENT_LIST_DIR}/order_test.py
			${PROJECT_BINARY_DIR}/kernels/cuda/ptx ${PROJECT_SOURCE_DIR})
	set_tests_properties(order_test PROPERTIES TIMEOUT 300 LABELS "unit;kernels;script")
endif()
