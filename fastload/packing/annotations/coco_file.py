"""A COCO file, indexed by image, with its folders of pictures."""

from __future__ import annotations

import hashlib
import os
import re
import tempfile
import weakref
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from fastload.errors import PackError
from fastload.machine.paths import exists, is_dir, is_file, open_regular, read_at
from fastload.machine.temporary import TemporaryFolder
from fastload.packing.annotations.annotated_files import Paths
from fastload.packing.files import printable, raise_if_transient
from fastload.packing.json_stream import Element, elements, value_of

# ---- COCO's JSON read once: images, and where their annotations are ---------------------------------
# Memory does not grow with the annotations: their offsets go to a temporary file and are sorted there by
# image, a part at a time.

IMAGES, ANNOTATIONS = "images", "annotations"
#: An annotation's image (its id), place in the file, and position in the list.
_ROW = np.dtype([("image", "<i8"), ("offset", "<u8"), ("length", "<u4"), ("order", "<u4")])
_AT_ONCE = 1 << 17  # rows sorted at a time
_MOST_ANNOTATIONS = 2**32 - 1
_NUMBERS = ("bbox", "area", "segmentation", "keypoints")


@dataclass
class Facts:
    """The keys of a file's annotations, and how the file writes their numbers."""

    count: int = 0
    keys: Counter[str] = field(default_factory=Counter)  # how many have a key
    whole: Counter[str] = field(default_factory=Counter)  # of first numbers, integers minus others
    letters: int = 0  # areas as letters minus those as lists
    points: int = 0  # the most numbers in one's keypoints

    def see(self, annotation: Mapping[str, Any]) -> None:
        """Count one more annotation."""
        self.count += 1
        self.keys.update(annotation.keys())
        for key in _NUMBERS:
            value = annotation.get(key)
            if key == "keypoints" and isinstance(value, list):
                self.points = max(self.points, len(value))
            if isinstance(value, dict):
                self.letters += 1 if isinstance(value.get("counts"), str) else -1
            while isinstance(value, list) and value:
                value = value[0]
            if isinstance(value, (int, float)):
                self.whole[key] += 1 if isinstance(value, int) else -1

    @property
    def forms(self) -> dict[str, bool]:
        """The keys whose numbers are mostly integers; "letters": areas are mostly COCO's letters."""
        forms = {key: True for key in _NUMBERS if self.whole[key] > 0}
        return forms | ({"letters": True} if self.letters > 0 else {})


def first_annotation(path: Path) -> Mapping[str, Any] | None:
    """Return the first annotation of a file with COCO's lists, {} if it has none; None: another file."""
    lists = set()
    try:
        for element in elements(path, (IMAGES, ANNOTATIONS)):
            lists.add(element.key)
            if element.key == ANNOTATIONS and element.place >= 0:
                return element.value if isinstance(element.value, dict) else None
    except PackError:
        return None  # reported where the file is asked for
    except OSError as error:
        raise_if_transient(path, error)
        return None
    return {} if IMAGES in lists else None


