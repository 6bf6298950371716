"""Pictures of any source as records (files, bytes, arrays and PIL images), and PNG files of raw pixels."""

from __future__ import annotations

import io
import os
import struct
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from fastload.dataset.decoding import raw_format, thread_decoder, wanted_format
from fastload.errors import FastloadError, PackError
from fastload.machine.paths import open_regular
from fastload.packing.coefficients import RecodeOutcome
from fastload.sample.fields import MAX_VALUE_BYTES, Image, Images, Kind, Mask
from fastload.sample.schema import Schema
from fastload.sample.values import NO_LIST, pack_list
from fastload.shard.codecs import COEFFICIENTS, JPEG, RAW, SIXTEEN_BIT

# ---- Pixels as a PNG file ---------------------------------------------------------------------------
# PNG specification, third edition: 11.2.1 IHDR, 9.2 filter types. Pillow need not be installed.

_LEVEL = 3  # of zlib: most of what higher levels save, in a third of the time
_UP = 2  # each byte as its difference from the one above
_COLOUR = {1: 0, 2: 4, 3: 2, 4: 6}  # colour type by channels: gray, gray and alpha, RGB, RGB and alpha


def png_file(pixels: npt.NDArray[np.uint8] | npt.NDArray[np.uint16]) -> bytes:
    """Return a PNG of (height, width, channels) pixels, uint8 or uint16, with 1 to 4 channels."""
    height, width, channels = pixels.shape
    bits = 8 * pixels.itemsize
    rows = np.ascontiguousarray(pixels, pixels.dtype.newbyteorder(">")).view(np.uint8).reshape(height, -1)
    filtered = np.empty((height, 1 + rows.shape[1]), np.uint8)
    filtered[:, 0] = _UP
    filtered[:1, 1:] = rows[:1]
    np.subtract(rows[1:], rows[:-1], out=filtered[1:, 1:])
    header = struct.pack(">IIBBBBB", width, height, bits, _COLOUR[channels], 0, 0, 0)
    data = zlib.compress(filtered.tobytes(), _LEVEL)
    return b"\x89PNG\r\n\x1a\n" + _chunk(b"IHDR", header) + _chunk(b"IDAT", data) + _chunk(b"IEND", b"")


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def pixels_of(record: np.void, data: bytes) -> npt.NDArray[Any]:
    """Return (height, width, channels) pixels that are stored raw, by their index entry."""
    pixels: npt.NDArray[Any] = np.frombuffer(data, "<u2" if record["flags"] & SIXTEEN_BIT else "u1")
    return pixels.reshape(int(record["height"]), int(record["width"]), int(record["channels"]))


# ---- How pictures are shown -------------------------------------------------------------------------


#: ``--exif`` and ``--alpha`` that change nothing.
AS_STORED = ("ignore", "drop")


def shown_kind(kind: Kind, exif: str, alpha: str) -> Kind:
    """Return a field's kind under ``--exif`` and ``--alpha``; those that keep their alpha have no white."""
    if isinstance(kind, (Image, Images)):
        kind = replace(kind, exif="turn") if exif == "turn" else kind
    if alpha == "white" and (isinstance(kind, Images) or (isinstance(kind, Image) and is_any(kind))):
        kind = replace(kind, alpha="white")
    return kind


def shown_schema(schema: Schema, exif: str, alpha: str) -> Schema:
    """Return a schema whose pictures are shown as ``--exif`` and ``--alpha`` say.

    Raises:
        PackError: it has a mask, which is not turned.
    """
    fields = [replace(field, kind=shown_kind(field.kind, exif, alpha)) for field in schema]
    try:
        return Schema(tuple(fields))
    except ValueError as error:
        raise PackError(str(error)) from None


# ---- A sample's picture -----------------------------------------------------------------------------
# Files and their bytes are kept as they are. Pixels become PNG files, which lose nothing; for fields with
# other than one or three channels they are stored raw.

