"""The DataLoader's arguments, checked before anything is opened: each by itself, and against each other.

What depends on the dataset is checked when that is known, in :mod:`fastload.loader.fitting`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch

from fastload.backends.faults import ON_ERROR
from fastload.cache.settings import CacheSetting, parse_setting
from fastload.cache.tiers import check_decoded
from fastload.machine.paths import absolute_folder
from fastload.ranks.world import check_given
from fastload.transfer.cuda import check_device
from fastload.transforms.compiler import compile_plan

# ---- Checks of numbers ------------------------------------------------------------------------------


def integer(name: str, value: Any, least: int | None = None) -> None:
    """Raise unless ``value`` is an integer of at least ``least``."""
    if isinstance(value, bool) or not hasattr(type(value), "__index__"):
        raise TypeError(f"{name} must be an integer. Found: {value!r}.")
    if least is not None:
        at_least(name, int(value), least)


def at_least(name: str, value: Any, least: int) -> None:
    """Raise unless ``value`` is a number of at least ``least``."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"{name} must be a number. Found: {value!r}.")
    if value < least:
        raise ValueError(f"{name} must be >= {least}. Found: {value}.")


# ---- Arguments that carry settings: Block, Dali, Cache ----------------------------------------------


@dataclass(frozen=True)
class Block:
    """``DataLoader(shuffle=Block(...))``: whole blocks of consecutive records in random order, mixed within
    windows, for storage that is slow at random reads (``docs/guide/reading.md``).

    Args:
        size: records per block; None: about 1 MiB of them.
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
        decode_share: share of the samples that the native decoder takes, in [0, 1]; "auto": adjusted while
            running, in favour of whichever decoder is idle.
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
    """``DataLoader(cache=Cache(...))``: the set, or the part that fits, kept once in the node's memory
    (``docs/guide/cache.md``).

    Args:
        size: bytes, or a text ("64GB", "50%" of the available memory); None: all that fits.
        folder: in a memory file system; None: ``$FASTLOAD_CACHE_DIR``, else ``/dev/shm``. With neither size
            nor folder there is a cache if it is useful.
        decoded: keep pictures, from which crops are cut, with their longer side scaled to at most this many
            pixels, or unscaled ("full"); None: keep records.
        disk: a folder on a local disk and the size of a tier below memory, "/nvme/fastload:800GB".
        format: what is kept of JPEGs: "jpeg", "coefficients" or "auto".

    Raises:
        TypeError, ValueError: a setting is out of range or not understood.
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
        """Return the setting as the caches take it."""
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
    """Raise unless ``share`` is "auto" or a number in [0, 1]."""
    if share == "auto":
        return
    if isinstance(share, str):
        raise ValueError(f"{name} must be 'auto' or a number in [0, 1]. Found: {share!r}.")
    at_least(name, share, 0)
    if share > 1:
        raise ValueError(f"{name} must be <= 1. Found: {share}.")


# The arguments that say the same as each value's settings, with their defaults.
_SETTINGS: dict[str, tuple[type, dict[str, tuple[str, Any]]]] = {
    "shuffle": (Block, {"shuffle_block": ("size", None), "shuffle_window": ("window", None)}),
    "backend": (Dali, {"decode_share": ("decode_share", 0.0), "gpu_memory_limit": ("memory_limit", None)}),
    "cache": (Cache, {"cache_decoded": ("decoded", None), "cache_format": ("format", "jpeg")}),
}
_SHORT: dict[Any, str] = {Block: "block", Dali: "dali"}


