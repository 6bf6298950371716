"""``fastload plan``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from object_server import ObjectServer

from fastload import PackedDataset
from fastload.cli import main

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


def test_blocks_are_fewer_requests(packed: PackedDataset, capsys: pytest.CaptureFixture[str]) -> None:
    exact = planned(capsys, str(packed.folder))["caches"]["no cache"]["epoch 1"]
    block = planned(capsys, str(packed.folder), "--shuffle", "block")["caches"]["no cache"]["epoch 1"]
    assert block["bytes"] == exact["bytes"]
    assert block["requests"] < exact["requests"]


def test_in_words(packed: PackedDataset, capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        main(["plan", str(packed.folder), "--rate", "1000000000", "--bandwidth", "1kB", "--epochs", "2"]) == 0
    )
    text = capsys.readouterr().out
    assert "no cache: steps wait for the link in epoch 1\n" in text
    assert "a cache on each node: steps wait for the link in epoch 1\n" in text
    assert main(["plan", str(packed.folder), "--rate", "0.001", "--epochs", "1"]) == 0
    assert "a cache that all nodes share: no step waits for the link" in capsys.readouterr().out


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
        (("--price-gb", "-1"), "must be a number, at least 0. Found: -1."),
    ],
)
def test_wrong_usage(
    packed: PackedDataset, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], words: str
) -> None:
    assert main(["plan", str(packed.folder), *arguments]) == 2
    assert words in capsys.readouterr().err