MAX_SIDE = 65535  # of raw pixels: the index has 16 bits for it
#: Bytes at the start of a picture's file that tell whether it can be opened as its field says.
HEAD = 26
_PNG, _DEPTH = b"\x89PNG\r\n\x1a\n", 24  # offset of a PNG's bits per channel, followed by its colour type
NUMPY = b"\x93NUMPY"  # what .npy files begin with
NUMPY_SUFFIX = b".npy"
_PNG_CHANNELS = (1, 2, 3, 4)
# Pillow's modes that NumPy takes as they are
_ASARRAY = ("1", "L", "LA", "RGB", "RGBA", "I", "I;16", "I;16L", "I;16B")
_PIXELS = (np.uint8, np.uint16, np.bool_)


@dataclass(frozen=True)
class Picture:
    """The bytes of a record; ``raw``: its index entry if they are pixels; ``outcome``: the result for a
    JPEG that was to become a coefficient record; ``was_progressive``: whether it was made a baseline JPEG;
    ``entry``: its whole index entry, if it comes from a set."""

    data: bytes
    raw: dict[str, int] | None = None
    outcome: RecodeOutcome | None = None
    was_progressive: bool = False
    entry: np.void | None = None

    def whole(self) -> bytes:
        """Return the record's bytes."""
        return self.data


@dataclass(frozen=True)
class PictureList:
    """The pictures of a list; None at places without one, and in place of a list that there is not."""

    pictures: tuple[Picture | None, ...] | None

    @cached_property
    def data(self) -> bytes:
        """The bytes of the value."""
        if self.pictures is None:
            return NO_LIST
        return pack_list([b"" if one is None else one.data for one in self.pictures])

    def map(self, change: Callable[[Picture], Picture]) -> PictureList:
        """Return the list with each of its pictures changed."""
        if self.pictures is None:
            return self
        return PictureList(tuple(None if one is None else change(one) for one in self.pictures))


#: What a field's value is on its way into a shard.
Value: TypeAlias = Picture | PictureList | bytes


def pictures_in(value: Value) -> Iterator[Picture]:
    """Yield the pictures that a field's value has."""
    if isinstance(value, Picture):
        yield value
    elif isinstance(value, PictureList):
        yield from (one for one in value.pictures or () if one is not None)


def is_path(value: Any) -> bool:
    """Whether a value names a file."""
    return isinstance(value, (str, os.PathLike))


def is_picture(value: Any) -> bool:
    """Whether a value is the pixels of a picture, Pillow's or NumPy's."""
    if _is_pillow(value):
        return True
    return isinstance(value, np.ndarray) and value.ndim in (2, 3) and value.dtype in _PIXELS


def path_of(value: Any) -> bytes | None:
    """Return the path that a value names or that goes with its bytes; None: it has none."""
    if isinstance(value, Mapping):
        value = value.get("path")
    return os.fsencode(value) if is_path(value) and os.fspath(value) else None


def picture_of(kind: Image | Mask, value: Any, root: bytes) -> Picture:
    """Return the record of a picture.

    Args:
        kind: the field's kind.
        value: path (relative to ``root``; also of a .npy file), bytes, ``{"bytes", "path"}``, a Pillow
            image, or an array of (height, width) or (height, width, channels), uint8 or uint16; for a
            mask, any integers that fit.

    Raises:
        OSError: a file cannot be read.
        TypeError, ValueError: the value is no picture, or one that the field cannot hold.
    """
    if isinstance(value, Mapping):
        value = value["bytes"] if value.get("bytes") is not None else value.get("path")
    if is_path(value):
        data = read_picture(os.path.join(root, os.fsencode(value)))
        if data.startswith(NUMPY):
            return _from_pixels(kind, np.load(io.BytesIO(data)))
        return _encoded(kind, data)
    if isinstance(value, (bytes, bytearray, memoryview)):
        return _encoded(kind, bytes(value))
    if _is_pillow(value):
        return _from_pillow(kind, value)
    if isinstance(value, np.ndarray):
        return _from_pixels(kind, value)
    if value is None:
        raise TypeError(
            "a picture is missing. Where samples may have none, or several, the field's kind is 'images' "
            "(--field NAME=images)"
        )
    advice = " (a tensor's is t.permute(1, 2, 0).numpy())" if type(value).__module__ == "torch" else ""
    raise TypeError(
        f"a picture must be a path, bytes, a PIL image or an array{advice}. Found: {type(value).__name__}"
    )


