"""Scripts that are watched under torchrun: every rank watches, and one verdict compares them."""

from __future__ import annotations

import textwrap
from pathlib import Path

from doctor_runs import Compared, under_torchrun

HEAD = """
import os, time
import torch
from torch.utils.data import DataLoader, Dataset, DistributedSampler


class Data(Dataset):
    def __init__(self, names, seconds=0.0):
        self.names, self.seconds = names, seconds

    def __len__(self):
        return len(self.names)

    def __getitem__(self, index):
        time.sleep(self.seconds)
        return torch.zeros(4), index


torch.distributed.init_process_group("gloo")
rank = torch.distributed.get_rank()
names = [f"{number:06}.jpg" for number in range(4000)]
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 2))


def train(data, **options):
    loader = DataLoader(data, 4, sampler=DistributedSampler(data, **options))
    for epoch in range(100):
        for images, labels in loader:
            time.sleep(0.01)
            model(images).sum().backward()


"""


def compared(folder: Path, text: str) -> Compared:
    return under_torchrun(folder, HEAD + textwrap.dedent(text))


def test_ranks_that_are_alike_are_compared_and_nothing_is_found(tmp_path: Path) -> None:
    words, ranks, limit, text = compared(tmp_path, "train(Data(names))")
    assert "Nothing was heard" not in words
    assert [(each["rank"], each["world_size"]) for each in ranks] == [(0, 2), (1, 2)]
    assert [(each["replicas"], each["replica"]) for each in ranks] == [(2, 0), (2, 1)]
    assert {each["fingerprint"] for each in ranks} == {ranks[0]["fingerprint"]} != {None}
    for each in ranks:
        assert each["length"] == 4000
        assert each["epoch_batches"] == 500
        assert each["batches"] >= 5
        assert each["samples"] == 4 * each["batches"]
        assert each["sampler"] == "DistributedSampler"
        assert each["batch_bytes"] == 4 * (16 + 8)
    assert limit not in ("divided-twice", "mesh"), text


def test_a_slow_rank_is_named(tmp_path: Path) -> None:
    _, ranks, limit, text = compared(tmp_path, "train(Data(names, 0.02 * rank))")
    assert ranks[1]["wait"] >= 0.08
    assert limit == "uneven-ranks", text
    assert text.startswith("Rank 1 waits ")


def test_data_that_are_divided_twice(tmp_path: Path) -> None:
    _, ranks, limit, text = compared(tmp_path, "train(Data(names[rank::2]))")
    assert ranks[0]["fingerprint"] != ranks[1]["fingerprint"]
    assert limit == "divided-twice", text
    assert "DistributedSampler divides each by 2 again" in text


def test_data_that_are_divided_against_the_mesh(tmp_path: Path) -> None:
    _, ranks, limit, text = compared(
        tmp_path,
        """
        from torch.distributed.device_mesh import init_device_mesh
        mesh = init_device_mesh("cpu", (1, 2), mesh_dim_names=("dp", "tp"))
        train(Data(names))
        """,
    )
    meshes = [each["meshes"][0] for each in ranks]
    assert meshes[1] == {"names": ["dp", "tp"], "shape": [1, 2], "coordinate": [0, 1]}
    assert limit == "mesh", text
    assert 'num_replicas=1 and rank= the rank along mesh["dp"]: here 0 on rank 0, 0 on rank 1.' in text


def test_a_rank_that_says_nothing_is_named(tmp_path: Path) -> None:
    """It has other data than a DataLoader's."""
    words, ranks, _, _ = compared(
        tmp_path,
        """
        if rank == 0:
            train(Data(names))
        next(iter(DataLoader(Data(names), 4)))
        while True:
            model(torch.zeros(4, 4)).sum().backward()
        """,
    )
    assert words.endswith("Nothing was heard of rank 1.")
    assert [each["rank"] for each in ranks] == [0]
