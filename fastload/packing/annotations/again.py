"""What unpacking to the files that annotated pictures were packed from has in common."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from fastload.errors import PackError
from fastload.packing.fetched import in_windows
from fastload.packing.names import ESCAPED, decode_key
from fastload.packing.unpacked_files import safe_path
from fastload.shard.dataset import PackedFiles

__all__ = ["AS_TABLE", "Unpacked", "require", "samples_of", "source_of"]

#: What always can be done.
AS_TABLE = "Unpack it as a table: without --as."


@dataclass(frozen=True)
class Unpacked:
    """A sample that is read again."""

    path: bytes  # of its picture, below the output folder
    size: tuple[int, int]
    data: Callable[[str], bytes]  # the bytes of a field
    value: Callable[[str], Any]  # the value of one


def source_of(dataset: PackedFiles, layout: str, fields: tuple[str, ...]) -> Mapping[str, Any]:
    """What a set says of the files that it was packed from.

    Raises:
        PackError: they were others, or not all that they need was packed, or as they had it.
    """
    found = dataset.schema.index_field.source
    own = found.get("layout") if isinstance(found, Mapping) else None
    if not isinstance(found, Mapping) or own != layout:
        came, advice = "It was not packed from annotated files.", "Unpack"
        if own:
            came = f"It was packed from files of layout {own!r}."
            advice = f"Take --as {own} (as_={own!r} in Python), or unpack"
        raise PackError(
            f"{dataset.where} cannot be unpacked as {layout!r}: a set becomes files of its own layout alone. "
            f"{came} {advice} it as a table, without --as; other programs turn one layout into another."
        )
    options = dataset.manifest.options
    changed = next((name for name in ("raw", "max_side", "size") if options.get(name)), None)
    if changed is not None:
        raise PackError(
            f"{dataset.where} was packed with {changed}={options[changed]!r}, so its pictures are not those "
            f"that such files are about. {AS_TABLE}"
        )
    require(dataset, fields)
    return found


def require(dataset: PackedFiles, fields: Iterable[str]) -> None:
    """Fields that unpacking needs.

    Raises:
        PackError: one was not packed.
    """
    missing = next((name for name in fields if name not in dataset.schema), None)
    if missing is not None:
        raise PackError(
            f"{dataset.where} was packed without the field {missing!r}, which is needed. {AS_TABLE}"
        )


def samples_of(dataset: PackedFiles) -> Iterator[Unpacked]:
    """All samples in their order."""
    for ids, part in in_windows(dataset):
        for sample in ids:
            record = dataset.record(sample)
            key = decode_key(dataset.index.key(sample), bool(record["flags"] & ESCAPED))

            def data(field: str, part: PackedFiles = part, sample: int = sample) -> bytes:
                return part.value_bytes(field, sample)

            def value(field: str, data: Callable[[str], bytes] = data) -> Any:
                return dataset.schema[field].decode(data(field))

            yield Unpacked(safe_path(key), (int(record["width"]), int(record["height"])), data, value)
