# Tests of client/agent.
if(NOT TARGET coppice_agent)
	return()
endif()
foreach(name safetensors agent_file llama_config sampler matmul)
	coppice_test(NAME ${name}_test SOURCES ${CMAKE_CURRENT_LIST_DIR}/${name}_test.c LIBS coppice_agent)
endforeach()
