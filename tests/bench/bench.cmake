# coppice-bench: a file per subcommand; those whose library this build lacks are left out.
if(NOT COPPICE_BENCH)
	return()
endif()
pkg_check_modules(JANSSON REQUIRED IMPORTED_TARGET jansson)
file(GLOB bench_sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_LIST_DIR}/*.c)
add_executable(coppice-bench ${bench_sources} ${CMAKE_CURRENT_LIST_DIR}/../unit/oracle.c)
target_link_libraries(coppice-bench PRIVATE
	planner coppice_cli PkgConfig::JANSSON Threads::Threads ${CMAKE_DL_LIBS} m)
target_include_directories(coppice-bench PRIVATE ${PROJECT_SOURCE_DIR})
target_compile_definitions(coppice-bench PRIVATE BENCH_BUILD_DIR="${coppice_programs}"
	BENCH_SOURCE_DIR="${coppice_data}")
foreach(part kernels kvstore proto)
	if(TARGET coppice_${part})
		string(TOUPPER BENCH_HAVE_${part} have)
		target_link_libraries(coppice-bench PRIVATE coppice_${part})
		target_compile_definitions(coppice-bench PRIVATE ${have})
	endif()
endforeach()
if(TARGET coppice)
	target_link_libraries(coppice-bench PRIVATE coppice)
	target_compile_definitions(coppice-bench PRIVATE BENCH_HAVE_CLIENT)
endif()
if(TARGET coppice AND TARGET coppice_agent)
	target_link_libraries(coppice-bench PRIVATE coppice_agent)
	target_compile_definitions(coppice-bench PRIVATE BENCH_HAVE_AGENT)
endif()
# Whole tokens of a tiny model, both ways: that it runs, not how fast.
if(TARGET coppice AND TARGET coppice_agent AND TARGET coppiced AND TARGET coppicectl
		AND NOT COPPICE_CARRIED)
	add_test(NAME bench_decode_test
		COMMAND coppice-bench decode -b cpu -m tiny -c 3 -s 2 -d 100 --prompt=8 -t 8
		--pool=64M --apart)
	add_test(NAME bench_decode_rounds_test
		COMMAND coppice-bench decode -b cpu -m tiny -c 1,3 -d 50 --prompt=8 -t 4
		--pool=64M --private)
	add_test(NAME bench_decode_joins_test
		COMMAND coppice-bench decode -b cpu -m tiny -c 2 -d 50 --prompt=8 -t 4
		--pool=64M --every=500 --stay=200 --seconds=1)
	add_test(NAME bench_decode_turns_test
		COMMAND coppice-bench decode -b cpu -m tiny -c 2 -d 50 --prompt=8 -t 8
		--pool=64M --turn=5 --layers=1)
	# The first of them writes the model.
	set_tests_properties(bench_decode_test bench_decode_rounds_test
		bench_decode_joins_test bench_decode_turns_test PROPERTIES
		TIMEOUT 120 LABELS e2e RESOURCE_LOCK bench_tiny_model)
endif()
