"""The cached sets in a folder: listed, judged stale, removed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from fastload.cache.files import SUFFIX, TIER_SUFFIX, CacheInfo, Folder, inspect, remove, stripe_names
from fastload.cache.layout import VERSION
from fastload.errors import CacheError, FastloadError
from fastload.shard.dataset import PackedFiles
from fastload.shard.manifest import Manifest

__all__ = ["CachedSet", "cached_sets", "remove_stale", "set_name", "users_of"]


def set_name(dataset: PackedFiles, tier: str) -> str:
    """The name of the file of a dataset's records in one form: id, form and format version."""
    return f"{dataset.id}-{tier}-{VERSION[0]}{SUFFIX}"


@dataclass(frozen=True)
class CachedSet:
    """A cache file in a folder."""

    name: str
    path: Path
    bytes: int  # of memory, now
    size: int  # of the file: what it will take
    info: CacheInfo | None  # None: not a valid file
    stale: str  # why nobody will use it any more; empty: somebody may


def cached_sets(folder: Folder) -> list[CachedSet]:
    """All of them, by name."""
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
        found = Manifest.read(info.source).id
    except (FastloadError, OSError):
        # What cannot be looked at may be there: only what is surely gone is stale.
        gone = _is_gone(info.source / "dataset.json")
        return f"{info.source} is not there any more" if gone else ""
    return "" if found == info.dataset_id else f"{info.source} holds another dataset now"


def _is_gone(path: Path) -> bool:
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:
        return False
    return False


def remove_stale(folder: Folder) -> Iterator[CachedSet]:
    """Remove what is stale and not in use, and give what was removed. The caller holds the creation lock."""
    for found in cached_sets(folder):
        if found.stale and remove(folder, found.name):
            yield found


def users_of(path: Path) -> tuple[int, ...]:
    """The processes that have a file open or mapped, as far as this one may look: its user's, in its PID
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
        return False  # ended meanwhile, or another user's
    return any(_is_file(f"{folder}/{name}", wanted) for name in names)


def _is_file(link: str, wanted: os.stat_result) -> bool:
    try:
        # A descriptor's target is not looked at before its name says that it is worth it: it may lie on a
        # server that does not answer. The maker's still has the name of a file without one.
        return "/fastload-" in os.readlink(link) and os.path.samestat(os.stat(link), wanted)
    except OSError:
        return False  # closed meanwhile
