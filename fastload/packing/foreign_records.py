"""What ``fastload index`` makes of the records of one file that others wrote."""

from __future__ import annotations

import functools
import os
from collections import Counter
from collections.abc import Container, Iterator, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from fastload._native import _C
from fastload.errors import PackError
from fastload.machine.paths import read_at
from fastload.machine.sizes import counted
from fastload.packing.foreign_fields import kind_in_set
from fastload.packing.ingest import as_rows
from fastload.packing.names import encode_key
from fastload.packing.plan import MAX_LISTED
from fastload.packing.samples.pictures import HEAD, is_any, unfit
from fastload.packing.tables import Labels, read_table
from fastload.sample.fields import Image, Kind, Mask
from fastload.shard.codecs import RAW
from fastload.shard.columns import Chunk
from fastload.shard.formats import Foreign
from fastload.shard.index import RECORD

__all__ = ["LabelTable", "bad_records", "described", "kept", "key_of", "refuse_unfit"]

_CHUNK = 512  # records described in one call
_MOST = np.iinfo(np.uint32).max


class LabelTable:
    """Labels by key, from a CSV or JSONL file."""

    def __init__(self, path: Path) -> None:
        labels = Labels.of_table(path, can_have_fields=False)
        self.path, self.classes = path, labels.classes
        self._numbers = {key: labels.number(label) for key, label in read_table(path)}

    def label(self, key: str, file: object) -> int:
        """The label of one key.

        Raises:
            PackError: the table does not have it.
        """
        try:
            return self._numbers[key]
        except KeyError:
            raise PackError(f"{self.path} has no label for the record {key!r} of {file}.") from None


def described(file: Path, foreign: Foreign) -> tuple[npt.NDArray[np.void], dict[int, str]]:
    """Index entries of all records, and those that are none, with reasons (length 0). The entries of further
    pictures are filled in likewise."""
    located = foreign.located
    records = np.zeros(len(located.offsets), RECORD)
    records["offset"] = located.offsets
    if foreign.picture is not None:
        records["width"], records["height"] = foreign.picture
        records["codec"], records["channels"] = RAW, 3
    failures = dict(foreign.bad)
    for number, reason in _describe(file, records, located.lengths).items():
        failures.setdefault(number, reason)
    for name, values in foreign.fields.items():
        if values.chunk.records is not None:
            found = _describe(file, values.chunk.records, values.chunk.lengths)
            for number, reason in found.items():
                failures.setdefault(number, f"field {name!r}: {reason}")
    for number in failures:
        records["length"][number] = 0
    return records, failures


def refuse_unfit(
    file: Path,
    foreign: Foreign,
    records: npt.NDArray[np.void],
    failures: dict[int, str],
    asked: Container[str],
) -> None:
    """Add the pictures that cannot be opened as their field says to those that are none.

    Args:
        file, foreign: what they are of.
        records, failures: as :func:`described` gives them.
        asked: the fields whose kinds users gave.
    """
    kind = kind_in_set(foreign.name, foreign.kind or Image(), asked)
    found = dict(_unfit(file, records, kind))
    for name, values in foreign.fields.items():
        if values.chunk.records is not None:
            kind = kind_in_set(name, values.field.kind, asked)
            for number, reason in _unfit(file, values.chunk.records, kind):
                found.setdefault(number, f"field {name!r}: {reason}")
    for number, reason in found.items():
        failures.setdefault(number, reason)
        records["length"][number] = 0


def _describe(file: Path, records: npt.NDArray[np.void], lengths: npt.NDArray[np.uint64]) -> dict[int, str]:
    records["length"] = np.minimum(lengths, np.uint64(_MOST))
    failures = {}
    for start in range(0, len(records), _CHUNK):
        found = _C.describe_file(os.fsencode(file), as_rows(records[start : start + _CHUNK]))
        for number, reason in found:
            failures[start + number] = reason.decode("utf-8", "backslashreplace")
    return failures


def _unfit(file: Path, records: npt.NDArray[np.void], kind: Kind) -> Iterator[tuple[int, str]]:
    """The pictures that cannot be opened as their field says, and why."""
    if not isinstance(kind, (Image, Mask)) or is_any(kind):
        return
    with open(file, "rb") as opened:
        for number, record in enumerate(records):
            length, offset = int(record["length"]), int(record["offset"])
            if length:
                part = functools.partial(read_at, opened.fileno(), length, offset)
                reason = unfit(kind, record, read_at(opened.fileno(), min(HEAD, length), offset), part)
                if reason:
                    yield number, reason


def kept(chunk: Chunk, good: npt.NDArray[np.bool_]) -> Chunk:
    """The values of the records for which ``good`` is true."""
    lengths = chunk.lengths[good]
    if chunk.records is not None:
        return Chunk(chunk.data, lengths, chunk.records[good])
    return Chunk(chunk.data[np.repeat(good, chunk.lengths.astype(np.int64))], lengths)


def key_of(name: str) -> tuple[bytes, bool]:
    """The key of a record's name in its file, and whether it had to be percent-encoded."""
    try:
        return encode_key(name.encode("utf-8", "surrogateescape"))
    except UnicodeEncodeError:
        return name.encode("utf-8", "backslashreplace"), False


def bad_records(failed: Sequence[tuple[str, int, str]], keys: Sequence[str]) -> str:
    """The message about records of one file, as (file name, position, reason)."""
    lines = [f"  {name}, record {i} ({keys[i]}): {reason}" for name, i, reason in failed[:MAX_LISTED]]
    reasons = Counter(reason for _, _, reason in failed)
    more = f"\n  ... {len(failed)} in all" if len(failed) > MAX_LISTED else ""
    return (
        f"not usable as images: {counted(len(failed), 'record')} ({counted(len(reasons), 'reason')}):\n"
        + "\n".join(lines)
        + f"{more}\nLeave them out with --on-error skip."
    )
