# make repro    environment, signing key, then the main job: raw text to a model, every step in the ledger
# make test     environment, then the test suite
# make lint     ruff, mypy, shell syntax, rules of architecture, names and licences, documentation in step with the commands
# make long     the long tests, of which make test draws a minute by the commit; make touched: those of what changed (minutes)
# make fidelity what people bring, beside what their own tools make of it: same, refused with a reason, or a failure (minutes);
#               make references: those of these tools that need torch, in an environment of their own (rows skip without)
# make faults   every system call of an append failing; sixteen processes killed for a minute; whole tables of cases (minutes);
# make foreign  programs and test vectors that nobody here wrote, fetched and pinned, judge our bytes (minutes)
# make harness  installs lm-evaluation-harness beside the lock, for `marin eval`; make evaluation: its tests too
# make findings what was learned about other people's libraries, asked of them again (many minutes; NAMES="NAME..." for some)
# make bench    how long things take here; make determinism: the same bits on other machine shapes (an hour, resumable);
#               make experiments: every experiment at its sanity size, and the pages that a lab follows (an hour);
#               make without PLUGINS="NAME...": the tree without a plugin passes (hours for all, resumable; DRAWN=2: two, by
#               the commit; TARGETS=rules: what make lint holds of it);
#               make survival: training on Ray while parts of it are killed (half an hour);
#               make browser: MLflow's UI and our pages in a headless Chromium;
#               make site: the documentation as a site in build/site, its links and spelling (minutes);
#               make notebooks: executes docs/notebooks, keeps their outputs, and tests what they find (minutes);
#               make compilers: does a recorded run verify under other jaxlibs (an hour; VERSIONS="0.12.0.1 newest" for some);
#               make gpu: does this machine's GPU give the bits of profile exact (minutes; PLATFORM=cpu asks the processor);
#               make faults-bench: 112 single faults, each looked for by full verification; make verify-bench: its cost
# make fuzz     every parser of foreign bytes, thousands of changed inputs each (minutes; MARIN_FUZZ=N for N), and hundreds
#               of examples of every other property whose examples are cheap
# make lock     requirements.lock from pyproject.toml (needs uv); make docs: docs/commands.md from the help texts
# make clean    caches and build leftovers; never .venv, never the ledger

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

# Relative, so that a folder whose path has a space works; dvc's stages find `marin` on PATH.
BIN := .venv/bin
export PATH := $(CURDIR)/$(BIN):$(PATH)
export PYTHONPATH :=
export PIP_REQUIRE_VIRTUALENV :=
# Compiled modules are kept: without them every process compiles jax and the rest of its imports again, seven seconds each.
export PYTHONDONTWRITEBYTECODE :=

PYTEST ?= $(BIN)/python -m pytest
# One more than processors: tests wait for programs that they start.
TEST_JOBS ?= $(shell n=$$(nproc 2>/dev/null || echo 1); echo $$(( n > 7 ? 8 : n + 1 )))
UV ?= uv
# Of the tree and its environment, not of what it does: `make lint` holds them.
RULES := $(addprefix tests/test_,architecture.py naming.py docs.py requirements.py licences.py) tests/marin/test_house.py tests/marin/test_dvc.py \
         tests/marin/work/test_code.py

.PHONY: help environment repro test touched long lint types rules bench experiments without survival faults-bench verify-bench gpu compilers browser site notebooks docs-tools tpu harness findings fidelity references foreign evaluation faults fuzz determinism lock docs clean

help:
	@sed -n '/^# /!q; s/^# //p' Makefile

environment:
	@./.ci/environment

repro: environment
	@$(BIN)/marin init --quiet
	@# What is not made yet, in one process, which imports what computes once; and DVC where its lock is of something else.
	@$(BIN)/marin repro --dvc
	@$(BIN)/marin show artifacts/export.json --summary

test: environment
	$(PYTEST) --processes $(TEST_JOBS) $(RULES:%=--ignore=%)

# Two at a time: mypy takes as long as the rest together. Neither is called by itself.
lint: environment
	$(MAKE) -j2 $(if $(filter output-sync,$(.FEATURES)),--output-sync=target) types rules

types:
	$(BIN)/mypy

