#!/usr/bin/env bash
# Runs pytest from tests/ on the installed package: tools/pytest.sh NAME [pytest's arguments]. Called by the
# Makefile, which runs several at once on whatever machine there is. So up to five tests that fail are run
# once more, by themselves, after the others: one that fails again is an error. The first failure stays in the
# log, and is to be mended, in the test or in the package.
#   NAME  of the run; it remembers its failures in build/pytest/NAME
#   BIN   where pytest is (default: .venv/bin)
set -uo pipefail
cd "$(dirname "$0")/.."
root=$PWD
cd tests

name=${1:?usage: tools/pytest.sh NAME [pytest\'s arguments]}
shift
memory=$root/build/pytest/$name
most=5
run() { FASTLOAD_TEST_INSTALLED=1 "${BIN:-$root/.venv/bin}/pytest" -o cache_dir="$memory" "$@"; }

rm -rf "$memory"
run "$@"
status=$?
[ $status = 1 ] || exit $status
failed=$(grep -c '::' "$memory/v/cache/lastfailed" 2> /dev/null)
[ "${failed:-0}" -ge 1 ] && [ "$failed" -le $most ] || exit $status
printf '[pytest] %s: %d of the tests failed. Once more, by themselves:\n' "$name" "$failed"
run --last-failed --last-failed-no-failures none "$@"
