coppice_test(NAME cli_test SOURCES ${CMAKE_CURRENT_LIST_DIR}/cli_test.c LIBS coppice_cli LABELS unit)
