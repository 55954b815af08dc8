# What packaging/check.sh checks on a GPU, over programs that are built. It is sourced by check.sh,
# with whose functions it says what passed and what failed.
#
# Tests run with backend = cuda. Their folder is laid out as a build's; what it lacks is named and
# counts as failed, and so are compute-sanitizer and MPS's control program where the machine lacks
# them, but with --quick.
# shellcheck shell=bash disable=SC2154

gpu_folder= # of the programs
gpu_module=
gpu_daemon=

# A sentence and status 1 where there is no GPU to check on.
gpu_present() {
	[[ -e /dev/nvidiactl || -e /dev/dxg || -d /proc/driver/nvidia ]] || {
		say "check.sh --gpu: no NVIDIA GPU here (no /dev/nvidiactl): run this on a" \
			"machine that has one, or take a build there with tests/device.sh" >&2
		return 1
	}
}

# gpu_test NAME COMMAND...: in the folder of the data, in a process group of its own. Its time is
# limited.
gpu_test() {
	local name=$1
	shift
	gpu_names+=("$name")
	if [[ ! -x $1 ]]; then
		echo "$1 is missing" >"$logs/gpu-$name.log"
		echo 127 >"$logs/gpu-$name.rc"
		return
	fi
	(
		begin=$SECONDS
		timeout --kill-after=10 "${gpu_limit:-150}" "$@" >"$logs/gpu-$name.log" 2>&1
		echo $? >"$logs/gpu-$name.rc"
		echo $((SECONDS - begin)) >"$logs/gpu-$name.s"
	) &
	while (($(jobs -rp | wc -l) >= gpu_jobs)); do
		wait -n
	done
}

gpu_count_passed() { # log of CMocka's or of pytest's
	sed -nE 's/^(\[  PASSED  \] )?([0-9]+) (test|passed).*/\2/p' "$1" |
		awk '{ n += $1 } END { print n + 0 }'
}

gpu_result() { # name
	local name=$1 log=$logs/gpu-$1.log seconds n r
	r=$(cat "$logs/gpu-$name.rc")
	n=$(gpu_count_passed "$log")
	seconds=$(cat "$logs/gpu-$name.s" 2>/dev/null || echo 0)
	if ((r == 0 && n > 0)); then
		passed "$name on the GPU: $n tests" "$seconds"
	elif ((r == 77)) && [[ $name =~ ^(tiers|fair|attack) ]]; then
		# without io_uring there are no files of tiers, and root alone has several users
		say "  -       $name on the GPU: $(tail -n 1 "$log")"
	else
		failed "$name on the GPU (status $r, $n tests passed)" "$seconds" "$log"
		grep -E '\[  FAILED|\*\*\*|: error|^FAILED |^E  ' "$log" | head -n 12 |
			sed 's/^/          /'
	fi
}

# Waits for all of them and counts.
gpu_collect() {
	local name
	wait
	for name in "${gpu_names[@]}"; do
		gpu_result "$name"
	done
	gpu_names=()
	sed -nE 's/^[0-9]+ batches on .*/          soak: &/p' "$logs"/gpu-soak_test*.log
}

# A tool of compute-sanitizer over the reduced set; what it found is printed whatever the status.
gpu_sanitizer() { # tool
	local tool=$1 log=$logs/gpu-$1.log begin=$SECONDS r
	timeout --kill-after=10 "${gpu_limit:-240}" \
		compute-sanitizer --tool "$tool" --error-exitcode 99 --print-limit 0 \
		"$gpu_folder/tests/cuda_test" "$gpu_module" few >"$log" 2>&1
	r=$?
	sed -nE 's/^=+ ((ERROR|RACECHECK|LEAK) SUMMARY.*)/          \1/p' "$log"
	if [[ $tool == racecheck && $r == 99 ]]; then
		packaging/racecheck.py "$log" "$gpu_module" >"$log.hazards"
		r=$?
		sed 's/^/          /' "$log.hazards"
	fi
	if ((r == 0)); then
		passed "compute-sanitizer $tool" $((SECONDS - begin))
	else
		failed "compute-sanitizer $tool (status $r)" $((SECONDS - begin)) "$log"
	fi
}

# gpu_has COMMAND LOG: status 1 where the machine lacks it, which counts as failed but with --quick.
gpu_has() {
	! command -v "$1" >/dev/null || return 0
	if [[ -n $quick ]]; then
		say "  -       $1 is not here"
	else
		echo "error: $1 is not here" >"$2"
		failed "$1" 0 "$2"
	fi
	return 1
}

