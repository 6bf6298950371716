"""A packed dataset, opened: classes, labels and records by sample id."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fastload._native import _C
from fastload.errors import FormatError, ShardTruncated
from fastload.shard.index import RECORD
from fastload.shard.manifest import ENTRIES_NAME, INDEX_NAME, Manifest

__all__ = ["PackedDataset"]


class PackedDataset:
    """The records of a packed folder, by sample id in ``[0, len(dataset))``.

    Opening maps the index and checks its header; shards are opened when their first record is read.

    Args:
        folder: what ``fastload pack`` or ``fastload index`` made.
        entries: open the JPEGs' entry points, too, where there are any.

    Raises:
        FormatError: not a packed dataset, or damaged.
        ShardError: a file cannot be opened.
    """

    def __init__(self, folder: str | os.PathLike[str], *, entries: bool = True) -> None:
        self.folder = Path(folder).absolute()
        self.manifest = Manifest.read(self.folder)
        path = self.folder / INDEX_NAME
        self.index = _C.Index(str(path))
        if len(self.index) != self.manifest.num_records or self.index.digest != self.manifest.index_crc:
            raise FormatError(
                f"{path} does not belong to this manifest: it has {len(self.index)} records and digest "
                f"{self.index.digest:#010x}, the manifest says {self.manifest.num_records} and "
                f"{self.manifest.index_crc:#010x}. Restore both files from the same pack."
            )
        shards = [(str(self.folder / shard.file), shard.size) for shard in self.manifest.shards]
        for name, size in shards:
            found = os.stat(name).st_size if os.path.exists(name) else None
            if found != size:
                state = "is missing" if found is None else f"has {found} bytes"
                raise ShardTruncated(f"{name} {state}, the manifest says {size} bytes. Restore the shard.")
        self.reader = _C.Reader(self.index, shards)
        path = self.folder / ENTRIES_NAME
        self.entries = _C.Entries(str(path), self.index) if entries and path.exists() else None
        #: The node cache's file that records come from (``_C.CacheFile``), None: none; see with_caches().
        self.cache: Any = None

    def __reduce__(self) -> tuple[type[PackedDataset], tuple[Path]]:
        return PackedDataset, (self.folder,)

    def __len__(self) -> int:
        return self.manifest.num_records

    def __repr__(self) -> str:
        return f"PackedDataset({str(self.folder)!r}, {len(self)} records, {len(self.classes)} classes)"

    def with_caches(self, caches: Sequence[Any]) -> PackedDataset:
        """This dataset for one user of a cache file: its records come from there, if they are there, and
        those that are read are put there. Files, and what has been checked of them, are shared.

        Args:
            caches: one ``_C.CacheFile`` of this very dataset, as it was packed; or None, for itself. The file
                is in use as long as the result lives.

        Raises:
            ValueError: it is another dataset's.
        """
        (cache,) = caches
        if cache is None:
            return self
        index = _C.Index(self.index, cache)
        other = object.__new__(type(self))
        other.__dict__ |= self.__dict__ | {
            "index": index,
            "reader": _C.Reader(self.reader, index, cache),
            "entries": _C.Entries(self.entries, cache) if self.entries is not None else None,
            "cache": cache,
        }
        return other

    @property
    def parts(self) -> tuple[PackedDataset, ...]:
        """The packed folders it consists of: itself; see :func:`fastload.mix`."""
        return (self,)

    def locate(self, sample: int) -> tuple[PackedDataset, int]:
        """The packed folder that holds a sample, and its id there."""
        return self, sample

    @property
    def sources(self) -> list[tuple[Any, Any, list[int]]]:
        """What ``_C.Engine`` reads: reader, entry points, and what stands for each label ([]: itself)."""
        return [(self.reader, self.entries, [])]

    @property
    def id(self) -> str:
        """Dataset id, 32 hex digits: the same data give the same id."""
        return self.manifest.id

    @property
    def classes(self) -> list[str]:
        """Class names; a label is an index into this list."""
        return list(self.manifest.classes)

    @cached_property
    def class_to_idx(self) -> dict[str, int]:
        """Label by class name."""
        return {name: label for label, name in enumerate(self.manifest.classes)}

    @property
    def records(self) -> npt.NDArray[np.void]:
        """All index entries, a read-only (n,) structured array (``fastload.shard.index.RECORD``)."""
        return self.index.records().view(RECORD)[:, 0]

    def record(self, sample: int) -> np.void:
        """One index entry (``fastload.shard.index.RECORD``)."""
        found: np.void = np.frombuffer(self.index.record(sample), RECORD)[0]
        return found

    @cached_property
    def labels(self) -> npt.NDArray[np.int64]:
        """Label of every sample, (n,) int64; -1 where there is none."""
        return self.records["label"].astype(np.int64)

    def key(self, sample: int) -> str:
        """The record's path in the source folder."""
        return str(self.index.key(sample).decode("utf-8", "replace"))

    def read(self, sample: int) -> bytes:
        """The record's bytes as they were packed; checked against their CRC-32C on first read."""
        return bytes(self.reader.read(sample))

    def __getitem__(self, sample: int) -> tuple[bytes, int]:
        """Encoded bytes and label of one sample."""
        sample = range(len(self))[sample]
        return self.read(sample), int(self.record(sample)["label"])
