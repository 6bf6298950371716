"""A folder of JPEGs repeated by links until an epoch is long enough to be measured."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from loaders.jobs import is_jpeg

__all__ = ["bytes_below", "pictures_in", "repeat_images"]


def pictures_in(folder: Path) -> list[Path]:
    """The JPEGs of a folder."""
    found = sorted(path for path in folder.rglob("*") if path.suffix.lower() in (".jpg", ".jpeg"))
    if not found:
        raise SystemExit(f"{folder} has no JPEGs.")
    return found


def bytes_below(folder: Path) -> int:
    """Of all files in a folder and below; a file with several names counts for each."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def repeat_images(source: Path, target: Path, at_least: int) -> tuple[int, int]:
    """Fill ``target`` with ``source``'s classes, every JPEG as often as it takes for ``at_least`` files.

    Other files are left out (several rivals read nothing but JPEG). A folder without class folders
    becomes one class. Hard links where the file system allows them, else copies.

    Returns:
        Files in ``target``, and files of ``source`` that were left out.

    Raises:
        ValueError: no JPEG in ``source``.
    """
    found: list[tuple[str, Path]] = []
    others = 0
    for path in sorted(path for path in source.rglob("*") if path.is_file()):
        if is_jpeg(path):
            parts = path.relative_to(source).parts
            found.append((parts[0] if len(parts) > 1 else "all", path))
        else:
            others += 1
    if not found:
        raise ValueError(f"{source} holds no JPEG file ({others} others).")
    repeats = -(-at_least // len(found))
    for number, (name, path) in enumerate(found):
        folder = target / name
        folder.mkdir(parents=True, exist_ok=True)
        for repeat in range(repeats):
            _link(path, folder / f"{repeat:04d}-{number:08d}.jpg")
    return repeats * len(found), others


def _link(path: Path, link: Path) -> None:
    try:
        os.link(path, link)
    except OSError:
        shutil.copyfile(path, link)
