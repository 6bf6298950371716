"""``fastload drop``: samples of a set marked as dropped, as its next generation; nothing is deleted."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from fastload.errors import PackError
from fastload.machine.paths import exists
from fastload.machine.sizes import counted
from fastload.packing.files import failed_writes_reported, require_space
from fastload.packing.switch import Switch, changing, link, next_generation
from fastload.shard.dataset import PackedFiles, as_integer
from fastload.shard.generations import DROPPED, mark_of, write_dropped
from fastload.shard.manifest import Manifest, entries_name, index_name

_SHOWN = 20  # ids in a message
_MOST = 2**62  # no set has as many
_RANGE = re.compile(r"(\d+)(?:-(\d+))?")
Ids = npt.NDArray[np.int64]


@dataclass(frozen=True)
class DropResult:
    """A set without some more samples."""

    output: Path
    manifest: Manifest
    dropped: int  # samples that were dropped now
    before: int  # of those that were named, dropped before
    left: int  # samples that remain


def parse_ids(words: Iterable[str], count: int) -> Ids:
    """Return the sample ids that words like ``5`` and ``17-20`` name (the last one of a range included).

    Args:
        words: numbers and ranges.
        count: sample ids of the set.

    Raises:
        PackError: a word is neither a number nor a range, or a range goes beyond the set.
    """
    found = []
    for word in words:
        match = _RANGE.fullmatch(word.strip())
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
        if first > last or last >= _MOST:
            raise PackError(
                f"sample ids are numbers and ranges with their last one, as 5 17-20. Found: {word!r:.200}."
            )
        if first < last and last >= count:
            raise PackError(
                f"the range {word!r:.200} goes beyond the set's sample ids, 0 to {count - 1}. Nothing was "
                "dropped."
            )
        found.append(np.arange(first, last + 1))
    return np.concatenate(found) if found else np.zeros(0, np.int64)


def ids_of_keys(folder: str | os.PathLike[str], keys: Iterable[str]) -> Ids:
    """Return the ids of a set's samples that have these keys.

    Raises:
        PackError: a key that no sample has.
    """
    dataset = PackedFiles(folder, entries=False)
    wanted = {key.encode(): key for key in keys}
    ids: dict[bytes, list[int]] = {}
    for sample in range(dataset.num_ids):
        key = bytes(dataset.index.key(sample))
        if key in wanted:
            ids.setdefault(key, []).append(sample)
    unknown = [text for key, text in wanted.items() if key not in ids]
    if unknown:
        raise PackError(
            f"no sample of {folder} has the {counted(len(unknown), 'key')} {_some(unknown)}. Keys are paths "
            "below the source folder, as dataset.key(i) says them."
        )
    return np.array(sorted(sample for some in ids.values() for sample in some), np.int64)


def drop(folder: str | os.PathLike[str], ids: Iterable[int]) -> DropResult:
    """Mark samples of a packed set as dropped; the others keep their ids and their relative order.

    Nothing is deleted: the earlier generation can still be opened, and jobs that have the set open go on with
    it. ``fastload pack SET OUTPUT`` makes a set without the dropped samples. A kill at any moment leaves the
    old generation or the new one; the same call finishes.

    Args:
        folder: the packed dataset.
        ids: sample ids. Those that were dropped before are counted, and change nothing.

    Raises:
        TypeError: an id is no integer.
        PackError: unknown ids, no sample would remain, a set in a store, a full disk, another process at
            work.
        FormatError: the folder is not a packed dataset.
    """
    wanted = np.unique(np.array([min(max(as_integer(one), -1), _MOST) for one in ids], np.int64))
    with changing(folder, "drop samples of") as path:
        dataset = PackedFiles(path, entries=False)
        old = dataset.manifest
        unknown = wanted[(wanted < 0) | (wanted >= dataset.num_ids)]
        if len(unknown):
            raise PackError(
                f"{path} has no sample with the id {_some(unknown.tolist())}: its ids are 0 to "
                f"{dataset.num_ids - 1}. Nothing was dropped."
            )
        new = np.setdiff1d(wanted, dataset.dropped)
        left = len(dataset) - len(new)
        if not len(new):
            return DropResult(path, old, 0, len(wanted), left)
        if not left:
            raise PackError(f"{path} would have no sample left. Nothing was dropped.")
        manifest = _dropped(path, dataset, new)
        return DropResult(path, manifest, len(new), len(wanted) - len(new), left)


def _dropped(path: Path, dataset: PackedFiles, ids: Ids) -> Manifest:
    """Write the new generation's files and its manifest."""
    old, generation = dataset.manifest, dataset.manifest.generation + 1
    entries = np.zeros(len(ids), DROPPED)
    entries["id"], entries["generation"] = ids, generation
    entries = np.sort(np.concatenate([dataset.all_dropped, entries]), order="id")
    index = index_name(generation)
    file, points = f"dropped{mark_of(generation)}.fli", entries_name(index)
    switch = Switch(path, generation, (index, points, file))
    require_space(path, entries.nbytes + (1 << 16))
    switch.announce()
    try:
        with failed_writes_reported(path / file, entries.nbytes):
            dropped = write_dropped(path / file, entries)
            # The same index: an older version, which knows no drops, must not find it by its name.
            link(path / old.index_name, path / index)
            if exists(path / old.entries_name):
                link(path / old.entries_name, path / points)
        manifest = next_generation(old, dropped=dropped)
    except BaseException:
        switch.undo()
        raise
    switch.finish(old, manifest)
    return manifest


def _some(values: list[int] | list[str]) -> str:
    shown = ", ".join(map(str, values[:_SHOWN]))
    return shown + (", ..." if len(values) > _SHOWN else "")
