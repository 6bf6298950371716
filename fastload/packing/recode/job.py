"""Writing one shard of a set that is recoded: the old one's samples, with other bytes for its pictures."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from fastload._native import _C
from fastload.errors import DecodeError, PackError
from fastload.machine.paths import exists
from fastload.machine.threads import started_pool
from fastload.packing.coefficients import FACTS, Outcome, Tally, to_record
from fastload.packing.files import failed_writes_reported, remove, temporary_of
from fastload.packing.ingest import as_rows
from fastload.packing.names import ESCAPED
from fastload.packing.output import RECODE_NAME
from fastload.packing.part import ShardPart
from fastload.packing.recode.plan import RecodePlan
from fastload.packing.samples.shards import OpenShard
from fastload.packing.shard_job import Advance, Closes, Free
from fastload.packing.spans import opened_once
from fastload.sample.fields import Image
from fastload.sample.schema import Field
from fastload.shard.codecs import COEFFICIENTS, JPEG, file_of
from fastload.shard.columns import Chunk
from fastload.shard.dataset import PackedFiles
from fastload.shard.formats import Format, format_of

__all__ = ["RecodeJob"]

_SPAN, _SPAN_BYTES = 256, 16 << 20  # samples and bytes of pictures in memory at a time
Made = tuple[bytes, Outcome | None]


@dataclass(frozen=True)
class RecodeJob:
    """All that a process needs to write any shard of a recode; see :class:`fastload.packing.shard_job.Work`.

    Args:
        folder: the set's.
        plan: what is made of it.
        threads: that recode pictures in each process.
    """

    folder: Path
    plan: RecodePlan
    threads: int = 1

    @property
    def work(self) -> Path:
        """The work folder."""
        return self.folder / RECODE_NAME

    def path(self, number: int) -> Path:
        """The new shard ``number``: in the work folder until the switch, then beside the old ones."""
        waiting, name = self.work / self.plan.shards[number], self.plan.shards[number]
        return waiting if exists(waiting) or not exists(self.folder / name) else self.folder / name

    def part_path(self, number: int) -> Path:
        """Its part of the index."""
        return self.work / f"{self.plan.shards[number]}.part"

    def is_finished(self, number: int, shards: Format) -> bool:
        """Whether shard ``number`` is there, with its part of the index, by this plan."""
        path = self.part_path(number)
        if not ShardPart.finished(path, shards.data_file(self.path(number))):
            return False
        return ShardPart.read(path).plan == self.plan.identity

    def claim(self, number: int) -> Closes | None:
        """Everybody's: who recodes holds the whole folder."""
        return Free()

    def write(self, number: int, advance: Advance) -> ShardPart:
        """Write shard ``number`` and its part, whole and on the device.

        Raises:
            PackError: no room; a record that is none; shards that are not in the samples' order.
            ChecksumError, ShardError: the old shard is damaged, or cannot be read.
        """
        dataset = opened_once(self.folder, self.plan.source)
        samples, manifest = _samples_of(dataset, number), dataset.manifest
        final, tally = self.work / self.plan.shards[number], Tally()
        remove(final)
        shard = OpenShard(
            final, format_of(manifest.format), manifest.schema, manifest.shards[number].size,
            bool(manifest.options.get("raw")),
        )  # fmt: skip
        try:
            with started_pool(self.threads, "recode") as pool:
                for ids in _spans(dataset, samples):
                    chunks, size = _Span(dataset, ids, self.plan.form, tally).chunks(pool)
                    _take(shard, [dataset.index.key(sample) for sample in ids], chunks)
                    advance(len(ids), size)
        except BaseException:
            shard.abort()
            raise
        part, spooled = shard.finish()
        path = self.part_path(number)
        try:
            with failed_writes_reported(path, manifest.shards[number].size):
                facts = {FACTS: tally.to_json()} if self.plan.form is not None else {}
                part = replace(part, stop=samples.stop, plan=self.plan.identity, facts=facts)
                part.write(path, spooled.files)
        except BaseException:
            remove(temporary_of(path))
            remove(final)
            raise
        finally:
            spooled.close()
        return part

    def publish(self, number: int, part: ShardPart) -> None:
        """It is durable already."""

    def discard(self, number: int) -> None:
        """Nothing is there that was not published."""


def _samples_of(dataset: PackedFiles, number: int) -> range:
    """The sample ids of a shard.

    Raises:
        PackError: they do not follow one another, as they do in every set that this program packed.
    """
    counts = [shard.records for shard in dataset.manifest.shards]
    start = sum(counts[:number])
    samples = range(start, start + counts[number])
    if not (dataset.records["shard"][samples.start : samples.stop] == number).all():
        raise PackError(
            f"{dataset.where} cannot be recoded: the samples of shard {number} do not follow one another. "
            "Was it packed by this program?"
        )
    return samples


