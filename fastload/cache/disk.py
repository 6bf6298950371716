"""Disk tiers of a loader, ``cache="/nvme/fastload:800GB"``: which there are, and how full they get."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from fastload._native import _C
from fastload.cache.disk_files import (
    VERSION,
    attach_tier,
    create_tier,
    expected_hits,
    inspect_tier,
    plan_slots,
    whole_bytes,
)
from fastload.cache.files import clean, promised_bytes, remove
from fastload.cache.folder import PrivateFolder
from fastload.cache.layout import TIER_SUFFIX, CacheInfo, Contents, NoRoom
from fastload.cache.opening import ENCODED, Kept, Streams, kept_of, tier_of_field
from fastload.cache.policy import remove_stale
from fastload.cache.settings import DiskSetting
from fastload.errors import CacheError
from fastload.machine.sizes import human_bytes
from fastload.shard.dataset import PackedFiles

# If a disk has less room than requested, the tier is as large as it can be, and a warning says so.

_log = logging.getLogger("fastload")

_LEFT = 100  # 1 / this of the file system is left free
_SAME = 0.95  # a tier that was allowed this share of the requested bytes is used as it is


@dataclass
class DiskUse:
    """The tiers of a loader: one for each stream of records of each packed dataset, or None."""

    tiers: list[_C.DiskTier | None]
    reasons: list[str]
    kept: Sequence[Kept] = field(repr=False)
    _node_share: float = 1.0
    _is_sticky: bool = False
    _last: dict[str, Any] | None = None
    _warned: bool = False

    def of(self, parts: Sequence[PackedFiles]) -> list[dict[str | None, _C.DiskTier]]:
        """Return each packed dataset's tiers, by stream."""
        tiers: list[dict[str | None, _C.DiskTier]] = [{} for _ in parts]
        for tier, (dataset, stream) in zip(self.tiers, self.kept, strict=True):
            if tier is not None:
                tiers[next(i for i, part in enumerate(parts) if part is dataset)][stream] = tier
        return tiers

    def expect(self, node_share: float, is_sticky: bool) -> None:
        """Set the share of each epoch that this node reads in random order; whether it is always the same."""
        self._node_share, self._is_sticky = node_share, is_sticky

    def close(self) -> None:
        """Release the files; :meth:`stats` keeps its current values. Idempotent."""
        self.warn_if_full()
        self._last = self.stats()
        self.tiers = [None for _ in self.tiers]

    def warn_if_full(self) -> None:
        """Warn once that a disk took no more."""
        for tier in self.tiers:
            if tier is not None and tier.write_error and not self._warned:
                self._warned = True
                held = human_bytes(tier.counts()["held_bytes"])
                _log.warning(
                    "the disk tier %s cannot be written to (%s) and stays as it is, with %s: the rest is "
                    "read from storage. Free some space on the disk, or pass a smaller size.",
                    tier.path,
                    os.strerror(tier.write_error),
                    held,
                )

    def stats(self) -> dict[str, Any]:
        """Return counts of this process (hits, misses, stored, dropped, declined, damaged, overtaken, failed,
        busy: records; hit_bytes, miss_bytes) and of the node (held_records, held_bytes, room_records,
        room_bytes), summed over the sets; ``expected_hits`` (in random order); ``paths``; ``reason``."""
        if self._last is not None:
            return self._last
        tiers = [tier for tier in self.tiers if tier is not None]
        rooms = ("room_records", "room_bytes")
        counts = [{**tier.counts(), **{name: getattr(tier, name) for name in rooms}} for tier in tiers]
        names = counts[0] if counts else ()
        room = sum(tier.room_records for tier in tiers) / max(
            1, sum(of.record_count(stream) for of, stream in self.kept)
        )
        return {
            **{name: sum(count[name] for count in counts) for name in names},
            "expected_hits": round(expected_hits(room, self._node_share, self._is_sticky), 3),
            "paths": [tier.path for tier in tiers],
            "reason": "; ".join(dict.fromkeys(self.reasons)),
        }


def tier_file_name(dataset: PackedFiles, tier: str) -> str:
    """Return the name of the table of a dataset's records of one stream."""
    return f"{dataset.manifest.seal}-{tier}-{VERSION[0]}{TIER_SUFFIX}"


