"""Detection of the annotated sets in a folder or a store, by what lies there and the options."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from fastload.errors import PackError
from fastload.machine.paths import exists, is_dir, is_file, meant
from fastload.packing.annotations.coco import coco_files, coco_source, refuse_unread
from fastload.packing.annotations.coco_file import IN_ITS_FOLDER
from fastload.packing.annotations.pairs import (
    CITIES,
    FINE,
    MASKS,
    PICTURES,
    Pairing,
    pairing_of,
    pairings_below,
    pairs_source,
)
from fastload.packing.annotations.panoptic import is_panoptic, panoptic_files, panoptic_sets
from fastload.packing.annotations.tars import wds_sources
from fastload.packing.annotations.voc import XML, YEAR, voc_places, voc_sets
from fastload.packing.annotations.yolo import YAML_NAMES, has_labels, is_data_yaml, yolo_sets
from fastload.packing.files import raise_if_transient
from fastload.packing.folders import folders_in, is_split
from fastload.packing.options import PackOptions
from fastload.packing.rows import Rows
from fastload.packing.sample_rows import SampleRows
from fastload.packing.stored import Source, StorePlace
from fastload.packing.stored_rows import StoredRows
from fastload.sample.fields import Image, Mask
from fastload.sample.schema import Schema, field_of
from fastload.shard.manifest import MANIFEST_NAME
from fastload.shard.suffixes import is_image

# ---- Annotated sets in a folder ---------------------------------------------------------------------

Sources = Sequence[tuple[str, Rows]]  # split ("": the only one) and samples


@dataclass(frozen=True)
class _Find:
    """One of the sets that a place may be."""

    layout: str  # one of options.LAYOUTS
    what: str  # what in the place shows it, in words
    open: Callable[[], Sequence[tuple[str, SampleRows]]]


def annotated_sources(source: Source, options: PackOptions) -> Sources:
    """Return split and samples of annotated pictures; nothing for anything else.

    Raises:
        PackError: a place can be several things, or is not what ``options`` say.
    """
    if options.layout == "classes":
        return []
    if options.layout == "wds":
        return wds_sources(source if isinstance(source, StorePlace) else os.fspath(source), options)
    if isinstance(source, StorePlace):
        return _in_store(source, options)
    return _on_disk(Path(source).absolute(), options)


def _on_disk(place: Path, options: PackOptions) -> Sequence[tuple[str, SampleRows]]:
    if options.says_annotated and not exists(place):
        raise PackError(f"{place} does not exist.{meant(place)}")
    if exists(place / MANIFEST_NAME):
        return []
    finds = _finds(place, options)
    if options.layout == "splits" and finds:
        raise PackError(
            f"{place} is a set of the layout {finds[0].layout!r} ({finds[0].what}), which says its splits "
            "itself. Leave --as splits out; --as classes packs the pictures alone."
        )
    finds = [find for find in finds if options.layout in (None, find.layout)]
    if len(finds) > 1:
        listed = "\n".join(f"  {find.layout}: {find.what}" for find in finds)
        raise PackError(
            f"{place} can be taken for several sets:\n{listed}\nSay which: --as LAYOUT, --masks FOLDER or "
            "--annotations FILE; in Python as_=, masks= or annotations=."
        )
    if finds:
        if options.annotations and finds[0].layout in ("pairs", "yolo"):
            raise PackError(
                f"{place} is a set of the layout {finds[0].layout!r}, which has no --annotations."
            )
        sources = finds[0].open()
        for _, samples in sources:
            samples.schema = schema_asked(samples.schema, options)
        return sources
    sources = _splits(place, options)
    if options.says_annotated and not sources:
        raise PackError(f"{place} is not a set of the layout {options.layout!r}. {_expected(options.layout)}")
    if not sources and options.layout is None:
        refuse_unread(place)
    return sources


def schema_asked(schema: Schema, options: PackOptions) -> Schema:
    """Return the fields of annotated pictures that ``options`` ask for: some may be left out, and pictures
    may have other settings.

    Raises:
        PackError: fields do not exist, or are of other kinds.
    """
    if options.schema is not None:
        asked = {field.name: field.kind for field in options.schema}
        wanted = [field.name for field in options.schema]
    else:
        try:
            words = {name: word.strip() for name, word in options.fields}
            asked = {name: field_of(name, word).kind for name, word in words.items() if word != "none"}
        except (ValueError, TypeError) as error:
            raise PackError(str(error)) from None
        wanted = [name for name in schema.names if words.get(name) != "none"]
        asked |= {name: schema[name].kind for name in words if name in schema and name not in asked}
    for name, kind in asked.items():
        if name not in schema:
            raise PackError(f"there is no field {name!r} in these samples, only {', '.join(schema.names)}.")
        if kind != schema[name].kind and not (
            type(kind) is type(schema[name].kind) and isinstance(kind, _OPEN)
        ):
            raise PackError(f"the field {name!r} is {schema[name]}, and cannot be packed as {kind}.")
    try:
        return Schema(
            tuple(replace(schema[name], kind=asked.get(name, schema[name].kind)) for name in wanted)
        )
    except ValueError as error:
        raise PackError(str(error)) from None


_OPEN = (Image, Mask)  # kinds whose settings say what the files hold


def _finds(place: Path, options: PackOptions) -> list[_Find]:
    """Return all sets that a place may be."""
    is_json = any(name.lower().endswith(".json") for name in options.annotations)
    if options.masks is not None and not is_json and options.layout != "coco":
        if options.annotations or options.layout not in (None, "pairs"):
            raise PackError(
                "--masks goes with a folder of images alone, or with --annotations FILE.json of COCO's."
            )
        return [_pairs(options.masks, pairing_of(place, Path(options.masks)), options)]
    if options.annotations and (is_json or options.layout == "coco"):
        what = ", ".join(options.annotations)
        names = options.annotations
        paths = [path.absolute() if is_file(path := Path(name)) else place / name for name in names]
        if options.masks is None and all(is_file(path) and is_panoptic(path) for path in paths):
            return [_panoptic(what, place, paths, options)]
        return [_Find("coco", what, lambda: coco_source(place, options.annotations, options))]
    if is_file(place):
        is_yolo = is_data_yaml(place) or (options.layout == "yolo" and place.suffix in (".yaml", ".yml"))
        return [_yolo(place.name, place, options)] if is_yolo else []
    if not is_dir(place):
        return []
    jsons, segments = coco_files(place), panoptic_files(place)
    # COCO's PNGs of segments and stuff lie beside its JSONs, which say what they are.
    others = {b"annotations"} if jsons or segments else set()
    finds = [_pairs(what, pair, options) for what, pair in pairings_below(place) if pair.masks not in others]
    named = next((place / name for name in YAML_NAMES if is_data_yaml(place / name)), None)
    if named is not None:
        finds.append(_yolo(named.name, named, options))
    elif has_labels(place):
        finds.append(_yolo("images and labels", place, options))
    places = voc_places(place)
    if options.layout == "voc" and not places:
        places = [place]
    finds += [_voc(str(voc), voc, options) for voc in places]
    if jsons:
        what = ", ".join(str(path.relative_to(place)) for path in jsons)
        finds.append(_Find("coco", what, lambda: coco_source(place, (), options)))
    elif segments:
        finds.append(_panoptic(", ".join(map(str, segments)), place, segments, options))
    return finds


def _panoptic(what: str, place: Path, paths: Sequence[Path], options: PackOptions) -> _Find:
    return _Find("coco", what, lambda: panoptic_sets(place, paths, options.limit, options.exif))


def _pairs(what: str, pairing: Pairing, options: PackOptions) -> _Find:
    return _Find("pairs", what, lambda: pairs_source(pairing, options.limit))


def _yolo(what: str, place: Path, options: PackOptions) -> _Find:
    return _Find("yolo", what, lambda: yolo_sets(place, options.limit, options.exif))


def _voc(what: str, place: Path, options: PackOptions) -> _Find:
    return _Find("voc", what, lambda: voc_sets(place, options.annotations, options.limit, options.exif))


def _splits(place: Path, options: PackOptions) -> Sequence[tuple[str, SampleRows]]:
    """Open a parent of train/ and val/ each of which is a set itself, without splits."""
    if not is_dir(place):
        return []
    try:
        names = list(map(os.fsdecode, folders_in(os.fsencode(place)).full))
    except OSError as error:
        raise_if_transient(place, error)
        return []
    if options.layout != "splits":
        names = [name for name in names if is_split(name)]
    opened = {name: _on_disk(place / name, replace(options, layout=None)) for name in names}
    results: list[tuple[str, SampleRows]] = []
    for name, sources in opened.items():
        results += [(f"{name}-{split}" if split else name, samples) for split, samples in sources]
    without = [name for name, sources in opened.items() if not sources]
    if results and without:
        raise PackError(
            f"{place} has annotated pictures in {results[0][0]!r} and none in {without[0]!r}, which would be "
            "left out. Pack them one by one, or the pictures alone: --as classes (in Python as_='classes')."
        )
    return results


def _expected(layout: str | None) -> str:
    """Return what a place of that layout must have, in words."""
    return {
        None: "Give a folder of annotated pictures.",
        "voc": "There must be a folder Annotations of .xml files, and JPEGImages.",
        "coco": "There must be JSONs with images, annotations and categories in a folder annotations.",
        "yolo": "There must be a data.yaml, or folders images and labels (of .txt files).",
        "pairs": "There must be folders images and masks (or annotations), or leftImg8bit and gtFine.",
    }.get(layout, "")


# ---- Annotated sets in a store, which their files' names show ---------------------------------------

_TEXTS = (".xml", ".txt")  # of annotations: one for each picture


def _in_store(place: StorePlace, options: PackOptions) -> Sources:
    """Return the samples of annotated pictures in a store, which are opened in a copy of their folder."""
    shown = place.kind == "yaml"
    if place.kind == "folder":
        shown = annotated_as([name for name, _ in place.names]) is not None
    if not shown and not options.says_annotated:
        return []
    folder, path, here = place.copied(options)
    folder.fetch(name for name in folder.names if name.lower().endswith(_TEXTS))
    with folder.opening():
        found = _on_disk(path, here)
    again = annotated_sources, str(place), options
    return [(split, StoredRows(split, rows, folder, again)) for split, rows in found]


def annotated_as(names: Sequence[str]) -> tuple[str, str] | None:
    """Return the layout of annotated pictures that files are of, and what shows it; None: none that is known.

    It looks at the place itself, and at the splits in it.
    """
    places: dict[str, list[str]] = {"": list(names)}
    for name in names:
        first, nested, rest = name.partition("/")
        if nested and (is_split(first) or YEAR.fullmatch(first)):
            places.setdefault(first, []).append(rest)
    return next((layout for place in places.items() for layout in _layouts(*place)), None)


def _layouts(place: str, names: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield what the files of one place are, by the rules for folders of this machine."""
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
    pairs = [(folder, masks) for folder in PICTURES for masks in MASKS if {folder, masks} <= pictured]
    pairs += [(CITIES, fine) for fine in FINE if {CITIES, fine} <= folders]
    for folder, masks in pairs:
        yield "pairs", f"{top}{folder} and {top}{masks}"
