# The C on the pages is compiled; the apps that client/README.md begins with are run.
find_program(AWK NAMES mawk gawk awk REQUIRED)
if(TARGET coppice AND TARGET coppiced AND TARGET coppice_model)
	# README.md has its first block: packaging/check-pages.py.
	set(pages ${PROJECT_SOURCE_DIR}/client/README.md)
	set(blocks ${CMAKE_CURRENT_LIST_DIR}/page_blocks.awk)
	set(made ${CMAKE_CURRENT_BINARY_DIR}/pages)
	file(MAKE_DIRECTORY ${made})
	list(GET pages 0 guide)
	foreach(pair whole_agent:1 first_app:2)
		string(REPLACE ":" ";" pair ${pair})
		list(GET pair 0 name)
		list(GET pair 1 number)
		add_custom_command(OUTPUT ${made}/${name}.c
			COMMAND ${AWK} -v whole=${number} -f ${blocks} ${guide} > ${made}/${name}.c
			DEPENDS ${guide} ${blocks} VERBATIM)
		add_executable(${name} ${made}/${name}.c)
		target_link_libraries(${name} PRIVATE coppice)
	endforeach()
	target_link_libraries(whole_agent PRIVATE coppice_model)
	target_include_directories(whole_agent PRIVATE ${PROJECT_SOURCE_DIR}/client/model)
	add_custom_command(OUTPUT ${made}/page_blocks.inc
		COMMAND ${AWK} -f ${blocks} ${pages} > ${made}/page_blocks.inc
		DEPENDS ${pages} ${blocks} VERBATIM)
	add_library(page_blocks OBJECT
		${CMAKE_CURRENT_LIST_DIR}/page_blocks.c
		${made}/page_blocks.inc)
	target_include_directories(page_blocks PRIVATE ${made})
	target_link_libraries(page_blocks PRIVATE coppice)

	coppice_path(first_app first_app)
	coppice_path(whole_agent whole_agent)
	coppice_test(NAME first_app_test SOURCES e2e/first_app_test.c
		LIBS e2e_fixtures coppice_proto ARGS $<TARGET_FILE:coppiced> LABELS e2e)
	target_compile_definitions(first_app_test PRIVATE FIRST_APP_PATH="${first_app}"
		WHOLE_AGENT_PATH="${whole_agent}" WHOLE_AGENT_SOURCE="${made}/whole_agent.c"
		MODEL_DIR="${coppice_data}/tests/model")
	add_dependencies(first_app_test coppiced first_app whole_agent)
endif()
