# SPDX-License-Identifier: Apache-2.0
# A short front for meson. `make demo` and `make test` install what they need (Debian packages; scripts/bootstrap.sh).
BUILD ?= build
PREFIX ?= /usr/local
DESTDIR ?=
SUITES ?=
ASAN_SUITES ?= unit fuzz integration abuse
FUZZ_SECONDS ?= 60

.PHONY: all demo test install bench bench-fast bench-service abuse asan fuzz lint clean deb

all:
	@scripts/bootstrap.sh build
	@test -f $(BUILD)/build.ninja || meson setup --prefix=$(PREFIX) $(BUILD)
	@ninja -C $(BUILD)

demo: all
	@scripts/demo.sh $(BUILD)/cloche

# SUITES="unit integration" chooses; without it everything runs.
test:
	@scripts/bootstrap.sh test
	@$(MAKE) --no-print-directory all
	@# configured before the test packages were there? then the unit tests are missing from it
	@grep -q unit/test_units $(BUILD)/build.ninja || meson setup --reconfigure $(BUILD)
	@ninja -C $(BUILD)
	@tests/run.py --build $(BUILD) $(SUITES)

abuse:
	@$(MAKE) --no-print-directory test SUITES=abuse

install: all
	@meson configure $(BUILD) --prefix=$(PREFIX)
	@ninja -C $(BUILD)
	@DESTDIR=$(DESTDIR) meson install -C $(BUILD) --no-rebuild

# build-deb/cloche_VERSION_ARCHITECTURE.deb
deb:
	@scripts/bootstrap.sh deb
	@packaging/deb.sh

bench:
	@scripts/bootstrap.sh bench
	@$(MAKE) --no-print-directory all
	@ninja -C $(BUILD) tests/bench/bench-runner tests/bench/bench-library
	@/usr/bin/python3 tests/bench/bench.py --build $(BUILD) --json $(BUILD)/bench.json
	@$(MAKE) --no-print-directory bench-fast

# Prepared sandboxes. BENCH_FAST="--seconds 6 --count 100 --idle 100" for a quick look.
bench-fast:
	@scripts/bootstrap.sh bench
	@$(MAKE) --no-print-directory all
	@ninja -C $(BUILD) tests/bench/bench-runner tests/bench/bench-load tests/bench/bench-floor.so
	@/usr/bin/python3 tests/bench/bench_fast.py --build $(BUILD) --json $(BUILD)/bench-fast.json $(BENCH_FAST)

bench-service:
	@scripts/bootstrap.sh bench
	@$(MAKE) --no-print-directory all
	@/usr/bin/python3 tests/bench/bench_service.py --build $(BUILD) --json $(BUILD)/bench-service.json
	@ninja -C $(BUILD) tests/bench/egress-peer
	@/usr/bin/python3 tests/bench/bench_egress.py --build $(BUILD) --json $(BUILD)/bench-egress.json

asan:
	@scripts/bootstrap.sh test
	@test -f build-asan/build.ninja || meson setup --buildtype=debug -Db_sanitize=address,undefined build-asan
	@ninja -C build-asan
	@tests/run.py --build build-asan $(ASAN_SUITES)

fuzz:
	@scripts/bootstrap.sh test
	@FUZZ_SECONDS=$(FUZZ_SECONDS) scripts/fuzz.sh

lint:
	@scripts/lint.sh

clean:
	rm -rf $(BUILD) build-asan build-fuzz build-deb
