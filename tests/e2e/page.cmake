# The C on the pages is compiled; the app that client/README.md begins with is run.
find_program(AWK NAMES mawk gawk awk REQUIRED)
if(TARGET coppice AND TARGET coppiced)
	set(pages ${PROJECT_SOURCE_DIR}/client/README.md) # README.md has its first block: packaging/check-pages.py
	set(blocks ${CMAKE_CURRENT_LIST_DIR}/page_blocks.awk)
	set(made ${CMAKE_CURRENT_BINARY_DIR}/pages)
	file(MAKE_DIRECTORY ${made})
	list(GET pages 0 guide)
	add_custom_command(OUTPUT ${made}/first_app.c
		COMMAND ${AWK} -v first=1 -f ${blocks} ${guide} > ${made}/first_app.c
		DEPENDS ${guide} ${blocks} VERBATIM)
	add_custom_command(OUTPUT ${made}/page_blocks.inc
		COMMAND ${AWK} -f ${blocks} ${pages} > ${made}/page_blocks.inc
		DEPENDS ${pages} ${blocks} VERBATIM)
	add_library(page_blocks OBJECT ${CMAKE_CURRENT_LIST_DIR}/page_blocks.c ${made}/page_blocks.inc)
	target_include_directories(page_blocks PRIVATE ${made})
	target_link_libraries(page_blocks PRIVATE coppice)

	add_executable(first_app ${made}/first_app.c)
	target_link_libraries(first_app PRIVATE coppice)
	coppice_path(first_app first_app)
	coppice_test(NAME first_app_test SOURCES e2e/first_app_test.c
		LIBS e2e_fixtures coppice_proto ARGS $<TARGET_FILE:coppiced> LABELS e2e)
	target_compile_definitions(first_app_test PRIVATE FIRST_APP_PATH="${first_app}")
	add_dependencies(first_app_test coppiced first_app)
endif()
