#!/usr/bin/env bash
# Builds what a wheel has inside itself, as static libraries, and puts headers beside them: curl's (libcurl is
# opened at run time) and Highway's, of which headers are all that is used:
#   tools/wheels/libraries.sh PREFIX [FOLDER]
#   tools/wheels/libraries.sh --list
# FOLDER has tarballs that were fetched before; what is missing there is fetched into it. CC is the compiler.
# x86-64 needs nasm. For another machine: CMAKE_TOOLCHAIN_FILE, and CHOST=aarch64-linux-gnu for zlib's own configure.
# CMAKE_PREFIX_PATH=PREFIX then makes the build of fastload take them. --list: a line for each,
# with its name and version, its SHA-256 and its URLs.
set -euo pipefail

prefix=${1:?usage: tools/wheels/libraries.sh PREFIX [FOLDER]}
# A tarball's name, its SHA-256, and where to fetch it. Debian's pool has a file as long as a suite needs it, Debian's
# archive by its SHA-1 for good.
sources() {
  cat << 'TABLE'
zlib-1.3.2 7b6903eb019983987b7112eccf90f1703f1c6c0e0cede36564bf611d19ca579d
  https://deb.debian.org/debian/pool/main/z/zlib/zlib_1.3.dfsg+really1.3.2.orig.tar.gz
  https://snapshot.debian.org/file/4db0dac92273fb295e6064d9be076e124f6c71bd
libjpeg-turbo-3.1.3 3a13a5ba767dc8264bc40b185e41368a80d5d5f945944d1dbaa4b2fb0099f4e5
  https://github.com/libjpeg-turbo/libjpeg-turbo/archive/refs/tags/3.1.3.tar.gz
  https://deb.debian.org/debian/pool/main/libj/libjpeg-turbo/libjpeg-turbo_3.1.3.orig.tar.gz
  https://snapshot.debian.org/file/b728173b706cb23f7f79148c16beb6c79d04eada
libpng-1.6.58 a9d4df463d36a6e5f9c29bd6f4967312d17e996c1854f3511f833924eb1993cf
  https://github.com/pnggroup/libpng/archive/refs/tags/v1.6.58.tar.gz
  https://deb.debian.org/debian/pool/main/libp/libpng1.6/libpng1.6_1.6.58.orig.tar.gz
  https://snapshot.debian.org/file/f5a36371029ba4ec1bae7dd02f30b131356facfd
libwebp-1.6.0 e4ab7009bf0629fd11982d4c2aa83964cf244cffba7347ecd39019a9e38c4564
  https://storage.googleapis.com/downloads.webmproject.org/releases/webp/libwebp-1.6.0.tar.gz
  https://deb.debian.org/debian/pool/main/libw/libwebp/libwebp_1.6.0.orig.tar.gz
  https://snapshot.debian.org/file/c65babfd749817e6d0f8233d653f8a85e4220b48
curl-8.21.0 d9b327997999045a24cda50f3983e69e51c516bd8be6ef9842fc7f99135e33bb
  https://curl.se/download/curl-8.21.0.tar.gz
  https://deb.debian.org/debian/pool/main/c/curl/curl_8.21.0.orig.tar.gz
  https://snapshot.debian.org/file/c4a973118684745cb03c38987d131ccbce9e7ab1
highway-1.3.0 07b3c1ba2c1096878a85a31a5b9b3757427af963b1141ca904db2f9f4afe0bc2
  https://github.com/google/highway/archive/refs/tags/1.3.0.tar.gz
  https://deb.debian.org/debian/pool/main/h/highway/highway_1.3.0.orig.tar.gz
  https://snapshot.debian.org/file/90f973e0d573a8ac0548420140cdd182097d6993
TABLE
}

listed() { sources | sed -e ':a' -e 'N' -e '$!ba' -e 's/\n  / /g'; } # a line for each

if [ "$prefix" = --list ]; then
  listed
  exit
