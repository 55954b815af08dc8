foreach(name args cli)
	coppice_test(NAME ${name}_test SOURCES ${CMAKE_CURRENT_LIST_DIR}/${name}_test.c LIBS coppice_cli LABELS unit)
endforeach()
