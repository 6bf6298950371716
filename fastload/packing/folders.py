"""Folders of images: their classes and splits, the listing of their files, and bytes read in groups."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from fastload.errors import PackError
from fastload.machine.sizes import counted
from fastload.packing.files import printable
from fastload.shard.suffixes import is_image

# ---- Folders: class, split or neither ---------------------------------------------------------------
# These rules serve folders of this machine, keys of a store, and names of tables and tars. Images and
# their order are those of torchvision's ImageFolder, so that sample ids and labels are the same.

#: What ``--as`` can say of a source's folders, where their names do not tell.
FOLDERS_ARE = ("classes", "splits")
Problem = tuple[bytes, str]  # path below the root, reason
Found = tuple[bytes, int, int]  # path below the root, bytes, modification time in ns

# Folders that programs make: archives of macOS, thumbnails of a NAS, compiled Python.
_OF_PROGRAMS = ("__MACOSX", "@eaDir", "__pycache__")
_SPLIT_WORD = (
    r"train(?:ing)?|train[ _-]?val|val(?:id(?:ation)?)?|minival|test(?:ing)?|dev(?:elopment)?|eval(?:uation)?"
)
# train, Train, val2017, test-dev2017, training_set, test images, valid_02
_SPLIT = re.compile(
    rf"(?:{_SPLIT_WORD})(?:[ _.-]?(?:dev|std|set|split|data|images?|imgs?))?(?:[ _.-]?\d+)?",
    re.IGNORECASE | re.ASCII,
)
_SHOWN = 5  # names in a message
# What is listed by name, and its words: the noun, and what follows it.
_NAMED = {
    "beside": ("image", "left out beside the folders, without a class"),
    "classes": ("class", "without images"),
    "empty": ("folder", "without images left out"),
    "hidden": ("hidden folder", "left out"),
}
_SUFFIXES_KEPT = 1000  # counted separately


def is_hidden(name: str) -> bool:
    """Whether a folder of this name is left out: a hidden one, or one that a program made."""
    return name.startswith(".") or name in _OF_PROGRAMS


def is_split(name: str) -> bool:
    """Whether a name is that of a split: train, val, test and the like, in any case, optionally followed by a
    year or number or a word like ``set``."""
    return _SPLIT.fullmatch(name) is not None


def splits_among(names: Sequence[str], where: object, asked: str | None = None, advice: str = "") -> bool:
    """Whether folders (or files) of these names are splits: all of them, or none.

    Names with a common beginning or end, as ``seg_train`` and ``seg_test``, are compared without it.

    Args:
        names: folders that count, so neither hidden nor without images.
        where: what holds them, for messages.
        asked: the value of ``--as``, which decides if it is one of :data:`FOLDERS_ARE`.
        advice: what to do if two readings are possible; "": the advice for folders of images.

    Raises:
        PackError: some look like splits and others do not.
    """
    if asked in FOLDERS_ARE:
        return asked == "splits"
    named = [name for name in names if is_split(name)]
    if not named:
        inner = _without_common(names)
        return len(set(inner)) > 1 and all(map(is_split, inner))
    if len(named) == len(names):
        return True
    others = [name for name in names if name not in named]
    raise PackError(
        f"{where} can be read in two ways: {_shown(named)} {'look' if len(named) > 1 else 'looks'} like "
        f"{'splits' if len(named) > 1 else 'a split'}, {_shown(others)} like "
        f"{'classes' if len(others) > 1 else 'a class'}. "
        + (
            advice
            or "Say which: --as splits makes a dataset of each folder, --as classes a class of each (in "
            "Python as_=); or give one folder, or move what does not belong there."
        )
    )


def split_folders(root: bytes, asked: str | None = None) -> list[str]:
    """Return the splits in a folder of annotated images; none if it is one set.

    Raises:
        PackError: some of its folders look like splits and others do not, or images lie beside the splits.
    """
    names, where = list(map(os.fsdecode, folders_in(root).full)), printable(root)
    if not splits_among(names, where, asked, "Move what is no split to another place, or rename it."):
        return []
    with os.scandir(root) as entries:
        beside = next((entry.name for entry in entries if is_image(entry.name) and entry.is_file()), None)
    if beside is not None:
        raise PackError(
            f"{where} has the splits {_shown(names)} and images beside them, as {printable(beside)}. Move "
            "those into one of the splits, or away."
        )
    return names


class SplitsWithin:
    """Refuses class folders that contain splits, which would be packed together.

    Args:
        where: the folder of the class folders, for messages.
        asked: the value of ``--as``; if it says what folders are, nothing is refused.
        split: whether that folder is a split itself.
    """

    def __init__(self, where: object, asked: str | None, split: bool = False) -> None:
        self._where, self._asked = where, asked
        self._take = "splits" if split else "classes"  # what --as must say to take all
        self._seen: set[str] = set()

    def check(self, folder: str, inside: str) -> None:
        """Check an image, given its class folder and its path inside that folder.

        Raises:
            PackError: the image lies in a split.
        """
        first, nested, _ = inside.partition("/")
        if not nested or self._asked in FOLDERS_ARE or first in self._seen:
            return
        if is_split(first):
            raise PackError(
                f"{self._where} has a folder {folder!r} with {first!r} in it: either a class with splits, "
                f"which would be packed together, or a folder around them. Give '{self._where}/{folder}' to "
                f"pack its splits apart, or --as {self._take} (in Python as_='{self._take}') to take all of "
                f"it for the class {folder!r}."
            )
        self._seen.add(first)


def _without_common(names: Sequence[str]) -> list[str]:
    """Return the names without their common beginning and end, up to a separator."""
    if len(names) < 2:
        return list(names)
    begin = _common_beginning(names)
    rest = [name[begin:] for name in names]
    end = _common_beginning([name[::-1] for name in rest])
    return [name[: len(name) - end] for name in rest]


def _common_beginning(names: Sequence[str]) -> int:
    """Return the number of letters up to the last separator before which all names are the same."""
    same = 0
    for letters in zip(*names, strict=False):
        if len(set(letters)) > 1:
            break
        same += 1
    return len(re.sub(r"[^ _.-]*$", "", names[0][:same]))


def _shown(names: Sequence[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(map(repr, names[:_SHOWN])) + more


@dataclass
class Ignored:
    """Parts of a source that are not packed but are no error either; they are reported.

    Args:
        hidden: paths of folders that are hidden or made by programs.
        empty: folders without images.
        classes: class folders without images, which ImageFolder counts as classes.
        files: files other than images, by suffix.
        beside: images beside class folders or splits, which have no class.
    """

    hidden: list[str] = field(default_factory=list)
    empty: list[str] = field(default_factory=list)
    classes: list[str] = field(default_factory=list)
    files: Counter[str] = field(default_factory=Counter)
    beside: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)

    def folders(self, found: Folders, as_classes: bool) -> None:
        """Note the folders that do not count."""
        for why, names in (("hidden", found.hidden), ("classes" if as_classes else "empty", found.empty)):
            for name in names:
                self.folder(name, why)

    def folder(self, path: bytes, why: str) -> None:
        """Note a folder: ``"hidden"``, ``"empty"``, or an empty one of ``"classes"``."""
        self._name(why, path)

    def hide(self, paths: Iterable[str]) -> None:
        """Note hidden folders."""
        for path in sorted(paths):
            self.folder(path.encode(), "hidden")

    def image(self, path: bytes) -> None:
        """Note an image that has no class."""
        self._name("beside", path)

    def file(self, name: bytes) -> None:
        """Note a file whose name is not that of an image."""
        suffix = printable(os.path.splitext(name)[1].lower()) or "no suffix"
        if suffix in self.files or len(self.files) < _SUFFIXES_KEPT:
            self.files[suffix] += 1
        else:
            self.files["others"] += 1

    def _name(self, what: str, path: bytes) -> None:
        self.counts[what] += 1
        self._keep(what, [printable(path)])

    def _keep(self, what: str, paths: Sequence[str]) -> None:
        """Keep the first paths in sorted order, whichever come first."""
        kept: list[str] = getattr(self, what)
        kept[:] = sorted([*kept, *paths])[:_SHOWN]

    def add(self, other: Ignored) -> None:
        """Add what another one has noted."""
        for what in _NAMED:
            self._keep(what, getattr(other, what))
        self.counts.update(other.counts)
        self.files.update(other.files)

    def to_json(self) -> dict[str, Any]:
        """Return the manifest's entry; empty if nothing was left out."""
        facts: dict[str, Any] = {
            what: {"count": self.counts[what], "examples": getattr(self, what)}
            for what in _NAMED
            if self.counts[what]
        }
        if self.files:
            facts["files"] = dict(sorted(self.files.items(), key=lambda item: (-item[1], item[0])))
        return facts


