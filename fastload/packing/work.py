"""One shard of a plan: rows in, a finished shard in its target out."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np

from fastload.errors import PackError
from fastload.packing.cut import WORK_NAME, Plan, recode_facts, refuse_bad, shard_bytes
from fastload.packing.files import failed_writes_reported, remove, temporary_of
from fastload.packing.listing import Listing
from fastload.packing.options import PackOptions
from fastload.packing.rows import Batch, Rows
from fastload.packing.shard_writer import ShardPart, ShardWriter
from fastload.packing.spread import Advance, Claim
from fastload.packing.target import Target
from fastload.shard.formats import ShardSpec, format_of


@dataclass(frozen=True)
class ShardWork:
    """All that a process needs to write any shard of a pack; see :class:`fastload.packing.spread.Job`."""

    rows: Rows
    plan: Plan
    target: Target
    options: PackOptions

    def claim(self, number: int) -> Claim | None:
        return self.target.claim(self.plan, number)

    def is_finished(self, number: int) -> bool:
        """Whether the shard exists, with its part of the index."""
        return self.target.is_finished(self.plan, number)

    def write(self, number: int, advance: Advance) -> ShardPart:
        """Write a shard under its temporary name.

        Raises:
            BadFiles: some rows cannot be packed and are not to be skipped.
            PackError: there is no room, or what was written does not read back.
        """
        self.target.prepare(self.plan, number, self.rows)
        shard, options, schema = self.plan.shards[number], self.options, self.plan.schema
        listing, final = Listing(self.target.stage / WORK_NAME), self.target.stage / shard.name
        needed = shard_bytes(self.plan, listing, number)
        spec = ShardSpec(
            self.plan.classes, shard.stop - shard.start, shard.bytes, options.raw,
            options.size if options.raw else None,
            None if schema.is_plain else schema,
        )  # fmt: skip
        writer = ShardWriter(
            final, format_of(options.format), schema, spec, needed, reserve=options.max_side is None
        )
        try:
            with self._rows(listing, number) as rows, failed_writes_reported(final, needed):
                batches = self._taken(rows, listing, number, advance)
                part = _written(writer, batches, options)
            return replace(part, stop=shard.stop, plan=self.plan.digest)
        except BaseException:
            writer.abort()
            raise

    def publish(self, number: int, part: ShardPart) -> None:
        """Make a written shard durable, give it its name, then write its part: now it counts as finished."""
        try:
            self.target.commit(self.plan, number, part, self.options)
        except BaseException:
            self.discard(number)
            raise

    def discard(self, number: int) -> None:
        """Remove what was written of a shard and not published."""
        remove(temporary_of(self.target.stage / self.plan.shards[number].name))

    @contextmanager
    def _rows(self, listing: Listing, number: int) -> Iterator[Rows]:
        """Yield rows whose files are on this machine: those of a store are fetched for a while."""
        if self.rows.files is None:
            yield self.rows
            return
        shard = self.plan.shards[number]
        folder = self.target.stage / WORK_NAME / f".tmp-files-{shard.name}"
        rows = [*listing.rows(shard.start, shard.stop)]
        with self.rows.files.here(rows, folder) as root:
            yield self.rows.at(root)

    def _taken(self, rows: Rows, listing: Listing, number: int, advance: Advance) -> Iterator[Batch]:
        """Yield the shard's batches, and tell when each has been taken."""
        shard = self.plan.shards[number]
        sizes = listing.read(shard.start, shard.stop)[1]["size"]
        at = shard.start
        for batch in rows.batches(shard.start, shard.stop, self.options, listing):
            yield batch
            size = int(sizes[at - shard.start : batch.stop - shard.start].sum(dtype=np.uint64))
            advance(batch.stop - at, size)
            at = batch.stop
        if at != shard.stop:
            raise PackError(
                f"the source has changed since this pack was planned: it had {shard.stop} rows at least, and "
                f"has {at}. --restart throws the unfinished pack away."
            )


def _written(writer: ShardWriter, batches: Iterator[Batch], options: PackOptions) -> ShardPart:
    """Write all batches, and return the shard's part."""
    failures: list[tuple[int, str, str]] = []
    left_out: list[tuple[int, str, str, str]] = []
    outcomes = []
    baselines = 0
    for batch in batches:
        writer.add(batch)
        failures += batch.failures
        left_out += batch.left_out
        outcomes += batch.outcomes
        baselines += batch.baselines
    if options.on_error == "raise":
        refuse_bad(failures, left_out)
    return replace(
        writer.finish(),
        skipped=[(key, reason) for _, key, reason in failures],
        left_out=[entry[1:] for entry in left_out],
        transcoded=baselines,
        facts=recode_facts(options, outcomes),
    )


def write_one(work: ShardWork, number: int) -> bool:
    """Write a shard on a worker that shares nothing with this process; False: it existed already."""
    with work.target.elsewhere() as target:
        here = replace(work, target=target)
        claim = target.awaited(work.plan, number)
        if claim is None:
            return False
        try:
            part = here.write(number, lambda files, size: None)
            try:
                here.publish(number, part)
            finally:
                part.close()
        finally:
            claim.close()
    return True
