#!/usr/bin/env bash
# make fuzz: every target of tests/cpp/fuzz for a while, two at a time, from made seeds and the saved
# inputs (tests/cpp/fuzz/corpus.txt), under ASan and UBSan. Without clang's libFuzzer the same
# inputs run once each, built by g++.
#   FUZZ_SECONDS  for each target (default: 60)
#   FUZZ_JOBS     targets at a time (default: 2)
#   FUZZ_TARGETS  which of them, separated by spaces (default: all)
#   CLANGXX       the compiler (default: clang++)
#   PYTHON        with Pillow, for the seeds (default: python3)
set -euo pipefail
cd "$(dirname "$0")/.."

seconds=${FUZZ_SECONDS:-60}
jobs=${FUZZ_JOBS:-2}
clangxx=${CLANGXX:-clang++}
read -ra targets <<< "${FUZZ_TARGETS:-fuzz_jpeg_parser fuzz_jpeg_entropy fuzz_decode fuzz_index}"
out=build/fuzz
say() { printf '[fuzz] %s\n' "$*"; }

has_libfuzzer() {
  printf 'extern "C" int LLVMFuzzerTestOneInput(const unsigned char*, unsigned long) { return 0; }\n' |
    "$clangxx" -x c++ -fsanitize=fuzzer,address,undefined -o /dev/null - > /dev/null 2>&1
}

build() { # folder, what to build, cmake options
  local folder=$1 what=$2; shift 2
  cmake -S . -B "$folder" -G Ninja -DFASTLOAD_PYTHON=OFF -DCMAKE_BUILD_TYPE=Debug "$@" > "$folder.log" 2>&1 ||
    { cat "$folder.log"; exit 1; }
  cmake --build "$folder" --target "$what" > "$folder.log" 2>&1 || { cat "$folder.log"; exit 1; }
}

fuzz() { # target
  mkdir -p "$out/corpus/$1"
  if ! "$out/tests/cpp/fuzz/$1" "$out/corpus/$1" "$out/seeds/$1" -max_total_time="$seconds" \
      -max_len=4096 -timeout=20 -rss_limit_mb=2048 -artifact_prefix="$out/finding-$1-" \
      -print_final_stats=1 > "$out/$1.log" 2>&1; then
    tail -n 60 "$out/$1.log"
    say "$1: FINDING. Repeat: $out/tests/cpp/fuzz/$1 $out/finding-$1-*"
    say "Then keep it: tests/cpp/fuzz/make_seeds.py --save $1 FILE"
    return 1
  fi
  say "$1: $(sed -n 's/stat::number_of_executed_units: *//p' "$out/$1.log") executions, no finding"
}

replay() { # target
  if ! "build/sanitize/tests/cpp/fuzz/$1_replay" "$out/seeds/$1" > "$out/$1.log" 2>&1; then
    tail -n 60 "$out/$1.log"
    say "$1: FINDING. The input is the last one named above the report."
    return 1
  fi
  say "$1: $(tail -n 1 "$out/$1.log")"
}

mkdir -p "$out"
rm -rf "$out/seeds"
"${PYTHON:-python3}" tests/cpp/fuzz/make_seeds.py "$out/seeds"
if has_libfuzzer; then
  say "building the targets with $clangxx"
  build "$out" all -DCMAKE_CXX_COMPILER="$clangxx" -DFASTLOAD_FUZZ=ON \
    -DCMAKE_CXX_FLAGS_DEBUG="-O2 -g1 -D_GLIBCXX_ASSERTIONS"
  # Executions are short: a long memory of freed blocks would only be slow.
  export ASAN_OPTIONS="quarantine_size_mb=32:malloc_context_size=6:${ASAN_OPTIONS:-}"
  run=fuzz
else
  say "$clangxx has no libFuzzer (apt: clang, libclang-rt-<version>-dev): saved inputs run, nothing is fuzzed"
  build build/sanitize fuzz_replays -DCMAKE_CXX_FLAGS_DEBUG="-O1 -g -D_GLIBCXX_ASSERTIONS" \
    -DFASTLOAD_CPP_TESTS=ON -DFASTLOAD_SANITIZE=address,undefined -DFASTLOAD_WERROR=ON
  run=replay
fi

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