def ignored_words(facts: Any) -> list[str]:
    """Return in words what :meth:`Ignored.to_json` says."""
    lines = []
    for what, (name, rest) in _NAMED.items():
        if what in facts:
            examples, count = facts[what]["examples"], int(facts[what]["count"])
            shown = ", ".join(examples) + (", ..." if count > len(examples) else "")
            lines.append(f"{counted(count, name)} {rest} ({shown})")
    if "files" in facts:
        kinds = ", ".join(f"{suffix} {count}" for suffix, count in facts["files"].items())
        files = counted(sum(facts["files"].values()), "file")
        lines.append(f"{files} without an image's suffix left out ({kinds})")
    return lines


@dataclass(frozen=True)
class Folders:
    """The folders inside one folder, sorted as ImageFolder sorts them (by code point).

    Args:
        full: folders that count: not hidden, with an image below them.
        empty: folders without images.
        hidden: folders that are hidden or made by programs.
    """

    full: list[bytes]
    empty: list[bytes]
    hidden: list[bytes]

    @property
    def classes(self) -> list[bytes]:
        """The class folders: ImageFolder counts one without images as a class, too."""
        return sorted([*self.full, *self.empty], key=os.fsdecode) if self.full else []


def folders_in(root: bytes) -> Folders:
    """Return the folders in ``root``."""
    folders = Folders([], [], [])
    with os.scandir(root) as entries:
        names = [
            entry.name for entry in entries if entry.is_dir() and not entry.name.startswith(b".fastload")
        ]
    for name in sorted(names, key=os.fsdecode):
        if is_hidden(os.fsdecode(name)):
            folders.hidden.append(name)
        else:
            (folders.full if has_image_below(os.path.join(root, name)) else folders.empty).append(name)
    return folders


