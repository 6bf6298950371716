"""The kinds of fields: what each holds, its settings, its words, and the numbers that it takes.

A kind is a frozen dataclass; two with equal settings are equal. ``_C.FIELD_KINDS`` is the only table of their
names and numbers, and FORMAT.md describes it.
"""

from __future__ import annotations

import ast
import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, ClassVar, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from fastload._native import _C

# ---- Kind -------------------------------------------------------------------------------------------

#: ``record``: byte ranges of shards. ``fixed``: the same number of bytes per sample. ``ragged``: any number.
#: ``records``: any number of byte ranges of shards.
Storage: TypeAlias = Literal["record", "fixed", "ragged", "records"]
#: Dtypes of scalars and arrays; on disk they are little-endian, a bool is one byte of 0 or 1.
DTYPES = (
    "bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64",
    "float16", "float32", "float64",
)  # fmt: skip
MAX_VALUE_BYTES = 1 << 30  # per value of a sample, and per record


def optional(default: Any) -> Any:
    """Return a later setting: sets do not have it if they are older, or if it has this default."""
    return dataclasses.field(default=default, metadata={"optional": True})


@dataclass(frozen=True)
class Kind:
    """The kind of a field; its subclasses are all kinds."""

    name: ClassVar[str]  # in FORMAT.md and _C.FIELD_KINDS

    @property
    def stored_as(self) -> str:
        """Its name in manifests and in ``_C.FIELD_KINDS``."""
        return self.name

    @property
    def shown(self) -> tuple[bool, bool]:
        """Whether its pictures are turned as EXIF says, and whether what is transparent lies on white."""
        return False, False

    @property
    def number(self) -> int:
        """Its number in ``_C.FIELD_KINDS``."""
        return int(_C.FIELD_KINDS[self.stored_as][0])

    @property
    def storage(self) -> Storage:
        """How its values lie on disk."""
        storage: Storage = _C.FIELD_KINDS[self.name][1]
        return storage

    @property
    def item_dtype(self) -> np.dtype[Any]:
        """Dtype of a value (fixed), of a row (ragged; objects: bytes), or of a picture's pixels (record)."""
        return np.dtype(np.uint8)

    @property
    def item_shape(self) -> tuple[int, ...]:
        """Shape of a value (fixed), of a row (ragged; objects: bytes), or of a pixel (record)."""
        return ()

    @property
    def item_bytes(self) -> int:
        """Bytes of a value (fixed), of a row (ragged), or of a pixel (record)."""
        return math.prod(self.item_shape) * np.dtype(self.item_dtype).itemsize

    @property
    def has_rows(self) -> bool:
        """Whether a sample has any number of rows of numbers."""
        return False

    def to_json(self) -> dict[str, Any]:
        """Return name and settings, as in the manifest's ``fields``; later settings only if they differ from
        their default."""
        settings = [(setting, getattr(self, setting.name)) for setting in fields(self)]
        return {
            "kind": self.stored_as,
            **{
                setting.name: _plain(value)
                for setting, value in settings
                if not (_is_optional(setting) and value == setting.default)
            },
        }

    @staticmethod
    def from_json(body: Mapping[str, Any]) -> Kind:
        """Return the kind that :meth:`to_json` described; unknown settings are ignored.

        Raises:
            ValueError, TypeError: there is no such kind, or settings are missing or wrong.
        """
        name = body.get("kind")
        cls = STORED_KINDS.get(name) if isinstance(name, str) else None
        if cls is None:
            raise ValueError(f"'kind' must be one of {', '.join(KINDS)}. Found: {name!r}.")
        missing = [s.name for s in fields(cls) if s.name not in body and not _is_optional(s)]
        if missing:
            raise ValueError(f"a field of kind {name!r} needs {', '.join(map(repr, missing))}.")
        return cls(**{s.name: _tuples(body[s.name]) for s in fields(cls) if s.name in body})

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


def _is_optional(setting: dataclasses.Field[Any]) -> bool:
    return bool(setting.metadata.get("optional"))


def _plain(value: Any) -> Any:
    return [_plain(part) for part in value] if isinstance(value, tuple) else value


