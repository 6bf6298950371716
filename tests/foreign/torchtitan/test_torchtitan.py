"""torchtitan's data loader class and checkpointer over our loader, also at another number of ranks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from foreign_jobs import run_to_end, torchrun
from numbered_set import ROWS, make_numbered_set
from torch.distributed.checkpoint.stateful import Stateful
from torchtitan.components.dataloader import BaseDataLoader, ParallelAwareDataloader

from fastload import DataLoader, Ranks

JOB = Path(__file__).with_name("job.py")


def read(folder: Path, step: int, world: int) -> list[dict[str, Any]]:
    return [json.loads((folder / f"{step}-rank{rank}.json").read_text()) for rank in range(world)]


def test_another_degree_of_data_parallelism(tmp_path: Path) -> None:
    """2 ranks, 3 and 1 after each other: the epochs' samples once each."""
    make_numbered_set(tmp_path / "set")
    seen, step = [], 0
    for world, steps in ((2, 4), (3, 5), (1, 8)):
        run_to_end([*torchrun(world), str(JOB), str(tmp_path / "set"), str(tmp_path), str(steps)])
        step += steps
        found = read(tmp_path, step, world)
        assert [one["step"] for one in found] == [step] * world
        assert all(one["loader"] == found[0]["loader"] for one in found)
        batches = zip(*(one["labels"] for one in found), strict=True)
        seen += [label for ranks in batches for batch in ranks for label in batch]
    assert len(seen) == 4 * 4 + 5 * 6 + 2 * 2 + 1 + 5 * 2 == ROWS + 10
    assert sorted(seen[:ROWS]) == list(range(ROWS))
    assert len(set(seen[ROWS:])) == 10


def test_a_loader_is_one_of_torchtitans(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(JOB.parent)
    from packed_pictures import PackedPictures

    make_numbered_set(tmp_path / "set")
    loader = PackedPictures.Config(dataset_path=str(tmp_path / "set")).build(
        dp_world_size=1, dp_rank=0, local_batch_size=4
    )
    assert isinstance(loader, (BaseDataLoader, DataLoader, Stateful))
    inputs, labels = next(iter(loader))
    assert inputs["input"].shape == (4, 3, 16, 16)
    assert labels.shape == (4,)
    plain = DataLoader(tmp_path / "set", batch_size=4, ranks=Ranks(0, 1))
    assert isinstance(plain, Stateful)


@pytest.mark.filterwarnings("ignore:'set_vital' is deprecated")  # of torch's, by torchdata
def test_torchtitans_own_refuses_another_degree() -> None:
    """Why the page says so: this fails when it has learnt it."""
    own = ParallelAwareDataloader([], dp_rank=0, dp_world_size=2)
    with pytest.raises(AssertionError, match="resharding is not supported"):
        own.load_state_dict({"dp_rank_0": b"", "world_size": 3})
