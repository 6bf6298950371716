"""COCO's sets: a folder of pictures, and JSONs of their objects (instances, keypoints, stuff), captions and
segments; which of them are found, and which go together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fastload.errors import PackError
from fastload.machine.paths import is_dir, is_file
from fastload.packing.annotations.coco_folders import IN_ITS_FOLDER, maps_of, split_of
from fastload.packing.annotations.coco_index import CocoFile, first_annotation
from fastload.packing.annotations.coco_samples import coco_samples
from fastload.packing.annotations.coco_schema import CAPTIONS, OBJECTS, SEGMENTS, Part
from fastload.packing.looks import names_in
from fastload.packing.options import PackOptions
from fastload.packing.samples.given import AnnotatedSource

__all__ = ["coco_files", "coco_source"]

_FIRST = ("instances", "person_keypoints")  # of files with objects; others behind them


@dataclass(frozen=True)
class _Found:
    path: Path
    what: str  # OBJECTS, CAPTIONS or SEGMENTS


def coco_files(place: Path) -> list[Path]:
    """COCO's JSONs of objects and of captions in a folder of a set."""
    if not is_dir(place):
        return []
    folder = place / "annotations"
    names = [name for name in names_in(folder) if name.endswith(".json")]
    found = [*(folder / name for name in names), place / IN_ITS_FOLDER]
    return [path for path in found if is_file(path) and _what_of(path) in (OBJECTS, CAPTIONS)]


def coco_source(
    place: Path, annotations: Sequence[str], options: PackOptions
) -> list[tuple[str, AnnotatedSource]]:
    """The splits of a set, each with its samples; where there is one only, it has no name.

    Args:
        place: the folder of the set, or of the pictures.
        annotations: the JSONs; (): those that lie in ``place``.
        options: the pack's.

    Raises:
        PackError: JSONs that are none of COCO's, or of which nobody knows what goes together.
    """
    paths = [_given(place, name) for name in annotations] or coco_files(place)
    found_files = []
    for path in paths:
        what = _what_of(path)
        if what is None:
            CocoFile(path)  # says what is wrong with it
            raise PackError(
                f"{path} has neither objects ('bbox') nor captions ('caption') in its annotations, nor "
                "segments ('segments_info')."
            )
        found_files.append(_Found(path, what))
    # Objects, captions and segments that are named go together, whatever they are called.
    is_one = bool(annotations) and len({one.what for one in found_files}) == len(found_files)
    splits: dict[str, list[_Found]] = {}
    for one in found_files:
        splits.setdefault(split_of(paths[0] if is_one else one.path), []).append(one)
    made: list[tuple[str, AnnotatedSource]] = []
    for split, found in splits.items():
        maps = maps_of(place, split, [one.path for one in found], options.masks)
        samples = coco_samples(place, split, _parts(found), maps, options.limit, options.exif)
        made.append((split if len(splits) > 1 else "", samples))
    return made


def _given(place: Path, name: str) -> Path:
    path = Path(name).absolute()
    below = place / name
    if not is_file(path) and not is_file(below):
        raise PackError(f"{path} is no file; --annotations takes a JSON.")
    return path if is_file(path) else below


def _what_of(path: Path) -> str | None:
    first = first_annotation(path)
    if first is None:
        return None
    if "segments_info" in first:
        return SEGMENTS
    if "caption" in first:
        return CAPTIONS
    return OBJECTS if not first or "bbox" in first or "category_id" in first else None


def _parts(found: Sequence[_Found]) -> list[Part]:
    """The files of a split, those of objects first."""
    parts = []
    for what in (OBJECTS, CAPTIONS, SEGMENTS):
        same = sorted((one.path for one in found if one.what == what), key=_rank)
        if len(same) > 1 and what != OBJECTS:
            raise PackError(
                f"{len(same)} files have {what} of the same pictures: {', '.join(map(str, same))}. Say "
                f"which: --annotations FILE, once for {what} and once for each other file."
            )
        parts += [Part(what, number, CocoFile(path)) for number, path in enumerate(same, 1)]
    return parts


def _rank(path: Path) -> tuple[int, str]:
    return next((at for at, name in enumerate(_FIRST) if path.name.startswith(name)), len(_FIRST)), path.name
