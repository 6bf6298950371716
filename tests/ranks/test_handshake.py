"""The ranks compare their loaders at the first batch: differences in words, on all ranks, and no hang."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from growing_sets import Grown
from launch import finish, forked, results, started
from pictures import encoded, picture
from plain_pack import plain_pack

from fastload import DataLoader
from fastload import transforms as T
from fastload.loader.compared import compared
from fastload.ranks.world import World


def test_equal_loaders_go_on_and_different_ones_fail_on_every_rank(numbered: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(numbered, tmp_path / "elsewhere" / "copy")
    other = plain_pack(tmp_path / "other", [encoded(picture(99, 24, 20))] * 53, range(53)).folder
    with started(forked("handshakes", 3, numbered, copy, other, tmp_path)) as process:
        finish(process)
    ranks = results(tmp_path, 3)
    for found in ranks:
        assert found["equal"] == found["copy"] == found["named"] == found["afterwards"] == ""
        assert "fields is image, label on ranks 0-1 and image on rank 2" in found["fields"]
        assert "made in programs.py, first_batch differ: dataset is " in found["dataset"]
        assert "seed is 0 on ranks 0-1 and 5 on rank 2; order (a hash) is " in found["seed"]
        assert "differ: order (a hash) is " in found["order"]
        assert "on rank 2. Give all ranks the same data, options" in found["order"]
        assert "batch_size is 2 on ranks 0-1 and 3 on rank 2" in found["batch_size"]
        assert "transform's geometry is (random_resized_crop(8, 8, " in found["transform"]
        assert "samples is 9 on ranks 0-1 and 10 on rank 2" in found["torch"]
        assert "position is 0 on ranks 0-1 and 6 on rank 2" in found["state"]
        assert found["sum"] == 3
        assert found == ranks[0]


class Cut:
    """A callable without a repr, as most are."""

    def __call__(self, image: Any) -> Any:
        return image


@pytest.mark.parametrize(
    "transform",
    [
        lambda: T.Compose([T.CenterCrop(8), Cut()]),
        lambda: {"a": T.Compose([T.CenterCrop(8), Cut()]), "b": T.CenterCrop(8)},
        lambda: T.ByEpoch({0: T.Compose([T.CenterCrop(8), Cut()]), 3: T.Compose([T.CenterCrop(8), Cut()])}),
        lambda: T.Compose([T.CenterCrop(8), T.ImageOnly(Cut())]),
    ],
    ids=["chain", "views", "epochs", "image only"],
)
def test_callables_of_two_processes_are_equal_by_their_names(
    numbered: Path, transform: Callable[[], Any]
) -> None:
    described = []
    for _ in range(2):
        loader = DataLoader(numbered, batch_size=2, transform=transform())
        arranged = loader._loader_plan
        parts = loader.dataset, len(loader.dataset), loader.sampler.core, arranged.plan, arranged.options
        described.append(compared(*parts, arranged.order, World(), 0))
        loader.close()
    assert described[0] == described[1]
    assert "Cut" in str(described[0])


@pytest.mark.parametrize("policy", ["warn", "raise", "off"])
def test_a_rank_that_never_comes_is_named(numbered: Path, tmp_path: Path, policy: str) -> None:
    with started(forked("absent", 3, numbered, tmp_path, policy)) as process:
        finish(process)
    text = "rank 2 did not come to the first batch of the loader made in programs.py, first_batch"
    for found in results(tmp_path, 2):
        if policy == "warn":
            assert found["error"] == ""
            assert any(text in warning and "ranks=" in warning for warning in found["warnings"])
        else:
            assert not any("first batch" in warning for warning in found["warnings"])
            assert (text in found["error"]) == (policy == "raise")


def test_a_rank_that_comes_late_is_still_compared(numbered: Path, tmp_path: Path) -> None:
    with started(forked("late", 2, numbered, tmp_path)) as process:
        finish(process)
    for error in results(tmp_path, 2):
        assert "seed is 0 on rank 0 and 1 on rank 1" in error


def test_the_stores_host_dies(numbered: Path, tmp_path: Path) -> None:
    """The others need not wait for any timeout."""
    with started(forked("orphaned", 2, numbered, tmp_path)) as process:
        finish(process)
    error = json.loads((tmp_path / "rank1.json").read_text())
    assert "could not be compared: the process group's store failed" in error


def test_a_process_group_may_be_a_part_of_the_ranks(numbered: Path, tmp_path: Path) -> None:
    with started(forked("groups", 4, numbered, tmp_path)) as process:
        finish(process)
    ranks = results(tmp_path, 4)
    assert ranks[0]["labels"] == ranks[1]["labels"]
    assert ranks[2]["labels"] == ranks[3]["labels"]
    both = [label for rank in (0, 2) for batch in ranks[rank]["labels"] for label in batch]
    assert set(both) == set(range(53))
    assert all("does not include this process" in rank["refused"] for rank in ranks)
    assert ranks[1]["alone"] == 18


def test_a_rank_that_takes_a_newer_generation_in_alone(tmp_path: Path) -> None:
    """Its epochs after this one would have other samples, and another number of batches."""
    grown = Grown.begun(tmp_path / "set", 12)
    with DataLoader(grown.folder, 2, shuffle=True, seed=3, num_workers=1) as loader:
        next(iter(loader))
        state = loader.state_dict()
    grown.append(8)
    (grown.folder / "state.json").write_text(json.dumps(state))
    with started(forked("migrated_by_one", 2, grown.folder, tmp_path)) as process:
        finish(process)
    for told in results(tmp_path, 2):
        assert re.search(r"generations of later epochs is [0-9a-f]{32} from epoch 1 on on rank 0 and", told)
