"""Writing one shard: read, describe, write, locate, check; then publish it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np
import numpy.typing as npt

from fastload._native import _C
from fastload.errors import PackError
from fastload.machine.sizes import counted
from fastload.packing.coefficients import FACTS, Tally
from fastload.packing.files import failed_writes_reported, publish, remove, temporary_of
from fastload.packing.ingest import GROUP_BYTES, Group, as_rows, read_groups
from fastload.packing.listing import Listing
from fastload.packing.options import PackOptions
from fastload.packing.part import ShardPart
from fastload.packing.plan import WORK_NAME, PackPlan
from fastload.shard.formats import Format, ShardSpec, Writer, format_of
from fastload.shard.index import RECORD

if TYPE_CHECKING:
    from fastload.packing.store_source import StoreFiles

__all__ = ["Advance", "BadFiles", "Closes", "Free", "Job", "Work", "part_path"]

Advance = Callable[[int, int], None]  # files, bytes
_SPOT_CHECKS = 16  # records a shard whose bytes are read back


class BadFiles(PackError):
    """Files of a shard, or annotations of them, cannot be packed."""

    def __init__(self, failures: list[tuple[str, str]], annotations: Sequence[tuple[str, str]] = ()) -> None:
        super().__init__(f"{counted(len(failures), 'file')} cannot be packed")
        self.failures, self.annotations = failures, annotations


def part_path(output: Path, shard: str) -> Path:
    """Where a finished shard's part of the index waits for the manifest."""
    return output / WORK_NAME / f"{shard}.part"


class Closes(Protocol):
    """What a claim is to those who hold it."""

    def close(self) -> None:
        """Give it up."""


class Free:
    """A claim of who has all shards to himself."""

    def close(self) -> None:
        """There is nothing to give up."""


class Work(Protocol):
    """What processes share out by number: shards to write, files to index. Pickles."""

    def claim(self, number: int) -> Closes | None:
        """The right to do one; None: another process does it, or has just done so."""

    def write(self, number: int, advance: Advance) -> ShardPart:
        """Do it."""

    def publish(self, number: int, part: ShardPart) -> None:
        """Make it durable: now it counts as finished."""

    def discard(self, number: int) -> None:
        """Remove what was written and not published."""


