# coppice-bench: a file per subcommand; those whose library this build lacks are left out.
if(NOT COPPICE_BENCH)
	return()
endif()
pkg_check_modules(JANSSON REQUIRED IMPORTED_TARGET jansson)
file(GLOB bench_sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_LIST_DIR}/*.c)
file(GLOB program_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/kernels/cuda/program*.c
	${PROJECT_SOURCE_DIR}/kernels/cuda/costs.c) # the planner: plain C
add_executable(coppice-bench ${bench_sources} ${program_sources} ${CMAKE_CURRENT_LIST_DIR}/../unit/oracle.c)
target_link_libraries(coppice-bench PRIVATE PkgConfig::JANSSON Threads::Threads ${CMAKE_DL_LIBS} m)
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
