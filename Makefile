# fastload's commands; "make help" lists them. Everything happens in this checkout: the virtual
# environment is .venv, build output is build/, the demo is demo/. PYTHON chooses the interpreter.
PYTHON ?= python3
BIN := $(CURDIR)/.venv/bin
# What tools/setup.sh installs must run: its tests do not skip.
REQUIRED := $(if $(filter x86_64,$(shell uname -m)),FASTLOAD_REQUIRE_DALI=1)
# Which tests pytest takes, by their markers: all, or as the tiers say.
MARKS ?=
CHOSEN = $(if $(MARKS),-m "$(MARKS)")
# Several pytests share the cores: a second torch thread of each would spin where it waits for a core.
ALONGSIDE := FASTLOAD_TEST_INSTALLED=1 OMP_NUM_THREADS=1 $(REQUIRED)
export PYTHON

.DEFAULT_GOAL := help
.PHONY: help setup demo check test test-rest test-all nightly lint cpp-plain cpp-test tsan test-arm beside frameworks fuzz \
  fuzz-campaign faults soak elastic drawn versions py-test pack-test bench-test foreign foreign-test release bench gpu docs docs-serve clean

help:  ## this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /  make \1\t/' | expand -t 18

demo:  ## install what is missing, make sample images, pack them, train a small ResNet on them
	@tools/setup.sh demo
	@PATH="$(BIN):$$PATH" tools/demo.sh demo

# Four tiers: check, test, test-all and nightly. CONTRIBUTING.md says what each has.
check:  ## what was changed: ruff, mypy and the quick tests of its rooms, in 90 seconds; BASE=main: all since that branch
	@[ -x $(BIN)/python ] || $(MAKE) --no-print-directory setup
	@PATH="$(BIN):$$PATH" $(BIN)/python tools/check.py $(if $(BASE),--base $(BASE))

test:  ## install what is missing, then at once: lint, the quick tests of pytest, the C++ tests as shipped; some 10 minutes
	@tools/setup.sh test
	@$(MAKE) --no-print-directory -j4 lint py-test pack-test cpp-plain bench-test MARKS="not slow"

test-rest:  ## what "make test" leaves: slow tests, sanitizers, fuzzing, benchmarks, documentation, frameworks
	@tools/setup.sh test
	@$(MAKE) --no-print-directory -j4 py-test pack-test bench-test beside frameworks MARKS=slow

test-all:  ## both, one after the other: what every change passes
	@$(MAKE) --no-print-directory test
	@$(MAKE) --no-print-directory test-rest

# One after the other, also where one of them fails; each can be run alone.
nightly:  ## hours: faults, soak, elastic, tsan, test-arm, versions, drawn, fuzz-campaign
	@tools/setup.sh test
	@$(MAKE) --no-print-directory --keep-going -j1 faults soak elastic tsan test-arm versions drawn fuzz-campaign

setup:  ## only install: system packages (as root), .venv, torch, fastload with its test tools
	@tools/setup.sh test

