"""Where HDF5 keeps the bytes of variable-length rows (HDF5 File Format Specification 3.0, III.E and IV.A).

A row is stored as a 16-byte reference: length (u32), address of a global heap collection (u64), object
number in it (u32). A collection is ``GCOL``, version 1, its size (u64), then objects: number (u16),
reference count (u16), 4 reserved bytes, size (u64), and the data padded to 8 bytes.
"""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np
import numpy.typing as npt

from fastload.errors import FormatError

__all__ = ["REFERENCE", "heap_ranges", "read_references"]

REFERENCE = np.dtype([("length", "<u4"), ("collection", "<u8"), ("number", "<u4")])
_HEADER = 16  # of a collection, and of an object in it


def read_references(path: Path, dataset: h5py.Dataset) -> npt.NDArray[np.void]:
    """The raw references of a one-dimensional variable-length dataset, (N,) :data:`REFERENCE`.

    Raises:
        FormatError: the dataset has filters, or a file whose addresses are not 8 bytes.
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
    if count * REFERENCE.itemsize > path.stat().st_size:  # what was never written has no pictures either
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
    """File offsets and lengths of the rows, by walking each row's collection up to its object.

    All rows walk at once, one object a step, so the steps are as many as the objects of the fullest
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
    """Little-endian integers at arbitrary offsets; the caller has checked the range."""
    width = np.dtype(kind).itemsize
    rows = np.ascontiguousarray(data[offsets[:, None] + np.arange(width, dtype=np.uint64)])
    values: npt.NDArray[np.unsignedinteger] = rows.view(kind)[:, 0]
    return values


def _fits(
    offsets: npt.NDArray[np.uint64], lengths: npt.NDArray[np.uint64] | int, size: int
) -> npt.NDArray[np.bool_]:
    """offset + length <= size, without overflow."""
    room = np.uint64(size) - np.minimum(offsets, np.uint64(size))
    inside: npt.NDArray[np.bool_] = (offsets <= np.uint64(size)) & (np.asarray(lengths, np.uint64) <= room)
    return inside


def _check(path: Path, good: npt.NDArray[np.bool_]) -> None:
    if not good.all():
        raise FormatError(
            f"{path}: a variable-length row points to no object of a global heap; the file is damaged."
        )