def unfolded(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments with each value's settings as the separate arguments that mean the same.

    Raises:
        ValueError: a setting is given twice.
    """
    arguments = dict(given)
    for argument, (kind, settings) in _SETTINGS.items():
        value = given[argument]
        if not isinstance(value, kind):
            continue
        for name, (field, default) in settings.items():
            if given[name] != default:
                raise ValueError(
                    f"{argument}={value!r} and {name}={given[name]!r} both set its {field}. Leave {name} out."
                )
            arguments[name] = getattr(value, field)
        arguments[argument] = value.setting() if isinstance(value, Cache) else _SHORT[kind]
    return arguments


# ---- Checks of the arguments ------------------------------------------------------------------------

_MODES = {
    "on_error": ON_ERROR,
    "padding": ("mark", "repeat", "end"),
    "handshake": ("warn", "raise", "off"),
    "device_memory": ("fresh", "reuse", "poison"),  # fastload.transfer.convert says what they mean
    "backend": ("native", "dali"),
    "masks": ("packed", "dense"),
    "cache_format": ("jpeg", "coefficients", "auto"),
}
_COLLATES = ("list", "detr", "yolo", "stack", "pad")  # the words for ``collate=``
_FLAGS = ("drop_last", "drop_padding", "pin_memory", "persistent_workers", "autotune", "in_order")
_WAYS = ("__fspath__", "__getitem__", "__getitems__", "__iter__")  # of getting at a dataset's samples


def resolve(given: Mapping[str, Any]) -> dict[str, Any]:
    """Check the arguments, and return them with each value's settings as separate arguments.

    Args:
        given: all of the DataLoader's arguments by name.

    Raises:
        TypeError: arguments of the wrong type.
        ValueError: values out of range, or arguments that exclude each other.
        WorldError: rank and world size contradict each other.
    """
    arguments = _sized(unfolded(given))
    _check_types(arguments)
    _check_batching(arguments)
    _check_numbers(arguments)
    _check_modes(arguments)
    check_given(arguments["rank"], arguments["world_size"], arguments["process_group"])
    _check_backend(arguments)
    check_device(arguments["device"])
    _check_transforms(arguments)
    _check_fields(arguments)
    return arguments


def _check_types(given: Mapping[str, Any]) -> None:
    if given["shuffle"] not in (None, True, False, "block"):
        raise ValueError(f"shuffle must be True, False or 'block'. Found: {given['shuffle']!r}.")
    for name in _FLAGS:
        if given[name] not in (True, False):
            raise TypeError(f"{name} must be True or False. Found: {given[name]!r}.")
    for name in ("sampler", "batch_sampler"):
        value = given[name]
        if value is not None and not any(hasattr(value, way) for way in ("__iter__", "__getitem__", "order")):
            raise TypeError(
                f"{name} must be an iterable of {'lists of ' if name != 'sampler' else ''}sample ids. "
                f"Found: {value!r}."
            )
    for name in ("collate_fn", "worker_init_fn"):
        if given[name] is not None and not callable(given[name]):
            raise TypeError(f"{name} must be callable. Found: {given[name]!r}.")
    if given["generator"] is not None and not isinstance(given["generator"], torch.Generator):
        raise TypeError(f"generator must be a torch.Generator. Found: {given['generator']!r}.")
    dataset = given["dataset"]
    if not isinstance(dataset, str) and not any(hasattr(dataset, way) for way in _WAYS):
        raise TypeError(
            "dataset must be a folder made by 'fastload pack', a fastload.PackedDataset or a torch Dataset. "
            f"Found: {dataset!r}."
        )


def _check_batching(given: Mapping[str, Any]) -> None:
    if given["batch_sampler"] is not None and (
        given["batch_size"] not in (None, 1)
        or given["shuffle"]
        or given["sampler"] is not None
        or given["drop_last"]
    ):
        raise ValueError("batch_sampler excludes batch_size, shuffle, sampler and drop_last.")
    if given["batch_sampler"] is not None and given["drop_padding"]:
        raise ValueError(
            "batch_sampler excludes drop_padding: whole batches are divided among the ranks, and where their "
            "number does not divide, the first ones come again. Let it draw as many as the ranks can share."
        )
    if given["batch_size"] is None and given["batch_sampler"] is None:
        for name in ("drop_last", "batch_transform"):
            if given[name]:
                raise ValueError(
                    f"batch_size=None option disables auto-batching and is mutually exclusive with {name}."
                )
    if given["sampler"] is not None and given["shuffle"]:
        raise ValueError("shuffle=True and a sampler exclude each other: the sampler gives the order.")


def _check_numbers(given: Mapping[str, Any]) -> None:
    positive = ("batch_size", "prefetch_factor", "text_threads")
    for name, least in (*((name, 1) for name in positive), ("num_workers", 0)):
        if given[name] is not None:
            integer(name, given[name], least)
    for name in ("shuffle_block", "shuffle_window"):
        if given[name] is not None:
            if given["shuffle"] != "block":
                raise ValueError(f"{name} is for shuffle='block'. Found: shuffle={given['shuffle']!r}.")
            integer(name, given[name], 1)
    at_least("timeout", given["timeout"], 0)
    integer("max_pixels", given["max_pixels"], 1)
    if given["seed"] is not None:
        integer("seed", given["seed"])
        if not 0 <= given["seed"] < 2**64:
            raise ValueError(f"seed must be in [0, 2**64). Found: {given['seed']}.")


def _check_modes(given: Mapping[str, Any]) -> None:
    for name, modes in _MODES.items():
        if given[name] not in modes and not (name == "padding" and given[name] is None):
            raise ValueError(f"{name} must be one of {', '.join(modes)}. Found: {given[name]!r}.")
    parse_setting(given["cache"])
    check_decoded(given["cache_decoded"])
    _check_format(given)
    if given["device_memory"] != "fresh" and given["batch_transform"] is not None:
        raise ValueError(
            f"device_memory={given['device_memory']!r} and batch_transform exclude each other: transforms of "
            f"batches allocate their own memory."
        )


def _check_format(given: Mapping[str, Any]) -> None:
    wanted = given["cache_format"]
    if wanted == "jpeg":
        return
    if given["cache_decoded"] is not None:
        raise ValueError(
            f"cache_format={wanted!r} and cache_decoded={given['cache_decoded']!r} exclude each other: the "
            "cache keeps records, or decoded pictures. Leave one out."
        )
    if wanted == "coefficients" and parse_setting(given["cache"]).mode == "off":
        raise ValueError(
            'cache_format="coefficients" is about what the cache keeps, and cache="off" keeps nothing. Give '
            'the cache a size, or leave cache_format out; cache_format="auto" goes with any cache.'
        )
    if wanted == "coefficients" and given["backend"] == "dali":
        raise ValueError("cache_format=\"coefficients\" is for backend='native': DALI decodes JPEGs.")


def _check_backend(given: Mapping[str, Any]) -> None:
    share, limit = given["decode_share"], given["gpu_memory_limit"]
    check_share("decode_share", share)
    if limit is not None:
        at_least("gpu_memory_limit", limit, 1)
    if given["backend"] == "native" and (share != 0 or limit is not None):
        raise ValueError("decode_share and gpu_memory_limit are for backend='dali'.")
    if given["backend"] == "dali" and given["cache_decoded"] is not None:
        raise ValueError("cache_decoded is for backend='native': DALI decodes records as they are.")
    if given["backend"] == "dali" and given["autotune"]:
        raise ValueError(
            "autotune moves the threads of backend='native'; DALI's number is fixed. With backend='dali' use "
            "decode_share='auto'."
        )


def _check_fields(given: Mapping[str, Any]) -> None:
    """Check the types only; whether the dataset has these fields is checked once it is known."""
    if given["sizes"] != "stack":
        from fastload.sample.planned import Sizes

        Sizes.of(given["sizes"])
    if given["objects"] is not None:
        _check_objects(given["objects"])
    if given["text"] is not None:
        _check_text(given)
    fields = given["fields"]
    if fields is None:
        return
    if isinstance(fields, (str, bytes)) or not all(isinstance(name, str) for name in fields):
        raise TypeError(f"fields must be a list of names. Found: {fields!r}.")
    if not fields or len(set(fields)) < len(fields):
        raise ValueError(f"fields must name some fields, each once. Found: {list(fields)}.")


def _check_text(given: Mapping[str, Any]) -> None:
    from fastload.sample.schema import Captions

    text = given["text"]
    known = isinstance(text, Mapping) and all(
        isinstance(name, str) and (isinstance(value, Captions) or callable(value))
        for name, value in text.items()
    )
    if not known:
        raise TypeError(
            f"text must be a dict of callables, or of fastload.Captions, by field. Found: {text!r}."
        )
    collate = given["collate"]
    keeps = callable(collate) or getattr(collate, "keeps_fields", False)
    if collate not in (None, "stack", "pad") and not keeps:
        raise ValueError(
            f"collate={collate!r} makes targets of objects, which have no texts. Found: text for "
            f"{', '.join(text)}. Leave one of them out, or pass a callable as collate."
        )
    if given["batch_size"] is None and given["batch_sampler"] is None:
        raise ValueError("text takes the texts of batches, and batch_size=None gives samples one by one.")


def _check_objects(objects: Any) -> None:
    legal = 'objects must be a dict of lists of names, {"boxes": ["labels"]}.'
    if not isinstance(objects, Mapping):
        raise TypeError(f"{legal} Found: {objects!r}.")
    for leader, names in objects.items():
        listed = isinstance(names, (list, tuple)) and all(isinstance(name, str) for name in names)
        if not isinstance(leader, str) or not listed:
            raise TypeError(f"{legal} Found: {objects!r}.")
    followers = [name for names in objects.values() for name in names]
    for name in followers:
        if name in objects or followers.count(name) > 1:
            raise ValueError(
                f"objects: {name!r} follows two others, or one that follows. Found: {objects!r}."
            )


def _is_collate(given: Any) -> bool:
    """Whether it is a callable, or a spec such as Detection."""
    return callable(given) or hasattr(given, "planned")


def _sized(given: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments, with ``sizes`` set if ``collate`` is a word for it.

    Raises:
        TypeError, ValueError: ``collate`` is not known, or excludes another argument.
    """
    collate, sizes = given["collate"], given["sizes"]
    if collate is None:
        return given
    is_known = collate in _COLLATES if isinstance(collate, str) else _is_collate(collate)
    if not is_known:
        error = ValueError if isinstance(collate, str) else TypeError
        raise error(f"collate must be one of {', '.join(_COLLATES)}, or a callable. Found: {collate!r}.")
    if given["collate_fn"] is not None:
        raise ValueError("collate takes whole batches, collate_fn lists of samples: they exclude each other.")
    if given["batch_size"] is None and given["batch_sampler"] is None:
        raise ValueError("batch_size=None gives samples one by one, of which collate makes no batch.")
    if collate not in ("stack", "pad"):
        return given
    if sizes != "stack" and not (collate == "pad" and isinstance(sizes, (tuple, list))) and sizes != collate:
        raise ValueError(f"collate={collate!r} and sizes={sizes!r} contradict each other. Leave one out.")
    return given if sizes != "stack" else {**given, "sizes": collate}


def _check_transforms(given: Mapping[str, Any]) -> None:
    """Check the order of the transforms, whatever the dataset; they are compiled again once it is known."""
    if given["transform"] is not None:
        compile_plan(given["transform"])
    if given["batch_transform"] is not None:
        from fastload.transfer.augment import check_parts, parts_of

        check_parts(parts_of(given["batch_transform"]), None)
