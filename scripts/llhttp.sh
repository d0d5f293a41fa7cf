#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Where llhttp's C sources are: prints two folders, of the sources and of llhttp.h, for meson.
#   scripts/llhttp.sh find    fails when they are nowhere
#   scripts/llhttp.sh fetch   first gets Debian's node-llhttp and unpacks it below .cache: a plain install of it
#                             would pull in nodejs. apt-get checks its signature; no rights are needed.
# LLHTTP_DIR names a folder that has both, for systems without that package.
set -euo pipefail
cd "$(dirname "$0")/.."
cache=.cache/llhttp # relative: meson wants it so inside its tree

find_sources() {
	local pair sources headers
	for pair in "${LLHTTP_DIR:-}|${LLHTTP_DIR:-}" "/usr/share/llhttp|/usr/share/include/llhttp" \
		"/usr/share/llhttp|/usr/include/llhttp" "$cache/usr/share/llhttp|$cache/usr/share/include/llhttp"; do
		sources=${pair%|*} headers=${pair#*|}
		if [ -f "$sources/llhttp.c" ] && [ -f "$sources/api.c" ] && [ -f "$headers/llhttp.h" ]; then
			printf '%s\n%s\n' "$sources" "$headers"
			return 0
		fi
	done
	return 1
}

case ${1:-} in
find) find_sources || { echo "llhttp's C sources are nowhere: run scripts/bootstrap.sh build, or set LLHTTP_DIR" >&2; exit 1; } ;;
fetch)
	! find_sources >/dev/null || exit 0
	! pkg-config --exists libllhttp 2>/dev/null || exit 0
	mkdir -p "$cache"
	scratch=$(mktemp -d)
	trap 'rm -rf "$scratch"' EXIT
	(cd "$scratch" && apt-get -qq -o APT::Sandbox::User=root download node-llhttp)
	dpkg -x "$scratch"/node-llhttp_*.deb "$scratch/tree"
	cp -a "$scratch/tree/usr" "$cache/"
	find_sources >/dev/null
	;;
*) echo "usage: $0 find|fetch" >&2; exit 2 ;;
esac
