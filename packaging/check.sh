#!/usr/bin/env bash
# Builds and tests everything, as CI does.
#
#   packaging/check.sh [--quick]
#   packaging/check.sh --gpu [--quick]
#   packaging/check.sh --only TEST [--under address|thread]
#
# Plain build with warnings as errors and all tests; the same under ASan and UBSan; the tests
# labelled tsan under TSan; format, sizes, layers, scripts, man pages, an installed copy with the
# example built against it, the units; the Python package as a wheel in an environment of its own
# (packaging/python.sh, which fetches once what that needs, while the plain build goes on). Builds
# stand in build/, what each stage said in build/check-logs/. The last line is "N passed, N failed":
# tests and other checks together. Exit status 0 only if nothing failed. --quick leaves the
# sanitizers out.
#
# --gpu: on a machine with an NVIDIA GPU, the plain build and its tests, then what applies there
# with the GPU's backend: attention against float64 and the CPU's backend, real processes over a
# daemon, once more under MPS, compute-sanitizer. Where MPS's control program or compute-sanitizer
# is missing that counts as failed, but with --quick, which does without the latter. Nothing is
# built in a folder that tests/device.sh packed.
#
# --only builds what one test needs and runs it, with what it says: by its name or an expression as
# ctest -R takes, plain or under ASan and UBSan (address) or TSan (thread). python: the Python
# package and its tests.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1
root=$PWD
logs=$root/build/check-logs
stage=$root/build/stage
jobs=$(nproc)

n_passed=0
n_failed=0
summary=()

say() {
	printf '%s\n' "$*"
}

# ---- running and counting ------------------------------------------------------------------------

passed() { # what, seconds
	n_passed=$((n_passed + 1))
	say "  ok      $1 ($2 s)"
}

failed() { # what, seconds, log
	n_failed=$((n_failed + 1))
	say "  FAILED  $1 ($2 s); from $3:"
	{
		grep -E 'error|warning|FAILED' "$3" | grep -v 'Werror.* -c ' | head -n 20
		say ...
		tail -n 12 "$3"
	} | cut -c 1-200 | sed 's/^/          /'
}

