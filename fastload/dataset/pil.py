"""Pillow (or pillow-simd) for the codecs that the core does not decode: GIF, BMP, TIFF, 12-bit JPEG..."""

from __future__ import annotations

import importlib.util
import io
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from fastload.errors import DecodeError, LibraryMissing, LimitError
from fastload.extras import words
from fastload.machine.locks import ForkSafeLock
from fastload.shard.codecs import PILLOW_FORMATS

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["decode_with_pil", "pillow_words", "require_pil"]

_ADDRESS = re.compile(r" ?<[^<>]* object at 0x[0-9a-fA-F]+>")
_TIFF = (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")


def require_pil(who: str) -> None:
    """Check that Pillow is there, without importing it.

    Raises:
        LibraryMissing: it is not; ``who`` needs it.
    """
    if importlib.util.find_spec("PIL") is None:
        missing = words("PIL", f"{who} gets PIL pictures, as in torchvision's chain, which")
        raise LibraryMissing(
            f"{missing}. For tensors put fastload.transforms.ToDtype('uint8') before it.", name="PIL"
        )


def decode_with_pil(data: bytes, max_pixels: int | None = None) -> NDArray[np.uint8]:
    """Decode one picture to RGB, the first frame of an animated one; EXIF orientation is ignored.

    Args:
        data: the encoded picture.
        max_pixels: largest width times height; default: Pillow's ``Image.MAX_IMAGE_PIXELS``, which Pillow
            itself only warns about.

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
            return np.asarray(image.convert("RGB"))
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise LimitError(str(error)) from error
    except LimitError:
        raise
    except UnidentifiedImageError as error:  # whose words are an address in memory
        raise DecodeError("Pillow: no picture that it can open, or one damaged at its beginning") from error
    except Exception as error:  # Pillow raises SyntaxError, struct.error, OSError and others on bad files
        raise DecodeError(f"Pillow: {pillow_words(error)}") from error


def pillow_words(error: BaseException) -> str:
    """What an error of Pillow's says, without the address of the bytes in memory: the same in every run."""
    return _ADDRESS.sub("", str(error)) or type(error).__name__


_silence = ForkSafeLock()
_found: list[Any] = []  # the function that sets libtiff's handler, once it was looked for
_silenced: list[Any] = []  # how libtiff's words were handled before, once for each thread inside


@contextmanager
def _silent_libtiff(data: bytes) -> Iterator[None]:
    """While a TIFF is decoded here libtiff writes nothing to standard error: its words are about a file that
    it does not know, and the error says the same. The handler is the library's, so it is put back when nobody
    is inside."""
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
    """``TIFFSetErrorHandler`` of the library that Pillow is linked with; None: it is not to be found."""
    if not _found:
        import ctypes

        from PIL import _imaging

        try:
            library = ctypes.CDLL(_imaging.__file__)  # and what that needs
            function = library.TIFFSetErrorHandler
            function.restype, function.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
            _found.append(function)
        except (OSError, AttributeError):
            _found.append(None)
    return _found[0]
