# In front of Meson, so that the first command a visitor types works. Outputs: build/quicksand, build/envd, build/unpack,
# build/interpreter.
#
#   make          build                      make test    set up, build, run the tests with the ordinary build
#   make run      set up, build, serve       make deep    the core alone, sanitizers, fuzzing, linters
#   make bench    measure against the peers
#   make check    format, layers, linters    make fuzz    every fuzz target, FUZZ_SECONDS each
#   make soak     random load, SOAK_SECONDS  make format  rewrite sources in the project's format
#   make install  programs and libquicksand below DESTDIR and PREFIX; make uninstall removes them
#   make deb      Debian packages in build/packages-deb       make tarball  for other distributions
#   make image    a container image in build, of the Debian package
#   make test-batteries  tests of the largest templates (R and Java), which `make test` leaves out
#   make vm       tests on another kernel, in an emulated machine: VM_KERNEL, VM_SETS (tests/vm/run.sh)
#
# QUICKSAND_LISTEN and QUICKSAND_DATA say where `make run` serves and keeps its data.

export QUICKSAND_LISTEN ?= 127.0.0.1:3000
export QUICKSAND_DATA   ?= /var/lib/quicksand
PREFIX       ?= /usr/local
FUZZ_SECONDS ?= 60
SOAK_SECONDS ?= 300
VM_KERNEL    ?= bookworm
VM_SETS      ?=
# Warnings are errors in a checkout, not for whoever builds a tarball with another compiler.
WERROR       ?= $(if $(wildcard .git),true,false)
MESON_FLAGS   = -Dwerror=$(WERROR)
# Compiled in half the time of the usual build type, and what they report still has its lines.
LIGHT         = -Dbuildtype=custom -Ddebug=false -Dc_args=-g1 -Db_lundef=false
SANITIZE      = -Db_sanitize=address,undefined -Doptimization=0 -Dc_link_args=-fuse-ld=lld $(LIGHT)
TSAN          = -Db_sanitize=thread -Doptimization=1 $(LIGHT)
QUIET         = $(@D).log

.DEFAULT_GOAL := all
.PHONY: all setup host inside envd unpack interpreter mcp-gateway run test deep bench check fuzz fuzzers asan sanitized core threads soak vm format install uninstall deb image tarball test-packages test-batteries clean

# Side by side: the libraries for what runs inside are compiled one by one.
all: setup
	@$(MAKE) --no-print-directory -j2 host inside

setup:
	@tools/setup.sh

host: setup build/host/build.ninja
	@ninja -C build/host --quiet src/quicksand/quicksand
	@cmp -s build/host/src/quicksand/quicksand build/quicksand || install build/host/src/quicksand/quicksand build/quicksand

