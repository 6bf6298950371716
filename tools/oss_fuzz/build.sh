#!/usr/bin/env bash
# Builds every fuzz target for OSS-Fuzz into $OUT: the program, its seeds as TARGET_seed_corpus.zip, its options
# and dictionary. OSS-Fuzz's base image sets CC, CXX, CXXFLAGS, LIB_FUZZING_ENGINE, SRC and OUT; tests/tools does
# so here. The libraries that the core uses are the image's packages, put beside the programs, which run in an image
# without them.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
# $SRC/build.sh is a copy of this file; the sources are the folder beside it.
if [ -f ../../CMakeLists.txt ]; then cd ../..; else cd "$SRC/fastload"; fi
: "${CXX:?} ${LIB_FUZZING_ENGINE:?} ${OUT:?}"
work=${WORK:-build/oss_fuzz}
python=${PYTHON:-python3}

cmake -S . -B "$work/core" -G Ninja -DCMAKE_BUILD_TYPE=None -DFASTLOAD_PYTHON=OFF -DFASTLOAD_FUZZ=ON \
  -DCMAKE_CXX_COMPILER="$CXX" -DFASTLOAD_FUZZ_ENGINE="$LIB_FUZZING_ENGINE" \
  -DCMAKE_BUILD_RPATH='$ORIGIN/lib' -DCMAKE_EXE_LINKER_FLAGS=-Wl,--disable-new-dtags
cmake --build "$work/core" --target fuzz_targets

rm -rf "$work/seeds"
"$python" tests/cpp/fuzz/make_seeds.py "$work/seeds"
mkdir -p "$OUT/lib"
for folder in "$work"/seeds/*/; do
  target=$(basename "$folder")
  program=$work/core/tests/cpp/fuzz/$target
  cp "$program" "$OUT/"
  # Of the system's own libraries the image that runs has the C library's alone.
  ldd "$program" | awk '/=> \// {print $3}' | grep -E '/lib(jpeg|png16|z|webp|sharpyuv)\.' | xargs -r -I{} cp -L {} "$OUT/lib/"
  rm -f "$OUT/${target}_seed_corpus.zip"
  (cd "$folder" && "$python" -m zipfile -c "$OUT/${target}_seed_corpus.zip" ./*)
  printf '[libfuzzer]\nmax_len = 4096\n' > "$OUT/$target.options"
done
# Inputs whose own mutators take JPEGs and records apart need no words; the others' formats have some.
for dictionary in tools/oss_fuzz/*.dict; do
  target=$(basename "$dictionary" .dict)
  cp "$dictionary" "$OUT/"
  printf 'dict = %s.dict\n' "$target" >> "$OUT/$target.options"
done
