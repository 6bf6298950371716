"""``fastload plan``."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from fault_server import FaultServer
from field_sets import RICH, rich_samples, write_field_set
from object_server import ObjectServer
from plain_pack import plain_pack

from fastload import DataLoader, PackedDataset, Ranks
from fastload import transforms as T
from fastload.cli import main
from fastload.sampler import (
    BlockOrder,
    BlockSampler,
    Partition,
    block_sampler,
    default_blocks,
    make_sampler,
)
from fastload.sampler.quality import measure

BUCKET = "plans"


def planned(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    assert main(["plan", *arguments, "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_of_a_folder(packed: PackedDataset, capsys: pytest.CaptureFixture[str]) -> None:
    size = packed.manifest.data_bytes
    found = planned(
        capsys, str(packed.folder), "--ranks", "4", "--nodes", "2", "--epochs", "3", "--price-requests", "2",
        "--price-gb", "5", "--batch-size", "8",
    )  # fmt: skip
    first = found["caches"]["no cache"]["epoch 1"]
    assert (first["bytes"], first["requests"], first["hits"]) == (size, len(packed), 0)
    assert first["dollars"] == pytest.approx(len(packed) / 1000 * 2 + size / 1e9 * 5)
    assert found["caches"]["no cache"]["all 3"]["bytes"] == 3 * size
    # Two nodes: each has read half of the set before the second epoch, and three quarters before the third.
    node = found["caches"]["a cache on each node"]
    assert [node[f"epoch {n}"]["hits"] for n in (1, 2, 3)] == pytest.approx([0, 1 / 2, 3 / 4])
    assert node["all 3"]["bytes"] == pytest.approx(size * (1 + 1 / 2 + 1 / 4))
    assert found["caches"]["a cache that all nodes share"]["epoch 2"]["bytes"] == 0
    assert found["job"]["batch"] == 16
    assert found["memory_bytes"] > 8 * 3 * 224 * 224 * 4


def test_blocks_of_nodes(packed: PackedDataset, capsys: pytest.CaptureFixture[str]) -> None:
    """Each node has read its part after one epoch, and finds as much of it as its cache holds."""
    size, folder = packed.manifest.data_bytes, str(packed.folder)
    job = (folder, "--ranks", "4", "--nodes", "4", "--epochs", "3", "--shuffle", "block", "--block", "2")
    name = "a cache on each node, Block(nodes=4)"
    found = planned(capsys, *job)
    assert [found["caches"][name][f"epoch {n}"]["hits"] for n in (1, 2)] == [0, 1]
    assert found["caches"][name]["all 3"]["bytes"] == size
    half = planned(capsys, *job, "--cache", f"{size // 8}B")["caches"]
    assert half[name]["epoch 2"]["hits"] == pytest.approx(1 / 2, abs=0.01)
    assert half[name]["all 3"]["bytes"] < half["a cache on each node"]["all 3"]["bytes"]
    n, partition = len(packed), Partition(min(4 * 256, len(packed)))
    shape = default_blocks(n, packed.manifest.read_bytes, 2, None, 4)
    sticky = block_sampler(n, 0, shape, 4, partition)
    assert found["orders"]["Block(nodes=4)"] == asdict(measure(sticky, packed.labels))
    assert list(found["orders"]) == ["uniform", "block", "Block(nodes=4)", "none"]
    assert name not in planned(capsys, folder, "--shuffle", "block")["caches"]
    exact = planned(capsys, folder, "--ranks", "4", "--nodes", "4")["caches"]
    assert exact[name]["epoch 2"]["bytes"] == 0
    assert exact[name]["epoch 1"]["requests"] < exact["a cache on each node"]["epoch 1"]["requests"]


def test_blocks_are_fewer_requests(packed: PackedDataset, capsys: pytest.CaptureFixture[str]) -> None:
    exact = planned(capsys, str(packed.folder))["caches"]["no cache"]["epoch 1"]
    block = planned(capsys, str(packed.folder), "--shuffle", "block")["caches"]["no cache"]["epoch 1"]
    assert block["bytes"] == exact["bytes"]
    assert block["requests"] < exact["requests"]


def test_a_block_shuffle_says_how_well_it_mixes(
    packed: PackedDataset, capsys: pytest.CaptureFixture[str]
) -> None:
    order = ("--shuffle", "block", "--block", "2", "--window", "9")
    found = planned(capsys, str(packed.folder), *order, "--batch-size", "4", "--ranks", "2", "--seed", "5")
    assert (found["block"], found["window"], found["shuffle"]) == (2, 10, "block")
    n, partition = len(packed), Partition(8)
    block = BlockSampler(BlockOrder(n, 5, 2, 10), partition)
    uniform = make_sampler(n, partition, shuffle=True, seed=5)
    assert found["orders"]["block"] == asdict(measure(block, packed.labels))
    assert found["orders"]["uniform"] == asdict(measure(uniform, packed.labels))
    assert found["orders"]["none"]["distance"] == 0
    assert "orders" not in planned(capsys, str(packed.folder))
    assert main(["plan", str(packed.folder), *order]) == 0
    text = capsys.readouterr().out
    assert "blocks of 2 records (" in text
    assert "uniform: " in text
    assert "% with their neighbour, distance 0.000\n" in text


def test_all_records_of_a_sample_count(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = write_field_set(tmp_path / "fields", RICH, rich_samples(40))
    found = planned(capsys, str(folder))
    assert found["job"]["data_bytes"] == (folder / "records.bin").stat().st_size
    assert found["memory_bytes"] is None  # outlines are as many as there are
    assert main(["plan", str(folder)]) == 0
    assert "not known in advance: Batches differ in size" in capsys.readouterr().out


def test_memory_is_that_of_the_jobs_own_loader(
    packed: PackedDataset, capsys: pytest.CaptureFixture[str]
) -> None:
    given = {"transform": T.Compose([T.RandomResizedCrop(224), T.Normalize((0.5,) * 3, (0.5,) * 3)])}
    for shuffle, word in ((True, "exact"), ("block", "block")):
        found = planned(capsys, str(packed.folder), "--ranks", "2", "--batch-size", "8", "--shuffle", word)
        with DataLoader(packed, 8, shuffle, cache=None, ranks=Ranks(1, 2), **given) as loader:
            assert found["memory_bytes"] == loader.memory_plan()["total"]


def test_epochs_move_what_was_planned(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ten epochs after the first, because loaders read ahead; records too large to be read with a gap.

    Bytes within 30%, because at a loader's end some are on their way; requests no more than so, and fewer
    where neighbours are wanted at the same time.
    """
    blobs = [bytes([number]) * (3 * 300 * 300) for number in range(40)]
    folder = plain_pack(tmp_path / "large", blobs, [0] * 40, raw_size=(300, 300)).folder
    first = planned(capsys, str(folder))["caches"]["no cache"]["epoch 1"]
    monkeypatch.setenv("FASTLOAD_SETS_DIR", str(tmp_path / "sets"))

    def moved(epochs: int) -> tuple[int, int]:
        with FaultServer(folder=tmp_path) as server:
            given = {"cache": None, "transform": T.Resize((32, 32)), "seed": 0}
            with DataLoader(f"{server.url}/large", 8, True, **given) as loader:
                for _ in range(epochs):
                    assert len(list(loader)) == 5
            asked = [one.headers["range"] for one in server.requests if one.path.endswith("data.bin")]
        ends = [tuple(map(int, text.removeprefix("bytes=").split("-"))) for text in asked]
        return sum(end - begin + 1 for begin, end in ends), len(ends)

    few, many = moved(1), moved(11)
    assert (many[0] - few[0]) / 10 == pytest.approx(first["bytes"], rel=0.3)
    assert 0.3 * first["requests"] < (many[1] - few[1]) / 10 < 1.3 * first["requests"]


