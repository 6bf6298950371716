"""The codecs of pictures, from their only table (csrc/core/decode/codecs/); flags of entries."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastload._native import _C


class Codec(NamedTuple):
    """A codec: its number in the index, its name in manifest and statistics, and its other names."""

    number: int
    name: str
    title: str  # as people write it
    pillow: str  # Pillow's name; "" if it has none
    extension: str  # of files, ".jpg"; "" if there are none


#: All codecs; each one's position is its number.
CODECS = tuple(
    Codec(number, name, title, pillow, extension)
    for name, (number, title, pillow, extension) in _C.CODECS.items()
)
JPEG: int = _C.CODECS["jpeg"][0]
RAW: int = _C.CODECS["raw"][0]
COEFFICIENTS: int = _C.CODECS["coefficients"][0]
PROGRESSIVE, SIXTEEN_BIT, NEEDS_FALLBACK = _C.FLAG_PROGRESSIVE, _C.FLAG_SIXTEEN_BIT, _C.FLAG_NEEDS_FALLBACK
#: Of the one entry of a sample that has no list of pictures at all, not even an empty one.
NO_LIST_FLAG = 64
#: What Pillow may read: its other readers (EPS, PSD, FITS...) had most of its security bugs.
PILLOW_FORMATS = tuple(codec.pillow for codec in CODECS if codec.pillow)


def suffix_of(codec: int) -> str:
    """Return the suffix of a codec's files, ".jpg"; "" if there are none. A coefficient record is a JPEG."""
    return CODECS[JPEG if codec == COEFFICIENTS else codec].extension


def file_of(codec: int, record: bytes) -> bytes:
    """Return the file that a record was made from: for a coefficient record the identical JPEG, for any
    other the record itself.

    Raises:
        DecodeError: a damaged coefficient record.
    """
    return _C.coefficients_to_jpeg(np.frombuffer(record, np.uint8)) if codec == COEFFICIENTS else record
