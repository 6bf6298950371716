"""HDF5 shards: ``image`` (one variable-length uint8 row a record), ``label`` and ``path``, all of length N.

The variable-length layout is the one that ``h5py`` users and HF's loader read without knowing about
us, and it is written as fast as a flat one (FORMAT.md has the numbers). Where each row's bytes lie is
found in the file itself: :mod:`fastload.shard.hdf5_heap`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import numpy.typing as npt

from fastload.errors import FormatError
from fastload.sample.plain import is_file
from fastload.shard.chunk import Chunk
from fastload.shard.formats import Foreign, Kinds, Located, ShardSpec, damage_reported
from fastload.shard.hdf5_fields import FieldDatasets, append_rows, free_name
from fastload.shard.hdf5_file import WrittenFile
from fastload.shard.hdf5_heap import heap_ranges, read_references

__all__ = ["Writer", "data_file", "locate", "read_foreign", "shard_bytes"]

_MAX_CLASS_ARRAY = 4000
_CHUNK = 1024  # references (16 bytes each) a chunk
_IMAGES = ("image", "images", "img", "x", "data")
_LABELS = ("label", "labels", "y", "target", "targets")
_OFFSETS = ("offset", "offsets", "indptr")


def data_file(path: Path) -> Path:
    """The shard is one file."""
    return path


def shard_bytes(lengths: npt.NDArray[np.uint64]) -> int:
    """Payload, a heap header and alignment, and about 256 bytes a record for label, path and reference."""
    return int(lengths.sum()) + 352 * len(lengths) + (1 << 20)


class Writer:
    """Rows are appended a group at a time; the chunked dataset is cut to the records that came."""

    def __init__(self, path: Path, spec: ShardSpec) -> None:
        self._under = WrittenFile(path)
        try:
            # 1.8's format: the oldest that stock readers still have, and the one hdf5_heap knows.
            self._file = h5py.File(self._under, "w", libver=("earliest", "v108"))
        except BaseException:
            self._under.close()
            raise
        try:
            self._begin(spec)
        except BaseException:
            self.abort()
            raise

    def _begin(self, spec: ShardSpec) -> None:
        if spec.classes:
            self._write_classes(list(spec.classes))
        self._raw, self._size = spec.raw, spec.size
        self._names = ("image", "label", free_name(spec.schema, "path"))
        self._sides = ("height", "width")  # the datasets of the pictures' sides
        self._fields: FieldDatasets | None = None
        if spec.schema is not None:
            label = spec.schema.label_field
            index = spec.schema.index_field
            self._names = (index.name, label.name if label else "", self._names[2])
            self._raw = not is_file(index, spec.raw)
            first, second = (free_name(spec.schema, f"{index.name}_{side}") for side in self._sides)
            self._sides = (first, second)
            self._fields = FieldDatasets(self._file, spec.schema, self._under.check, spec.raw)
        self._labels: list[npt.NDArray[np.int64]] = []
        self._shapes: list[npt.NDArray[np.int32]] = []
        self._keys: list[bytes] = []
        self._count = 0
        if spec.size is not None:
            width, height = spec.size
            self._images = self._create("image", (spec.records, height, width, 3), np.uint8)
        else:
            self._images = self._create(self._names[0], (spec.records,), h5py.vlen_dtype(np.uint8))

    def _write_classes(self, classes: list[str]) -> None:
        # An attribute's array must fit into a 64 KB object header, 16 bytes a string; one string need not.
        value = classes if len(classes) <= _MAX_CLASS_ARRAY else json.dumps(classes, ensure_ascii=False)
        self._file.attrs.create("classes", value, dtype=h5py.string_dtype("utf-8"))

    def _create(self, name: str, shape: tuple[int, ...], dtype: Any) -> h5py.Dataset:
        vlen = len(shape) == 1
        extra = {"chunks": (_CHUNK,), "maxshape": (None,)} if vlen else {}
        return self._file.create_dataset(name, shape, dtype, track_times=False, **extra)

    def append(
        self,
        data: npt.NDArray[np.uint8],
        records: npt.NDArray[np.void],
        keys: list[bytes],
        further: Sequence[Chunk] = (),
    ) -> None:
        count = len(records)
        if self._size is not None:
            self._images[self._count : self._count + count] = data.reshape(count, *self._images.shape[1:])
        else:
            self._write_rows(data, records)
        if self._fields is not None:
            self._fields.append(self._count, further)
        self._under.check()
        self._labels.append(records["label"].astype(np.int64))
        self._shapes.append(np.stack([records["height"], records["width"]], axis=1).astype(np.int32))
        self._keys += keys
        self._count += count

    def _write_rows(self, data: npt.NDArray[np.uint8], records: npt.NDArray[np.void]) -> None:
        rows: npt.NDArray[Any] = np.empty(len(records), h5py.vlen_dtype(np.uint8))
        ranges = zip(records["offset"].tolist(), records["length"].tolist(), strict=True)
        for i, (begin, length) in enumerate(ranges):
            rows[i] = data[begin : begin + length]
        append_rows(self._images, self._count, rows)

    def close(self) -> None:
        if self._size is None:
            self._images.resize((self._count,))
        elif self._count < len(self._images):
            self._drop_unused_rows()
        if self._names[1]:
            self._add(self._names[1], np.concatenate([*self._labels, np.zeros(0, np.int64)]))
        if self._fields is not None:
            self._fields.close()
        if self._raw and self._size is None:
            shapes = np.concatenate([*self._shapes, np.zeros((0, 2), np.int32)])
            self._add(self._sides[0], shapes[:, 0])
            self._add(self._sides[1], shapes[:, 1])
        self._file.create_dataset(
            self._names[2], data=self._keys, dtype=h5py.string_dtype("utf-8"), track_times=False
        )
        self._file.close()
        self._under.close()
        self._under.check()

    def abort(self) -> None:
        try:
            self._file.close()
        finally:
            self._under.close()

    def _add(self, name: str, values: npt.NDArray[Any]) -> None:
        self._file.create_dataset(name, data=values, track_times=False)

    def _drop_unused_rows(self) -> None:
        """Skipped files leave rows over, and a contiguous dataset cannot shrink: move the others."""
        self._file.move("image", "all")
        kept = self._create("image", (self._count, *self._images.shape[1:]), np.uint8)
        for row in range(self._count):
            kept[row] = self._images[row]
        del self._file["all"]
        self._images = kept


def _open(path: Path) -> h5py.File:
    """HDF5 itself takes a signal that comes while it opens a file for a failure."""
    while True:
        with suppress(InterruptedError):
            return h5py.File(path, "r", locking=False)


def locate(path: Path, names: Sequence[str] = ("image",)) -> list[Located]:
    """Where the rows of a shard of our own lie."""
    with damage_reported(path, "HDF5 file"), _open(path) as file:
        return [_locate(path, file, file[name]) for name in names]


def _locate(path: Path, file: h5py.File, images: h5py.Dataset) -> Located:
    if h5py.check_vlen_dtype(images.dtype) == np.uint8 and images.ndim == 1:
        references = read_references(path, images)
        return Located(*heap_ranges(path, references))
    if images.dtype != np.uint8:
        raise FormatError(
            f"{path}: dataset '{images.name}' has type {images.dtype}; uint8 or rows of uint8 needed."
        )
    base = _contiguous(path, images)
    if images.ndim == 1:
        return _flat(path, file, images, base)
    if images.ndim != 4 or images.shape[3] != 3:
        raise FormatError(f"{path}: dataset '{images.name}' has shape {images.shape}; (N, H, W, 3) needed.")
    length = int(np.prod(images.shape[1:]))
    offsets = np.uint64(base) + np.arange(len(images), dtype=np.uint64) * np.uint64(length)
    return Located(offsets, np.full(len(images), length, np.uint64))


def _contiguous(path: Path, dataset: h5py.Dataset) -> int:
    """File offset of a dataset that lies there in one piece."""
    base = dataset.id.get_offset()
    if base is not None and dataset.external is None:
        return int(base)
    filters = [name for name in (dataset.compression, "shuffle" if dataset.shuffle else None) if name]
    how = f"filtered by {', '.join(filters)}" if filters else f"stored in chunks of {dataset.chunks}"
    raise FormatError(
        f"{path}: dataset '{dataset.name}' is {how}, so its rows are no plain byte ranges. "
        f"Copy it into a contiguous dataset first (h5repack -l CONTI -f NONE)."
    )


def _flat(path: Path, file: h5py.File, data: h5py.Dataset, base: int) -> Located:
    """Encoded images back to back, with a dataset of N + 1 (or N) offsets beside them."""
    name = next((name for name in _OFFSETS if name in file), None)
    if name is None:
        raise FormatError(f"{path}: dataset '{data.name}' is flat, and there is no {' or '.join(_OFFSETS)}.")
    starts = np.asarray(file[name]).astype(np.int64).reshape(-1)
    labels = next((file[label] for label in _LABELS if label in file), None)
    if labels is not None and len(labels) == len(starts):
        starts = np.append(starts, len(data))
    lengths = np.diff(starts)
    if len(starts) == 0 or starts[0] < 0 or (lengths < 0).any() or starts[-1] > len(data):
        raise FormatError(
            f"{path}: dataset '{name}' does not rise from 0 to {len(data)}, the size of the data."
        )
    return Located(starts[:-1].astype(np.uint64) + np.uint64(base), lengths.astype(np.uint64))


def read_foreign(path: Path, column: str | None, kinds: Kinds) -> Foreign:
    """Byte ranges, labels, names and classes of an HDF5 file that others wrote.

    Raises:
        FormatError: no dataset of images, or one that is chunked, filtered or external.
    """
    with damage_reported(path, "HDF5 file"), _open(path) as file:
        images = _image_dataset(path, file, column)
        located = _locate(path, file, images)
        count = len(located.offsets)
        labels = next((file[name] for name in _LABELS if name in file and name != images.name), None)
        numbers = None
        if labels is not None and labels.shape[:1] == (count,) and labels.dtype.kind in "iu":
            numbers = np.asarray(labels).reshape(count, -1)[:, 0].astype(np.int64)
        keys = None
        if "path" in file and file["path"].shape == (count,):
            keys = [
                k.decode("utf-8", "backslashreplace") if isinstance(k, bytes) else str(k)
                for k in file["path"][:]
            ]
        names = file.attrs.get("classes", ())
        names = json.loads(names) if isinstance(names, str) else names
        classes = tuple(n.decode() if isinstance(n, bytes) else str(n) for n in names)
        picture = (images.shape[2], images.shape[1]) if images.ndim == 4 else None
        return Foreign(located, numbers, keys, classes, picture)


def _image_dataset(path: Path, file: h5py.File, column: str | None) -> h5py.Dataset:
    names = [name for name in file if isinstance(file[name], h5py.Dataset)]
    wanted = [column] if column is not None else [name for name in _IMAGES if name in names]
    if not wanted or wanted[0] not in names:
        raise FormatError(
            f"{path}: which dataset holds the images? Name it with --column. Found: {', '.join(names)}"
        )
    return file[wanted[0]]
