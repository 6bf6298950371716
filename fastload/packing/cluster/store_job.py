"""Writing shards that go into a store: each is gone from here once it is there."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from fastload.errors import ObjectMissing, PackError
from fastload.machine.paths import exists
from fastload.packing.cluster.job import ShareJob
from fastload.packing.cluster.pieces import piece_path
from fastload.packing.cluster.store_target import StoreTarget
from fastload.packing.files import remove
from fastload.packing.part import ShardPart
from fastload.packing.plan import WORK_NAME
from fastload.packing.shard_job import Advance, Closes, part_path

__all__ = ["StoreJob"]


class _Nothing:
    def close(self) -> None:
        """A store has no locks."""


@dataclass(frozen=True)
class StoreJob(ShareJob):
    """A job whose ``output`` is a folder of this machine, of which nothing is kept."""

    target: StoreTarget = field(kw_only=True)

    def is_finished(self, number: int) -> bool:
        return self.target.store.head(self.target.key(self.target.part_name(self.plan, number))) is not None

    def claim(self, number: int) -> Closes | None:
        return None if self.is_finished(number) else _Nothing()

    def write(self, number: int, advance: Advance) -> ShardPart:
        work = self.output / WORK_NAME
        work.mkdir(parents=True, exist_ok=True)
        try:
            self.target.fetch_listing(self.plan, number, work)
        except ObjectMissing:
            raise PackError(
                f"another pack has published {self.target.location}, or thrown it away, while this one was "
                "at work. Run the same command again."
            ) from None
        return super().write(number, advance)

    def publish(self, number: int, part: ShardPart) -> None:
        final = self.output / self.plan.shards[number].name
        own = part_path(self.output, final.name)
        try:
            super().publish(number, part)
            self._upload(number, part, own)
        finally:
            for path in (final, own, piece_path(own)):
                remove(path)

    def _upload(self, number: int, part: ShardPart, own: Path) -> None:
        """The records, the entry points, and last the part: now the shard counts as finished."""
        to, name = self.target, self.target.part_name(self.plan, number)
        if len(part.records):
            data = to.data_name(self.plan, number)
            to.store.upload(to.key(data), self.output / data)
        if exists(piece_path(own)):
            to.store.upload(to.key(piece_path(Path(name)).as_posix()), piece_path(own))
        to.store.upload(to.key(name), own)
