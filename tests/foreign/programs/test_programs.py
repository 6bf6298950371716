"""Programs of others, with fastload.DataLoader in torch's place: each rank gets the rows that torch gave it.

``suite.sh`` says where their code is, which nobody but its user fetches.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from foreign_jobs import run_to_end
from pictures import encoded, picture
from plain_pack import plain_pack
from programs import PROGRAMS, RANKS

# Neither is a multiple of the ranks' batches. deit's RASampler needs 256; 266 are 2 ranks of 7 batches of 19.
COUNTS = {"train": 266, "val": 31}
LIMIT = 140  # seconds; a run takes 10 to 40


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Packed sets; sample i has label i."""
    folder = tmp_path_factory.mktemp("data")
    for split, count in COUNTS.items():
        blobs = [encoded(picture(i, 48, 40)) for i in range(count)]
        plain_pack(folder / split, blobs, range(count), [f"{i:03d}" for i in range(count)])
    return folder


def shown(loaders: list[dict[str, Any]]) -> list[Any]:
    """What must be equal: each loader's length, the batches' sizes, and their rows.

    In order, unless the order comes from torch's generator: then the rows of each epoch.
    """
    found = []
    for loader in loaders:
        length, batches = loader["len"], loader["batches"]
        if loader["sampler"] == "SubsetRandomSampler":
            ends = range(0, len(batches), length)
            rows = [sorted(row for batch in batches[i : i + length] for row in batch) for i in ends]
        else:
            rows = batches
        found.append([length, [len(batch) for batch in batches], rows])
    return found


@pytest.mark.parametrize("name", list(PROGRAMS))
def test_rows_are_torchs(name: str, data: Path, tmp_path: Path) -> None:
    program, folder = PROGRAMS[name], Path(os.environ["FASTLOAD_PROGRAMS"])
    if program.missing(folder):
        require = os.environ.get("FASTLOAD_REQUIRE_PROGRAMS") == "1"
        (pytest.fail if require else pytest.skip)(program.missing(folder))
    job, found = Path(__file__).with_name("job.py"), {}
    for loader in ("torch", "fastload"):
        out = tmp_path / loader
        out.mkdir()
        folders = map(str, (program.checkout(folder), data, out))
        run_to_end([sys.executable, str(job), name, loader, *folders], LIMIT)
        found[loader] = [json.loads((out / f"rank{rank}.json").read_text()) for rank in range(RANKS)]
    for theirs, ours in zip(found["torch"], found["fastload"], strict=True):
        assert theirs
        assert shown(ours) == shown(theirs)
    assert any(row for batch in found["torch"][0][-1]["batches"] for row in batch)
    by_engine = [loader["engine"] for ours in found["fastload"] for loader in ours]
    assert any(by_engine) == (name != "split_dataset_by_node")
