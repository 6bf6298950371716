"""HDF5 datasets of natural types for the further fields of a sample.

Numbers of one shape are one dataset of shape (N, ...); what has rows of numbers is a variable-length row of
them, flat, with the shape of one in the attribute ``row``; texts are strings.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import h5py
import numpy as np
import numpy.typing as npt

from fastload.sample.fields import Text
from fastload.sample.plain import is_file, plain_value
from fastload.sample.schema import Field, Schema
from fastload.sample.values import NO_TEXT
from fastload.shard.chunk import Chunk

__all__ = ["FieldDatasets", "append_rows", "free_name"]

_CHUNK = 1024  # references (16 bytes each) a chunk
_AS_JSON = ("polygons", "texts")
_STRINGS = ("text", "json", *_AS_JSON)


def free_name(schema: Schema | None, name: str) -> str:
    """``name``, with ``_`` appended until no field has that name."""
    taken = {field.name for field in schema} if schema is not None else set()
    while name in taken:
        name += "_"
    return name


def append_rows(dataset: h5py.Dataset, start: int, rows: npt.NDArray[Any]) -> None:
    """Write variable-length rows from row ``start`` on; the dataset grows where it has to."""
    if start + len(rows) > len(dataset):
        dataset.resize((start + len(rows),))
    # Not by slicing: h5py would take rows of equal length for a two-dimensional array.
    target = dataset.id.get_space()
    target.select_hyperslab((start,), (len(rows),))
    dataset.id.write(h5py.h5s.create_simple((len(rows),)), target, rows)


class FieldDatasets:
    """The datasets of a schema's ``columns`` in one shard.

    Args:
        file: the shard.
        schema: its fields.
        check: called after each field of each call, so that a failed write is seen before the next one.
        raw: whether images are pixels.
    """

    def __init__(self, file: h5py.File, schema: Schema, check: Callable[[], None], raw: bool = False) -> None:
        self._file, self._check, self._schema = file, check, schema
        self._fields = [field for _, field in schema.columns]
        self._fixed: dict[str, list[npt.NDArray[Any]]] = {}
        self._shapes: dict[str, list[npt.NDArray[np.int32]]] = {}
        for field in self._fields:
            if field.kind.storage == "fixed":
                self._fixed[field.name] = []
            else:
                self._create(field)
            if field.kind.storage == "record" and not is_file(field, raw):
                self._shapes[field.name] = []

    def _create(self, field: Field) -> None:
        strings = field.kind.name in _STRINGS
        item = h5py.string_dtype("utf-8") if strings else h5py.vlen_dtype(_element(field))
        dataset = self._file.create_dataset(
            field.name, (0,), item, chunks=(_CHUNK,), maxshape=(None,), track_times=False
        )
        if field.kind.has_rows:
            dataset.attrs["row"] = np.array(field.kind.item_shape, np.int64)

    def append(self, start: int, chunks: Sequence[Chunk]) -> None:
        """The values of samples ``[start, start + n)``, for each field."""
        for field, chunk in zip(self._fields, chunks, strict=True):
            if field.name in self._fixed:
                values = chunk.data.view(np.dtype(field.kind.item_dtype))
                self._fixed[field.name].append(values.reshape(len(chunk), *field.kind.item_shape))
            else:
                append_rows(self._file[field.name], start, _rows(field, chunk))
            if field.name in self._shapes and chunk.records is not None:
                sides = [chunk.records["height"], chunk.records["width"]]
                self._shapes[field.name].append(np.stack(sides, axis=1).astype(np.int32))
            self._check()

    def close(self) -> None:
        """Write what was kept: values of one shape, and the sizes of pictures that are pixels."""
        for field in self._fields:
            if field.name in self._fixed:
                none = np.zeros((0, *field.kind.item_shape), np.dtype(field.kind.item_dtype))
                self._add(field.name, np.concatenate([*self._fixed[field.name], none]))
        for name, shapes in self._shapes.items():
            sides = np.concatenate([*shapes, np.zeros((0, 2), np.int32)])
            self._add(free_name(self._schema, f"{name}_height"), sides[:, 0])
            self._add(free_name(self._schema, f"{name}_width"), sides[:, 1])

    def _add(self, name: str, values: npt.NDArray[Any]) -> None:
        self._file.create_dataset(name, data=values, track_times=False)


def _element(field: Field) -> Any:
    return np.dtype(field.kind.item_dtype) if field.kind.has_rows else np.dtype(np.uint8)


def _rows(field: Field, chunk: Chunk) -> npt.NDArray[Any]:
    strings = field.kind.name in _STRINGS
    element = np.dtype(object) if strings else _element(field)
    item = h5py.string_dtype("utf-8") if strings else h5py.vlen_dtype(element)
    rows: npt.NDArray[Any] = np.empty(len(chunk), item)
    ends = np.cumsum(chunk.lengths).tolist()
    for i, (begin, end) in enumerate(zip([0, *ends[:-1]], ends, strict=True)):
        part = chunk.data[begin:end]
        rows[i] = _text(field, part.tobytes()) if strings else part.view(element)
    return rows


def _text(field: Field, data: bytes) -> bytes:
    if field.kind.name in _AS_JSON:
        return json.dumps(plain_value(field, data)).encode()
    return b"" if isinstance(field.kind, Text) and field.kind.null and data == NO_TEXT else data
