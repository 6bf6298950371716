"""The only importer of the extension ``fastload._C``: gives it this package's exception classes."""

from __future__ import annotations

from fastload import _C, errors

__all__ = ["ERROR_CLASSES", "_C"]

# The order of ErrorKind in csrc/core/base/error.h.
ERROR_CLASSES: list[type[Exception]] = [
    errors.DecodeError,
    errors.LimitError,
    errors.FormatError,
    errors.ShardTruncated,
    errors.ChecksumError,
    errors.ShardError,
    ValueError,
    errors.StateError,
]
_C.set_error_classes(ERROR_CLASSES)
