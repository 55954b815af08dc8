#!/usr/bin/env bash
# Takes the GPU's tests and benches to a machine that has a GPU but lacks what the build needs.
#
#   tests/device.sh pack [BUILD [WORKLOADS...]]
#       here: gathers programs, their libraries, data and workload files in build-device/, which
#       stands alone; BUILD is configured with -DCOPPICE_CARRIED=ON (without one: build/carried,
#       built now)
#   tests/device.sh check
#       there, beside that folder: all that packaging/check.sh --gpu checks with the GPU's backend:
#       every test that is packed, one of them with several GPUs only; the build's others are not
#       packed, as they need none. Python's with that machine's torch and transformers
#   tests/device.sh run [BENCH-OPTION...]
#       there: the kernels' tests, then the bench over the workload files
#   tests/device.sh multi WORKLOAD [BENCH-OPTION...]
#       there, with several GPUs: their tests, NCCL's too, the agent's over all of them, then
#       coppice-bench multi; each step ends within a minute or two
#
# COPPICE_PACK names another folder. In the folder itself, packaging/check.sh --gpu and
# packaging/demo.sh --gpu run as here.
set -euo pipefail
cd "$(dirname "$0")/.."
pack=${COPPICE_PACK:-build-device}

programs=(daemon/coppiced client/ctl/coppicectl client/agent/coppice-agent tests/coppice-bench)
tests=(
	cuda_test variant_test stand_cuda_test program_cuda_test program_products_cuda_test
	estimate_cuda_test select_cuda_test sparse_test sched_sparse_test mover_test
	legs_test summary_test group_cuda_test group_ranks_test sched_tiers_test
	sched_long_test sched_ahead_test attention_test
	backend_test device_test soak_test control_test service_test ctl_test ctl_top_test
	ctl_words_test ctl_tiers_test api_test flock_test heads_test agent_test llama_test
	tiers_test tiers_file_test tiers_kill_test hostile_test hostile_memory_test control_fuzz
	decode_test decode_draft_test decode_cancel_test decode_refusal_test decode_tiers_test
	decode_attack_test weights_faults_test weights_map_test families_test fair_test
	attack_lanes_test
)
modules=(client/libcoppice.so.0 kernels/cuda/coppice-cuda.so kernels/cuda/coppice-cuda-clocks.so
	kernels/cuda/coppice-cuda-capped.so)

# What a build needs besides a compiler is installed where that is possible, else it is named.
build_carried() { # build folder
	packaging/install-deps.sh check || exit 1
	pkg-config --exists cmocka || {
		echo "device.sh: CMocka is missing, which the tests are built with:" \
			"packaging/install-deps.sh check installs it (Debian: libcmocka-dev)" >&2
		exit 1
	}
	cmake -S . -B "$1" -G Ninja -DCOPPICE_CARRIED=ON -DBUILD_TESTING=ON >"$pack/build.log" &&
		cmake --build "$1" -j "$(nproc)" >>"$pack/build.log" || {
		tail -n 40 "$pack/build.log" >&2
		exit 1
	}
}

# What the programs link, but for what every machine with their C library has.
copy_libraries() { # programs and libraries
	ldd "$@" | sed -nE 's/.* => (\/\S+) .*/\1/p' |
		grep -Ev '/(libc|libm|libdl|librt|libpthread|libgcc_s|libstdc\+\+)\.so' | sort -u |
		xargs -I{} cp -L {} "$pack/lib"
}

