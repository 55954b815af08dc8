# coppicectl against a real daemon.
if(TARGET coppiced AND TARGET coppicectl AND TARGET coppice)
	pkg_check_modules(JANSSON REQUIRED IMPORTED_TARGET jansson)
	coppice_path(coppiced coppiced)
	coppice_path(coppicectl coppicectl)
	foreach(name ctl ctl_tiers)
		coppice_test(NAME ${name}_test SOURCES e2e/${name}_test.c e2e/ctl_ask.c e2e/ctl_fixture.c
			LIBS coppice coppice_proto PkgConfig::JANSSON LABELS e2e)
		target_compile_definitions(${name}_test PRIVATE COPPICED_PATH="${coppiced}"
			COPPICECTL_PATH="${coppicectl}")
	endforeach()
endif()
