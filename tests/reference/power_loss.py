"""What a disk may hold after a power cut: replays recorded changes, and drops what nothing made durable.

``failing_calls.c`` records each change of files that a process makes. A model of a file system with few
promises replays them, after ALICE (Pillai et al., OSDI 2014) and CrashMonkey (Mohan et al., OSDI 2018):

- ``fsync`` of a file makes its data and size durable, not its name;
- ``fsync`` of a folder makes its entries durable: names that came, went or were renamed;
- ``syncfs`` makes all of it durable;
- everything else may have reached the disk or not, in any order, data in part (whole sectors of 512 bytes);
  one rename is there or not, never half.

Writes through a shared mapping are not recorded; :meth:`Replay.final_tree`, compared with what is really
there, finds such, and mistakes of the model.
"""

from __future__ import annotations

import os
import random
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

__all__ = ["Change", "Replay", "read_trace", "snapshot_tree", "write_tree"]

_HEAD = struct.Struct("<IIqqqqIIII")  # struct entry of failing_calls.c
DATA, SIZE, SYNC, CREATE, LINK, RENAME, UNLINK, MKDIR, RMDIR, UNNAMED, SYNC_ALL = range(1, 12)
_NAMES = (
    "",
    "data",
    "size",
    "sync",
    "create",
    "link",
    "rename",
    "unlink",
    "mkdir",
    "rmdir",
    "unnamed",
    "sync of all",
)
_SECTOR = 512


@dataclass(frozen=True)
class Change:
    """A change as it was recorded."""

    kind: int
    file: tuple[int, int]  # device and inode
    path: Path
    other: Path
    offset: int
    length: int
    data: bytes

    def __str__(self) -> str:
        behind = f" -> {self.other.name}" if self.kind in (LINK, RENAME) else ""
        span = f" [{self.offset}, +{self.length})" if self.kind in (DATA, SIZE) else ""
        return f"{_NAMES[self.kind]} {self.path.name}{behind}{span}"


def read_trace(path: Path) -> list[Change]:
    """The changes in a file that ``failing_calls`` has written."""
    text, at, changes = path.read_bytes(), 0, []
    while at < len(text):
        size, kind, device, inode, offset, length, name, other, data, _ = _HEAD.unpack_from(text, at)
        end = at + _HEAD.size
        first = Path(os.fsdecode(text[end : end + name]))
        second = Path(os.fsdecode(text[end + name : end + name + other]))
        held = text[end + name + other : at + size]
        assert len(held) == data
        changes.append(Change(kind, (device, inode), first, second, offset, length, held))
        at += size
    return changes


@dataclass(eq=False)
class _File:
    """A file: what was in it at the beginning."""

    data: bytes = b""


@dataclass(eq=False)
class _Folder:
    """A folder: what was in it at the beginning."""

    entries: dict[str, _File | _Folder] = field(default_factory=dict)


_Node = _File | _Folder
Tree = dict[str, bytes | None]  # paths: files with their bytes, folders with None


Before = tuple[_Folder, dict[tuple[int, int], _File]]  # a tree, and its files by device and inode


@dataclass
class _Effect:
    """What one change does to nodes, and when it is durable."""

    change: Change
    file: _File | None = None  # its data or size
    entries: Sequence[tuple[_Folder, str, _Node | None]] = ()  # names that come or go, all or none
    durable_at: int = 1 << 60  # the number of the change that makes it so


