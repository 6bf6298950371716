"""Large pictures in a store: the parts that a crop needs are fetched alone, and nothing else differs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from cache_folder import memory_folder
from fault_server import Fault, FaultServer, Rule
from pictures import encoded
from PIL import Image
from plain_pack import plain_pack

from fastload import Boxes, Cache, DataLoader, PackedDataset, pack
from fastload import transforms as T
from fastload._native import _C
from fastload.errors import SampleError
from fastload.packing.entries import build_entries, wrong_entries
from fastload.sample.fields import Image as FieldImage

SMALL_CROPS = T.Compose([T.RandomResizedCrop(48, scale=(0.01, 0.3)), T.RandomHorizontalFlip()])
Batches = list[tuple[npt.NDArray[Any], npt.NDArray[Any]]]


def noise(seed: int, width: int, height: int, channels: int = 3) -> Image.Image:
    """Pixels of which a JPEG needs about two bytes each."""
    shape = (height, width, channels) if channels == 3 else (height, width)
    return Image.fromarray(np.random.default_rng(seed).integers(0, 256, shape, np.uint8))


def large_jpegs() -> list[bytes]:
    """Of all kinds that are read in parts (0 to 5), and of those that are not (6 to 10)."""
    exif = b"Exif\0\0" + bytes(60_000)
    return [
        encoded(noise(0, 1100, 900), quality=97, subsampling=2),
        encoded(noise(1, 900, 1300), quality=97, subsampling=1),
        encoded(noise(2, 803, 701), quality=97, subsampling=0),
        encoded(noise(3, 1601, 1003, 1), quality=97),
        encoded(noise(4, 1000, 1200), quality=97, subsampling=2, exif=exif),
        encoded(noise(5, 640, 3000), quality=97, subsampling=2),
        encoded(noise(6, 1000, 900), quality=97, progressive=True),
        encoded(noise(7, 1000, 900), quality=97, restart_marker_rows=1),
        encoded(noise(8, 200, 100), quality=97),
        encoded(noise(9, 500, 500), "PNG"),
        encoded(noise(10, 1000, 900), quality=97)[:-50_000],
    ]


PARTS = 6  # of them are read in parts


@pytest.fixture(scope="module")
def pictures() -> list[bytes]:
    return large_jpegs()


@pytest.fixture
def large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pictures: list[bytes]) -> PackedDataset:
    monkeypatch.setenv("FASTLOAD_SETS_DIR", str(tmp_path / "sets"))
    dataset = plain_pack(tmp_path / "set", pictures, range(len(pictures)))
    build_entries(dataset, 64, 2)
    return PackedDataset(dataset.folder)


def objects_of(folder: Path) -> dict[str, bytes]:
    return {f"/a/{path.name}": path.read_bytes() for path in folder.iterdir()}


@pytest.fixture
def memory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    with memory_folder(tmp_path) as folder:
        if not _C.file_system(str(folder.path))["in_memory"]:
            pytest.skip("no file system in memory has room")
        monkeypatch.setenv("FASTLOAD_CACHE_DIR", str(folder.path))
        yield


@pytest.fixture
def server(large: PackedDataset) -> Iterator[FaultServer]:
    with FaultServer(objects_of(large.folder)) as server:
        yield server


def epochs(source: Any, count: int, **options: Any) -> tuple[Batches, dict[str, Any]]:
    given = {"transform": SMALL_CROPS, "shuffle": True, "seed": 3, "num_workers": 2, "on_error": "skip"}
    with DataLoader(source, 4, **(given | options)) as loader:
        found = [
            (images.numpy().copy(), labels.numpy().copy()) for _ in range(count) for images, labels in loader
        ]
        return found, loader.stats()


def same(one: Batches, other: Batches) -> bool:
    assert len(one) == len(other) > 0
    return all(
        np.array_equal(a, c) and np.array_equal(b, d) for (a, b), (c, d) in zip(one, other, strict=True)
    )


def test_what_is_stored_of_parts(large: PackedDataset, pictures: list[bytes]) -> None:
    """The reference: one CRC after the other."""
    entries, size = large.entries, _C.PART_BYTES
    assert entries.part_bytes == size
    for sample, data in enumerate(pictures):
        stored = entries.get_parts(sample)
        assert bool(stored) == (sample < PARTS)
        if not stored:
            continue
        scan = data.index(b"\xff\xda", 2 if sample != 4 else 60_000)
        begin = scan + 2 + int.from_bytes(data[scan + 2 : scan + 4], "big")
        sampling = {0: (16, 16, 3), 1: (16, 8, 3), 2: (8, 8, 3), 3: (8, 8, 1)}.get(sample, (16, 16, 3))
        checksums = [
            _C.crc32c(np.frombuffer(data[at : at + size], np.uint8)) for at in range(0, len(data), size)
        ]
        assert stored == b"".join(
            [begin.to_bytes(4, "little"), bytes([*sampling, 0])]
            + [each.to_bytes(4, "little") for each in checksums]
        )
    assert list(wrong_entries(large, 2)) == []


@pytest.mark.parametrize("spacing", [0, 16, 64, 500])
@pytest.mark.parametrize("shuffle", [True, False, "block"])
def test_pixels_are_those_of_whole_records(large: PackedDataset, spacing: int, shuffle: bool | str) -> None:
    build_entries(large, spacing, 2)
    wanted, local = epochs(large.folder, 6, shuffle=shuffle)
    assert local["read_ahead"]["parts"] == 0
    with FaultServer(objects_of(large.folder)) as server:
        found, stats = epochs(f"{server.url}/a", 6, shuffle=shuffle)
    assert same(found, wanted)
    read = stats["read_ahead"]
    assert read["parts"] >= 20
    assert read["part_bytes"] < 0.7 * read["parts_of"]
    assert read["parts_whole"] == 0
    assert stats["faults"] == local["faults"]


@pytest.mark.parametrize(
    "chain",
    [
        T.Compose([T.Resize(64), T.CenterCrop(64)]),
        T.RandomResizedCrop(40, scale=(0.9, 1.0)),
        T.RandomCrop(64),
        T.Compose([T.RandomGrayscale(p=1.0), T.RandomResizedCrop(40, scale=(0.01, 0.1))]),
        T.Compose([T.RandomRotation(20), T.RandomResizedCrop(40, scale=(0.01, 0.1))]),
    ],
)
def test_other_chains(large: PackedDataset, server: FaultServer, chain: Callable[..., Any]) -> None:
    wanted, _ = epochs(large.folder, 2, transform=chain)
    found, _ = epochs(f"{server.url}/a", 2, transform=chain)
    assert same(found, wanted)


def test_several_views(large: PackedDataset, server: FaultServer) -> None:
    views = {"first": SMALL_CROPS, "second": T.RandomResizedCrop(32, scale=(0.01, 0.05))}
    found = []
    for source in (large.folder, f"{server.url}/a"):
        with DataLoader(source, 4, transform=views, seed=1, num_workers=2, on_error="skip") as loader:
            found.append([{name: batch[name].numpy().copy() for name in batch} for batch in loader])
            stats = loader.stats()
    assert stats["read_ahead"]["parts"] > 0
    for wanted, batch in zip(*found, strict=True):
        assert all(np.array_equal(wanted[name], batch[name]) for name in wanted)


def test_crops_that_are_drawn_from_boxes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pictures: list[bytes]
) -> None:
    monkeypatch.setenv("FASTLOAD_SETS_DIR", str(tmp_path / "sets"))
    boxes = np.array([[20, 20, 90, 120], [300, 350, 400, 420], [500, 30, 600, 90]], np.float32)
    rows = [{"image": data, "boxes": boxes[: number % 4]} for number, data in enumerate(pictures[:PARTS])]
    pack(iter(rows), tmp_path / "boxed", {"image": FieldImage(), "boxes": Boxes("xyxy")})
    dataset = PackedDataset(tmp_path / "boxed")
    build_entries(dataset, 64, 2)
    chain = T.Compose([T.RandomIoUCrop(0.1, 0.5, sampler_options=[0.0]), T.Resize((32, 32))])
    with FaultServer(objects_of(dataset.folder)) as server:
        found = []
        for source in (dataset.folder, f"{server.url}/a"):
            with DataLoader(source, 3, transform=chain, seed=1, num_workers=2) as loader:
                found.append([batch for _ in range(6) for batch in loader])
                read = loader.stats()["read_ahead"]
    for wanted, batch in zip(*found, strict=True):
        assert np.array_equal(wanted["image"], batch["image"])
        assert np.array_equal(wanted["boxes"].values, batch["boxes"].values)
    assert read["parts"] >= 10
    assert read["parts_whole"] == 0
    assert read["part_bytes"] < 0.8 * read["parts_of"]


def test_small_records_and_old_files_are_read_whole(
    large: PackedDataset, pictures: list[bytes], tmp_path: Path
) -> None:
    small = plain_pack(tmp_path / "small", [encoded(noise(i, 300, 300)) for i in range(8)], range(8))
    build_entries(small, 64, 1)
    assert PackedDataset(small.folder).entries.part_bytes == 0
    header = (small.folder / "entries.fli").read_bytes()[:128]
    assert (header[10], header[104:120]) == (0, bytes(16)), "such a file is what it always was"
    with FaultServer(objects_of(small.folder)) as server:
        _, stats = epochs(f"{server.url}/a", 2)
    assert stats["read_ahead"]["parts"] == 0


@pytest.mark.usefixtures("memory")
def test_a_cache_keeps_whole_records(large: PackedDataset, server: FaultServer, tmp_path: Path) -> None:
    wanted, _ = epochs(large.folder, 2)
    for cache in ("30MB", ["off", f"{tmp_path}/disk:1GB"]):
        found, stats = epochs(f"{server.url}/a", 2, cache=cache)
        assert same(found, wanted)
        assert stats["read_ahead"]["parts"] == 0


@pytest.mark.usefixtures("memory")
@pytest.mark.parametrize(("cache", "whole"), [("30MB", True), ("7MB", False)])
def test_a_cache_of_coefficients_keeps_whole_records(
    large: PackedDataset, server: FaultServer, cache: str, whole: bool
) -> None:
    """What has no room there is read in parts."""
    wanted, _ = epochs(large.folder, 4)
    found, stats = epochs(f"{server.url}/a", 4, cache=Cache(cache, format="coefficients"))
    assert same(found, wanted)
    assert (stats["read_ahead"]["parts"] == 0) == whole
    assert stats["read_ahead"]["parts_whole"] == 0
    assert stats["cache"]["transcoded"] > 0, str(stats["cache"])
    assert stats["cache"]["hits"] > 0


@pytest.mark.usefixtures("memory")
def test_what_a_cache_has_no_room_for_is_read_in_parts(large: PackedDataset, server: FaultServer) -> None:
    wanted, _ = epochs(large.folder, 2)
    found, stats = epochs(f"{server.url}/a", 2, cache="6MB")
    assert same(found, wanted)
    assert stats["read_ahead"]["parts"] > 0


def test_a_damaged_part_is_a_damaged_record(large: PackedDataset) -> None:
    """And damage in another part is not noticed: the crop is right."""
    wanted, _ = epochs(large.folder, 12, shuffle=False)
    objects = objects_of(large.folder)
    data = bytearray(objects["/a/data.bin"])
    data[300_000] ^= 1  # of sample 0, in the middle
    objects["/a/data.bin"] = bytes(data)
    crops = 0
    with FaultServer(objects) as server:
        with DataLoader(
            f"{server.url}/a", 4, transform=SMALL_CROPS, seed=3, num_workers=2, on_error="skip"
        ) as loader:
            found = [
                (images.numpy().copy(), labels.numpy().copy()) for _ in range(12) for images, labels in loader
            ]
        for (images, labels), (right, _) in zip(found, wanted, strict=True):
            for image, label, other in zip(images, labels, right, strict=True):
                crops += int(label == 0)
                assert label < 0 or np.array_equal(image, other)
        assert 0 < crops < 12
        with (
            DataLoader(f"{server.url}/a", 4, transform=T.Resize((32, 32))) as loader,
            pytest.raises(SampleError, match="CRC-32C"),
        ):
            next(iter(loader))


def test_wrong_checksums_of_parts_cost_another_request(large: PackedDataset) -> None:
    """The record's own checksum has the last word."""
    wanted, _ = epochs(large.folder, 2)
    from fastload.shard.index import Parts, write_paged

    samples = range(len(large))
    entries = [large.entries.get(i) for i in samples]
    parts = [large.entries.get_parts(i) for i in samples]
    wrong = [each[:8] + bytes(len(each[8:])) for each in parts]
    path = large.folder / "entries.fli"

    def lengths(all_of: list[bytes]) -> list[npt.NDArray[np.uint64]]:
        return [np.array([len(each) for each in all_of], np.uint64)]

    write_paged(
        path, b"FLENTRY1", (), lengths(entries), entries, 64, large.index.digest,
        parts=Parts(lengths(wrong), wrong, _C.PART_BYTES),
    )  # fmt: skip
    assert list(wrong_entries(PackedDataset(large.folder), 1)) == list(range(PARTS))
    with FaultServer(objects_of(large.folder)) as server:
        found, stats = epochs(f"{server.url}/a", 2)
    assert same(found, wanted)
    # What was read ahead for the next epoch, and not decoded when the loader closed, needed no other request.
    assert 0 < stats["read_ahead"]["parts_whole"] <= stats["read_ahead"]["parts"]