gpu_sanitizers() {
	local tool
	gpu_has compute-sanitizer "$logs/gpu-sanitizers.log" || return
	for tool in memcheck racecheck synccheck; do
		gpu_sanitizer "$tool"
	done
}

# Device arenas once more under an MPS control daemon of our own. No setting of the card is changed.
gpu_mps() {
	local folder log=$logs/gpu-mps.log begin=$SECONDS r
	gpu_has nvidia-cuda-mps-control "$log" || return
	folder=$(mktemp -d) || return
	export CUDA_MPS_PIPE_DIRECTORY=$folder CUDA_MPS_LOG_DIRECTORY=$folder
	nvidia-cuda-mps-control -d >"$log" 2>&1 &&
		COPPICE_TEST_MPS=1 timeout --kill-after=10 "${gpu_limit:-150}" \
			"$gpu_folder/tests/device_test" "$gpu_daemon" >>"$log" 2>&1
	r=$?
	echo "quit -t 5" | timeout 15 nvidia-cuda-mps-control >>"$log" 2>&1
	unset CUDA_MPS_PIPE_DIRECTORY CUDA_MPS_LOG_DIRECTORY
	rm -rf "$folder"
	if ((r == 0)); then
		passed "device_test under MPS" $((SECONDS - begin))
	else
		failed "device_test under MPS (status $r)" $((SECONDS - begin)) "$log"
	fi
}

# That programs see.
n_gpus() {
	if [[ -n ${CUDA_VISIBLE_DEVICES+there} ]]; then
		tr ',' '\n' <<<"$CUDA_VISIBLE_DEVICES" | grep -c .
	else
		nvidia-smi -L 2>/dev/null | grep -c '^GPU '
	fi
}

# Groups of two to four devices: those that there are, over and over where they are fewer.
gpu_groups() { # folder of the tests
	local at=$1 n i names=0 all
	n=$(n_gpus)
	n=$((n > 1 ? n : 1))
	for ((i = 1; i < 4; i++)); do
		names+=,$((i % n))
	done
	export COPPICE_TEST_GROUP=$names
	COPPICE_DEVICES=$names gpu_test group_cuda_test "$at/group_cuda_test" "$gpu_module"
	wait
	COPPICE_TEST_DEVICES=$names gpu_test flock_test_devices "$at/flock_test" "$gpu_daemon"
	COPPICE_TEST_DEVICES=$names gpu_test heads_test_devices "$at/heads_test" "$gpu_daemon"
	wait
	COPPICE_TEST_DEVICES=$names gpu_test soak_test_devices "$at/soak_test" "$gpu_daemon"
	wait
	if ((n == 1)); then
		say "  -       NCCL and groups of processes: they need two GPUs, and here is one"
		return
	fi
	# NCCL takes a device once
	n=$((n > 4 ? 4 : n))
	all=$(seq -s, 0 $((n - 1)))
	COPPICE_EXCHANGE=nccl COPPICE_DEVICES=$all \
		gpu_test group_cuda_test_nccl "$at/group_cuda_test" "$gpu_module"
	wait
	COPPICE_DEVICES=$all gpu_test group_ranks_test "$at/group_ranks_test" "$gpu_module"
	wait
}

# Tiers below the pool: the scheduler over the module, and daemons whose pool is much too small.
# Killed ones take a while to be gone, and each of many starts takes about a second.
gpu_tiers() { # folder of the tests
	local at=$1 name
	for name in sched_tiers_test sched_long_test; do
		gpu_test "$name" "$at/$name" "$gpu_module"
	done
	for name in tiers_test tiers_file_test; do
		gpu_limit=300 gpu_test "$name" "$at/$name" "$gpu_daemon"
	done
	COPPICE_KILLS=10 gpu_limit=300 gpu_test tiers_kill_test "$at/tiers_kill_test" "$gpu_daemon"
	COPPICE_TEST_TIERS=1 gpu_test flock_test_tiers "$at/flock_test" "$gpu_daemon"
	wait
	COPPICE_TEST_TIERS=1 gpu_limit=300 gpu_test soak_test_tiers "$at/soak_test" "$gpu_daemon"
	wait
}

# Tests of a program's tokens, and of weights: all that the CPU's backend has, too.
gpu_tokens() { # folder of the tests
	local at=$1 name
	for name in decode_test decode_draft_test decode_cancel_test decode_refusal_test \
		decode_tiers_test decode_attack_test weights_faults_test weights_map_test; do
		gpu_test "$name" "$at/$name"
	done
	gpu_test families_test "$at/families_test" "$gpu_module"
}

