#!/usr/bin/env bash
# make test-arm: builds the core and tests/cpp for 64-bit Arm and runs them under qemu-user. The cross
# compiler and qemu are installed when root; otherwise they are named. The image libraries' arm64
# packages are unpacked into build/arm by an apt with a state of its own, so the system's packages
# and architectures stay as they are.
#   ARM_LIBRARIES   a folder with the libraries' packages unpacked, where apt has none for arm64
#   ARM_SANITIZE    address,undefined: a slower build with these sanitizers instead of the optimised one
set -euo pipefail
cd "$(dirname "$0")/.."
. tools/compiler_cache.sh

folder=$PWD/build/arm
libraries=$(realpath -m "${ARM_LIBRARIES:-$folder/libraries}")
say() { printf '[arm] %s\n' "$*"; }
give_up() { # why [command that would help]
  say "NOT TESTED on 64-bit Arm: $1"
  [ $# -lt 2 ] || say "  $2"
  exit 1
}

check_cmake() {
  command -v cmake > /dev/null && command -v ninja > /dev/null && return
  give_up "cmake or ninja is missing." "make setup installs them into .venv."
}

has_tools() { command -v aarch64-linux-gnu-g++ > /dev/null && command -v qemu-aarch64 > /dev/null; }

install_tools() {
  has_tools && return
  local packages="g++-aarch64-linux-gnu qemu-user"
  if [ "$(id -u)" != 0 ] || ! command -v apt-get > /dev/null; then
    give_up "a cross compiler or qemu-user is missing." \
      "Debian, Ubuntu: sudo apt-get update && sudo apt-get install $packages"
  fi
  say "installing system packages: $packages"
  export DEBIAN_FRONTEND=noninteractive
  # shellcheck disable=SC2086 # several packages
  { apt-get update -qq && apt-get install -y -qq --no-install-recommends $packages > /dev/null; } ||
    give_up "apt-get could not install $packages."
  has_tools || give_up "$packages are installed, but aarch64-linux-gnu-g++ or qemu-aarch64 is not in PATH."
}

# apt-get for arm64 that believes nothing is installed and writes below build/arm only.
arm_apt() {
  local state=$folder/apt
  mkdir -p "$state/lists/partial" "$state/archives/partial"
  : > "$state/status"
  apt-get -qq -o APT::Architecture=arm64 -o APT::Architectures::=arm64 -o APT::Sandbox::User="$(id -un)" \
    -o Dir::State="$state" -o Dir::State::Lists="$state/lists" -o Dir::State::status="$state/status" \
    -o Dir::Cache="$state" -o Acquire::Retries=1 -o Acquire::http::Timeout=20 "$@"
}

get_libraries() {
  [ -z "${ARM_LIBRARIES:-}" ] && [ ! -f "$libraries/complete" ] || return 0
  command -v apt-get > /dev/null || give_up "the image libraries' arm64 packages need apt-get, or ARM_LIBRARIES."
  say "getting the arm64 packages of libjpeg-turbo, libpng, libwebp, libcurl and Highway"
  arm_apt update || true # one source may fail; what counts is whether the packages are there
  arm_apt install -y --no-install-recommends --download-only libjpeg-dev libpng-dev zlib1g-dev libwebp-dev libcurl4-openssl-dev libhwy-dev > "$folder/apt.log" ||
    give_up "apt-get could not get the image libraries' arm64 packages (Ubuntu has them at ports.ubuntu.com only)." \
      "Unpack libjpeg-dev, libpng-dev, libwebp-dev, libcurl4-openssl-dev, libhwy-dev, zlib1g-dev and what they need, and set ARM_LIBRARIES."
  mkdir -p "$libraries"
  local package
  for package in "$folder"/apt/archives/{libjpeg,libpng,libwebp,libsharpyuv,zlib1g,libcurl4-openssl-dev,libhwy-dev}*.deb; do
    [ ! -f "$package" ] || dpkg -x "$package" "$libraries"
  done
  touch "$libraries/complete"
}

build_and_run() {
  local build=$folder/build type=(-DCMAKE_BUILD_TYPE=Release)
  if [ -n "${ARM_SANITIZE:-}" ]; then
    build=$folder/sanitize
    type=(-DCMAKE_BUILD_TYPE=Debug -DCMAKE_CXX_FLAGS_DEBUG="-O1 -g -D_GLIBCXX_ASSERTIONS"
      -DFASTLOAD_SANITIZE="$ARM_SANITIZE")
    export ASAN_OPTIONS=detect_leaks=0 # the leak check needs ptrace, which qemu does not have
  fi
  cmake -S . -B "$build" -G Ninja -DCMAKE_TOOLCHAIN_FILE="$PWD/tools/aarch64.cmake" \
    -DFASTLOAD_ARM_LIBRARIES="$libraries" -DFASTLOAD_CPP_TESTS=ON -DFASTLOAD_PYTHON=OFF \
    -DFASTLOAD_WERROR=ON "${type[@]}" > "$folder/cmake.log" 2>&1 || { cat "$folder/cmake.log"; exit 1; }
  cmake --build "$build"
  # test_exit_gate forks beside threads, at which qemu-user 7.2 ends itself ("qemu_plugin_vcpu_init_hook: assertion failed").
  ctest --test-dir "$build" --output-on-failure --exclude-regex '^test_exit_gate$'
  say "left out: test_exit_gate, which forks beside threads, as this emulator cannot"
}

if [ "$(uname -m)" = aarch64 ]; then
  say "this machine is 64-bit Arm: make cpp-test and make py-test test it without an emulator"
  exit 0
fi
mkdir -p "$folder"
check_cmake
install_tools
get_libraries
build_and_run
say "the core's tests passed for 64-bit Arm, under $(qemu-aarch64 --version | head -n 1)"
