"""Streams of records: those of the index, and those of each further picture; each has a cache of its own.

A loader keeps the streams that it reads. One that reads others as well finds the files of the first one, and
adds its own; so no file depends on who made it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeAlias

import numpy as np

from fastload._native import _C
from fastload.cache.layout import Contents, encoded
from fastload.shard.dataset import PackedFiles

__all__ = [
    "ENCODED",
    "FIRST",
    "Kept",
    "Streams",
    "Tier",
    "all_streams",
    "kept_of",
    "place_of",
    "stream_bytes",
    "tier_of_field",
]

#: Records, by the name of their field; None: those of the index.
Streams: TypeAlias = Sequence[str | None]
FIRST: Streams = (None,)

#: The records of one stream of a dataset.
Kept: TypeAlias = tuple[PackedFiles, str | None]


@dataclass(frozen=True)
class Tier:
    """A form in which records are kept.

    Args:
        name: "encoded", "decoded-SIDE"; of a further picture's records "field-NN", as its column is called.
        contents: what a file of it holds; may read all entries.
        data_bytes: the bytes of all records in this form.
        field: the further picture's; None: the index's records.
    """

    name: str
    contents: Callable[[PackedFiles], Contents]
    data_bytes: Callable[[PackedFiles], int]
    field: str | None = None


ENCODED = Tier("encoded", encoded, lambda dataset: dataset.manifest.data_bytes)


def place_of(dataset: PackedFiles) -> dict[str, bool]:
    """Of the shards: whether all lie in memory, whether some are on a network file system or in a store."""
    if dataset.location is not None:
        return {"in_memory": False, "remote": True}
    folders: dict[Path, str] = {}
    for shard in dataset.manifest.shards:
        path = dataset.folder / shard.file
        folders.setdefault(path.parent, str(path))
    kinds = [_C.file_system(path) for path in folders.values()]
    return {
        "in_memory": bool(kinds) and all(kind["in_memory"] for kind in kinds),
        "remote": any(kind["remote"] for kind in kinds),
    }


def tier_of_field(dataset: PackedFiles, field: str, cheap: bool = False) -> Tier:
    """The tier of a further picture's records.

    Args:
        cheap: ``data_bytes`` is a bound, got without looking at any record.
    """
    of_bytes = _most_bytes if cheap else partial(stream_bytes, field=field)
    return Tier(dataset.columns.path(field).stem, partial(_encoded, field=field), of_bytes, field)


def _encoded(dataset: PackedFiles, field: str) -> Contents:
    records = dataset.field_records(field)
    return Contents(
        dataset.id,
        dataset.columns.path(field).stem,
        dataset.folder,
        dataset.columns[field].digest,
        np.ascontiguousarray(records["length"]),
        np.ascontiguousarray(records["crc32c"]),
    )


def _most_bytes(dataset: PackedFiles) -> int:
    """Of all records but the index's: the shards hold nothing else, but what their format adds."""
    return max(0, sum(shard.size for shard in dataset.manifest.shards) - dataset.manifest.data_bytes)


def stream_bytes(dataset: PackedFiles, field: str | None) -> int:
    """Bytes of all records of a stream; of a further picture's all entries are read for it."""
    if field is None:
        return dataset.manifest.data_bytes
    return int(dataset.field_records(field)["length"].sum(dtype=np.uint64))


def all_streams(datasets: Sequence[PackedFiles]) -> Streams:
    """Every stream that one of the datasets has."""
    named = (
        field.name
        for dataset in datasets
        if not dataset.is_plain
        for _, field in dataset.schema.columns
        if field.storage == "record"
    )
    return (None, *dict.fromkeys(named))


def kept_of(datasets: Sequence[PackedFiles], streams: Streams) -> list[Kept]:
    """The streams that the datasets have of these."""
    return [(each, stream) for stream in streams for each in datasets if stream in all_streams([each])]
