# What the GPU is given to run; needs neither nvcc nor a device.
coppice_test(NAME program_test SOURCES unit/program_test.c
	LIBS unit_fixtures planner coppice_kernels LABELS unit kernels)