def picture_list_of(kind: Images, value: Any, root: bytes) -> PictureList:
    """Return the records of a list of pictures; a picture alone is a list of one.

    Args:
        kind: the field's kind.
        value: a list of what :func:`picture_of` takes, or None; or None.
        root: the folder that relative paths start from.

    Raises:
        As :func:`picture_of`; the message says which picture it is.
    """
    if value is None:
        return PictureList(None)
    is_one = isinstance(value, (Mapping, bytes, bytearray, memoryview)) or is_path(value) or is_picture(value)
    if not is_one and (not isinstance(value, Iterable) or isinstance(value, str)):
        raise TypeError(f"pictures must be a list. Found: {type(value).__name__}")
    pictures: list[Picture | None] = []
    for place, one in enumerate([value] if is_one else value):
        try:
            pictures.append(None if is_gone(one) else picture_of(kind.each, one, root))
        except (TypeError, ValueError) as error:
            raise ValueError(f"picture {place}: {error}") from error
    return PictureList(tuple(pictures))


def is_gone(value: Any) -> bool:
    """Whether a place of a list has no picture: None, or ``{"bytes": None, "path": None}``."""
    if isinstance(value, Mapping):
        return value.get("bytes") is None and not value.get("path")
    return value is None


def _is_pillow(value: Any) -> bool:
    return any(cls.__module__ == "PIL.Image" and cls.__name__ == "Image" for cls in type(value).__mro__)


def read_picture(path: bytes) -> bytes:
    """Read the bytes of a file that becomes a record."""
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size > MAX_VALUE_BYTES:
            raise ValueError(f"the file has {size} bytes; a record has at most {MAX_VALUE_BYTES}")
        return file.read(size + 1)  # Python allocates all that is asked for


def _encoded(kind: Image | Mask, data: bytes) -> Picture:
    if isinstance(kind, Image) and kind.channels not in (1, 3):
        if kind.channels in (2, 4) and data.startswith(_PNG):
            return Picture(data)
        other, give = ("other ", "a PNG with alpha, or ") if kind.channels in (2, 4) else ("", "")
        raise ValueError(
            f"no {other}image file has {kind.channels} channels: give {give}an array of (height, width, "
            f"{kind.channels})"
        )
    return Picture(data)


def is_any(kind: Image | Mask) -> bool:
    """Whether every picture can be opened as a field says."""
    return isinstance(kind, Image) and kind.bits == 8 and kind.channels in (1, 3)


def unfit(kind: Image | Mask, record: np.void, head: bytes, whole: Callable[[], bytes]) -> str:
    """Return why a picture cannot be opened as its field says, an error in each epoch; "" if it can.

    Args:
        kind: the field's kind.
        record: its index entry.
        head: the first :data:`HEAD` bytes, or all there are.
        whole: returns all bytes; called if the first ones do not tell.
    """
    if isinstance(kind, Mask) and record["codec"] in (JPEG, COEFFICIENTS):
        return "a mask cannot be a JPEG, which changes the ids; use PNG"
    if isinstance(kind, Mask) and kind.bits == 8 and record["flags"] & SIXTEEN_BIT:
        return "a mask of 8 bits. Found: 16 bits; use mask(bits=16)"
    if record["codec"] == RAW or is_any(kind) or _fits(kind, head):
        return ""
    try:
        thread_decoder().decode(np.frombuffer(whole(), np.uint8), wanted_format(kind), raw_format(record))
    except FastloadError as error:
        return str(error).removesuffix(".")
    return ""


