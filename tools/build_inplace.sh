#!/usr/bin/env bash
# Builds the extension into fastload/ of this checkout, for development without an installation:
#   tools/build_inplace.sh && PYTHONPATH=. python -m pytest tests/decode
# PYTHON chooses the interpreter (default: python3); it needs nanobind, cmake and ninja.
set -euo pipefail
cd "$(dirname "$0")/.."
python=${PYTHON:-python3}
. tools/compiler_cache.sh
export PATH="$(dirname "$(command -v "$python")"):$PATH"
cmake -S . -B build/inplace -G Ninja -DPython_EXECUTABLE="$(command -v "$python")" -DFASTLOAD_WERROR=ON \
  -DFASTLOAD_PYTHON=ON "$@" > build-cmake.log 2>&1 || { cat build-cmake.log; rm -f build-cmake.log; exit 1; }
rm -f build-cmake.log
cmake --build build/inplace
# A new file: written over, the old one would fall under whoever runs with it.
cp --remove-destination build/inplace/_C*.so build/inplace/_C.pyi fastload/
