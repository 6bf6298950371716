"""HDF5 shards: ``image`` (one variable-length uint8 row per record), ``label`` and ``path``, of length N."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import numpy.typing as npt

from fastload.errors import FormatError
from fastload.sample.fields import Text
from fastload.sample.plain import is_file, plain_value
from fastload.sample.schema import Field, Schema
from fastload.sample.values import NO_TEXT
from fastload.shard.columns import Chunk
from fastload.shard.formats import NOTHING_LOCATED, Foreign, Kinds, Located, ShardSpec, damage_reported

# ---- Datasets of natural types for a sample's further fields ----
# Numbers of one shape are one dataset of shape (N, ...); rows of numbers are one flat variable-length row,
# with the shape of one row in the attribute ``row``; texts are strings.

_CHUNK = 1024  # references (16 bytes each) per chunk
_AS_JSON = ("polygons", "texts")
_STRINGS = ("text", "json", *_AS_JSON)


def free_name(schema: Schema | None, name: str) -> str:
    """Return ``name``, with ``_`` appended until no field has that name."""
    taken = {field.name for field in schema} if schema is not None else set()
    while name in taken:
        name += "_"
    return name


def append_rows(dataset: h5py.Dataset, start: int, rows: npt.NDArray[Any]) -> None:
    """Write variable-length rows from row ``start`` on; the dataset grows if necessary."""
    if start + len(rows) > len(dataset):
        dataset.resize((start + len(rows),))
    # Not by slicing: h5py would treat rows of equal length as a two-dimensional array.
    target = dataset.id.get_space()
    target.select_hyperslab((start,), (len(rows),))
    dataset.id.write(h5py.h5s.create_simple((len(rows),)), target, rows)


class FieldDatasets:
    """The datasets of a schema's ``columns`` in one shard.

    Args:
        file: the shard.
        schema: its fields.
        check: called after each field of each call, so that a failed write is noticed before the next one.
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
        """Append the values of samples ``[start, start + n)``, for each field."""
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


# ---- A file that shields libhdf5 from failing writes ----
# When a write fails, libhdf5 (seen with 2.0) keeps the bytes, retries when the file is closed, fails again,
# and crashes the process with SIGSEGV in one case of three, at once or later. So it never learns of a
# failure: the first one is kept here, for the caller to raise, and later writes are kept in memory, so that
# libhdf5 reads back what it wrote. This is as fast as its own driver, and copies no records.

_Buffer = memoryview | bytes | bytearray


class WrittenFile:
    """A new file at ``path``, for h5py's "fileobj" driver: only its constructor raises.

    Attributes:
        error: the first failure; the file is unusable from then on.

    Raises:
        OSError: the file cannot be created.
    """

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o666)
        self._position = self._size = 0
        self._unwritten: list[tuple[int, bytes]] = []  # offset and bytes, in the order of writing
        self.error: OSError | None = None

    def close(self) -> None:
        """Close the file; it is not synced."""
        descriptor, self._descriptor = self._descriptor, -1
        self._unwritten.clear()
        if descriptor >= 0:
            try:
                os.close(descriptor)
            except OSError as error:
                self.error = self.error or error

    def check(self) -> None:
        """Raise the first failure, if there was one."""
        if self.error is not None:
            raise self.error

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self._size}[whence]
        self._position = base + offset
        return self._position

    def tell(self) -> int:
        return self._position

    def flush(self) -> None:
        pass

    def write(self, data: _Buffer) -> int:
        """Write all of it: to the file, or after a failure to memory."""
        view = memoryview(data).cast("B")
        done = 0
        try:
            while self.error is None and done < len(view):
                done += os.pwrite(self._descriptor, view[done:], self._position + done)
        except OSError as error:
            self.error = error
        if self.error is not None:
            self._unwritten.append((self._position + done, bytes(view[done:])))
        self._position += len(view)
        self._size = max(self._size, self._position)
        return len(view)

    def readinto(self, data: _Buffer) -> int:
        """Read what was written there; zeros if nothing was, or if it cannot be read."""
        view = memoryview(data).cast("B")
        start, done = self._position, 0
        try:
            while done < len(view) and (count := os.preadv(self._descriptor, [view[done:]], start + done)):
                done += count
        except OSError as error:
            self.error = self.error or error
        view[done:] = bytes(len(view) - done)
        for offset, written in self._unwritten:
            first, last = max(offset, start), min(offset + len(written), start + len(view))
            if first < last:
                view[first - start : last - start] = written[first - offset : last - offset]
        self._position += len(view)
        return len(view)

    def read(self, size: int = -1) -> bytes:
        """Exist for h5py, which requires it but uses :meth:`readinto`."""
        data = bytearray(self._size - self._position if size < 0 else size)
        return bytes(data[: self.readinto(data)])

    def truncate(self, size: int) -> int:
        """Resize the file to ``size`` bytes."""
        try:
            if self.error is None:
                os.ftruncate(self._descriptor, size)
        except OSError as error:
            self.error = error
        self._size = size
        return size


