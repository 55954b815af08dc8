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
# What coppice-bench makes weights of.
coppice_test(NAME decode_weights_test
	SOURCES unit/decode_weights_test.c unit/family_fixture.c bench/decode_weights.c
	LIBS coppice_model PkgConfig::JANSSON)
target_compile_definitions(decode_weights_test PRIVATE ${models_dir} BENCH_HAVE_AGENT)
target_include_directories(decode_weights_test PRIVATE ${CMAKE_CURRENT_SOURCE_DIR})

# Prompts of 1,500 tokens take a sanitizer a minute, and touch no line that those of 300 do not.
set(n_prompts 3)
if(COPPICE_SANITIZE)
	set(n_prompts 2)
endif()
set(families unit/families_test.c unit/family_fixture.c unit/program_gpu.c unit/program_machine.c)
coppice_test(NAME families_test SOURCES ${families}
	LIBS coppice_model unit_fixtures coppice_kernels PkgConfig::JANSSON ${CMAKE_DL_LIBS})
target_compile_definitions(families_test PRIVATE
	${models_dir}
	MACHINE_TOKENS=1600
	N_PROMPTS=${n_prompts})
# What is played goes element by element: without the longest.
if(COPPICE_CUDA_INCLUDE)
	math(EXPR n_played "${n_prompts} - 1")
	coppice_test(NAME families_device_test
		SOURCES ${families}
		LIBS ${played_device} coppice_model PkgConfig::JANSSON
		LABELS unit kernels)
	target_compile_definitions(families_device_test PRIVATE
		${models_dir} PROGRAM_FAKE MACHINE_TOKENS=1600 N_PROMPTS=${n_played})
endif()
