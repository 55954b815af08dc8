# coppicectl against a real daemon.
if(TARGET coppiced AND TARGET coppicectl AND TARGET coppice)
	pkg_check_modules(JANSSON REQUIRED IMPORTED_TARGET jansson)
	coppice_path(coppiced coppiced)
	coppice_path(coppicectl coppicectl)
	coppice_fixtures(ctl_fixtures e2e/ctl_ask.c e2e/ctl_fixture.c)
	target_link_libraries(ctl_fixtures PUBLIC coppice coppice_proto PkgConfig::JANSSON)
	target_compile_definitions(ctl_fixtures PUBLIC
		COPPICED_PATH="${coppiced}"
		COPPICECTL_PATH="${coppicectl}")
	foreach(name ctl ctl_tiers ctl_top ctl_words)
		coppice_test(NAME ${name}_test SOURCES e2e/${name}_test.c
			LIBS ctl_fixtures LABELS e2e)
	endforeach()
endif()
