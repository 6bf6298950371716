"""The facts of one rank's loop and loader, by which ranks are compared."""

from __future__ import annotations

import contextlib
import gc
import hashlib
import json
import math
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import PurePath
from typing import Any

import numpy as np

from fastload.diagnose.facts import Loop


@dataclass(frozen=True)
class Mesh:
    """A device mesh of a rank's process.

    Args:
        names, shape: of its dimensions.
        coordinate: of this rank; empty if the rank is not in the mesh.
    """

    names: tuple[str, ...]
    shape: tuple[int, ...]
    coordinate: tuple[int, ...]


@dataclass(frozen=True)
class RankFacts:
    """The facts of one rank.

    Args:
        rank, world_size: as in ``torch.distributed``.
        batches, samples, seconds, wait_share, rate: of the watched loop.
        wait, step: medians in seconds.
        batch_bytes: of one batch's tensors.
        length: of the dataset; None: it has none.
        fingerprint: of the dataset, see :func:`fingerprint`; None: there is nothing to compare.
        epoch_batches: the loader's length; None: it has none.
        sampler: its class.
        dividers: classes of the samplers that divide the samples among ranks, outermost first.
        replicas, replica: the number of parts that they make, and this rank's; None: they do not divide.
        workers: worker processes or threads.
        meshes: device meshes of the process.
    """

    rank: int
    world_size: int
    batches: int
    samples: int
    seconds: float
    wait_share: float
    wait: float
    step: float
    rate: float
    batch_bytes: int
    length: int | None
    fingerprint: str | None
    epoch_batches: int | None
    sampler: str
    dividers: tuple[str, ...]
    replicas: int | None
    replica: int | None
    workers: int
    meshes: tuple[Mesh, ...] = ()

    @property
    def batch_wait(self) -> float:
        """Seconds of waiting per batch: the mean, because a few batches may have all of it."""
        return self.wait_share * self.batch_seconds

    @property
    def batch_seconds(self) -> float:
        """Seconds per batch, with its step."""
        return self.seconds / self.batches if self.batches else 0.0

    def to_json(self) -> str:
        """Return it as text, for another process."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> RankFacts:
        """Undo :meth:`to_json`.

        Raises:
            ValueError, TypeError: it is not of this version of fastload.
        """
        values = json.loads(text)
        meshes = tuple(Mesh(*(tuple(part) for part in mesh.values())) for mesh in values.pop("meshes"))
        return cls(**{**values, "dividers": tuple(values["dividers"]), "meshes": meshes})


def facts_of(loop: Loop, loader: Any) -> RankFacts:
    """Return the facts of this process's loop over ``loader``."""
    rank, size = _place()
    dividers, replicas, replica = _divisions(loader)
    dataset = getattr(loader, "dataset", None)
    batch_bytes = loop.notes.get("batch_bytes", 0)
    return RankFacts(
        rank=rank,
        world_size=size,
        batches=len(loop.wait),
        samples=len(loop.wait) * loop.batch_size,
        seconds=loop.seconds,
        wait_share=loop.wait_share,
        wait=float(np.median(loop.wait)) if len(loop.wait) else 0.0,
        step=float(np.median(loop.step)) if len(loop.step) else 0.0,
        rate=loop.rate,
        batch_bytes=batch_bytes if isinstance(batch_bytes, int) else 0,
        length=_length(dataset),
        fingerprint=fingerprint(dataset),
        epoch_batches=_length(loader),
        sampler=type(getattr(loader, "sampler", None)).__name__,
        dividers=dividers,
        replicas=replicas,
        replica=replica,
        workers=loop.threads,
        meshes=tuple(_meshes()),
    )


def _place() -> tuple[int, int]:
    """Return rank and world size of this process."""
    distributed: Any = sys.modules["torch"].distributed
    if distributed.is_available() and distributed.is_initialized():
        return distributed.get_rank(), distributed.get_world_size()
    return int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))


def _length(sized: Any) -> int | None:
    try:
        return len(sized)
    except Exception:  # it has no length, or the user's code for it fails
        return None


# ---- Samplers ---------------------------------------------------------------------------------------

# By these names torch's and Hugging Face's samplers, and Accelerate's, keep number of parts and own part.
_PLACES = (("num_replicas", "rank"), ("num_processes", "process_index"))
_INNER = ("batch_sampler", "sampler")
_DEEP = 4


def _divisions(loader: Any) -> tuple[tuple[str, ...], int | None, int | None]:
    """Return the classes that divide the samples, the number of parts, and this rank's part."""
    from fastload.loader.view import view_of  # imports torch, which the doctor's own process does without

    view = view_of(loader)
    if view is not None and view.is_divided:
        with contextlib.suppress(Exception):  # an error that the loader itself raises in time
            place = view.place_of_rank()[0]
            return (type(loader).__name__,), place.size, place.rank
    found: dict[int, tuple[str, int, int]] = {}
    for start in (getattr(loader, "batch_sampler", None), getattr(loader, "sampler", None)):
        _collect(start, found, _DEEP)
    dataset = getattr(loader, "dataset", None)
    if _place_in(dataset) is not None:  # iterable datasets that Accelerate or transformers divide
        _collect(dataset, found, 1)
    parts, part = 1, 0
    for _, replicas, replica in found.values():
        part, parts = part + parts * replica, parts * replicas
    names = tuple(name for name, _, _ in found.values())
    return (names, parts, part) if found else ((), None, None)


