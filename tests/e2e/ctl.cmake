# coppicectl against a real daemon.
if(TARGET coppiced AND TARGET coppicectl AND TARGET coppice)
	pkg_check_modules(JANSSON REQUIRED IMPORTED_TARGET jansson)
	coppice_test(NAME ctl_test
		SOURCES ${CMAKE_CURRENT_LIST_DIR}/ctl_test.c ${CMAKE_CURRENT_LIST_DIR}/ctl_fixture.c
		LIBS coppice coppice_proto PkgConfig::JANSSON
		LABELS e2e)
	coppice_path(coppiced coppiced)
	coppice_path(coppicectl coppicectl)
	target_compile_definitions(ctl_test PRIVATE COPPICED_PATH="${coppiced}" COPPICECTL_PATH="${coppicectl}")
endif()
