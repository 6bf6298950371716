"""Files of others, caches and saved states that are mutated: how each is made and read.
all others must be as they were. Of the tiers that the set's own checksums stand behind nothing may be seen
but the set's samples, whatever was sealed again.
"""

from __future__ import annotations

import json
import shutil
import struct
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import h5py
import lmdb
import numpy as np
import pyarrow as pa
from judged import is_legal
from mds_reference import write_mds
from mutated_sets import COUNT, ERROR, Kind, crc, facts, packed, small
from pictures import encoded, picture
from tar_reference import write_tar

from fastload import Cache, DataLoader, transforms
from fastload._native import _C
from fastload.cache.layout import ENTRY, HEADER
from fastload.packing.foreign import IndexOptions, index_files
from fastload.shard.dataset import PackedFiles
from fastload.shard.index import RECORD

__all__ = ["KINDS"]

PICTURES = [encoded(picture(number, 40 + number, 30 + number)) for number in range(COUNT)]


# ---- files of others ----------------------------------------------------------------------------


def _tar(folder: Path) -> None:
    members = [
        (f"{i}.{s}", d)
        for i in range(COUNT)
        for s, d in (("jpg", PICTURES[i]), ("cls", b"%d" % i), ("json", b'{"a": [1, null, "x"]}'))
    ]
    write_tar(folder / "a.tar", members)


def _arrow(folder: Path) -> None:
    table = pa.table(
        {"image": pa.array(PICTURES, pa.binary()), "label": list(range(COUNT)), "text": ["x"] * COUNT}
    )
    with pa.OSFile(str(folder / "a.arrow"), "wb") as sink, pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)


def _lmdb(folder: Path) -> None:
    with lmdb.open(str(folder / "a.lmdb"), map_size=1 << 20) as env, env.begin(write=True) as txn:
        for number, data in enumerate(PICTURES):
            txn.put(b"%08d" % number, data + bytes(6000 * (number % 2)))


def _hdf5(folder: Path) -> None:
    with h5py.File(folder / "a.h5", "w") as file:
        rows = file.create_dataset("image", (COUNT,), h5py.vlen_dtype(np.uint8))
        for number, data in enumerate(PICTURES):
            rows[number] = np.frombuffer(data, np.uint8)
        file["label"] = np.arange(COUNT)


def _mds(folder: Path) -> None:
    rows = [
        {"image": data, "y": number, "text": "x", "facts": {"a": 1}} for number, data in enumerate(PICTURES)
    ]
    write_mds(folder / "mds", {"image": "jpeg", "y": "int", "text": "str", "facts": "json"}, rows)


def _indexed(name: str) -> Callable[[Path], list[Any]]:
    """``fastload index`` of it into a folder beside, then each sample."""

    def read(folder: Path) -> list[Any]:
        output = folder.parent / "indexed"
        shutil.rmtree(output, ignore_errors=True)
        index_files([folder / name], output, IndexOptions(on_error="skip"))
        return facts(output)

    return read


def _pictures_in(name: str) -> Callable[[Path], list[tuple[int, int]]]:
    """Where the pictures lie, by an index of the honest file."""

    def payload(folder: Path) -> list[tuple[int, int]]:
        output = folder.parent / "indexed"
        shutil.rmtree(output, ignore_errors=True)
        index_files([folder / name], output, IndexOptions())
        records = PackedFiles(output).index.records().view(RECORD)[:, 0]
        return [(int(one["offset"]), int(one["offset"]) + int(one["length"])) for one in records]

    return payload


def foreign(name: str, make: Callable[[Path], None], path: str, given: str = "") -> Kind:
    given = given or path

    def in_folder(folder: Path) -> None:
        folder.mkdir(parents=True)
        make(folder)

    text = path.endswith(".json")
    payload = None if text else _pictures_in(given)
    return Kind(name, in_folder, lambda folder: folder / path, _indexed(given), text=text, payload=payload)


# ---- caches -------------------------------------------------------------------------------------


def _epochs(folder: Path, cache: Any, **options: Any) -> list[str]:
    """Two epochs of a loader with a cache."""
    found: list[str] = []
    options = {"transform": transforms.Resize((16, 16)), "num_workers": 1, **options}
    with DataLoader(folder / "set", 3, cache=cache, **options) as loader:
        for _ in range(2):
            try:
                found += [small(images) + small(labels) for images, labels in loader]
            except Exception as error:
                if not is_legal(error):
                    raise
                return [*found, *[ERROR] * (6 - len(found))]
    return found


