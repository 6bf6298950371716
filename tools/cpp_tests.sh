#!/usr/bin/env bash
# make cpp-plain: the core's tests without sanitizers, for the core as it is shipped. They are linked with what the
# package's build (make setup) has compiled; where there is none, the core is compiled here.
set -euo pipefail
cd "$(dirname "$0")/.."
. tools/compiler_cache.sh
say() { printf '[cpp] %s\n' "$*"; }

# The youngest, if several Pythons have built one.
core=$(ls -t build/*-linux_*/libfastload_core.a 2> /dev/null | head -n 1 || true)
folder=${core%/*} options=()
if [ -z "$folder" ]; then
  say "the package was not built here (make setup): the core is compiled, too"
  folder=build/plain options=(-DFASTLOAD_PYTHON=OFF -DFASTLOAD_WERROR=ON -DCMAKE_BUILD_TYPE=Release)
fi
log=build/cpp.log
mkdir -p build
{ cmake -S . -B "$folder" -G Ninja -DFASTLOAD_CPP_TESTS=ON "${options[@]}" &&
  cmake --build "$folder" --target cpp_tests; } > "$log" 2>&1 || { cat "$log"; exit 1; }
ctest --test-dir "$folder" --output-on-failure -j "${CPP_JOBS:-2}"
