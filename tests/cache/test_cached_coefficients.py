"""``fastload.Cache(format=...)``: coefficient records in the node cache, in place of JPEGs."""

from __future__ import annotations

import io
import json
import logging
import pickle
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from cache_folder import cache_of
from epochs import all_batches, same
from odd_files import ODD_FILES
from PIL import Image
from plain_pack import plain_pack

import fastload.cache.files
import fastload.cache.folder
import fastload.cache.opening
from fastload import DataLoader, PackedDataset, mix
from fastload import transforms as T
from fastload._native import _C
from fastload.cache.layout import ENTRY, HEADER
from fastload.cache.tiers import place_bytes
from fastload.cli import main

CROP = T.Compose([T.RandomResizedCrop(24), T.RandomHorizontalFlip()])
COUNT = 40


def photo(seed: int, width: int, height: int, **options: Any) -> bytes:
    """A JPEG with some detail."""
    small = np.random.default_rng(seed).integers(0, 256, (9, 12, 3), np.uint8)
    picture = Image.fromarray(small).resize((width, height), Image.Resampling.BICUBIC)
    file = io.BytesIO()
    picture.save(file, "JPEG", **{"quality": 90, **options})
    return file.getvalue()


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """JPEGs of several samplings and sizes, with entry points."""
    folder = tmp_path_factory.mktemp("photos")
    for i in range(COUNT):
        file = folder / "files" / "a" / f"{i:03}.jpg"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(photo(i, 120 + 7 * i, 100 + 5 * i, subsampling=i % 3))
    fastload.pack(folder / "files", folder / "set", entries=32)
    assert PackedDataset(folder / "set").entries is not None
    return folder / "set"