def _cached(**settings: Any) -> tuple[Callable[[Path], None], Callable[[Path], list[Any]]]:
    def read(folder: Path) -> list[Any]:
        return _epochs(folder, Cache(folder=folder / "memory", **settings))

    def make(folder: Path) -> None:
        packed()(folder / "set")
        (folder / "memory").mkdir()
        read(folder)

    return make, read


def _on_disk(folder: Path) -> list[Any]:
    return _epochs(folder, f"{folder}/disk:16MB")


def _tiered(folder: Path) -> None:
    packed()(folder / "set")
    _on_disk(folder)


def _only(pattern: str) -> Callable[[Path], Path]:
    def target(folder: Path) -> Path:
        [path] = folder.glob(pattern)
        return path

    return target


def _seal_cache(folder: Path, path: Path, data: bytes) -> None:
    """Header and places with their checksums."""
    changed = bytearray(data)
    if len(changed) >= 12288 + COUNT * ENTRY.itemsize:
        table = np.frombuffer(changed, ENTRY, COUNT, 12288)
        _C.seal_cache_places(table.view(np.uint8).reshape(-1, 32), 0)
        del table
    if len(changed) >= HEADER.itemsize and len(changed) >= 8192:
        changed[8188:8192] = crc(bytes(changed[:8188])).to_bytes(4, "little")
    _privately(path, bytes(changed))


def _seal_tier(folder: Path, path: Path, data: bytes) -> None:
    changed = bytearray(data)
    if len(changed) >= 16384:
        changed[16380:16384] = struct.pack("<I", crc(bytes(changed[:16380])))
    _privately(path, bytes(changed))


def _privately(path: Path, data: bytes) -> None:
    path.write_bytes(data)
    path.chmod(0o600)


# ---- states -------------------------------------------------------------------------------------


def _stated(folder: Path) -> None:
    packed()(folder / "set")
    options: dict[str, Any] = {"transform": transforms.Resize((8, 8)), "num_workers": 1, "seed": 5}
    with DataLoader(folder / "set", 2, shuffle=True, **options) as loader:
        next(iter(loader))
        (folder / "state.json").write_text(json.dumps(loader.state_dict()))


def _resumed(folder: Path) -> list[Any]:
    """How many samples each batch of the rest of the epoch has; which they are is the state's to say."""
    try:
        state = json.loads((folder / "state.json").read_bytes())
    except (ValueError, RecursionError):
        return [ERROR]
    options: dict[str, Any] = {"transform": transforms.Resize((8, 8)), "num_workers": 1, "seed": 5}
    with DataLoader(folder / "set", 2, shuffle=True, **options) as loader:
        loader.load_state_dict(state)
        return [len(labels) for _, labels in loader]


CACHED, ENCODED = _cached()
PIXELS, DECODED = _cached(decoded=20)
KEPT, COEFFICIENTS = _cached(format="coefficients")
KINDS: Sequence[Kind] = (
    foreign("others' tar", _tar, "a.tar"),
    foreign("others' Arrow", _arrow, "a.arrow"),
    foreign("others' LMDB", _lmdb, "a.lmdb/data.mdb", "a.lmdb"),
    foreign("others' HDF5", _hdf5, "a.h5"),
    foreign("MDS shard", _mds, "mds/shard.00000.mds", "mds"),
    foreign("MDS index", _mds, "mds/index.json", "mds"),
    Kind("node cache file", CACHED, _only("memory/*/*.flc"), ENCODED, _seal_cache, strict=True),
    Kind("node cache file, decoded", PIXELS, _only("memory/*/*.flc"), DECODED, _seal_cache),
    Kind(
        "node cache file, coefficients", KEPT, _only("memory/*/*coefficients*.flc"), COEFFICIENTS, _seal_cache
    ),
    Kind("disk tier's table", _tiered, _only("disk/*/*.flt"), _on_disk, _seal_tier, strict=True),
    Kind("disk tier's slots", _tiered, _only("disk/*/*.data"), _on_disk),
    Kind("loader state", _stated, lambda folder: folder / "state.json", _resumed, text=True),
)
