foreach(unit pages radix claims evict store store_random tier_room tier_file)
	if(NOT EXISTS ${CMAKE_CURRENT_SOURCE_DIR}/unit/${unit}_test.c)
		continue()
	endif()
	coppice_test(NAME ${unit}_test SOURCES unit/${unit}_test.c LIBS coppice_kvstore LABELS unit kvstore)
endforeach()
target_link_options(store_test PRIVATE
	-Wl,--wrap=malloc -Wl,--wrap=calloc -Wl,--wrap=realloc -Wl,--wrap=aligned_alloc)
foreach(unit tier tier_kill)
	if(EXISTS ${CMAKE_CURRENT_SOURCE_DIR}/unit/${unit}_test.c)
		coppice_test(NAME ${unit}_test SOURCES unit/${unit}_test.c unit/tier_world.c
			LIBS coppice_kvstore LABELS unit kvstore)
	endif()
endforeach()
