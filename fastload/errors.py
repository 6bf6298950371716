"""The exception tree. Everything fastload raises on purpose is a :class:`FastloadError`."""

from __future__ import annotations

import re

__all__ = [
    "BackendError",
    "CacheError",
    "ChecksumError",
    "DecodeError",
    "DeviceError",
    "FastloadError",
    "FormatError",
    "FormatVersionError",
    "LibraryMissing",
    "LimitError",
    "LocationError",
    "NotDelivered",
    "ObjectMissing",
    "PackError",
    "RankWarning",
    "RemoteError",
    "SampleError",
    "ScriptError",
    "ShardError",
    "ShardTruncated",
    "SlowPathWarning",
    "StateError",
    "WorldError",
]

# All control characters but tab and line feed, marks that change a text's direction, UTF-16 surrogates.
_OBEYED = re.compile("[\0-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def harmless(text: str) -> str:
    """Escape, as Python does in strings, what a terminal would obey or cannot show.

    Names of classes, files and columns, and servers' answers, come from strangers, and control characters in
    them could set a terminal's title, its colours and the user's clipboard.
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
    """A shard or index file cannot be read; the message has the path and the system's reason."""


class ShardTruncated(ShardError):
    """A shard is shorter than its index says."""


class LocationError(FastloadError, ValueError):
    """A URL, or a setting of its store, is not understood; the message says what would be."""


class RemoteError(ShardError):
    """A store refuses or fails a request; the message has the URL and the store's answer."""


class ObjectMissing(RemoteError):
    """A store has no such object."""


class ChecksumError(FastloadError):
    """Bytes on disk differ from the CRC-32C that was written with them."""


class DecodeError(FastloadError, ValueError):
    """A record's bytes are not a whole, valid image."""


class LimitError(DecodeError):
    """An image exceeds a limit (pixels, side, scans, record bytes)."""


class SampleError(FastloadError):
    """A sample cannot be produced; the message names shard, key and sample id, the cause says why.

    Attributes:
        sample: sample id.
        key: path in the source folder.
        shard: path of the shard file.
    """

    sample: int = -1
    key: str = ""
    shard: str = ""


class NotDelivered(FastloadError, RuntimeError):
    """A batch did not come: it timed out, or a worker process died. next() asks for the same batch again."""


class StateError(FastloadError, RuntimeError):
    """A call in the wrong state: on a closed loader, after a fork, or with another dataset's state."""


class CacheError(FastloadError):
    """The node cache cannot be provided as requested; the message has numbers, limit and option."""


class DeviceError(FastloadError, RuntimeError):
    """The GPU reports an error, or is lost, while batches are moved to it."""


class BackendError(FastloadError, RuntimeError):
    """Another library's decoder (NVIDIA DALI) fails for another reason than a bad sample."""


class PackError(FastloadError):
    """Packing cannot go on; finished shards are kept."""


class ScriptError(FastloadError, RuntimeError):
    """A script that was to be watched gives nothing to watch; the message says what it did."""


class WorldError(FastloadError, ValueError):
    """Rank and world size contradict each other, or only one of them is set."""


class LibraryMissing(FastloadError, ImportError):
    """A feature needs a library that is not installed."""


class RankWarning(UserWarning):
    """Each of several ranks reads a whole dataset, as with torch's DataLoader; the message says which."""


class SlowPathWarning(UserWarning):
    """A part of a transform runs in Python instead of in the core; the message says which, and why."""
