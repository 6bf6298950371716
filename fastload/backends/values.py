"""The values of a DataLoader's parameters: what belongs together, checked when it is made.

Each is frozen, compares and pickles by its parts, and prints as it can be typed. ``of`` makes one from the
short spelling of the usual case, such as ``on_error="skip"``.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from numbers import Real
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol, TypeAlias

import torch

from fastload.backends.faults import ON_ERROR
from fastload.cache.settings import CacheSetting, parse_setting
from fastload.cache.tiers import check_decoded
from fastload.machine.paths import absolute_folder
from fastload.ranks.world import check_given
from fastload.transfer.cuda import check_device

if TYPE_CHECKING:
    from fastload.sample.windows import Windows

#: Fields with a row for each row of another field.
Groups: TypeAlias = "Mapping[str, Sequence[str]] | None"

# ---- Checks -----------------------------------------------------------------------------------------


def integer(name: str, value: Any, least: int | None = None) -> None:
    """Raise unless ``value`` is an integer of at least ``least``."""
    if isinstance(value, bool) or not hasattr(type(value), "__index__"):
        raise TypeError(f"{name} must be an integer. Found: {value!r}.")
    if least is not None:
        at_least(name, int(value), least)


def at_least(name: str, value: Any, least: int) -> None:
    """Raise unless ``value`` is a number, one of numpy's as well, of at least ``least``."""
    if isinstance(value, bool) or not isinstance(value, Real):
        raise TypeError(f"{name} must be a number. Found: {value!r}.")
    if not float(value) >= least:  # nan is not
        raise ValueError(f"{name} must be >= {least}. Found: {value}.")


def one_of(name: str, value: Any, legal: Sequence[Any]) -> None:
    """Raise unless ``value`` is one of the legal words."""
    if value not in legal:
        raise ValueError(f"{name} must be one of {', '.join(map(str, legal))}. Found: {value!r}.")


class Printed:
    """``repr`` with the parts that are not the defaults: as short as it can be typed."""

    def __repr__(self) -> str:
        parts = [
            f"{part.name}={getattr(self, part.name)!r}"
            for part in fields(self)  # type: ignore[arg-type]
            if getattr(self, part.name) is not part.default and getattr(self, part.name) != part.default
        ]
        return f"{type(self).__name__}({', '.join(parts)})"


# ---- Order and ranks --------------------------------------------------------------------------------


@dataclass(frozen=True, repr=False)
class Block(Printed):
    """``DataLoader(shuffle=Block(...))``: whole blocks of consecutive records in random order, mixed within
    windows, for storage that is slow at random reads (``docs/guide/reading.md``). ``shuffle="block"`` is
    short for ``Block()``.

    Args:
        size: records per block; None: about 1 MiB of them.
        window: records that are mixed at a time; None: about 256 MiB of them, for each of ``nodes``.
        nodes: how many nodes cache a part of the set each. Every block then is of one node in all epochs,
            and the ranks of that node read it. It stays the same for the whole job: one that goes on with
            fewer or more nodes goes on with this number (``docs/start/cluster.md``).

    Raises:
        TypeError, ValueError: not an integer of at least 1.
    """

    size: int | None = None
    window: int | None = None
    nodes: int = 1

    def __post_init__(self) -> None:
        for name in ("size", "window", "nodes"):
            if getattr(self, name) is not None or name == "nodes":
                integer(f"Block.{name}", getattr(self, name), 1)


