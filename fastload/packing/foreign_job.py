"""Indexing one file that others wrote: its part of the index, in this process or in several."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from fastload.errors import FormatError, PackError
from fastload.machine.paths import exists, is_dir
from fastload.packing.entries import DEFAULT_SPACING
from fastload.packing.files import remove
from fastload.packing.foreign_files import format_of_file
from fastload.packing.foreign_records import LabelTable, bad_records, described, kept, key_of, refuse_unfit
from fastload.packing.foreign_stored import StoredTar
from fastload.packing.names import ESCAPED
from fastload.packing.part import ShardPart
from fastload.packing.shard_job import Advance, Closes, Free
from fastload.sample.fields import Image
from fastload.sample.schema import Field
from fastload.shard.formats import Foreign, Kinds, Readable, readable_of

if TYPE_CHECKING:
    from fastload.packing.foreign_table import ForeignTable

__all__ = ["TABLE", "IndexJob", "IndexOptions", "Source"]

#: The format of which all files are one table, read in their order.
TABLE = "arrow"
Source = Path | StoredTar


@dataclass(frozen=True)
class IndexOptions:
    """Options of :func:`fastload.packing.foreign.index_files`; the command line has the same names.

    Args:
        column: the column or HDF5 dataset of the images; None: found by type and name.
        labels: a CSV or JSONL file of key and label, for files without labels.
        fields: (name, kind) of what else files have, as ("seg.png", "mask"); "none" leaves it out.
        on_error: "raise" stops at records that are not images, "skip" leaves them out and lists them.
        restart: replace another index that is there.
        entries: pixels between the JPEGs' entry points, 0: one for each row of MCUs, None: make none.
        storage_options: of URLs: credentials, endpoint and so on.
        num_proc: processes that read files; None: one a CPU, fewer for small files, one for tables.
    """

    column: str | None = None
    labels: Path | None = None
    fields: tuple[tuple[str, str], ...] = ()
    on_error: str = "raise"
    restart: bool = False
    entries: int | None = DEFAULT_SPACING
    storage_options: Mapping[str, Any] | None = None
    num_proc: int | None = None


@dataclass(frozen=True)
class IndexJob:
    """All that a process needs to index any of the files.

    What is known of each goes to a part file, whose ``facts`` say what must be the same in all.
    """

    format_name: str
    shards: Sequence[Source]
    work: Path
    options: IndexOptions
    kinds: Kinds

    def part_path(self, number: int) -> Path:
        """Where the part of a file is."""
        return self.work / f"{number}.part"

    def is_finished(self, number: int) -> bool:
        """Whether the part of a file is there, and the file as it was then."""
        path, shard = self.part_path(number), self.shards[number]
        if self.format_name == TABLE or not exists(path):
            return False
        try:
            part = ShardPart.read(path)
            return isinstance(shard, StoredTar) or [part.shard_bytes, part.facts["ns"]] == self._state(shard)
        except PackError:
            return False

    def claim(self, number: int) -> Closes | None:
        """The right to index a file: who holds the folder has it."""
        return Free()

    def write(self, number: int, advance: Advance) -> ShardPart:
        """Index a file.

        Raises:
            FormatError: one of another kind, or records in it that are no plain byte ranges.
            PackError: records that are not images; the file was changed meanwhile.
        """
        path = self.shards[number]
        state = [path.size, 0] if isinstance(path, StoredTar) else self._state(path)
        with self._here(number) as file:
            foreign = self._format.read_foreign(file, self.options.column, self.kinds)
            if self._columns is not None:
                foreign = self._columns.completed(file, foreign, self.options.column, self._format)
            data = file if isinstance(path, StoredTar) else Path(self.data_file(path))
            part = self._part(path, data, foreign, state)
        if not isinstance(path, StoredTar) and self._state(path) != state:
            raise PackError(f"{path} was changed while it was indexed. Index it again when it is finished.")
        advance(1, part.shard_bytes)
        return part

    def publish(self, number: int, part: ShardPart) -> None:
        """Write the part: now the file counts as done."""
        part.write(self.part_path(number))

    def discard(self, number: int) -> None:
        """Nothing is left of a file before its part is written."""

    def data_file(self, path: Source) -> str:
        """Where the records of a file are, as the manifest says it."""
        if isinstance(path, StoredTar):
            return str(path)
        return str((self._format.data_file(path) if is_dir(path) else path).resolve())

    @cached_property
    def _format(self) -> Readable:
        return readable_of(self.format_name)

    @cached_property
    def table(self) -> LabelTable | None:
        """The labels that users gave."""
        return LabelTable(self.options.labels) if self.options.labels else None

    @cached_property
    def _columns(self) -> ForeignTable | None:
        if self.format_name != TABLE:
            return None
        from fastload.packing.foreign_table import foreign_table  # and with it pyarrow

        tables = [shard for shard in self.shards if isinstance(shard, Path)]
        return foreign_table(tables, dict(self.options.fields), self.options.column)

    @contextmanager
    def _here(self, number: int) -> Iterator[Path]:
        path = self.shards[number]
        if not isinstance(path, StoredTar):
            yield path
            return
        with path.here(self.work / f"{number}.tar") as copy:
            if format_of_file(copy) != self.format_name:
                raise FormatError(f"{path} is no tar, of which alone an index by URL can be.")
            yield copy

    def _part(self, path: Source, file: Path, foreign: Foreign, state: list[int]) -> ShardPart:
        """What is found in a file of that state whose records are in ``file``."""
        size, ns = state
        entries, failures = described(file, foreign)
        refuse_unfit(file, foreign, entries, failures, self.kinds)
        own = _own_keys(path, foreign)
        keys = [key.decode() for key, _ in own]
        less = [(i, which, why) for i, found in foreign.lessened.items() for which, why in found]
        if self.options.on_error == "raise":
            for i, which, why in less:
                failures.setdefault(i, f"{which}: {why}")
        failed = [(path.name, i, reason) for i, reason in sorted(failures.items())]
        if failed and self.options.on_error == "raise":
            raise PackError(bad_records(failed, keys))
        skipped = [(f"{name}: {keys[i]}", reason) for name, i, reason in failed]
        skipped += [(f"{path.name}: {name}", reason) for name, reason in foreign.left_out]
        entries["label"] = self._labels(path, foreign, keys)
        entries["flags"][[escaped for _, escaped in own]] |= ESCAPED
        good = entries["length"] > 0
        names = [key for (key, _), whole in zip(own, good.tolist(), strict=True) if whole]
        picture = Field(foreign.name, foreign.kind or Image())
        facts = {
            "ns": ns,
            "classes": list(foreign.classes),
            "labelled": foreign.labels is not None,
            "picture": picture.to_json(),
            "fields": [values.field.to_json() for values in foreign.fields.values()],
        }
        return ShardPart(
            entries[good], names, skipped, size, facts=facts,
            further=tuple(kept(values.chunk, good) for values in foreign.fields.values()),
            left_out=[(f"{path.name}: {keys[i]}", which, why) for i, which, why in less],
        )  # fmt: skip

    def _labels(self, path: Source, foreign: Foreign, keys: list[str]) -> npt.NDArray[np.int64]:
        if self.table is not None:
            return np.array([self.table.label(key, path) for key in keys], np.int64)
        labels = foreign.labels if foreign.labels is not None else np.full(len(keys), -1, np.int64)
        limit = len(foreign.classes) or np.iinfo(np.int32).max
        if len(labels) != len(keys) or (len(labels) and not -1 <= labels.min() <= labels.max() < limit):
            raise FormatError(f"{path}: there are labels outside [-1, {limit}), or not one a record.")
        return labels

    def _state(self, path: Path) -> list[int]:
        """Bytes of a file of this machine, and when it was written."""
        status = os.stat(self.data_file(path))
        return [status.st_size, status.st_mtime_ns]

    def tidy(self) -> None:
        """Remove copies of files that a killed process has left."""
        for path in self.work.glob("*.tar"):
            remove(path)


def _own_keys(path: Source, foreign: Foreign) -> list[tuple[bytes, bool]]:
    if foreign.keys is not None:
        return [key_of(key) for key in foreign.keys]
    return [key_of(f"{path.stem}/{i:08d}") for i in range(len(foreign.located.offsets))]
