"""Samples that differ from what was given: smaller pictures, pixels in place of files, baseline JPEGs,
coefficient records.

The fields of a sample change together, as under a view of the engine: masks by nearest pixels, and what is in
pixels of the first image by the engine's own arithmetic.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar, cast

import numpy as np
import numpy.typing as npt

from fastload._native import _C
from fastload.dataset.decoding import thread_decoder, wanted_format
from fastload.errors import FastloadError
from fastload.extras import need
from fastload.packing.coefficients import to_record
from fastload.packing.options import PackOptions
from fastload.packing.png_file import png_file
from fastload.packing.samples.pictures import Picture, raw_picture
from fastload.packing.transcode import SMALLER, bounded, smaller_jpeg
from fastload.sample.fields import Boxes, Image, Keypoints, Kind, Mask, Polygons
from fastload.sample.schema import Schema
from fastload.sample.values import decode_mixed, decode_rle, encode_mixed, encode_rle
from fastload.shard.codecs import CODECS, JPEG, PROGRESSIVE, SIXTEEN_BIT

__all__ = ["Transcoder"]

T = TypeVar("T")
Size = tuple[int, int]  # width, height


@dataclass(frozen=True)
class Transcoder:
    """Makes of a sample's values what is stored of them.

    Args:
        schema: the fields, in the order of the values.
        options: with ``raw``, ``max_side``, ``size``, ``baseline`` or ``coefficients``.
    """

    schema: Schema
    options: PackOptions

    def __post_init__(self) -> None:
        if self.options.raw or self.options.max_side is None:
            return
        if any(isinstance(field.kind, Image) and field.kind.bits == 8 for field in self.schema):
            need("PIL.Image", SMALLER)

    def values(self, values: list[Picture | bytes]) -> list[Picture | bytes]:
        """The values, changed.

        Raises:
            ValueError: a picture that does not decode, or pixels that the index has no room for.
        """
        index = self.schema.index_field
        first = values[self.schema.position(index.name)]
        assert isinstance(first, Picture)
        size = self._guarded(index.name, _size_of, first)
        target = self._target(size)
        found: list[Picture | bytes] = []
        for field, value in zip(self.schema, values, strict=True):
            if isinstance(value, Picture):
                make = functools.partial(self._made, field.kind)
                found.append(self._guarded(field.name, make, value))
            else:
                found.append(value if target == size else _moved(field.kind, value, size, target))
        return found

    def _guarded(self, name: str, make: Callable[[Picture], T], picture: Picture) -> T:
        try:
            return make(picture)
        except Exception as error:  # Pillow raises SyntaxError, struct.error and others on bad files
            raise ValueError(f"field {name!r}: cannot be re-encoded: {error}") from error

    def _target(self, size: Size) -> Size:
        limit = self.options.max_side
        if self.options.size is not None:
            return self.options.size
        return bounded(*size, limit) if limit is not None and max(size) > limit else size

    def _made(self, kind: Kind, picture: Picture) -> Picture:
        made, form = self._picture(kind, picture), self.options.coefficients
        return made if form is None or isinstance(kind, Mask) else _coefficients(made, form)

    def _picture(self, kind: Kind, picture: Picture) -> Picture:
        size = _size_of(picture)
        target = self._target(size)
        if isinstance(kind, Mask):
            return picture if target == size else Picture(png_file(_pixels(kind, picture, size, target)))
        assert isinstance(kind, Image)
        if self.options.raw or (target != size and kind.channels not in (1, 3)):
            return raw_picture(kind, _pixels(kind, picture, size, target))
        if target == size:
            return _baseline(picture) if self.options.baseline else picture
        if kind.bits == 16 or _flags_of(picture) & SIXTEEN_BIT:  # a JPEG has 8, and Pillow clips 16
            return Picture(png_file(_pixels(kind, picture, size, target)))
        # Pillow fills with gray what is missing.
        pixels = thread_decoder().decode(_bytes_of(picture), wanted_format(kind))
        assert self.options.max_side is not None
        small = smaller_jpeg(_bytes_of(picture), pixels, self.options.max_side, self.options.quality)
        return Picture(small.tobytes())


def _moved(kind: Kind, value: bytes, size: Size, target: Size) -> bytes:
    """What lies in a picture of one size, in pixels of it scaled to another."""
    if isinstance(kind, Boxes):
        points, relative = kind.format, kind.relative
    elif isinstance(kind, Keypoints):
        points, relative = "xyv" if kind.visibility else "xy", False
    elif isinstance(kind, Polygons) and kind.format == "mixed":
        return _moved_mixed(value, size, target)
    elif isinstance(kind, Polygons):
        points, relative = kind.format, False
    else:
        return value
    return _viewed(points, relative, value, size, target)


def _moved_mixed(value: bytes, size: Size, target: Size) -> bytes:
    """Outlines by their scale, areas as the engine moves them."""
    objects = decode_mixed(value)
    areas = encode_rle([one for one in objects if isinstance(one, dict)], "areas")
    moved = iter(decode_rle(_viewed("rle", False, areas, size, target)))
    scale = np.divide(target, size)
    return encode_mixed(
        [next(moved) if isinstance(one, dict) else [part * scale for part in one] for one in objects], "mixed"
    )


def _viewed(points: str, relative: bool, value: bytes, size: Size, target: Size) -> bytes:
    held = np.frombuffer(value, np.uint8)
    moved = _C.view_points(_whole(size, target), *size, points, relative, held)
    return bytes(cast("npt.NDArray[np.uint8]", moved))


def _whole(size: Size, target: Size) -> Any:
    """The view of a whole picture, resized."""
    return (0, 0, *size), target, (0, 0, *target), False


def _bytes_of(picture: Picture) -> npt.NDArray[np.uint8]:
    return np.frombuffer(picture.data, np.uint8)


def _flags_of(picture: Picture) -> int:
    return picture.raw["flags"] if picture.raw is not None else _C.probe(_bytes_of(picture))[4]


def _size_of(picture: Picture) -> Size:
    if picture.raw is not None:
        return picture.raw["width"], picture.raw["height"]
    _, width, height, *_ = _C.probe(_bytes_of(picture))
    if width and height:
        return width, height
    decoded = thread_decoder().decode_rgb(_bytes_of(picture))  # only Pillow knows its size
    return decoded.shape[1], decoded.shape[0]


def _pixels(kind: Image | Mask, picture: Picture, size: Size, target: Size) -> npt.NDArray[Any]:
    """The pixels, (height, width, channels), resized as the engine resizes: images as Pillow does."""
    wanted = wanted_format(kind)
    raw = None
    if picture.raw is not None:
        bits = 16 if picture.raw["flags"] & SIXTEEN_BIT else 8
        raw = (*size, picture.raw["channels"], bits)
    pixels = np.ascontiguousarray(thread_decoder().decode(_bytes_of(picture), wanted, raw))
    if target != size:
        stored = (*size, wanted[0], wanted[1])
        store = _C.StoreSpec(dtype="uint8" if kind.bits == 8 else "int32")
        is_mask = isinstance(kind, Mask)
        cut = _C.cut(
            pixels.reshape(-1).view(np.uint8), _whole(size, target), wanted, store, is_mask, raw=stored
        )
        pixels = cut.view(np.uint8 if kind.bits == 8 else np.int32).astype(pixels.dtype, copy=False)
    return pixels.reshape(target[1], target[0], wanted[0])


def _baseline(picture: Picture) -> Picture:
    """A progressive JPEG as a baseline one of the same coefficients; what cannot be one stays as it is."""
    if picture.raw is not None:
        return picture
    codec, *_, flags = _C.probe(_bytes_of(picture))
    if codec != CODECS[JPEG].name or not flags & PROGRESSIVE:
        return picture
    try:
        return Picture(bytes(cast("npt.NDArray[np.uint8]", _C.jpeg_to_baseline(_bytes_of(picture)))))
    except FastloadError:
        return picture  # its entry in the index says that it is progressive


def _coefficients(picture: Picture, form: str) -> Picture:
    """A JPEG as a coefficient record; what cannot be one stays as it is, and its outcome says why."""
    if picture.raw is not None or _C.probe(_bytes_of(picture))[0] != CODECS[JPEG].name:
        return picture
    data, outcome = to_record(picture.data, form)
    return Picture(data, outcome=outcome)