# ---- The heap of variable-length rows (HDF5 File Format Specification 3.0, III.E, IV.A) ----
# A row is stored as a 16-byte reference: length (u32), address of a global heap collection (u64), object
# number in it (u32). A collection is ``GCOL``, version 1, its size (u64), then objects: number (u16),
# reference count (u16), 4 reserved bytes, size (u64), and the data padded to 8 bytes.

REFERENCE = np.dtype([("length", "<u4"), ("collection", "<u8"), ("number", "<u4")])
_HEADER = 16  # of a collection, and of an object in it


def read_references(path: Path, dataset: h5py.Dataset) -> npt.NDArray[np.void]:
    """Read the raw references of a one-dimensional variable-length dataset, (N,) :data:`REFERENCE`.

    Raises:
        FormatError: the dataset has filters, or the file's addresses are not 8 bytes.
    """
    create = dataset.id.get_create_plist()
    if create.get_nfilters():
        name = create.get_filter(0)[3].decode("ascii", "replace")
        raise FormatError(
            f"{path}: dataset '{dataset.name}' is filtered by {name}, so its rows are no plain byte ranges. "
            f"Copy it without filters first (h5repack -f NONE)."
        )
    if dataset.file.id.get_create_plist().get_sizes() != (8, 8) or dataset.file.userblock_size:
        raise FormatError(
            f"{path}: files with addresses other than 8 bytes or a user block cannot be indexed."
        )
    count = len(dataset)
    if count * REFERENCE.itemsize > path.stat().st_size:  # a dataset never written has no pictures
        raise FormatError(
            f"{path}: dataset '{dataset.name}' says it has {count} rows, more than the file has room for. "
            "Copy those that have pictures first."
        )
    references = np.zeros(count, REFERENCE)
    if create.get_layout() == h5py.h5d.CONTIGUOUS:
        pieces = [(0, dataset.id.get_offset())]
    elif create.get_layout() == h5py.h5d.CHUNKED:
        infos = [dataset.id.get_chunk_info(i) for i in range(dataset.id.get_num_chunks())]
        pieces = [(info.chunk_offset[0], info.byte_offset) for info in infos]
    else:
        raise FormatError(f"{path}: dataset '{dataset.name}' has a compact or virtual layout; copy it first.")
    step = count if create.get_layout() == h5py.h5d.CONTIGUOUS else dataset.chunks[0]
    with open(path, "rb") as file:
        for first, offset in pieces:
            if offset is None or first >= count:
                continue
            file.seek(offset)
            part = np.fromfile(file, REFERENCE, min(step, count - first))
            references[first : first + len(part)] = part
    return references


def heap_ranges(
    path: Path, references: npt.NDArray[np.void]
) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.uint64]]:
    """Return file offsets and lengths of the rows, by walking each row's collection up to its object.

    All rows walk at once, one object per step, so there are as many steps as objects in the fullest
    collection, not as many as rows.

    Raises:
        FormatError: a reference that leads to no such object, or an object that is too short.
    """
    lengths = references["length"].astype(np.uint64)
    offsets = np.zeros(len(references), np.uint64)
    todo = np.flatnonzero(lengths)
    if not len(todo):
        return offsets, lengths
    data = np.memmap(path, np.uint8, "r")
    collection = references["collection"][todo]
    _check(path, _fits(collection, _HEADER, data.size))
    _check(path, _gather(data, collection, "<u4") == np.uint32(int.from_bytes(b"GCOL", "little")))
    size = _gather(data, collection + np.uint64(8), "<u8")
    _check(path, _fits(collection, size, data.size))
    end = collection + size
    position = collection + np.uint64(_HEADER)
    wanted = references["number"][todo]
    while len(todo):
        _check(path, position + np.uint64(_HEADER) <= end)
        number = _gather(data, position, "<u2")
        used = _gather(data, position + np.uint64(8), "<u8")
        start = position + np.uint64(_HEADER)
        _check(path, used <= end - start)
        found = number == wanted
        _check(path, ~found | (used >= lengths[todo]))
        offsets[todo[found]] = start[found]
        left = ~found
        _check(path, number[left] != 0)  # object 0 is the free space at the end
        padded = (used[left] + np.uint64(7)) // np.uint64(8) * np.uint64(8)
        position, end = start[left] + padded, end[left]
        todo, wanted = todo[left], wanted[left]
    return offsets, lengths


