#!/usr/bin/env bash
# make test-arm: the C++ and the Python tests on 64-bit Arm, under an emulator: tools/test_arm.sh [cpp] [python], without
# words both.
#   cpp      builds the core and tests/cpp with a cross compiler and runs them under qemu-user. The image libraries' arm64
#            packages are unpacked into build/arm by an apt with a state of its own, so the system's packages and
#            architectures stay as they are.
#   python   pytest without the slow tests, on an emulated machine: a small Debian in build/arm/root with a Python and a torch
#            of its own, made once, and the extension, cross-built. Rooms run one after the other, so that one whose process ends
#            takes no other with it: what each came to is said at the end, build/arm/logs has the rest. tests/arm.txt names what
#            is left out, and why. It takes hours, and root.
# Compilers and emulators are installed when root; otherwise they are named.
#   ARM_LIBRARIES   a folder with the image libraries' packages unpacked, where apt has none for arm64
#   ARM_SANITIZE    address,undefined: a slower build of the C++ tests with these sanitizers instead of the optimised one
#   ARM_TESTS       rooms or files below tests/ in place of all: ARM_TESTS="decode transform/test_pixels.py"
set -euo pipefail
cd "$(dirname "$0")/.."
. tools/compiler_cache.sh

folder=$PWD/build/arm
root=$folder/root
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

# Installs what lacks of the programs, from packages.
get_programs() { # packages program...
  local packages=$1 program missing=""
  shift
  for program in "$@"; do command -v "$program" > /dev/null || missing+=" $program"; done
  [ -n "$missing" ] || return 0
  if [ "$(id -u)" != 0 ] || ! command -v apt-get > /dev/null; then
    give_up "these programs are missing:$missing." "Debian, Ubuntu: sudo apt-get update && sudo apt-get install $packages"
  fi
  say "installing system packages: $packages"
  export DEBIAN_FRONTEND=noninteractive
  # shellcheck disable=SC2086 # several packages
  { apt-get update -qq && apt-get install -y -qq --no-install-recommends $packages > /dev/null; } ||
    give_up "apt-get could not install $packages."
  for program in "$@"; do
    command -v "$program" > /dev/null || give_up "$packages are installed, but $program is not in PATH."
  done
}

# ---- the core's own tests ---------------------------------------------------------------------

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

configure() { # build folder, CMake's words...
  local build=$1
  shift
  cmake -S . -B "$build" -G Ninja -DCMAKE_TOOLCHAIN_FILE="$PWD/tools/aarch64.cmake" -DFASTLOAD_WERROR=ON \
    -DFASTLOAD_ARM_LIBRARIES="$libraries" -DFASTLOAD_CPP_TESTS=ON "$@" > "$folder/cmake.log" 2>&1 ||
    { cat "$folder/cmake.log"; exit 1; }
}

test_cpp() {
  local build=$folder/build type=(-DCMAKE_BUILD_TYPE=Release)
  if [ -n "${ARM_SANITIZE:-}" ]; then
    build=$folder/sanitize
    type=(-DCMAKE_BUILD_TYPE=Debug -DCMAKE_CXX_FLAGS_DEBUG="-O1 -g -D_GLIBCXX_ASSERTIONS"
      -DFASTLOAD_SANITIZE="$ARM_SANITIZE")
    export ASAN_OPTIONS=detect_leaks=0 # the leak check needs ptrace, which qemu does not have
  fi
  configure "$build" -DFASTLOAD_PYTHON=OFF "${type[@]}"
  cmake --build "$build"
  # test_exit_gate forks beside threads, at which qemu-user 7.2 ends itself ("qemu_plugin_vcpu_init_hook: assertion failed").
  ctest --test-dir "$build" --output-on-failure --exclude-regex '^test_exit_gate$'
  say "left out: test_exit_gate, which forks beside threads, as this emulator cannot"
  say "the core's tests passed for 64-bit Arm, under $(qemu-aarch64 --version | head -n 1)"
}

# ---- the Python tests -------------------------------------------------------------------------

