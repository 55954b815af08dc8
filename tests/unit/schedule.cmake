# What the GPU is given to run; needs neither nvcc nor a device.
coppice_test(NAME schedule_test SOURCES unit/schedule_test.c
	LIBS unit_fixtures planner coppice_kernels LABELS unit kernels)
coppice_test(NAME schedule_strips_test SOURCES unit/schedule_strips_test.c
	LIBS unit_fixtures planner coppice_kernels LABELS unit kernels)
