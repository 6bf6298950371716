"""Lists of pictures in files that others wrote: the entries of pictures that lie where they are."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from fastload.sample.fields import MAX_VALUE_BYTES
from fastload.shard.codecs import NO_LIST_FLAG
from fastload.shard.columns import Chunk
from fastload.shard.index import RECORD

_NOTHING = np.zeros(0, np.uint8)


def lists_of(
    offsets: npt.NDArray[np.integer[Any]],
    lengths: npt.NDArray[np.integer[Any]],
    there: npt.NDArray[np.bool_],
    counts: npt.NDArray[np.int64],
    gone: npt.NDArray[np.bool_],
) -> tuple[Chunk, dict[int, str]]:
    """Return lists of pictures, with offsets, lengths and labels of their entries, and the samples that have
    pictures which no entry can describe, with reasons.

    Args:
        offsets, lengths, there: of each place of all lists: where its picture's bytes are in the file, how
            many, and whether it has a picture.
        counts: the places of each sample's list.
        gone: whether a sample has no list at all; then it has no places either.
    """
    wrong = np.flatnonzero(there & ((lengths == 0) | (lengths > MAX_VALUE_BYTES)))
    ends = np.cumsum(counts)
    owners = np.searchsorted(ends, wrong, "right")
    bad = {
        int(owner): f"picture {entry - int(ends[owner] - counts[owner])} has {int(lengths[entry])} bytes; "
        f"legal are 1 to {MAX_VALUE_BYTES}"
        for owner, entry in zip(owners[::-1].tolist(), wrong[::-1].tolist(), strict=True)
    }
    there = there & (lengths > 0) & (lengths <= MAX_VALUE_BYTES)
    places = counts + gone  # a list that there is not has one entry, which says so
    records = np.zeros(int(places.sum()), RECORD)
    records["label"] = -1
    begins = np.cumsum(places) - places
    records["flags"][begins[gone]] = NO_LIST_FLAG
    of_list = np.ones(len(records), np.bool_)
    of_list[begins[gone]] = False
    rows = np.flatnonzero(of_list)[there]
    records["offset"][rows], records["length"][rows] = offsets[there], lengths[there]
    sizes = np.append(0, np.cumsum(records["length"], dtype=np.uint64)).astype(np.uint64)
    stops = np.cumsum(places)
    return Chunk(_NOTHING, sizes[stops] - sizes[stops - places], records, places), bad


def lists_kept(chunk: Chunk, good: npt.NDArray[np.bool_]) -> Chunk:
    """Return the lists of the samples for which ``good`` is true; their pictures stay where they are."""
    assert chunk.records is not None
    assert chunk.counts is not None
    entries = np.repeat(good, chunk.counts)
    return Chunk(chunk.data, chunk.lengths[good], chunk.records[entries], chunk.counts[good])


def owner_of(chunk: Chunk, entry: int) -> tuple[int, str]:
    """Return the sample that has an entry, and which of its pictures it is, in words."""
    if chunk.counts is None:
        return entry, ""
    ends = np.cumsum(chunk.counts)
    sample = int(np.searchsorted(ends, entry, "right"))
    return sample, f"picture {entry - int(ends[sample] - chunk.counts[sample])}: "
