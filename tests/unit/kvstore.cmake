foreach(unit pages stripe radix claims evict store tier_room)
	if(NOT EXISTS ${CMAKE_CURRENT_SOURCE_DIR}/unit/${unit}_test.c)
		continue()
	endif()
	coppice_test(NAME ${unit}_test SOURCES unit/${unit}_test.c LIBS coppice_kvstore LABELS unit kvstore)
endforeach()
target_link_options(store_test PRIVATE
	-Wl,--wrap=malloc -Wl,--wrap=calloc -Wl,--wrap=realloc -Wl,--wrap=aligned_alloc)
coppice_test(NAME store_random_test SOURCES unit/store_random_test.c unit/store_world.c unit/store_naive.c unit/store_ops.c
	LIBS coppice_kvstore LABELS unit kvstore)
target_link_options(store_random_test PRIVATE -Wl,--wrap=malloc -Wl,--wrap=calloc -Wl,--wrap=realloc)
foreach(unit tier_file tier_file_refused)
	coppice_test(NAME ${unit}_test SOURCES unit/${unit}_test.c unit/tier_file_fixture.c
		LIBS coppice_kvstore LABELS unit kvstore)
endforeach()
foreach(unit tier tier_kill tail)
	if(EXISTS ${CMAKE_CURRENT_SOURCE_DIR}/unit/${unit}_test.c)
		coppice_test(NAME ${unit}_test SOURCES unit/${unit}_test.c unit/tier_world.c
			LIBS coppice_kvstore LABELS unit kvstore)
	endif()
endforeach()
