"""Packing the Hub's Parquet and Arrow files by ``hf://``."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from fake_hub import FakeHub
from hub_tables import CLASSES, arrow_bytes, parquet_bytes, table
from pictures import jpegs

from fastload.errors import PackError
from fastload.packing.options import PackOptions
from fastload.packing.packer import pack
from fastload.remote.http import RangeFile
from fastload.remote.opening import open_store
from fastload.shard.dataset import PackedFiles

URL = "hf://datasets/me/birds"
IMAGES = jpegs(40)


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeHub]:
    """A Hub with two splits, one in two files."""
    monkeypatch.setenv("HF_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("HF_TOKEN", raising=False)
    with FakeHub() as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        hub.push(
            {
                "README.md": b"#",
                "data/train-00000-of-00002.parquet": parquet_bytes(table(IMAGES[:15])),
                "data/train-00001-of-00002.parquet": parquet_bytes(table(IMAGES[15:30], 15)),
                "data/test-00000-of-00001.parquet": parquet_bytes(table(IMAGES[30:], 30)),
            }
        )
        yield hub


def assert_is(place: Path, first: int, stop: int) -> None:
    dataset = PackedFiles(place)
    assert dataset.classes == list(CLASSES)
    assert [dataset.read(i) for i in range(len(dataset))] == IMAGES[first:stop]
    assert dataset.labels.tolist() == [i % 3 for i in range(first, stop)]


def test_a_repository_is_packed_split_by_split(hub: FakeHub, tmp_path: Path) -> None:
    pack(URL, tmp_path / "set")
    assert_is(tmp_path / "set" / "train", 0, 30)
    assert_is(tmp_path / "set" / "test", 30, 40)
    assert hub.calls("/api/datasets/") == 2  # the commit, the listing
    assert hub.calls("/resolve/") == 3  # one a file
    assert all(result.was_complete for result in pack(URL, tmp_path / "set"))


def test_the_same_bytes_as_of_the_files_here(hub: FakeHub, tmp_path: Path) -> None:
    for name, data in hub.commits[hub.head].items():
        (tmp_path / "here" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "here" / name).write_bytes(data)
    here, there = pack(tmp_path / "here", tmp_path / "a" / "set"), pack(URL, tmp_path / "b" / "set")
    assert [result.manifest.id for result in here] == [result.manifest.id for result in there]


@pytest.mark.parametrize("place", ["data/train-*.parquet", "data/test-00000-of-00001.parquet"])
def test_some_files(hub: FakeHub, tmp_path: Path, place: str) -> None:
    pack(f"{URL}/{place}", tmp_path / "set")
    assert_is(tmp_path / "set", *((0, 30) if "train" in place else (30, 40)))


def test_arrow(hub: FakeHub, tmp_path: Path) -> None:
    hub.push({f"data-{i:05}-of-00002.arrow": arrow_bytes(table(IMAGES[i * 20 : i * 20 + 20], i * 20), i == 0)
              for i in range(2)})  # fmt: skip
    pack(URL, tmp_path / "set")
    assert_is(tmp_path / "set", 0, 40)


def test_a_pack_that_was_interrupted_goes_on(hub: FakeHub, tmp_path: Path) -> None:
    bad = {
        **hub.commits[hub.head],
        "data/train-00001-of-00002.parquet": parquet_bytes(table([b"no"] * 2, 15)),
    }
    commit = hub.push(bad)
    url = f"{URL}@{commit}/data/train-*.parquet"
    options = PackOptions(shard_size=20_000)
    with pytest.raises(PackError, match="2 samples cannot be packed:\n *bird15.jpg"):
        pack(url, tmp_path / "set", options)
    assert (
        pack(url, tmp_path / "set", PackOptions(shard_size=20_000, on_error="skip"))[0].manifest.skipped == 2
    )
    assert_is(tmp_path / "set", 0, 15)


def test_a_push_in_between_is_another_pack(hub: FakeHub, tmp_path: Path) -> None:
    pack(f"{URL}/data/test-*.parquet", tmp_path / "set")
    hub.push({**hub.commits[hub.head], "new": b"1"})
    with pytest.raises(PackError, match="holds a pack of other samples"):
        pack(f"{URL}/data/test-*.parquet", tmp_path / "set")


def test_paths_without_bytes_lead_nowhere(hub: FakeHub, tmp_path: Path) -> None:
    hub.push({"train.parquet": parquet_bytes(table([IMAGES[0], None]))})
    with pytest.raises(PackError, match="the table has a path and no bytes"):
        pack(URL, tmp_path / "set")


def test_what_is_not_there_is_said(hub: FakeHub, tmp_path: Path) -> None:
    for place, words in (("nothing", "has no .parquet or .arrow files"), ("x.parquet", "does not exist")):
        with pytest.raises(PackError, match=words):
            pack(f"{URL}/{place}", tmp_path / "set")


def test_a_set_of_the_hub_is_no_table(hub: FakeHub, tmp_path: Path) -> None:
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "a.jpg").write_bytes(IMAGES[0])
    pack(tmp_path / "source", tmp_path / "set")
    hub.push({f"packed/{path.name}": path.read_bytes() for path in (tmp_path / "set").iterdir()})
    pack(f"{URL}/packed", tmp_path / "again" / "set")
    assert PackedFiles(tmp_path / "again" / "set").read(0) == IMAGES[0]


def test_images_of_the_hub_are_a_source_as_well(hub: FakeHub, tmp_path: Path) -> None:
    hub.push({"crow/1.jpg": IMAGES[0], "jay/2.jpg": IMAGES[1]})
    pack(URL, tmp_path / "set")
    assert PackedFiles(tmp_path / "set").classes == ["crow", "jay"]


def test_a_file_of_ranges(hub: FakeHub) -> None:
    data = bytes(range(256)) * 400
    hub.push({"x": data})
    with RangeFile(open_store(URL), "x", len(data)) as file:
        assert b"".join(iter(lambda: file.read(1000), b"")) == data
        for offset, whence, at in ((17, 0, 17), (-5, 2, len(data) - 5), (-3, 1, len(data) - 6)):
            assert file.seek(offset, whence) == file.tell() == at
            assert file.read(2) == data[at : at + 2]
        assert file.seek(len(data) + 10) == len(data) + 10
        assert file.read(5) == b""
