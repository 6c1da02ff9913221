# `make demo` and `make test` work on a fresh Debian or Ubuntu machine with Rust installed: both set up what is missing first.
# Tests and lint use cargo's own profile, dev, which compiles in two thirds of the time; what is to be used is built with release.

SHELL := /bin/bash
# Where rustup puts cargo, for a shell that was opened before.
export PATH := $(PATH):$(or $(CARGO_HOME),$(HOME)/.cargo)/bin

.DEFAULT_GOAL := help
.PHONY: help setup build tuned demo test gallery fmt lint bench benches clean cargo

help: ## list these targets
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/  make \1\t\2/p' Makefile | expand -t 16

setup: ## install what is missing: system packages, LibTorch, HiGHS (scripts/setup.sh)
	@scripts/setup.sh

build: setup ## build target/release/tenantry, with real execution
	cargo build --release --features libtorch

tuned: setup ## build target/tuned/release/tenantry, optimised by a run; simulates faster (needs rustup's llvm-tools)
	@scripts/tuned.sh build

demo: build ## profile this CPU, then simulate, execute and validate a small scenario
	@scripts/demo.sh

test: setup ## run all tests
	cargo test --workspace --features libtorch

gallery: build ## make the pages of docs/gallery anew
	@scripts/gallery.sh

fmt: cargo ## format the sources
	cargo fmt --all

lint: setup ## run clippy, with libtorch and without, and rustdoc; a warning is an error
	cargo clippy --workspace --all-targets --features libtorch -- -D warnings
	cargo clippy --all-targets -- -D warnings
	RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --document-private-items --features libtorch

bench: setup ## print one table of how fast the simulator is, what memory it takes, and how both grow
	cargo bench --profile release -p tenantry-sim --bench table

benches: setup ## run each benchmark by itself, built with everything that the compiler can do
	cargo bench -p tenantry-profiles -p tenantry-traces -p tenantry-sim -p tenantry-solver -p tenantry-plot

clean: cargo ## remove what was built; keep results in out/ and downloads in the cache
	cargo clean

cargo:
	@command -v cargo >/dev/null || { echo 'Rust is missing: install it with rustup (https://rustup.rs), then open a new shell.' >&2; exit 1; }
