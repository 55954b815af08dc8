# coppice-bench: a file per subcommand; those whose library this build lacks are left out.
if(NOT COPPICE_BENCH)
	return()
endif()
pkg_check_modules(JANSSON REQUIRED IMPORTED_TARGET jansson)
file(GLOB bench_sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_LIST_DIR}/*.c)
add_executable(coppice-bench ${bench_sources} ${CMAKE_CURRENT_LIST_DIR}/../unit/oracle.c)
target_link_libraries(coppice-bench PRIVATE
	planner coppice_cli PkgConfig::JANSSON Threads::Threads ${CMAKE_DL_LIBS} m)
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
if(TARGET coppice AND TARGET coppice_agent)
	target_link_libraries(coppice-bench PRIVATE coppice_agent)
	target_compile_definitions(coppice-bench PRIVATE BENCH_HAVE_AGENT)
endif()
if(NOT COPPICE_CARRIED)
	add_test(NAME bench_words_test
		COMMAND python3 ${CMAKE_CURRENT_LIST_DIR}/../packaging/bench_words_test.py
			$<TARGET_FILE:coppice-bench>)
	set_tests_properties(bench_words_test PROPERTIES TIMEOUT 60 LABELS "unit;script")
endif()
# Whole tokens of a tiny model, both ways: that it runs and what it tells, not how fast.
find_program(AWK NAMES mawk gawk awk REQUIRED)
if(TARGET coppice AND TARGET coppice_agent AND TARGET coppiced AND TARGET coppicectl
		AND NOT COPPICE_CARRIED)
	# bench_decode(NAME ROUNDS ASSIGNMENT ARGS...): it ends well, and has so many rounds.
	function(bench_decode NAME ROUNDS ASSIGNMENT)
		set(awk "${AWK} -v least=${ROUNDS} -v ${ASSIGNMENT} -v rows=2")
		add_test(NAME ${NAME} COMMAND bash -o pipefail -c
			"\"$@\" | tee /dev/stderr | ${awk} -f \"$0\""
			${CMAKE_CURRENT_LIST_DIR}/decode_lines.awk
			$<TARGET_FILE:coppice-bench> decode -b cpu --pool=64M --prompt=8 ${ARGN})
		# The first of them writes the model.
		set_tests_properties(${NAME} PROPERTIES
			TIMEOUT 120 LABELS e2e RESOURCE_LOCK bench_tiny_model)
	endfunction()
	bench_decode(bench_decode_test 2 own=0 -m tiny -c 3 -s 2 -d 100 -t 8 --apart)
	bench_decode(bench_decode_rounds_test 2 own=0 -m tiny -c 1,3 -d 50 -t 4 --private)
	bench_decode(bench_decode_joins_test 1 own=0 -m tiny -c 2 -d 50 -t 4
		--every=500 --stay=200 --seconds=1)
	bench_decode(bench_decode_turns_test 1 own=0 -m tiny -c 2 -d 50 -t 8
		--turn=5 --layers=1)
	# Of another family, whose processes have programs of their own when they are apart: two
	# sequences are two rows of a pass.
	set(qwen3 ${CMAKE_CURRENT_BINARY_DIR}/bench_qwen3.json)
	file(WRITE ${qwen3} "{\"model_type\": \"qwen3\", \"hidden_size\": 128, \
\"intermediate_size\": 200, \"num_hidden_layers\": 2, \"num_attention_heads\": 4, \
\"num_key_value_heads\": 2, \"head_dim\": 64, \"vocab_size\": 300, \
\"max_position_embeddings\": 4096, \"torch_dtype\": \"float16\"}\n")
	bench_decode(bench_decode_family_test 4 own=1 -m ${qwen3} -c 2,3 -s 2 -d 50 -t 8
		--pool=192M --apart)
endif()
