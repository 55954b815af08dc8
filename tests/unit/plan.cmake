if(NOT TARGET coppice_kernels)
	return()
endif()
foreach(name plan plan_published plan_rules)
	coppice_test(NAME ${name}_test SOURCES unit/${name}_test.c
		LIBS unit_fixtures coppice_kernels)
endforeach()