def _tuples(value: Any) -> Any:
    return tuple(_tuples(part) for part in value) if isinstance(value, list) else value


# ---- Kinds with an entry per object -----------------------------------------------------------------


@dataclass(frozen=True)
class Boxes(Kind):
    """Boxes of objects: (n, 4) float32.

    Args:
        format: ``"xyxy"`` (corners), ``"xywh"`` (left, top, width, height) or ``"cxcywh"`` (centre, width,
            height).
        relative: relative to the picture's width and height, instead of in pixels.
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
        format: ``"polygons"`` (any number of polygons of x, y per object, float32), ``"rle"`` (COCO's run
            lengths), or ``"mixed"`` (either of the two per object; x, y are float64).
    """

    name: ClassVar[str] = "polygons"
    format: str = "polygons"

    def __post_init__(self) -> None:
        self._check_choice("format", ("polygons", "rle", "mixed"))


@dataclass(frozen=True)
class Keypoints(Kind):
    """Points of objects: (n, points, 3) float32 of x, y (pixels) and visibility, or (n, points, 2).

    Args:
        points: points per object.
        visibility: whether each point has one; COCO's is 0 not labelled, 1 hidden, 2 visible.
        pairs: points that a flip exchanges, such as (1, 2) for left and right eye.
    """

    name: ClassVar[str] = "keypoints"
    points: int
    visibility: bool = True
    pairs: tuple[tuple[int, int], ...] = optional(())

    def __post_init__(self) -> None:
        self._check_integer("points", 1, 65535)
        self._check_choice("visibility", (False, True))
        try:
            pairs = tuple((first, second) for first, second in self.pairs)
        except (TypeError, ValueError):
            pairs = ((-1, -1),)
        points = [point for pair in pairs for point in pair]
        ints = all(isinstance(point, int) and not isinstance(point, bool) for point in points)
        if not ints or not all(0 <= a < b < self.points for a, b in pairs) or len(set(points)) < len(points):
            self._fail(
                "pairs", f"pairs of points (i, j), 0 <= i < j < {self.points}, no point in two of them"
            )
        object.__setattr__(self, "pairs", pairs)

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
class Labels(Kind):
    """The classes of objects: the index of each, -1 for none.

    Args:
        classes: names of the classes; (): indices without names.
        ids: the source's number of each class, such as COCO's category ids; (): its index.
    """

    name: ClassVar[str] = "labels"
    classes: tuple[str, ...] = ()
    ids: tuple[int, ...] = optional(())

    def __post_init__(self) -> None:
        self._check_names("classes")
        object.__setattr__(self, "ids", tuple(self.ids) if isinstance(self.ids, list) else self.ids)
        legal = f"() or {len(self.classes)} different integers of 64 bits, one for each class"
        if not isinstance(self.ids, tuple) or not all(map(_is_integer, self.ids)):
            self._fail("ids", legal)
        if self.ids and not len(set(self.ids)) == len(self.ids) == len(self.classes):
            self._fail("ids", legal)

    @property
    def item_dtype(self) -> np.dtype[Any]:
        return np.dtype("<i4")

    @property
    def has_rows(self) -> bool:
        return True

    @cached_property
    def indices(self) -> dict[str, int]:
        """Index by class name; the first of two classes with one name."""
        return {name: index for index, name in reversed(list(enumerate(self.classes)))}


@dataclass(frozen=True)
class Texts(Kind):
    """Any number of str, such as the captions of a picture."""

    name: ClassVar[str] = "texts"