def _fits(kind: Image | Mask, head: bytes) -> bool:
    """Whether a PNG's header says that it can be opened as a field says."""
    if not head.startswith(_PNG) or len(head) < HEAD:
        return False
    depth, colour = head[_DEPTH], head[_DEPTH + 1]
    is_gray, has_alpha, is_palette = not colour & 2, bool(colour & 4), colour == 3
    if isinstance(kind, Mask):
        return (is_gray or is_palette) and not has_alpha and depth <= kind.bits
    if kind.bits == 16 and depth != 16:
        return False
    stored = (1 if is_gray else 3) + has_alpha
    return (kind.channels == stored and has_alpha) or (
        kind.bits == 16 and (kind.channels == 3 or (kind.channels == 1 and is_gray))
    )


def _from_pillow(kind: Image | Mask, picture: Any) -> Picture:
    if picture.mode in _ASARRAY or (picture.mode == "P" and isinstance(kind, Mask)):
        return _from_pixels(kind, np.asarray(picture))
    if picture.mode != "P":
        raise TypeError(
            f"a PIL image of mode {picture.mode!r} has no PNG file; give its file's bytes, or .convert('RGB')"
        )
    out = io.BytesIO()
    picture.save(out, "PNG")
    return _encoded(kind, out.getvalue())


def _from_pixels(kind: Image | Mask, pixels: npt.NDArray[Any]) -> Picture:
    if pixels.ndim not in (2, 3) or not pixels.size:
        raise ValueError(f"pixels must be (height, width[, channels]). Found: {pixels.shape}")
    if pixels.ndim == 2:
        pixels = pixels[:, :, None]
    if isinstance(kind, Mask):
        return Picture(png_file(_ids(kind, pixels)))
    if pixels.dtype == np.bool_:
        pixels = pixels.astype(np.uint8) * np.uint8(255)
    if pixels.dtype == np.int32 and pixels.shape[2] == 1 and not (pixels >> 16).any():
        pixels = pixels.astype(np.uint16)  # Pillow's mode I
    if pixels.dtype not in (np.uint8, np.uint16):
        raise TypeError(f"pixels must be uint8 or uint16. Found: {pixels.dtype}")
    channels = pixels.shape[2]
    if kind.channels in (1, 3):
        if channels not in _PNG_CHANNELS:
            raise ValueError(
                f"the field has {kind.channels} channels, the pixels {channels}: say so, as image({channels})"
            )
        return Picture(png_file(pixels))
    if channels != kind.channels:
        raise ValueError(f"the field has {kind.channels} channels. Found: {channels}")
    return raw_picture(kind, pixels)


def raw_picture(kind: Image, pixels: npt.NDArray[Any]) -> Picture:
    """Return the record of pixels (height, width, channels) as the field stores them.

    Raises:
        TypeError, ValueError: they have other bits, or more pixels per side than the index has room for.
    """
    if pixels.dtype != np.dtype(kind.item_dtype):
        raise TypeError(f"the field has {kind.bits} bits a channel. Found: {pixels.dtype}")
    height, width, channels = pixels.shape
    if max(height, width) > MAX_SIDE:
        raise ValueError(f"sides of raw pixels must be at most {MAX_SIDE}. Found: {width} x {height}")
    flags = SIXTEEN_BIT if kind.bits == 16 else 0
    facts = {"width": width, "height": height, "channels": channels, "flags": flags}
    data = pixels.astype(pixels.dtype.newbyteorder("<")).tobytes()
    return Picture(data, {"codec": RAW, **facts})


def _ids(kind: Mask, pixels: npt.NDArray[Any]) -> npt.NDArray[Any]:
    if pixels.shape[2] != 1:
        raise ValueError(f"a mask must be (height, width). Found: {pixels.shape}")
    if pixels.dtype.kind not in "bui":
        raise TypeError(f"a mask must have integers. Found: {pixels.dtype}")
    most = (1 << kind.bits) - 1
    if pixels.min() < 0 or pixels.max() > most:
        raise ValueError(
            f"a mask of {kind.bits} bits has ids from 0 to {most}. Found: {pixels.min()} to {pixels.max()}"
        )
    return pixels.astype(np.uint8 if kind.bits == 8 else np.uint16)
