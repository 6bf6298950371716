"""The only importer of the extension ``fastload._C``: gives it this package's exception classes."""

from __future__ import annotations

from fastload.errors import (
    ChecksumError,
    DecodeError,
    FormatError,
    LimitError,
    ObjectMissing,
    RemoteError,
    ShardError,
    ShardTruncated,
    StateError,
)

try:
    from fastload import _C
except ImportError as error:  # a library that it was linked with is gone, or it is a damaged file
    raise ImportError(
        f"fastload's extension cannot be loaded: {error}. It was compiled with other system libraries than "
        "this machine has (libjpeg, libpng, libwebp): install those, or install fastload again here."
    ) from error

__all__ = ["ERROR_CLASSES", "_C"]

# The order of ErrorKind in csrc/core/base/error.h.
ERROR_CLASSES: list[type[Exception]] = [
    DecodeError,
    LimitError,
    FormatError,
    ShardTruncated,
    ChecksumError,
    ShardError,
    ValueError,
    StateError,
    MemoryError,
    RemoteError,
    ObjectMissing,
]
_C.set_error_classes(ERROR_CLASSES)