# From here on the kernel starts Arm programs by the emulator, also those that a test starts.
register_emulator() {
  local table=/proc/sys/fs/binfmt_misc
  local magic='\x7f\x45\x4c\x46\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xb7\x00'
  local mask='\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff'
  [ "$(id -u)" = 0 ] || give_up "the emulated machine is a folder to chroot into, which only root may." "sudo make test-arm"
  [ -e $table/register ] || mount -t binfmt_misc none $table ||
    give_up "the kernel refuses to mount binfmt_misc at $table, by which it would start Arm programs." \
      "Run this where root may mount: on the machine itself, or in a container with --privileged."
  # F: the emulator is opened now, so that it need not be within the root.
  [ -e $table/qemu-aarch64 ] ||
    echo ":qemu-aarch64:M::$magic:$mask:$(command -v qemu-aarch64-static):OCF" > $table/register ||
    give_up "the kernel refuses to take qemu-aarch64 into $table."
  grep -q '^flags:.*F' $table/qemu-aarch64 ||
    give_up "qemu-aarch64 stands in $table without the flag F, so that a root would need an emulator within it." \
      "echo -1 > $table/qemu-aarch64, then run this again."
}

# The Debian or Ubuntu of this machine, since the cross compiler links with its C library.
make_root() {
  [ ! -f "$root/complete" ] || return 0
  local packages=python3,python3-venv,libpython3-dev,ca-certificates,g++,git,iproute2,procps
  packages+=,libjpeg-dev,libpng-dev,zlib1g-dev,libwebp-dev,libcurl4-openssl-dev,libtiff-dev
  say "making the machine, a small Debian for arm64: some 10 minutes"
  rm -rf "$root"
  (. /etc/os-release; mmdebstrap --architectures=arm64 --variant=minbase --include=$packages "$VERSION_CODENAME" "$root") \
    > "$folder/root.log" 2>&1 || { tail "$folder/root.log"; give_up "mmdebstrap could not make $root."; }
  cp /etc/resolv.conf "$root/etc/"
  cp /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/"
  chroot "$root" python3 -m venv /venv
  touch "$root/complete"
}