# check NAME COMMAND...: one check, that fails if the command does.
check() {
	local name=$1 log=$logs/${1// /-}.log begin=$SECONDS
	shift
	if "$@" >"$log" 2>&1; then
		passed "$name" $((SECONDS - begin))
	else
		failed "$name" $((SECONDS - begin)) "$log"
		return 1
	fi
}

# tests NAME BUILD CTEST-OPTION...: every test counts.
tests() {
	local name=$1 build=$2 log=$logs/${1// /-}.log begin=$SECONDS seconds r n bad line skipped
	shift 2
	rm -f "$build/Testing/Temporary/CTestCostData.txt" # tests/CMakeLists.txt says who begins
	"${no_aslr[@]}" ctest --test-dir "$build" --output-on-failure --no-tests=error \
		-j $((7 * jobs)) "$@" >"$log" 2>&1
	r=$?
	read -r bad n < <(
		sed -nE 's/.*% tests passed, ([0-9]+) tests failed out of ([0-9]+)/\1 \2/p' "$log"
	)
	n=${n:-0} bad=${bad:-1}
	((r == 0 || bad > 0)) || bad=1
	((n >= bad)) || n=$bad
	# ctest counts them as passed.
	mapfile -t skipped < <(sed -nE 's/^\s+[0-9]+ - (.*) \(Skipped\)$/\1/p' "$log")
	n=$((n - ${#skipped[@]}))
	n_passed=$((n_passed + n - bad))
	n_failed=$((n_failed + bad))
	seconds=$((SECONDS - begin))
	printf -v line '%-28s %4d passed, %d failed (%d s)' "$name" $((n - bad)) "$bad" "$seconds"
	summary+=("$line")
	((${#skipped[@]} == 0)) || summary+=("  ${#skipped[@]} skipped: $(
		sed 's/ /, /g' <<<"${skipped[*]// /}"
	)")
	if ((bad == 0)); then
		say "  ok      $name: $n tests ($seconds s)"
	else
		say "  FAILED  $name: $bad of $n tests ($seconds s); from $log:"
		grep -E '\*\*\*|\[  FAILED|ERROR|WARNING: ThreadSanitizer' "$log" |
			head -n 40 | sed 's/^/          /'
		tail -n 20 "$log" | sed 's/^/          /'
	fi
}

ahead= # process of the build that goes on beside tests

# Left alone at last, it runs as fast as any.
await_ahead() {
	[[ -z $ahead ]] || wait "$ahead" 2>/dev/null
	ahead=
}

configure() { # folder, cmake options...
	local folder=$1
	shift
	await_ahead
	cmake -S . -B "$folder" -G Ninja -DCOPPICE_WERROR=ON -DBUILD_TESTING=ON "$@"
}

# ahead BUILD...: begins builds in the time that what follows leaves idle. What it does not come to,
# and what fails, is for build.
ahead() {
	chrt --idle 0 true 2>/dev/null || return 0
	set -m # a group of its own, that ends with this script
	{
		set +m
		chrt --idle --pid 0 "$BASHPID"
		for name in "$@"; do
			local -n of=$name
			configure "${of[0]}" "${of[@]:2}" &&
				cmake --build "${of[0]}" --target "${of[1]}" -j $((jobs + 1))
		done
	} </dev/null >"$logs/ahead.log" 2>&1 &
	ahead=$!
	set +m
}

end_ahead() {
	[[ -z $ahead ]] || kill -- "-$ahead" 2>/dev/null
	[[ -z $fetching ]] || kill -- "-$fetching" 2>/dev/null
}

fetching= # process that fetches what Python's package needs, which is most of a wait

fetch_ahead() {
	set -m
	packaging/python.sh fetch </dev/null >"$logs/fetch.log" 2>&1 &
	fetching=$!
	set +m
}

# What failed is tried again here, and says why.
build_wheel() {
	[[ -z $fetching ]] || wait "$fetching" 2>/dev/null
	fetching=
	packaging/python.sh wheel
}

# build NAME FOLDER TARGET CMAKE-OPTION...
build() {
	local name=$1 folder=$2 target=$3
	shift 3
	check "$name: configure" configure "$folder" "$@" &&
		check "$name: build" cmake --build "$folder" --target "$target" -j $((jobs + 1))
}

# ---- what is checked -----------------------------------------------------------------------------

sources() { # the sources that git tracks, or all outside build folders where this is no checkout
	if git rev-parse --is-inside-work-tree >/dev/null 2>&1; then
		git ls-files -- "$@"
	else
		local pattern args=()
		for pattern in "$@"; do
			args+=(-o -path "./$pattern")
		done
		find . -name 'build*' -prune -o \( -false "${args[@]}" \) -type f -print |
			sed 's|^\./||'
	fi
}

check_format() {
	local tool
	tool=$(command -v clang-format-14 || command -v clang-format) || {
		say "clang-format is missing"
		return 1
	}
	sources '*.c' '*.h' '*.cu' '*.cuh' | xargs -P "$jobs" -n 100 "$tool" --dry-run -Werror
}

# Whatever is written by hand, but for pages: check-pages.py has other limits for these.
check_sizes() {
	local kinds=(
		'*.c' '*.h' '*.cu' '*.cuh' '*.def' '*.proto' '*.py' '*.pyi' '*.sh' '*.awk' '.ci/run'
		'*CMakeLists.txt' '*.cmake' '*.in' '*.map' '*.toml' '*.conf' '*.service' '*.socket'
		'*.sysusers' 'packaging/layers' 'tests/packaging/stubs/cuobjdump'
	)
	sources "${kinds[@]}" | LC_ALL=C xargs awk -f packaging/check-sizes.awk
}

check_layers() {
	packaging/check-layers.py --calls build/check
}

check_scripts() {
	local script bad=0
	while read -r script; do
		bash -n "$script" || bad=1
	done < <(sources '*.sh' '.ci/run')
	return $bad
}

check_man() {
	local page bad=0 warnings
	for page in packaging/man/*.[1-8]; do
		warnings=$(groff -mandoc -Tutf8 -Kutf8 -ww -z "$page" 2>&1)
		[[ -z $warnings ]] || {
			say "$page: $warnings"
			bad=1
		}
	done
	LC_ALL=C awk -v page=1 -f packaging/check-sizes.awk packaging/man/*.[1-8] || bad=1
	return $bad
}

check_install() {
	local program
	rm -rf "$stage"
	cmake --install build/check --prefix "$stage" || return 1
	for program in coppiced coppicectl coppice-agent; do
		test -x "$stage/bin/$program" || return 1
	done
	test -f "$stage/include/coppice.h" || return 1
	test -f "$stage/share/doc/coppice/coppiced.conf" || return 1
	[[ $(find "$stage/include" -name '*.h' | wc -l) == 3 ]] || return 1
	# The GPU's module comes along where it was built.
	[[ ! -f build/check/kernels/cuda/coppice-cuda.so ]] ||
		[[ -n $(find "$stage" -path '*/coppice/coppice-cuda.so') ]]
}

# The example and the agent of client/README.md in a folder of their own, where they find no header
# but installed ones.
out_of_tree() { # folder
	rm -rf "$1"
	mkdir -p "$1"
	cp client/example.c "$1" &&
		awk -v whole=1 -f tests/e2e/page_blocks.awk client/README.md >"$1/agent.c"
}

stage_pkg_config() {
	local folder
	folder=$(find "$stage" -name coppice.pc -printf '%h\n' | head -n 1)
	PKG_CONFIG_PATH=$folder pkg-config --define-prefix "$@"
}

check_pkg_config() {
	local flags libs
	flags=$(stage_pkg_config --cflags coppice) || return 1
	libs=$(stage_pkg_config --libs coppice) || return 1
	out_of_tree build/example-pc
	# shellcheck disable=SC2086
	cc -Wall -Wextra -Wno-missing-field-initializers -Werror $flags build/example-pc/example.c \
		-o build/example-pc/example $libs || return 1
	flags=$(stage_pkg_config --cflags coppice_model) || return 1
	libs=$(stage_pkg_config --libs coppice_model coppice) || return 1
	# shellcheck disable=SC2086
	cc -Wall -Wextra -Wno-missing-field-initializers -Werror $flags build/example-pc/agent.c \
		-o build/example-pc/agent $libs
}

check_cmake_package() {
	out_of_tree build/example-cmake
	cat >build/example-cmake/CMakeLists.txt <<-END
		cmake_minimum_required(VERSION 3.25)
		project(example LANGUAGES C)
		find_package(coppice REQUIRED)
		add_executable(example example.c)
		target_link_libraries(example PRIVATE coppice::coppice)
		add_executable(agent agent.c)
		target_link_libraries(agent PRIVATE coppice::model coppice::coppice)
		add_executable(agent-static agent.c)
		target_link_libraries(agent-static PRIVATE coppice::model_static coppice::static)
	END
	cmake -S build/example-cmake -B build/example-cmake/build -G Ninja \
		-DCMAKE_PREFIX_PATH="$stage" && cmake --build build/example-cmake/build
}

run_examples() {
	local example agent said
	for example in build/example-pc/example build/example-cmake/build/example; do
		timeout 60 "$example" || return 1
	done
	for agent in build/example-pc/agent build/example-cmake/build/agent{,-static}; do
		said=$(timeout 60 "$agent" tests/model 'And the LORD said')
		[[ $said == ' unto Moses,'* ]] || return 1
	done
}

check_example() {
	local folder r=1 daemon lib
	folder=$(mktemp -d) || return 1
	lib=$(dirname "$(find "$stage" -name 'libcoppice.so' | head -n 1)")
	"$stage/bin/coppiced" --config packaging/demo/coppiced.conf --socket "$folder/sock" &
	daemon=$!
	if packaging/await-socket.sh "$folder/sock" "$daemon"; then
		COPPICE_SOCKET=$folder/sock LD_LIBRARY_PATH=$lib run_examples
		r=$?
	fi
	kill "$daemon"
	wait "$daemon"
	rm -rf "$folder"
	return $r
}

# The units name the installed programs.
check_units() {
	local folder r
	folder=$(mktemp -d) || return 1
	find "$stage" \( -name '*.service' -o -name '*.socket' \) -exec cp {} "$folder" \;
	[[ -f $folder/coppiced.service && -f $folder/coppiced.socket ]] || return 1
	grep -qx "ExecStart=$stage/bin/coppiced" "$folder/coppiced.service" || return 1
	systemd-analyze verify --man=no "$folder"/*.service "$folder"/*.socket
	r=$?
	# The same beside the drop-in for other hosts, and how much the units leave open, in tenths.
	mkdir "$folder/coppiced.service.d"
	find "$stage" -name coppiced-ranks.conf -exec cp {} "$folder/coppiced.service.d" \;
	[[ -f $folder/coppiced.service.d/coppiced-ranks.conf ]] || r=1
	systemd-analyze verify --man=no "$folder/coppiced.service" "$folder/coppiced.socket" || r=1
	rm -r "$folder/coppiced.service.d"
	systemd-analyze security --offline=yes --threshold=8 --no-pager "$folder"/*.service || r=1
	rm -rf "$folder"
	return $r
}

# The documented configuration with every line in force: the daemon takes it, and coppiced.conf(5)
# has every key.
check_configuration() {
	local key bad=0 file=build/coppiced.conf
	sed -E 's/^#([a-z_]+ = )/\1/' packaging/coppiced.conf >"$file"
	"$stage/bin/coppiced" --check-config --config "$file" || bad=1
	while read -r key; do
		grep -q "^\.It Va $key " packaging/man/coppiced.conf.5 || {
			say "coppiced.conf(5) lacks $key"
			bad=1
		}
	done < <(sed -nE 's/^([a-z_]+) = .*/\1/p' "$file")
	return $bad
}

installed_copy() {
	check "install" check_install || return
	check "example by pkg-config" check_pkg_config &&
		check "example by find_package" check_cmake_package &&
		check "example runs" check_example
	check "configuration" check_configuration
	if command -v systemd-analyze >/dev/null; then
		check "systemd units" check_units
	else
		say "  -       systemd units: no systemd-analyze here"
	fi
}

python_package() {
	check "python: wheel" build_wheel &&
		check "python: environment" packaging/python.sh environment || return
	check "python: types" packaging/python.sh types
	check "python: tests" packaging/python.sh tests build/check
}

texts() {
	check "format" check_format
	check "sizes" check_sizes
	check "scripts" check_scripts
	check "man pages" check_man
	check "pages" packaging/check-pages.py
}

# SIGILL is what UBSan finds.
export ASAN_OPTIONS=detect_leaks=1:strict_string_checks=1:handle_sigill=1
export TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1
# What crashes in the plain build is found by function and line, as under the sanitizers.
plain=(build/check all -DCOPPICE_CALLGRAPH=ON -DCOPPICE_LINES=ON)
address=(build/asan all -DCOPPICE_SANITIZE=address -DCOPPICE_BENCH=OFF)
thread=(build/tsan tsan_tests -DCOPPICE_SANITIZE=thread -DCOPPICE_BENCH=OFF)

# The tests of a build as some of those of build/sanitizers, under names of their own. Of TSan's
# those that are not labelled so are aside.
join_tests() { # name, build
	mkdir -p "build/sanitizers/$1"
	sed -E "s/^(add_test|set_tests_properties)\\(\\[=\\[/&$1: /" \
		"$2/tests/CTestTestfile.cmake" >"build/sanitizers/$1/CTestTestfile.cmake"
	printf 'subdirs("%s")\n' "$1" >>build/sanitizers/CTestTestfile.cmake
}

# Tests of both go together, so that there is always one for a core that the others leave idle.
sanitizers() {
	rm -rf build/sanitizers
	build "ASan+UBSan" "${address[@]}" && join_tests ASan build/asan
	build "TSan" "${thread[@]}" && join_tests TSan build/tsan
	[[ ! -d build/sanitizers ]] ||
		tests "tests under ASan+UBSan, TSan" build/sanitizers -LE 'script|aside'
}

# One test, or the few whose names match where none has this one. What they need is built: where a
# target has a test's name, that alone.
only() { # name, build
	local -n how=$2
	local folder=${how[0]} target=all names=$1
	[[ $1 != python ]] || target=coppiced
	configure "$folder" "${how[@]:2}" >"$logs/only.log" 2>&1 || {
		cat "$logs/only.log"
		return 1
	}
	if cmake --build "$folder" --target help |
		awk -F : -v name="$1" '$1 == name { n++ } END { exit !n }'; then
		target=$1
	fi
	cmake --build "$folder" --target "$target" -j $((jobs + 1)) | tail -n 1 || return
	if [[ $1 == python ]]; then
		packaging/python.sh all "$folder"
		return
	fi
	if ctest --test-dir "$folder" -N |
		awk -v name="$1" '$NF == name { n++ } END { exit !n }'; then
		names="^$1\$"
	fi
	"${no_aslr[@]}" ctest --test-dir "$folder" --no-tests=error -V -R "$names"
}

# ---- main ----------------------------------------------------------------------------------------

usage() {
	say "usage: packaging/check.sh [--gpu] [--quick] | --only TEST [--under address|thread]" >&2
	exit 2
}

quick=
gpu=
only=
under=plain
while (($# > 0)); do
	case $1 in
	--help) # what stands at the top of this file
		sed -n '2,/^set/s/^# \{0,1\}//p' "$0"
		exit 0
		;;
	--quick) quick=1 ;;
	--gpu) gpu=1 ;;
	--only)
		only=${2-}
		[[ -n $only ]] || usage
		shift
		;;
	--under)
		under=${2-}
		[[ $under == address || $under == thread ]] || usage
		shift
		;;
	*) usage ;;
	esac
	shift
done
[[ -n $only || $under == plain ]] || usage
[[ -z $only || -z $gpu$quick ]] || usage

trap end_ahead EXIT
mkdir -p "$logs"
rm -f "$logs"/*
if [[ -n $gpu ]]; then
	# shellcheck source=packaging/check-gpu.sh
	. packaging/check-gpu.sh
	gpu_present || exit 1
fi
packed=
if [[ -e packed ]]; then
	packed=1
	[[ -n $gpu ]] || {
		say "check.sh: a packed folder has no sources, only --gpu works here" >&2
		exit 2
	}
	export LD_LIBRARY_PATH=$root/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
else
	packaging/install-deps.sh check || exit 1
fi
# The sanitizers' shadow memory wants addresses where kernels that randomize much leave no room.
no_aslr=()
if setarch -R true 2>/dev/null; then
	no_aslr=(setarch -R)
fi

if [[ -n $only ]]; then
	only "$only" "$under"
	exit
fi

say "coppice: checks on $jobs cores"
if [[ -n $packed ]]; then
	gpu_checks .
elif [[ -n $gpu ]]; then
	if build "plain" "${plain[@]}"; then
		tests "tests" build/check
		gpu_checks build/check
	fi
else
	fetch_ahead
	texts
	if build "plain" "${plain[@]}"; then
		[[ -n $quick ]] || ahead address thread
		check "layers" check_layers
		tests "tests" build/check
		installed_copy
		python_package
	fi
	[[ -f build/check/kernels/cuda/coppice-cuda.so ]] ||
		say "  -       CUDA: no nvcc here, so its kernels were not compiled"
	[[ -n $quick ]] || sanitizers
fi

say ""
for line in "${summary[@]}"; do
	say "$line"
done
say "took $((SECONDS / 60)) min $((SECONDS % 60)) s"
say "$n_passed passed, $n_failed failed"
((n_failed == 0))
