# Tests of client/model.
if(NOT TARGET coppice_model)
	return()
endif()
coppice_test(NAME model_config_test SOURCES unit/model_config_test.c LIBS coppice_model)