@dataclass(frozen=True, repr=False)
class Ranks(Printed):
    """``DataLoader(ranks=Ranks(...))``: which of the processes that train together this one is. A process
    group or a ``DeviceMesh`` alone is short for ``Ranks(group=...)``.

    Args:
        rank, world_size: this process's number, and how many there are. None: those of ``group``, of the
            default process group, of torchrun's or SLURM's variables; else one process. They are looked up
            when the first iteration begins.
        group: a process group or a ``DeviceMesh`` of torch.distributed, for tensor or pipeline parallelism,
            where only some of the ranks have different data.
        handshake: before the first batch the ranks of a process group compare dataset, options and version,
            and all raise WorldError if they differ. If some are missing after 60 s (or the group's timeout,
            if that is shorter): "warn" and go on, or "raise" WorldError. "off": compare nothing.

    Raises:
        TypeError, ValueError: of the wrong type, or not a legal word.
        WorldError: only one of rank and world size, or both and a group, or a rank that is not below the
            world size.
    """

    rank: int | None = None
    world_size: int | None = None
    group: Any = None
    handshake: Literal["warn", "raise", "off"] = "warn"

    def __post_init__(self) -> None:
        for name in ("rank", "world_size"):
            value = getattr(self, name)
            if value is not None:
                integer(f"Ranks.{name}", value)
                object.__setattr__(self, name, int(value))
        check_given(self.rank, self.world_size, self.group)
        one_of("Ranks.handshake", self.handshake, ("warn", "raise", "off"))

    @classmethod
    def of(cls, value: Any) -> Ranks:
        """Return the value that ``ranks=`` means."""
        if isinstance(value, cls):
            return value
        return cls(group=value)

    @property
    def are_given(self) -> bool:
        """Whether a rank or a group is given: then the ranks divide the samples."""
        return self.rank is not None or self.group is not None


# ---- Bad samples ------------------------------------------------------------------------------------


@dataclass(frozen=True, repr=False)
class OnError(Printed):
    """``DataLoader(on_error=OnError(...))``: what happens to bad samples. A word is short for
    ``OnError(word)``.

    Args:
        action: "raise" SampleError; "skip": deliver a black image with label -100, which torch's
            cross_entropy ignores; "replace": deliver another sample of the epoch.
        log: path of a JSONL file that gets a line for each bad sample; None: none.
        max_pixels: larger pictures are bad samples.

    Raises:
        TypeError, ValueError: of the wrong type, or out of range.
    """

    action: Literal["raise", "skip", "replace"] = "raise"
    log: str | os.PathLike[str] | None = None
    max_pixels: int = 89_478_485

    def __post_init__(self) -> None:
        one_of("on_error", self.action, ON_ERROR)
        if self.log is not None and not isinstance(self.log, (str, os.PathLike)):
            raise TypeError(f"OnError.log must be a path or None. Found: {self.log!r}.")
        integer("OnError.max_pixels", self.max_pixels, 1)
        if self.max_pixels >= 2**63:
            raise ValueError(f"OnError.max_pixels must be < 2**63. Found: {self.max_pixels}.")

    @classmethod
    def of(cls, value: Any) -> OnError:
        """Return the value that ``on_error=`` means."""
        return value if isinstance(value, cls) else cls(value)


# ---- Where batches go, and what decodes and keeps them ----------------------------------------------


@dataclass(frozen=True, repr=False)
class Device(Printed):
    """``DataLoader(device=Device(...))``: where batches are delivered. A name or a ``torch.device`` is short
    for ``Device(name)``.

    Packed data are decoded into pinned memory, copied as uint8 on the loader's own stream, and normalised on
    the device. Batches of a torch Dataset or of Python callables are moved. Without CUDA there is a warning,
    and batches stay on the CPU (``docs/guide/transfer.md``).

    Args:
        name: "cuda", "cuda:1", or a ``torch.device``. None or "cpu": the host.
        memory: "fresh": tensors that may be kept; "reuse": the same device memory each time, valid until the
            next batch; "poison": as "reuse", but memory that is no longer valid is overwritten, for tests.
            Both need batches of one size.

    Raises:
        ValueError: another kind of device, or not a legal word.
    """

    name: str | torch.device | None = "cuda"
    memory: Literal["fresh", "reuse", "poison"] = "fresh"

    def __post_init__(self) -> None:
        check_device(self.name)
        one_of("Device.memory", self.memory, ("fresh", "reuse", "poison"))

    @classmethod
    def of(cls, value: Any) -> Device:
        """Return the value that ``device=`` means."""
        return value if isinstance(value, cls) else cls(value)


