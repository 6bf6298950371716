"""Where a set of COCO's has its pictures, and what its splits are called."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from fastload.errors import PackError
from fastload.machine.paths import is_dir, is_file, open_regular
from fastload.packing.annotations.coco_index import CocoFile
from fastload.packing.looks import said_later
from fastload.packing.names import printable

__all__ = [
    "IN_ITS_FOLDER", "digest_of", "folder_of", "is_deep", "is_outside", "maps_of", "png_name", "split_of",
]  # fmt: skip

IN_ITS_FOLDER = "_annotations.coco.json"  # beside the pictures, as some tools write it
_NAMES = re.compile(r"(instances|person_keypoints|captions|image_info|panoptic|stuff)[_-]?(.*)")
_AT_ONCE = 1 << 20
_LOOKED_AT = 16


def split_of(path: Path) -> str:
    """The split that a JSON is of, by its name."""
    if path.name == IN_ITS_FOLDER:
        return ""
    match = _NAMES.fullmatch(path.stem)
    return match[2] if match else path.stem


def folder_of(place: Path, split: str, file: CocoFile) -> Path:
    """Where the pictures are: the folder in which some of the first ones are found."""
    images = place / "images"
    folders = [*([place / split, images / split] if split else []), images, place]
    names = [file.name(number) for number in range(min(len(file), _LOOKED_AT))]
    for folder in folders:
        inside = (os.path.join(os.fsencode(folder), name) for name in names if not is_outside(name))
        if any(map(is_file, inside)):
            return folder
    looked = ", ".join(map(str, folders))
    shown = printable(names[0]) if names else "none"
    raise PackError(
        f"the pictures of {file.path} are in none of these folders: {looked} (the first: {shown})."
    )


def is_outside(name: bytes) -> bool:
    """Whether a file name is no path below the folder of the pictures."""
    return os.path.isabs(name) or os.path.normpath(name).split(b"/")[0] == b".."


def digest_of(path: Path) -> str:
    """What tells a file from others."""
    hashed = hashlib.blake2b(digest_size=16)
    with open(path, "rb") as file:
        while part := file.read(_AT_ONCE):
            hashed.update(part)
    return hashed.hexdigest()


def maps_of(place: Path, split: str, files: Sequence[Path], asked: str | None) -> Path | None:
    """The folder of PNGs whose pixels are ids of COCO-Stuff's classes, a picture's under the picture's name.

    Args:
        place: the folder of the set.
        split: its split, "" where it has none.
        files: its JSONs; ``stuff_val2017.json`` may have ``stuff_val2017_pixelmaps`` beside it.
        asked: the folder that is said to be it, or a parent of ``split``.

    Raises:
        PackError: ``asked`` is no folder.
    """
    if asked is not None:
        folder = next((path for path in (Path(asked).absolute(), place / asked) if is_dir(path)), None)
        if folder is None:
            raise PackError(f"{Path(asked).absolute()} is no folder; --masks takes the folder of the PNGs.")
        return folder / split if split and is_dir(folder / split) else folder
    beside = [where / f"{path.stem}_pixelmaps" for path in files for where in (path.parent, place)]
    named = [*beside, *([place / "stuffthingmaps" / split] if split else [])]
    return next((path for path in named if is_dir(path)), None)


def is_deep(folder: Path, names: Iterable[bytes]) -> bool:
    """Whether one of these PNGs has 16 bits a pixel."""
    for name in names:
        try:
            with open_regular(path := os.path.join(os.fsencode(folder), name)) as file:
                if file.read(25)[24:] == b"\x10":  # the header's depth
                    return True
        except (OSError, ValueError) as error:
            said_later(path, error)
            continue
    return False


def png_name(picture: bytes) -> bytes:
    """What the PNG of a picture is called in COCO's own files."""
    return os.path.splitext(os.path.basename(picture))[0] + b".png"
