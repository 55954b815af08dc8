#!/usr/bin/env bash
# Eight processes, one document, one daemon.
#
#   packaging/demo.sh [--tokens N] [--document FILE] [--model DIR] [--gpu]
#
# Installs what is missing, builds in build/demo, starts coppiced on a private socket, lets eight coppice-agent processes
# continue one document at once, each with a prompt of its own, then each again alone with sharing off. Prints what they
# wrote and what it took. Exit status 0 only if each wrote the same tokens both times. Nothing is left behind but the build.
#
# --gpu: the daemon computes on an NVIDIA GPU, and all eight run once more over a daemon that computes on the CPU. Q, K, V and O
# are fp16 then, of which a GPU rounds sums in another order: each token is the likeliest, and where the two differ their log
# probabilities are printed, which must be as good as equal. In a folder that tests/device.sh packed, nothing is built.
set -euo pipefail
cd "$(dirname "$0")/.."

build=build/demo
model=tests/model
document=
document_bytes=4500
n_tokens=160
gpu=
work=
daemon=
pids=()

say() {
	printf '%s\n' "$*"
}

die() {
	printf 'demo: %s\n' "$*" >&2
	exit 1
}

# ---- beginning and end -----------------------------------------------------------------------------------------------

clean_up() {
	local status=$? pid
	trap - EXIT
	trap '' INT TERM
	for pid in "${pids[@]}" $daemon; do # the daemon last
		kill "$pid" 2>/dev/null || true
		wait "$pid" 2>/dev/null || true
	done
	if [[ -n $work ]]; then
		((status == 0)) || [[ ! -s $work/coppiced.log ]] || sed 's/^/    /' "$work/coppiced.log" >&2
		rm -rf "$work"
	fi
	exit "$status"
}

read_options() {
	while (($# > 0)); do
		case $1 in
		--tokens) n_tokens=${2:?--tokens needs a number} ;;
		--document) document=${2:?--document needs a file} ;;
		--model) model=${2:?--model needs a folder} ;;
		--gpu)
			gpu=1
			shift
			continue
			;;
		*) die "usage: packaging/demo.sh [--tokens N] [--document FILE] [--model DIR] [--gpu]" ;;
		esac
		shift 2
	done
	[[ $n_tokens =~ ^[1-9][0-9]*$ ]] || die "--tokens takes a whole number from 1, not \"$n_tokens\""
	[[ -z $document || -r $document ]] || die "$document cannot be read"
}

build_all() {
	packaging/install-deps.sh build
	say "Building in $build ..."
	if ! {
		cmake -S . -B "$build" -G Ninja -DBUILD_TESTING=OFF -DCOPPICE_BENCH=OFF &&
			cmake --build "$build" --target coppiced coppicectl coppice-agent
	} >"$work/build.log" 2>&1; then
		tail -n 40 "$work/build.log" >&2
		die "the build failed"
	fi
}

start_daemon() { # backend
	export COPPICE_SOCKET=$work/sock
	"$build/daemon/coppiced" --config packaging/demo/coppiced.conf --backend "$1" --socket "$COPPICE_SOCKET" \
		2>"$work/coppiced.log" &
	daemon=$!
	packaging/await-socket.sh "$COPPICE_SOCKET" "$daemon" || die "coppiced did not start"
}

stop_daemon() {
	kill "$daemon"
	wait "$daemon" || die "coppiced ended badly"
	daemon=
}

# ---- agents ----------------------------------------------------------------------------------------------------------

status() { # number
	"$build/client/ctl/coppicectl" --json status >"$work/status-$1.json"
}

start_agent() { # kind, index, option...
	local kind=$1 i=$2 name=$work/$1-$2
	shift 2
	"$build/client/agent/coppice-agent" --model "$model" --document "$document" --prompt "${prompts[i]}" \
		--tokens "$n_tokens" "${draws[@]}" --seed $((i + 1)) --report "$name.json" --progress "$@" \
		>"$name.txt" 2>"$name.err" &
	pids+=($!)
}

