"""Packed datasets whose files are mutated: how each is made, read, and sealed again."""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from field_sets import RICH, republished, rich_samples, write_field_set
from judged import is_legal
from mutations import mutant, text_mutant
from pictures import encoded, picture

import fastload
from fastload import DataLoader, PackedDataset, transforms
from fastload._native import _C
from fastload.packing.options import PackOptions
from fastload.packing.packer import pack as pack_folder
from fastload.shard.index import RECORD, write_index
from fastload.shard.manifest import ColumnFile, Manifest

__all__ = ["KINDS", "Kind", "batches", "facts", "small"]

COUNT = 8
ERROR = "error"


@dataclass(frozen=True)
class Kind:
    """A kind of file.

    Args:
        make: a whole set, or whatever the file belongs to, in a folder.
        target: the file.
        read: what the samples are, each a value or ERROR; raises what opening raises.
        seal: write the changed file with all checksums made right again; None: it has none.
        strict: whether a sealed one may not show other pictures either.
        text: whether it is JSON.
        epoch: batches of a loader, as far as they come; None: there is none.
        payload: of a file of others: which bytes are whose pictures'.
    """

    name: str
    make: Callable[[Path], Any]
    target: Callable[[Path], Path]
    read: Callable[[Path], list[Any]]
    seal: Callable[[Path, Path, bytes], None] | None = None
    strict: bool = False
    text: bool = False
    epoch: Callable[[Path], list[str]] | None = None
    payload: Callable[[Path], list[tuple[int, int]]] | None = None

    def mutant(self, whole: bytes, rng: Any) -> tuple[str, bytes]:
        """What was changed, and the changed file."""
        return (text_mutant if self.text else mutant)(whole, rng)


def small(data: Any) -> str:
    return hashlib.blake2b(np.ascontiguousarray(data).tobytes(), digest_size=8).hexdigest()


def each(count: int, sample: Callable[[int], Any]) -> list[Any]:
    """A value for each sample, or ERROR where it has one that callers may expect."""
    found = []
    for number in range(min(count, 4 * COUNT)):
        try:
            found.append(sample(number))
        except Exception as error:
            if not is_legal(error):
                raise
            found.append(ERROR)
    return found


