"""From finished shards of samples to a packed dataset: names, index, columns, and the manifest last."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from fastload.errors import PackError
from fastload.packing.files import publish, remove, sync_folder, temporary_of
from fastload.packing.output import OutputFolder
from fastload.packing.part import Part
from fastload.packing.plan import SUFFIXES
from fastload.packing.publish import make_manifest, publish_index, write_skipped
from fastload.packing.samples.shards import Shards
from fastload.packing.summary import Summary
from fastload.sample.schema import Schema
from fastload.shard.columns import column_name, write_column
from fastload.shard.formats import format_of
from fastload.shard.manifest import Manifest, Shard

__all__ = ["publish_samples"]

T = TypeVar("T")


@dataclass(frozen=True)
class _Each(list[T]):
    """What ``make`` gives for each part in turn; walked as often as need be, one part in memory at a time."""

    make: Callable[[int, Path], T]
    parts: list[Path]

    def __iter__(self) -> Iterator[T]:
        return (self.make(place, path) for place, path in enumerate(self.parts))


def publish_samples(
    folder: OutputFolder, shards: Shards, schema: Schema, format_name: str, identity: dict[str, Any]
) -> tuple[Manifest, Summary]:
    """Publish what was written; shards all of whose samples were skipped are left out.

    Killed at any moment, the same call goes on: what has its name already stays.
    """
    output = folder.path
    skipped: list[tuple[str, str]] = []
    kept: list[int] = []
    sizes: list[tuple[int, int]] = []
    summary = Summary()
    for number in range(shards.number):
        part = Part.read(shards.part_path(number))
        skipped += part.skipped
        if len(part.records):
            kept.append(number)
            sizes.append((part.shard_bytes, len(part.records)))
            summary.add(part.records)
    if not kept:
        key, reason = skipped[0]
        raise PackError(f"none of {len(skipped)} samples can be packed; the first is {key}: {reason}.")
    count, suffix = len(kept), SUFFIXES[format_name]
    names = [f"{output.name}-{place:05d}-of-{count:05d}{suffix}" for place in range(count)]
    folder.announce([*names, *(column_name(number) for number, _ in schema.columns)])
    for number, name in zip(kept, names, strict=True):
        if shards.path(number).exists():
            remove(output / name)
            os.replace(shards.path(number), output / name)
    sync_folder(output)
    parts = [shards.part_path(number) for number in kept]
    index = publish_index(output, _Each(_records, parts), _Each(lambda _, path: Part.read(path).keys, parts))
    _write_columns(output, schema, parts, summary.records)
    write_skipped(output, skipped)
    data_file = format_of(format_name).data_file
    listed = [
        Shard(str(data_file(output / name).relative_to(output)), size, records)
        for name, (size, records) in zip(names, sizes, strict=True)
    ]
    manifest = make_manifest(format_name, summary, schema, listed, index, identity, len(skipped))
    manifest.write(output)
    return manifest, summary
