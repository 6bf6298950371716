#!/usr/bin/env bash
# make gpu: builds without a network, runs the GPU tests and the GPU benchmarks, and writes the tables of
# docs/project/gpu.md; some 10 minutes in all, for each part has its own limit.
#   PYTHON    an interpreter with a CUDA build of torch (default: python3)
#   IMAGES    a folder of JPEGs, with or without class folders (default: tools/make_sample.py's photographs,
#             or, where its packages are missing, pictures drawn here)
#   PACKAGES  a folder of *.whl and *.deb files to take what is missing from
#   DEVICE    cpu: a rehearsal without a GPU, with a small network; its tables go to build/gpu/gpu.md instead
#   SECONDS_BUILD, SECONDS_TESTS, SECONDS_STARVATION, SECONDS_ARTICLES  the parts' limits; 0 leaves one out
set -uo pipefail
cd "$(dirname "$0")/.."

PYTHON=${PYTHON:-python3}
PACKAGES=${PACKAGES:-}
IMAGES=${IMAGES:-}
DEVICE=${DEVICE:-cuda}
work=$PWD/build/gpu
build_limit=${SECONDS_BUILD:-110}
tests_limit=${SECONDS_TESTS:-150}
starvation_limit=${SECONDS_STARVATION:-300}
articles_limit=${SECONDS_ARTICLES:-250}

say() { printf '[gpu] %s\n' "$*"; }
die() { printf '[gpu] %s\n' "$@" >&2; exit 1; }

# ---- what is there ------------------------------------------------------------------------------

check_gpu() {
  case $DEVICE in cuda | cpu) ;; *) die "DEVICE must be cuda or cpu. Found: $DEVICE" ;; esac
  command -v "$PYTHON" > /dev/null || die "PYTHON=$PYTHON: no such program."
  "$PYTHON" -c 'import torch' 2> /dev/null || die "$PYTHON has no torch. Name an interpreter with a CUDA build: PYTHON=..."
  [ "$DEVICE" = cuda ] || return 0
  local said
  said=$("$PYTHON" - << 'PY'
import torch
if torch.version.cuda is None:
    print(f"torch {torch.__version__} is a CPU build")
elif not torch.cuda.is_available():
    print(f"torch {torch.__version__} (CUDA {torch.version.cuda}) sees no GPU; does nvidia-smi?")
PY
  ) || die "torch does not say whether there is a GPU."
  [ -z "$said" ] || die "No GPU: $said. Nothing was run."
}