class CocoFile:
    """One of COCO's JSONs. It pickles; where its table of annotations is not found, it is made anew.

    Args:
        path: the file.

    Raises:
        PackError: it is not one of COCO's.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.facts = Facts()
        #: The top level without what its lists of images and annotations hold.
        self.top: dict[str, Any] = {}
        self._files: dict[str, int] = {}  # descriptors
        self._folder = TemporaryFolder("coco")
        self._rows = str(self._folder.path / "rows")
        try:
            self._scan()
        except OSError as error:
            raise PackError(f"{path} cannot be read: {error.strerror}.") from None

    def __len__(self) -> int:
        return len(self.ids)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_files": {}}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        if not exists(Path(self._rows)) and exists(self.path):  # without the file its pictures are not here
            self._rows = self._scanned_again()._rows

    @property
    def strays(self) -> int:
        """The number of annotations of no image in the file."""
        return int(self._starts[-1] - self._starts[-2])

    def name(self, number: int) -> bytes:
        """Return the file name of an image as the system has it; empty: it has no possible one."""
        return self._names[number]

    def image(self, number: int) -> Any:
        """Return the JSON of an image; ValueError: its bytes are not UTF-8."""
        return value_of(self._read(str(self.path), int(self._places[number]), int(self._lengths[number])))

    def annotations(self, number: int) -> Iterator[tuple[int, bytes]]:
        """Yield position in the list and bytes of each annotation of an image."""
        begin, end = self._starts[number : number + 2].tolist()
        yield from self._of_rows(begin, end)

    def stray(self, number: int) -> tuple[int, bytes]:
        """Return position and bytes of one annotation of no image."""
        at = int(self._starts[-2]) + number
        return next(self._of_rows(at, at + 1))

    def _of_rows(self, begin: int, end: int) -> Iterator[tuple[int, bytes]]:
        size = _ROW.itemsize
        for row in np.frombuffer(self._read(self._rows, begin * size, (end - begin) * size), _ROW):
            yield int(row["order"]), self._read(str(self.path), int(row["offset"]), int(row["length"]))

    def _scanned_again(self) -> CocoFile:
        """Return the same file with a table of this machine, made once in each process.

        Raises:
            PackError: the file has changed.
        """
        again = _here.get(self._rows)
        if again is None:
            again = _here[self._rows] = CocoFile(self.path)
        if not np.array_equal(again._places, self._places):
            raise PackError(f"{self.path} has changed since the pack began.")
        return again

    def _read(self, path: str, offset: int, length: int) -> bytes:
        if path not in self._files:
            self._files[path] = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            weakref.finalize(self, os.close, self._files[path])
        data = read_at(self._files[path], length, offset)
        if len(data) != length:
            raise ValueError(f"{path} has become shorter")
        return data

    def _scan(self) -> None:
        ids, places, lengths = array("q"), array("Q"), array("Q")
        self._names = Paths()
        rows: list[tuple[int, int, int, int]] = []
        with tempfile.TemporaryFile(prefix="fastload-coco-") as unsorted:
            for element in elements(self.path, (IMAGES, ANNOTATIONS)):
                if element.place < 0:
                    self.top[element.key] = element.value
                elif element.key == IMAGES:
                    number, name = self._image_of(element)
                    ids.append(number)
                    places.append(element.offset)
                    lengths.append(len(element.text))
                    self._names.append(name)
                else:
                    rows.append(self._row_of(element))
                    if len(rows) == _AT_ONCE:
                        unsorted.write(np.array(rows, _ROW).tobytes())
                        rows.clear()
            unsorted.write(np.array(rows, _ROW).tobytes())
            unsorted.flush()
            for key in (IMAGES, ANNOTATIONS):
                if self.top.get(key, []) != []:
                    self._fail(f"{key!r} must be a list")
            if IMAGES not in self.top:
                self._fail("it has no 'images', so it is not COCO's")
            self.ids = np.array(ids, np.int64)
            self._places, self._lengths = np.array(places, np.uint64), np.array(lengths, np.uint64)
            self._sort(unsorted)

    def _image_of(self, element: Element) -> tuple[int, bytes]:
        image = element.value
        number: Any = image.get("id") if isinstance(image, dict) else None
        if not _is_id(number):
            self._fail(f"images[{element.place}] must have an 'id', an integer. Found: {element.text[:80]}")
        name = image.get("file_name")
        try:
            if isinstance(name, str) and not element.text.isascii():
                name = value_of(element.raw)["file_name"]
            return number, os.fsencode(name) if isinstance(name, str) else b""
        except ValueError:  # not UTF-8, or half of a UTF-16 pair
            return number, b""

    def _row_of(self, element: Element) -> tuple[int, int, int, int]:
        if not isinstance(element.value, dict) or element.place >= _MOST_ANNOTATIONS:
            self._fail(f"annotations[{element.place}] must be an object. Found: {element.text[:80]}")
        self.facts.see(element.value)
        number = element.value.get("image_id")
        image = int(number) if _is_id(number) else _NO_IMAGE
        return image, element.offset, len(element.text), element.place

    def _sort(self, unsorted: IO[bytes]) -> None:
        """Write the rows by image, each image's in the list's order, and note where each image's begin."""
        by_id = np.argsort(self.ids, kind="stable")
        known = self.ids[by_id]
        twice = np.flatnonzero(known[1:] == known[:-1])
        if len(twice):
            self._fail(f"two images have the id {known[twice[0]]}")
        count = len(known)

        def place_of(rows: npt.NDArray[np.void]) -> npt.NDArray[np.int64]:
            """Return the positions of the rows' images in the list; without one, one past the last."""
            if not count:
                return np.zeros(len(rows), np.int64)
            positions = np.searchsorted(known, rows["image"]).clip(0, count - 1)
            return np.where(known[positions] == rows["image"], by_id[positions], count)

        def parts() -> Iterator[tuple[npt.NDArray[np.void], npt.NDArray[np.int64]]]:
            unsorted.seek(0)
            while data := unsorted.read(_AT_ONCE * _ROW.itemsize):
                rows = np.frombuffer(data, _ROW)
                yield rows, place_of(rows)

        self._starts = np.zeros(count + 2, np.int64)
        for _, places in parts():
            self._starts[1:] += np.bincount(places, minlength=count + 1)
        np.cumsum(self._starts, out=self._starts)
        cuts = _cuts(self._starts)
        with open(self._rows, "x+b") as out:
            next_ones = self._starts[cuts]
            for rows, places in parts():
                bins = np.searchsorted(cuts, places, "right") - 1
                order = np.argsort(bins, kind="stable")
                ends = np.cumsum(np.bincount(bins, minlength=len(cuts)))
                for number in np.unique(bins).tolist():
                    some = order[ends[number - 1] if number else 0 : ends[number]]
                    _write_at(out, int(next_ones[number]), rows[some])
                    next_ones[number] += len(some)
            for first, behind in zip(cuts.tolist(), [*cuts[1:].tolist(), count + 1], strict=True):
                begin, end = self._starts[[first, behind]].tolist()
                if behind > first + 1 and end > begin:  # rows of a single image are already in order
                    data = read_at(out.fileno(), (end - begin) * _ROW.itemsize, begin * _ROW.itemsize)
                    rows = np.frombuffer(data, _ROW)
                    _write_at(out, begin, rows[np.argsort(place_of(rows), kind="stable")])

    def _fail(self, what: str) -> None:
        raise PackError(f"{self.path}: {what}.")