# The last word of each running agent, on one line: redrawn on a terminal, else now and then.
show_progress() { # kind, agents...
	local kind=$1 i line=
	shift
	for i in "$@"; do
		line+=$(tail -n 1 "$work/$kind-$i.err" 2>/dev/null |
			sed -nE 's/^([a-z]+).*: ([0-9]+) of ([0-9]+) tokens$/\1 \2/p' | tail -n 1 |
			{ read -r what n && printf '%d: %-7.7s %-5s ' $((i + 1)) "$what" "$n" || printf '%d: %-13s ' $((i + 1)) ...; })
	done
	if [[ -t 1 ]]; then
		printf '\r\033[K  %.*s' $((${COLUMNS:-$(tput cols 2>/dev/null || echo 130)} - 3)) "$line"
	else
		printf '  %s\n' "$line"
	fi
}

any_runs() {
	local pid
	for pid in "${pids[@]}"; do
		! kill -0 "$pid" 2>/dev/null || return 0
	done
	return 1
}

# Waits for all of pids while progress is shown; any that fails ends the demo.
await_agents() { # kind, agents...
	local looks=0 every=2 pid k=0 failed='' agents=("${@:2}")
	[[ -t 1 ]] || every=4
	while any_runs; do
		sleep 0.25
		((++looks % every)) || show_progress "$@"
	done
	[[ ! -t 1 ]] || printf '\r\033[K'
	for pid in "${pids[@]}"; do
		wait "$pid" || {
			failed=1
			sed -n '$s/^/    /p' "$work/$1-${agents[k]}.err" >&2
		}
		k=$((k + 1))
	done
	pids=()
	[[ -z $failed ]] || die "an agent failed"
}

run_together() { # kind
	local i begin=$EPOCHREALTIME
	for i in "${!prompts[@]}"; do
		start_agent "$1" "$i"
	done
	await_agents "$1" "${!prompts[@]}"
	awk -v a="$begin" -v b="$EPOCHREALTIME" 'BEGIN { printf "%.3f\n", b - a }' >"$work/$1-s"
}

run_alone() {
	local i
	say "Each of them alone, sharing off:"
	for i in "${!prompts[@]}"; do
		start_agent alone "$i" --private
		await_agents alone "$i"
		status $((i + 2))
	done
}

print_texts() {
	local i
	for i in "${!prompts[@]}"; do
		say ""
		say "Agent $((i + 1)):"
		{
			printf '%s' "${prompts[i]}"
			cat "$work/together-$i.txt"
		} | fold -s -w 96 | sed 's/^/    /'
	done
	say ""
}

# ---- main ------------------------------------------------------------------------------------------------------------

read_options "$@"
work=$(mktemp -d "${TMPDIR:-/tmp}/coppice-demo-XXXXXX")
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
draws=(--temperature 0.6)
[[ -z $gpu ]] || draws=(--temperature 0 --kv-dtype fp16 --logprobs)
if [[ -e packed ]]; then
	build=.
	export LD_LIBRARY_PATH=$PWD/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
else
	build_all
fi
mapfile -t prompts <packaging/demo/prompts.txt
n_agents=${#prompts[@]}
if [[ -z $document ]]; then
	document=$work/document.txt
	python3 packaging/demo/document.py "$document_bytes" >"$document"
fi
backend=cpu
[[ -z $gpu ]] || backend=cuda
start_daemon "$backend"
status 0
say "$n_agents agents at once over one document of $(wc -c <"$document") tokens; a token is a byte:"
run_together together
status 1
print_texts
run_alone
if [[ -n $gpu ]]; then
	stop_daemon
	start_daemon cpu
	say "All of them at once, attention on the CPU:"
	run_together cpu
fi
say ""
python3 packaging/demo/table.py "$work" "$n_agents"
