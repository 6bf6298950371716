"""The only importer of the extension ``fastload._C``: gives it this package's exception classes."""

from __future__ import annotations

from fastload import _C, errors

__all__ = ["_C"]

# The order of ErrorKind in csrc/core/base/error.h.
_C.set_error_classes(
    [
        errors.DecodeError,
        errors.LimitError,
        errors.FormatError,
        errors.ShardTruncated,
        errors.ChecksumError,
        errors.ShardError,
        ValueError,
        errors.StateError,
    ]
)
