if(TARGET coppice_kernels)
	coppice_test(NAME plan_test SOURCES ${CMAKE_CURRENT_LIST_DIR}/plan_test.c LIBS coppice_kernels)
endif()
