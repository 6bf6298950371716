"""The decoded tier's cache file: batches are the same whatever is in it, and whatever has room."""

from __future__ import annotations

import multiprocessing
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cache_folder import OpenFolder
from decoded_engine import EPOCHS, epochs_of, make_cache, put_epochs
from odd_files import ODD_FILES, odd_file
from plain_engine import plain_engine
from plain_pack import plain_pack
from process import HANG

from fastload import PackedDataset
from fastload._native import _C
from fastload.cache.files import attach, inspect
from fastload.cache.layout import ENTRY
from fastload.cache.tiers import decoded

SIDES = (48, "full")


@pytest.fixture(scope="module")
def odd(tmp_path_factory: pytest.TempPathFactory) -> PackedDataset:
    """The odd files, six times."""
    blobs = list(ODD_FILES.values()) * 6
    return plain_pack(tmp_path_factory.mktemp("odd"), blobs, range(len(blobs)))


def known(dataset: PackedDataset) -> Any:
    return np.flatnonzero(dataset.records["width"] > 0)


def same(found: Any, expected: Any) -> bool:
    return all(np.array_equal(a, b) for a, b in zip(found, expected, strict=True))


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("share", [1.0, 0.6, 0.1])
def test_room_changes_nothing(odd: PackedDataset, tmp_path: Path, side: Any, share: float) -> None:
    expected, faults, _ = epochs_of(odd, side)
    assert faults == []
    folder = make_cache(tmp_path, odd, side, share)
    info = inspect(folder, "x")
    assert 0 < info.room_bytes <= share * info.set_bytes + 1
    for count in range(2):  # the second time everything that has room is there
        found, faults, counts = epochs_of(odd, side, folder)
        assert faults == []
        assert same(found, expected)
        assert counts["ready_records"] == info.room_records
        assert counts["stored"] == (info.room_records if count == 0 else 0)
        assert counts["hits"] == (EPOCHS - 1 + count) * info.room_records
        assert counts["hits"] + counts["misses"] == EPOCHS * len(odd)
        assert counts["damaged"] == counts["failed"] == 0


def test_what_is_stored_are_the_pixels(tmp_path: Path) -> None:
    """By a decode and a resize one after the other."""
    data = plain_pack(tmp_path / "data", [odd_file(90, 60), odd_file(30, 47, "PNG")])
    folder = make_cache(tmp_path, data, 48)
    epochs_of(data, 48, folder)
    cache = attach(folder, "x")
    decoder = _C.Decoder()
    large = decoder.decode_rgb(np.frombuffer(data.read(0), np.uint8))
    scaled = _C.resize(large, ((0, 0, 90, 60), (48, 32), (0, 0, 48, 32), False))
    assert cache.find(0) == scaled.tobytes()
    assert cache.find(1) == decoder.decode_rgb(np.frombuffer(data.read(1), np.uint8)).tobytes()


def test_sizes_that_the_index_does_not_know_have_no_room(tmp_path: Path) -> None:
    blobs = list(ODD_FILES.values())
    unknown = plain_pack(tmp_path / "unknown", blobs, probe=False)
    assert not decoded(unknown, 48).lengths.any()
    half = plain_pack(tmp_path / "half", blobs)
    assert {int(n) for n in np.flatnonzero(decoded(half, 48).lengths == 0)} == {
        i for i in range(len(blobs)) if half.records["width"][i] == 0
    }
    assert same(epochs_of(unknown, 48)[0][:1], epochs_of(half, 48)[0][:1])


def table_entry(folder: OpenFolder, sample: int) -> tuple[int, Any]:
    """Where a sample's entry lies in the file, and the entry."""
    data = np.memmap(folder.path / "x", np.uint8, "r")
    at = int(data[32:40].view("<u8")[0]) + sample * ENTRY.itemsize
    return at, data[at : at + ENTRY.itemsize].view(ENTRY)[0].copy()


def scribble(folder: OpenFolder, offset: int, data: bytes) -> None:
    with open(folder.path / "x", "r+b") as file:
        os.pwrite(file.fileno(), data, offset)


