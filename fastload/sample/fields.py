"""The kinds of fields that a sample may have: what each holds, and how its values lie on disk.

A kind is a frozen dataclass; two of equal settings are equal. ``_C.FIELD_KINDS`` is the one table of their
names and numbers, FORMAT.md says what their bytes are, :mod:`fastload.sample.values` makes and reads them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, ClassVar, Literal, TypeAlias

import numpy as np

from fastload._native import _C

__all__ = [
    "DTYPES",
    "KINDS",
    "MAX_VALUE_BYTES",
    "Array",
    "Boxes",
    "Bytes",
    "Image",
    "Json",
    "Keypoints",
    "Kind",
    "Label",
    "Mask",
    "Polygons",
    "Scalar",
    "Storage",
    "Text",
]

#: ``record``: byte ranges of the shards. ``fixed``: equally many bytes a sample. ``ragged``: any number.
Storage: TypeAlias = Literal["record", "fixed", "ragged"]
#: Names of the numbers that scalars and arrays may have; on disk little-endian, a bool one byte of 0 or 1.
DTYPES = (
    "bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64",
    "float16", "float32", "float64",
)  # fmt: skip
MAX_VALUE_BYTES = 1 << 30  # of one sample's value; a record's limit, too


@dataclass(frozen=True)
class Kind:
    """What a field holds; its subclasses are the kinds there are."""

    name: ClassVar[str]  # in FORMAT.md and _C.FIELD_KINDS

    @property
    def number(self) -> int:
        """Its number in ``_C.FIELD_KINDS``."""
        return int(_C.FIELD_KINDS[self.name][0])

    @property
    def storage(self) -> Storage:
        """How its values lie on disk."""
        found: Storage = _C.FIELD_KINDS[self.name][1]
        return found

    @property
    def item_dtype(self) -> np.dtype[Any]:
        """Of a value (fixed), of a row (ragged; objects: bytes), or of a picture's pixels (record)."""
        return np.dtype(np.uint8)

    @property
    def item_shape(self) -> tuple[int, ...]:
        """Shape of a value (fixed), of a row (ragged; objects: bytes), or of a pixel (record)."""
        return ()

    @property
    def item_bytes(self) -> int:
        """Bytes of a value (fixed), of a row (ragged), or of a pixel (record)."""
        return int(np.prod(self.item_shape, dtype=np.int64)) * np.dtype(self.item_dtype).itemsize

    @property
    def has_rows(self) -> bool:
        """Whether a sample has any number of rows of numbers."""
        return False

    def to_json(self) -> dict[str, Any]:
        """Name and settings, as in the manifest's ``fields``."""
        settings = {setting.name: _plain(getattr(self, setting.name)) for setting in fields(self)}
        return {"kind": self.name, **settings}

    @staticmethod
    def from_json(body: Mapping[str, Any]) -> Kind:
        """The kind that :meth:`to_json` described; what it does not know is ignored.

        Raises:
            ValueError, TypeError: no such kind, or settings that are missing or wrong.
        """
        name = body.get("kind")
        cls = KINDS.get(name) if isinstance(name, str) else None
        if cls is None:
            raise ValueError(f"'kind' must be one of {', '.join(KINDS)}. Found: {name!r}.")
        missing = [setting.name for setting in fields(cls) if setting.name not in body]
        if missing:
            raise ValueError(f"a field of kind {name!r} needs {', '.join(map(repr, missing))}.")
        return cls(**{setting.name: _tuples(body[setting.name]) for setting in fields(cls)})

    def _fail(self, setting: str, legal: str) -> None:
        found = getattr(self, setting)
        raise ValueError(f"{type(self).__name__}: {setting} must be {legal}. Found: {found!r}.")

    def _check_integer(self, setting: str, low: int, high: int) -> None:
        value = getattr(self, setting)
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            self._fail(setting, f"an integer from {low} to {high}")

    def _check_choice(self, setting: str, legal: tuple[Any, ...]) -> None:
        value = getattr(self, setting)
        if not any(value is one or (value == one and type(value) is type(one)) for one in legal):
            self._fail(setting, " or ".join(map(repr, legal)))

    def _check_names(self, setting: str) -> None:
        names = getattr(self, setting)
        if isinstance(names, str) or not all(isinstance(name, str) for name in names):
            self._fail(setting, "a sequence of str")
        object.__setattr__(self, setting, tuple(names))


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
        """Index by class name."""
        return {name: index for index, name in enumerate(self.classes)}


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


@dataclass(frozen=True)
class Boxes(Kind):
    """Boxes of objects: (n, 4) float32.

    Args:
        format: ``"xyxy"`` (corners), ``"xywh"`` (left, top, width, height) or ``"cxcywh"`` (centre, width,
            height).
        relative: in parts of the picture's width and height, instead of pixels.
    """

    name: ClassVar[str] = "boxes"
    format: str = "xyxy"
    relative: bool = False

    def __post_init__(self) -> None:
        self._check_choice("format", ("xyxy", "xywh", "cxcywh"))
        self._check_choice("relative", (False, True))

    @property
    def item_dtype(self) -> np.dtype[Any]:
        return np.dtype("<f4")

    @property
    def item_shape(self) -> tuple[int, ...]:
        return (4,)

    @property
    def has_rows(self) -> bool:
        return True


@dataclass(frozen=True)
class Polygons(Kind):
    """Outlines or areas of objects, in pixels.

    Args:
        format: ``"polygons"`` (of each object any number of polygons of x, y) or ``"rle"`` (COCO's run
            lengths).
    """

    name: ClassVar[str] = "polygons"
    format: str = "polygons"

    def __post_init__(self) -> None:
        self._check_choice("format", ("polygons", "rle"))


@dataclass(frozen=True)
class Keypoints(Kind):
    """Points of objects: (n, points, 3) float32 of x, y (pixels) and visibility, or (n, points, 2).

    Args:
        points: of each object.
        visibility: whether each point has one; COCO's is 0 not labelled, 1 hidden, 2 visible.
    """

    name: ClassVar[str] = "keypoints"
    points: int
    visibility: bool = True

    def __post_init__(self) -> None:
        self._check_integer("points", 1, 65535)
        self._check_choice("visibility", (False, True))

    @property
    def item_dtype(self) -> np.dtype[Any]:
        return np.dtype("<f4")

    @property
    def item_shape(self) -> tuple[int, ...]:
        return (self.points, 3 if self.visibility else 2)

    @property
    def has_rows(self) -> bool:
        return True


@dataclass(frozen=True)
class Text(Kind):
    """A str."""

    name: ClassVar[str] = "text"


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
    for cls in (Image, Mask, Label, Scalar, Array, Boxes, Polygons, Keypoints, Text, Bytes, Json)
}


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


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _tuples(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value
