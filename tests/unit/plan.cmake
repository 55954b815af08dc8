if(NOT TARGET coppice_kernels)
	return()
endif()
foreach(name plan plan_published plan_rules)
	coppice_test(NAME ${name}_test SOURCES ${CMAKE_CURRENT_LIST_DIR}/${name}_test.c ${CMAKE_CURRENT_LIST_DIR}/grove.c
		LIBS coppice_kernels)
endforeach()
