"""Pillow (or pillow-simd) for the codecs that the core does not decode: GIF, BMP, TIFF, 12-bit JPEG..."""

from __future__ import annotations

import importlib.util
import io
from typing import TYPE_CHECKING

from fastload.errors import DecodeError, LibraryMissing, LimitError
from fastload.extras import words
from fastload.shard.codecs import PILLOW_FORMATS

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["decode_with_pil", "require_pil"]


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
        with Image.open(io.BytesIO(data), formats=PILLOW_FORMATS) as image:
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
        raise DecodeError(f"Pillow: {error}") from error