def has_image_below(folder: bytes) -> bool:
    """Whether there is an image below a folder; True if it cannot be read, which packing reports."""
    stack: list[tuple[bytes, frozenset[tuple[int, int]]]] = [(folder, frozenset())]
    while stack:
        path, parents = stack.pop()
        try:
            status = os.stat(path)
            identity = (status.st_dev, status.st_ino)
            if identity in parents:
                continue
            with os.scandir(path) as entries:
                for entry in entries:
                    if _is_folder(entry):
                        if not is_hidden(os.fsdecode(entry.name)):
                            stack.append((entry.path, parents | {identity}))
                    elif is_image(entry.name):
                        return True
        except OSError:
            return True
    return False


def walk_images(
    root: bytes, below: bytes, problems: list[Problem], nested: bool = True, ignored: Ignored | None = None
) -> Iterator[Found]:
    """Yield the image files of ``root/below`` in ImageFolder's order: by folder, then by name.

    Links are followed, as in ImageFolder, but not into a folder that contains them.
    Folders that cannot be read go to ``problems``; a file that cannot be examined has size 0. Hidden folders
    are left out.
    """
    for folder in sorted(_walk_folders(root, below, problems, nested, ignored), key=os.fsdecode):
        try:
            entries = _image_entries(os.path.join(root, folder), ignored)
        except OSError as error:
            problems.append((folder, f"cannot read the folder: {error.strerror}"))
            continue
        for name, size, mtime_ns in entries:
            yield os.path.join(folder, name) if folder else name, size, mtime_ns


def _image_entries(folder: bytes, ignored: Ignored | None) -> list[Found]:
    rows = []
    with os.scandir(folder) as entries:
        for entry in entries:
            if _is_folder(entry):
                continue
            if not is_image(entry.name):
                if ignored is not None:
                    ignored.file(entry.name)
                continue
            try:
                status = entry.stat()
                rows.append((entry.name, status.st_size, status.st_mtime_ns))
            except OSError:
                rows.append((entry.name, 0, 0))
    return sorted(rows, key=lambda item: os.fsdecode(item[0]))


def _is_folder(entry: os.DirEntry[bytes]) -> bool:
    try:
        return entry.is_dir()
    except OSError:
        return False


def _walk_folders(
    root: bytes, below: bytes, problems: list[Problem], nested: bool, ignored: Ignored | None
) -> Iterator[bytes]:
    """Yield ``below`` and all folders under it, except a link to a folder that contains it."""
    stack: list[tuple[bytes, frozenset[tuple[int, int]]]] = [(below, frozenset())]
    while stack:
        folder, parents = stack.pop()
        path = os.path.join(root, folder)
        try:
            status = os.stat(path)
        except OSError as error:
            problems.append((folder, f"cannot examine the folder: {error.strerror}"))
            continue
        identity = (status.st_dev, status.st_ino)
        if identity in parents:
            continue
        yield folder
        for name in _folders_in(path) if nested else ():
            if not is_hidden(os.fsdecode(name)):
                stack.append((os.path.join(folder, name), parents | {identity}))
            elif ignored is not None:
                ignored.folder(os.path.join(folder, name), "hidden")


def _folders_in(path: bytes) -> list[bytes]:
    try:
        with os.scandir(path) as entries:
            return [entry.name for entry in entries if _is_folder(entry)]
    except OSError:
        return []  # listing its images fails the same way and reports it
