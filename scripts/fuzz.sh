#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds the harnesses with libFuzzer and runs each for FUZZ_SECONDS (default 60). What it finds new goes to
# build-fuzz/corpus; what is worth keeping is copied by hand into tests/fuzz/corpus, which `make test` replays.
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${FUZZ_SECONDS:-60}
[ -f build-fuzz/build.ninja ] || CC=clang meson setup --buildtype=debugoptimized -Db_lundef=false \
	-Db_sanitize=address,undefined -Dc_args=-fsanitize=fuzzer-no-link build-fuzz
names=$(sed -n "/^fuzz_harnesses/,/^}/s/^[[:space:]]*'\([a-z0-9_]*\)'.*/\1/p" tests/fuzz/meson.build)
[ -n "$names" ] || { echo "fuzz: no harness in tests/fuzz/meson.build" >&2; exit 1; }
for name in $names; do
	ninja -C build-fuzz --quiet "tests/fuzz/fuzz_$name"
	mkdir -p "build-fuzz/corpus/$name" "build-fuzz/crashes"
	seeds=tests/fuzz/corpus/$name
	[ -d "$seeds" ] || seeds=
	echo "== $name: $seconds s"
	"build-fuzz/tests/fuzz/fuzz_$name" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 -print_final_stats=1 \
		-artifact_prefix="build-fuzz/crashes/$name-" "build-fuzz/corpus/$name" $seeds
done
