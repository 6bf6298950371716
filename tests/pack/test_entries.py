"""entries.fli: made, used, checked; damaged or foreign ones never change a pixel."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from epochs import all_batches, same
from pictures import encoded, picture
from plain_pack import plain_pack

from fastload import DataLoader, PackedDataset
from fastload import transforms as T
from fastload._native import _C
from fastload.cli import main
from fastload.errors import ChecksumError
from fastload.packing.entries import build_entries, parse_spacing, wrong_entries
from fastload.packing.verify import verify
from fastload.shard.index import DATA_OFFSET

TRAIN = T.Compose([T.RandomResizedCrop(48), T.RandomHorizontalFlip()])


@pytest.fixture
def dataset(tmp_path: Path) -> PackedDataset:
    """Baseline JPEGs of 120 to 400 pixels; sample 5 is progressive, 6 a PNG, 7 cut short."""
    blobs = [
        encoded(picture(i, 120 + 23 * i, 400 - 19 * i), subsampling=i % 3, quality=90) for i in range(12)
    ]
    blobs[5] = encoded(picture(5, 100, 100), progressive=True)
    blobs[6] = encoded(picture(6, 100, 100), "PNG")
    blobs[7] = blobs[7][: len(blobs[7]) // 2]
    return plain_pack(tmp_path / "set", blobs, range(12))


def batches(folder: Path) -> list[object]:
    return all_batches(DataLoader(folder, 4, True, num_workers=2, transform=TRAIN, on_error="skip", seed=0))


@pytest.mark.parametrize("spacing", [0, 16, 64, 500])
@pytest.mark.parametrize("threads", [1, 3])
def test_pixels_are_the_same_with_entries(dataset: PackedDataset, spacing: int, threads: int) -> None:
    before = batches(dataset.folder)
    report = build_entries(dataset, spacing, threads)
    assert (report.records, report.with_entries, report.spacing) == (12, 9, spacing)
    opened = PackedDataset(dataset.folder)
    assert opened.entries.spacing == spacing
    assert sum(len(opened.entries.get(i)) for i in range(12)) == report.entry_bytes > 0
    assert [i for i in range(12) if not opened.entries.get(i)] == [5, 6, 7]
    assert same(batches(dataset.folder), before)
    assert list(wrong_entries(opened, threads)) == []
    assert sorted(path.name for path in dataset.folder.iterdir()) == [
        "data.bin",
        "dataset.json",
        "entries.fli",
        "index.fli",
    ]


def test_entries_equal_the_single_file_reference(dataset: PackedDataset) -> None:
    build_entries(dataset, 32, 2)
    entries = PackedDataset(dataset.folder).entries
    for i in range(12):
        alone = _C.jpeg_build_entries(np.frombuffer(dataset.read(i), np.uint8), 32) if i != 6 else b""
        assert entries.get(i) == bytes(alone)


def test_entries_of_another_dataset_are_left_out(dataset: PackedDataset, tmp_path: Path) -> None:
    build_entries(dataset, 64, 1)
    other = plain_pack(tmp_path / "other", [dataset.read(i) for i in range(11)], range(11))
    shutil.copy(dataset.folder / "entries.fli", other.folder)
    with pytest.warns(UserWarning, match=r"entry points of another dataset .*fastload index .* --entries"):
        assert PackedDataset(other.folder).entries is None


@pytest.mark.parametrize("left", [0, 100, 4096, 0.5, -1], ids=str)
def test_a_cut_file_of_entry_points_stops_nothing(
    dataset: PackedDataset, left: float, capsys: pytest.CaptureFixture[str]
) -> None:
    before = batches(dataset.folder)
    build_entries(dataset, 32, 1)
    path = dataset.folder / "entries.fli"
    size = path.stat().st_size
    os.truncate(path, int(size * left) if isinstance(left, float) else left % size)
    with pytest.warns(
        UserWarning, match=r"entry points are left out: .*fastload index .* --entries'"
    ) as caught:
        assert same(batches(dataset.folder), before)
    assert len([w for w in caught if "entry points" in str(w.message)]) == 1  # said once
    assert main(["info", str(dataset.folder)]) == 0
    assert "entry points  damaged" in capsys.readouterr().out
    [problem], _ = verify(dataset.folder)
    assert problem.shard == "entries.fli"
    assert f"'fastload index {dataset.folder} --entries' makes it anew" in problem.reason
    assert main(["index", str(dataset.folder), "--entries"]) == 0
    assert PackedDataset(dataset.folder).entries.spacing == 64
    assert verify(dataset.folder) == ([], 12)


def test_damaged_pages_are_counted_and_change_no_pixel(dataset: PackedDataset) -> None:
    before = batches(dataset.folder)
    build_entries(dataset, 16, 1)
    path = dataset.folder / "entries.fli"
    content = bytearray(path.read_bytes())
    content[DATA_OFFSET + 700] ^= 1
    path.write_bytes(content)
    assert same(batches(dataset.folder), before)
    opened = PackedDataset(dataset.folder)
    assert opened.entries.damaged == 0
    loader = DataLoader(opened, 4, transform=TRAIN, on_error="skip", seed=0)
    all_batches(loader)
    # The next epoch's first batches are being decoded.
    assert 12 <= loader.stats()["entries_damaged"] <= opened.entries.damaged
    with pytest.raises(ChecksumError):
        list(wrong_entries(opened, 1))


def test_wrong_entries_with_valid_checksums_change_no_pixel(dataset: PackedDataset) -> None:
    """Each image gets its neighbour's entry points: found by decoding, which then goes on without."""
    before = batches(dataset.folder)
    build_entries(dataset, 32, 1)
    opened = PackedDataset(dataset.folder)
    parts = [opened.entries.get((i + 1) % 12) for i in range(12)]
    lengths = [np.array([len(part) for part in parts], np.uint64)]
    from fastload.shard.index import write_paged

    path = dataset.folder / "entries.fli"
    write_paged(path, b"FLENTRY1", (), lengths, parts, 32, dataset.index.digest)
    assert same(batches(dataset.folder), before)
    assert list(wrong_entries(PackedDataset(dataset.folder), 2)) == [
        i for i in range(12) if parts[i] or i in (4, 11)
    ]


@pytest.mark.parametrize(("text", "spacing"), [("none", None), ("row", 0), ("64", 64), ("8", 8)])
def test_spacing(text: str, spacing: int | None) -> None:
    assert parse_spacing(text) == spacing


@pytest.mark.parametrize("text", ["", "7", "65536", "-1", "64px", "rows"])
def test_wrong_spacing(text: str) -> None:
    with pytest.raises(ValueError, match="none, row or 8 to 65535 pixels. Found: "):
        parse_spacing(text)
