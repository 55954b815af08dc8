# Many processes over one daemon.
if(TARGET coppiced AND TARGET coppice)
	foreach(name flock)
		coppice_test(NAME ${name}_test
			SOURCES ${CMAKE_CURRENT_LIST_DIR}/${name}_test.c ${CMAKE_CURRENT_LIST_DIR}/control_harness.c
			LIBS coppice coppice_proto ARGS $<TARGET_FILE:coppiced> LABELS e2e)
		add_dependencies(${name}_test coppiced)
	endforeach()
endif()