# Wheels and Debian packages of $PACKAGES, into build/gpu: nothing is installed into the system.
unpack_packages() {
  [ -n "$PACKAGES" ] || return 0
  [ -d "$PACKAGES" ] || die "PACKAGES=$PACKAGES is not a folder."
  local wheels=("$PACKAGES"/*.whl) debs=("$PACKAGES"/*.deb)
  if [ -e "${wheels[0]}" ]; then
    "$PYTHON" -m pip install -q --no-index --no-deps --upgrade --target "$work/python" "${wheels[@]}" ||
      die "The wheels in $PACKAGES could not be installed."
  fi
  if [ -e "${debs[0]}" ]; then
    local deb
    for deb in "${debs[@]}"; do dpkg -x "$deb" "$work/system" || die "$deb could not be unpacked."; done
    local link target # zlib's points to /lib
    while read -r link; do
      target=$work/system$(readlink "$link")
      [ ! -e "$target" ] || ln -sfn "$target" "$link"
    done < <(find "$work/system" -lname '/*')
  fi
}

use_packages() {
  export PYTHONPATH="$PWD:$work/python${PYTHONPATH:+:$PYTHONPATH}"
  export PATH="$work/python/bin:$(dirname "$(command -v "$PYTHON")"):$PATH"
  local usr=$work/system/usr triplet
  [ -d "$usr" ] || return 0
  triplet=$(gcc -print-multiarch 2> /dev/null)
  export PATH="$usr/bin:$PATH" CMAKE_PREFIX_PATH="$usr"
  local libraries=$usr/lib/$triplet:$usr/lib:$work/system/lib/$triplet
  export CPATH="$usr/include:$usr/include/$triplet" LIBRARY_PATH=$libraries
  export LD_LIBRARY_PATH="$libraries${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
}

compiles() { # header [linker-flag]: does a program that includes it compile and link?
  printf '#include <cstdio>\n#include <%s>\nint main() {}\n' "$1" |
    g++ -std=c++20 -x c++ - -o /dev/null "${@:2}" > /dev/null 2>&1
}

has_module() { "$PYTHON" -c "import $1" > /dev/null 2>&1; }

check_tools() {
  local missing=() module
  command -v g++ > /dev/null || missing+=("g++ 11 or newer")
  command -v cmake > /dev/null || missing+=("cmake 3.20 or newer (a program, or the wheel 'cmake')")
  command -v ninja > /dev/null || missing+=("ninja (a program, or the wheel 'ninja')")
  for module in nanobind numpy lmdb pyarrow h5py rich PIL pytest hypothesis pytest_timeout psutil; do
    has_module "$module" || missing+=("the Python package $module")
  done
  if command -v g++ > /dev/null; then
    compiles jpeglib.h -ljpeg || missing+=("libjpeg's headers (libjpeg-dev, libjpeg-turbo-devel)")
    compiles zlib.h -lz || missing+=("zlib's headers (zlib1g-dev, zlib-devel)")
    compiles png.h -lpng || missing+=("libpng's headers (libpng-dev, libpng-devel)")
    compiles webp/decode.h -lwebp || missing+=("libwebp's headers (libwebp-dev, libwebp-devel)")
    compiles curl/curl.h || missing+=("libcurl's headers (libcurl4-openssl-dev, libcurl-devel)")
    compiles hwy/highway.h || missing+=("Highway's headers (libhwy-dev, highway-devel)")
  fi
  [ ${#missing[@]} -eq 0 ] && return 0
  die "Missing:" "${missing[@]/#/  }" "Install them, or put their .whl and .deb files into a folder: make gpu PACKAGES=..."
}

# ---- the parts ----------------------------------------------------------------------------------

# Runs a part with its limit; output to a log of its own, the result to $work/parts.
part() { # name limit command...
  local name=$1 limit=$2 begin=$SECONDS status; shift 2
  say "$name (at most $limit s)"
  timeout --kill-after=10 "$limit" "$@" > "$work/$name.log" 2>&1
  status=$?
  printf '%s %s %s\n' "$name" "$status" "$((SECONDS - begin))" >> "$work/parts"
  case $status in
    0) say "$name: done in $((SECONDS - begin)) s" ;;
    124 | 137) say "$name: stopped after $limit s; see $work/$name.log" ;;
    *) say "$name: exit status $status; see $work/$name.log"; tail -n 5 "$work/$name.log" | sed 's/^/    /' ;;
  esac
  return "$status"
}

find_images() {
  [ -z "$IMAGES" ] || { [ -d "$IMAGES" ] || die "IMAGES=$IMAGES is not a folder."; return; }
  IMAGES=$work/images/train
  [ -d "$IMAGES" ] && return
  part images 40 "$PYTHON" tools/make_sample.py "$work/images" && return
  say "drawing pictures instead: they are cheaper to decode than photographs"
  part drawing 40 "$PYTHON" benchmarks/draw_photos.py "$IMAGES" || die "There are no images. Name a folder: IMAGES=..."
}

# Only the files that have GPU tests: others may import packages that are not here.
run_tests() {
  local files
  mapfile -t files < <(grep -rlE 'mark\.cuda' --include='test_*.py' tests | sort)
  [ "$tests_limit" != 0 ] || return 0
  [ ${#files[@]} -gt 0 ] || { say "tests: there are none that are marked cuda"; return; }
  local required=0
  [ "$DEVICE" = cpu ] || required=1
  FASTLOAD_REQUIRE_CUDA=$required part tests "$tests_limit" "$PYTHON" -m pytest "${files[@]}" -q -m cuda \
    -p no:cacheprovider --junit-xml "$work/tests.xml" || failed=1
}

benchmarks() {
  [ "$starvation_limit" = 0 ] ||
    part starvation "$((starvation_limit + 15))" "$PYTHON" benchmarks/bench_starvation.py "$IMAGES" --device "$DEVICE" \
    --budget "$starvation_limit" --output "$work/starvation.json" || failed=1
  [ "$articles_limit" = 0 ] ||
    part articles "$((articles_limit + 15))" "$PYTHON" benchmarks/bench_articles.py "$IMAGES" --device "$DEVICE" \
    --tables mnist,batch,ladder "${articles_batch[@]}" --seconds 0.5 --digits 20000 --budget "$articles_limit" --output "$work/articles" || failed=1
}

check_gpu
mkdir -p "$work"
unpack_packages
use_packages
check_tools
rm -rf "$work"/parts "$work"/*.json "$work"/*.md "$work"/*.xml "$work"/articles
document=docs/project/gpu.md
articles_batch=(--batch 64)
if [ "$DEVICE" = cpu ]; then
  document=$work/gpu.md
  articles_batch=()
  cp docs/project/gpu.md "$document"
fi
failed=0
part build "$build_limit" tools/build_inplace.sh -DFASTLOAD_WERROR=OFF || die "Without a build nothing can run."
find_images
run_tests
benchmarks
"$PYTHON" tools/gpu_report.py "$work" --images "$IMAGES" --document "$document" || failed=1
say "$document has the tables; everything else is in $work. $SECONDS s in all."
exit "$failed"
