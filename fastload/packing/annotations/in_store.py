"""Annotated sets in a store, which cannot be packed from there: told by the names of their files."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from fastload.errors import PackError
from fastload.packing.annotations.coco_folders import IN_ITS_FOLDER
from fastload.packing.annotations.pairs import CITIES, FINE, MASKS, PICTURES
from fastload.packing.annotations.voc import XML, YEAR
from fastload.packing.annotations.yolo import YAML_NAMES
from fastload.packing.folders import is_split
from fastload.remote.location import Location
from fastload.shard.suffixes import is_image

__all__ = ["annotated_as", "refuse_annotated"]


def refuse_annotated(location: Location, names: Sequence[str]) -> None:
    """Raise PackError where files are those of an annotated set, whose pictures alone would become classes.

    Args:
        location: where they are.
        names: paths from there on.
    """
    found = annotated_as(names)
    if found is not None:
        layout, what = found
        raise PackError(
            f"{location} looks like a set of the layout {layout!r} ({what}), and annotations are packed from "
            "this machine only: copy the folder here and pack that. --as classes (in Python as_='classes') "
            "packs the pictures alone, each folder as a class."
        )


def annotated_as(names: Sequence[str]) -> tuple[str, str] | None:
    """The layout of annotated pictures that files are of, and what says so; None: none that is known.

    Looks at the place itself, and at the splits in it.
    """
    places: dict[str, list[str]] = {"": list(names)}
    for name in names:
        first, nested, rest = name.partition("/")
        if nested and (is_split(first) or YEAR.fullmatch(first)):
            places.setdefault(first, []).append(rest)
    return next((found for place in places.items() for found in _layouts(*place)), None)


def _layouts(place: str, names: Sequence[str]) -> Iterator[tuple[str, str]]:
    """What the files of one place are, by the rules that folders of this machine are looked at with."""
    top = f"{place}/" if place else ""
    folders = {name.partition("/")[0] for name in names if "/" in name}
    pictured = {name.partition("/")[0] for name in names if "/" in name and is_image(name)}
    for name in names:
        if re.fullmatch(r"annotations/[^/]+\.json", name) or name == IN_ITS_FOLDER:
            yield "coco", top + name
        if re.fullmatch(rf"{XML}/[^/]+\.xml", name):
            yield "voc", top + name
        if name in YAML_NAMES:
            yield "yolo", top + name
        if (
            "images" in folders
            and re.fullmatch(r"labels/.+\.txt", name)
            and not name.endswith("/classes.txt")
        ):
            yield "yolo", f"{top}images and {top}labels"
    pairs = [(one, two) for one in PICTURES for two in MASKS if {one, two} <= pictured]
    pairs += [(CITIES, fine) for fine in FINE if {CITIES, fine} <= folders]
    for one, two in pairs:
        yield "pairs", f"{top}{one} and {top}{two}"
