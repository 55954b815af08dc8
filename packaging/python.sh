#!/usr/bin/env bash
# The Python package: its wheel, and its tests with that installed.
#
#   packaging/python.sh wheel          builds it, into build/python/dist
#   packaging/python.sh environment    a fresh environment, with the wheel and what the tests need
#   packaging/python.sh types          mypy over the package and its tests
#   packaging/python.sh tests BUILD    the tests, with the daemon of a build folder
#   packaging/python.sh all BUILD      all of these
#
# What is installed beside the wheel is pinned by client/python/tests/requirements.txt. It is fetched once and kept in
# build/python/packages; a later run needs no network.
set -euo pipefail
cd "$(dirname "$0")/.."
home=$PWD/build/python
pins=client/python/tests/requirements.txt
export PIP_DISABLE_PIP_VERSION_CHECK=1

# fresh FOLDER WHAT...: an environment of what has been fetched.
fresh() {
	local folder=$1
	shift
	rm -rf "$folder"
	python3 -m venv "$folder"
	"$folder/bin/pip" install -q --no-index --find-links "$home/packages" "$@"
}

fetch() {
	local sum
	sum=$(cat "$pins" <(python3 --version) | sha256sum)
	[[ $(cat "$home/packages/sum" 2>/dev/null) != "$sum" ]] || return 0
	rm -rf "$home/packages"
	python3 -m pip download -q --only-binary :all: -d "$home/packages" -r "$pins"
	fresh "$home/builder" -c "$pins" scikit-build-core
	echo "$sum" >"$home/packages/sum"
}

wheel() {
	fetch
	rm -rf "$home/dist"
	"$home/builder/bin/pip" wheel -q --no-build-isolation --no-deps -w "$home/dist" \
		-C cmake.define.COPPICE_WERROR=ON ./client/python
	ls "$home/dist"
}

environment() {
	fetch
	fresh "$home/env" -r "$pins" "$home"/dist/coppice-*.whl
}

# From a folder where the sources are not in the way of what is installed.
types() {
	cd client/python/tests
	"$home/env/bin/mypy" --config-file ../pyproject.toml --cache-dir "$home/mypy" -p coppice
	"$home/env/bin/mypy" --config-file ../pyproject.toml --cache-dir "$home/mypy" .
}

tests() { # build folder
	COPPICE_DAEMON=$(realpath "$1")/daemon/coppiced
	export COPPICE_DAEMON
	cd client/python/tests
	"$home/env/bin/python" -m pytest -q -p no:cacheprovider --durations=5
}

case "${1-}" in
wheel | environment | types) "$1" ;;
tests) tests "${2:?packaging/python.sh tests BUILD}" ;;
all)
	wheel
	environment
	(types)
	tests "${2:?packaging/python.sh all BUILD}"
	;;
*)
	echo "usage: packaging/python.sh wheel | environment | types | tests BUILD | all BUILD" >&2
	exit 2
	;;
esac