# The static programs that run inside sandboxes: in one go, since one directory takes one build at a time.
INSIDE = src/envd/envd src/image/unpack/unpack src/extra/interpreter/program/interpreter src/extra/mcp/gateway/mcp-gateway
envd unpack interpreter mcp-gateway: inside
inside: setup build/musl/build.ninja
	@ninja -C build/musl --quiet $(INSIDE)
	@for program in $(INSIDE); do \
		cmp -s build/musl/$$program build/$${program##*/} || install build/musl/$$program build/$${program##*/} || exit 1; \
	done

build/host/build.ninja: | setup
	@mkdir -p build
	@meson setup build/host $(MESON_FLAGS) >$(QUIET) || { cat $(QUIET); exit 1; }

build/musl/build.ninja: build/deps/.complete
	@meson setup build/musl --native-file tools/musl.ini -Denvd_only=true -Dbuildtype=minsize \
		-Db_pie=false -Ddeps_dir="$(CURDIR)/build/deps" $(MESON_FLAGS) >$(QUIET) || { cat $(QUIET); exit 1; }

build/deps/.complete: tools/build_musl_deps.sh | setup
	@echo "[build] libraries for envd and unpack"
	@mkdir -p build
	@tools/build_musl_deps.sh build/deps
	@touch $@

# By clang, so that the fuzz targets are made of the same objects; its warnings are not those the code is held to.
build/sanitizers/build.ninja: | setup
	@mkdir -p build
	@CC=clang meson setup build/sanitizers -Dfuzz=true $(SANITIZE) >$(QUIET) || { cat $(QUIET); exit 1; }

# Server and warden with ThreadSanitizer. envd is the usual one: it has one thread, and sandboxes lack the library.
build/tsan/build.ninja: | setup
	@mkdir -p build
	@meson setup build/tsan $(TSAN) $(MESON_FLAGS) >$(QUIET) || { cat $(QUIET); exit 1; }

threads: setup inside build/tsan/build.ninja
	@ninja -C build/tsan --quiet src/quicksand/quicksand
	@mkdir -p build/threads
	@install build/tsan/src/quicksand/quicksand build/threads/quicksand
	@install $(addprefix build/,$(notdir $(INSIDE))) build/threads/

# Without extras: to see that the core builds and works alone. Not optimised, since only tests use it.
build/core/build.ninja: | setup
	@mkdir -p build
	@meson setup build/core -Dextras=none -Doptimization=0 $(LIGHT) $(MESON_FLAGS) >$(QUIET) || { cat $(QUIET); exit 1; }

core: setup inside build/core/build.ninja
	@ninja -C build/core --quiet src/quicksand/quicksand
	@mkdir -p build/core/bin
	@install build/core/src/quicksand/quicksand build/envd build/unpack build/core/bin/

# Both programs with sanitizers, side by side as they are installed.
sanitized: setup inside build/sanitizers/build.ninja
	@ninja -C build/sanitizers --quiet src/quicksand/quicksand src/envd/envd
	@mkdir -p build/sanitized
	@install $(addprefix build/,$(notdir $(INSIDE))) build/sanitized/
	@install build/sanitizers/src/quicksand/quicksand build/sanitized/quicksand
	@install build/sanitizers/src/envd/envd build/sanitized/envd

# Only for its compile_commands.json: the analysers want clang's flags.
build/tidy/build.ninja: | setup
	@mkdir -p build
	@CC=clang meson setup build/tidy >$(QUIET) || { cat $(QUIET); exit 1; }

run: all
	@exec build/quicksand serve --listen "$(QUICKSAND_LISTEN)" --data "$(QUICKSAND_DATA)"

test:
	@tools/setup.sh test
	@$(MAKE) --no-print-directory all
	@QUICKSAND_TEST_STRICT=1 tests/run.sh test

deep:
	@tools/setup.sh test
	@$(MAKE) --no-print-directory all
	@QUICKSAND_TEST_STRICT=1 tests/run.sh deep

# Fetches some 400 MB of packages the first time: not part of `make test`.
test-batteries:
	@tools/setup.sh test
	@$(MAKE) --no-print-directory all
	@QUICKSAND_TEST_STRICT=1 tests/run.sh batteries

bench:
	@tools/setup.sh bench
	@$(MAKE) --no-print-directory all
	@bench/run.sh

check: all build/tidy/build.ninja
	@tools/check.sh

asan: setup build/sanitizers/build.ninja

fuzzers: setup build/sanitizers/build.ninja
	@ninja -C build/sanitizers --quiet build.ninja
	@ninja -C build/sanitizers --quiet $$(ninja -C build/sanitizers -t targets all | sed -n 's/^\(src\/[^:]*_fuzz\): .*/\1/p')

fuzz:
	@tools/setup.sh test
	@$(MAKE) --no-print-directory fuzzers
	@tests/fuzz.sh $(FUZZ_SECONDS)

soak: all
	@tests/run.sh --seconds $(SOAK_SECONDS) soak

vm:
	@tools/setup.sh vm
	@$(MAKE) --no-print-directory all
	@tests/vm/run.sh --kernel $(VM_KERNEL) $(VM_SETS)

format:
	@find src -name '*.[ch]' -exec clang-format -i {} +

# Also libquicksand: header, pkg-config file, shared and static.
install: all
	@meson configure build/host -Dprefix="$(abspath $(PREFIX))"
	@ninja -C build/host --quiet
	@DESTDIR="$(abspath $(DESTDIR))" meson install -C build/host --no-rebuild --quiet
	install -D -m 0755 build/envd $(DESTDIR)$(PREFIX)/lib/quicksand/envd
	install -D -m 0755 build/unpack $(DESTDIR)$(PREFIX)/lib/quicksand/unpack
	install -D -m 0755 build/interpreter $(DESTDIR)$(PREFIX)/lib/quicksand/interpreter
	install -D -m 0755 build/mcp-gateway $(DESTDIR)$(PREFIX)/lib/quicksand/mcp-gateway

uninstall: setup
	@meson configure build/host -Dprefix="$(abspath $(PREFIX))"
	@python3 tools/uninstall.py build/host "$(abspath $(DESTDIR))" "$(abspath $(PREFIX))"
	rm -f $(addprefix $(DESTDIR)$(PREFIX)/lib/quicksand/,envd unpack interpreter mcp-gateway)
	rmdir --ignore-fail-on-non-empty $(DESTDIR)$(PREFIX)/lib/quicksand 2>/dev/null || true

deb: all
	@tools/setup.sh test
	@ninja -C build/host --quiet
	@tools/package.sh deb

image: deb
	@tools/image.sh

# Slow: not part of `make test`.
test-packages: image
	@node --test --test-concurrency=1 tests/packages/*.test.mjs

tarball: all
	@ninja -C build/host --quiet
	@tools/package.sh tarball

clean:
	rm -rf build
