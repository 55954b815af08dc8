if(TARGET coppice_proto)
	coppice_test(NAME ring_test SOURCES unit/ring_test.c LIBS coppice_proto Threads::Threads LABELS tsan)
	coppice_test(NAME channel_test SOURCES unit/channel_test.c LIBS coppice_proto)
endif()
if(TARGET coppice_static AND TARGET coppiced)
	coppice_test(NAME client_test SOURCES unit/client_test.c LIBS coppice_static
		ARGS $<TARGET_FILE:coppiced> LABELS tsan)
	add_dependencies(client_test coppiced)
endif()
