#!/usr/bin/env bash
# Training programs of others over fastload.DataLoader, beside torch's: tests/foreign/run.sh programs FOLDER [PYTEST ARGUMENT...]
# FOLDER has checkouts, each under its repository's name; they are not part of this project. A program whose checkout
# is missing is skipped, with FASTLOAD_REQUIRE_PROGRAMS=1 it fails. The files of test_trainings.py lie in
# FOLDER/pinned/REPOSITORY, at the commits of files.txt; those that lack come from GitHub.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
folder=${1:-${FASTLOAD_PROGRAMS:-}}
[ $# = 0 ] || shift
export PYTHONPATH=$here:$here/../../reference:$PYTHONPATH
[ -d "$folder" ] || {
  echo "usage: tests/foreign/run.sh programs FOLDER [PYTEST ARGUMENT...]"
  echo "FOLDER: an existing folder. With -k originals it may be empty: what lacks is fetched into it. The other tests"
  echo "take checkouts there, as these commands make them; one that is missing is skipped:"
  python "$here/programs.py" "${folder:-FOLDER}"
  exit 1
} >&2
FASTLOAD_PROGRAMS=$(cd "$folder" && pwd)
export FASTLOAD_PROGRAMS
exec python -m pytest "$here" "$@"
