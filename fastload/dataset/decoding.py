"""Decoding single pictures of a packed dataset, by the core or, for the codecs it lacks, by Pillow."""

from __future__ import annotations

import importlib.util
import io
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from fastload import errors
from fastload._native import _C
from fastload.dataset.mixture import Packed
from fastload.errors import DecodeError, LibraryMissing, LimitError
from fastload.extras import words
from fastload.machine.threads import ForkSafeLock
from fastload.shard.codecs import PILLOW_FORMATS, RAW, SIXTEEN_BIT
from fastload.shard.dataset import PackedFiles

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fastload.sample.fields import Image, Mask


# ---- Pillow (or pillow-simd) for the codecs that the core lacks: GIF, BMP, TIFF, 12-bit JPEG... ----

_ADDRESS = re.compile(r" ?<[^<>]* object at 0x[0-9a-fA-F]+>")
_TIFF = (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")


def require_pil(who: str) -> None:
    """Check that Pillow is installed, without importing it.

    Raises:
        LibraryMissing: it is not; ``who`` needs it.
    """
    if importlib.util.find_spec("PIL") is None:
        missing = words("PIL", f"{who} gets PIL pictures, as in torchvision's chain, which")
        raise LibraryMissing(
            f"{missing}. For tensors put fastload.transforms.ToDtype('uint8') before it.", name="PIL"
        )


def decode_with_pil(
    data: bytes, max_pixels: int | None = None, *, turned: bool = False, on_white: bool = False
) -> NDArray[np.uint8]:
    """Decode one picture to RGB, the first frame of an animated one.

    Args:
        data: the encoded picture.
        max_pixels: largest width times height; default: Pillow's ``Image.MAX_IMAGE_PIXELS``, above which
            Pillow itself only warns.
        turned: turn it as EXIF says.
        on_white: put what is transparent on white; else alpha is dropped.

    Returns:
        A C-contiguous uint8 array of shape (height, width, 3).

    Raises:
        DecodeError: Pillow is missing or cannot decode the bytes.
        LimitError: the picture has more pixels than allowed.
    """
    try:
        import numpy as np
        from PIL import Image, UnidentifiedImageError
    except ImportError as error:
        raise DecodeError(words("PIL", "this picture", error)) from error
    limit = Image.MAX_IMAGE_PIXELS if max_pixels is None else max_pixels
    try:
        with _silent_libtiff(data), Image.open(io.BytesIO(data), formats=PILLOW_FORMATS) as image:
            pixels = image.width * image.height
            if limit is not None and pixels > limit:
                size = f"{image.width}x{image.height}"
                raise LimitError(f"{image.format} of {size} = {pixels} pixels: at most {limit} are allowed")
            return np.asarray(shown_by_pil(image, turned=turned, on_white=on_white).convert("RGB"))
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise LimitError(str(error)) from error
    except LimitError:
        raise
    except UnidentifiedImageError as error:  # its message is an address in memory
        raise DecodeError("Pillow cannot identify the picture, or its beginning is damaged") from error
    except Exception as error:  # Pillow raises SyntaxError, struct.error, OSError and others on bad files
        raise DecodeError(f"Pillow: {pillow_words(error)}") from error


def shown_by_pil(image: Any, *, turned: bool, on_white: bool) -> Any:
    """Return a Pillow picture turned as EXIF says, and what is transparent on white."""
    from PIL import Image, ImageOps

    if turned:
        try:
            image = ImageOps.exif_transpose(image)
        except Exception:  # damaged EXIF, of which Pillow raises SyntaxError, struct.error and others
            image.load()  # if the pixels are what is damaged, this says so
    if on_white and (image.mode in ("LA", "La", "PA", "RGBA", "RGBa") or "transparency" in image.info):
        over = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", over.size, (255, 255, 255, 255)), over)
    return image


def pillow_words(error: BaseException) -> str:
    """Return a Pillow error's message without the bytes' address in memory: the same in every run."""
    return _ADDRESS.sub("", str(error)) or type(error).__name__


_silence = ForkSafeLock()
_found: list[Any] = []  # the function that sets libtiff's handler, once looked up
_silenced: list[Any] = []  # the former handler of libtiff's messages, once for each thread inside


@contextmanager
def _silent_libtiff(data: bytes) -> Iterator[None]:
    """Silence libtiff on standard error while a TIFF is decoded: its messages do not name the file, and the
    error says the same. The handler is the whole library's, so it is restored when no thread is inside."""
    set_handler = _handler_of_libtiff() if data.startswith(_TIFF) else None
    if set_handler is None:
        yield
        return
    with _silence.held():
        _silenced.append(None if _silenced else set_handler(None))
    try:
        yield
    finally:
        with _silence.held():
            first = _silenced[0]
            _silenced.pop()
            if not _silenced:
                set_handler(first)


def _handler_of_libtiff() -> Any:
    """Return ``TIFFSetErrorHandler`` of the library that Pillow is linked with; None: not found."""
    if not _found:
        import ctypes

        from PIL import _imaging

        try:
            library = ctypes.CDLL(_imaging.__file__)  # also searches the libraries it needs
            function = library.TIFFSetErrorHandler
            function.restype, function.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
            _found.append(function)
        except (OSError, AttributeError):
            _found.append(None)
    return _found[0]


# ---- Single pictures by the engine's decoders ----

_decoders = threading.local()  # per thread: no other thread holds one's lock when a process forks


def decode_record(part: PackedFiles, sample: int, max_pixels: int = _C.MAX_PIXELS) -> npt.NDArray[np.uint8]:
    """Decode a record to RGB: the pixels that the engine's threads crop and resize.

    Returns:
        (height, width, 3) uint8, C-contiguous, owned by the caller.

    Raises:
        DecodeError, LimitError: not a complete, valid picture, or one of more than ``max_pixels``.
        ChecksumError, ShardError: the bytes on disk are not those that were packed, or cannot be read.
    """
    data = np.frombuffer(part.stored(sample), np.uint8)
    record = part.record(sample)
    decoder = thread_decoder(max_pixels)
    if record["codec"] == RAW:
        pixels: npt.NDArray[np.uint8] = decoder.decode_raw(data, int(record["width"]), int(record["height"]))
    else:
        pixels = decoder.decode_rgb(data, shown=part.shown)
    return pixels


def decode_field(
    part: PackedFiles, field: str, sample: int, max_pixels: int = _C.MAX_PIXELS
) -> npt.NDArray[Any]:
    """Decode a picture as its field requires: the pixels that the engine's threads crop.

    Args:
        field: of kind Image or Mask.

    Returns:
        (height, width, channels) of an image, (height, width) of a mask; uint8, or uint16 for 16 bits.

    Raises:
        TypeError: a field of another kind.
        DecodeError, LimitError: not a complete, valid picture, one not convertible to the field's format, or
            one of more than ``max_pixels``.
        ChecksumError, ShardError: the bytes on disk are not those that were packed, or cannot be read.
    """
    from fastload.sample.fields import Image, Mask

    kind = part.schema[field].kind
    if not isinstance(kind, Image | Mask):
        raise TypeError(f"Field {field!r} has no pixels: it is of kind {kind.name}, not image or mask.")
    data, record = np.frombuffer(part.stored(sample, field), np.uint8), part.record(sample, field)
    decoder = thread_decoder(max_pixels)
    pixels: npt.NDArray[Any] = decoder.decode(data, wanted_format(kind), raw_format(record), shown=kind.shown)
    return pixels


def decode_list(
    part: PackedFiles, field: str, sample: int, max_pixels: int = _C.MAX_PIXELS
) -> list[npt.NDArray[np.uint8] | None] | None:
    """Decode a sample's list of pictures.

    Returns:
        (height, width, channels) uint8 of each; None at places without a picture, and in place of a list that
        there is not.

    Raises:
        DecodeError, LimitError: as :func:`decode_field`, and says which picture it is.
        ChecksumError, ShardError: the bytes on disk are not those that were packed, or cannot be read.
    """
    stored, entries = part.stored_list(field, sample), part.list_records(field, sample)
    if stored is None or entries is None:
        return None
    each: Image = part.schema[field].kind.each  # type: ignore[attr-defined]
    wanted = wanted_format(each)
    pixels: list[npt.NDArray[np.uint8] | None] = []
    for place, (data, entry) in enumerate(zip(stored, entries, strict=True)):
        if data is None:
            pixels.append(None)
            continue
        try:
            decoder = thread_decoder(max_pixels)
            given, raw = np.frombuffer(data, np.uint8), raw_format(entry)
            pixels.append(decoder.decode(given, wanted, raw, shown=each.shown))
        except DecodeError as error:
            raise type(error)(f"field {field!r}, picture {place}: {error}") from error
    return pixels


def wanted_format(kind: Image | Mask) -> tuple[int, int, bool]:
    """Return the format to which a field's pictures are decoded: channels, bits, and whether they are ids."""
    from fastload.sample.fields import Mask

    return (1, kind.bits, True) if isinstance(kind, Mask) else (kind.channels, kind.bits, False)


def raw_format(record: np.void) -> tuple[int, int, int, int] | None:
    """Return width, height, channels and bits of a record of raw pixels; None: an encoded picture."""
    if record["codec"] != RAW:
        return None
    bits = 16 if record["flags"] & SIXTEEN_BIT else 8
    return int(record["width"]), int(record["height"]), int(record["channels"]), bits


def decode_sample(dataset: Packed, sample: int) -> npt.NDArray[np.uint8]:
    """Decode a sample of any packed dataset as :func:`decode_record` does.

    Raises:
        SampleError: a bad record, with its shard and key; its cause says why.
        ShardError: a shard is missing or cannot be read.
    """
    part, own = dataset.locate(sample)
    try:
        return decode_record(part, own)
    except (errors.DecodeError, errors.ChecksumError) as error:
        raise bad_sample(dataset, sample, str(error), type(error)) from error


def sample_error(dataset: Packed, sample: int, message: str) -> errors.SampleError:
    """Return the error of one sample: its id, key and shard, then ``message``."""
    part, own = dataset.locate(sample)
    shard, key = part.reader.shard_path(own), part.key(own)
    error = errors.SampleError(f"Sample {sample} (key {key!r} in {shard}): {message}")
    error.sample, error.key, error.shard = sample, key, shard
    return error


def bad_sample(
    dataset: Packed, sample: int, message: str, kind: type[Exception], remedy: str = ""
) -> errors.SampleError:
    """Return the error of an unusable sample.

    Args:
        dataset: the sample's dataset.
        sample: its id.
        message: what is wrong.
        kind: the exception behind it. Checking the set is advised only if the set may be at fault: a check
            finds neither a failing store nor pictures that differ in size.
        remedy: continues with what else can be done about one bad record.
    """
    place = dataset.locate(sample)[0].where
    check = ""
    if issubclass(kind, errors.DecodeError | errors.ChecksumError):
        check = f" Check the set with 'fastload verify {place} --decode'{remedy}."
    elif issubclass(kind, errors.FormatError):
        check = f" Check the set with 'fastload verify {place}'."
    return sample_error(dataset, sample, f"{message.rstrip('.')}.{check}")


def thread_decoder(max_pixels: int = _C.MAX_PIXELS) -> _C.Decoder:
    """Return this thread's decoder for pictures of up to ``max_pixels``."""
    decoders: dict[int, _C.Decoder] | None = getattr(_decoders, "by_limit", None)
    if decoders is None:
        decoders = _decoders.by_limit = {}
    if max_pixels not in decoders:
        fallback = partial(decode_with_pil, max_pixels=max_pixels)
        decoders[max_pixels] = _C.Decoder(max_pixels=max_pixels, fallback=fallback)
    return decoders[max_pixels]