@dataclass(frozen=True, repr=False)
class Dali(Printed):
    """``DataLoader(backend=Dali(...))``: NVIDIA DALI decodes (``docs/guide/dali.md``). ``backend="dali"`` is
    short for ``Dali()``.

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
        share = self.decode_share
        if share != "auto":
            if isinstance(share, str):
                raise ValueError(f"Dali.decode_share must be 'auto' or a number in [0, 1]. Found: {share!r}.")
            at_least("Dali.decode_share", share, 0)
            if share > 1:
                raise ValueError(f"Dali.decode_share must be <= 1. Found: {share}.")
        if self.memory_limit is not None:
            at_least("Dali.memory_limit", self.memory_limit, 1)

    @classmethod
    def of(cls, value: Any) -> Dali | None:
        """Return the value that ``backend=`` means; None: "native"."""
        if isinstance(value, cls):
            return value
        one_of("backend", value, ("native", "dali"))
        return cls() if value == "dali" else None


@dataclass(frozen=True, repr=False)
class Cache(Printed):
    """``DataLoader(cache=Cache(...))``: the set, or the part that fits, kept once in the node's memory for
    all processes and later jobs (``docs/guide/cache.md``). A size, a share or a folder is short for
    ``Cache(size)`` or ``Cache(folder=...)``. Ranks may differ in it. ``stats()["cache"]`` says what happens.

    Args:
        size: bytes, or a text ("64GB", "50%" of the available memory); None: all that fits. "off": nothing is
            kept. "auto": a cache if it is useful, as with neither size nor folder.
        folder: in a memory file system; None: ``$FASTLOAD_CACHE_DIR``, else ``/dev/shm``.
        decoded: cut crops from pictures scaled to at most this many pixels on the longer side, or from
            unscaled ones ("full"), and keep those pictures; None: keep records.
        disk: a folder on a local disk and the size of a tier below memory, "/nvme/fastload:800GB".
        format: what is kept of JPEGs: "jpeg"; "coefficients": records made during the first epoch, whose
            crops decode about twice as fast, to the same pixels; "auto": these if they pay off, by figures
            that ``stats()["cache"]`` and the log show.

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
        one_of("Cache.format", self.format, ("jpeg", "coefficients", "auto"))
        if self.format != "jpeg" and self.decoded is not None:
            raise ValueError(
                f"Cache.format={self.format!r} and Cache.decoded={self.decoded!r} exclude each other: the "
                "cache keeps records, or decoded pictures. Leave one out."
            )
        if self.format == "coefficients" and self.size == "off":
            raise ValueError(
                'Cache.format="coefficients" is about what the cache keeps, and size="off" keeps nothing. '
                'Give the cache a size, or leave format out; "auto" goes with any size.'
            )
        self.setting()

    def setting(self) -> CacheSetting:
        """Return the setting as the caches take it."""
        return replace(self._sized(), disk=self._disk(), decoded=self.decoded, format=self.format)

    def _disk(self) -> Any:
        if self.disk is None:
            return None
        below = parse_setting(self.disk).disk if isinstance(self.disk, str) else None
        if below is None:
            raise ValueError(
                f'Cache.disk must be a folder and a size, "/nvme/fastload:800GB". Found: {self.disk!r}.'
            )
        return below

    def _sized(self) -> CacheSetting:
        if self.folder is not None and not isinstance(self.folder, (str, os.PathLike)):
            raise TypeError(f"Cache.folder must be a path or None. Found: {self.folder!r}.")
        root = None if self.folder is None else absolute_folder(self.folder)
        if self.size is None:
            return CacheSetting("auto" if root is None else "on", root=root)
        if isinstance(self.size, str):
            sized = parse_setting(self.size)
            is_word = self.size in ("auto", "off") and root is None
            if not is_word and (sized.mode != "on" or sized.root is not None):
                raise ValueError(self._unknown_size())
            return replace(sized, root=root)
        if isinstance(self.size, bool) or not hasattr(type(self.size), "__index__"):
            raise TypeError(self._unknown_size())
        integer("Cache.size", self.size, 1)
        return CacheSetting("on", int(self.size), root=root)

    def _unknown_size(self) -> str:
        return (
            'Cache.size must be bytes, a size ("64GB"), a share ("50%"), or, without a folder, "auto" or '
            f'"off". Found: {self.size!r}.'
        )