def open_disk(datasets: Sequence[PackedFiles], setting: DiskSetting, streams: Streams) -> DiskUse:
    """Open the disk tiers of some datasets, or create them. Reads their whole indexes.

    Raises:
        CacheError: the folder is not on a local disk, not this user's alone, or not writable.
    """
    kept = kept_of(datasets, streams)
    with PrivateFolder(setting.root, create=True, on_disk=True) as folder, folder.creating():
        clean(folder)
        opening = _Opening(folder, setting, kept)
        found = [opening.open(number) for number in range(len(kept))]
    for (dataset, _), (_, reason) in zip(kept, found, strict=True):
        _log.info("disk tier of %s: %s", dataset.folder, reason)
    return DiskUse([tier for tier, _ in found], [reason for _, reason in found], kept)


def planned_disk_bytes(datasets: Sequence[PackedFiles], setting: DiskSetting, streams: Streams) -> int:
    """Return the most bytes of disk that the tiers may take. Creates nothing."""
    contents = [_contents(each) for each in kept_of(datasets, streams)]
    return min(setting.limit, sum(whole_bytes(each.lengths) for each in contents))


def _contents(kept: Kept) -> Contents:
    dataset, stream = kept
    tier = ENCODED if stream is None else tier_of_field(dataset, stream)
    return tier.contents(dataset)


class _Opening:
    """One call of :func:`open_disk`."""

    def __init__(self, folder: PrivateFolder, setting: DiskSetting, kept: Sequence[Kept]) -> None:
        self._folder = folder
        self._setting = setting
        self._contents = [_contents(each) for each in kept]
        self._names = [
            tier_file_name(dataset, each.tier)
            for (dataset, _), each in zip(kept, self._contents, strict=True)
        ]
        self._whole = [whole_bytes(each.lengths) for each in self._contents]

    def open(self, number: int) -> tuple[_C.DiskTier | None, str]:
        """Return a stream's tier, and the reason for its state."""
        name, contents = self._names[number], self._contents[number]
        share = self._whole[number] / max(1, sum(self._whole))
        wanted = min(self._whole[number], int(self._setting.limit * share))
        info = self._inspected(name)
        is_usable = info is not None and (info.in_use or info.limit >= _SAME * wanted)
        if not is_usable and remove(self._folder, name):
            reason = self._make(name, contents, wanted)
            if reason:
                return None, reason
        tier = attach_tier(self._folder, name)
        if len(tier) != len(contents.lengths):
            raise CacheError(f"{tier.path} is of another set. Remove it with 'fastload cache clear'.")
        return tier, (
            f"{human_bytes(tier.room_bytes)} of disk for {tier.room_records / len(tier):.0%} of "
            f"{human_bytes(contents.set_bytes)}"
        )

    def _inspected(self, name: str) -> CacheInfo | None:
        try:
            return inspect_tier(self._folder, name)
        except FileNotFoundError:
            return None
        except CacheError as error:
            _log.warning("a disk tier is created again: %s", error)
            return None

    def _make(self, name: str, contents: Contents, wanted: int) -> str:
        """Create the files; return why not, or ""."""
        free = self._free()
        if free < wanted:
            for status in remove_stale(self._folder):
                size = human_bytes(status.bytes)
                _log.warning("removed the stale cache file %s (%s): %s", status.path, size, status.stale)
            free = self._free()
        if free < wanted:
            _log.warning(
                "the disk of %s has room for a tier of %s, not of %s",
                self._folder.path,
                human_bytes(max(0, free)),
                human_bytes(wanted),
            )
        try:
            plan = plan_slots(contents, min(wanted, free))
            create_tier(self._folder, name, contents, plan)
        except NoRoom as error:
            return f"no disk tier: {error}"
        except CacheError as error:
            _log.warning("no disk tier: %s", error)
            return f"no disk tier: {error}"
        return ""

    def _free(self) -> int:
        found = os.fstatvfs(self._folder.fd)
        size = found.f_blocks * found.f_frsize
        return found.f_bavail * found.f_frsize - promised_bytes(self._folder) - size // _LEFT
