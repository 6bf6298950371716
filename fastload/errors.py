"""The exception tree. Everything fastload raises on purpose is a :class:`FastloadError`."""

from __future__ import annotations

import re

# All control characters but tab and line feed, marks that turn the direction of a text, halves of UTF-16
# pairs.
_OBEYED = re.compile("[\0-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def harmless(text: str) -> str:
    """A text for a terminal: what one would obey, or cannot show, is escaped as in a string of Python's.

    Names of classes, files and columns, and what servers say, are a stranger's, and a terminal sets its
    title, its colours, and the user's clipboard as it is told.
    """
    return _OBEYED.sub(_escaped, text)


def _escaped(match: re.Match[str]) -> str:
    number = ord(match[0])
    return f"\\x{number:02x}" if number < 0x100 else f"\\u{number:04x}"


class FastloadError(Exception):
    """Base of all errors of this package. Its text is harmless to a terminal, whatever names are in it."""

    def __str__(self) -> str:
        return harmless(super().__str__())


class FormatError(FastloadError, ValueError):
    """An index, manifest or shard breaks the rules of FORMAT.md."""


class FormatVersionError(FormatError):
    """The dataset needs another version of fastload."""


class ShardError(FastloadError, OSError):
    """A shard or index file could not be read; the message has the path and the system's reason."""


class ShardTruncated(ShardError):
    """A shard is shorter than its index says."""


class LocationError(FastloadError, ValueError):
    """A URL, or what is said about its store, has no meaning; the message has what has one."""


class RemoteError(ShardError):
    """A store does not do what it was asked for; the message has the URL and what the store said."""


class ObjectMissing(RemoteError):
    """A store has no such object."""


class ChecksumError(FastloadError):
    """Bytes on disk differ from the CRC-32C that was written with them."""


class DecodeError(FastloadError, ValueError):
    """A record's bytes are not a whole, valid image."""


class LimitError(DecodeError):
    """An image exceeds a limit (pixels, side, scans, record bytes)."""


class SampleError(FastloadError):
    """A sample could not be produced; the message names shard, key and sample id, the cause says why.

    Attributes:
        sample: sample id.
        key: path in the source folder.
        shard: path of the shard file.
    """

    sample: int = -1
    key: str = ""
    shard: str = ""


class NotDelivered(FastloadError, RuntimeError):
    """A batch did not come: time ran out, or a worker process died. next() asks for the same batch again."""


class StateError(FastloadError, RuntimeError):
    """A call in the wrong state: a closed loader, one used after fork, a state of another dataset."""


class CacheError(FastloadError):
    """The node cache cannot be had as asked for; the message has the numbers, the limit and the option."""


class DeviceError(FastloadError, RuntimeError):
    """The GPU reported an error or was lost while batches were moved to it."""


class BackendError(FastloadError, RuntimeError):
    """Another library's decoder (NVIDIA DALI) fails, and not because of a bad sample."""


class PackError(FastloadError):
    """Packing cannot go on; finished shards are kept."""


class ScriptError(FastloadError, RuntimeError):
    """A script that was to be watched gave nothing to watch; the message says what it did."""


class WorldError(FastloadError, ValueError):
    """Rank and world size contradict each other, or only one of them is set."""


class LibraryMissing(FastloadError, ImportError):
    """What was asked for needs a library that is not installed."""


class RankWarning(UserWarning):
    """Each of several ranks reads a whole dataset, as with torch's DataLoader; the message says of which."""


class SlowPathWarning(UserWarning):
    """A part of a transform runs in Python instead of in the core; the message says which, and why."""
