#!/usr/bin/env bash
# Runs the tests of one foreign framework, or a foreign test suite, in an environment of its own:
#   tests/foreign/run.sh --list
#   tests/foreign/run.sh NAME [ARGUMENT...]       newest versions: tests/foreign/NAME/requirements.txt
#   tests/foreign/run.sh NAME@old [ARGUMENT...]   older ones: tests/foreign/NAME/requirements-old.txt
# The environment is build/foreign/NAME, made once and again when its requirements change. It has torch,
# pytest, and what the requirements say; what "make setup" has put into .venv is seen from there and not
# installed again, unless the requirements want another torch. fastload is this checkout's (the extension is
# built into fastload/ if it is not there), with FASTLOAD_TEST_INSTALLED=1 the one installed in .venv. Then pytest runs tests/foreign/NAME, or tests/foreign/NAME/suite.sh where there is one;
# arguments are handed on. tests/foreign/NAME/environment.sh, where there is one, sets variables before.
#   PYTHON                 the interpreter (default: that of .venv, else python3)
#   TORCH_VERSION          default: .venv's, else 2.13.0; a line "torch==..." in the requirements goes first
#   FASTLOAD_FOREIGN_ENVS  where environments are made (default: build/foreign)
set -euo pipefail
foreign=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$foreign/../.." && pwd)
cd "$root"

say() { printf '[foreign] %s\n' "$*"; }
die() { printf '[foreign] %s\n' "$@" >&2; exit 1; }

names() { # NAME, or NAME@VARIANT for requirements-VARIANT.txt
  local file name
  for file in "$foreign"/*/requirements*.txt; do
    name=$(basename "$(dirname "$file")")
    case $file in *-*.txt) name+=@$(basename "${file##*requirements-}" .txt) ;; esac
    echo "$name"
  done | sort
}

case ${1:-} in
  --list) names; exit ;;
  "" | -*) die "usage: tests/foreign/run.sh --list | NAME [ARGUMENT...]" ;;
esac
asked=$1
shift
name=${asked%@*}
variant=${asked#"$name"}
requirements=$foreign/$name/requirements${variant:+-${variant#@}}.txt
[ -f "$requirements" ] || die "There is no $asked. There are: $(names | tr '\n' ' ')"

no_deps=$foreign/$name/no-deps${variant:+-${variant#@}}.txt # what is installed without what it asks for
[ -f "$no_deps" ] || no_deps=$foreign/$name/no-deps.txt

venv=${FASTLOAD_FOREIGN_ENVS:-build/foreign}/$asked
[ -n "${PYTHON:-}" ] || { PYTHON=python3; [ ! -x .venv/bin/python ] || PYTHON=$root/.venv/bin/python; }
if [ -z "${TORCH_VERSION:-}" ]; then
  TORCH_VERSION=$(sed -n 's/^torch==\([0-9.]*\).*/\1/p' "$requirements" | head -n 1)
  [ -n "$TORCH_VERSION" ] || [ ! -f .venv/constraints.txt ] ||
    TORCH_VERSION=$(sed -n 's/^torch==\([0-9.]*\).*/\1/p' .venv/constraints.txt)
  TORCH_VERSION=${TORCH_VERSION:-2.13.0}
fi

pip() { "$venv/bin/python" -m pip -q --disable-pip-version-check "$@"; }

# .venv, if it has that torch: "make setup" and "make demo" made it.
shares() {
  [ -x .venv/bin/python ] && [ "$PYTHON" = "$root/.venv/bin/python" ] &&
    grep -q "^torch==$TORCH_VERSION\($\|+\)" .venv/constraints.txt 2> /dev/null
}

make_environment() {
  say "making $venv: torch $TORCH_VERSION and $(basename "$requirements")"
  rm -rf "$venv"
  if shares; then # pip, too
    "$PYTHON" -m venv --without-pip "$venv"
    local packages='import sysconfig; print(sysconfig.get_paths()["purelib"])'
    .venv/bin/python -c "$packages" > "$("$venv/bin/python" -c "$packages")/shared.pth"
    cp .venv/constraints.txt "$venv/constraints.txt"
  else
    "$PYTHON" -m venv "$venv"
    install_basics
  fi
  pip install -c "$venv/constraints.txt" -r "$requirements"
  [ ! -f "$no_deps" ] || pip install --no-deps -r "$no_deps"
  wanted > "$venv/made"
}

# The CPU build of torch first: the default one brings gigabytes of CUDA libraries.
install_basics() {
  pip install "torch==$TORCH_VERSION+cpu" 2> /dev/null ||
    pip install --extra-index-url https://download.pytorch.org/whl/cpu "torch==$TORCH_VERSION+cpu" ||
    pip install "torch==$TORCH_VERSION"
  "$venv/bin/python" -c 'import importlib.metadata as m; print("torch==" + m.version("torch"))' \
    > "$venv/constraints.txt"
  local own
  own=$("$venv/bin/python" -c 'import sys
if sys.version_info < (3, 11):
    sys.exit(print("numpy lmdb pyarrow h5py rich"))
import tomllib
print(*(repr(d).replace(" ", "") for d in tomllib.load(open("pyproject.toml", "rb"))["project"]["dependencies"]))')
  eval "pip install -c '$venv/constraints.txt' $own pytest pytest-timeout pillow numpy psutil pycocotools"
}

wanted() {
  echo "torch $TORCH_VERSION"
  cat "$requirements"
  [ ! -f "$no_deps" ] || cat "$no_deps"
}

[ "$(wanted)" = "$(cat "$venv/made" 2> /dev/null)" ] || make_environment
case $venv in /*) ;; *) venv=$root/$venv ;; esac
programs=$venv/bin
! shares || programs+=:$root/.venv/bin # DALI's and others' programs, which are not installed again either
export PATH=$programs:$PATH FASTLOAD_FOREIGN=$name
[ ! -f "$foreign/$name/environment.sh" ] || . "$foreign/$name/environment.sh"
if [ "${FASTLOAD_TEST_INSTALLED:-}" = 1 ]; then # from tests/: the source folder would hide the installed package
  shares || die "FASTLOAD_TEST_INSTALLED=1 needs .venv (make setup) with torch $TORCH_VERSION."
  cd tests
  exec python -m pytest "foreign/$name" "$@"
fi
suffix=$("$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_config_var("EXT_SUFFIX"))')
if [ ! -f "fastload/_C$suffix" ]; then
  say "building the extension into fastload/"
  pip install "nanobind>=2.4" "cmake>=3.20" ninja
  PYTHON=$venv/bin/python tools/build_inplace.sh
fi
export PYTHONPATH=$root${PYTHONPATH:+:$PYTHONPATH}
[ ! -f "$foreign/$name/suite.sh" ] || exec bash "$foreign/$name/suite.sh" "$@"
exec python -m pytest "tests/foreign/$name" "$@"