def _spans(dataset: PackedFiles, samples: range) -> Iterator[range]:
    """Some samples after another."""
    lengths = dataset.records["length"]
    at = samples.start
    while at < samples.stop:
        ends = np.cumsum(lengths[at : min(at + _SPAN, samples.stop)], dtype=np.int64)
        count = max(1, int(np.searchsorted(ends, _SPAN_BYTES, "right")))
        yield range(at, min(at + count, samples.stop))
        at += count


def _take(shard: OpenShard, keys: list[bytes], chunks: list[Chunk]) -> None:
    """Put samples into a shard, its batches cut as those of a pack of samples are."""
    begin = 0
    total: npt.NDArray[np.uint64] = np.sum([chunk.lengths for chunk in chunks], axis=0, dtype=np.uint64)
    sizes = total.tolist()

    def take(end: int) -> None:
        if end > begin:
            shard.take(keys[begin:end], [chunk.slice(begin, end) for chunk in chunks])

    for i, size in enumerate(sizes):
        if not shard.fits(size):
            take(i)
            begin = i
            shard.flush()
        shard.count(size)
    take(len(sizes))


class _Span:
    """Some samples of a set, on their way into another shard.

    Args:
        dataset: whose.
        ids: of the samples.
        form: of their records; None: JPEGs.
        tally: hears what came of each JPEG.
    """

    def __init__(self, dataset: PackedFiles, ids: range, form: str | None, tally: Tally) -> None:
        self._dataset, self._ids, self._form, self._tally = dataset, ids, form, tally
        self._rows = np.arange(ids.start, ids.stop)

    def chunks(self, pool: Executor) -> tuple[list[Chunk], int]:
        """The values of all fields, in the schema's order, and how many bytes the pictures had."""
        found, size = [], 0
        for field in self._dataset.schema:
            if field.storage == "record":
                chunk, had = self._pictures(field, pool)
                size += had
            elif field == self._dataset.schema.label_field:
                labels = self._dataset.records["label"][self._ids.start : self._ids.stop].astype("<i4")
                chunk = Chunk(labels.view(np.uint8), np.full(len(labels), labels.itemsize, np.uint64))
            else:
                data, ends = self._dataset.columns[field.name].gather(self._rows)
                chunk = Chunk(np.asarray(data), np.diff(ends).astype(np.uint64))
            found.append(chunk)
        return found, size

    def _pictures(self, field: Field, pool: Executor) -> tuple[Chunk, int]:
        dataset, ids = self._dataset, self._ids
        of_index = field == dataset.schema.index_field
        entries = dataset.records if of_index else dataset.field_records(field.name)
        records = entries[ids.start : ids.stop].copy()
        stored = (dataset.stored(sample, None if of_index else field.name) for sample in ids)
        had = int(records["length"].sum(dtype=np.uint64))
        if not isinstance(field.kind, Image):
            return _chunk(list(stored), records, ()), had
        codecs = records["codec"].tolist()
        made = list(pool.map(self._recoded, ids, codecs, stored))
        for sample, (_, outcome) in zip(ids, made, strict=True):
            if outcome is not None:
                self._tally.add(dataset.key(sample), outcome)
        changed = [at for at, codec in enumerate(codecs) if codec in (JPEG, COEFFICIENTS)]
        return _chunk([data for data, _ in made], records, changed), had

    def _recoded(self, sample: int, codec: int, data: bytes) -> Made:
        if codec not in (JPEG, COEFFICIENTS):
            return data, None
        try:
            jpeg = file_of(codec, data)
        except DecodeError as error:
            raise PackError(
                f"sample {sample} ({self._dataset.key(sample)}) of {self._dataset.where} gives no JPEG: "
                f"{error} 'fastload verify --decode' finds all such records; the set is left as it is."
            ) from error
        return (jpeg, None) if self._form is None else to_record(jpeg, self._form)


def _chunk(pieces: list[bytes], records: npt.NDArray[np.void], changed: Sequence[int]) -> Chunk:
    """Pictures with their index entries; of those that changed the entries are made anew."""
    chunk = Chunk.of(pieces)
    records["length"] = chunk.lengths
    records["offset"] = np.cumsum(chunk.lengths) - chunk.lengths
    records["label"] = -1
    if len(changed):
        some = records[changed]
        marks = some["flags"] & ESCAPED
        problems = _C.describe(chunk.data, as_rows(some))
        assert not problems, problems  # they were described before, as what they are made of
        some["flags"] |= marks
        records[changed] = some
    return Chunk(chunk.data, chunk.lengths, records)
