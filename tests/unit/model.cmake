# Tests of client/model, against models that transformers has computed.
if(NOT TARGET coppice_model)
	return()
endif()
pkg_check_modules(JANSSON REQUIRED IMPORTED_TARGET jansson)
set(models_dir MODELS_DIR="${coppice_data}/tests/model/families")

coppice_test(NAME model_config_test
	SOURCES unit/model_config_test.c unit/family_fixture.c unit/hf_fixture.c
	LIBS coppice_model PkgConfig::JANSSON)
target_compile_definitions(model_config_test PRIVATE ${models_dir})
coppice_test(NAME model_refusal_test SOURCES unit/model_refusal_test.c unit/hf_fixture.c
	LIBS coppice_model)

# Prompts of 1,500 tokens take a sanitizer a minute, and touch no line that those of 300 do not.
set(n_prompts 3)
if(COPPICE_SANITIZE)
	set(n_prompts 2)
endif()
coppice_test(NAME families_test
	SOURCES unit/families_test.c unit/family_fixture.c unit/program_machine.c
	LIBS coppice_model unit_fixtures coppice_kernels PkgConfig::JANSSON)
target_compile_definitions(families_test PRIVATE
	${models_dir}
	MACHINE_TOKENS=1600
	N_PROMPTS=${n_prompts})
