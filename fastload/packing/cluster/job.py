"""Writing shards of a plan that other processes, here and on other machines, write shards of, too."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from fastload.errors import PackError
from fastload.machine.paths import exists
from fastload.packing.cluster.pieces import write_piece
from fastload.packing.listing import Listing
from fastload.packing.lock import claim
from fastload.packing.looks import unreadable
from fastload.packing.names import printable
from fastload.packing.part import ShardPart
from fastload.packing.plan import WORK_NAME, PackPlan
from fastload.packing.shard_job import Advance, Closes, Job, part_path
from fastload.shard.formats import format_of

__all__ = ["ShardState", "ShareJob", "claim_path", "shard_state"]

ShardState = Literal["whole", "missing", "of another plan"]


def claim_path(output: Path, shard: str) -> Path:
    """The file that is locked by who writes this shard."""
    return part_path(output, shard).with_suffix(".lock")


def shard_state(output: Path, plan: PackPlan, number: int) -> ShardState:
    """Whether shard ``number`` is there as the plan wants it."""
    final = output / plan.shards[number].name
    path = part_path(output, final.name)
    if not exists(path):
        return "missing"
    part = ShardPart.read(path)
    if part.plan != plan.digest:
        return "of another plan"
    if not len(part.records):  # all of its files were left out: publishing removes it
        return "whole"
    try:
        size = os.stat(format_of(str(plan.identity["format"])).data_file(final)).st_size
    except FileNotFoundError:
        return "missing"
    return "whole" if size == part.shard_bytes else "missing"


@dataclass(frozen=True)
class ShareJob(Job):
    """A job whose shards are claimed one by one, each with its entry points, which one machine alone would
    make last."""

    def is_finished(self, number: int) -> bool:
        return shard_state(self.output, self.plan, number) == "whole"

    def claim(self, number: int) -> Closes | None:
        held = claim(claim_path(self.output, self.plan.shards[number].name))
        if held is None:
            return None
        try:
            finished = self.is_finished(number)
        except BaseException:
            held.close()
            raise
        if finished:
            held.close()
            return None
        return held

    def write(self, number: int, advance: Advance) -> ShardPart:
        if self.store is None:  # what is fetched is compared when it comes
            self._require_unchanged(number)
        return super().write(number, advance)

    def _accompany(self, number: int, part: ShardPart) -> None:
        final = self.output / self.plan.shards[number].name
        if self.options.entries is not None and len(part.records):
            path = part_path(self.output, final.name)
            write_piece(path, part, self.format.data_file(final), self.options.entries)

    def _require_unchanged(self, number: int) -> None:
        """Raise PackError if a file of the shard differs from what the plan found."""
        shard = self.plan.shards[number]
        for path, size, mtime_ns, _ in Listing(self.output / WORK_NAME).rows(shard.start, shard.stop):
            place = os.path.join(self.root, path)
            try:
                status = os.stat(place)
                found, words = (status.st_size, status.st_mtime_ns), f"has {status.st_size}, or another time"
            except (FileNotFoundError, NotADirectoryError):
                found, words = None, "is not there"
            except OSError as error:
                raise unreadable(place, error) from error
            if found != (size, mtime_ns):
                raise PackError(
                    f"the source has changed since this pack of {self.output} was planned: {printable(path)} "
                    f"had {size} bytes, and {words}. --plan-only --restart throws the unfinished pack away "
                    "and plans anew."
                )
