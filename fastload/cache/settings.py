"""What ``cache=`` may say."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fastload.machine.sizes import parse_size

__all__ = ["CacheSetting", "parse_setting"]

_LEGAL = (
    'Legal: "auto", "off", None, a size ("64GB", "1.5TiB"), a share of the available memory ("50%"), or the '
    'folder of a memory file system ("/dev/shm")'
)
_SHARE = re.compile(r"\s*(\d+(?:\.\d*)?|\.\d+)\s*%\s*")
_MOST = 2**63  # bytes


@dataclass(frozen=True)
class CacheSetting:
    """How much of a set is kept in the node's memory, and where.

    Args:
        mode: "auto": a cache where it is of use; "on": always; "off": never.
        limit: bytes that it takes at most; None: no limit but that of the memory.
        share: of the memory that is available, in (0, 1]; instead of ``limit``.
        root: the folder of a memory file system; None: ``$FASTLOAD_CACHE_DIR``, else ``/dev/shm``.

    Raises:
        ValueError: out of range.
    """

    mode: str = "auto"
    limit: int | None = None
    share: float | None = None
    root: Path | None = None
    text: str = field(default="", compare=False)  # what the user wrote, for messages

    def __post_init__(self) -> None:
        if self.mode not in ("auto", "on", "off"):
            raise ValueError(f'mode must be "auto", "on" or "off". Found: {self.mode!r}.')
        if self.limit is not None and not 0 < self.limit < _MOST:
            raise ValueError(f"limit must be in [1, 2**63) bytes. Found: {self.limit}.")
        if self.share is not None and (not 0 < self.share <= 1 or self.limit is not None):
            raise ValueError(
                f"share must be in (0, 1], without a limit. Found: share={self.share}, limit={self.limit}."
            )

    @property
    def folder(self) -> Path:
        """The memory file system's folder in which the user's private one lies."""
        return self.root or Path(os.environ.get("FASTLOAD_CACHE_DIR") or "/dev/shm")

    def __str__(self) -> str:
        """As the user wrote it, or may have: ``cache='64GB'``."""
        if self.text:
            return self.text
        if self.limit is not None:
            return f"cache='{self.limit}B'"
        if self.share is not None:
            return f"cache='{self.share * 100:g}%'"
        return f"cache='{self.mode if self.root is None else self.root}'"


def parse_setting(value: Any) -> CacheSetting:
    """``DataLoader``'s argument ``cache``, understood.

    Raises:
        ValueError, TypeError: it is not one of those that the message lists.
    """
    if isinstance(value, CacheSetting):
        return value
    if value is None:
        return CacheSetting("off")
    if isinstance(value, os.PathLike):
        return CacheSetting("on", root=Path(value).expanduser().absolute())
    if not isinstance(value, str):
        raise TypeError(f"cache must be text, a path or None. {_LEGAL}. Found: {value!r}.")
    if value in ("auto", "off"):
        return CacheSetting(value)
    if "/" in value:
        return CacheSetting("on", root=Path(value).expanduser().absolute())
    try:
        share = _SHARE.fullmatch(value)
        if share is not None:
            return CacheSetting("on", share=float(share[1]) / 100, text=f"cache={value!r}")
        return CacheSetting("on", limit=parse_size(value), text=f"cache={value!r}")
    except ValueError as error:
        raise ValueError(f"cache={value!r} is not understood: {error} {_LEGAL}.") from None
