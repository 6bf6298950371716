"""The values of ``cache=``, parsed."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from fastload.machine.paths import absolute_folder
from fastload.machine.sizes import parse_size

_LEGAL = (
    'Legal: "auto", "off", None, a size ("64GB", "1.5TiB"), a share of the available memory ("50%"), or the '
    'folder of a memory file system ("/dev/shm"); a folder on a local disk with the size of a tier below '
    'memory ("/nvme/fastload:800GB"), or a list of one of each: ["64GB", "/nvme/fastload:800GB"]'
)
_SHARE = re.compile(r"\s*(\d+(?:\.\d*)?|\.\d+)\s*%\s*")
_MOST = 2**63  # bytes


@dataclass(frozen=True)
class DiskSetting:
    """The tier below the node's memory.

    Args:
        root: a folder on a local disk.
        limit: maximum bytes there.
    """

    root: Path
    limit: int

    def __post_init__(self) -> None:
        if not 0 < self.limit < _MOST:
            raise ValueError(f"limit must be in [1, 2**63) bytes. Found: {self.limit}.")


@dataclass(frozen=True)
class CacheSetting:
    """How much of a set is kept in the node's memory, and where.

    Args:
        mode: "auto": a cache if it is useful; "on": always; "off": never.
        limit: maximum bytes; None: limited by the memory only.
        share: of the available memory, in (0, 1]; instead of ``limit``.
        root: the folder of a memory file system; None: ``$FASTLOAD_CACHE_DIR``, else ``/dev/shm``.
        disk: the tier below; None: none.
        decoded: keep pictures with a longer side of at most this many pixels, or "full", not records.
        format: what is kept of JPEGs: "jpeg", "coefficients" or "auto".

    Raises:
        ValueError: out of range.
    """

    mode: str = "auto"
    limit: int | None = None
    share: float | None = None
    root: Path | None = None
    disk: DiskSetting | None = None
    decoded: int | str | None = None
    format: str = "jpeg"
    text: str = field(default="", compare=False)  # as the user wrote it, for messages

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
        """The memory file system's folder that contains the user's private one."""
        return self.root or Path(os.environ.get("FASTLOAD_CACHE_DIR") or "/dev/shm")

    def __str__(self) -> str:
        """Return the setting as the user wrote it, or could have: ``cache='64GB'``."""
        if self.text:
            return self.text
        if self.limit is not None:
            return f"cache='{self.limit}B'"
        if self.share is not None:
            return f"cache='{self.share * 100:g}%'"
        return f"cache='{self.mode if self.root is None else self.root}'"


def parse_setting(value: Any) -> CacheSetting:
    """Parse ``DataLoader``'s argument ``cache``.

    Raises:
        ValueError, TypeError: it is not one of the values that the message lists.
    """
    if isinstance(value, CacheSetting):
        return value
    if value is None:
        return CacheSetting("off")
    if isinstance(value, os.PathLike):
        return CacheSetting("on", root=absolute_folder(value))
    if isinstance(value, (list, tuple)):
        return _tiers(value)
    if not isinstance(value, str):
        raise TypeError(f"cache must be text, a path, a list of them or None. {_LEGAL}. Found: {value!r}.")
    if value in ("auto", "off"):
        return CacheSetting(value)
    disk = _disk(value)
    if disk is not None:
        return CacheSetting(disk=disk, text=f"cache={value!r}")
    if "/" in value:
        return CacheSetting("on", root=absolute_folder(value))
    try:
        share = _SHARE.fullmatch(value)
        if share is not None:
            return CacheSetting("on", share=float(share[1]) / 100, text=f"cache={value!r}")
        return CacheSetting("on", limit=parse_size(value), text=f"cache={value!r}")
    except ValueError as error:
        raise ValueError(f"cache={value!r} is not understood: {error} {_LEGAL}.") from None


def _disk(value: str) -> DiskSetting | None:
    """Parse ``"/nvme/fastload:800GB"``; None: something else."""
    folder, colon, size = value.rpartition(":")
    if not colon or "/" not in folder or "/" in size:
        return None
    try:
        return DiskSetting(absolute_folder(folder), parse_size(size))
    except ValueError:
        return None  # a folder whose name has a colon


def _tiers(values: Sequence[Any]) -> CacheSetting:
    """Parse a tier in memory and one on disk below it."""
    settings = [parse_setting(value) for value in values]
    if len(settings) == 2 and settings[0].disk is None and settings[1].disk is not None:
        return replace(settings[0], disk=settings[1].disk, text=f"cache={list(values)!r}")
    if len(settings) == 1 and settings[0].disk is not None:
        return settings[0]
    raise ValueError(
        f"A list of caches is one in memory, or none, and one on disk below it. {_LEGAL}. "
        f"Found: {list(values)!r}."
    )
