#!/usr/bin/env bash
# Runs tests with the oldest versions of the dependencies that pyproject.toml allows, or with the newest ones:
#   tests/versions/run.sh oldest|newest [ARGUMENT...]
# The environment is build/versions/NAME. It is made anew each time: the newest versions change. The tests are
# those that use a dependency's own functions: packing and reading each format, loaders, ranks over gloo,
# reports, the command line. Arguments are handed on to pytest.
#   PYTHON                  the interpreter (default: python3); numpy 1.24 exists for Python 3.10 and 3.11
#   FASTLOAD_WHEEL          a wheel for it (default: one is built of this checkout)
#   FASTLOAD_VERSIONS_ENVS  where environments are made (default: build/versions); with CUDA builds of torch, which
#                           come where PyTorch's own index is not reached, they take 8 GB
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
cd "$root"

TORCH_INDEX=https://download.pytorch.org/whl/cpu
TOOLS="pytest pytest-timeout hypothesis pillow psutil matplotlib shtab"
TESTS="golden shard contract/test_extras.py contract/test_package.py contract/test_loader.py contract/test_states.py
  pack/test_roundtrip.py pack/test_samples.py pack/test_field_shards.py pack/test_arrow_tables.py pack/test_foreign.py
  pack/test_unpack_fields.py pack/test_output.py pack/test_cli_words.py sample/test_collate.py sample/test_ragged.py
  ranks/test_torchrun.py transfer/test_pipeline.py transfer/test_convert.py transfer/test_trouble.py diagnose/test_loader_report.py
  diagnose/test_step_facts.py"

die() { printf '[versions] %s\n' "$@" >&2; exit 1; }

case ${1:-} in
  oldest) change='s/>=/==/' ;;
  newest) change='s/>=.*//' ;;
  *) die "usage: tests/versions/run.sh oldest|newest [ARGUMENT...]" ;;
esac
name=$1
shift

# The dependencies, one a line, each as wanted.
wanted() {
  local line
  line=$(sed -n 's/^dependencies = \[\(.*\)\]$/\1/p' pyproject.toml)
  [ -n "$line" ] || die "pyproject.toml has no line of dependencies."
  tr -d '" ' <<< "$line" | tr ',' '\n' | sed "$change"
}

venv=${FASTLOAD_VERSIONS_ENVS:-$root/build/versions}/$name
rm -rf "$venv"
"${PYTHON:-python3}" -m venv "$venv"
pip() { "$venv/bin/python" -m pip -q --disable-pip-version-check "$@"; }

index=()
if curl -sfI --max-time 9 "$TORCH_INDEX/torch/" > /dev/null; then index=(--extra-index-url "$TORCH_INDEX"); fi
mapfile -t requirements < <(wanted)
# shellcheck disable=SC2086 # words
pip install "${index[@]}" "${requirements[@]}" $TOOLS
pip install --no-deps "${FASTLOAD_WHEEL:-$root}"
"$venv/bin/python" -m pip check
"$venv/bin/python" - "${requirements[@]}" << 'EOF'
import platform, re, sys
from importlib.metadata import version

names = [re.split("==", line)[0] for line in sys.argv[1:]]
print("[versions] Python", platform.python_version(), *(f"{name} {version(name)}" for name in names))
EOF

cd tests # from here the installed package is imported
export FASTLOAD_TEST_INSTALLED=1
# shellcheck disable=SC2086 # words
exec "$venv/bin/python" -m pytest -q $TESTS "$@"
