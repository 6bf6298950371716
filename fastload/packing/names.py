"""Record keys: a file's path below the source folder, as UTF-8.

A path that is not UTF-8 (POSIX names are bytes) is percent-encoded, and its record carries the flag
:data:`ESCAPED`, so that unpacking gives the very same name back.
"""

from __future__ import annotations

import re

__all__ = ["ESCAPED", "decode_key", "encode_key", "outside_key", "printable"]

ESCAPED = 0x80  # in the index's flags: the key is percent-encoded
_RESERVED = re.compile(rb"[^!-$&-~ ]")  # everything but printable ASCII, and "%"


def encode_key(path: bytes) -> tuple[bytes, bool]:
    """The key of a path, and whether it had to be percent-encoded."""
    try:
        path.decode("utf-8")
        return path, False
    except UnicodeDecodeError:
        return _RESERVED.sub(lambda match: b"%%%02X" % match[0][0], path), True


def decode_key(key: bytes, escaped: bool) -> bytes:
    """The path that :func:`encode_key` was given."""
    if not escaped:
        return key
    return re.sub(rb"%([0-9A-Fa-f]{2})", lambda match: bytes([int(match[1], 16)]), key)


def outside_key(path: bytes) -> bytes:
    """A key for a file that lies outside the table's folder: its absolute path without the root."""
    return path.lstrip(b"/")


def printable(path: bytes) -> str:
    """For messages."""
    return path.decode("utf-8", "backslashreplace")
