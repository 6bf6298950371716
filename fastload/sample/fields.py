"""The kinds of fields that a sample may have: what each holds, and how its values lie on disk.

A kind is a frozen dataclass; two of equal settings are equal. ``_C.FIELD_KINDS`` is the one table of their
names and numbers, FORMAT.md says what their bytes are, :mod:`fastload.sample.values` makes and reads them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from fastload.sample.kind import DTYPES, MAX_VALUE_BYTES, Kind, Storage, optional
from fastload.sample.object_fields import Boxes, Keypoints, Labels, Polygons, Texts

__all__ = [
    "DTYPES",
    "KINDS",
    "MAX_VALUE_BYTES",
    "PLACES",
    "Array",
    "Boxes",
    "Bytes",
    "Image",
    "Json",
    "Keypoints",
    "Kind",
    "Label",
    "Labels",
    "Mask",
    "Polygons",
    "Scalar",
    "Storage",
    "Text",
    "Texts",
]


@dataclass(frozen=True)
class Image(Kind):
    """A picture: the bytes of an image file, or raw pixels.

    Args:
        channels: of the batch's pixels: 3 RGB, 1 gray; 2 and 4 of PNGs with alpha; others of raw pixels only.
        bits: 8 (uint8) or 16 (uint16) a channel.
    """

    name: ClassVar[str] = "image"
    channels: int = 3
    bits: int = 8

    def __post_init__(self) -> None:
        self._check_integer("channels", 1, 255)
        self._check_choice("bits", (8, 16))

    @property
    def item_dtype(self) -> np.dtype[Any]:
        return np.dtype("<u2" if self.bits == 16 else "u1")

    @property
    def item_shape(self) -> tuple[int, ...]:
        return (self.channels,)


@dataclass(frozen=True)
class Mask(Kind):
    """A picture of ids, classes' or instances'; a palette PNG's are its indices, not its colours.

    Args:
        bits: 8 or 16 an id.
        classes: names of the ids; (): they have none.
        ignore: the id of pixels that do not count; what padding has.
    """

    name: ClassVar[str] = "mask"
    bits: int = 8
    classes: tuple[str, ...] = ()
    ignore: int = 255

    def __post_init__(self) -> None:
        self._check_choice("bits", (8, 16))
        self._check_integer("ignore", 0, 2**self.bits - 1)
        self._check_names("classes")
        if len(self.classes) > 2**self.bits:
            raise ValueError(
                f"Mask: {self.bits} bits name {2**self.bits} ids. Found: {len(self.classes)} classes."
            )

    @property
    def item_dtype(self) -> np.dtype[Any]:
        return np.dtype("<u2" if self.bits == 16 else "u1")


@dataclass(frozen=True)
class Label(Kind):
    """A class: its index, -1 for none.

    Args:
        classes: names of the classes; (): indices without names.
    """

    name: ClassVar[str] = "label"
    classes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        self._check_names("classes")

    @property
    def item_dtype(self) -> np.dtype[Any]:
        return np.dtype("<i4")

    @cached_property
    def indices(self) -> dict[str, int]:
        """Index by class name; of two classes of one name the first."""
        return {name: index for index, name in reversed(list(enumerate(self.classes)))}


@dataclass(frozen=True)
class Scalar(Kind):
    """One number.

    Args:
        dtype: one of :data:`DTYPES`; anything that NumPy or torch calls it.
    """

    name: ClassVar[str] = "scalar"
    dtype: Any

    def __post_init__(self) -> None:
        object.__setattr__(self, "dtype", _dtype_name(type(self).__name__, self.dtype))

    @property
    def item_dtype(self) -> np.dtype[Any]:
        return _little(self.dtype)


@dataclass(frozen=True)
class Array(Kind):
    """Numbers of a fixed shape; or rows of a fixed shape, of which each sample has a number of its own.

    Args:
        dtype: one of :data:`DTYPES`; anything that NumPy or torch calls it.
        shape: of a sample's value. None first: any number of rows.
    """

    name: ClassVar[str] = "array"
    dtype: Any
    shape: tuple[int | None, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "dtype", _dtype_name(type(self).__name__, self.dtype))
        shape = (self.shape,) if isinstance(self.shape, int) else self.shape
        if not isinstance(shape, (tuple, list)) or not shape or not all(map(_is_side, shape[1:])):
            self._fail(
                "shape", "sides of at least 1, of which the first may be None; for one number use Scalar"
            )
        if shape[0] is not None and not _is_side(shape[0]):
            self._fail("shape", "sides of at least 1, of which the first may be None")
        object.__setattr__(self, "shape", tuple(None if side is None else int(side) for side in shape))
        if self.item_bytes > MAX_VALUE_BYTES:
            self._fail("shape", f"at most {MAX_VALUE_BYTES} bytes")

    @property
    def storage(self) -> Storage:
        return "ragged" if self.has_rows else "fixed"

    @property
    def item_dtype(self) -> np.dtype[Any]:
        return _little(self.dtype)

    @property
    def item_shape(self) -> tuple[int, ...]:
        return tuple(side for side in self.shape if side is not None)

    @property
    def has_rows(self) -> bool:
        return self.shape[0] is None

    @property
    def has_ids(self) -> bool:
        """Whether each row is one whole number that int64 holds."""
        return self.shape == (None,) and np.can_cast(self.item_dtype, np.int64)


@dataclass(frozen=True)
class Text(Kind):
    """A str.

    Args:
        null: whether a sample may have none, which is None in a batch, and no ``""``.
    """

    name: ClassVar[str] = "text"
    null: bool = optional(False)

    def __post_init__(self) -> None:
        self._check_choice("null", (False, True))


@dataclass(frozen=True)
class Bytes(Kind):
    """Any bytes."""

    name: ClassVar[str] = "bytes"


@dataclass(frozen=True)
class Json(Kind):
    """What JSON can say: dicts with str keys, lists, str, numbers, bool, None."""

    name: ClassVar[str] = "json"


#: The kinds by name, in the order of their numbers.
KINDS: dict[str, type[Kind]] = {
    cls.name: cls
    for cls in (
        Image,
        Mask,
        Label,
        Scalar,
        Array,
        Boxes,
        Polygons,
        Keypoints,
        Text,
        Bytes,
        Json,
        Labels,
        Texts,
    )
}


#: Kinds whose values are of a picture's places: they move with it.
PLACES: tuple[type[Kind], ...] = (Mask, Boxes, Keypoints, Polygons)


def _dtype_name(kind: str, dtype: Any) -> str:
    try:
        # torch's have no other way to NumPy without importing torch
        words = dtype if isinstance(dtype, type) else str(dtype).removeprefix("torch.")
        name = str(np.dtype(words).name)
    except (TypeError, ValueError, SyntaxError):
        name = ""
    if name not in DTYPES:
        raise ValueError(f"{kind}: dtype must be one of {', '.join(DTYPES)}. Found: {dtype!r}.")
    return name


def _little(name: str) -> np.dtype[Any]:
    found: np.dtype[Any] = np.dtype(name).newbyteorder("<")
    return found


def _is_side(side: Any) -> bool:
    return isinstance(side, int) and not isinstance(side, bool) and side >= 1
