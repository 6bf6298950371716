#!/usr/bin/env bash
# torchdata's test suites against fastload.DataLoader: tests/foreign/run.sh torchdata FOLDER [PYTEST ARGUMENT...]
# FOLDER has test_dataloader.py, test_state_dict.py and test_sampler.py of github.com/pytorch/data
# (test/stateful_dataloader, main of June 2025); they are not part of this project. SUITES="test_sampler": only these.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
folder=${1:-${TORCHDATA_TESTS:-}}
[ $# = 0 ] || shift
[ -f "$folder/test_dataloader.py" ] || {
  echo "usage: tests/foreign/run.sh torchdata FOLDER [PYTEST ARGUMENT...]"
  echo "FOLDER: test/stateful_dataloader of a checkout of https://github.com/pytorch/data"
  exit 1
} >&2
folder=$(cd "$folder" && pwd)
export PYTHONPATH=$here/in_place:$PYTHONPATH
cd "$folder"
suites=()
for name in ${SUITES:-test_sampler test_state_dict test_dataloader}; do suites+=("$folder/$name.py"); done
exec python -m pytest -p known_failures -c "$here/pytest.ini" --rootdir "$folder" -p no:cacheprovider "${suites[@]}" "$@"
