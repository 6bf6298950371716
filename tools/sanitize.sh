#!/usr/bin/env bash
# tools/sanitize.sh [build] [tests] [fuzz]: the core under ASan and UBSan, built once for all. Called by the Makefile.
#   build  nothing but that, and the fuzz targets' seeds (build/fuzz/seeds)
#   tests  the core's own tests, tests/cpp
#   fuzz   every target of tests/cpp/fuzz for a while, two at a time, from made seeds and the saved inputs
#          (tests/cpp/fuzz/corpus.txt). Without clang's libFuzzer, g++ builds, and the same inputs run once each.
# Variables:
#   FUZZ_SECONDS  for each target (default: 60)
#   FUZZ_RUNS     executions after which a target ends sooner (default: -1, no bound)
#   FUZZ_JOBS     targets at a time (default: 2)
#   FUZZ_TARGETS  which of them, separated by spaces (default: all)
#   CLANGXX       the compiler (default: clang++)
#   PYTHON        with Pillow, for the seeds (default: python3)
set -euo pipefail
cd "$(dirname "$0")/.."
. tools/compiler_cache.sh

seconds=${FUZZ_SECONDS:-60}
runs=${FUZZ_RUNS:--1}
jobs=${FUZZ_JOBS:-2}
clangxx=${CLANGXX:-clang++}
read -ra targets <<< "${FUZZ_TARGETS:-fuzz_jpeg_parser fuzz_jpeg_entropy fuzz_jpeg_parts fuzz_coefficients fuzz_decode fuzz_baseline fuzz_formats fuzz_index fuzz_column fuzz_polygons fuzz_cache fuzz_answer fuzz_pixels fuzz_vision}"
out=build/fuzz
say() { printf '[sanitize] %s\n' "$*"; }

has_libfuzzer() {
  printf 'extern "C" int LLVMFuzzerTestOneInput(const unsigned char*, unsigned long) { return 0; }\n' |
    "$clangxx" -x c++ -fsanitize=fuzzer,address,undefined -o /dev/null - > /dev/null 2>&1
}

build() { # folder, targets separated by spaces, cmake options
  local folder=$1 what=$2; shift 2
  mkdir -p build
  {
    cmake -S . -B "$folder" -G Ninja -DFASTLOAD_PYTHON=OFF -DFASTLOAD_CPP_TESTS=ON -DFASTLOAD_WERROR=ON \
      -DCMAKE_BUILD_TYPE=Debug "$@" && cmake --build "$folder" --target $what
  } > "$folder.log" 2>&1 || { cat "$folder.log"; exit 1; }
}

fuzz() { # target
  local options=()
  # Finding out which inputs have rare features took a third of its time.
  [ "$1" != fuzz_coefficients ] || options=(-entropic=0)
  mkdir -p "$out/corpus/$1"
  if ! "$out/tests/cpp/fuzz/$1" "$out/corpus/$1" "$out/seeds/$1" -max_total_time="$seconds" -runs="$runs" \
      -max_len=4096 -timeout=100 -rss_limit_mb=2048 -artifact_prefix="$out/finding-$1-" \
      -print_final_stats=1 "${options[@]}" > "$out/$1.log" 2>&1; then
    tail -n 60 "$out/$1.log"
    say "$1: FINDING. Repeat: $out/tests/cpp/fuzz/$1 $out/finding-$1-*"
    say "Then keep it: tests/cpp/fuzz/make_seeds.py --save $1 FILE"
    return 1
  fi
  say "$1: $(sed -n 's/stat::number_of_executed_units: *//p' "$out/$1.log") executions, no finding"
}

replay() { # target
  if ! "$folder/tests/cpp/fuzz/$1_replay" "$out/seeds/$1" > "$out/$1.log" 2>&1; then
    tail -n 60 "$out/$1.log"
    say "$1: FINDING. The input is the last one named above the report."
    return 1
  fi
  say "$1: $(tail -n 1 "$out/$1.log")"
}

[ $# -gt 0 ] || { say "Nothing to do: give build, tests, fuzz, or several."; exit 2; }
run_tests=false run_fuzz=false make_seeds=false
for part in "$@"; do
  case $part in
    build) make_seeds=true ;;
    tests) run_tests=true ;;
    fuzz) run_fuzz=true make_seeds=true ;;
    *) say "Unknown part: $part. Known: build, tests, fuzz."; exit 2 ;;
  esac
done

if has_libfuzzer; then
  say "building with $clangxx"
  folder=$out run=fuzz
  # -O2: fuzzing wants speed, and -O1 compiles no faster.
  build "$folder" all -DCMAKE_CXX_COMPILER="$clangxx" -DFASTLOAD_FUZZ=ON \
    -DCMAKE_CXX_FLAGS_DEBUG="-O2 -g1 -D_GLIBCXX_ASSERTIONS"
else
  say "$clangxx has no libFuzzer (apt: clang, libclang-rt-<version>-dev): saved inputs run, nothing is fuzzed"
  folder=build/sanitize run=replay
  # -O1: sanitized code is slow enough, and GCC warns wrongly about sanitized -O3 code.
  build "$folder" "all fuzz_replays" -DFASTLOAD_SANITIZE=address,undefined \
    -DCMAKE_CXX_FLAGS_DEBUG="-O1 -g -D_GLIBCXX_ASSERTIONS"
fi

! $run_tests || ctest --test-dir "$folder" --output-on-failure -j 2
$make_seeds || exit 0

mkdir -p "$out"
rm -rf "$out/seeds"
"${PYTHON:-python3}" tests/cpp/fuzz/make_seeds.py "$out/seeds"
$run_fuzz || exit 0
# Executions are short: a long memory of freed blocks would only be slow.
export ASAN_OPTIONS="quarantine_size_mb=32:malloc_context_size=6:${ASAN_OPTIONS:-}"
failed=0 running=()
for target in "${targets[@]}"; do
  "$run" "$target" &
  running+=($!)
  if [ ${#running[@]} -ge "$jobs" ]; then
    wait "${running[0]}" || failed=1
    running=("${running[@]:1}")
  fi
done
for one in "${running[@]}"; do wait "$one" || failed=1; done
exit "$failed"
