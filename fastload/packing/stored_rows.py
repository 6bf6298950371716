"""Samples of a folder in a store, opened in a copy of it."""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from fastload.errors import PackError
from fastload.machine.paths import exists
from fastload.packing.annotations.annotated_files import FileSamples
from fastload.packing.listing import Listing, Row, Totals
from fastload.packing.options import PackOptions
from fastload.packing.rows import Batch, Notes, Rows
from fastload.packing.sample_rows import SampleRows
from fastload.packing.stored import FolderCopy, Source, StorePlace

Again = tuple[Callable[[Source, PackOptions], Sequence[tuple[str, Rows]]], str, PackOptions]


class StoredRows(Rows):
    """Samples of a folder in a store, opened in a copy of it.

    Args:
        split: the split whose samples they are.
        rows: the samples of the copy.
        folder: the copy.
        again: opens the source, by its URL and the options, on a machine that does not have the copy.
    """

    walks = False

    def __init__(self, split: str, rows: SampleRows, folder: FolderCopy, again: Again) -> None:
        self._split, self._rows, self._copy, self._again = split, rows, folder, again
        self.schema, self.notes, self.files = rows.schema, rows.notes, folder
        self.root = str(folder.location).encode()
        self._fetched = b""  # where the files are, once they are on this machine

    def __len__(self) -> int:
        return len(self._rows)

    def __reduce__(self) -> Any:
        return _restored, (self._split, self._rows, self._copy, self._again)

    def show(self, options: PackOptions) -> StoredRows:
        self._rows.show(options)
        self.schema = self._rows.schema
        return self

    def listed(self, notes: Notes) -> Iterator[Row]:
        with self._copy.named():
            rows = self._rows.listed(notes)
            assert rows is not None
            for row in rows:
                yield self._copy.row(row, self._rows.root)

    def batches(
        self, start: int, stop: int | None, options: PackOptions, listing: Listing | None
    ) -> Iterator[Batch]:
        def words(entry: tuple[Any, ...]) -> Any:
            return (*entry[:-1], self._copy.words(entry[-1], self._fetched))

        with self._copy.named(self._fetched):
            if listing is not None and isinstance(self._rows, FileSamples):
                root, top = self._rows.root, self._fetched or self._copy.root
                self._rows.check(listing, start, stop, lambda n: os.path.relpath(os.path.join(root, n), top))
            for batch in self._rows.batches(start, stop, options, None):
                failures, left_out = list(map(words, batch.failures)), list(map(words, batch.left_out))
                yield replace(batch, failures=failures, left_out=left_out)

    def identity(self, options: PackOptions, totals: Totals | None) -> dict[str, Any] | None:
        return self._rows.identity(options, totals)

    def at(self, root: bytes) -> StoredRows:
        other, top = copy.copy(self), self._copy.root
        other._fetched = root
        other._rows = self._rows.moved(lambda path: root + path.removeprefix(top))
        return other


_opened: dict[Path, Mapping[str, Rows]] = {}  # sources that other machines opened, by their copies


def _restored(split: str, rows: SampleRows, folder: FolderCopy, again: Again) -> Rows:
    """Return pickled rows: with the copy that this machine has, or opened anew.

    Raises:
        PackError: the source has changed.
    """
    if exists(folder.path):
        return StoredRows(split, rows, folder, again)
    if folder.path not in _opened:
        find, url, options = again
        found_there = find(StorePlace(url, options.storage_options), options)
        _opened[folder.path] = {name: rows_.show(options) for name, rows_ in found_there}
    found = _opened[folder.path].get(split)
    if found is None or len(found) != len(rows) or found.schema != rows.schema:
        raise PackError(
            f"the source has changed since this pack was planned: {folder.location} has other samples. "
            "--restart throws the unfinished pack away."
        )
    return found
