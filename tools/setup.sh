#!/usr/bin/env bash
# Installs what this checkout needs: tools/setup.sh demo|test. Called by the Makefile; quick when
# nothing is missing. System packages are installed when root; otherwise they are named. All Python
# packages go to .venv of this checkout.
#   PYTHON         the interpreter, 3.10 or newer (default: python3)
#   TORCH_VERSION  the torch to install (default: 2.13.0)
set -euo pipefail
cd "$(dirname "$0")/.."

mode=${1:?usage: tools/setup.sh demo|test}
PYTHON=${PYTHON:-python3}
TORCH_VERSION=${TORCH_VERSION:-2.13.0}
TORCH_CPU_INDEX=https://download.pytorch.org/whl/cpu
venv=$PWD/.venv
constraints=$venv/constraints.txt
wheels=$PWD/build/wheel

say() { printf '[setup] %s\n' "$*"; }
die() { printf '[setup] %s\n' "$@" >&2; exit 1; }

# ---- system packages --------------------------------------------------------------------------

compiles() { # header [compiler flag...]: does a program that includes it compile and link?
  local header=$1; shift
  printf '#include <cstdio>\n#include <%s>\nint main() {}\n' "$header" |
    g++ -std=c++20 -x c++ "$@" -o /dev/null - > /dev/null 2>&1
}

python_has() { "$PYTHON" -c "$1" > /dev/null 2>&1; }