# The Python package as its wheel has it, and pytest, which the machine with the GPU may lack; what
# else the tests want there is its own. Without Python to build it there is none.
copy_python() {
	local packages file
	if ! packaging/python.sh wheel >"$pack/python.log" 2>&1; then
		tail -n 5 "$pack/python.log" >&2
		echo "device.sh: Python's tests are not packed" >&2
		return
	fi
	packages=$(echo build/python/pinned/lib/python3*/site-packages)
	python3 -m zipfile -e build/python/dist/coppice-*.whl "$pack/python"
	for file in pytest _pytest py.py pluggy iniconfig packaging pygments; do
		cp -r "$packages/$file" "$pack/python"
	done
	mkdir -p "$pack/client/python/tests" "$pack/tests/bench"
	cp -r client/python/tests/{core,hf} "$pack/client/python/tests"
	cp tests/bench/{hf,llm,serve,share,threads}.py "$pack/tests/bench"
	find "$pack" -name __pycache__ -prune -exec rm -r {} +
}

copy_data() {
	mkdir -p "$pack/packaging" "$pack/tests" "$pack/workloads"
	cp -r packaging/{check,check-gpu,demo,await-socket}.sh packaging/{racecheck.py,demo} \
		"$pack/packaging"
	cp -r tests/model "$pack/tests"
	[[ $# == 0 ]] || cp "$@" "$pack/workloads"
}

pack() { # [build folder [workload files]]
	local build=${1:-} file files=()
	rm -rf "$pack"
	mkdir -p "$pack/lib"
	if [[ -z $build ]]; then
		build=build/carried
		build_carried "$build"
	fi
	for file in "${programs[@]}" "${tests[@]/#/tests/}" "${modules[@]}"; do
		[[ -f $build/$file ]] || continue
		mkdir -p "$pack/$(dirname "$file")"
		cp -L "$build/$file" "$pack/$file"
		strip "$pack/$file"
		files+=("$pack/$file")
	done
	copy_data "${@:2}"
	copy_python
	copy_libraries "${files[@]}"
	touch "$pack/packed"
	du -sh "$pack"
}

enter() {
	cd "$pack"
	export LD_LIBRARY_PATH=$PWD/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
}

check() {
	enter
	packaging/check.sh --gpu
}

run() { # bench options
	local file
	enter
	tests/cuda_test kernels/cuda/coppice-cuda.so
	for file in workloads/*.json; do
		tests/coppice-bench attention --backend cuda --page 32 --dtype fp16 \
			--workload "$file" "$@"
	done
}

failed=0

limited() { # seconds, command; what fails, or is skipped, is remembered
	timeout -s KILL "$@" || {
		echo "failed with $?: ${*:2}"
		failed=1
	}
}

multi() { # workload file, bench options
	local workload=workloads/$(basename "$1") n all four=0 i bench
	local module=kernels/cuda/coppice-cuda.so
	shift
	enter
	n=$(nvidia-smi -L | grep -c '^GPU ')
	all=$(seq -s, 0 $((n - 1)))
	for ((i = 1; i < 4; i++)); do
		four+=,$((i % n))
	done
	COPPICE_DEVICES=$four limited 60 tests/group_cuda_test "$module"
	COPPICE_EXCHANGE=nccl COPPICE_DEVICES=$all limited 60 tests/group_cuda_test "$module"
	COPPICE_DEVICES=$all limited 60 tests/group_ranks_test "$module"
	COPPICE_TEST_BACKEND=cuda COPPICE_TEST_GROUP=$all \
		limited 60 tests/agent_test daemon/coppiced
	bench=(tests/coppice-bench multi -M "$module" --on "$all")
	limited 150 "${bench[@]}" --workload "$workload" --split tokens --most 2200000 "$@"
	limited 100 "${bench[@]}" --devices "1,$n" --agents --tokens 262144 "$@"
	limited 60 "${bench[@]}" --devices "$n" --tokens 131072 --split heads "$@"
	exit "$failed"
}

verb=${1:-}
shift || true
case $verb in
pack | check | run | multi) "$verb" "$@" ;;
*)
	echo "usage: tests/device.sh pack [BUILD [WORKLOADS...]] | check |" \
		"run [BENCH-OPTION...] | multi WORKLOAD [...]" >&2
	exit 2
	;;
esac