@pytest.mark.parametrize("side", SIDES)
def test_damaged_pixels_are_made_anew(odd: PackedDataset, tmp_path: Path, side: Any) -> None:
    expected = epochs_of(odd, side)[0]
    folder = make_cache(tmp_path, odd, side)
    epochs_of(odd, side, folder)
    bad = known(odd)[::5]
    for sample in bad.tolist():
        _, entry = table_entry(folder, sample)
        scribble(folder, int(entry["offset"]) + 100, bytes(20))
    found, faults, counts = epochs_of(odd, side, folder)
    assert faults == []
    assert same(found, expected)
    assert counts["damaged"] == counts["stored"] == len(bad)
    assert epochs_of(odd, side, folder)[2]["damaged"] == 0


def test_a_size_that_is_not_the_pictures_is_not_believed(odd: PackedDataset, tmp_path: Path) -> None:
    """A table sealed with other sizes, such as an index that was replaced would give."""
    expected = epochs_of(odd, 48)[0]
    folder = make_cache(tmp_path, odd, 48)
    epochs_of(odd, 48, folder)
    at, entry = table_entry(folder, 0)
    entry["width"], entry["height"] = entry["height"], entry["width"]
    sealed = np.array([entry]).view(np.uint8).reshape(1, ENTRY.itemsize)
    _C.seal_cache_places(sealed, 0)
    scribble(folder, at, sealed.tobytes())
    found, _, counts = epochs_of(odd, 48, folder)
    assert same(found, expected)
    assert counts["damaged"] == 1
    assert counts["stored"] == 0


def test_what_does_not_decode_is_not_stored(tmp_path: Path) -> None:
    cut = odd_file(200, 150, "PNG")[:-9000]
    data = plain_pack(tmp_path / "data", [odd_file(100, 80), cut])
    for side in (48, "full", 200):
        root = tmp_path / str(side)
        root.mkdir()
        folder = make_cache(root, data, side)
        expected = epochs_of(data, side)
        for _ in range(2):
            found, faults, counts = epochs_of(data, side, folder)
            assert same(found, expected[0])
            assert faults == expected[1]
            assert counts["ready_records"] == 1
    assert epochs_of(data, 200)[1] == epochs_of(data, None)[1]


def test_max_pixels_holds_for_what_is_ready(tmp_path: Path) -> None:
    data = plain_pack(tmp_path / "data", [odd_file(100, 100), odd_file(40, 40)])
    folder = make_cache(tmp_path, data, 32)
    epochs_of(data, 32, folder)
    for cache in (None, folder):
        _, faults, _ = epochs_of(data, 32, cache, max_pixels=5000)
        assert [sample for sample, _ in faults] == [0] * EPOCHS
        assert "at most 5000" in faults[0][1]


def test_a_file_of_another_tier_is_refused(odd: PackedDataset, tmp_path: Path) -> None:
    folder = make_cache(tmp_path, odd, 48)
    with pytest.raises(ValueError, match="must be of the tier decoded-64 .* Found: decoded-48 with 102"):
        epochs_of(odd, 64, folder)
    with pytest.raises(ValueError, match="Each source needs a pixel cache"):
        plain_engine(odd.sources, 4, 4, max_pixels=100, decoded_side=48, pixels=[None, None])


def test_a_file_that_may_only_be_read(odd: PackedDataset, tmp_path: Path) -> None:
    """Ready pictures are used, nothing is stored."""
    folder = make_cache(tmp_path, odd, 48)
    some = known(odd)[:20]
    epochs_of(odd, 48, folder, some)
    expected = epochs_of(odd, 48)[0]
    found, faults, counts = epochs_of(odd, 48, folder, write=False)
    assert faults == []
    assert same(found, expected)
    assert counts["hits"] == EPOCHS * 20
    assert counts["stored"] == 0


def test_several_processes_at_once(odd: PackedDataset, tmp_path: Path) -> None:
    """They fill and use one file at the same time; each gets the same batches."""
    (images, _), _, _ = epochs_of(odd, 48)
    folder = make_cache(tmp_path, odd, 48, 0.8)
    context = multiprocessing.get_context("spawn")
    results = context.Queue()
    arguments = [(odd.folder, tmp_path, start, results) for start in (0, 0, 30)]
    processes = [context.Process(target=put_epochs, args=given) for given in arguments]
    for process in processes:
        process.start()
    found = [results.get(timeout=HANG) for _ in processes]
    for process in processes:
        process.join()
    for _, pixels, faults, damaged in found:
        assert pixels == images.tobytes()
        assert faults == []
        assert damaged == 0
    assert inspect(folder, "x").ready_records == inspect(folder, "x").room_records
