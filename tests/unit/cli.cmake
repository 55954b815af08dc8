foreach(name args cli)
	coppice_test(NAME ${name}_test SOURCES unit/${name}_test.c LIBS coppice_cli LABELS unit)
endforeach()
