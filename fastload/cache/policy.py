"""Whether a set gets a cache, and how large: pure functions of what was found."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fastload.cache.room import Room
from fastload.cache.settings import CacheSetting
from fastload.errors import CacheError
from fastload.machine.memory import PAGE_CACHE_SHARE
from fastload.machine.sizes import human_bytes

__all__ = ["Candidate", "Decision", "decide", "is_large_enough"]

ENCODED_TIER = "encoded"
_AUTO_SHARE = 2  # auto takes at most 1 / this of the available memory
_LEAST_SHARE = 0.05  # of a set; less is not worth a cache
_SAME = 0.95  # a file that was allowed this share of what is asked for is used as it is


@dataclass(frozen=True)
class Candidate:
    """One packed dataset, as far as it matters here."""

    name: str  # for messages: its folder
    need: int  # bytes of a file with all of its records
    in_memory: bool = False  # its shards lie in tmpfs
    remote: bool = False  # on a network file system, or in a store
    tier: str = ENCODED_TIER


@dataclass(frozen=True)
class Decision:
    """What to do for one part."""

    limit: int  # bytes of the file to make; 0: none
    reason: str  # one line
    nearer: str = ""  # without a file: where the records are as near, "page cache" or "memory"


def decide(parts: Sequence[Candidate], setting: CacheSetting, room: Room) -> list[Decision]:
    """A decision for each part that has no cache yet; they share the room in proportion to their sizes.

    Raises:
        CacheError: an explicit setting that cannot be had.
    """
    if setting.mode == "off":
        return [Decision(0, "switched off") for _ in parts]
    total = max(1, sum(part.need for part in parts))
    if setting.mode == "auto":
        local = sum(part.need for part in parts if not part.remote and not part.in_memory)
        return [_auto(part, room, local, part.need / total) for part in parts]
    most = _asked(setting, room)
    wanted = total if most is None else min(most, total)
    if wanted > room.free and (setting.limit is not None or setting.share is not None):
        names = ", ".join(part.name for part in parts)
        raise CacheError(
            room.lacking(wanted, f"{setting} for {names} ({human_bytes(total)})")
            + f'; or ask for less (cache="{_round_down(room.free)}"), or pass cache="off".'
        )
    limit = min(wanted, room.to_spare if most is None else room.free)
    if limit == 0:
        raise CacheError(room.lacking(total, str(setting)) + '; or pass cache="off".')
    return [_explicit(part, setting, limit * part.need // total) for part in parts]


def is_large_enough(allowed: int, setting: CacheSetting, part: Candidate, total: int, room: Room) -> bool:
    """Whether a file that nobody uses will do.

    What counts is what it was allowed when it was made: how much of that could be used is a matter of the
    records, and would be the same again.

    Args:
        allowed: bytes, the :attr:`Decision.limit` that it was made with.
        total: bytes of files with all records of all parts that the setting is for.
        room: as if the file were not there.
    """
    if setting.mode != "on":
        return True
    most = _asked(setting, room)
    wanted = min(part.need, (room.to_spare if most is None else most) * part.need // total)
    return allowed >= _SAME * wanted


def _asked(setting: CacheSetting, room: Room) -> int | None:
    if setting.share is not None:
        return int(setting.share * room.available)
    return setting.limit


def _explicit(part: Candidate, setting: CacheSetting, limit: int) -> Decision:
    share = min(1.0, limit / part.need)
    held = "all" if share == 1 else f"{share:.0%}"
    return Decision(limit, f"{setting}: {held} of {human_bytes(part.need)}")


def _auto(part: Candidate, room: Room, local: int, share: float) -> Decision:
    """``local``: bytes of all parts on local disks; ``share``: the part's of the room."""
    size, free = human_bytes(part.need), human_bytes(room.available)
    if part.tier == ENCODED_TIER:
        if part.in_memory:
            return Decision(0, f"no cache: the shards ({size}) lie in memory already", "memory")
        if not part.remote and local <= PAGE_CACHE_SHARE * room.available:
            return Decision(
                0,
                f"no cache: the set ({size}) is on a local disk and the page cache holds it ({free} of "
                f"memory available), a second copy would only take memory",
                "page cache",
            )
    limit = min(part.need, int(min(room.to_spare, room.available // _AUTO_SHARE) * share))
    if limit < _LEAST_SHARE * part.need:
        return Decision(
            0, f"no cache: {room.limit} leaves {human_bytes(limit)}, less than 5% of the set ({size})"
        )
    if part.tier != ENCODED_TIER:
        why = "JPEGs are kept as coefficients" if part.tier == "coefficients" else "pictures are kept decoded"
    elif part.remote:
        why = "it is on a network file system or in a store"
    else:
        why = f"it is larger than the page cache ({free})"
    held = "all" if limit == part.need else f"{limit / part.need:.0%}"
    return Decision(limit, f"cache of {human_bytes(limit)} for {held} of the set ({size}): {why}")


def _round_down(size: int) -> str:
    return f"{max(1, size // 1_000_000)}MB"
