# Several devices as one: the merge, the exchange, the group.
if(TARGET coppice_kernels)
	coppice_test(NAME merge_test
		SOURCES ${CMAKE_CURRENT_LIST_DIR}/merge_test.c ${CMAKE_CURRENT_LIST_DIR}/oracle.c
		LIBS coppice_kernels LABELS unit kernels)
	coppice_test(NAME exchange_test
		SOURCES ${CMAKE_CURRENT_LIST_DIR}/exchange_test.c ${CMAKE_CURRENT_LIST_DIR}/oracle.c
		LIBS coppice_kernels Threads::Threads LABELS unit kernels)
	coppice_test(NAME ranks_test SOURCES ${CMAKE_CURRENT_LIST_DIR}/ranks_test.c
		LIBS coppice_kernels LABELS unit kernels)
	coppice_test(NAME group_test
		SOURCES ${CMAKE_CURRENT_LIST_DIR}/group_test.c ${CMAKE_CURRENT_LIST_DIR}/world.c
			${CMAKE_CURRENT_LIST_DIR}/oracle.c
		LIBS coppice_kernels LABELS unit kernels)
	coppice_test(NAME group_meet_test
		SOURCES ${CMAKE_CURRENT_LIST_DIR}/group_meet_test.c ${CMAKE_CURRENT_LIST_DIR}/world.c
			${CMAKE_CURRENT_LIST_DIR}/oracle.c
		LIBS coppice_kernels Threads::Threads LABELS unit kernels)
endif()