def _cuts(starts: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return the first images of runs whose rows can be sorted at once; a run has at least one image, and as
    many more as have ``_AT_ONCE`` rows at most."""
    cuts = [0]
    while True:
        begin = cuts[-1]
        behind = max(int(np.searchsorted(starts, starts[begin] + _AT_ONCE, "right")) - 1, begin + 1)
        if behind >= len(starts) - 1:
            return np.array(cuts, np.int64)
        cuts.append(behind)


_here: dict[str, CocoFile] = {}  # scanned in this process, by the table that was not found


def _write_at(file: IO[bytes], row: int, rows: npt.NDArray[np.void]) -> None:
    file.seek(row * _ROW.itemsize)
    file.write(rows.tobytes())
    file.flush()  # it is read past the buffer


_NO_IMAGE = -(2**63)  # in place of an image_id


def _is_id(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and _NO_IMAGE < value < 2**63


# ---- The folders of pictures and the splits of COCO's sets ------------------------------------------

IN_ITS_FOLDER = "_annotations.coco.json"  # the JSON that some tools write beside the pictures
_NAMES = re.compile(r"(instances|person_keypoints|captions|image_info|panoptic|stuff)[_-]?(.*)")
_DIGESTED_AT_ONCE = 1 << 20
_LOOKED_AT = 16


def split_of(path: Path) -> str:
    """Return the split of a JSON, by its name."""
    if path.name == IN_ITS_FOLDER:
        return ""
    match = _NAMES.fullmatch(path.stem)
    return match[2] if match else path.stem


def folder_of(place: Path, split: str, file: CocoFile) -> Path:
    """Return the folder in which some of the first pictures exist."""
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
    """Return a digest that tells a file from others."""
    hashed = hashlib.blake2b(digest_size=16)
    with open(path, "rb") as file:
        while part := file.read(_DIGESTED_AT_ONCE):
            hashed.update(part)
    return hashed.hexdigest()


def maps_of(place: Path, split: str, files: Sequence[Path], asked: str | None) -> Path | None:
    """Return the folder of PNGs whose pixels are ids of COCO-Stuff's classes, named like their pictures.

    Args:
        place: the folder of the set.
        split: its split; "" without one.
        files: its JSONs; ``stuff_val2017.json`` may have ``stuff_val2017_pixelmaps`` beside it.
        asked: the folder that the user named, or a parent of ``split``.

    Raises:
        PackError: ``asked`` is no folder.
    """
    if asked is not None:
        folder = next((path for path in (Path(asked).absolute(), place / asked) if is_dir(path)), None)
        if folder is None:
            raise PackError(f"{Path(asked).absolute()} is not a folder; --masks takes that of the PNGs.")
        return folder / split if split and is_dir(folder / split) else folder
    beside = [where / f"{path.stem}_pixelmaps" for path in files for where in (path.parent, place)]
    named = [*beside, *([place / "stuffthingmaps" / split] if split else [])]
    return next((path for path in named if is_dir(path)), None)


def is_deep(folder: Path, names: Iterable[bytes]) -> bool:
    """Whether one of these PNGs has 16 bits per pixel."""
    for name in names:
        try:
            with open_regular(path := os.path.join(os.fsencode(folder), name)) as file:
                if file.read(25)[24:] == b"\x10":  # the header's depth
                    return True
        except (OSError, ValueError) as error:
            raise_if_transient(path, error)
            continue
    return False


def png_name(picture: bytes) -> bytes:
    """Return the name of a picture's PNG in COCO's own files."""
    return os.path.splitext(os.path.basename(picture))[0] + b".png"
