"""The fields that files of others have besides a picture and a label, and their columns."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from fastload.errors import FormatError
from fastload.packing.part import ShardPart
from fastload.packing.samples.guess import picture_kind
from fastload.sample.fields import Image, Kind, Label
from fastload.sample.schema import Field, Schema
from fastload.sample.values import absent
from fastload.shard.columns import Chunk, write_column
from fastload.shard.manifest import ColumnFile, column_name

__all__ = ["ForeignFields", "field_of", "kind_in_set"]


def field_of(entry: Mapping[str, Any]) -> Field:
    """The field of which ``to_json`` gave this."""
    return Field(entry["name"], Kind.from_json(entry), entry.get("of"), entry.get("source"))


def kind_in_set(name: str, kind: Kind, asked: Container[str]) -> Kind:
    """What a field becomes; pictures of which nobody said more are what its name says."""
    return picture_kind(name, ()) if kind == Image() and name not in asked else kind


class ForeignFields:
    """The fields of all files, and in which of each file's chunks their values are.

    Args:
        part: the path of the part of the file of a number.
        asked: kinds that users gave.
        loose: whether a value that is text, JSON or bytes may be missing in all of a file.
    """

    def __init__(self, part: Callable[[int], Path], asked: Mapping[str, Kind | None], loose: bool) -> None:
        self._part, self._asked, self._loose = part, asked, loose
        self._picture: tuple[str, Kind] | None = None
        self._fields: dict[str, Field] = {}
        self._places: list[dict[str, int]] = []  # of each file: its fields' chunks
        self._counts: list[int] = []
        self._paths: list[object] = []

    def add(self, path: object, first: Field, further: Sequence[Field], count: int) -> None:
        """The next file, of which ``count`` records are good; its part has a chunk of each further field.

        Raises:
            FormatError: its fields are not those of the files before.
        """
        self._places.append({field.name: place for place, field in enumerate(further)})
        self._counts.append(count)
        self._paths.append(path)
        if not count:
            return
        picture = (first.name, self._kind(first.name, first.kind))
        if self._picture not in (None, picture):
            raise FormatError(
                f"{path} has its pictures in {picture[0]!r}, the files before it in {self._picture[0]!r}; "
                "index them apart."
            )
        self._picture = picture
        for each in further:
            field = replace(each, kind=self._kind(each.name, each.kind))
            if self._fields.setdefault(field.name, field) != field:
                raise FormatError(f"{path} has another kind of {field.name!r} than the files before it.")

    def schema(self, label: Label | None) -> Schema | None:
        """The fields of samples; None: an image and a label, and nothing else.

        Raises:
            FormatError: files lack fields that others have; no legal fields.
        """
        name, kind = self._picture or ("image", Image())
        if not self._fields and (name, kind) == ("image", Image()):
            return None
        for number, places in enumerate(self._places):
            missing = [name for name in self._fields if name not in places and not self._may_lack(name)]
            if missing and self._counts[number]:
                raise FormatError(
                    f"{self._paths[number]} has no {', '.join(map(repr, missing))}, which other files have; "
                    f"index them apart, or leave it out: --field {missing[0]}=none."
                )
        try:
            fields = [Field(name, kind), *([Field("label", label)] if label is not None else [])]
            return Schema((*fields, *self._fields.values()))
        except ValueError as error:
            raise FormatError(f"these files' fields make no samples: {error}") from None

    def write(self, folder: Path, schema: Schema) -> dict[str, ColumnFile]:
        """The columns; a file's number in the index is its place."""
        count = sum(self._counts)
        return {
            field.name: write_column(folder / column_name(position), field, count, **self._column(field))
            for position, field in schema.columns
        }

    def _kind(self, name: str, kind: Kind) -> Kind:
        return kind_in_set(name, kind, self._asked)

    def _may_lack(self, name: str) -> bool:
        return self._loose and self._fields[name].kind.name in ("text", "json", "bytes")

    def _column(self, field: Field) -> dict[str, Iterable[Any]]:
        """What ``write_column`` takes for a field."""

        def records(number: int, chunk: Chunk) -> Any:
            assert chunk.records is not None
            chunk.records["shard"] = number
            return chunk.records

        def values(_: int, chunk: Chunk) -> Any:
            return chunk.data.view(field.item_dtype).reshape(-1, *field.item_shape)

        if field.storage == "record":
            return {"fixed": _Each(self._chunks, field.name, records)}
        if field.storage == "fixed":
            return {"fixed": _Each(self._chunks, field.name, values)}
        return {
            "lengths": _Each(self._chunks, field.name, lambda _, chunk: chunk.lengths),
            "chunks": _Each(self._chunks, field.name, lambda _, chunk: chunk.data.tobytes()),
        }

    def _chunks(self, name: str) -> Iterator[tuple[int, Chunk]]:
        for number, places in enumerate(self._places):
            if not self._counts[number]:
                continue
            if name in places:
                yield number, ShardPart.read_column(self._part(number), places[name])
            else:
                yield number, Chunk.of([absent(self._fields[name].kind)] * self._counts[number])


class _Each:
    """What ``make`` gives of each file's chunk; walked as often as need be, one file in memory at a time."""

    def __init__(
        self,
        chunks: Callable[[str], Iterator[tuple[int, Chunk]]],
        name: str,
        make: Callable[[int, Chunk], Any],
    ) -> None:
        self._chunks, self._name, self._make = chunks, name, make

    def __iter__(self) -> Iterator[Any]:
        return (self._make(number, chunk) for number, chunk in self._chunks(self._name))