def facts(folder: Path) -> list[Any]:
    """Pixels, label and key of each sample; of other sets the values of all fields."""
    dataset: Any = PackedDataset(folder)
    if dataset.is_plain:
        return each(len(dataset), lambda i: [small(dataset[i][0]), dataset.label(i), dataset.key(i)])
    return each(len(dataset), lambda i: {name: _plain(value) for name, value in dataset.sample(i).items()})


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _plain(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    return small(value) if hasattr(value, "__array__") else repr(value)


def batches(folder: Path) -> list[str]:
    """Digests of the batches of an epoch, as far as they come."""
    found = []
    options: dict[str, Any] = {"transform": transforms.Resize((16, 16)), "num_workers": 1}
    with DataLoader(folder, 3, **options) as loader:
        try:
            for batch in loader:
                pictures, labels = (batch["image"], batch["label"]) if isinstance(batch, dict) else batch[:2]
                found.append(small(pictures) + small(labels))
        except Exception as error:
            if not is_legal(error):
                raise
            found.append(ERROR)
    return found


# ---- making -------------------------------------------------------------------------------------


def _tree(folder: Path, kind: str = "JPEG") -> Path:
    for number in range(COUNT):
        path = folder / "source" / "ab"[number % 2] / f"{number}.{kind.lower()}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(encoded(picture(number, 40 + 5 * number, 60 - 4 * number), kind))
    return folder / "source"


def packed(**options: Any) -> Callable[[Path], None]:
    """``fastload pack`` of eight JPEGs of two classes."""

    def make(folder: Path) -> None:
        source = _tree(folder.parent / "of")
        pack_folder(source, folder, PackOptions(num_proc=1, entries=16, **options))

    return make


def _fields(folder: Path) -> None:
    write_field_set(folder, RICH, rich_samples(COUNT))


def named(name: str) -> Callable[[Path], Path]:
    return lambda folder: folder / name


def shard(folder: Path) -> Path:
    return folder / Manifest.read(folder).shards[0].file


def column(name: str) -> Callable[[Path], Path]:
    return named(f"field-{RICH.position(name):02}.fli")


# ---- sealing ------------------------------------------------------------------------------------


def crc(data: bytes) -> int:
    return int(_C.crc32c(np.frombuffer(data, np.uint8))) if data else 0


def seal_manifest(folder: Path, path: Path, data: bytes) -> None:
    """With the id that its own facts give."""
    try:
        body = json.loads(data)
        shards = [[one["file"], one["size"], one["records"]] for one in body["shards"]]
        told = [body["num_records"], body["index_size"], body["index_crc"], list(body["classes"]), shards]
        text = json.dumps(told, ensure_ascii=True, separators=(",", ":"))
        body["id"] = hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
        data = json.dumps(body).encode()
    except (ValueError, TypeError, KeyError, RecursionError):
        pass  # no manifest at all: as it is
    path.write_bytes(data)


def with_frame_sums(data: bytes) -> bytes:
    """A table file with the checksums of its pages and its header, where the header says they are."""
    if len(data) < 128:
        return data
    changed = bytearray(data)
    begin, size, page = struct.unpack_from("<3Q", data, 24)
    end = begin + size
    if page and end <= len(data) and size // page <= len(data):
        sums = b"".join(
            crc(data[at : min(at + page, end)]).to_bytes(4, "little") for at in range(begin, end, page)
        )
        changed[end : end + len(sums)] = sums
        changed[120:124] = crc(sums).to_bytes(4, "little")
    changed[124:128] = crc(bytes(changed[:124])).to_bytes(4, "little")
    return bytes(changed)


def _digest(data: bytes) -> int:
    begin, size = struct.unpack_from("<2Q", data.ljust(128, b"\0"), 24)
    return crc(data[:128] + data[begin + size :])


def republish(folder: Path, **changes: Any) -> None:
    """The manifest with other facts, and its seal; the content id would tell ``verify`` of any change."""
    replace(Manifest.read(folder), content="", **changes).write(folder)


def seal_index(folder: Path, path: Path, data: bytes) -> None:
    data = with_frame_sums(data)
    republish(folder, index_size=len(data), index_crc=_digest(data))
    path.write_bytes(data)


def seal_entries(folder: Path, path: Path, data: bytes) -> None:
    path.write_bytes(with_frame_sums(data))


def seal_column(name: str) -> Callable[[Path, Path, bytes], None]:
    def seal(folder: Path, path: Path, data: bytes) -> None:
        sealed = with_frame_sums(data)

        def write(place: Path, field: Any) -> ColumnFile:
            place.write_bytes(sealed)
            return ColumnFile(place.name, len(sealed), _digest(sealed))

        republished(folder, name, write)

    return seal


def seal_records(folder: Path, path: Path, data: bytes) -> None:
    """The shard, and an index that has the checksums of its records as they are now."""
    _seal_shard(folder, path, data, lambda record: record)


def seal_coefficients(folder: Path, path: Path, data: bytes) -> None:
    """The same, and each coefficient record with its own."""
    _seal_shard(folder, path, data, _summed)


def _summed(record: bytes) -> bytes:
    if len(record) < 64:
        return record
    return record[:60] + crc(record[:60] + record[64:]).to_bytes(4, "little") + record[64:]


def _seal_shard(folder: Path, path: Path, data: bytes, sealed: Callable[[bytes], bytes]) -> None:
    manifest = Manifest.read(folder)
    index = _C.Index(str(folder / manifest.index_name))
    records = index.records().view(RECORD)[:, 0].copy()
    keys = [bytes(index.key(number)) for number in range(len(records))]
    changed = bytearray(data)
    for number, record in enumerate(records):
        begin, end = int(record["offset"]), int(record["offset"]) + int(record["length"])
        if end <= len(data):
            changed[begin:end] = sealed(bytes(changed[begin:end]))
            records["crc32c"][number] = crc(bytes(changed[begin:end]))
    path.write_bytes(changed)
    write_index(folder / manifest.index_name, [records], [keys])
    first, *others = manifest.shards
    size, digest = (
        (folder / manifest.index_name).stat().st_size,
        _C.Index(str(folder / manifest.index_name)).digest,
    )
    republish(
        folder,
        shards=(type(first)(first.file, len(changed), first.records), *others),
        index_size=size,
        index_crc=digest,
    )


KINDS: Sequence[Kind] = (
    Kind("dataset.json", packed(), named("dataset.json"), facts, seal_manifest, text=True, epoch=batches),
    Kind("dataset.json with fields", _fields, named("dataset.json"), facts, seal_manifest, text=True),
    Kind("index.fli", packed(), named("index.fli"), facts, seal_index, epoch=batches),
    Kind("entries.fli", packed(), named("entries.fli"), facts, seal_entries, epoch=batches),
    Kind("field of fixed values", _fields, column("weight"), facts, seal_column("weight")),
    Kind("field of rows", _fields, column("boxes"), facts, seal_column("boxes")),
    Kind("field of outlines", _fields, column("outlines"), facts, seal_column("outlines")),
    Kind("field of pictures", _fields, column("mask"), facts, seal_column("mask")),
    Kind("Arrow shard", packed(), shard, facts, seal_records, epoch=batches),
    Kind("LMDB shard", packed(format="lmdb"), shard, facts, seal_records, epoch=batches),
    Kind("HDF5 shard", packed(format="hdf5"), shard, facts, seal_records, epoch=batches),
    Kind("raw shard", packed(raw=True, size=(24, 16)), shard, facts, seal_records, epoch=batches),
    Kind(
        "coefficient records, fast",
        packed(coefficients="fast"),
        shard,
        facts,
        seal_coefficients,
        epoch=batches,
    ),
    Kind(
        "coefficient records, small",
        packed(coefficients="small"),
        shard,
        facts,
        seal_coefficients,
        epoch=batches,
    ),
)
assert fastload.pack is not pack_folder
