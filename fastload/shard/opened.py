"""What opening a packed dataset checks beside its manifest: sample ids, whose an index is, entry points."""

from __future__ import annotations

import operator
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from fastload._native import _C
from fastload.errors import FastloadError, FormatError
from fastload.machine.paths import exists
from fastload.shard.manifest import ENTRIES_NAME
from fastload.shard.paged import ALIGN, HEADER

__all__ = ["as_integer", "check_fields", "checked_id", "opened_entries"]


def checked_id(sample: Any, count: int) -> int:
    """A sample id as an int.

    Raises:
        TypeError: not an integer (a bool is none).
        IndexError: not in ``[0, count)``.
    """
    number = as_integer(sample)
    if not 0 <= number < count:
        legal = f"0 to {count - 1}" if count else "none"
        raise IndexError(f"Sample id {number} is out of range for {count} samples: legal are {legal}.")
    return number


def as_integer(index: Any) -> int:
    """An int of Python's or NumPy's, or an integer tensor of one element, as an int.

    Raises:
        TypeError: something else; also a bool, which Python counts as an integer.
    """
    if not isinstance(index, (bool, np.bool_)) and "bool" not in str(getattr(index, "dtype", "")):
        try:
            return operator.index(index)
        except TypeError:
            pass
    raise TypeError(f"A sample's index must be an integer. Found: {index!r} ({type(index).__name__}).")


def check_fields(path: Path, wanted: bytes) -> None:
    """Raise FormatError unless the index at ``path``, whose header is checked, has this digest of fields."""
    with open(path, "rb") as file:
        header = np.frombuffer(file.read(HEADER.itemsize), HEADER)[0]
        found = header["fields_digest"].tobytes()
        if wanted == found:
            file.seek(int(header["pages_offset"]) - ALIGN)
            found = file.read(len(found))
    if found != (wanted or bytes(len(found))):
        raise FormatError(
            f"{path} does not belong to this manifest: the manifest's 'fields' have digest "
            f"{wanted.hex() or 'none'}, the index has {found.hex()}. Restore both files from the same pack."
        )


_warned: set[Path] = set()  # entry points that were left out, said once each


def opened_entries(folder: Path, index: _C.Index) -> _C.Entries | None:
    """The JPEGs' entry points (``_C.Entries``). None without, and, with a warning, if the file is no use."""
    path = folder / ENTRIES_NAME
    if not exists(path):
        return None
    try:
        return _C.Entries(str(path), index)
    except FastloadError as error:
        if path not in _warned:
            _warned.add(path)
            warnings.warn(
                f"{error} The entry points are left out: pixels are the same, decoding takes longer. "
                f"'fastload index {folder} --entries' makes them anew.",
                stacklevel=4,
            )
        return None