def _gather(
    data: npt.NDArray[np.uint8], offsets: npt.NDArray[np.uint64], kind: str
) -> npt.NDArray[np.unsignedinteger]:
    """Return little-endian integers at arbitrary offsets; the caller has checked the range."""
    width = np.dtype(kind).itemsize
    rows = np.ascontiguousarray(data[offsets[:, None] + np.arange(width, dtype=np.uint64)])
    values: npt.NDArray[np.unsignedinteger] = rows.view(kind)[:, 0]
    return values


def _fits(
    offsets: npt.NDArray[np.uint64], lengths: npt.NDArray[np.uint64] | int, size: int
) -> npt.NDArray[np.bool_]:
    """Return offset + length <= size, without overflow."""
    room = np.uint64(size) - np.minimum(offsets, np.uint64(size))
    inside: npt.NDArray[np.bool_] = (offsets <= np.uint64(size)) & (np.asarray(lengths, np.uint64) <= room)
    return inside


def _check(path: Path, good: npt.NDArray[np.bool_]) -> None:
    if not good.all():
        raise FormatError(
            f"{path}: a variable-length row points to no object of a global heap; the file is damaged."
        )


# ---- Shards ----

LISTS_HAVE_HEADS = True
_MAX_CLASS_ARRAY = 4000
_IMAGES = ("image", "images", "img", "x", "data")
_LABELS = ("label", "labels", "y", "target", "targets")
_OFFSETS = ("offset", "offsets", "indptr")


def data_file(path: Path) -> Path:
    """Return the path: the shard is one file."""
    return path


def shard_bytes(lengths: npt.NDArray[np.uint64]) -> int:
    """Estimate payload, a heap header and alignment, and about 256 bytes per record for the rest."""
    return int(lengths.sum()) + 352 * len(lengths) + (1 << 20)


class Writer:
    """A writer that appends rows by group; the chunked dataset is cut to the records that came."""

    def __init__(self, path: Path, spec: ShardSpec) -> None:
        self._under = WrittenFile(path)
        try:
            # 1.8's format: the oldest that stock readers still have, and the one read above.
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
            self._names = (index.name if index else "", label.name if label else "", self._names[2])
            self._raw = index is not None and not is_file(index, spec.raw)
            first, second = (free_name(spec.schema, f"{self._names[0]}_{side}") for side in self._sides)
            self._sides = (first, second)
            self._fields = FieldDatasets(self._file, spec.schema, self._under.check, spec.raw)
        self._labels: list[npt.NDArray[np.int64]] = []
        self._shapes: list[npt.NDArray[np.int32]] = []
        self._keys: list[bytes] = []
        self._count = 0
        if spec.size is not None:
            width, height = spec.size
            self._images = self._create("image", (spec.records, height, width, 3), np.uint8)
        elif self._names[0]:
            self._images = self._create(self._names[0], (spec.records,), h5py.vlen_dtype(np.uint8))
        else:
            self._images = None

    def _write_classes(self, classes: list[str]) -> None:
        # An attribute's array must fit into a 64 KB object header, 16 bytes per string; one string need not.
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
        elif self._images is not None:
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
        if self._size is None and self._images is not None:
            self._images.resize((self._count,))
        elif self._size is not None and self._count < len(self._images):
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
        """Move the others: skipped files leave rows unused, and a contiguous dataset cannot shrink."""
        self._file.move("image", "all")
        kept = self._create("image", (self._count, *self._images.shape[1:]), np.uint8)
        for row in range(self._count):
            kept[row] = self._images[row]
        del self._file["all"]
        self._images = kept


def _open(path: Path) -> h5py.File:
    """Open the file despite signals, which HDF5 itself treats as failures."""
    while True:
        with suppress(InterruptedError):
            return h5py.File(path, "r", locking=False)


def locate(path: Path, names: Sequence[str | None] = ("image",)) -> list[Located]:
    """Locate the rows of one of our shards."""
    with damage_reported(path, "HDF5 file"), _open(path) as file:
        return [NOTHING_LOCATED if name is None else _locate(path, file, file[name]) for name in names]


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
    """Return the file offset of a contiguous dataset."""
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
    """Locate encoded images back to back, with a dataset of N + 1 (or N) offsets beside them."""
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
    """Read byte ranges, labels, names and classes of an HDF5 file that others wrote.

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
