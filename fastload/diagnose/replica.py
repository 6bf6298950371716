"""Some samples' records in files of this machine: where the set's own have them, and empty elsewhere."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fastload._native import _C
from fastload.dataset.mixture import MixedFiles
from fastload.errors import ChecksumError
from fastload.machine.positional import write_at
from fastload.shard.dataset import PackedFiles

__all__ = ["Replica", "can_be_replicated"]

_READERS = 32
_LEAST = 32  # records, however long they take


def can_be_replicated(dataset: Any) -> bool:
    """Whether all that its samples have is one record each, and no view (a Subset) stands before it."""
    parts = getattr(dataset, "parts", ())
    known = isinstance(dataset, (PackedFiles, MixedFiles))
    return known and all(isinstance(part, PackedFiles) and part.is_plain for part in parts)


class Replica:
    """Sparse files of the shards' sizes, with the records that were asked for.

    Args:
        dataset: of which :func:`can_be_replicated` holds.
        folder: to make files in.
    """

    def __init__(self, dataset: Any, folder: Path) -> None:
        self._of = dataset
        self._paths: list[list[Path]] = []
        for number, part in enumerate(dataset.parts):
            place = folder / f"part{number}"
            place.mkdir(parents=True)
            paths = [place / f"{at}" for at in range(len(part.manifest.shards))]
            for path, shard in zip(paths, part.manifest.shards, strict=True):
                with open(path, "wb") as file:
                    file.truncate(shard.size)
            self._paths.append(paths)
        self._ends = np.cumsum([len(part) for part in dataset.parts])

    def place(self, sample: int) -> tuple[Path, int, int]:
        """File, offset and bytes of a sample's record."""
        part, number = self._of.locate(sample)
        record = part.record(number)
        at = int(np.searchsorted(self._ends, sample, "right"))  # one dataset may be mixed with itself
        return self._paths[at][int(record["shard"])], int(record["offset"]), int(record["length"])

    def fill(self, ids: npt.NDArray[np.int64], seconds: float, most: int) -> npt.NDArray[np.int64]:
        """Bring records here for so long, or until they have ``most`` bytes; the ids of those that came.

        Raises:
            RemoteError: the store does not give them.
        """
        end, taken, come = time.monotonic() + seconds, 0, []
        with ThreadPoolExecutor(_READERS) as pool:
            for begin in range(0, len(ids), _READERS):
                wave = ids[begin : begin + _READERS]
                sizes = list(pool.map(self._bring, wave.tolist()))
                come.append(wave[np.array(sizes) > 0])
                taken += sum(sizes)
                if taken > most or (begin + len(wave) >= _LEAST and time.monotonic() > end):
                    break
        return np.concatenate(come) if come else ids[:0]

    def _bring(self, sample: int) -> int:
        """The bytes of its record; 0: it is damaged."""
        part, number = self._of.locate(sample)
        try:
            data = part.reader.read(number)
        except ChecksumError:
            return 0
        path, offset, _ = self.place(sample)
        descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
        try:
            write_at(descriptor, data, offset)
        except OSError as error:
            raise OSError(error.errno, f"{error.strerror}, for records of trials", str(path)) from error
        finally:
            os.close(descriptor)
        return len(data)

    def sync(self) -> None:
        """What was written is on the disk, so that its pages can be dropped."""
        for path in (path for paths in self._paths for path in paths):
            with open(path, "rb") as file:
                os.fsync(file.fileno())

    def dataset(self) -> Any:
        """The dataset, whose records are read here; others than those that came are damaged."""
        parts = [_read_from(part, paths) for part, paths in zip(self._of.parts, self._paths, strict=True)]
        if isinstance(self._of, PackedFiles):
            return parts[0]
        other = object.__new__(type(self._of))
        other.__dict__ |= self._of.__dict__ | {"parts": tuple(parts)}
        return other


def _read_from(part: PackedFiles, paths: Sequence[Path]) -> PackedFiles:
    other = object.__new__(type(part))
    other.__dict__ |= part.__dict__
    shards = zip(paths, part.manifest.shards, strict=True)
    other.reader = _C.Reader(part.index, [(str(path), shard.size) for path, shard in shards])
    return other
