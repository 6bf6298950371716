"""Image folders by torchvision's ImageFolder rules, so that sample ids and labels are the same."""

from __future__ import annotations

import os
from collections.abc import Iterator

__all__ = ["IMG_EXTENSIONS", "Problem", "class_names", "has_images", "walk_images"]

# torchvision.datasets.folder.IMG_EXTENSIONS
IMG_EXTENSIONS = (b".jpg", b".jpeg", b".png", b".ppm", b".bmp", b".pgm", b".tif", b".tiff", b".webp")
Problem = tuple[bytes, str]  # path below the root, reason
Found = tuple[bytes, int, int]  # path below the root, bytes, modification time in ns


def class_names(root: bytes) -> list[bytes]:
    """The names of the folders in ``root``, sorted as ImageFolder sorts them (by code point)."""
    with os.scandir(root) as entries:
        names = [
            entry.name for entry in entries if entry.is_dir() and not entry.name.startswith(b".fastload")
        ]
    return sorted(names, key=os.fsdecode)


def has_images(root: bytes) -> bool:
    """Whether ``root`` itself holds a file with an image's extension."""
    with os.scandir(root) as entries:
        return any(_is_image(entry.name) and entry.is_file() for entry in entries)


def _is_image(name: bytes) -> bool:
    return name.lower().endswith(IMG_EXTENSIONS)


def walk_images(root: bytes, below: bytes, problems: list[Problem], nested: bool = True) -> Iterator[Found]:
    """The image files of ``root/below`` in ImageFolder's order: by folder, then by name.

    Links are followed, as ImageFolder follows them, but not into a folder that contains them.
    Folders that cannot be read go to ``problems``; a file that cannot be examined has size 0.
    """
    for folder in sorted(_walk_folders(root, below, problems, nested), key=os.fsdecode):
        try:
            entries = _image_entries(os.path.join(root, folder))
        except OSError as error:
            problems.append((folder, f"cannot read the folder: {error.strerror}"))
            continue
        for name, size, mtime_ns in entries:
            yield os.path.join(folder, name) if folder else name, size, mtime_ns


def _image_entries(folder: bytes) -> list[Found]:
    found = []
    with os.scandir(folder) as entries:
        for entry in entries:
            if not _is_image(entry.name) or _is_folder(entry):
                continue
            try:
                status = entry.stat()
                found.append((entry.name, status.st_size, status.st_mtime_ns))
            except OSError:
                found.append((entry.name, 0, 0))
    return sorted(found, key=lambda item: os.fsdecode(item[0]))


def _is_folder(entry: os.DirEntry[bytes]) -> bool:
    try:
        return entry.is_dir()
    except OSError:
        return False


def _walk_folders(root: bytes, below: bytes, problems: list[Problem], nested: bool) -> Iterator[bytes]:
    """``below`` and all folders under it; a link to a folder that contains it is left out."""
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
        if nested:
            stack += [(os.path.join(folder, name), parents | {identity}) for name in _folders_in(path)]


def _folders_in(path: bytes) -> list[bytes]:
    try:
        with os.scandir(path) as entries:
            return [entry.name for entry in entries if _is_folder(entry)]
    except OSError:
        return []  # listing its images fails the same way and reports it
