#!/usr/bin/env bash
# The Python package: its wheel, and its tests with that installed.
#
#   packaging/python.sh fetch          fetches what the rest needs, where it is not there
#   packaging/python.sh wheel          builds it, into build/python/dist
#   packaging/python.sh environment    a fresh environment, with the wheel and what the tests need
#   packaging/python.sh types          mypy over the package, the tests of its core and
#                                      client/vllm; its stubs are held against the extension
#   packaging/python.sh tests BUILD    the tests, with the daemon of a build folder
#   packaging/python.sh all BUILD      all of these
#   packaging/python.sh vllm BUILD     fetches vLLM's build for CPUs (6 GB), and runs the tests of
#                                      client/vllm
#
# What is used beside the wheel is pinned by client/python/tests/requirements.txt, and by hf's below
# that. It is fetched once and kept in build/python/pinned (0.7 GB, 1.6 GB unpacked, most of it
# torch); a later run needs no network. Where there is no driver of NVIDIA's, cuda-stand-ins.py
# spares the libraries of CUDA (5.5 GB unpacked, with them).
set -euo pipefail
cd "$(dirname "$0")/.."
home=$PWD/build/python
pins=client/python/tests/requirements.txt
torch_pins=client/python/tests/hf/requirements.txt
export PIP_DISABLE_PIP_VERSION_CHECK=1
# Of what is imported the byte code is kept, whatever calls this: making it is most of an import.
unset PYTHONDONTWRITEBYTECODE
export PYTHONPYCACHEPREFIX=$home/pycache

# The packages of the pins, which name all that these need, in an environment of their own. What is
# imported of them is compiled then: that is a small part.
fetch() {
	local sum
	sum=$(cat "$pins" "$torch_pins" packaging/cuda-stand-ins.py <(python3 --version) |
		sha256sum)
	[[ $(cat "$home/pinned/sum" 2>/dev/null) != "$sum" ]] || return 0
	rm -rf "$home/pinned"
	install_installers
	if python3 -c 'import ctypes; ctypes.CDLL("libcuda.so.1")' 2>/dev/null; then
		install_pinned --no-deps -r "$pins"
		install_pinned -c "$pins" -r "$torch_pins"
	else
		install_pinned --no-deps -r "$pins" -r "$torch_pins"
		packaging/cuda-stand-ins.py "$(site_packages "$home/pinned")/torch"
	fi
	echo "$sum" >"$home/pinned/sum"
}

# A pip of the machine's fetches another. Where it has none, or one that knows no other environment,
# venv makes one: it compiles that first, which takes longer than all else here.
install_installers() {
	local install=(install -q --only-binary :all: --no-deps --no-compile) wanted
	mapfile -t wanted < <(grep -E '^(pip|uv)==' "$pins")
	python3 -m venv --without-pip "$home/pinned"
	env -u PYTHONPYCACHEPREFIX python3 -m pip --python "$home/pinned" \
		"${install[@]}" "${wanted[@]}" 2>/dev/null && return
	python3 -m venv "$home/pinned"
	"$home/pinned/bin/pip" "${install[@]}" "${wanted[@]}"
}

# uv takes a quarter of pip's time, but knows nothing of pip's configuration: where that names an
# index, and where uv fails, pip goes for the packages, and says what is wrong.
install_pinned() { # requirements
	local install=(install -q --only-binary :all:) bin=$home/pinned/bin configured
	configured=$("$bin/pip" config list)
	if [[ $configured != *index-url* ]] &&
		"$bin/uv" pip "${install[@]}" --no-cache --python "$bin/python" "$@" \
			2>/dev/null; then
		return
	fi
	"$bin/pip" "${install[@]}" --no-compile "$@"
}

# In an environment of its own, as its pins are others.
vllm() { # build folder
	local pins=client/vllm/tests/requirements.txt env=$home/vllm sum
	[[ -n $(ls "$home"/dist/coppice-*.whl 2>/dev/null) ]] || wheel
	sum=$(cat "$pins" <(python3 --version) | sha256sum)
	if [[ $(cat "$env/sum" 2>/dev/null) != "$sum" ]]; then
		rm -rf "$env"
		python3 -m venv "$env"
		"$env/bin/pip" install -q --only-binary :all: --no-deps -r "$pins"
		echo "$sum" >"$env/sum"
	fi
	"$env/bin/pip" install -q --no-deps --force-reinstall "$home"/dist/coppice-*.whl
	rm -rf "$home/vllm-sources"
	cp -r client/vllm "$home/vllm-sources"
	"$env/bin/pip" install -q --no-deps --force-reinstall "$home/vllm-sources"
	COPPICE_DAEMON=$(realpath "$1")/daemon/coppiced
	export COPPICE_DAEMON
	(cd client/vllm/tests && "$env/bin/python" -m pytest -q -p no:cacheprovider)
}

wheel() {
	fetch
	rm -rf "$home/dist"
	"$home/pinned/bin/pip" wheel -q --no-build-isolation --no-deps -w "$home/dist" \
		-C cmake.define.COPPICE_WERROR=ON ./client/python
	ls "$home/dist"
}

site_packages() { # environment
	"$1/bin/python" -c 'import site; print(site.getsitepackages()[0])'
}

# It sees the packages, and of coppice the wheel alone.
environment() {
	fetch
	rm -rf "$home/env"
	python3 -m venv --without-pip "$home/env"
	"$home/pinned/bin/pip" --python "$home/env" install -q --no-deps --no-compile \
		"$home"/dist/coppice-*.whl
	site_packages "$home/pinned" >"$(site_packages "$home/env")/pinned.pth"
}

# From folders where the sources are not in the way of what is installed.
types() {
	local check=(
		"$home/env/bin/python" -m mypy
		--config-file "$PWD/client/python/pyproject.toml" --cache-dir "$home/mypy"
	)
	cd client/python/tests/core
	"${check[@]}" -p coppice
	"${check[@]}" .
	"$home/env/bin/python" -m mypy.stubtest --allowlist ../stubtest.txt coppice._coppice
	cd ../../../vllm
	"${check[@]}" --config-file pyproject.toml coppice_vllm
}

end_jobs() {
	local job
	for job in $(jobs -p); do
		kill -- "-$job" 2>/dev/null || true
	done
}

# Each folder has a daemon of its own, so they go side by side, and say what they say by turns. As
# jobs: what is merely in the background is deaf to interrupts, by which tests end programs.
tests() { # build folder
	local folder name bad=0
	local -A run=()
	set -m
	trap end_jobs EXIT
	COPPICE_DAEMON=$(realpath "$1")/daemon/coppiced
	export COPPICE_DAEMON
	for folder in client/python/tests/*/; do
		name=$(basename "$folder")
		(
			cd "$folder"
			"$home/env/bin/python" -m pytest -q -p no:cacheprovider --durations=3
		) >"$home/$name.log" 2>&1 &
		run[$name]=$!
	done
	for name in "${!run[@]}"; do
		wait "${run[$name]}" || bad=1
		echo "$name:"
		cat "$home/$name.log"
	done
	return $bad
}

case "${1-}" in
fetch | wheel | environment | types) "$1" ;;
vllm) vllm "${2:?packaging/python.sh vllm BUILD}" ;;
tests) tests "${2:?packaging/python.sh tests BUILD}" ;;
all)
	wheel
	environment
	(types)
	tests "${2:?packaging/python.sh all BUILD}"
	;;
*)
	echo "usage: packaging/python.sh fetch | wheel | environment | types | vllm BUILD |" \
		"tests BUILD | all BUILD" >&2
	exit 2
	;;
esac
