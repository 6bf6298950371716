"""The indexes of sets in stores that the node keeps: who uses them, which there are, removed."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from fastload.machine.paths import is_dir
from fastload.remote.node_folder import NodeFolder, node_root

__all__ = ["NodeSet", "NodeUse", "node_sets", "remove_node_set", "write_source"]

_USE, _SOURCE = ".use", ".source"
_ID = re.compile(r"[0-9a-f]{32}")


class NodeUse:
    """A set's folder, in use as long as this lives: a shared lock, which the system gives back when its
    process is killed.

    Raises:
        CacheError: the folder cannot be made.
    """

    def __init__(self, name: str) -> None:
        self.folder = NodeFolder(name)
        self._file: int | None = None
        while self._file is None:
            try:
                found = os.open(self.folder.path / _USE, os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
            except OSError as error:
                raise self.folder.failed("cannot be written to", error) from error
            with contextlib.suppress(OSError):  # a file system without locks
                fcntl.flock(found, fcntl.LOCK_SH)
            if _is_at(found, self.folder.path / _USE):
                self._file = found
            else:  # removed while this waited
                os.close(found)
                self.folder = NodeFolder(name)

    # The defaults: where the interpreter ends, its modules have ended before.
    def __del__(
        self,
        close: Callable[[int], None] = os.close,
        suppress: type[contextlib.suppress] = contextlib.suppress,
    ) -> None:
        if getattr(self, "_file", None) is not None:
            with suppress(OSError):
                close(self._file)  # type: ignore[arg-type]
            self._file = None


def _is_at(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path))
    except FileNotFoundError:
        return False


def write_source(folder: NodeFolder, source: str) -> None:
    """Note where a set came from, for who lists them."""
    with contextlib.suppress(OSError):
        (folder.path / _SOURCE).write_text(source, encoding="utf-8")


@dataclass(frozen=True)
class NodeSet:
    """One set's folder on the node."""

    path: Path
    source: str  # where it was fetched from; "": not known
    bytes: int  # on the disk
    in_use: bool


def node_sets() -> list[NodeSet]:
    """All sets whose indexes this user's node keeps, by their ids.

    Raises:
        CacheError: there is no place for them.
    """
    root = node_root()
    if not is_dir(root):
        return []
    found = [_look(path) for path in sorted(root.iterdir()) if _ID.fullmatch(path.name) and is_dir(path)]
    return [each for each in found if each is not None]


def _look(path: Path) -> NodeSet | None:
    """What a folder holds; None: somebody has just removed it."""
    with contextlib.suppress(FileNotFoundError):
        return _facts(path)
    return None


def _facts(path: Path) -> NodeSet:
    size = 0
    for file in path.iterdir():
        with contextlib.suppress(FileNotFoundError):
            size += file.stat().st_blocks * 512
    try:
        source = (path / _SOURCE).read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        source = ""
    lock = _alone(path)
    if lock is not None:
        os.close(lock)
    return NodeSet(path, source, size, lock is None)


def _alone(path: Path) -> int | None:
    """The lock of a folder that nobody uses; None: it is in use, or nobody can tell."""
    descriptor = os.open(path / _USE, os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        return None
    return descriptor


def remove_node_set(found: NodeSet) -> bool:
    """Remove a set's folder; False: somebody uses it.

    Raises:
        OSError: it cannot be removed.
    """
    try:
        lock = _alone(found.path)
    except FileNotFoundError:  # somebody else has removed it
        return True
    if lock is None:
        return False
    try:
        for file in found.path.iterdir():
            if file.name != _USE:
                file.unlink(missing_ok=True)
        (found.path / _USE).unlink(missing_ok=True)  # last: who opens the set meanwhile waits at it
        with contextlib.suppress(OSError):  # somebody has begun to fetch it anew
            found.path.rmdir()
    finally:
        os.close(lock)
    return True