def _collect(sampler: Any, found: dict[int, tuple[str, int, int]], depth: int) -> None:
    place = _place_in(sampler)
    if place is not None and place[0] > 1:
        found.setdefault(id(sampler), (type(sampler).__name__, *place))
    if depth > 1:
        for name in _INNER:
            inner = getattr(sampler, name, None)
            if inner is not None:
                _collect(inner, found, depth - 1)


def _place_in(sampler: Any) -> tuple[int, int] | None:
    for names in _PLACES:
        number, place = (getattr(sampler, name, None) for name in names)
        if type(number) is int and type(place) is int:
            return number, place
    return None


# ---- The dataset's fingerprint ----------------------------------------------------------------------

_LOOKS = 16  # elements of a list that are looked at
_LONG = 8  # parts of an element
_COLUMNS = 3  # of a table
_CHARACTERS = 500


def fingerprint(dataset: Any) -> str | None:
    """Return a hash of a dataset's class, its length, and some elements of its lists of samples or paths.

    It is equal on ranks that have the same dataset. It reads attributes only, of at most 16 elements each,
    and calls none of the dataset's methods but ``__len__``. None: it has no such lists.
    """
    parts = list(_described(dataset, 3))
    if not parts:
        return None
    whole = [type(dataset).__qualname__, _length(dataset), *parts]
    return hashlib.sha256(repr(whole).encode(errors="replace")).hexdigest()[:16]


def _described(dataset: Any, depth: int) -> Iterator[tuple[str, object]]:
    try:
        attributes = object.__getattribute__(dataset, "__dict__")
    except AttributeError:
        return
    length = _length(dataset) or math.inf
    for name, value in sorted(dict(attributes).items(), key=lambda item: str(item[0])):
        if name in ("_data", "_indices") and hasattr(value, "column"):  # tables of Hugging Face's datasets
            with contextlib.suppress(Exception):  # their library's
                yield name, _rows(value)
        elif _is_list(value):
            first = value[0] if type(value) in (list, tuple) and value else None
            if _is_dataset(first) and depth > 1:
                for each in value[:_LOOKS]:
                    yield from _described(each, depth - 1)
            elif len(value) >= 1 and (len(value) >= length or isinstance(_plain(first), str)):
                yield name, (len(value), [_plain(value[at]) for at in _places(len(value))])
        elif _is_dataset(value) and depth > 1:
            yield from _described(value, depth - 1)


def _rows(table: Any) -> object:
    """Return some rows of an Arrow table; its library's own fingerprint may be random."""
    columns = [table.column(at) for at in range(min(table.num_columns, _COLUMNS))]
    places = _places(table.num_rows) if table.num_rows else []
    return table.num_rows, [[_plain(column[at].as_py()) for at in places] for column in columns]


def _is_list(value: Any) -> bool:
    kind = type(value)
    if kind in (list, tuple, range):
        return True
    return (issubclass(kind, np.ndarray) or _is_tensor(value)) and value.ndim > 0


def _is_tensor(value: Any) -> bool:
    torch: Any = sys.modules.get("torch")
    return torch is not None and issubclass(type(value), torch.Tensor) and value.device.type == "cpu"


def _is_dataset(value: Any) -> bool:
    data: Any = sys.modules.get("torch.utils.data")
    return data is not None and issubclass(type(value), data.Dataset)


def _places(length: int) -> list[int]:
    """Return the first place, the last one, and some between."""
    return sorted({round(i * (length - 1) / (_LOOKS - 1)) for i in range(_LOOKS)})


def _plain(value: Any, depth: int = 3) -> object:
    """Return what can be compared of a list's element, without calling what a user may have written."""
    kind = type(value)
    if kind in (str, bytes):
        return value[:_CHARACTERS]
    if kind in (int, float, bool, type(None)):
        return (kind.__name__, value)
    if issubclass(kind, PurePath):
        return str(value)
    if issubclass(kind, np.generic):
        return (kind.__name__, value.tobytes())
    if depth > 0 and kind in (list, tuple):
        return (len(value), [_plain(part, depth - 1) for part in value[:_LONG]])
    if depth > 0 and kind is dict:
        return [(str(key), _plain(value[key], depth - 1)) for key in list(value)[:_LONG]]
    if issubclass(kind, np.ndarray) and not value.dtype.hasobject:
        return (value.shape, value.reshape(-1)[:_LONG].tobytes())
    if _is_tensor(value) and value.layout is sys.modules["torch"].strided:
        return (tuple(value.shape), value.detach().reshape(-1)[:_LONG].tolist())
    return kind.__qualname__


# ---- Device meshes ----------------------------------------------------------------------------------


def _meshes() -> Iterator[Mesh]:
    """Return every device mesh with named dimensions in this process."""
    module: Any = sys.modules.get("torch.distributed.device_mesh")
    distributed: Any = sys.modules["torch"].distributed
    kind = getattr(module, "DeviceMesh", None)
    if kind is None or not distributed.is_available() or not distributed.is_initialized():
        return
    found: set[Mesh] = set()
    for each in gc.get_objects():
        if issubclass(type(each), kind):
            with contextlib.suppress(Exception):  # one that is not yet, or no longer, whole
                found.add(_mesh(each))
    yield from sorted((mesh for mesh in found if mesh.names), key=lambda mesh: (-len(mesh.names), mesh.names))


def _mesh(mesh: Any) -> Mesh:
    names: Sequence[str] = mesh.mesh_dim_names or ()
    return Mesh(tuple(names), tuple(map(int, mesh.shape)), tuple(map(int, mesh.get_coordinate() or ())))


def by_rank(facts: Sequence[RankFacts]) -> Mapping[int, RankFacts]:
    """Return the facts by rank, in order."""
    return {each.rank: each for each in sorted(facts, key=lambda each: each.rank)}
