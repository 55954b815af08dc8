if(TARGET coppice_proto)
	coppice_test(NAME ring_test SOURCES unit/ring_test.c LIBS coppice_proto Threads::Threads LABELS tsan)
	coppice_test(NAME channel_test SOURCES unit/channel_test.c LIBS coppice_proto)
endif()
