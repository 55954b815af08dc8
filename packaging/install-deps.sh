#!/usr/bin/env bash
# Installs the Debian 12 packages that are missing.
#
#   packaging/install-deps.sh [build|check]
#
# build: what a build of the daemon, the library, the tools and the Python package needs (and
# packaging/demo.sh). check, the default: what packaging/check.sh needs besides. Nothing is touched
# where everything is there, or with COPPICE_SKIP_DEPS=1.
set -euo pipefail

build_packages=(
	build-essential cmake ninja-build pkg-config
	libprotobuf-c-dev protobuf-c-compiler
	liburing-dev libsystemd-dev libinih-dev libjansson-dev libxxhash-dev
	python3 python3-dev python3-venv
)
check_packages=(libcmocka-dev clang-format-14 groff-base git)

say() {
	echo "install-deps: $*" >&2
}

is_installed() {
	[[ $(dpkg-query -W -f='${db:Status-Abbrev}' "$1" 2>/dev/null) == ii* ]]
}

as_root() {
	if ((EUID == 0)); then
		"$@"
	elif command -v sudo >/dev/null; then
		sudo "$@"
	else
		say "not root, and there is no sudo: run as root: $*"
		return 1
	fi
}

main() {
	[[ -z ${COPPICE_SKIP_DEPS:-} ]] || exit 0
	local wanted=("${build_packages[@]}") missing=() package
	case "${1:-check}" in
	build) ;;
	check) wanted+=("${check_packages[@]}") ;;
	*)
		say "usage: packaging/install-deps.sh [build|check]"
		exit 2
		;;
	esac
	if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
		say "this machine has no apt: install what these Debian packages hold," \
			"then run this again with COPPICE_SKIP_DEPS=1: ${wanted[*]}"
		exit 1
	fi
	for package in "${wanted[@]}"; do
		is_installed "$package" || missing+=("$package")
	done
	if ((${#missing[@]} == 0)); then
		exit 0
	fi
	say "installing ${missing[*]}"
	as_root apt-get update -q
	as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends \
		"${missing[@]}"
}

main "$@"
