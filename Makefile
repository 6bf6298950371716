# fastload's commands; "make help" lists them. Everything happens in this checkout: the virtual
# environment is .venv, build output is build/, the demo is demo/. PYTHON chooses the interpreter.
PYTHON ?= python3
BIN := $(CURDIR)/.venv/bin
SANITIZED := build/sanitize
export PYTHON

.DEFAULT_GOAL := help
.PHONY: help setup demo test lint cpp-test fuzz py-test bench clean

help:  ## this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /  make \1\t/' | expand -t 18

demo:  ## install what is missing, make sample images, pack them, train a small ResNet on them
	@tools/setup.sh demo
	@PATH="$(BIN):$$PATH" tools/demo.sh demo

test:  ## install what is missing, then lint, C++ tests under ASan and UBSan, fuzzing, and pytest
	@tools/setup.sh test
	@$(MAKE) --no-print-directory lint cpp-test fuzz py-test

setup:  ## only install: system packages (as root), .venv, torch, fastload with its test tools
	@tools/setup.sh test

lint:  ## ruff and mypy --strict (after "make setup")
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	cd tests && $(BIN)/mypy --config-file ../pyproject.toml -p fastload
	cd tests && MYPYPATH=../tools $(BIN)/mypy --config-file ../pyproject.toml \
	  ../tools/train.py ../tools/make_sample.py ../tools/update_tree.py

# -O1: sanitized code is slow enough, and GCC warns wrongly about sanitized -O3 code.
cpp-test:  ## the core's own tests, built with AddressSanitizer and UndefinedBehaviorSanitizer
	@mkdir -p build
	@PATH="$(BIN):$$PATH" cmake -S . -B $(SANITIZED) -G Ninja -DCMAKE_BUILD_TYPE=Debug \
	  -DCMAKE_CXX_FLAGS_DEBUG="-O1 -g -D_GLIBCXX_ASSERTIONS" -DFASTLOAD_CPP_TESTS=ON -DFASTLOAD_PYTHON=OFF \
	  -DFASTLOAD_SANITIZE=address,undefined -DFASTLOAD_WERROR=ON > $(SANITIZED).log 2>&1 \
	  || { cat $(SANITIZED).log; exit 1; }
	$(BIN)/cmake --build $(SANITIZED)
	$(BIN)/ctest --test-dir $(SANITIZED) --output-on-failure

fuzz:  ## libFuzzer on hostile images and index files; FUZZ_SECONDS for each target (60)
	@PATH="$(BIN):$$PATH" PYTHON=$(BIN)/python tools/fuzz.sh

# From tests/, so that "import fastload" finds the installed package and not the source folder.
py-test:  ## pytest on the installed package
	cd tests && FASTLOAD_TEST_INSTALLED=1 $(BIN)/pytest

bench:  ## how to measure
	@echo "Benchmarks take an image folder of your own (or demo/images, after make demo):"
	@ls benchmarks/bench_*.py 2>/dev/null | sed 's|^|  .venv/bin/python |; s|$$| --help|' || true

clean:  ## remove .venv, build/ and demo/
	rm -rf .venv build demo