# Sets apt and dnf to the packages that are missing.
find_missing() {
  apt=() dnf=()
  if ! command -v "$PYTHON" > /dev/null; then
    [ "$PYTHON" = python3 ] || die "PYTHON=$PYTHON: no such program."
    apt+=(python3 python3-dev python3-venv) dnf+=(python3 python3-devel)
  else
    local version
    version=$("$PYTHON" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
    python_has 'import sys; sys.exit(sys.version_info < (3, 10))' ||
      die "fastload needs Python 3.10 or newer; $PYTHON is $version." \
        "Choose another one: PYTHON=python3.12 make $mode"
    python_has 'import ensurepip, venv' || apt+=("python$version-venv")
    python_has 'import os, sysconfig; os.stat(sysconfig.get_paths()["include"] + "/Python.h")' || {
      apt+=("python$version-dev"); dnf+=(python3-devel)
    }
  fi
  command -v g++ > /dev/null || { apt+=(g++); dnf+=(gcc-c++); }
  # Without a compiler no header can be tried: all are named, the installed ones cost nothing.
  compiles jpeglib.h -ljpeg || { apt+=(libjpeg-dev); dnf+=(libjpeg-turbo-devel); }
  compiles zlib.h -lz || { apt+=(zlib1g-dev); dnf+=(zlib-devel); }
  compiles png.h -lpng || { apt+=(libpng-dev); dnf+=(libpng-devel); }
  compiles webp/decode.h -lwebp || { apt+=(libwebp-dev); dnf+=(libwebp-devel); }
  compiles curl/curl.h || { apt+=(libcurl4-openssl-dev); dnf+=(libcurl-devel); }
  compiles hwy/highway.h || { apt+=(libhwy-dev); dnf+=(highway-devel); }
  if [ "$mode" = test ]; then # Debian's g++ brings the sanitizers' libraries
    compiles cstdlib -fsanitize=address,undefined || dnf+=(libasan libubsan)
    # Root alone can make the network namespaces that stand for hosts.
    [ "$(id -u)" != 0 ] || command -v ip > /dev/null || { apt+=(iproute2); dnf+=(iproute); }
  fi
}

install_system_packages() {
  find_missing
  [ ${#apt[@]} -gt 0 ] || [ ${#dnf[@]} -gt 0 ] || return 0
  local apt_line="apt-get install ${apt[*]}" dnf_line="dnf install ${dnf[*]}"
  if [ "$(id -u)" != 0 ] || ! command -v apt-get > /dev/null; then
    die "System packages are missing. Install them as root, then run make $mode again:" \
      "  Debian, Ubuntu:  sudo apt-get update && sudo $apt_line" \
      "  Fedora, RHEL:    sudo $dnf_line"
  fi
  say "installing system packages: ${apt[*]}"
  apt-get update -qq
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${apt[@]}" > /dev/null
  find_missing
  [ ${#apt[@]} = 0 ] || die "Still missing after the installation: ${apt[*]}" \
    "g++ 11 or newer is needed; this one is: $(g++ -dumpfullversion 2>/dev/null || echo absent)"
}

has_libfuzzer() {
  printf 'extern "C" int LLVMFuzzerTestOneInput(const unsigned char*, unsigned long) { return 0; }\n' |
    clang++ -x c++ -fsanitize=fuzzer,address,undefined -o /dev/null - > /dev/null 2>&1
}

# What tests can do without: ccache keeps what was compiled for the next build, clang is for make fuzz only, which says
# so where it is not there. Nothing fails here.
install_optional() {
  [ "$mode" = test ] && [ "$(id -u)" = 0 ] && command -v apt-get > /dev/null || return 0
  has_libfuzzer && command -v ccache > /dev/null && return 0
  say "installing system packages that save time (ccache) and that fuzz (clang and its runtime)"
  local apt=(apt-get install -y -qq --no-install-recommends)
  export DEBIAN_FRONTEND=noninteractive
  apt-get update -qq || return 0
  command -v ccache > /dev/null || "${apt[@]}" ccache > /dev/null || true
  has_libfuzzer || install_clang "${apt[@]}"
}

# The runtime's package is named after clang's version, in older distributions differently.
install_clang() { # apt-get install
  local apt=("$@") major
  "${apt[@]}" clang > /dev/null || return 0
  major=$(clang++ -dumpversion | cut -d. -f1)
  "${apt[@]}" "libclang-rt-$major-dev" > /dev/null 2>&1 ||
    "${apt[@]}" "libclang-common-$major-dev" > /dev/null 2>&1 || return 0
}

# ---- the virtual environment ------------------------------------------------------------------

make_venv() {
  if [ -x "$venv/bin/python" ] && "$venv/bin/python" -c 'import pip' 2> /dev/null; then return; fi
  say "making the virtual environment .venv with $("$PYTHON" --version)"
  "$PYTHON" -m venv --clear "$venv"
}

pip() { "$venv/bin/python" -m pip --disable-pip-version-check "$@"; }

# The CPU build where there is no NVIDIA GPU: the default one brings gigabytes of CUDA libraries.
install_torch() {
  local version='import importlib.metadata as m; print(m.version("torch"))'
  if ! "$venv/bin/python" -c "$version" > /dev/null 2>&1; then
    if nvidia-smi > /dev/null 2>&1; then
      say "installing torch $TORCH_VERSION (an NVIDIA GPU is present)"
      pip install -q "torch==$TORCH_VERSION"
    else
      say "installing torch $TORCH_VERSION, CPU build (no NVIDIA GPU found)"
      pip install -q "torch==$TORCH_VERSION+cpu" 2> /dev/null ||
        pip install -q --extra-index-url "$TORCH_CPU_INDEX" "torch==$TORCH_VERSION+cpu" || {
        say "no CPU build found there or at $TORCH_CPU_INDEX; taking the default build (large)"
        pip install -q "torch==$TORCH_VERSION"
      }
    fi
  fi
  # No later installation may replace it.
  echo "torch==$("$venv/bin/python" -c "$version")" > "$constraints"
}

# ---- fastload itself --------------------------------------------------------------------------

source_hash() { # of all that goes into the package, and of how it is built
  { find csrc fastload packaging/licenses CMakeLists.txt pyproject.toml tools/setup.sh -type f \
      ! -name '*.so' ! -name '*.pyc' ! -name '_C.pyi' -print0 | LC_ALL=C sort -z | xargs -0 sha256sum
    "$venv/bin/python" -c 'import sys; print(sys.version)'
  } | sha256sum | cut -d' ' -f1
}

# $venv/installed holds "<mode> <hash>"; an installation for the tests serves the demo too.
is_installed() {
  local have_mode="" have_hash=""
  [ -f "$venv/installed" ] && read -r have_mode have_hash < "$venv/installed"
  [ "$have_hash" = "$1" ] && { [ "$have_mode" = "$mode" ] || [ "$have_mode" = test ]; }
}

# What the package needs beside itself, with these extras: a line each.
requirements() { # extra...
  "$venv/bin/python" - "$@" << 'PYTHON'
import sys
try:
    import tomllib
except ModuleNotFoundError:  # Python 3.10
    from pip._vendor import tomli as tomllib
with open("pyproject.toml", "rb") as file:
    project = tomllib.load(file)["project"]
extras = project["optional-dependencies"]
print(*project["dependencies"], *(line for name in sys.argv[1:] for line in extras[name]), sep="\n")
PYTHON
}

# Compiles the package into $wheels/*.whl. No build isolation: the build folder keeps what has not changed.
compile_fastload() {
  local define=
  [ "$mode" != test ] || define=FASTLOAD_WERROR=ON
  # By the environment: pip before 23.1 (Debian 12's) knows no -C, before 22.1 no --config-settings.
  SKBUILD_CMAKE_DEFINE=$define PATH="$venv/bin:$PATH" pip wheel -q --no-deps --no-build-isolation -w "$wheels" .
}

# Installing unpacks by one core what compiling leaves: both happen at once.
install_fastload() {
  local hash compiling extras=("$mode")
  hash=$(source_hash)
  if is_installed "$hash"; then
    install_torch
    return
  fi
  rm -f "$venv/installed"
  [ "$mode" != test ] || extras+=(docs)
  # NVIDIA's wheels (0.5 GB) are for this machine type; their CPU decoder needs no GPU.
  [ "$mode" != test ] || [ "$(uname -m)" != x86_64 ] || extras+=(dali)
  say "installing the build tools (scikit-build-core, nanobind, cmake, ninja)"
  pip install -q "scikit-build-core>=0.11" "nanobind>=2.4" "cmake>=3.26" ninja
  say "compiling fastload, and meanwhile installing what it needs; this takes a few minutes"
  rm -rf "$wheels"
  compile_fastload &
  compiling=$!
  trap 'kill "$compiling" 2> /dev/null || true' EXIT
  install_torch
  requirements "${extras[@]}" > "$venv/requirements.txt"
  pip install -q -c "$constraints" -r "$venv/requirements.txt"
  wait "$compiling" || die "fastload was not compiled; the compiler's words are above."
  trap - EXIT
  pip install -q --no-deps --force-reinstall "$wheels"/fastload-*.whl
  (cd "$venv" && bin/python -c 'import fastload._native')
  echo "$mode $hash" > "$venv/installed"
}

install_system_packages
install_optional
. tools/compiler_cache.sh
make_venv
install_fastload
say "ready: $("$venv/bin/python" --version), $(head -n 1 "$constraints")"