# Python's tests on a GPU: of a packed folder with what it carries and the machine's torch, else in
# the environment that packaging/python.sh makes.
gpu_python() {
	local python=$PWD/build/python/env/bin/python path='' folder
	local needs='import coppice, pytest, torch, transformers; assert torch.cuda.is_available()'
	if [[ -d $gpu_folder/python ]]; then
		python=$(command -v python3)
		path=$PWD/$gpu_folder/python
	fi
	if ! PYTHONPATH=$path "$python" -c "$needs" >"$logs/gpu-python.log" 2>&1; then
		say "  -       Python on the GPU: $(tail -n 1 "$logs/gpu-python.log")"
		return
	fi
	for folder in core hf; do
		COPPICE_DAEMON=$PWD/$gpu_daemon PYTHONPATH=$path gpu_limit=300 \
			gpu_test "python_$folder" "$(command -v env)" \
			-C "client/python/tests/$folder" \
			"$python" -m pytest -q -p no:cacheprovider test_cuda.py
	done
}

# All of it. The folder has daemon/, client/, kernels/ and tests/ of a build.
gpu_checks() { # folder
	local at name
	gpu_folder=$1
	gpu_module=$gpu_folder/kernels/cuda/coppice-cuda.so
	gpu_daemon=$gpu_folder/daemon/coppiced
	gpu_names=()
	gpu_jobs=$((jobs > 6 ? 6 : jobs))
	export COPPICE_TEST_BACKEND=cuda
	[[ -n $quick ]] || export COPPICE_SOAK_BATCHES=${COPPICE_SOAK_BATCHES:-10000}
	at=$gpu_folder/tests
	gpu_test cuda_test "$at/cuda_test" "$gpu_module"
	# once more with the code for other devices than sm_90: the driver makes this one's of it
	# before anything else
	CUDA_FORCE_PTX_JIT=1 gpu_limit=500 gpu_test cuda_test_portable "$at/cuda_test" "$gpu_module"
	gpu_python
	gpu_test variant_test "$at/variant_test" "$gpu_folder/kernels/cuda/coppice-cuda-capped.so"
	gpu_test stand_cuda_test "$at/stand_cuda_test" "$gpu_module"
	for name in program_cuda_test program_products_cuda_test; do
		gpu_limit=300 gpu_test "$name" "$at/$name" "$gpu_module"
	done
	gpu_test estimate_cuda_test "$at/estimate_cuda_test"
	gpu_test select_cuda_test "$at/select_cuda_test"
	gpu_test sparse_test "$at/sparse_test" "$gpu_module"
	gpu_test sched_sparse_test "$at/sched_sparse_test" "$gpu_module"
	wait
	for name in mover_test legs_test summary_test sched_ahead_test; do
		gpu_test "$name" "$at/$name" "$gpu_module"
	done
	wait
	if [[ $(cat "$logs/gpu-cuda_test.rc") == 77 ]]; then
		say "check.sh --gpu: $(tail -n 1 "$logs/gpu-cuda_test.log")" >&2
		exit 1
	fi
	gpu_groups "$at"
	# alone: its clients have the GPU go round between them
	gpu_test device_test "$at/device_test" "$gpu_daemon"
	wait
	for name in control_test service_test api_test flock_test agent_test \
		hostile_test hostile_memory_test control_fuzz; do
		gpu_test "$name" "$at/$name" "$gpu_daemon"
	done
	for name in ctl_test ctl_top_test ctl_words_test ctl_tiers_test; do
		gpu_test "$name" "$at/$name"
	done
	gpu_test llama_test "$at/llama_test"
	gpu_tokens "$at"
	# by what the daemon has accounted: who is beside it does not matter
	gpu_test fair_test "$at/fair_test" "$gpu_daemon"
	# the CPU's kernels, to which the GPU's are compared: this machine's processor may choose
	# others than the one that built them
	gpu_test attention_test "$at/attention_test"
	gpu_test backend_test "$at/backend_test"
	wait
	gpu_tiers "$at"
	# alone: it measures what others wait for
	gpu_test attack_lanes_test "$at/attack_lanes_test" "$gpu_daemon"
	wait
	# alone, as are the others of it: it measures the card's memory, and a neighbour's context
	# takes half a gigabyte of that
	gpu_test soak_test "$at/soak_test" "$gpu_daemon"
	gpu_collect
	gpu_mps
	[[ -n $quick ]] || gpu_sanitizers
}
