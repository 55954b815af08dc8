#!/usr/bin/env bash
# Eight processes, one document, one daemon.
#
#   packaging/demo.sh [--agents N] [--tokens N] [--document FILE] [--model DIR] [--build DIR]
#                     [--gpu]
#
# Installs what is missing, builds in build/demo, starts coppiced on a private socket, and lets
# eight coppice-agent processes continue one document, each with a prompt of its own. Four ways:
#   - eight at once that share what they have in common, weights and layers too;
#   - the same with layers of their own (--layers self);
#   - eight at once each for itself (--private, and layers of their own);
#   - and so one after the other.
# Prints what they wrote, and what each way took, side by side. Exit status 0 only if every agent
# wrote the same tokens in all of them. Nothing is left behind but the build.
#
# --agents: so many of the eight. Of one the first two ways say what it costs alone that the daemon
# computes its tokens.
#
# --build: programs of a build that is there already. --gpu: the daemon computes on an NVIDIA GPU,
# and all eight run once more over a daemon that computes on the CPU. Q, K, V and O are fp16 then,
# of which a GPU rounds sums in another order. So each token is the likeliest, and where the two
# differ their log probabilities are printed, which must be as good as equal.
#
# In a folder that tests/device.sh packed, nothing is built.
set -euo pipefail
cd "$(dirname "$0")/.."

usage="usage: packaging/demo.sh [--agents N] [--tokens N] [--document FILE] [--model DIR] \
[--build DIR] [--gpu]"
build=
model=tests/model
document=
document_bytes=4500
n_tokens=160
n_agents=8
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

misused() {
	printf 'demo: %s\n%s\n' "$1" "$usage" >&2
	exit 2
}

# ---- beginning and end ---------------------------------------------------------------------------

clean_up() {
	local status=$? pid
	trap - EXIT
	trap '' INT TERM
	for pid in "${pids[@]}" $daemon; do # the daemon last
		kill "$pid" 2>/dev/null || true
		wait "$pid" 2>/dev/null || true
	done
	if [[ -n $work ]]; then
		((status == 0)) || [[ ! -s $work/coppiced.log ]] ||
			sed 's/^/    /' "$work/coppiced.log" >&2
		rm -rf "$work"
	fi
	exit "$status"
}

read_options() {
	while (($# > 0)); do
		case $1 in
		--help)
			say "$usage"
			exit 0
			;;
		--gpu)
			gpu=1
			shift
			continue
			;;
		--agents | --tokens | --document | --model | --build)
			(($# > 1)) || misused "$1 lacks its value"
			;;
		*) misused "\"$1\" is no option" ;;
		esac
		case $1 in
		--agents) n_agents=$2 ;;
		--tokens) n_tokens=$2 ;;
		--document) document=$2 ;;
		--model) model=$2 ;;
		--build) build=$2 ;;
		esac
		shift 2
	done
	[[ $n_tokens =~ ^[1-9][0-9]*$ ]] ||
		misused "--tokens takes a whole number from 1, not \"$n_tokens\""
	[[ $n_agents =~ ^[1-8]$ ]] || misused "--agents takes 1 to 8, not \"$n_agents\""
	[[ -z $document || -r $document ]] || die "$document cannot be read"
	[[ -r $model/config.json ]] || die "$model is no model's folder: it has no config.json"
	[[ -z $build || -x $build/daemon/coppiced ]] ||
		die "$build is no build: it has no daemon/coppiced"
}

build_all() {
	build=build/demo
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
	"$build/daemon/coppiced" --config packaging/demo/coppiced.conf --backend "$1" \
		--socket "$COPPICE_SOCKET" 2>"$work/coppiced.log" &
	daemon=$!
	packaging/await-socket.sh "$COPPICE_SOCKET" "$daemon" || die "coppiced did not start"
}

stop_daemon() {
	kill "$daemon"
	wait "$daemon" || die "coppiced ended badly"
	daemon=
}

# ---- agents --------------------------------------------------------------------------------------

ctl() {
	"$build/client/ctl/coppicectl" "$@"
}

start_agent() { # way, index, option...
	local i=$2 name=$work/$1-$2
	shift 2
	"$build/client/agent/coppice-agent" --model "$model" --document "$document" \
		--prompt "${prompts[i]}" --tokens "$n_tokens" "${draws[@]}" --seed $((i + 1)) \
		--report "$name.json" --progress "$@" >"$name.txt" 2>"$name.err" &
	pids+=($!)
}

