"""A set of raw pictures that is easy to check, and what a cache's folder holds."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import numpy.typing as npt
from plain_pack import plain_pack

from fastload import PackedDataset
from fastload._native import _C
from fastload.cache.layout import HEADER
from fastload.shard.codecs import RAW
from fastload.shard.index import RECORD, write_index
from fastload.shard.manifest import INDEX_NAME, Manifest, Shard

__all__ = ["COUNT", "SIDE", "in_use", "pixels", "raw_set", "sparse_set", "wait", "whole_file"]

COUNT, SIDE = 800, 64  # 9.8 MB


@cache
def pixels(count: int = COUNT) -> npt.NDArray[np.uint8]:
    """(count, 64, 64, 3): the pictures, each of them different."""
    return np.random.default_rng(7).integers(0, 256, (count, SIDE, SIDE, 3), np.uint8)


def raw_set(folder: Path, count: int = COUNT) -> PackedDataset:
    """The pictures packed as they are; a record's label is its number."""
    return plain_pack(folder, [one.tobytes() for one in pixels(count)], range(count), raw_size=(SIDE, SIDE))


def sparse_set(folder: Path, count: int, side: int) -> PackedDataset:
    """``count`` black pictures of ``side`` x ``side`` pixels, in a file that takes no room on the disk."""
    folder.mkdir(parents=True)
    length = 3 * side * side
    with (folder / "data.bin").open("wb") as file:
        file.truncate(count * length)
    records = np.zeros(count, RECORD)
    records["length"], records["offset"] = length, np.arange(count, dtype=np.uint64) * np.uint64(length)
    records["crc32c"] = _C.crc32c(np.zeros(length, np.uint8))
    records["codec"], records["channels"] = RAW, 3
    records["width"] = records["height"] = side
    records["label"] = np.arange(count)
    write_index(folder / INDEX_NAME, [records], [[b"%08d" % i for i in range(count)]])
    Manifest(
        format="plain",
        num_records=count,
        data_bytes=count * length,
        classes=(),
        shards=(Shard("data.bin", count * length, count),),
        index_size=(folder / INDEX_NAME).stat().st_size,
        index_crc=_C.Index(str(folder / INDEX_NAME)).digest,
    ).write(folder)
    return PackedDataset(folder)


def whole_file(path: Path) -> npt.NDArray[np.uint8]:
    """The bytes of a cache file and of its stripes, by their offsets (FORMAT.md)."""
    header = np.fromfile(path, HEADER, 1)[0]
    whole = np.zeros(int(header["file_size"]), np.uint8)
    begins = [0, *header["stripe_offset"][: int(header["num_stripes"])].tolist()]
    for number, begin in enumerate(begins):
        piece = np.fromfile(path if number == 0 else f"{path}.{number - 1}", np.uint8)
        whole[begin : begin + len(piece)] = piece
    return whole


def wait(condition: Callable[[], bool]) -> None:
    """Until it holds."""
    end = time.monotonic() + 100
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.001)


def in_use(folder: Path) -> dict[str, int]:
    """Bytes that each file below ``folder`` has, or will have when its memory has been reserved."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {str(path.relative_to(folder)): path.stat().st_size for path in files}