# Pillow's wheel for Arm has fused multiply-adds, so that resizing, moving and blending round otherwise than on x86-64, by 1
# in a few values. Tests compare bit for bit: its pixels are compiled again without, from its sources of the same version.
build_pillow() {
  local python site version source=$folder/pillow
  python=$(basename "$(readlink "$root/usr/bin/python3")")
  site=$root/venv/lib/$python/site-packages
  version=$(basename "$site"/pillow-*.dist-info .dist-info)
  rm -rf "$source"
  python -m pip download -q --no-deps --no-binary pillow -d "$source" "${version/-/==}" ||
    give_up "pip could not get the sources of $version."
  tar -xzf "$source/$version.tar.gz" -C "$source"
  # shellcheck disable=SC2016 # $ORIGIN is the linker's
  (cd "$source/$version/src" && aarch64-linux-gnu-gcc -shared -fPIC -O2 -w -ffp-contract=off -DNDEBUG \
    -DHAVE_LIBJPEG -DHAVE_LIBTIFF -DHAVE_LIBZ "-DPILLOW_VERSION=\"${version#pillow-}\"" -I. -IlibImaging \
    -I"$root/usr/include/$python" -isystem "$root/usr/include" -isystem "$root/usr/include/aarch64-linux-gnu" {_imaging,decode,encode,map,display,outline,path}.c libImaging/*.c \
    "$site"/pillow.libs/lib{jpeg,tiff}-*.so.* "$root/lib/aarch64-linux-gnu/libz.so.1" -lm \
    -Wl,-rpath,'$ORIGIN/../pillow.libs',--allow-shlib-undefined -o "$source/_imaging.so")
  cp --remove-destination "$source/_imaging.so" "$site"/PIL/_imaging.c*.so
}

# What the package and its tests need, again when that changes.
install_requirements() {
  local wanted
  wanted=$(python - << 'PYTHON'
try:
    import tomllib
except ModuleNotFoundError:  # Python 3.10
    from pip._vendor import tomli as tomllib
with open("pyproject.toml", "rb") as file:
    project = tomllib.load(file)["project"]
# Later builds of torch for Arm bring the libraries of CUDA.
print("# and Pillow without fused multiply-adds", "torch==2.9.1", *project["dependencies"], *project["optional-dependencies"]["test"], sep="\n")
PYTHON
  )
  [ "$wanted" != "$(cat "$root/installed.txt" 2> /dev/null)" ] || return 0
  say "installing torch and what the tests need: some 5 minutes"
  echo "$wanted" > "$root/wanted.txt"
  chroot "$root" env PIP_CERT=/etc/ssl/certs/ca-certificates.crt \
    /venv/bin/pip install -q --no-compile --only-binary :all: -r /wanted.txt ||
    give_up "pip could not install what stands in $root/wanted.txt."
  build_pillow
  mv "$root/wanted.txt" "$root/installed.txt"
}

# This machine compiles; only what CMake asks the other machine's Python is emulated.
build_extension() {
  local python headers
  python=$(basename "$(readlink "$root/usr/bin/python3")")
  headers=$root/usr/include/$python
  ln -sfn ../aarch64-linux-gnu "$headers/aarch64-linux-gnu" # where Debian's pyconfig.h looks
  export QEMU_LD_PREFIX=$root
  configure "$folder/build" -DCMAKE_BUILD_TYPE=Release -DFASTLOAD_PYTHON=ON -DPython_EXECUTABLE="$root/usr/bin/$python" \
    -DPython_INCLUDE_DIR="$headers" -Dnanobind_DIR="$(python -m nanobind --cmake_dir)"
  cmake --build "$folder/build" # without tests/cpp, whose targets are built by name in such a build
  unset QEMU_LD_PREFIX
}

# The checkout's files as they are, without what git ignores. One that was deleted, not yet committed, is a warning of tar's.
copy_checkout() {
  rm -rf "$root/checkout" "$root"/tmp/*
  mkdir "$root/checkout"
  git ls-files -z --cached --others --exclude-standard | tar -c --null --ignore-failed-read -T - | tar -x -C "$root/checkout"
  cp "$folder"/build/_C.*.so "$folder/build/_C.pyi" "$root/checkout/fastload/"
}

# In a mount namespace of its own: what is mounted for the machine is gone with it.
on_arm() { # command...
  unshare --mount bash -e -c '
    root=$1
    shift
    mount -t proc proc "$root/proc"
    mount --rbind /sys "$root/sys"
    mount --rbind /dev "$root/dev"
    exec chroot "$root" /usr/bin/env -i -C /checkout/tests HOME=/root LANG=C.UTF-8 OMP_NUM_THREADS=1 PYTHONPATH=/checkout \
      FASTLOAD_SLOWER=10 PATH=/venv/bin:/usr/sbin:/usr/bin:/sbin:/bin "$@"' - "$root" "$@"
}

test_python() {
  local room name log last results=() failed=() left_out=() rooms=${ARM_TESTS:-}
  while read -r name _; do
    [[ $name == "#"* ]] || left_out+=(--deselect "tests/$name")
  done < tests/arm.txt
  # Measurements, pages, tools and installations are the same on any machine; DALI has no part in this one.
  [ -n "$rooms" ] || rooms=$(cd tests && ls -d -- */test_*.py | cut -d/ -f1 | sort -u |
    grep -vxE 'benchmarks|dali|docs|install|tools')
  mkdir -p "$folder/logs"
  for room in $rooms; do
    say "tests/$room"
    log=$folder/logs/${room//\//.}.log
    on_arm python -m pytest -v -m "not slow" --timeout 3000 "${left_out[@]}" "$room" > "$log" 2>&1 ||
      { failed+=("$room"); grep -E '^(FAILED|ERROR) ' "$log" || tail -n 20 "$log"; }
    last=$(tail -n 1 "$log" | tr -d =)
    say "$last"
    results+=("$room:$last")
  done
  say "what ran (logs: $folder/logs):"
  printf '  %s\n' "${results[@]}"
  [ ${#failed[@]} = 0 ] || { say "FAILED on 64-bit Arm, again by ARM_TESTS: ${failed[*]}"; exit 1; }
  say "the Python tests passed for 64-bit Arm, under $(qemu-aarch64-static --version | head -n 1)"
}

if [ "$(uname -m)" = aarch64 ]; then
  say "this machine is 64-bit Arm: make cpp-test and make py-test test it without an emulator"
  exit 0
fi
mkdir -p "$folder"
check_cmake
get_programs g++-aarch64-linux-gnu aarch64-linux-gnu-g++
get_libraries
[ $# -gt 0 ] || set -- cpp python
for half in "$@"; do
  case $half in
    cpp)
      get_programs qemu-user qemu-aarch64
      test_cpp ;;
    python)
      get_programs "mmdebstrap arch-test qemu-user-static" mmdebstrap arch-test qemu-aarch64-static
      register_emulator
      make_root
      install_requirements
      build_extension
      copy_checkout
      test_python ;;
    *) give_up "$half is neither cpp nor python." ;;
  esac
done
