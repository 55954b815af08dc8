foreach(unit
	numbers pages stripe radix path_nodes claims prompts pins collapse check evict store
	tier_room)
	coppice_test(NAME ${unit}_test SOURCES unit/${unit}_test.c
		LIBS coppice_kvstore LABELS unit kvstore)
endforeach()
target_link_options(store_test PRIVATE
	-Wl,--wrap=malloc -Wl,--wrap=calloc -Wl,--wrap=realloc -Wl,--wrap=aligned_alloc)
coppice_test(NAME store_random_test
	SOURCES unit/store_random_test.c unit/store_world.c unit/store_naive.c unit/store_ops.c
	LIBS coppice_kvstore LABELS unit kvstore)
target_link_options(store_random_test PRIVATE
	-Wl,--wrap=malloc -Wl,--wrap=calloc -Wl,--wrap=realloc)
foreach(unit tier_file tier_file_refused)
	coppice_test(NAME ${unit}_test SOURCES unit/${unit}_test.c
		LIBS kvstore_fixtures coppice_kvstore LABELS unit kvstore)
endforeach()
foreach(unit tier_kill tail)
	coppice_test(NAME ${unit}_test SOURCES unit/${unit}_test.c
		LIBS kvstore_fixtures coppice_kvstore LABELS unit kvstore)
endforeach()
foreach(unit tier tier_models tier_restart tier_write)
	coppice_test(NAME ${unit}_test SOURCES unit/${unit}_test.c
		LIBS kvstore_fixtures coppice_kvstore LABELS unit kvstore)
endforeach()
target_link_options(tier_test PRIVATE -Wl,--wrap=calloc)
