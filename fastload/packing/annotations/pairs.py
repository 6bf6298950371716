"""Pictures in one folder and masks of the same names in another."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from fastload.errors import PackError
from fastload.machine.paths import is_dir, open_regular
from fastload.packing.annotations.annotated_files import FileSamples, Paths, pictures_below, stem_of
from fastload.packing.files import printable, raise_if_transient
from fastload.packing.folders import split_folders
from fastload.packing.rows import Sample
from fastload.sample.fields import Image, Kind, Mask
from fastload.sample.schema import Field, Schema

#: Names of folders that are looked for. ADE20K's are images and annotations.
PICTURES = ("images", "image", "imgs", "img")
MASKS = ("masks", "mask", "annotations", "labels", "segmentation", "segmentations")
CITIES, FINE = "leftImg8bit", ("gtFine", "gtCoarse")  # Cityscapes'
#: The fields that Cityscapes' masks become, and what their names end with.
_ENDINGS = {"mask": "labelIds", "train_ids": "labelTrainIds", "instances": "instanceIds"}
_LOOKED_AT = 16  # masks whose bits are looked at
_COLOURS = {2: "colours", 4: "gray and alpha", 6: "colours and alpha"}  # PNG's colour types


@dataclass(frozen=True)
class Pairing:
    """The folders of pictures and of masks; paths are below ``root``.

    Args:
        cities: of Cityscapes, gtFine or gtCoarse; empty: masks have the names of their pictures.
    """

    root: bytes
    pictures: bytes
    masks: bytes
    cities: bytes = b""

    def below(self, name: str) -> Pairing:
        """Return the pairing of a split's folders."""
        pictures, masks = (os.path.join(folder, os.fsencode(name)) for folder in (self.pictures, self.masks))
        return Pairing(self.root, pictures, masks, self.cities)


def pairing_of(pictures: Path, masks: Path) -> Pairing:
    """Return the pairing of two named folders.

    Raises:
        PackError: one of them is no folder.
    """
    for folder in (pictures, masks):
        if not is_dir(folder):
            raise PackError(f"{folder} is not a folder; images and masks must lie in one folder each.")
    root = os.path.commonpath([os.fsencode(pictures.absolute()), os.fsencode(masks.absolute())])
    one, two = (os.path.relpath(os.fsencode(folder.absolute()), root) for folder in (pictures, masks))
    cities = os.fsencode(masks.name) if pictures.name == CITIES and masks.name in FINE else b""
    return Pairing(root, b"" if one == b"." else one, b"" if two == b"." else two, cities)


def pairings_below(place: Path) -> list[tuple[str, Pairing]]:
    """Return the pairings that folder names in ``place`` suggest; if there are several, users must choose."""
    pictures = [name for name in PICTURES if is_dir(place / name)]
    masks = [name for name in MASKS if pictures and is_dir(place / name) and _has_pictures(place / name)]
    pairs = [(folder, mask) for folder in pictures for mask in masks]
    if is_dir(place / CITIES):
        pairs += [(CITIES, name) for name in FINE if is_dir(place / name)]
    return [(f"{one} and {two}", pairing_of(place / one, place / two)) for one, two in pairs]


def pairs_source(pairing: Pairing, limit: int | None = None) -> list[tuple[str, PairSamples]]:
    """Return split ("": the only one) and samples of each.

    Raises:
        PackError: there are no pictures, or folders cannot be read.
    """
    splits = split_folders(os.path.join(pairing.root, pairing.pictures))
    masks = os.path.join(pairing.root, pairing.masks)
    missing = next((name for name in splits if not is_dir(Path(os.fsdecode(masks)) / name)), None)
    if missing is not None:
        raise PackError(f"{printable(masks)} has no folder {missing!r}, as the pictures have.")
    parts = {name: pairing.below(name) for name in splits} if splits else {"": pairing}
    listed = {name: _matched(part) for name, part in parts.items()}
    kinds = _kinds(pairing.root, [paths for _, paths in listed.values()])
    return [
        (name, PairSamples(pairing.root, {field: kinds[field] for field in masks}, pictures, masks, limit))
        for name, (pictures, masks) in listed.items()
    ]