@pytest.mark.parametrize("change", ["scan", "mcu", "components", "entries"])
def test_wrong_facts_with_valid_checksums_change_no_pixel(large: PackedDataset, change: str) -> None:
    wanted, _ = epochs(large.folder, 4)
    from fastload.shard.index import Parts, write_paged

    samples = range(len(large))
    entries = [large.entries.get(i) for i in samples]
    parts = [bytearray(large.entries.get_parts(i)) for i in samples]
    for each in parts:
        if not each:
            continue
        if change == "scan":
            each[2] += 3  # 196,608 bytes behind
        elif change == "mcu":
            each[5] = 24 - each[5]
        elif change == "components":
            each[6] = 4 - each[6]
    if change == "entries":  # legal ones, of another picture
        entries[0], entries[4] = entries[4], entries[0]
    lengths = [[np.array([len(each) for each in all_of], np.uint64)] for all_of in (entries, parts)]
    write_paged(
        large.folder / "entries.fli", b"FLENTRY1", (), lengths[0], entries, 64, large.index.digest,
        parts=Parts(lengths[1], map(bytes, parts), _C.PART_BYTES),
    )  # fmt: skip
    with FaultServer(objects_of(large.folder)) as server:
        found, _ = epochs(f"{server.url}/a", 4)
    assert same(found, wanted)


def test_a_store_that_fails_now_and_then(large: PackedDataset, server: FaultServer) -> None:
    wanted, _ = epochs(large.folder, 2)
    server.rules.append(Rule(Fault(damage=True), path="data.bin", every=7))
    server.rules.append(Rule(Fault(reset_after=5000), path="data.bin", every=5))
    found, stats = epochs(f"{server.url}/a", 2)
    damaged = sum((images != other).any() for (images, _), (other, _) in zip(found, wanted, strict=True))
    assert damaged <= stats["faults"], "nothing wrong is delivered"