def cache_setting(value: Any) -> CacheSetting:
    """Return the setting that ``cache=`` means.

    Raises:
        TypeError, ValueError: it is not understood.
    """
    return value.setting() if isinstance(value, Cache) else parse_setting(value)


# ---- What a sample has, and how batches are made of samples -----------------------------------------


@dataclass(frozen=True, repr=False)
class Fields(Printed):
    """``DataLoader(fields=Fields(...))``: which fields of a set are read, and in which form
    (``docs/guide/fields.md``). A list of names is short for ``Fields(names)``.

    Args:
        names: of the fields; None: all.
        masks: form of outlines and run lengths: "packed": as they were packed; "dense": drawn as (objects,
            height, width) at the picture's size in the batch.
        rows_of: fields with a row for each row of another field, if the schema does not name them:
            ``{"boxes": ["labels", "area"]}``.
        windows: rows around each sample, by field: ``{"image": [-0.2, -0.1, 0.0], "action": range(50)}``,
            or :class:`fastload.Windows`, which says more.

    Raises:
        TypeError, ValueError: of the wrong type, twice the same name, or not a legal word.
    """

    names: Sequence[str] | None = None
    masks: Literal["packed", "dense"] = "packed"
    rows_of: Groups = None
    windows: Mapping[str, Iterable[float]] | Any = None  # a Windows once it is made

    def __post_init__(self) -> None:
        one_of("Fields.masks", self.masks, ("packed", "dense"))
        if self.windows is not None:
            from fastload.sample.windows import Windows

            object.__setattr__(self, "windows", Windows.of(self.windows))
        if self.rows_of is not None:
            _check_rows(self.rows_of)
        names = self.names
        if names is None:
            return
        if isinstance(names, (str, bytes)) or not isinstance(names, Sequence):
            raise TypeError(f"fields must be a list of names. Found: {names!r}.")
        if not all(isinstance(name, str) for name in names):
            raise TypeError(f"fields must be a list of names. Found: {names!r}.")
        if not names or len(set(names)) < len(names):
            raise ValueError(f"fields must name some fields, each once. Found: {list(names)}.")
        object.__setattr__(self, "names", tuple(names))

    @property
    def windowed(self) -> Windows | None:
        """The windows, as a value; None: there are none."""
        windows: Any = self.windows
        return windows  # type: ignore[no-any-return]

    @classmethod
    def of(cls, value: Any) -> Fields:
        """Return the value that ``fields=`` means."""
        return value if isinstance(value, cls) else cls(value)


def _check_rows(rows_of: Any) -> None:
    legal = 'Fields.rows_of must be a dict of lists of names, {"boxes": ["labels"]}.'
    if not isinstance(rows_of, Mapping):
        raise TypeError(f"{legal} Found: {rows_of!r}.")
    for leader, names in rows_of.items():
        listed = isinstance(names, (list, tuple)) and all(isinstance(name, str) for name in names)
        if not isinstance(leader, str) or not listed:
            raise TypeError(f"{legal} Found: {rows_of!r}.")
    followers = [name for names in rows_of.values() for name in names]
    for name in followers:
        if name in rows_of or followers.count(name) > 1:
            raise ValueError(
                f"Fields.rows_of: {name!r} follows two others, or one that follows. Found: {rows_of!r}."
            )