class Replay:
    """The states that a power cut may leave.

    Args:
        root: the folder whose changes were recorded, as it was before them: see :func:`snapshot_tree`.
        before: its tree then.
        changes: from :func:`read_trace`.
    """

    def __init__(self, root: Path, before: Before, changes: Sequence[Change]) -> None:
        self.root, self.changes = root, changes
        self._top, inodes = before
        self.effects: list[_Effect | None] = []  # of each change; None: a sync, or a node without a name yet
        live = {id(self._top): dict(self._top.entries)}
        self._live = live
        self._add_folders(self._top)
        open_files = dict(inodes)
        pending: dict[int, list[_Effect]] = {}  # effects that a sync of the node makes durable, by node
        for number, change in enumerate(changes):
            effect = self._effect(change, open_files)
            self.effects.append(effect)
            if change.kind == SYNC:
                node = open_files.get(change.file) or self._find(change.path)
                for waiting in pending.pop(id(node), ()):
                    waiting.durable_at = min(waiting.durable_at, number)
            elif change.kind == SYNC_ALL:
                for waiting in [each for group in pending.values() for each in group]:
                    waiting.durable_at = min(waiting.durable_at, number)
                pending.clear()
            elif effect is not None:
                changed = [effect.file, *(folder for folder, _, _ in effect.entries)]
                for node in {id(each): each for each in changed if each is not None}.values():
                    pending.setdefault(id(node), []).append(effect)

    def _add_folders(self, folder: _Folder) -> None:
        self._live[id(folder)] = dict(folder.entries)
        for node in folder.entries.values():
            if isinstance(node, _Folder):
                self._add_folders(node)

    def _find(self, path: Path) -> _Node | None:
        node: _Node | None = self._top
        for part in path.relative_to(self.root).parts:
            if not isinstance(node, _Folder):
                return None
            node = self._live[id(node)].get(part)
        return node

    def _folder_of(self, path: Path) -> _Folder:
        folder = self._find(path.parent)
        assert isinstance(folder, _Folder), path
        return folder

    def _effect(self, change: Change, files: dict[tuple[int, int], _File]) -> _Effect | None:
        kind = change.kind
        if kind in (SYNC, SYNC_ALL):
            return None
        if kind in (DATA, SIZE):
            file = files.get(change.file)
            assert file is not None, f"a file that the model does not know: {change}"
            return _Effect(change, file=file)
        if kind == UNNAMED:
            files[change.file] = _File()
            return None
        named: list[tuple[_Folder, str, _Node | None]] = []
        if kind in (CREATE, MKDIR):
            node: _Node = _File() if kind == CREATE else _Folder()
            if isinstance(node, _File):
                files[change.file] = node
            else:
                self._live[id(node)] = {}
                files.pop(change.file, None)  # a number that a file had
            named.append((self._folder_of(change.path), change.path.name, node))
        elif kind in (UNLINK, RMDIR):
            named.append((self._folder_of(change.path), change.path.name, None))
        else:
            moved = files.get(change.file)
            found = self._find(change.path) if moved is None or kind == RENAME else moved
            assert found is not None, f"a name that the model does not know: {change}"
            named.append((self._folder_of(change.other), change.other.name, found))
            if kind == RENAME:
                named.append((self._folder_of(change.path), change.path.name, None))
        for folder, name, node_or_none in named:
            entries = self._live[id(folder)]
            if node_or_none is None:
                entries.pop(name, None)
            else:
                entries[name] = node_or_none
        return _Effect(change, entries=named)

    # ---- states --------------------------------------------------------------------------------

    def optional(self, cut: int) -> list[int]:
        """Of the first ``cut`` changes those that nothing has made durable before the cut."""
        return [
            number
            for number, effect in enumerate(self.effects[:cut])
            if effect is not None and effect.durable_at >= cut
        ]

    def tree(self, cut: int, kept: set[int], torn: dict[int, int] | None = None) -> Tree:
        """What is on the disk after the first ``cut`` changes: paths below the root, files with their bytes,
        folders with None.

        Args:
            cut: how many changes were made.
            kept: of :meth:`optional` those that reached the disk.
            torn: of them data that did in part: how many of their bytes.
        """
        data: dict[int, bytearray] = {}
        entries = {key: dict(found) for key, found in self._before().items()}
        for number, effect in enumerate(self.effects[:cut]):
            if effect is None or (effect.durable_at >= cut and number not in kept):
                continue
            if effect.file is not None:
                held = data.setdefault(id(effect.file), bytearray(effect.file.data))
                _apply(held, effect.change, (torn or {}).get(number))
            for folder, name, node in effect.entries:
                into = entries.setdefault(id(folder), {})
                if node is None:
                    into.pop(name, None)
                else:
                    into[name] = node
        found: Tree = {}
        self._collect(self._top, "", entries, data, found)
        return found

    def _before(self) -> dict[int, dict[str, _Node]]:
        known: dict[int, dict[str, _Node]] = {}
        waiting = [self._top]
        while waiting:
            folder = waiting.pop()
            known[id(folder)] = folder.entries
            waiting += [node for node in folder.entries.values() if isinstance(node, _Folder)]
        return known

    def _collect(
        self, folder: _Folder, below: str, entries: dict[int, dict[str, _Node]], data: dict[int, bytearray],
        found: Tree,
    ) -> None:  # fmt: skip
        for name, node in entries.get(id(folder), {}).items():
            path = f"{below}{name}"
            if isinstance(node, _Folder):
                found[path] = None
                self._collect(node, f"{path}/", entries, data, found)
            else:
                found[path] = bytes(data.get(id(node), node.data))

    def final_tree(self) -> Tree:
        """With nothing lost: what is there when the process has ended."""
        return self.tree(len(self.changes), set(self.optional(len(self.changes))))

    def states(self, cut: int, random_: random.Random, count: int) -> Iterator[tuple[str, Tree]]:
        """``count`` states after ``cut`` changes at most, each with how it came about.

        The first are those in which nothing survived that need not, and all names did and no data.
        """
        optional = self.optional(cut)
        names = {n for n in optional if self.effects[n].entries}  # type: ignore[union-attr]
        choices: list[tuple[str, set[int], dict[int, int]]] = [("nothing unsynced", set(), {})]
        if optional:
            choices += [("all names, no data", names, {}), ("all data, no names", set(optional) - names, {})]
            if len(optional) > 1:
                choices.append(("only the last", {optional[-1]}, {}))
        while optional and len(choices) < count:
            share = random_.choice((0.1, 0.5, 0.9))
            kept = {n for n in optional if random_.random() < share}
            torn = {
                n: random_.randrange(0, len(self.changes[n].data) // _SECTOR + 1) * _SECTOR
                for n in sorted(kept)
                if self.changes[n].kind == DATA and random_.random() < 0.3
            }
            choices.append((f"kept {sorted(kept)}, torn {torn}", kept, torn))
        for words, kept, torn in choices[:count]:
            yield f"cut {cut}: {words}", self.tree(cut, kept, torn)


def _apply(held: bytearray, change: Change, torn: int | None) -> None:
    if change.kind == SIZE:
        size = change.length
        if size < len(held):
            del held[size:]
        else:
            held.extend(bytes(size - len(held)))
        return
    data = change.data if torn is None else change.data[:torn]
    end = change.offset + len(change.data)  # the size may have grown before the data came
    if len(held) < end:
        held.extend(bytes(end - len(held)))
    held[change.offset : change.offset + len(data)] = data


def snapshot_tree(root: Path) -> Before:
    """What is below a folder now, which counts as durable."""
    inodes: dict[tuple[int, int], _File] = {}

    def walk(folder: Path) -> _Folder:
        found = _Folder()
        for entry in sorted(os.scandir(folder), key=lambda each: each.name):
            if entry.is_dir(follow_symlinks=False):
                found.entries[entry.name] = walk(Path(entry.path))
            else:
                status = entry.stat(follow_symlinks=False)
                key = (status.st_dev, status.st_ino)
                if key not in inodes:
                    inodes[key] = _File(Path(entry.path).read_bytes())
                found.entries[entry.name] = inodes[key]
        return found

    return walk(root), inodes


def write_tree(root: Path, tree: Tree) -> None:
    """Make a state real below an empty or new folder."""
    root.mkdir(parents=True, exist_ok=True)
    for name, data in tree.items():
        if data is None:
            (root / name).mkdir(exist_ok=True)
        else:
            (root / name).write_bytes(data)
