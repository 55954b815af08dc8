# Tests of client/agent.
foreach(name safetensors sampler matmul)
	coppice_test(NAME ${name}_test SOURCES ${CMAKE_CURRENT_LIST_DIR}/${name}_test.c LIBS coppice_agent)
endforeach()