fi
mkdir -p "$prefix" "${2:-$prefix/tarballs}"
prefix=$(cd "$prefix" && pwd)
tarballs=$(cd "${2:-$prefix/tarballs}" && pwd)
licenses=$(cd "$(dirname "$0")/../../packaging/licenses" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# A compiler that lacks an intrinsic would take it for a function, which is missed when the extension is loaded.
export CFLAGS="-fPIC -fvisibility=hidden -Werror=implicit-function-declaration ${CFLAGS:-}"

say() { printf '[libraries] %s\n' "$*"; }
die() { printf '[libraries] %s\n' "$*" >&2; exit 1; }
[ -n "${CMAKE_TOOLCHAIN_FILE:-}" ] || [ "$(uname -m)" != x86_64 ] || command -v nasm > /dev/null ||
  die "nasm is missing, which assembles libjpeg-turbo's kernels. Debian, Ubuntu: sudo apt-get install nasm"

is_right() { [ -f "$1" ] && [ "$(sha256sum < "$1")" = "$2  -" ]; } # file sha256

fetch() { # name sha256 url...
  local name=$1 sha256=$2 file=$tarballs/$1.tar.gz url
  shift 2
  is_right "$file" "$sha256" && return
  for url in "$@"; do
    say "fetching $url"
    curl -sSfL --retry 3 -o "$file" "$url" && is_right "$file" "$sha256" && return
    say "$url is not there, or is not the file with SHA-256 $sha256"
  done
  die "$name could not be fetched. Put it into $tarballs as $name.tar.gz."
}

# Unpacks NAME into $work/NAME; its licences must be those that wheels carry.
unpack() { # name "licence in it"...
  local name=$1 part=${1%-*} text
  mkdir "$work/$name"
  tar -xzf "$tarballs/$name.tar.gz" -C "$work/$name" --strip-components=1
  shift
  for text in "$@"; do
    cmp "$work/$name/$text" "$licenses/$part/$text" ||
      die "$name has another $text than packaging/licenses/$part: copy it there, read it and commit it."
  done
}

logged() { # command...
  "$@" > "$work/log" 2>&1 || { cat "$work/log" >&2; die "this failed: $*"; }
}

with_cmake() { # name option...
  local source=$work/$1
  shift
  logged cmake -S "$source" -B "$source/build" -DCMAKE_BUILD_TYPE=Release -DBUILD_SHARED_LIBS=OFF \
    -DCMAKE_INSTALL_PREFIX="$prefix" -DCMAKE_INSTALL_LIBDIR=lib -DCMAKE_PREFIX_PATH="$prefix" "$@"
  logged cmake --build "$source/build" --parallel "$(nproc)"
  logged cmake --install "$source/build"
}

library() { # what each of them is built with
  say "building $1"
  case $1 in
    zlib-*)
      unpack "$1" LICENSE
      (
        cd "$work/$1" # -O3 and what CMake gives to the others
        CFLAGS="-O3 -DNDEBUG $CFLAGS" logged ./configure --static --prefix="$prefix"
        logged make -j "$(nproc)" install
      )
      ;;
    libjpeg-turbo-*) # REQUIRE_SIMD: without nasm it would be built, and be slow
      unpack "$1" LICENSE.md README.ijg
      with_cmake "$1" -DENABLE_SHARED=OFF -DWITH_TURBOJPEG=OFF -DREQUIRE_SIMD=ON
      ;;
    libpng-*)
      unpack "$1" LICENSE
      with_cmake "$1" -DPNG_SHARED=OFF -DPNG_TESTS=OFF -DPNG_TOOLS=OFF
      ;;
    libwebp-*)
      unpack "$1" COPYING PATENTS
      with_cmake "$1" -DWEBP_BUILD_{ANIM_UTILS,CWEBP,DWEBP,GIF2WEBP,IMG2WEBP,VWEBP,WEBPINFO,LIBWEBPMUX,WEBPMUX,EXTRAS}=OFF
      ;;
    curl-*)
      unpack "$1"
      mkdir -p "$prefix/include"
      cp -r "$work/$1/include/curl" "$prefix/include/"
      ;;
    highway-*) # headers alone: what fastload takes of it is compiled with fastload
      unpack "$1" LICENSE LICENSE-BSD3
      mkdir -p "$prefix/include"
      (cd "$work/$1" && find hwy -name '*.h' ! -path '*/tests/*' ! -name '*_test*' -exec cp --parents -t "$prefix/include" {} +)
      ;;
    *) die "no rule for $1" ;;
  esac
}

while read -r -a row; do
  fetch "${row[@]}"
  library "${row[0]}" < /dev/null
done < <(listed)
say "$prefix has: $(cd "$prefix/lib" && echo ./*.a)"