def test_in_words(packed: PackedDataset, capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        main(["plan", str(packed.folder), "--rate", "1000000000", "--bandwidth", "1kB", "--epochs", "2"]) == 0
    )
    text = capsys.readouterr().out
    assert "no cache: steps wait for the network in epoch 1\n" in text
    assert "a cache on each node: steps wait for the network in epoch 1\n" in text
    assert main(["plan", str(packed.folder), "--rate", "0.001", "--epochs", "1"]) == 0
    assert "a cache that all nodes share: no step waits for the network" in capsys.readouterr().out


def test_of_a_set_in_a_store(
    object_server: ObjectServer,
    packed: PackedDataset,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    for name, value in {**object_server.environment, "FASTLOAD_SETS_DIR": str(tmp_path)}.items():
        monkeypatch.setenv(name, value)
    files = [path for path in packed.folder.rglob("*") if path.is_file()]
    names = {f"set/{path.relative_to(packed.folder).as_posix()}": path.read_bytes() for path in files}
    object_server.make_bucket(BUCKET, names)
    here, there = planned(capsys, str(packed.folder)), planned(capsys, f"s3://{BUCKET}/set")
    # Both are taken for stores with TLS.
    assert here.pop("first_batch_seconds") == pytest.approx(there.pop("first_batch_seconds"))
    assert here == there


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (
            ("--ranks", "3", "--nodes", "2"),
            "--ranks must be a multiple of --nodes. Found: 3 ranks on 2 nodes.",
        ),
        (("--cache", "many"), "A size is a number and a unit"),
        (("--latency", "0"), "must be more than 0. Found: 0."),
        (
            ("--seed", "1", "--window", "2"),
            "--window, --seed only says how --shuffle block mixes. Add --shuffle",
        ),
        (
            ("--shuffle", "block", "--block", "3", "--window", "2"),
            "fastload plan: Block.size must be at least 1 and Block.window at least",
        ),
        (("--price-gb", "-1"), "must be a number, at least 0. Found: -1."),
    ],
)
def test_wrong_usage(
    packed: PackedDataset, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], words: str
) -> None:
    assert main(["plan", str(packed.folder), *arguments]) == 2
    assert words in capsys.readouterr().err
