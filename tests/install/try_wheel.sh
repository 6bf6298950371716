#!/usr/bin/env bash
# From "pip install" to the first batch, with a clock, on a bare Debian: no compiler, no headers, no image libraries.
#   tests/install/try_wheel.sh FOLDER [PYTHON [ROOT]]
# FOLDER has wheels of fastload, of which pip takes the one that fits PYTHON (python3). ROOT is the folder of a Debian
# (debootstrap), which is entered by chroot; without it the system is this one, a container. torch is installed before
# the clock starts. pip is set up by its own variables (PIP_FIND_LINKS, PIP_EXTRA_INDEX_URL, ...); TORCH=torch==2.13.0
# names another version; with TORCH=none, where there is no build of it to be had, the set is packed and its pictures
# are decoded, but no batch is made. Fails where that comes later than 60 seconds after the command; MOST=900 for a
# machine that is busy.
set -euo pipefail

folder=$(cd "${1:?usage: tests/install/try_wheel.sh FOLDER [PYTHON [ROOT]]}" && pwd)
python=${2:-python3}
here=$(cd "$(dirname "$0")" && pwd)
most=${MOST:-60}

say() { printf '[install] %s\n' "$*"; }
die() { printf '[install] %s\n' "$*" >&2; exit 1; }

if [ -n "${3:-}" ]; then
  inside=$(mktemp -d "$3/tmp/fastload-install-XXXXXX")
  trap 'rm -rf "$inside"' EXIT
  cp "$folder"/fastload-*.whl "$here/try_wheel.sh" "$here/first_batch.py" "$inside/"
  chroot "$3" /usr/bin/env HOME=/tmp "/tmp/${inside##*/}/try_wheel.sh" "/tmp/${inside##*/}" "$python"
  exit
fi

check_bare() {
  local program
  for program in cc gcc g++ clang; do
    ! command -v $program > /dev/null || die "This is no bare system: it has $program."
  done
  ! ls /usr/include/jpeglib.h /usr/include/png.h /usr/lib/*/libjpeg.so* > /dev/null 2>&1 ||
    die "This is no bare system: it has libjpeg or headers."
}

seconds() { awk -v from="$1" 'BEGIN { getline now < "/proc/uptime"; split(now, word); printf "%.1f", word[1] - from }'; }
uptime_now() { cut -d' ' -f1 /proc/uptime; }

check_bare
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
"$python" -m venv venv
pip() { venv/bin/python -m pip --disable-pip-version-check -q "$@"; }
torch=${TORCH:-torch}
[ "$torch" = none ] || pip install "$torch"
pip download --no-index --no-deps --find-links "$folder" -d chosen fastload
wheel=$(echo chosen/*.whl)

start=$(uptime_now)
if [ "$torch" = none ]; then
  pip install --no-deps "$wheel"
  venv/bin/python -c 'import importlib.metadata as m; print(*(r for r in m.requires("fastload") if ";" not in r and "torch" not in r), sep="\n")' > needed.txt
  pip install -r needed.txt
else
  pip install "$wheel"
fi
installed=$(seconds "$start")
venv/bin/fastload --version
venv/bin/python "$here/first_batch.py" pictures
venv/bin/fastload pack pictures packed --format arrow > pack.log || { cat pack.log; exit 1; }
then="first batch"
if [ "$torch" = none ]; then
  venv/bin/fastload verify packed --decode > verify.log || { cat verify.log; exit 1; }
  then="packed and decoded without torch"
else
  venv/bin/python "$here/first_batch.py" batch packed
fi
total=$(seconds "$start")

. /etc/os-release
say "$PRETTY_NAME, $(venv/bin/python --version), ${wheel##*/}: installed in $installed s, $then after $total s"
awk -v total="$total" -v most=$most 'BEGIN { exit !(total <= most) }' || die "The first batch took more than $most s."