@pytest.fixture(scope="module")
def odd(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Pictures of all codecs, JPEGs of all kinds."""
    blobs = list(ODD_FILES.values()) * 4
    return plain_pack(tmp_path_factory.mktemp("odd"), blobs).folder


def loader(data: Any, cache: Any, kept: Any = "coefficients", **options: Any) -> DataLoader:
    settings = {"batch_size": 8, "shuffle": True, "seed": 1, "num_workers": 2, "transform": CROP}
    return DataLoader(data, cache=cache_of(cache, format=kept), **{**settings, **options})


def epochs(made: DataLoader, count: int = 3) -> tuple[list[Any], dict[str, Any]]:
    with made:
        batches = [batch for _ in range(count) for batch in all_batches(made)]
    return batches, made.stats()["cache"]


def fill(data: Any, cache: Any, **options: Any) -> dict[str, Any]:
    """Epochs until all that has room is there."""
    with loader(data, cache, **options) as made:
        for _ in range(50):
            all_batches(made)
            stats = made.stats()["cache"]
            if stats["ready_records"] == stats["room_records"]:
                return dict(stats)
    raise AssertionError(stats)


def _folder(root: Path) -> Any:
    return fastload.cache.folder.PrivateFolder(root).__enter__()


def table(path: str) -> Any:
    """The entries of a cache file (FORMAT.md), to be looked at and written to."""
    header = np.fromfile(path, HEADER, 1)[0]
    at, count = int(header["table_offset"]), int(header["num_records"])
    return np.memmap(path, ENTRY, "r+", at, (count,))


@pytest.mark.parametrize("limit", [None, "part"])
def test_batches_are_those_without_a_cache(root: Path, photos: Path, limit: str | None) -> None:
    """In the first epoch, and from coefficients; by this loader, a later one, and one that keeps JPEGs."""
    cache = root if limit is None else f"{int(0.7 * PackedDataset(photos).manifest.data_bytes) + 20000}B"
    expected, off = epochs(loader(photos, "off", "jpeg"))
    assert "format" not in off
    for count in range(2):
        found, stats = epochs(loader(photos, cache))
        assert same(found, expected)
        assert stats["tier"] == stats["format"] == "coefficients"
        assert stats["hits"] > 0
        assert (stats["room_records"] == COUNT) == (limit is None)
        assert stats["damaged"] == stats["failed"] == 0
        fill(photos, cache)
        assert count == 0 or (stats["stored"] == 0 and stats["ready_records"] == stats["room_records"])
    found, stats = epochs(loader(photos, root, "jpeg"))
    assert same(found, expected)
    assert stats["tier"] == "encoded"
    assert stats["hits"] >= 2 * COUNT


def test_what_is_kept_are_coefficients(root: Path, photos: Path) -> None:
    stats = fill(photos, root)
    assert stats["transcoded"] == stats["stored"] == COUNT
    assert stats["as_they_are"] == 0
    assert stats["in_spare_time"] + stats["at_once"] >= COUNT
    assert stats["transcode_seconds"] > 0
    file = fastload.cache.files.attach(_folder(root), Path(stats["paths"][0]).name, write=False)
    records = PackedDataset(photos)
    for sample in range(COUNT):
        jpeg = np.frombuffer(records.read(sample), np.uint8)
        assert file.find(sample) == _C.to_coefficients(jpeg, "fast")
    with loader(photos, root) as made:
        all_batches(made)
        stats = made.stats()
        assert stats["cache"]["hits"] >= COUNT
        assert stats["decoded"]["coefficients"] >= COUNT
        assert stats["decoded"]["jpeg"] == 0


def test_what_is_no_jpeg_is_kept_as_it_is(root: Path, odd: Path) -> None:
    expected, _ = epochs(loader(odd, "off", "jpeg"))
    stats = fill(odd, root)
    assert stats["as_they_are"] > 0
    assert stats["transcoded"] > 0
    assert stats["transcoded"] + stats["as_they_are"] == stats["stored"] == stats["room_records"]
    found, stats = epochs(loader(odd, root))
    assert same(found, expected)
    assert stats["stored"] == 0


def test_damage_in_memory_is_found(root: Path, photos: Path) -> None:
    """Bytes, lengths and another record's bytes: none is believed, and the record is made anew."""
    expected, _ = epochs(loader(photos, "off", "jpeg"))
    path = fill(photos, root)["paths"][0]
    entries, data = table(path), np.memmap(path, np.uint8, "r+")
    for sample in (0, 7):
        data[int(entries["offset"][sample]) + 100] ^= 1
    entries["stored"][11] -= 1
    entries["stored"][12] = entries["length"][12] + 1
    entries["stored"][13] = 0
    small, large = sorted((20, 21), key=lambda sample: int(entries["stored"][sample]))
    source, target = (int(entries["offset"][sample]) for sample in (small, large))
    size = int(entries["stored"][small])
    data[target : target + size] = data[source : source + size]
    entries["stored"][large], entries["crc32c"][large] = size, entries["crc32c"][small]
    found, stats = epochs(loader(photos, root))
    assert same(found, expected)
    assert stats["damaged"] == 6
    fill(photos, root)
    found, stats = epochs(loader(photos, root))
    assert same(found, expected)
    assert stats["damaged"] == stats["stored"] == 0


def test_records_that_do_not_fit_their_places_stay_jpegs(
    root: Path, photos: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fastload.cache.tiers.place_bytes", lambda records: records["length"].copy())
    expected, _ = epochs(loader(photos, "off", "jpeg"))
    stats = fill(photos, root)
    assert stats["as_they_are"] > 0
    assert stats["transcoded"] + stats["as_they_are"] == COUNT
    found, stats = epochs(loader(photos, root))
    assert same(found, expected)
    assert stats["stored"] == stats["damaged"] == 0


def test_room_is_an_eighth_more_than_a_jpeg(odd: Path) -> None:
    records = PackedDataset(odd).records
    jpeg = records["codec"] == _C.CODECS["jpeg"][0]
    assert jpeg.any()
    assert not jpeg.all()
    places, lengths = place_bytes(records).astype(int), records["length"].astype(int)
    assert (places[jpeg] == lengths[jpeg] * 9 // 8 + 768).all()
    assert (places[~jpeg] == lengths[~jpeg]).all()


def test_mixes_and_pickling(root: Path, photos: Path, odd: Path) -> None:
    expected, _ = epochs(loader(mix([photos, odd]), "off", "jpeg"))
    found, stats = epochs(pickle.loads(pickle.dumps(loader(mix([photos, odd]), root))))
    assert same(found, expected)
    assert len(stats["paths"]) == 2
    made = loader(mix([photos, odd]), root)
    plan = made.memory_plan()["cache_bytes"]
    assert stats["bytes"] <= plan <= stats["bytes"] * 1.2
    made = loader(mix([photos, odd]), root)
    assert made.memory_plan()["waiting_bytes"] == 32 << 20
    plain = loader(mix([photos, odd]), root, "jpeg").memory_plan()
    assert "waiting_bytes" not in plain
    assert made.memory_plan()["total"] == plain["total"] + (32 << 20)


def test_two_loaders_at_once(root: Path, photos: Path) -> None:
    """Each has files and threads of its own; what one has made the other finds."""
    expected, _ = epochs(loader(photos, "off", "jpeg"), 1)
    with loader(photos, root) as first, loader(photos, root) as second:
        for _ in range(20):
            pairs = list(zip(first, second, strict=True))
            one, other = ([pair[i] for pair in pairs] for i in (0, 1))
            assert same(one, other)
            first.set_epoch(0)
            second.set_epoch(0)
            stats = second.stats()["cache"]
            if stats["ready_records"] == COUNT:
                break
    assert same(one, expected)
    assert stats["ready_records"] == COUNT
    assert stats["stored"] + first.stats()["cache"]["stored"] == COUNT


def test_samples_of_different_sizes_are_kept_too(root: Path, photos: Path) -> None:
    transform = T.Compose([T.Resize(30), T.ToDtype("uint8"), lambda image: image.float().mean(dim=(1, 2))])
    expected, _ = epochs(loader(photos, "off", "jpeg", transform=transform))
    found, stats = epochs(loader(photos, root, transform=transform))
    assert same(found, expected)
    assert stats["format"] == "coefficients"
    assert stats["ready_records"] == COUNT


def test_without_room_the_jpegs_that_are_there_are_used(
    root: Path, photos: Path, caplog: pytest.LogCaptureFixture
) -> None:
    epochs(loader(photos, root, "jpeg"), 1)
    expected, _ = epochs(loader(photos, "off", "jpeg"))
    small = pytest.MonkeyPatch()
    with small.context() as patch, caplog.at_level(logging.INFO, "fastload"):
        room = fastload.cache.policy.Room(0, 0, 0, "a limit", "Raise it")
        patch.setattr("fastload.cache.opening.find_room", lambda *_, **__: room)
        found, stats = epochs(loader(photos, "auto"))
    assert same(found, expected)
    assert stats["format"] == "jpeg"
    assert "a limit leaves" in stats["format_reason"]
    assert stats["tier"] == "encoded"
    assert stats["hits"] >= 3 * COUNT
    assert "format='coefficients') keeps jpeg: " in caplog.text


def test_warm_fills_what_loaders_use(root: Path, photos: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["warm", str(photos), "--coefficients", "--json"]) == 0
    [facts] = json.loads(capsys.readouterr().out)["sets"]
    assert facts["put_records"] == COUNT
    assert facts["path"].endswith("-coefficients-1.flc")
    expected, _ = epochs(loader(photos, "off", "jpeg"))
    found, stats = epochs(loader(photos, "auto"))
    assert same(found, expected)
    assert stats["stored"] == stats["misses"] == 0
    assert main(["warm", str(photos), "--coefficients", "--json", "--to", str(root)]) == 0
    [facts] = json.loads(capsys.readouterr().out)["sets"]
    assert (facts["put_records"], facts["there_records"]) == (0, COUNT)
    found, stats = epochs(loader(photos, "auto", "auto"))
    assert same(found, expected)
    assert stats["format"] == "coefficients"
    assert stats["format_reason"] == "they are there already"
    assert stats["misses"] == 0
    assert main(["cache", "ls"]) == 0
    assert "coefficients" in capsys.readouterr().out


@pytest.mark.parametrize("other", [["--page-cache"], ["--decoded", "48"]])
def test_warm_refuses_both(photos: Path, other: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["warm", str(photos), "--coefficients", *other]) == 2
    assert "exclude each other" in capsys.readouterr().err


def test_records_that_are_in_memory_are_not_read_again(root: Path, photos: Path, tmp_path: Path) -> None:
    """Coefficients are made of them: the shards may be damaged."""
    copy = tmp_path / "set"
    shutil.copytree(photos, copy)
    expected, _ = epochs(loader(copy, root, "jpeg"))
    for shard in PackedDataset(copy).manifest.shards:
        (copy / shard.file).write_bytes(bytes(shard.size))
    stats = fill(copy, "20MB")
    assert stats["transcoded"] == COUNT
    found, stats = epochs(loader(copy, "20MB"))
    assert same(found, expected)
    assert stats["misses"] == 0


@pytest.mark.parametrize(
    "transform", [T.Mosaic(48), T.Views({"one": CROP, "two": CROP})], ids=["mosaic", "views"]
)
def test_samples_of_several_pictures_and_views(root: Path, photos: Path, transform: Any) -> None:
    def delivered(made: DataLoader) -> tuple[list[Any], dict[str, Any]]:
        found = []
        with made:
            for _ in range(3):
                for batch in made:
                    named = batch.items() if isinstance(batch, dict) else enumerate(batch)
                    found += [(str(name), value.clone()) for name, value in named]
        return found, made.stats()["cache"]

    options = {"transform": transform, "batch_size": 8}
    wanted, _ = delivered(loader(photos, "off", "jpeg", **options))
    for _ in range(2):
        found, stats = delivered(loader(photos, root, **options))
        assert len(found) == len(wanted) > 0
        assert all(a[0] == b[0] and torch.equal(a[1], b[1]) for a, b in zip(found, wanted, strict=True))
        assert stats["hits"] > 0
        fill(photos, root)


def test_a_bounded_number_of_bytes_waits(root: Path, tmp_path: Path) -> None:
    """What exceeds it is transcoded at once, by the thread that has decoded it."""
    noise = np.random.default_rng(0).integers(0, 256, (700, 900, 3), np.uint8)
    file = io.BytesIO()
    Image.fromarray(noise).save(file, "JPEG", quality=98, subsampling=0)
    blobs = [file.getvalue() + bytes(1 + i) for i in range(48)]
    assert sum(map(len, blobs)) > 40 << 20
    data = plain_pack(tmp_path / "set", blobs).folder
    with loader(data, root, batch_size=2, num_workers=1) as made:
        for _ in made:
            assert made.stats()["cache"]["waiting_bytes"] <= 32 << 20
        stats = made.stats()["cache"]
    assert stats["at_once"] > 0
    assert stats["at_once"] + stats["in_spare_time"] + stats["waiting_records"] >= 46


def test_sets_of_coefficients_are_kept_as_they_are(root: Path, photos: Path, tmp_path: Path) -> None:
    """Packed so: there is nothing to transcode, and "auto" sees that."""
    fastload.pack(PackedDataset(photos).folder.parent / "files", tmp_path / "set", coefficients="small")
    expected, _ = epochs(loader(photos, "off", "jpeg"))
    stats = fill(tmp_path / "set", root)
    assert (stats["transcoded"], stats["as_they_are"]) == (0, COUNT)
    found, stats = epochs(loader(tmp_path / "set", root))
    assert same(found, expected)
    assert stats["misses"] == 0
