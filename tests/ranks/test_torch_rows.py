"""Whose rows a loader reads: torch's rule for what torch knows, ours for packed paths and mixes.

Some combinations of tests/ranks/row_table.py are drawn, in the long form (tests/reference/long_forms.py) all.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from launch import finish, forked, results, started
from long_forms import SEED, as_drawn, how_many
from pictures import encoded, picture
from plain_pack import plain_pack
from row_table import COUNT, rank_of_spawn


@pytest.fixture(scope="module")
def counted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A packed folder; sample i has label i."""
    blobs = [encoded(picture(i, 12, 10)) for i in range(COUNT)]
    folder = tmp_path_factory.mktemp("counted") / "set"
    return plain_pack(folder, blobs, range(COUNT), [f"{i:02d}" for i in range(COUNT)]).folder


@pytest.mark.parametrize(("world", "joins"), [(1, "group"), (2, "group"), (3, "group"), (2, "variables")])
def test_rows_are_torchs(counted: Path, tmp_path: Path, world: int, joins: str) -> None:
    share = how_many(0.12, 1.0)
    with started(forked("rows", world, counted, tmp_path, share, 100 * SEED + world, joins)) as process:
        finish(process)
    ranks = results(tmp_path, world)
    for found in ranks:
        assert found["looked at"] > how_many(20, 300)
        assert found["differences"] == [], as_drawn(found["differences"])
    everything = list(range(COUNT))
    for name in ranks[0]["own"]:
        shares = [found["own"][name] for found in ranks]
        if name == "path, sampler of torch's":
            assert shares == [everything] * world, name
        else:
            assert sorted(row for share in shares for row in share if row >= 0) == everything, name


def test_rows_are_torchs_under_spawn(counted: Path, tmp_path: Path) -> None:
    share, seed = how_many(0.06, 1.0), 100 * SEED + 7
    arguments = (str(tmp_path / "store"), str(counted), str(tmp_path / "found"), share, seed)
    torch.multiprocessing.spawn(rank_of_spawn, arguments, nprocs=2)  # from a module that children find
    for rank in range(2):
        looked_at, wrong = json.loads((tmp_path / f"found{rank}").read_text())
        assert looked_at > 10
        assert wrong == [], as_drawn(wrong)
