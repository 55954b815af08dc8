# Several devices as one: the merge, the exchange, the group.
if(TARGET coppice_kernels)
	coppice_test(NAME merge_test
		SOURCES ${CMAKE_CURRENT_LIST_DIR}/merge_test.c ${CMAKE_CURRENT_LIST_DIR}/oracle.c
		LIBS coppice_kernels LABELS unit kernels)
endif()
