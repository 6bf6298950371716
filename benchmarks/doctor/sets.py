"""The sets of bench_doctor.py: pictures as they are, without entry points, progressive, large, uneven."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable
from itertools import cycle, islice
from pathlib import Path

from harness.command_line import pack_folder
from PIL import Image

__all__ = ["SETS", "picture_folder", "set_of"]

LARGE_SIDE = 2400
LARGE_COUNT = 48
UNEVEN_EVERY = 24  # one picture in so many is large, the others are small
SMALL_SIDE = 96
QUALITY = 90
COPIES = 8000  # records of the set that a slow disk is not read through in seconds


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.suffix.lower() in {".jpg", ".jpeg"})


def _scaled(path: Path, side: int) -> Image.Image:
    with Image.open(path) as picture:
        image = picture.convert("RGB")
    factor = side / max(image.size)
    size = (max(1, round(image.width * factor)), max(1, round(image.height * factor)))
    return image.resize(size, Image.Resampling.BILINEAR)


def _saved(image: Image.Image, progressive: bool = False) -> bytes:
    made = io.BytesIO()
    image.save(made, "JPEG", quality=QUALITY, progressive=progressive)
    return made.getvalue()


def _as_it_is(path: Path, number: int) -> bytes:
    return path.read_bytes()


def _progressive(path: Path, number: int) -> bytes:
    with Image.open(path) as picture:
        return _saved(picture.convert("RGB"), progressive=True)


def _large(path: Path, number: int) -> bytes:
    return _saved(_scaled(path, LARGE_SIDE))


def _uneven(path: Path, number: int) -> bytes:
    return _saved(_scaled(path, LARGE_SIDE if number % UNEVEN_EVERY == 0 else SMALL_SIDE))


#: By name: what becomes of each picture, how many of them, and options of ``fastload pack``.
SETS: dict[str, tuple[Callable[[Path, int], bytes], int | None, tuple[str, ...]]] = {
    "plain": (_as_it_is, None, ()),
    "copies": (_as_it_is, COPIES, ()),
    "bare": (_as_it_is, None, ("--entries", "none")),
    "indexed": (_as_it_is, None, ()),
    "progressive": (_progressive, 200, ()),
    "baseline": (_progressive, 200, ("--baseline",)),
    "large": (_large, LARGE_COUNT, ()),
    "small": (_large, LARGE_COUNT, ("--max-side", "512")),
    "uneven": (_uneven, 480, ()),
    "even": (_uneven, 480, ("--max-side", "512")),
}


def picture_folder(images: Path, work: Path, name: str) -> Path:
    """The pictures of a set as an image folder; made once."""
    make, count, _ = SETS[name]
    folder = work / "pictures" / f"{make.__name__.strip('_')}-{count or 'all'}"
    if not folder.exists():
        part = folder.with_suffix(".part")
        files = _files(images)
        _write(part, islice(cycle(files), count or len(files)), make)
        part.rename(folder)
    return folder


def _write(folder: Path, files: Iterable[Path], make: Callable[[Path, int], bytes]) -> None:
    for number, path in enumerate(files):
        target = folder / path.parent.name / f"{path.stem}-{number}.jpg"
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(make(path, number))


def set_of(images: Path, work: Path, name: str) -> Path:
    """The packed set; made once."""
    target = work / "sets" / name
    if not (target / "dataset.json").exists():
        pack_folder(picture_folder(images, work, name), target, "--quiet", *SETS[name][2])
    return target
