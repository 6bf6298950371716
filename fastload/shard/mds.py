"""MosaicML Streaming's shards (MDS): where their samples' pictures are, and the values beside them.

A shard is a count n, n + 1 offsets (all u32), its settings as JSON, and the samples; a sample is the sizes of
its variable-size columns (u32), then the columns' bytes. ``index.json`` beside it names the columns.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fastload.errors import FormatError
from fastload.machine.paths import exists, open_regular, read_at, read_regular
from fastload.sample.fields import DTYPES, Array, Bytes, Image, Json, Kind, Label, Mask, Scalar, Text
from fastload.sample.schema import Field
from fastload.shard.columns import Chunk
from fastload.shard.formats import Foreign, Kinds, Located, Values
from fastload.shard.index import RECORD
from fastload.shard.tar import value_of

INDEX = "index.json"
_MOST_INDEX = 1 << 30  # bytes of an index.json
_PICTURES = ("jpeg", "png")
_NAMES = ("image", "img", "jpg", "jpeg", "png", "webp", "x", "bytes", "data")
_LABELS = ("label", "labels", "class", "cls", "target", "y")
_TEXTS = ("str", "str_int", "str_float", "str_decimal")
_SIZES = {"int": 8, **{name: np.dtype(name).itemsize for name in DTYPES if name != "bool"}}
_OPEN = (Image, Mask, Text, Json, Bytes)  # legal kinds for a column of no fixed size


@dataclass(frozen=True)
class _Column:
    name: str
    encoding: str
    size: int | None  # None: it varies by sample


def data_file(path: Path) -> Path:
    """Return the shard itself."""
    return path


def shards_of(folder: Path) -> list[Path]:
    """Return the shards that a folder's ``index.json`` names, in its order.

    Raises:
        FormatError: a damaged index, shards of another format, or compressed ones.
    """
    return [_shard_path(folder, shard) for shard in _shards(folder)]


def read_foreign(path: Path, column: str | None, kinds: Kinds) -> Foreign:
    """Read byte ranges of a shard's pictures, and the values of its other columns.

    Raises:
        FormatError: a shard that is damaged or not in the index; no column of pictures, or several.
        OSError: it cannot be read.
    """
    found = [shard for shard in _shards(path.parent) if _shard_path(path.parent, shard) == path]
    if not found:
        raise FormatError(f"{path} is not among the shards of {path.parent / INDEX}.")
    return _Reader(path, found[0], column, kinds).read()


def _shards(folder: Path) -> Sequence[Mapping[str, Any]]:
    path = folder / INDEX
    try:
        data = read_regular(path, _MOST_INDEX)
        if data is None:
            raise FormatError(f"{path} is larger than {_MOST_INDEX} bytes; it is no index of MDS shards.")
        body = json.loads(data)
        shards = list(body["shards"])
        for shard in shards:
            if shard["format"] != "mds" or shard["version"] != 2:
                raise FormatError(
                    f"{path}: shards of format {shard['format']!r:.80}, version {shard['version']!r:.80}, "
                    "cannot be indexed, only mds, version 2."
                )
        return shards
    except FileNotFoundError:
        raise FormatError(f"{folder} has no {INDEX}, without which MDS shards cannot be read.") from None
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        if isinstance(error, FormatError):
            raise
        raise FormatError(f"{path} is no index of MDS shards: {error!r:.200}") from None


def _shard_path(folder: Path, shard: Mapping[str, Any]) -> Path:
    try:
        name = str(shard["raw_data"]["basename"])
    except (KeyError, TypeError) as error:
        raise FormatError(f"{folder / INDEX}: a shard has no raw_data: {error!r:.200}") from None
    if os.path.basename(name) != name or name in ("", ".", ".."):
        raise FormatError(f"{folder / INDEX} names {name!r:.200}, which is no file of its folder.")
    path = folder / name
    if shard.get("zip_data") and not exists(path):
        raise FormatError(
            f"{path} cannot be indexed: {shard.get('compression')!s:.80}, so no picture in it is a plain "
            "range of bytes. Streaming unpacks them, in Python: 'for _ in streaming.StreamingDataset(remote="
            f"{str(folder)!r}, local=OUTPUT, batch_size=1): pass'; then index OUTPUT."
        )
    return path


class _Reader:
    def __init__(self, path: Path, shard: Mapping[str, Any], column: str | None, kinds: Kinds) -> None:
        self._path, self._column, self._kinds = path, column, kinds
        self._columns = _columns(path, shard)
        self._size = path.stat().st_size
        self._count = shard.get("samples")
        said = shard["raw_data"].get("bytes")
        if said != self._size:
            raise FormatError(f"{path} has {self._size} bytes; {INDEX} says {said!r:.80}. Copy it again.")
        self._bad: dict[int, str] = {}
        self._left_out: list[tuple[str, str]] = []

    def read(self) -> Foreign:
        picture = self._picture()
        with open_regular(self._path) as file:
            begins, lengths = self._ranges(file.fileno())
            names = [column.name for column in self._columns]
            fields: dict[str, Values] = {}
            labels, label = None, self._label(picture)
            for place, column in enumerate(self._columns):
                if column.name == picture:
                    continue
                where = Located(begins[place], lengths[place])
                if column.name == label:
                    labels = self._numbers(file.fileno(), column, where)
                    continue
                if (kind := self._kind(column)) is not None:
                    fields[column.name] = self._values(file.fileno(), column.name, kind, where)
        at = names.index(picture)
        name = picture if "image" in fields else "image"
        asked = self._kinds.get(label) if label else None
        classes = asked.classes if isinstance(asked, Label) else ()
        return Foreign(
            Located(begins[at], lengths[at]), labels, None, classes, fields=fields, bad=self._bad,
            left_out=self._left_out, name=name, kind=self._kinds.get(picture),
        )  # fmt: skip

    def _ranges(self, descriptor: int) -> tuple[list[npt.NDArray[np.uint64]], list[npt.NDArray[np.uint64]]]:
        """Return offset and length of each column's bytes in each sample.

        Raises:
            FormatError: they do not add up to the samples' bytes.
        """
        count = int.from_bytes(read_at(descriptor, 4, 0), "little")
        if count != self._count or 8 + 4 * count > self._size:
            raise self._wrong(f"has {count} samples; {INDEX} says {self._count!r:.80}")
        table = read_at(descriptor, 4 * (count + 1), 4)
        ends = np.frombuffer(table, "<u4").astype(np.int64)
        if (
            len(ends) != count + 1
            or ends[0] < 8 + 4 * count
            or ends[-1] != self._size
            or (np.diff(ends) < 0).any()
        ):
            raise self._wrong("has offsets of samples that do not rise to the file's end")
        own = sum(column.size is None for column in self._columns)
        heads = np.zeros((count, own), np.int64)
        for number, (begin, end) in enumerate(zip(ends[:-1].tolist(), ends[1:].tolist(), strict=True)):
            if end - begin < 4 * own:
                raise self._wrong(f"has only {end - begin} bytes for sample {number}")
            heads[number] = np.frombuffer(read_at(descriptor, 4 * own, begin), "<u4")
        at, place = ends[:-1] + 4 * own, 0
        begins, lengths = [], []
        for column in self._columns:
            if column.size is None:
                size, place = heads[:, place], place + 1
            else:
                size = np.full(count, column.size, np.int64)
            begins.append(at.astype(np.uint64))
            lengths.append(size.astype(np.uint64))
            at = at + size
        wrong = np.flatnonzero(at != ends[1:])
        if len(wrong):
            raise self._wrong(f"has columns in sample {wrong[0]} that do not come to the sample's bytes")
        return begins, lengths

    def _picture(self) -> str:
        if self._column is not None:
            wanted = [column.name for column in self._columns if column.name == self._column]
        else:
            left = [column for column in self._columns if self._kinds.get(column.name, Image()) == Image()]
            wanted = [column.name for column in left if column.encoding in _PICTURES]
            wanted = wanted or [c.name for c in left if c.encoding == "bytes" and c.name in _NAMES]
            wanted = sorted((n for n in wanted if n in _NAMES), key=_NAMES.index)[:1] or wanted
        if len(wanted) != 1:
            listed = ", ".join(f"{column.name}: {column.encoding}" for column in self._columns)
            raise FormatError(
                f"{self._path}: which column holds the images? Name it with --column. Columns: {listed}"
            )
        return wanted[0]

    def _label(self, picture: str) -> str | None:
        numbers = [
            c.name for c in self._columns if c.encoding in ("int", *DTYPES) and "float" not in c.encoding
        ]
        asked = [name for name, kind in self._kinds.items() if isinstance(kind, Label)]
        wrong = [name for name in asked if name not in numbers]
        if wrong or len(asked) > 1:
            raise self._wrong(f"has one label at most, of whole numbers. Found: {', '.join(wrong or asked)}")
        found = [name for name in _LABELS if name in numbers and name not in self._kinds and name != picture]
        return next(iter(asked + found), None)

    def _kind(self, column: _Column) -> Kind | None:
        """Return a column's kind; None: it is left out."""
        kind = _kind_of(column)
        if column.name in self._kinds:
            asked = self._kinds[column.name]
            if asked is None or asked == kind or (column.size is None and isinstance(asked, _OPEN)):
                return asked
            raise self._wrong(f"has {column.encoding} in {column.name!r}, which cannot be {asked.name}")
        if kind is None:
            why = f"of the encoding {column.encoding}; --field {column.name}=bytes takes its bytes"
            self._left_out.append((column.name, why))
        return kind

    def _values(self, descriptor: int, name: str, kind: Kind, where: Located) -> Values:
        try:
            field = Field(name, kind)
        except ValueError as error:
            raise self._wrong(f"cannot have this field: {error} Leave it out: --field NAME=none") from None
        if field.storage == "record":
            records = np.zeros(len(where.offsets), RECORD)
            records["offset"], records["label"] = where.offsets, -1
            return Values(field, Chunk(np.zeros(0, np.uint8), where.lengths, records))
        values = []
        for number, data in enumerate(self._each(descriptor, where)):
            try:
                values.append(value_of(field, data) if isinstance(field.kind, _OPEN) else data)
                field.check_bytes(values[-1])
            except ValueError as error:
                self._bad.setdefault(number, str(error).removesuffix("."))
                values.append(b"\0" * field.item_bytes if field.storage == "fixed" else b"")
        return Values(field, Chunk.of(values))

    def _numbers(self, descriptor: int, column: _Column, where: Located) -> npt.NDArray[np.int64]:
        dtype = np.dtype("int64" if column.encoding == "int" else column.encoding).newbyteorder("<")
        return np.frombuffer(b"".join(self._each(descriptor, where)), dtype).astype(np.int64)

    def _each(self, descriptor: int, where: Located) -> Iterator[bytes]:
        for offset, length in zip(where.offsets.tolist(), where.lengths.tolist(), strict=True):
            data = read_at(descriptor, length, offset) if length else b""
            if len(data) != length:
                raise self._wrong("became shorter while it was read")
            yield data

    def _wrong(self, what: str) -> FormatError:
        return FormatError(f"{self._path}: the shard {what}.")


