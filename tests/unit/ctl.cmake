# Parts of coppicectl by themselves: no daemon.
foreach(name text table)
	coppice_test(NAME ${name}_test
		SOURCES
			unit/${name}_test.c
			${PROJECT_SOURCE_DIR}/client/ctl/table.c
			${PROJECT_SOURCE_DIR}/client/ctl/text.c
		LABELS unit)
	target_include_directories(${name}_test PRIVATE ${PROJECT_SOURCE_DIR})
endforeach()
coppice_test(NAME tree_lines_test
	SOURCES
		unit/tree_lines_test.c
		${PROJECT_SOURCE_DIR}/client/ctl/text.c
		${PROJECT_SOURCE_DIR}/client/ctl/tree_lines.c
	LIBS coppice_proto LABELS unit)