@dataclass(frozen=True)
class Job:
    """All that a process needs to write any shard of a pack."""

    output: Path
    root: bytes
    options: PackOptions
    plan: PackPlan
    store: StoreFiles | None = None  # where the source's files are, if not below ``root``

    @property
    def format(self) -> Format:
        """The format's module."""
        return format_of(self.options.format)

    def is_finished(self, number: int) -> bool:
        """Whether shard ``number`` is already there, with its part of the index."""
        final = self.output / self.plan.shards[number].name
        return ShardPart.finished(part_path(self.output, final.name), self.format.data_file(final))

    def claim(self, number: int) -> Closes | None:
        """The right to write shard ``number``; None: another process writes it, or has just done so.

        Here it is everybody's: who packs alone holds the whole folder.
        """
        return Free()

    def write(self, number: int, advance: Advance) -> ShardPart:
        """Write shard ``number`` under its temporary name.

        Raises:
            BadFiles: some files cannot be packed, and they are not to be skipped.
            PackError: no room, or what was written does not read back.
        """
        final = self.output / self.plan.shards[number].name
        temporary = temporary_of(final)
        remove(temporary)
        try:
            return self._write(number, temporary, final, advance)
        except BaseException:
            remove(temporary)
            raise

    def publish(self, number: int, part: ShardPart) -> None:
        """Make a written shard durable and give it its name; then its part: now it counts as finished."""
        final = self.output / self.plan.shards[number].name
        try:
            publish(temporary_of(final), final)
        except BaseException:
            self.discard(number)
            raise
        self._accompany(number, part)
        part.write(part_path(self.output, final.name))

    def _accompany(self, number: int, part: ShardPart) -> None:
        """Write what belongs beside a published shard before it counts as finished."""

    def discard(self, number: int) -> None:
        """Remove what was written of shard ``number`` and not published."""
        remove(temporary_of(self.output / self.plan.shards[number].name))

    def _write(self, number: int, temporary: Path, final: Path, advance: Advance) -> ShardPart:
        shard = self.plan.shards[number]
        listing = Listing(self.output / WORK_NAME)
        needed = self._needed(listing, number)
        spec = ShardSpec(
            self.plan.classes, shard.stop - shard.start, shard.bytes, self.options.raw, self.options.size
        )
        with failed_writes_reported(final, needed):
            writer = self.format.Writer(temporary, spec)
            data_file = self.format.data_file(temporary)
            try:
                _C.reserve(os.fsencode(data_file), needed)
                with self._files(listing, number) as root:
                    part = self._fill(writer, self._groups(root, listing, number), advance)
                if part.skipped and self.options.on_error == "raise":
                    raise BadFiles(part.skipped)
                writer.close()
            except BaseException:
                writer.abort()
                raise
            _C.trim(os.fsencode(data_file))
        self._locate(temporary, part.records)
        return replace(part, shard_bytes=os.stat(data_file).st_size, plan=self.plan.digest)

    def _needed(self, listing: Listing, number: int) -> int:
        shard = self.plan.shards[number]
        lengths = listing.read(shard.start, shard.stop)[1]["size"]
        if self.options.size is not None:
            lengths = np.full(len(lengths), shard.bytes // max(len(lengths), 1), np.uint64)
        return self.format.shard_bytes(lengths)

    @contextmanager
    def _files(self, listing: Listing, number: int) -> Iterator[bytes]:
        """The folder that the shard's files are in; those of a store are fetched, and removed after."""
        if self.store is None:
            yield self.root
            return
        shard = self.plan.shards[number]
        folder = self.output / WORK_NAME / f".tmp-files-{shard.name}"
        remove(folder)
        try:
            folder.mkdir(parents=True)
            rows = listing.rows(shard.start, shard.stop)
            self.store.fetch([(path, size) for path, size, _, _ in rows], folder)
            yield os.fsencode(folder)
        finally:
            remove(folder)

    def _groups(self, root: bytes, listing: Listing, number: int) -> Iterator[Group]:
        shard = self.plan.shards[number]
        room = GROUP_BYTES // 8 if self.options.raw else GROUP_BYTES  # pixels are about 8 times the file
        groups = read_groups(root, listing, shard.start, shard.stop, room)
        if not self.options.transcodes:
            return groups
        from fastload.packing.transcode import transcoder

        return map(transcoder(self.options), groups)

    def _fill(self, writer: Writer, groups: Iterator[Group], advance: Advance) -> ShardPart:
        chunks: list[npt.NDArray[np.void]] = []
        keys: list[bytes] = []
        failures: list[tuple[str, str]] = []
        transcoded, tally = 0, Tally()
        for group in groups:
            if len(group.records):
                writer.append(group.data, group.records, group.keys)
            chunks.append(group.records)
            keys += group.keys
            failures += [(key.decode(), reason) for key, reason in group.failures]
            transcoded += group.transcoded
            if group.coefficients is not None:
                tally.merge(group.coefficients)
            advance(group.files, group.source_bytes)
        records = np.concatenate([*chunks, np.zeros(0, RECORD)])
        facts = {FACTS: tally.to_json()} if self.options.coefficients else {}
        return ShardPart(records, keys, failures, 0, transcoded, facts=facts)

    def _locate(self, temporary: Path, records: npt.NDArray[np.void]) -> None:
        """Set the records' offsets to where the format's library put them, and look whether it is so."""
        [located] = self.format.locate(temporary)
        if not np.array_equal(located.lengths, records["length"]):
            raise PackError(
                f"{temporary} does not read back: {len(located.lengths)} records, {len(records)} written, or "
                f"other lengths. Either this program or the format's library is at fault; please report it."
            )
        records["offset"] = located.offsets
        sample = np.ascontiguousarray(records[:: max(1, len(records) // _SPOT_CHECKS)])
        failures = _C.verify_file(os.fsencode(self.format.data_file(temporary)), as_rows(sample))
        if failures:
            raise PackError(f"{temporary} does not read back: {failures[0][1].decode()}. Check the disk.")
