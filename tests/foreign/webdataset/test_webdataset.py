"""Tars that webdataset's own writers made, indexed in place: the samples that webdataset itself reads."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import webdataset
from pictures import jpegs

from fastload import DataLoader, PackedDataset, pack
from fastload.packing.foreign import index_files
from fastload.packing.verify import verify

COUNT = 30
# webdataset leaves the closing of its files to the garbage collector
pytestmark = [
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]


def samples() -> list[dict[str, Any]]:
    return [
        {
            "__key__": f"part {i % 2}/{i:06d}",
            "jpg": blob,
            "txt": f"caption {i}: café",
            "json": {"key": i, "width": 3, "words": ["a", None, 1.5]},
            "cls": i % 7,
        }
        for i, blob in enumerate(jpegs(COUNT))
    ]


def read(tars: list[Path]) -> list[dict[str, bytes]]:
    """As webdataset reads them, undecoded, in their order."""
    found = webdataset.WebDataset([str(tar) for tar in tars], shardshuffle=False)
    return [dict(sample) for sample in found]


@pytest.fixture
def tars(tmp_path: Path) -> list[Path]:
    pattern = str(tmp_path / "set-%04d.tar")
    with webdataset.ShardWriter(pattern, maxcount=12, verbose=0) as writer:
        for sample in samples():
            writer.write(sample)
    return sorted(tmp_path.glob("*.tar"))


def test_the_samples_are_webdatasets(tmp_path: Path, tars: list[Path]) -> None:
    manifest = index_files(tars, tmp_path / "out")
    assert (len(manifest.shards), manifest.skipped) == (3, 0)
    dataset, theirs = PackedDataset(tmp_path / "out"), read(tars)
    assert len(dataset) == len(theirs) == COUNT
    for i, sample in enumerate(theirs):
        assert dataset.key(i) == f"{sample['__key__']}.jpg"
        assert dataset.read(i) == sample["jpg"]
        found = dataset.sample(i)
        assert found["txt"] == sample["txt"].decode()
        assert found["json"] == json.loads(sample["json"])
        assert found["label"] == int(sample["cls"])
    assert verify(tmp_path / "out", decode=True) == ([], COUNT)


def test_batches(tmp_path: Path, tars: list[Path]) -> None:
    index_files(tars, tmp_path / "out")
    loader = DataLoader(tmp_path / "out", 7, fields=["txt"], cache="off")
    assert [text for batch in loader for text in batch["txt"]] == [
        sample["txt"].decode() for sample in read(tars)
    ]


def test_tars_of_one_writer_compressed(tmp_path: Path) -> None:
    path = tmp_path / "set.tar.gz"
    with webdataset.TarWriter(str(path)) as writer:
        for sample in samples():
            writer.write(sample)
    pack(path, tmp_path / "out", as_="wds", num_proc=1)
    dataset, theirs = PackedDataset(tmp_path / "out"), read([path])
    assert [dataset.read(i) for i in range(COUNT)] == [sample["jpg"] for sample in theirs]
    assert [dataset.sample(i)["txt"] for i in range(COUNT)] == [sample["txt"].decode() for sample in theirs]
