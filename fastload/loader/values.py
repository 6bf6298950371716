"""Arguments of the DataLoader that carry their settings: ``shuffle=Block(...)``, ``backend=Dali(...)``,
``cache=Cache(...)``."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from fastload.cache.settings import CacheSetting, parse_setting
from fastload.cache.tier import check_decoded
from fastload.loader.numbers import at_least, integer
from fastload.machine.folders import absolute_folder

__all__ = ["Block", "Cache", "Dali", "unfolded"]


@dataclass(frozen=True)
class Block:
    """``DataLoader(shuffle=Block(...))``: whole blocks of consecutive records in random order, mixed within
    windows, for storage that is slow at random reads (``docs/guide/reading.md``).

    Args:
        size: records of a block; None: about 1 MiB of them.
        window: records that are mixed at a time; None: about 256 MiB of them.

    Raises:
        TypeError, ValueError: not an integer of at least 1.
    """

    size: int | None = None
    window: int | None = None

    def __post_init__(self) -> None:
        for name in ("size", "window"):
            if getattr(self, name) is not None:
                integer(f"Block.{name}", getattr(self, name), 1)


@dataclass(frozen=True)
class Dali:
    """``DataLoader(backend=Dali(...))``: NVIDIA DALI decodes (``docs/guide/dali.md``).

    Args:
        decode_share: the share of samples that the native decoder takes, in [0, 1]; "auto": moved while
            running to whichever decoder is idle.
        memory_limit: bytes that DALI may use on a GPU; None: no limit.

    Raises:
        TypeError, ValueError: out of range.
    """

    decode_share: float | Literal["auto"] = 0.0
    memory_limit: int | None = None

    def __post_init__(self) -> None:
        check_share("Dali.decode_share", self.decode_share)
        if self.memory_limit is not None:
            at_least("Dali.memory_limit", self.memory_limit, 1)


@dataclass(frozen=True)
class Cache:
    """``DataLoader(cache=Cache(...))``: the set, or the part that fits, once in the node's memory
    (``docs/guide/cache.md``).

    Args:
        size: bytes, or as text ("64GB", "50%" of the memory that is available); None: all that fits.
        folder: of a memory file system; None: ``$FASTLOAD_CACHE_DIR``, else ``/dev/shm``. With neither size
            nor folder there is a cache where it is of use.
        decoded: pictures instead of records, the longer side scaled to this many pixels at most, or not
            scaled ("full"); crops are cut from those. None: records.
        disk: a folder on a local disk and the size of a tier below memory, "/nvme/fastload:800GB".
        format: what is kept of JPEGs: "jpeg", "coefficients" or "auto".

    Raises:
        TypeError, ValueError: out of range, or not understood.
    """

    size: int | str | None = None
    folder: str | os.PathLike[str] | None = None
    decoded: int | Literal["full"] | None = None
    disk: str | None = None
    format: Literal["jpeg", "coefficients", "auto"] = "jpeg"

    def __post_init__(self) -> None:
        check_decoded(self.decoded)
        self.setting()

    def setting(self) -> CacheSetting:
        """What the caches know."""
        if self.disk is not None:
            below = parse_setting(self.disk).disk if isinstance(self.disk, str) else None
            if below is None:
                raise ValueError(
                    f'Cache.disk must be a folder and a size, "/nvme/fastload:800GB". Found: {self.disk!r}.'
                )
            return replace(replace(self, disk=None).setting(), disk=below)
        root = None if self.folder is None else absolute_folder(self.folder)
        if self.size is None:
            return CacheSetting("auto" if root is None else "on", root=root)
        if isinstance(self.size, str):
            sized = parse_setting(self.size)
            if sized.mode != "on" or sized.root is not None:
                raise ValueError(
                    f'Cache.size must be bytes, a size ("64GB") or a share ("50%"). Found: {self.size!r}.'
                )
            return CacheSetting("on", sized.limit, sized.share, root)
        integer("Cache.size", self.size, 1)
        return CacheSetting("on", int(self.size), root=root)


def check_share(name: str, share: Any) -> None:
    """Refuse what is neither "auto" nor a share."""
    if share == "auto":
        return
    if isinstance(share, str):
        raise ValueError(f"{name} must be 'auto' or a number in [0, 1]. Found: {share!r}.")
    at_least(name, share, 0)
    if share > 1:
        raise ValueError(f"{name} must be <= 1. Found: {share}.")


# Each value's settings by the arguments that say the same, with what these are where nobody gave them.
_SETTINGS: dict[str, tuple[type, dict[str, tuple[str, Any]]]] = {
    "shuffle": (Block, {"shuffle_block": ("size", None), "shuffle_window": ("window", None)}),
    "backend": (Dali, {"decode_share": ("decode_share", 0.0), "gpu_memory_limit": ("memory_limit", None)}),
    "cache": (Cache, {"cache_decoded": ("decoded", None), "cache_format": ("format", "jpeg")}),
}
_SHORT: dict[Any, str] = {Block: "block", Dali: "dali"}


def unfolded(given: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments with the settings of values as arguments of their own, which mean the same.

    Raises:
        ValueError: a setting is given twice.
    """
    found = dict(given)
    for argument, (kind, settings) in _SETTINGS.items():
        value = given[argument]
        if not isinstance(value, kind):
            continue
        for name, (field, default) in settings.items():
            if given[name] != default:
                raise ValueError(
                    f"{argument}={value!r} and {name}={given[name]!r} both set its {field}. Leave {name} out."
                )
            found[name] = getattr(value, field)
        found[argument] = value.setting() if isinstance(value, Cache) else _SHORT[kind]
    return found