def _is_integer(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and -(2**63) <= value < 2**63


# ---- Other kinds ------------------------------------------------------------------------------------


#: ``Image.exif`` and ``Image.alpha``.
EXIF, ALPHA = ("ignore", "turn"), ("drop", "white")


class _Shown(Kind):
    """What kinds of pictures have in common: how files are shown. Raw pixels are shown as they are."""

    exif: str
    alpha: str

    @property
    def shown(self) -> tuple[bool, bool]:
        return self.exif == "turn", self.alpha == "white"

    @property
    def stored_as(self) -> str:
        """Another name where pictures are shown otherwise than stored: readers that could not do it refuse
        the name."""
        return {"image": "picture", "images": "pictures"}[self.name] if any(self.shown) else self.name

    def _check_shown(self) -> None:
        self._check_choice("exif", EXIF)
        self._check_choice("alpha", ALPHA)


@dataclass(frozen=True)
class Image(_Shown):
    """A picture: the bytes of an image file, or raw pixels.

    Args:
        channels: of a batch's pixels: 3 RGB, 1 gray, 2 and 4 for PNGs with alpha, others for raw pixels only.
        bits: 8 (uint8) or 16 (uint16) per channel.
        exif: ``"ignore"``, or ``"turn"`` pictures as EXIF says; then sizes and coordinates are of the turned
            ones.
        alpha: of pictures with alpha that become RGB or gray: ``"drop"`` it, or put them on ``"white"``.
    """

    name: ClassVar[str] = "image"
    channels: int = 3
    bits: int = 8
    exif: str = optional("ignore")
    alpha: str = optional("drop")

    def __post_init__(self) -> None:
        self._check_integer("channels", 1, 255)
        self._check_choice("bits", (8, 16))
        self._check_shown()
        if self.alpha == "white" and (self.channels not in (1, 3) or self.bits != 8):
            raise ValueError(
                f"Image: alpha='white' is for 1 or 3 channels of 8 bits. Found: {self.channels} channels of "
                f"{self.bits} bits."
            )

    @property
    def item_dtype(self) -> np.dtype[Any]:
        return np.dtype("<u2" if self.bits == 16 else "u1")

    @property
    def item_shape(self) -> tuple[int, ...]:
        return (self.channels,)


@dataclass(frozen=True)
class Images(_Shown):
    """Any number of pictures, each the bytes of an image file: a list, which may be empty and may have None
    at places without a picture; or None, no list.

    Args:
        channels: of a batch's pixels: 3 RGB, 1 gray.
        exif, alpha: as an Image's.
    """

    name: ClassVar[str] = "images"
    channels: int = 3
    exif: str = optional("ignore")
    alpha: str = optional("drop")

    def __post_init__(self) -> None:
        self._check_choice("channels", (1, 3))
        self._check_shown()

    @property
    def item_shape(self) -> tuple[int, ...]:
        return (self.channels,)

    @property
    def each(self) -> Image:
        """The kind of one of its pictures."""
        return Image(self.channels, exif=self.exif, alpha=self.alpha)


@dataclass(frozen=True)
class Mask(Kind):
    """A picture of ids of classes or instances; in a palette PNG they are its indices, not its colours.

    Args:
        bits: 8 or 16 per id.
        classes: names of the ids; (): they have none.
        ignore: the id of pixels that do not count, and of padding.
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
    """A class, by its index, -1 for none.

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
        """Index by class name; the first of two classes with one name."""
        return {name: index for index, name in reversed(list(enumerate(self.classes)))}


@dataclass(frozen=True)
class Scalar(Kind):
    """One number.

    Args:
        dtype: one of :data:`DTYPES`, in any form that NumPy or torch has for it.
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
    """Numbers of a fixed shape; or any number of rows of a fixed shape per sample.

    Args:
        dtype: one of :data:`DTYPES`, in any form that NumPy or torch has for it.
        shape: the shape of a sample's value. None first: any number of rows.
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
        """Whether each row is one integer that fits int64."""
        return self.shape == (None,) and np.can_cast(self.item_dtype, np.int64)


@dataclass(frozen=True)
class Text(Kind):
    """A str.

    Args:
        null: whether a sample may have no text, which is None in a batch, not ``""``.
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
        Images,
    )
}
#: The kinds by the names that manifests have: those of pictures that are shown otherwise have another one.
STORED_KINDS: dict[str, type[Kind]] = {**KINDS, "picture": Image, "pictures": Images}


#: Kinds whose values are positions in a picture, and move with it.
PLACES: tuple[type[Kind], ...] = (Mask, Boxes, Keypoints, Polygons)


def _dtype_name(kind: str, dtype: Any) -> str:
    try:
        # str() is the only way from torch's dtypes to NumPy's without importing torch.
        words = dtype if isinstance(dtype, type) else str(dtype).removeprefix("torch.")
        name = str(np.dtype(words).name)
    except (TypeError, ValueError, SyntaxError):
        name = ""
    if name not in DTYPES:
        raise ValueError(f"{kind}: dtype must be one of {', '.join(DTYPES)}. Found: {dtype!r}.")
    return name


def _little(name: str) -> np.dtype[Any]:
    dtype: np.dtype[Any] = np.dtype(name).newbyteorder("<")
    return dtype


def _is_side(side: Any) -> bool:
    return isinstance(side, int) and not isinstance(side, bool) and side >= 1


# ---- Kinds as words ---------------------------------------------------------------------------------


def kind_of(what: Any) -> Kind:
    """Return a kind from any description of one.

    Args:
        what: a kind; its class, if it needs no settings; a mapping from :meth:`Kind.to_json`; or words: a
            kind's name, with settings in parentheses as in Python (names need no quotes), or the name of a
            dtype, which is a scalar.

    Raises:
        ValueError, TypeError: there is no such kind, or settings are wrong.
    """
    if isinstance(what, Kind):
        return what
    if isinstance(what, type) and issubclass(what, Kind) and what is not Kind:
        return _made(what, what.__name__, [], {})
    if isinstance(what, Mapping):
        return Kind.from_json(what)
    if isinstance(what, str):
        return _parsed(what)
    raise TypeError(
        f"A field's kind must be one of fastload's ({', '.join(cls.__name__ for cls in KINDS.values())}), "
        f"its name, or a mapping. Found: {what!r}."
    )


def leader_of(text: str) -> tuple[str, str | None]:
    """Split ``"labels of boxes"`` into a kind's words and the field that its rows follow, None if none."""
    words, separator, name = text.rpartition(" of ")
    if not separator or _is_python(text):
        return text, None
    return words.strip(), name.strip()


def _is_python(text: str) -> bool:
    try:
        ast.parse(text.strip(), mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True


def words_of(kind: Kind) -> str:
    """Return the words for a kind, without default settings, class names and ids."""
    settings = []
    for setting in fields(kind):
        value = getattr(kind, setting.name)
        if setting.name not in ("classes", "ids") and value != setting.default:
            word = value if isinstance(value, str) else repr(value)
            needs_name = setting.name not in ("dtype", "shape", "format", "points")
            settings.append(f"{setting.name}={word}" if needs_name else word)
    return f"{kind.name}({', '.join(settings)})" if settings else kind.name


def _parsed(text: str) -> Kind:
    if text in DTYPES:
        return Scalar(text)
    try:
        tree = ast.parse(text.strip(), mode="eval").body
        call = tree if isinstance(tree, ast.Call) else ast.Call(tree, [], [])
        positional = [_value(node) for node in call.args]
        named = {str(word.arg): _value(word.value) for word in call.keywords}
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise ValueError(
            f"A kind is a name with settings in parentheses, as boxes(xywh) or array(float32, (None, 5)). "
            f"Found: {text!r}."
        ) from None
    name = call.func.id if isinstance(call.func, ast.Name) else ""
    if name not in KINDS:
        raise ValueError(f"A field's kind must be one of {', '.join(KINDS)}, or a dtype. Found: {text!r}.")
    return _made(KINDS[name], text, positional, named)


def _value(node: ast.expr) -> Any:
    return node.id if isinstance(node, ast.Name) else ast.literal_eval(node)


def _made(cls: type[Kind], text: str, positional: list[Any], named: dict[str, Any]) -> Kind:
    try:
        return cls(*positional, **named)
    except TypeError:
        settings = [setting.name for setting in fields(cls)]
        raise ValueError(
            f"{cls.name} has the settings {', '.join(settings) or 'none'}, all or some needed. Found: {text}."
        ) from None


# ---- Numbers as arrays ------------------------------------------------------------------------------

# The quiet NaN with R's payload for "not available", 0x7A2 (for float16 0x1A2): arithmetic takes it for any
# NaN, and its bits tell a missing value from one that is not a number.
_MISSING_BITS = {"float16": 0x7FA2, "float32": 0x7FC007A2, "float64": 0x7FF80000000007A2}
#: The missing value of each dtype that has one.
MISSING = {
    name: np.array([bits], f"u{np.dtype(name).itemsize}").view(name)[0]
    for name, bits in _MISSING_BITS.items()
}


def is_missing(values: Any) -> npt.NDArray[np.bool_]:
    """Return which numbers are missing; none for dtypes without a missing value."""
    numbers = np.ascontiguousarray(values)
    dtype = numbers.dtype
    if dtype.name not in _MISSING_BITS:
        return np.zeros(numbers.shape, np.bool_)
    missing: npt.NDArray[np.bool_] = numbers.view(f"u{dtype.itemsize}") == _MISSING_BITS[dtype.name]
    return missing


def as_numbers(value: Any, dtype: np.dtype[Any], where: str) -> npt.NDArray[Any]:
    """Return an array of ``dtype`` with equal numbers; floats are rounded to the nearest.

    Args:
        value: a number, nested sequences of numbers, an array, or a tensor on the CPU.
        dtype: the dtype of the result.
        where: for messages, such as ``"field 'area'"``.

    Raises:
        TypeError: these are not numbers, or fractions for a field of integers.
        ValueError: sequences have unequal lengths, or ``dtype`` cannot hold a number.
    """
    try:
        numbers = np.asarray(value)
    except (ValueError, TypeError, RuntimeError) as error:
        raise ValueError(
            f"{where} must be numbers in a regular shape. Found: {_shown(value)} ({error})."
        ) from None
    if numbers.size == 0:
        return np.zeros(numbers.shape, dtype)
    if numbers.dtype.kind == "f" and dtype.kind in "iu" and not hasattr(value, "dtype"):
        numbers = np.asarray(value, object)  # NumPy rounds integers if some need uint64
    if numbers.dtype.kind == "O":  # some integers are beyond 64 bits
        numbers = _integers(numbers, value, dtype, where)
    if numbers.dtype.kind not in "buif":
        raise TypeError(f"{where} must be numbers ({dtype.name}). Found: {_shown(value)} ({numbers.dtype}).")
    if dtype.kind == "f":
        return _as_floats(numbers, dtype, where)
    if numbers.dtype.kind == "f":
        raise TypeError(f"{where} must be integers ({dtype.name}). Found: {_shown(value)} ({numbers.dtype}).")
    low, high = (0, 1) if dtype.kind == "b" else (int(np.iinfo(dtype).min), int(np.iinfo(dtype).max))
    for extreme in (int(numbers.min()), int(numbers.max())):
        if not low <= extreme <= high:
            raise ValueError(f"{where} must be from {low} to {high} ({dtype.name}). Found: {extreme}.")
    return numbers.astype(dtype)


def _integers(objects: npt.NDArray[Any], value: Any, dtype: np.dtype[Any], where: str) -> npt.NDArray[Any]:
    """Return Python's integers as int64 or uint64, exactly; ``dtype``: the field's, for messages."""
    flat = objects.ravel().tolist()
    wrong = [part for part in flat if not isinstance(part, int)]
    if wrong and all(isinstance(part, (int, float)) for part in flat):
        raise TypeError(f"{where} must be integers ({dtype.name}). Found: {_shown(value)} (float64).")
    if wrong:
        raise TypeError(f"{where} must be numbers. Found: {_shown(wrong[0])} in {_shown(value)}.")
    low, high = min(flat), max(flat)
    if low >= 0 and high < 1 << 64:
        return objects.astype(np.uint64)
    if low >= -(1 << 63) and high < 1 << 63:
        return objects.astype(np.int64)
    raise ValueError(f"{where} must be numbers of at most 64 bits. Found: {max(flat, key=abs)}.")


def _as_floats(numbers: npt.NDArray[Any], dtype: np.dtype[Any], where: str) -> npt.NDArray[Any]:
    with np.errstate(over="ignore"):
        rounded = numbers.astype(dtype)
    lost = np.isinf(rounded) & np.isfinite(numbers)
    if lost.any():
        raise ValueError(
            f"{where} must be from {-float(np.finfo(dtype).max):g} to {float(np.finfo(dtype).max):g} "
            f"({dtype.name}). Found: {numbers[lost].ravel()[0]}."
        )
    return rounded


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