rules:
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	for script in .ci/environment .ci/findings .ci/references .ci/run findings/*.sh; do bash -n "$$script"; done
	$(BIN)/hadolint docker/Dockerfile
	$(PYTEST) -q $(RULES)

bench: environment
	$(BIN)/python -m bench
	$(BIN)/python -m bench.ledger.append --events 20000
	$(BIN)/python -m bench.ledger.store_put --size-mib 256 --files 5000 --many 20000
	$(BIN)/python -m bench.ledger.chunked_push
	$(BIN)/python -m bench.training.train_step --sizes 1M
	$(BIN)/python -m bench.ledger.looking_back --events 100000

experiments: environment
	$(PYTEST) -q -m experiments tests/e2e --durations 0

without: environment
	@mkdir -p build
	$(BIN)/python -m bench.house.without --results build/without.json $(PLUGINS) $(if $(DRAWN),--drawn $(DRAWN)) $(if $(TARGETS),--targets "$(TARGETS)")

survival: environment
	$(PYTEST) -q -m survival tests/e2e tests/plugins/collections tests/marin/pipeline tests/plugins/ray

faults-bench: environment
	$(BIN)/python -m tests.adversary.faults --seed 1 --per-kind 8 --table docs/verify.md

verify-bench: environment
	$(BIN)/python -m bench.verify

compilers: environment # one beside the lock for each version, in build/compilers
	$(BIN)/python -m bench.compilers --folder build/compilers $(VERSIONS)

gpu: # no environment of its own: jax and its plugin are the machine's
	@python=$(BIN)/python; [ -x $$python ] || python=python3; $$python -m bench.gpu --platform $${PLATFORM:-cuda}

browser: environment
	$(PYTEST) --processes $(TEST_JOBS) -m browser tests/plugins/sharing/dossier tests/e2e

# What makes the site lies beside the lock, as what evaluates does.
docs-tools: environment
	@$(BIN)/python -m uv pip install --quiet --python $(BIN)/python --require-hashes -r requirements-docs.lock

site: docs-tools
	$(BIN)/codespell README.md AGENTS.md CONTRIBUTING.md CHANGELOG.md docs ledger marin experiments conf bench/RESULTS.md
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	$(PYTEST) -q tests/documents

notebooks: docs-tools
	$(BIN)/python docs/site/notebooks.py
	$(PYTEST) -q -m site tests/documents

tpu: environment
	$(BIN)/python -m uv pip install --quiet --python $(BIN)/python --require-hashes -r docker/requirements-tpu.lock
	$(PYTEST) -q -m "tpu or not tpu" tests/plugins/scale --durations 0

fidelity: harness
	$(BIN)/python -m uv pip install --quiet --python $(BIN)/python --require-hashes -r requirements-fidelity.lock
	$(PYTEST) -q --processes $(TEST_JOBS) --whole -m fidelity tests/fidelity

references: environment
	@./.ci/references

foreign: environment # what reads exports in its newest version lies beside the lock
	@./.ci/references build/newest tests/foreign/beside/newest.txt || echo "no build/newest: its tests are skipped" >&2
	$(PYTEST) -q -m foreign tests/foreign --judges-table docs/foreign.md

findings: # no environment of its own: each script makes one
	@./.ci/findings $(NAMES)

harness: environment
	$(BIN)/python -m uv pip install --quiet --python $(BIN)/python --require-hashes -r requirements-evaluation.lock

evaluation: harness
	$(PYTEST) -q --processes $(TEST_JOBS) -m evaluation tests/plugins/evaluation tests/plugins/serve tests/e2e/models

faults: environment
	$(PYTEST) -m "faults or table" --whole

touched: environment # pytest's 5: nothing long is about what changed
	$(PYTEST) --processes $(TEST_JOBS) -m long --touched || [ $$? -eq 5 ]

long: environment
	$(PYTEST) --processes $(TEST_JOBS) -m long --whole

fuzz: export MARIN_FUZZ ?= 5000
fuzz: environment
	$(PYTEST) -q --processes $(TEST_JOBS) tests/fuzz
	$(PYTEST) -q --processes $(TEST_JOBS) -m hypothesis --ignore=tests/fuzz

determinism: environment
	@mkdir -p build
	$(BIN)/python tests/determinism/matrix.py --results build/determinism.json --parallel 2
	$(PYTEST) -m determinism tests/determinism tests/e2e tests/marin/training

lock:
	@command -v $(UV) >/dev/null || { echo "make lock needs uv on PATH (or UV=/path/to/uv make lock)" >&2; exit 3; }
	$(UV) pip compile --quiet --generate-hashes --no-emit-index-url --no-annotate --no-header --python-version 3.12 \
	    --group pyproject.toml:dev --extra all pyproject.toml --output-file requirements.lock
	$(UV) pip compile --quiet --generate-hashes --no-emit-index-url --no-annotate --no-header --python-version 3.12 \
	    --constraint requirements.lock --extra eval pyproject.toml --output-file requirements-evaluation.lock
	$(UV) pip compile --quiet --generate-hashes --no-emit-index-url --no-annotate --no-header --python-version 3.12 \
	    --constraint requirements.lock --group pyproject.toml:docs --output-file requirements-docs.lock
	$(UV) pip compile --quiet --generate-hashes --no-emit-index-url --no-annotate --no-header --python-version 3.12 \
	    --constraint requirements.lock --group pyproject.toml:fidelity --output-file requirements-fidelity.lock
	@# The images' plugins, by the pins above; each index has wheels for other C libraries than the default platform's.
	for kind in gpu tpu; do $(UV) pip compile --quiet --generate-hashes --no-emit-index-url --no-annotate --no-header \
	    --python-version 3.12 --python-platform x86_64-manylinux_2_31 --constraint requirements.lock \
	    docker/requirements-$$kind.in --output-file docker/requirements-$$kind.lock; done

docs: environment
	$(BIN)/python -m marin.cli.reference > docs/commands.md.tmp
	@mv docs/commands.md.tmp docs/commands.md
	$(BIN)/python -m ledger.reference > ledger/REFERENCE.md

clean:
	rm -rf build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis ./*.egg-info docs/commands.md.tmp
	find ledger marin experiments tests bench -name __pycache__ -prune -exec rm -rf {} + 2>/dev/null || true
