# The front door: CMake and Ninja do the work. `make help` lists what there is.
BUILD  ?= build/release
PREFIX ?= /usr/local
MAKEFLAGS += --no-print-directory

.PHONY: all deps demo test test-full bench install format check help clean

all: ## build build/release/ctitan
	@scripts/build release

deps: ## install what is missing, from Debian
	@scripts/deps

demo: deps all ## train a small Llama on real text in a few minutes and let it write
	@scripts/demo $(BUILD)/ctitan

test: deps all ## every test: release build, then a part under ASan and UBSan
	@scripts/test

test-full: deps all ## test, and sanitizers, clang, fuzzing in full
	@scripts/test-full

bench: deps all ## tokens/s, GFLOP/s and % of this machine's peak for the benchmark shapes
	@scripts/bench

install: all ## install the program below PREFIX
	@cmake --install $(BUILD) --prefix $(PREFIX)

format: ## clang-format every source file
	@scripts/format

check: ## what CI checks beside the tests: includes point one way, formats, docs are current
	@scripts/check

clean: ## remove build folders
	rm -rf build

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## /  make \1  /p' Makefile | expand -t 22
