#!/usr/bin/env bash
# Tests and times the GPU backend on a machine that has a GPU but lacks what the build needs.
#
#   tests/device.sh pack BUILD WORKLOADS    here: gathers programs, their libraries and a workload file in build-device/
#   tests/device.sh run [BENCH-OPTION...]   there, from the same folder: all GPU tests, then the bench over the workloads
set -euo pipefail
cd "$(dirname "$0")/.."
pack=build-device

pack() { # build folder, workload file
	rm -rf "$pack"
	mkdir -p "$pack/lib"
	cp "$1/tests/cuda_test" "$1/tests/coppice-bench" "$1/kernels/cuda/coppice-cuda.so" "$pack"
	strip "$pack/cuda_test" "$pack/coppice-bench"
	ldd "$pack/cuda_test" "$pack/coppice-bench" | sed -nE 's/.*(libcmocka|libjansson|libprotobuf-c|liburing|libcoppice)(\S*) => (\S+) .*/\3/p' |
		sort -u | xargs -I{} cp -L {} "$pack/lib"
	cp "$2" "$pack/workloads.json"
	du -sh "$pack"
}

run() { # bench options
	export LD_LIBRARY_PATH=$PWD/$pack/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
	"$pack/cuda_test" "$pack/coppice-cuda.so"
	"$pack/coppice-bench" attention --backend cuda --module "$pack/coppice-cuda.so" --page 32 --dtype fp16 \
		--workload "$pack/workloads.json" "$@"
}

verb=${1:-}
shift || true
case $verb in
pack | run) "$verb" "$@" ;;
*)
	echo "usage: tests/device.sh pack BUILD WORKLOADS | run [BENCH-OPTION...]" >&2
	exit 2
	;;
esac
