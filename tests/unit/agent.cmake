# Tests of client/agent.
if(NOT TARGET coppice_agent)
	return()
endif()
foreach(name safetensors agent_file llama_config sampler)
	coppice_test(NAME ${name}_test SOURCES unit/${name}_test.c LIBS coppice_agent)
endforeach()

# The forward pass, over plain attention and over a real daemon's.
coppice_test(NAME llama_test SOURCES unit/llama_test.c unit/plain_attention.c LIBS coppice_agent)
coppice_reference(${CMAKE_CURRENT_LIST_DIR}/plain_attention.c)
target_compile_definitions(llama_test PRIVATE MODEL_DIR="${coppice_data}/tests/model")
if(TARGET coppiced)
	coppice_path(coppiced coppiced)
	target_compile_definitions(llama_test PRIVATE COPPICED_PATH="${coppiced}")
	add_dependencies(llama_test coppiced)
endif()
# 8,000 tokens under a sanitizer take most of a minute and touch no line that 600 do not.
if(NOT COPPICE_SANITIZE)
	target_compile_definitions(llama_test PRIVATE WITH_LONG_PROMPT)
endif()

# The same layers as a program of the CPU's backend.
coppice_test(NAME program_agent_test SOURCES unit/program_agent_test.c unit/program_machine.c
	LIBS unit_fixtures coppice_agent coppice_kernels)
