"""From finished shards of samples to a packed dataset: names, columns, index, and the manifest last."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np
import numpy.typing as npt

from fastload.errors import PackError
from fastload.machine.paths import exists
from fastload.packing.coefficients import FACTS, NOTE, Tally
from fastload.packing.files import failed_writes_reported, remove, sync_folder
from fastload.packing.output import OutputFolder
from fastload.packing.part import ShardPart
from fastload.packing.publish import make_manifest, publish_index, write_skipped
from fastload.packing.samples.shards import Shards
from fastload.packing.summary import Summary
from fastload.sample.schema import Field, Schema
from fastload.shard.columns import write_column
from fastload.shard.formats import FORMATS, format_of
from fastload.shard.manifest import (
    INDEX_NAME,
    SECOND_INDEX,
    ColumnFile,
    Entries,
    Manifest,
    Shard,
    column_name,
    entries_of,
    fields_digest,
)

__all__ = ["publish_samples", "write_tables"]

T = TypeVar("T")


class _Each(Generic[T]):
    """What ``make`` gives for each part in turn; walked as often as need be, one part in memory at a time."""

    def __init__(self, make: Callable[[int, Path], T], parts: list[Path]) -> None:
        self._make, self._parts = make, parts

    def __iter__(self) -> Iterator[T]:
        return (self._make(place, path) for place, path in enumerate(self._parts))


def publish_samples(
    folder: OutputFolder, shards: Shards, schema: Schema, format_name: str, identity: dict[str, Any]
) -> tuple[Manifest, Summary]:
    """Publish what was written; shards all of whose samples were skipped are left out.

    Killed at any moment, the same call goes on: what has its name already stays.

    Raises:
        PackError: not one sample could be packed.
    """
    skipped: list[tuple[str, str]] = []
    left_out: list[tuple[str, str, str]] = []
    kept: list[int] = []
    sizes: list[tuple[int, int]] = []
    summary, tally = Summary(), Tally()
    for number in range(shards.number):
        part = ShardPart.read(shards.part_path(number))
        skipped += part.skipped
        left_out += part.left_out
        if FACTS in part.facts:
            tally.merge(part.facts[FACTS])
        if len(part.records):
            kept.append(number)
            sizes.append((part.shard_bytes, len(part.records)))
            summary.add(part.records)
    if not kept:
        key, reason = skipped[0]
        raise PackError(f"none of {len(skipped)} samples can be packed; the first is {key}: {reason}.")
    names = _name(folder, shards, kept, schema, FORMATS[format_name].suffix)
    parts = [shards.part_path(number) for number in kept]
    about = sum(os.stat(path).st_size for path in parts)
    try:
        with failed_writes_reported(folder.path, about):
            entries, index = write_tables(folder.path, schema, parts, summary.records)
            write_skipped(folder.path, skipped, left_out)
    except BaseException:
        for temporary in folder.path.glob(".tmp-*"):
            remove(temporary)
        raise
    data_file = format_of(format_name).data_file
    listed = [
        Shard(str(data_file(folder.path / name).relative_to(folder.path)), size, records)
        for name, (size, records) in zip(names, sizes, strict=True)
    ]
    label = schema.label_field
    classes = label.kind.classes if label is not None else ()  # type: ignore[attr-defined]
    if identity.get("coefficients"):
        identity = {**identity, FACTS: {"note": NOTE, **tally.to_json()}}
    manifest = make_manifest(
        format_name, summary, classes, listed, index, identity, len(skipped), tuple(entries), len(left_out)
    )
    manifest.write(folder.path)
    return manifest, summary


def write_tables(
    output: Path, schema: Schema, parts: list[Path], count: int, mark: str = ""
) -> tuple[Entries, tuple[int, int]]:
    """Write the columns and the index of finished shards, each atomically.

    Args:
        output: the dataset's folder.
        schema: its fields.
        parts: of its shards, in their order.
        count: samples.
        mark: behind the files' names, as :data:`fastload.shard.manifest.SECOND`.

    Returns:
        What the manifest says of the fields, and of the index its size and digest.
    """
    entries = entries_of(schema, _write_columns(output, schema, parts, count, mark))
    keys = _Each(lambda _, path: ShardPart.read(path).keys, parts)
    name = SECOND_INDEX if mark else INDEX_NAME
    return entries, publish_index(output, _Each(_records, parts), keys, fields_digest(entries), name)


def _name(folder: OutputFolder, shards: Shards, kept: list[int], schema: Schema, suffix: str) -> list[str]:
    """Give the shards their names."""
    output = folder.path
    names = [f"{output.name}-{place:05d}-of-{len(kept):05d}{suffix}" for place in range(len(kept))]
    folder.announce([*names, *(column_name(number) for number, _ in schema.columns)])
    for number, name in zip(kept, names, strict=True):
        if exists(shards.path(number)):
            remove(output / name)
            os.replace(shards.path(number), output / name)
    sync_folder(output)
    return names


def _records(place: int, path: Path) -> npt.NDArray[np.void]:
    records = ShardPart.read(path).records
    records["shard"] = place
    return records


def _write_columns(
    output: Path, schema: Schema, parts: list[Path], count: int, mark: str
) -> dict[str, ColumnFile]:
    """The files of the fields that have their own."""
    found = {}
    for at, (number, field) in enumerate(schema.columns):
        found[field.name] = write_column(
            output / column_name(number, mark), field, count, **_column(field, parts, at)
        )
    return found


def _column(field: Field, parts: list[Path], at: int) -> dict[str, Iterable[Any]]:
    """What ``write_column`` takes for a field."""

    def records(place: int, path: Path) -> npt.NDArray[np.void]:
        found = ShardPart.read_column(path, at).records
        assert found is not None
        found["shard"] = place
        return found

    def pieces(width: int = 1) -> Iterator[bytes]:
        return (data for path in parts for data in ShardPart.read_values(path, at, width))

    if field.storage == "record":
        return {"fixed": _Each(records, parts)}
    if field.storage == "fixed":
        values = (np.frombuffer(data, field.item_dtype) for data in pieces(field.item_bytes))
        return {"fixed": (part.reshape(-1, *field.item_shape) for part in values)}
    return {
        "lengths": _Each(lambda _, path: ShardPart.read_lengths(path, at), parts),
        "chunks": pieces(),
    }