lint:  ## ruff and mypy --strict (after "make setup")
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	cd tests && $(BIN)/mypy --config-file ../pyproject.toml -p fastload
	cd tests && MYPYPATH=../tools:../benchmarks:reference $(BIN)/mypy --config-file ../pyproject.toml \
	  ../tools/train.py ../tools/make_sample.py ../tools/update_tree.py ../tools/draw_rooms.py ../tools/draw_dark.py \
	  ../tools/gpu_report.py \
	  ../tools/profile_training.py ../tools/train_mask_codes.py ../tools/fuzz_campaign.py ../tools/fuzz_corpus.py \
	  ../tools/fuzz_coverage.py ../tools/mark_slow.py ../tools/check.py ../benchmarks/all.py ../benchmarks/bench_loader.py ../benchmarks/charts/draw.py
	cd tests && MYPYPATH=../tools:../tools/site:../tools/wheels $(BIN)/mypy --config-file ../pyproject.toml ../tools/site/*.py ../tools/wheels/*.py

cpp-plain:  ## the core's own tests without sanitizers, linked with the core as the package has it (after "make setup")
	@PATH="$(BIN):$$PATH" env -u MAKEFLAGS tools/cpp_tests.sh

cpp-test:  ## the core's own tests, built with AddressSanitizer and UndefinedBehaviorSanitizer
	@PATH="$(BIN):$$PATH" tools/sanitize.sh tests

tsan:  ## the C++ tests of what has threads under ThreadSanitizer (after "make setup")
	@mkdir -p build
	@. tools/compiler_cache.sh; PATH="$(BIN):$$PATH" cmake -S . -B build/tsan -G Ninja -DCMAKE_BUILD_TYPE=Debug \
	  -DCMAKE_CXX_FLAGS_DEBUG="-O1 -g -D_GLIBCXX_ASSERTIONS" -DFASTLOAD_CPP_TESTS=ON -DFASTLOAD_PYTHON=OFF \
	  -DFASTLOAD_SANITIZE=thread > build/tsan.log 2>&1 || { cat build/tsan.log; exit 1; }
	@. tools/compiler_cache.sh; $(BIN)/cmake --build build/tsan --target fastload_tests
	build/tsan/tests/cpp/fastload_tests test_prefetch test_engine test_read_ahead \
	  test_kept_pictures test_windows test_record_feed test_buffer_pool test_file_bytes test_cache test_disk_tier test_filler test_decoded test_remote

test-arm:  ## the C++ and the Python tests for 64-bit Arm, cross-built (-O3), under qemu; hours (HALF=cpp, ARM_TESTS="decode transform")
	@PATH="$(BIN):$$PATH" tools/test_arm.sh $(HALF)

# What may take whatever time pytest, which waits a lot, leaves. Without MAKEFLAGS: ninja would look for make's jobs.
# Each target has 6 seconds here: long runs are "make fuzz-campaign".
beside:
	@PATH="$(BIN):$$PATH" PYTHON=$(BIN)/python FUZZ_RUNS=$${FUZZ_RUNS:-500000} FUZZ_SECONDS=$${FUZZ_SECONDS:-6} env -u MAKEFLAGS nice -n 19 tools/sanitize.sh tests fuzz

fuzz:  ## libFuzzer on hostile images and index files; FUZZ_SECONDS for each target (60)
	@PATH="$(BIN):$$PATH" PYTHON=$(BIN)/python tools/sanitize.sh fuzz

# docs/project/reliability.md says what each instrument attacks. Some hours; ONLY=name,name takes some of them, and each
# is kept in build/faults until it runs again.
faults:  ## after "make setup": every fault instrument whole, into docs/measured/faults.md (ONLY=NAME,... SEED=1 POINTS=40)
	PATH="$(BIN):$$PATH" PYTHONPATH=tests/reference:tests/faults $(BIN)/python tests/faults/campaign.py \
	  --only "$(ONLY)" --seed $(or $(SEED),1) $(if $(POINTS),--points $(POINTS))

fuzz-campaign:  ## all fuzz targets up to EXECUTIONS (100000000), going on where it was; docs/measured/fuzzing.md
	PATH="$(BIN):$$PATH" PYTHON=$(BIN)/python $(BIN)/python tools/fuzz_campaign.py --executions $(or $(EXECUTIONS),100000000)

soak:  ## after "make setup": an hour of jobs that are killed, caches cleared, files damaged, every batch checked (SECONDS=3600 SEED=1)
	PATH="$(BIN):$$PATH" PYTHONPATH=tests/reference:tests/faults $(BIN)/python tests/faults/soak.py \
	  '{"seconds": $(or $(SECONDS),3600), "seed": $(or $(SEED),1), "folder": "build/soak"}'

elastic:  ## after "make setup": an hour of eight processes whose world, mixture and sets change, every sample counted (SECONDS=3600 SEED=1)
	PATH="$(BIN):$$PATH" PYTHONPATH=tests/reference:tests/faults $(BIN)/python tests/faults/elastic.py \
	  '{"seconds": $(or $(SECONDS),3600), "seed": $(or $(SEED),1), "folder": "build/elastic"}'

# One table after the other, each with what draws it again in a failure's words; some hours on two slow cores.
drawn:  ## after "make setup": the long form of the tests whose cases are drawn (chains, rows by rank, failing replica groups, values, pictures, chats, EXIF); FASTLOAD_SEED=1 draws others
	cd tests && FASTLOAD_NIGHTLY=1 $(ALONGSIDE) $(BIN)/pytest -q --timeout 14400 \
	  transform/test_marked_chains.py ranks/test_torch_rows.py ranks/test_quorum.py pack/test_values_kept.py pack/test_lerobot.py \
	  transform/test_vision_sizes.py vlm/test_rules.py decode/test_shown.py
	FASTLOAD_NIGHTLY=1 FASTLOAD_TEST_INSTALLED=1 PYTHON=$(BIN)/python \
	  tests/foreign/run.sh torchvision -q --timeout 14400 -k test_chains
	FASTLOAD_NIGHTLY=1 FASTLOAD_TEST_INSTALLED=1 PYTHON=$(BIN)/python \
	  tests/foreign/run.sh transformers -q --timeout 14400 -k "test_vlm_chat or test_vlm_rules"
	FASTLOAD_NIGHTLY=1 FASTLOAD_TEST_INSTALLED=1 PYTHON=$(BIN)/python \
	  tests/foreign/run.sh lerobot -q --timeout 14400 -k test_drawn_windows

versions:  ## tests with the oldest dependencies that are allowed, and with the newest, in environments of their own
	PYTHON=$(BIN)/python tests/versions/run.sh oldest
	PYTHON=$(BIN)/python tests/versions/run.sh newest

# Once nothing measures any more: pip and the frameworks would stand beside it.
frameworks: bench-test
	@$(MAKE) --no-print-directory foreign-test

# From tests/, so that "import fastload" finds the installed package and not the source folder.
py-test:  ## pytest on the installed package, but for packing, stores, ranks, fault instruments, the doctor, the benchmarks and the documentation
	cd tests && $(ALONGSIDE) $(BIN)/pytest $(CHOSEN) \
	  --ignore=benchmarks --ignore=diagnose --ignore=docs --ignore=faults --ignore=pack --ignore=ranks --ignore=remote

pack-test:  ## the same for packing, stores, ranks and fault instruments, which wait for disks, servers and each other
	cd tests && $(ALONGSIDE) $(BIN)/pytest $(CHOSEN) pack remote ranks faults

bench-test:  ## the same for what measures (the benchmarks, each once in its smallest form, and the doctor) and the documentation
	cd tests && $(ALONGSIDE) $(BIN)/pytest $(CHOSEN) benchmarks diagnose docs

foreign:  ## the tests of one framework in an environment of its own: make foreign NAME=ray (without NAME: which)
	@if [ -z "$(NAME)" ]; then tests/foreign/run.sh --list; else PYTHON=$(BIN)/python tests/foreign/run.sh $(NAME); fi

# Those whose environments are made in a minute, and those that examples/ need. From tests/, as py-test.
foreign-test:  ## the same for the quick ones, on the installed package
	@printf '%s -q\n' lightning torchvision timm accelerate ignite torchmetrics tensorboard 'openclip -k test_clip' 'lerobot -k test_windows' \
	  'transformers -k "test_detr or test_vision or test_vlm"' | FASTLOAD_TEST_INSTALLED=1 PYTHON=$(BIN)/python xargs -P 2 -L 1 tests/foreign/run.sh

docs:  ## the site into build/site, tutorials executed (after "make setup")
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

docs-serve:  ## the site at http://127.0.0.1:8000, built anew as pages are written; tutorials are not executed
	EXECUTE=0 NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs serve --no-strict --livereload

release:  ## all of a release but publishing: sdist, wheels, checks, SBOM, provenance, bare systems; docs/project/release.md. ARGS=--help says more
	@$(PYTHON) tools/wheels/release.py $(ARGS)

bench:  ## how to measure
	@echo "Benchmarks take an image folder of your own (or demo/images, after make demo):"
	@ls benchmarks/all.py benchmarks/bench_*.py 2>/dev/null | sed 's|^|  .venv/bin/python |; s|$$| --help|' || true

gpu:  ## on a machine with an NVIDIA GPU: build, GPU tests, benchmarks, docs/project/gpu.md; no network, some 10 minutes
	@tools/gpu.sh

clean:  ## remove .venv, build/ and demo/
	rm -rf .venv build demo