class PairSamples(FileSamples):
    """Pictures with the masks of their names; one without the other is a sample that cannot be packed."""

    def __init__(
        self,
        root: bytes,
        kinds: Mapping[str, Kind],
        pictures: Paths,
        masks: Mapping[str, Paths],
        limit: int | None,
    ) -> None:
        schema = Schema((Field("image", Image()), *(Field(name, kind) for name, kind in kinds.items())))
        count = len(pictures) if limit is None else min(len(pictures), limit)
        super().__init__(root, schema, count, {"pairs": list(kinds)})
        self._pictures, self._masks = pictures, masks

    def sample(self, position: int) -> Sample:
        picture = self._pictures[position]
        masks = {name: paths[position] for name, paths in self._masks.items()}
        existing = {name: path for name, path in masks.items() if path}
        if not picture:
            raise ValueError(f"{printable(next(iter(existing.values())))}: there is no picture of this name")
        missing = [name for name in self._masks if name not in existing]
        if missing:
            words = "mask" if missing[0] == "mask" else f"mask of {missing[0]}"
            raise ValueError(f"there is no {words} of this name")
        for path in existing.values():
            _check_ids(os.path.join(self.root, path), path)
        return {"image": os.fsdecode(picture), **{name: os.fsdecode(path) for name, path in existing.items()}}

    def picture(self, position: int) -> bytes:
        return self._pictures[position]

    def sources(self, position: int) -> Iterator[bytes]:
        for paths in (self._pictures, *self._masks.values()):
            if paths[position]:
                yield paths[position]


def _has_pictures(folder: Path) -> bool:
    return next(pictures_below(os.fsencode(folder), b""), None) is not None


def _matched(pairing: Pairing) -> tuple[Paths, dict[str, Paths]]:
    """Return pictures in order, followed by an empty path for each name that only masks have, and likewise
    the masks, where a missing one is an empty path.

    Raises:
        PackError: there are no pictures, or two have the same name.
    """
    endings = {"mask": b""}
    if pairing.cities:
        endings = {name: b"_" + pairing.cities + b"_" + end.encode() for name, end in _ENDINGS.items()}
    masks: dict[str, dict[bytes, bytes]] = {name: {} for name in endings}
    for path in pictures_below(pairing.root, pairing.masks):
        stem = stem_of(path)
        for name, ending in endings.items():
            if stem.endswith(ending):
                _add(masks[name], _inside(pairing.masks, stem.removesuffix(ending)), path)
    masks = {name: paths for name, paths in masks.items() if paths}
    pictures: dict[bytes, bytes] = {}
    ending = b"_" + CITIES.encode() if pairing.cities else b""
    for path in pictures_below(pairing.root, pairing.pictures):
        stem = stem_of(path)
        if stem.endswith(ending):
            _add(pictures, _inside(pairing.pictures, stem.removesuffix(ending)), path)
    if not pictures or not masks:
        folder, what = (pairing.masks, "masks") if pictures else (pairing.pictures, "images")
        called = f" called *{next(iter(endings.values())).decode()}.png" if pairing.cities else ""
        where = printable(os.path.join(pairing.root, folder))
        raise PackError(f"{where} has no {what}{called if pictures else ''}.")
    names = [*pictures, *dict.fromkeys(n for paths in masks.values() for n in paths if n not in pictures)]
    return (
        Paths(pictures.get(name, b"") for name in names),
        {field: Paths(paths.get(name, b"") for name in names) for field, paths in masks.items()},
    )


def _inside(folder: bytes, path: bytes) -> bytes:
    return path.removeprefix(folder + b"/") if folder else path


def _add(found: dict[bytes, bytes], name: bytes, path: bytes) -> None:
    if name in found:
        raise PackError(
            f"{printable(found[name])} and {printable(path)} have the same name, so it is unclear which goes "
            "with the other folder's. Remove or rename one."
        )
    found[name] = path


def _kinds(root: bytes, splits: Sequence[Mapping[str, Paths]]) -> dict[str, Kind]:
    """Return the kinds of the fields of masks: 16 bits if one of those looked at has that many."""
    kinds: dict[str, Kind] = {}
    for name in dict.fromkeys(name for masks in splits for name in masks):
        deep = False
        for paths in (masks[name] for masks in splits):
            step = max(1, len(paths) // _LOOKED_AT)
            some = (paths[number] for number in range(0, len(paths), step))
            deep = deep or any(_header(os.path.join(root, path))[0] == 16 for path in some if path)
        kinds[name] = Mask(16, ignore=65535) if deep else Mask()
    return kinds


def _header(path: bytes) -> tuple[int, int]:
    """Return bits per channel and colour type of a PNG; 0, 0 for other files."""
    try:
        with open_regular(path) as file:
            head = file.read(26)
    except OSError as error:
        raise_if_transient(path, error)
        return 0, 0
    return (head[24], head[25]) if head.startswith(b"\x89PNG") and len(head) == 26 else (0, 0)


def _check_ids(path: bytes, shown: bytes) -> None:
    colour = _header(path)[1]
    if colour in _COLOURS:
        raise ValueError(
            f"{printable(shown)} is a PNG of {_COLOURS[colour]}, and has no ids; a mask must have one "
            "channel, or a palette"
        )