@dataclass(frozen=True, repr=False)
class Pad(Printed):
    """``DataLoader(collate=Pad(...))``: pictures of different sizes become one tensor, with zeros below and
    to the right. ``collate="pad"`` is short for ``Pad()``.

    Args:
        height, width: of every batch; None: the largest ones in the batch, rounded up to 32.
        then: what is made of the padded batch: what ``collate=`` takes otherwise.

    Raises:
        TypeError, ValueError: not two positive integers, or ``then`` is no collate.
    """

    height: int | None = None
    width: int | None = None
    then: str | Callable[[Any], Any] | None = None

    def __post_init__(self) -> None:
        sides = self.height, self.width
        if (self.height is None) != (self.width is None):
            raise TypeError(f"Pad has both height and width, or neither. Found: {self!r}.")
        if self.height is not None:
            for name, side in zip(("height", "width"), sides, strict=True):
                integer(f"Pad.{name}", side, 1)
        check_collate("Pad.then", self.then, ("list", "detr", "yolo"))


#: The words for ``collate=``.
COLLATES = ("stack", "pad", "ragged", "list", "detr", "yolo")


def check_collate(name: str, value: Any, words: Sequence[str] = COLLATES) -> None:
    """Raise unless ``value`` is one of the words, a callable, a spec such as Detection, or None."""
    is_known = value in words if isinstance(value, str) else callable(value) or hasattr(value, "planned")
    if isinstance(value, type) and (value is Pad or hasattr(value, "planned")):
        raise TypeError(
            f"{name} must not be the class {value.__name__}. Write fastload.{value.__name__}(...)."
        )
    if value is None or is_known or (name == "collate" and isinstance(value, Pad)):
        return
    error = ValueError if isinstance(value, str) else TypeError
    also = "fastload.Pad, a callable" if name == "collate" else "a callable"
    raise error(f"{name} must be one of {', '.join(words)}, {also} or None. Found: {value!r}.")


class ChatLike(Protocol):
    """What makes documents of conversations: a :class:`fastload.Chat`."""

    is_chat: ClassVar[bool]

    @property
    def turns(self) -> str:
        """The field of the conversations."""


@dataclass(frozen=True, repr=False)
class Tokenizers(Printed):
    """``DataLoader(text=Tokenizers(...))``: what batches get instead of texts (``docs/guide/text.md``). A
    dict is short for ``Tokenizers(dict)``. For packed datasets.

    Args:
        by_field: by text field, a callable that turns a batch's list of str into what the batch gets instead,
            or :class:`fastload.Captions`; or one :class:`fastload.Chat`, which makes documents of
            conversations. They run in separate threads, batches ahead.
        threads: the number of these threads.

    Raises:
        TypeError, ValueError: not callables by field, or not at least one thread.
    """

    by_field: Any = field(default_factory=dict)
    threads: int = 1

    def __post_init__(self) -> None:
        integer("Tokenizers.threads", self.threads, 1)
        if self.chat is not None:
            return
        by_field = self.by_field
        known = isinstance(by_field, Mapping) and all(isinstance(name, str) for name in by_field)
        if not known or not all(callable(one) or hasattr(one, "pick") for one in by_field.values()):
            raise TypeError(
                "text must be a dict of callables, or of fastload.Captions, by field; or a fastload.Chat. "
                f"Found: {by_field!r}."
            )

    @property
    def chat(self) -> Any:
        """The :class:`fastload.Chat`, or None."""
        is_one = getattr(self.by_field, "is_chat", False) and not isinstance(self.by_field, type)
        return self.by_field if is_one else None

    @property
    def names(self) -> list[str]:
        """The fields of which something is made."""
        return list(self.by_field) if self.chat is None else [self.chat.turns]

    @classmethod
    def of(cls, value: Any) -> Tokenizers | None:
        """Return the value that ``text=`` means; None: texts stay texts, as with no field at all."""
        made = value if value is None or isinstance(value, cls) else cls(value)
        return made if made is not None and (made.chat is not None or made.by_field) else None
