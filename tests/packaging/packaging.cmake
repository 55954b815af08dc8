# Scripts of packaging/ that decide what passes: over logs of the tests' own, and programs in stubs/ in place of CUDA's.
add_test(NAME racecheck_test COMMAND python3 ${CMAKE_CURRENT_LIST_DIR}/racecheck_test.py)
set_tests_properties(racecheck_test PROPERTIES TIMEOUT 60 LABELS unit)
add_test(NAME check_pages_test COMMAND python3 ${CMAKE_CURRENT_LIST_DIR}/check_pages_test.py)
set_tests_properties(check_pages_test PROPERTIES TIMEOUT 60 LABELS unit)
add_test(NAME device_pack_test COMMAND python3 ${CMAKE_CURRENT_LIST_DIR}/device_pack_test.py)
set_tests_properties(device_pack_test PROPERTIES TIMEOUT 60 LABELS unit)
add_test(NAME man_counters_test COMMAND python3 ${CMAKE_CURRENT_LIST_DIR}/man_counters_test.py)
set_tests_properties(man_counters_test PROPERTIES TIMEOUT 60 LABELS unit)