def _columns(path: Path, shard: Mapping[str, Any]) -> list[_Column]:
    try:
        rows = zip(shard["column_names"], shard["column_encodings"], shard["column_sizes"], strict=True)
        columns = [_Column(str(name), str(encoding), size) for name, encoding, size in rows]
    except (KeyError, TypeError, ValueError) as error:
        raise FormatError(
            f"{path.parent / INDEX}: columns of {path.name} are damaged: {error!r:.200}"
        ) from None
    for column in columns:
        wanted = _fixed_size(column)
        if column.size != wanted:
            raise FormatError(
                f"{path.parent / INDEX}: {column.name!r:.80} of {path.name} is {column.encoding:.80} and "
                f"has the size {column.size!r:.80}; it must be {wanted}."
            )
    return columns


def _array_of(encoding: str) -> Array | None:
    """Return the kind of an array whose dtype and shape are the same in all samples."""
    parts = encoding.split(":")
    if parts[0] != "ndarray" or len(parts) != 3 or parts[1] not in DTYPES:
        return None
    try:
        return Array(parts[1], tuple(int(side) for side in parts[2].split(",")))
    except ValueError:
        return None


def _fixed_size(column: _Column) -> int | None:
    array = _array_of(column.encoding)
    return array.item_bytes if array is not None else _SIZES.get(column.encoding)


def _kind_of(column: _Column) -> Kind | None:
    if column.encoding in _PICTURES:
        return Image()
    if column.encoding in _SIZES:
        return Scalar("int64" if column.encoding == "int" else column.encoding)
    if column.encoding in _TEXTS:
        return Text()
    return {"json": Json(), "bytes": Bytes()}.get(column.encoding) or _array_of(column.encoding)