# The last word of each running agent, on one line: redrawn on a terminal, else now and then.
show_progress() { # way, agents...
	local way=$1 i line='' words
	for i in "${@:2}"; do
		mapfile -t words <"$work/$way-$i.err"
		if [[ ${words[*]: -1} =~ ^([a-z]+).*:\ ([0-9]+)\ of ]]; then
			printf -v line '%s%d: %-7.7s %-5s ' \
				"$line" $((i + 1)) "${BASH_REMATCH[@]:1:2}"
		else
			printf -v line '%s%d: %-13s ' "$line" $((i + 1)) ...
		fi
	done
	if [[ -t 1 ]]; then
		printf '\r\033[K  %.*s' $((${COLUMNS:-130} - 3)) "$line"
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

# A twentieth of a second, without a process that would take its part of the time that is measured.
nap() {
	read -rt 0.05 -u "$never" || true
}

# Waits for all of pids while progress is shown; any that fails ends the demo.
await_agents() { # way, agents...
	local looks=0 every=10 pid k=0 failed='' agents=("${@:2}")
	[[ -t 1 ]] || every=60
	while any_runs; do
		nap
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

at_once() { # way, option...
	local i
	for i in "${!prompts[@]}"; do
		start_agent "$1" "$i" "${@:2}"
	done
	await_agents "$1" "${!prompts[@]}"
}

one_by_one() { # way, option...
	local i
	for i in "${!prompts[@]}"; do
		start_agent "$1" "$i" "${@:2}"
		await_agents "$1" "$i"
	done
}

# Ticks of the processor that the daemon, and what this shell has begun and seen end, have had.
ticks() {
	awk '{ sub(/.*\) /, ""); n += FNR == NR ? $12 + $13 : $14 + $15 } END { print n }' \
		"/proc/$daemon/stat" "/proc/$$/stat"
}

# Every way begins with an empty tree.
measure() { # at_once or one_by_one, way, option...
	local way=$2 begin before
	ctl evict >/dev/null
	ctl --json status >"$work/$way-before.json"
	before=$(ticks)
	begin=$EPOCHREALTIME
	"$@"
	awk -v a="$begin" -v b="$EPOCHREALTIME" 'BEGIN { printf "%.3f\n", b - a }' >"$work/$way-s"
	awk -v a="$before" -v b="$(ticks)" -v hz="$(getconf CLK_TCK)" \
		'BEGIN { printf "%.2f\n", (b - a) / hz }' >"$work/$way-cpu-s"
	ctl --json status >"$work/$way-after.json"
}

print_texts() {
	local i
	for i in "${!prompts[@]}"; do
		say ""
		say "Agent $((i + 1)):"
		{
			printf '%s' "${prompts[i]}"
			cat "$work/shared-$i.txt"
		} | fold -s -w 96 | sed 's/^/    /'
	done
	say ""
}

# ---- main ----------------------------------------------------------------------------------------

read_options "$@"
work=$(mktemp -d "${TMPDIR:-/tmp}/coppice-demo-XXXXXX")
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
mkfifo "$work/never"
exec {never}<>"$work/never"
draws=(--temperature 0.6)
[[ -z $gpu ]] || draws=(--temperature 0 --kv-dtype fp16 --logprobs)
if [[ -e packed ]]; then
	build=.
	export LD_LIBRARY_PATH=$PWD/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
elif [[ -z $build ]]; then
	build_all
fi
mapfile -t -n "$n_agents" prompts <packaging/demo/prompts.txt
if [[ -z $document ]]; then
	document=$work/document.txt
	python3 packaging/demo/document.py "$document_bytes" >"$document"
fi
backend=cpu
[[ -z $gpu ]] || backend=cuda
start_daemon "$backend"
who="$n_agents agents at once"
((n_agents > 1)) || who="One agent"
say "$who over one document of $(wc -c <"$document") tokens; a token is a byte:"
measure at_once shared
print_texts
say "All of them at once, sharing the document, with layers of their own:"
measure at_once layers --layers self
say "All of them at once, each for itself:"
measure at_once private --private --layers self
say "One after the other, each for itself:"
measure one_by_one alone --private --layers self
if [[ -n $gpu ]]; then
	stop_daemon
	start_daemon cpu
	say "All of them at once, attention on the CPU:"
	measure at_once cpu
fi
say ""
python3 packaging/demo/table.py "$work" "$n_agents"
