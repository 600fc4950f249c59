# Copyright 2026 The hvd_partial authors.
# SPDX-License-Identifier: Apache-2.0
#
# `make help` lists what there is. Everything is installed into .venv and nothing needs root.

SHELL := /bin/bash
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-print-directory

PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV ?= .venv
BUILD ?= build
# 1: Horovod with MPI as well as Gloo (needs an installed MPI).
HOROVOD_WITH_MPI ?= 0
HOROVOD_VERSION := 0.28.1
JOBS ?= $(shell nproc)
# How long `make fuzz` looks.
FUZZ_SECONDS ?= 60
# More arguments for the demo and for pytest: make demo DEMO_ARGS="--scenario last"
DEMO_ARGS ?=
PYTEST_ARGS ?=

python := $(VENV)/bin/python
pip := $(python) -m pip --disable-pip-version-check
stage := tools/stage
stamps := $(VENV)/.stamps
logs := $(BUILD)/logs
# pip and TensorFlow find nothing of the caller's environment in here.
unexport PYTHONPATH PYTHONHOME

# A stamp's name holds what it stands for: changed pins are installed, unchanged ones are not looked at.
pins := $(shell cat requirements/constraints.txt requirements/runtime.txt requirements/no-deps.txt | sha256sum | cut -c1-12)
demo_pins := $(shell cat requirements/*.txt | sha256sum | cut -c1-12)
stamp_venv := $(stamps)/venv
stamp_runtime := $(stamps)/runtime-$(pins)
stamp_horovod := $(stamps)/horovod-$(HOROVOD_VERSION)-mpi$(HOROVOD_WITH_MPI)-$(pins)
stamp_demo := $(stamps)/demo-$(demo_pins)
stamp_test := $(stamps)/test-$(demo_pins)
stamp_package := $(stamps)/package-$(pins)

native_sources := $(shell find hvd_partial/native -type f \( -name '*.cc' -o -name '*.h' -o -name CMakeLists.txt \) 2>/dev/null)
test_sources := $(wildcard tests/native/*)
# A library that somebody deleted is built again.
ifeq ($(wildcard hvd_partial/libhvd_partial.so),)
.PHONY: $(stamp_package)
endif

.PHONY: help env build demo test lint format tsan asan ubsan fuzz native-tests clean distclean

help: ## this list
	@echo "targets:"
	@sed -nE 's/^([a-z-]+):.*## (.*)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 24
	@echo "variables: PYTHON=$(PYTHON) VENV=$(VENV) JOBS=$(JOBS) HOROVOD_WITH_MPI=$(HOROVOD_WITH_MPI) FUZZ_SECONDS=$(FUZZ_SECONDS) DEMO_ARGS PYTEST_ARGS"

demo: $(stamp_demo) $(stamp_package) ## train on digits with one slow rank: Horovod, then sync, majority and solo
	@$(python) -m examples.digits $(DEMO_ARGS)

test: $(stamp_test) $(stamp_package) native-tests ## the whole test suite, native tests included
	@$(python) -m pytest $(PYTEST_ARGS)

env: $(stamp_test) ## .venv with TensorFlow, Horovod, UCX and the test packages
	@:

build: $(stamp_package) ## build the native parts into the source tree
	@:

native-tests: $(stamp_test) ## build the C++ tests (ctest --test-dir build/native runs them)
	@$(stage) $(logs)/native-tests.log "native tests built" tools/build_native_tests $(python) $(BUILD)/native "" $(JOBS)

lint: $(stamp_test) ## ruff, mypy, clang-format
	@$(python) -m ruff check .
	@$(python) -m ruff format --check .
	@$(python) -m mypy
	@find hvd_partial/native tests/native -name '*.cc' -o -name '*.h' | xargs -r $(VENV)/bin/clang-format --dry-run -Werror
	@echo "lint: clean"

format: $(stamp_test) ## let ruff and clang-format write what lint asks for
	@$(python) -m ruff check --fix .
	@$(python) -m ruff format .
	@find hvd_partial/native tests/native -name '*.cc' -o -name '*.h' | xargs -r $(VENV)/bin/clang-format -i

tsan: $(stamp_test) ## native tests under ThreadSanitizer
	@$(stage) $(logs)/tsan-build.log "built with ThreadSanitizer" tools/build_native_tests $(python) $(BUILD)/tsan thread $(JOBS)
	@tools/run_native_tests $(BUILD)/tsan thread $(JOBS)

asan: $(stamp_test) ## native tests under AddressSanitizer, LeakSanitizer and UndefinedBehaviorSanitizer
	@$(stage) $(logs)/asan-build.log "built with AddressSanitizer" tools/build_native_tests $(python) $(BUILD)/asan address,undefined $(JOBS)
	@tools/run_native_tests $(BUILD)/asan address,undefined $(JOBS)

ubsan: $(stamp_test) ## ... under the latter alone, with the larger explorations
	@$(stage) $(logs)/ubsan-build.log "built with UndefinedBehaviorSanitizer" tools/build_native_tests $(python) $(BUILD)/ubsan undefined $(JOBS)
	@tools/run_native_tests $(BUILD)/ubsan undefined $(JOBS)

fuzz: $(stamp_test) ## feed the decoders and the engine with mutated messages (Clang)
	@tools/fuzz $(python) $(BUILD)/fuzz $(FUZZ_SECONDS) $(JOBS)

clean: ## remove what was built, keep the environment
	@rm -rf $(BUILD) dist *.egg-info hvd_partial/*.so hvd_partial/_build_info.json $(stamps)/package-*
	@find . -name __pycache__ -not -path './$(VENV)/*' -prune -exec rm -rf {} +

distclean: clean ## remove the environment too
	@rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis

$(stamp_venv):
	@tools/check_host "$(PYTHON)"
	@echo "setting up $(VENV) with $(PYTHON)"
	@$(stage) $(logs)/venv.log "virtual environment" "$(PYTHON)" -m venv $(VENV)
	@mkdir -p $(stamps) && touch $@

$(stamp_runtime): $(stamp_venv)
	@$(stage) $(logs)/runtime.log "TensorFlow, Keras and UCX installed" \
	  $(pip) install -c requirements/constraints.txt -r requirements/runtime.txt
	@$(stage) $(logs)/tf-keras.log "tf_keras installed" \
	  $(pip) install --no-deps -r requirements/no-deps.txt
	@touch $@

$(stamp_horovod): $(stamp_runtime)
	@$(stage) $(logs)/horovod.log "Horovod $(HOROVOD_VERSION) built and installed" \
	  tools/install_horovod $(python) $(HOROVOD_VERSION) $(HOROVOD_WITH_MPI)
	@rm -f $(stamps)/horovod-* && touch $@

$(stamp_demo): $(stamp_horovod)
	@$(stage) $(logs)/demo.log "packages of the examples installed" \
	  $(pip) install -c requirements/constraints.txt -r requirements/demo.txt
	@touch $@

$(stamp_test): $(stamp_horovod)
	@$(stage) $(logs)/test.log "packages of the tests installed" \
	  $(pip) install -c requirements/constraints.txt -r requirements/test.txt
	@touch $@ $(stamp_demo)

$(stamp_package): $(stamp_horovod) $(native_sources) CMakeLists.txt setup.py pyproject.toml
	@$(stage) $(logs)/package.log "hvd_partial built" env HVD_PARTIAL_JOBS=$(JOBS) \
	  $(pip) install --no-build-isolation --no-deps --config-settings editable_mode=compat -e .
	@touch $@
