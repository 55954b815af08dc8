# The GPU planner's constants from times; needs neither nvcc nor a device.
if(NOT COPPICE_BENCH)
	return()
endif()
coppice_test(NAME fit_test SOURCES unit/fit_test.c
	LIBS unit_fixtures planner coppice_kernels LABELS unit kernels)
target_compile_definitions(fit_test PRIVATE BENCH_HAVE_KERNELS)

foreach(name schedule_cut_test schedule_waves_test)
	coppice_test(NAME ${name} SOURCES unit/${name}.c unit/cut_fixture.c
		LIBS unit_fixtures planner coppice_kernels LABELS unit kernels)
	target_compile_definitions(${name} PRIVATE BENCH_HAVE_KERNELS)
endforeach()

coppice_test(NAME clocks_test SOURCES unit/clocks_test.c bench/clocks.c
	LIBS coppice_kernels LABELS unit kernels)
target_compile_definitions(clocks_test PRIVATE BENCH_HAVE_KERNELS)
coppice_test(NAME decode_slow_test SOURCES unit/decode_slow_test.c bench/decode_slow.c
	LIBS coppice_cli LABELS unit)
