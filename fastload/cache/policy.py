"""Whether a set gets a cache, and how large: from the room in memory and the sets already cached."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from fastload.cache.files import inspect, remove, stripe_names
from fastload.cache.folder import Folder
from fastload.cache.layout import SUFFIX, TIER_SUFFIX, VERSION, CacheInfo
from fastload.cache.settings import CacheSetting
from fastload.errors import CacheError, FastloadError
from fastload.machine.memory import PAGE_CACHE_SHARE, MemoryRoom, memory_rooms
from fastload.machine.sizes import human_bytes
from fastload.shard.dataset import PackedFiles
from fastload.shard.manifest import Manifest

# ---- Room for a cache file ----

_LEAST_RESERVE = 256 << 20  # bytes of memory that are left to the processes
_RESERVE_SHARE = 20  # at least 1 / this of what is available
_LEAST_LEFT = 256 << 20  # bytes of a file system that are left to others, at most half


@dataclass(frozen=True)
class Room:
    """The bytes that a cache file may take, and the limit that says so.

    Pages of a tmpfs are memory of the cgroup whose process touched them first, so both limits count: beyond
    the tmpfs's size the system reports ENOSPC, beyond the cgroup's it kills.
    """

    free: int  # bytes that a file may take
    to_spare: int  # ``free``, less a part of the file system for others: NCCL and torch also use /dev/shm
    available: int  # bytes of memory under all limits, of which a reserve is kept
    limit: str  # the name of the limit behind ``free``
    advice: str  # how to raise it

    def lacking(self, need: int, what: str) -> str:
        """Return the message that ``what`` lacks room for ``need`` bytes."""
        free = human_bytes(self.free)
        return f"{what} needs {human_bytes(need)} of memory, but {self.limit} leaves {free}. {self.advice}"


def find_room(folder: Path, root: str = "/", returned: int = 0) -> Room:
    """Find the room for a new file in ``folder``, which is on a tmpfs or ramfs.

    Args:
        root: the folder with ``proc`` and ``sys``.
        returned: bytes that files about to be replaced will free, less those that others will still take.
    """
    room = min(memory_rooms(root), key=lambda found: found.free)
    available = max(0, room.free + returned)
    reserve = max(_LEAST_RESERVE, available // _RESERVE_SHARE)
    memory = max(0, available - reserve)
    found = os.statvfs(folder)
    size, free = found.f_blocks * found.f_frsize, max(0, found.f_bavail * found.f_frsize + returned)
    to_spare = max(free // 2, free - max(_LEAST_LEFT, size // _RESERVE_SHARE)) if size > 0 else memory
    if size == 0 or memory <= free:  # 0: a file system without a limit
        limit, advice = _memory_limit(room, available, reserve), _memory_advice(room)
        return Room(memory, min(memory, to_spare), available, limit, advice)
    return Room(
        free,
        to_spare,
        available,
        f"the file system of {folder} ({human_bytes(size)} in all)",
        "Make it larger (docker run --shm-size=..., in Kubernetes an emptyDir with medium: Memory, elsewhere "
        "mount -o remount,size=...), or pass another folder in memory",
    )


def _memory_limit(room: MemoryRoom, available: int, reserve: int) -> str:
    name = "the machine's memory" if room.name == "MemAvailable" else f"the memory limit {room.name}"
    kept = f"of {human_bytes(available)} that are available {human_bytes(reserve)} stay with the processes"
    return f"{name} ({kept})"


def _memory_advice(room: MemoryRoom) -> str:
    if room.name == "MemAvailable":
        return "Free memory ('fastload cache ls' shows what caches hold)"
    return "Raise the limit (docker run --memory=..., SLURM --mem=..., systemd MemoryMax=)"


# ---- Whether a set gets a cache, and how large (pure functions) ----

ENCODED_TIER = "encoded"
_AUTO_SHARE = 2  # auto takes at most 1 / this of the available memory
_LEAST_SHARE = 0.05  # of a set; a smaller cache is not worth it
_SAME = 0.95  # a file that was allowed this share of the requested bytes is used as it is


@dataclass(frozen=True)
class Candidate:
    """The facts about one packed dataset for the decision."""

    name: str  # for messages: its folder
    need: int  # bytes of a file with all of its records
    in_memory: bool = False  # its shards are in a tmpfs
    remote: bool = False  # on a network file system, or in a store
    tier: str = ENCODED_TIER


@dataclass(frozen=True)
class Decision:
    """What to do for one part."""

    limit: int  # bytes of the file to create; 0: none
    reason: str  # one line
    nearer: str = ""  # without a file: where the records are just as near, "page cache" or "memory"


def decide(parts: Sequence[Candidate], setting: CacheSetting, room: Room) -> list[Decision]:
    """Decide on each part that has no cache yet; they share the room in proportion to their sizes.

    Raises:
        CacheError: an explicit setting cannot be satisfied.
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
            + f'; or pass a smaller size (cache="{_round_down(room.free)}"), or pass cache="off".'
        )
    limit = min(wanted, room.to_spare if most is None else room.free)
    if limit == 0:
        raise CacheError(room.lacking(total, str(setting)) + '; or pass cache="off".')
    return [_explicit(part, setting, limit * part.need // total) for part in parts]


def is_large_enough(allowed: int, setting: CacheSetting, part: Candidate, total: int, room: Room) -> bool:
    """Return whether a file that nobody uses is large enough.

    What counts is what it was allowed when it was created: how much of that was used depends on the records,
    and would be the same again.

    Args:
        allowed: bytes, the :attr:`Decision.limit` of its creation.
        total: bytes of files with all records of all parts that the setting is for.
        room: as if the file did not exist.
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
    """Decide for "auto". ``local``: bytes of all parts on local disks; ``share``: the part's of the room."""
    size, free = human_bytes(part.need), human_bytes(room.available)
    if part.tier == ENCODED_TIER:
        if part.in_memory:
            return Decision(0, f"no cache: the shards ({size}) are in memory already", "memory")
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


# ---- The cached sets in a folder ----


def set_name(dataset: PackedFiles, tier: str) -> str:
    """Return the name of the file of a dataset's records in one form: seal, form and format version."""
    return f"{dataset.manifest.seal}-{tier}-{VERSION[0]}{SUFFIX}"


@dataclass(frozen=True)
class CachedSet:
    """A cache file in a folder."""

    name: str
    path: Path
    bytes: int  # of memory, now
    size: int  # of the file: its final memory
    info: CacheInfo | None  # None: not a valid file
    stale: str  # why it is unusable; "": it may be used


def cached_sets(folder: Folder) -> list[CachedSet]:
    """Return all cached sets, by name."""
    names = sorted(name for name in os.listdir(folder.fd) if name.endswith((SUFFIX, TIER_SUFFIX)))
    return [found for name in names if (found := _look(folder, name)) is not None]


def _look(folder: Folder, name: str) -> CachedSet | None:
    path = folder.path / name
    try:
        names = [name, *stripe_names(folder, name)]
        found = [os.stat(each, dir_fd=folder.fd, follow_symlinks=False) for each in names]
        held, size = sum(one.st_blocks for one in found) * 512, sum(one.st_size for one in found)
        try:
            info = inspect(folder, name)
        except CacheError as error:
            return CachedSet(name, path, held, size, None, str(error))
    except FileNotFoundError:
        return None  # removed meanwhile
    return CachedSet(name, path, held, size, info, "" if info.in_use else _why_stale(info))


def _why_stale(info: CacheInfo) -> str:
    if info.version[0] != VERSION[0]:
        return f"format version {info.version[0]}, this fastload writes {VERSION[0]}"
    try:
        found = Manifest.read(info.source)
    except (FastloadError, OSError):
        # A folder that cannot be examined may exist: only what is surely gone is stale.
        gone = _is_gone(info.source / "dataset.json")
        return f"{info.source} no longer exists" if gone else ""
    if found.seal == info.dataset_id:
        return ""
    grown = "has grown since, or " if found.generations else ""
    return f"{info.source} {grown}holds another dataset now"


def _is_gone(path: Path) -> bool:
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:
        return False
    return False


def remove_stale(folder: Folder) -> Iterator[CachedSet]:
    """Remove what is stale and not in use, and yield what was removed. The caller holds the creation lock."""
    for found in cached_sets(folder):
        if found.stale and remove(folder, found.name):
            yield found


def users_of(path: Path) -> tuple[int, ...]:
    """Return the processes that have a file open or mapped, as far as visible: its user's, in this PID
    namespace."""
    try:
        wanted = os.stat(path, follow_symlinks=False)
    except OSError:
        return ()
    pids = (int(name) for name in os.listdir("/proc") if name.isdigit())
    return tuple(sorted(pid for pid in pids if _has_open(pid, wanted)))


def _has_open(pid: int, wanted: os.stat_result) -> bool:
    folder = f"/proc/{pid}/fd"
    try:
        names = os.listdir(folder)
    except OSError:
        return False  # it has ended, or is another user's
    return any(_is_file(f"{folder}/{name}", wanted) for name in names)


def _is_file(link: str, wanted: os.stat_result) -> bool:
    try:
        # A descriptor's target is examined only if its name is worth it: it may be on a server that does not
        # answer. The creator's descriptor still has the name of an unnamed file.
        return "/fastload-" in os.readlink(link) and os.path.samestat(os.stat(link), wanted)
    except OSError:
        return False  # closed meanwhile
