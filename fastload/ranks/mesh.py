"""Which ranks have different data, if data parallelism is one of several dimensions of a mesh.

Ranks of a ``torch.distributed.device_mesh.DeviceMesh`` that differ only in tensor, context, pipeline or
expert dimensions work on the same samples. The names of the dimensions say which these are.
"""

from __future__ import annotations

import gc
import re
import sys
from typing import Any

from fastload.errors import WorldError

# Words in names of dimensions: torchtitan's, FSDP2's, HSDP's, Accelerate's, DTensor's, NeMo's.
_DATA = {"dp", "ddp", "data", "fsdp", "efsdp", "hsdp", "replicate", "shard", "batch"}
_SHARED = {"tp", "etp", "cp", "pp", "ep", "sp", "mp", "tensor", "context", "pipeline", "pipe", "expert",
           "experts", "sequence", "seq", "model", "ulysses", "ring"}  # fmt: skip
_EXPERT = {"ep", "etp", "efsdp", "expert", "experts"}

_Place = tuple[int, int]  # rank and number of the ranks that have different data

_found: tuple[Any, _Place | None] | None = None  # :func:`_groups` at the last look, and what was found


def is_mesh(value: Any) -> bool:
    """Whether ``value`` is a DeviceMesh; imports nothing."""
    kind = getattr(sys.modules.get("torch.distributed.device_mesh"), "DeviceMesh", None)
    return kind is not None and isinstance(value, kind)


def place_in(mesh: Any) -> _Place:
    """Return this process's place among the ranks of ``mesh`` that have different data.

    All ranks of a one-dimensional mesh do; of several dimensions those of data parallelism count.

    Raises:
        WorldError: this process is not in the mesh, or the names of its dimensions are not known.
    """
    if mesh.get_coordinate() is None:
        raise WorldError(
            f"ranks={_shown(mesh)} does not include this process. Make the loader on the mesh's ranks only."
        )
    if mesh.ndim == 1:
        return int(mesh.get_coordinate()[0]), int(mesh.mesh.numel())
    place = _by_names(mesh)
    if place is None:
        raise WorldError(_unknown(mesh, "ranks is"))
    return place


def find_place(world_size: int) -> _Place | None:
    """Return this process's place by the live meshes, or by Megatron's groups; None: there are neither.

    Searches the interpreter's objects, which takes some ten milliseconds, and keeps the result until a
    process group is made; see :func:`forget`.

    Args:
        world_size: of the default process group.

    Raises:
        WorldError: the names of a mesh's several dimensions do not say which of them is for data.
    """
    global _found
    known = _groups()
    if _found is None or known is None or _found[0] != known:
        _found = known, _megatron() or _of_meshes(_live(), world_size)
    return _found[1]


def forget() -> None:
    """Search anew the next time."""
    global _found
    _found = None


def _groups() -> Any:
    """Return the default group's id and the number of groups so far; None: unknown."""
    c10d: Any = sys.modules.get("torch.distributed.distributed_c10d")
    world: Any = getattr(c10d, "_world", None)
    count = getattr(world, "group_count", None)
    return None if count is None else (id(getattr(world, "default_pg", None)), count)


def _live() -> list[Any]:
    kind: Any = getattr(sys.modules.get("torch.distributed.device_mesh"), "DeviceMesh", None)
    if kind is None:
        return []
    meshes = [one for one in gc.get_objects() if issubclass(type(one), kind)]
    return [mesh for mesh in meshes if mesh.get_coordinate() is not None]


def _megatron() -> _Place | None:
    state: Any = sys.modules.get("megatron.core.parallel_state")
    ready = getattr(state, "model_parallel_is_initialized", None)
    if ready is None or not ready():
        return None
    return int(state.get_data_parallel_rank()), int(state.get_data_parallel_world_size())


def _of_meshes(meshes: list[Any], world_size: int) -> _Place | None:
    """Find the place by the names of a mesh of all ranks; of several such meshes the most telling decide."""
    of_all = [mesh for mesh in meshes if mesh.mesh.numel() == world_size]
    wide = [mesh for mesh in of_all if len(_wide(mesh)) > 1]
    if not wide:
        if any(_kind(name) == "shared" for mesh in of_all for name, _ in _wide(mesh)):
            return 0, 1
        _check_parts([] if of_all else meshes)
        return None
    # Prefer a mesh made for loading data, then one without experts, which share ranks with other dimensions.
    wide = [mesh for mesh in wide if _names(mesh) & {"batch"}] or wide
    wide = [mesh for mesh in wide if not _names(mesh) & _EXPERT] or wide
    places = {_by_names(mesh): mesh for mesh in wide}
    unknown = places.pop(None, None)
    if len(places) != 1:
        raise WorldError(_unknown(unknown or wide[0], "This program uses"))
    return next(iter(places))


def _check_parts(meshes: list[Any]) -> None:
    """Refuse meshes of some of the ranks that show more than data parallelism."""
    for mesh in meshes:
        if len(_wide(mesh)) > 1 or any(_kind(name) == "shared" for name, _ in _wide(mesh)):
            raise WorldError(_unknown(mesh, "This program uses"))


def _wide(mesh: Any) -> list[tuple[str | None, int]]:
    """Return names and sizes of the dimensions that have more than one rank."""
    names = mesh.mesh_dim_names or (None,) * mesh.ndim
    return [(name, size) for name, size in zip(names, mesh.mesh.shape, strict=True) if size > 1]


def _names(mesh: Any) -> set[str]:
    """Return the words in the names of its dimensions."""
    return {word for name, _ in _wide(mesh) for word in _words(name)}


def _words(name: str | None) -> set[str]:
    return set(re.split(r"[^a-z0-9]+", (name or "").lower()))


def _kind(name: str | None) -> str:
    """Return "data" if ranks along a dimension have different data, "shared" if the same, "" if unknown."""
    # torchtitan's names for what experts borrow from data parallelism.
    words = _words(re.sub(r"_(mod|in)_ep$", "", name or ""))
    if bool(words & _DATA) == bool(words & _SHARED):
        return ""
    return "data" if words & _DATA else "shared"


def _by_names(mesh: Any) -> _Place | None:
    """Return the place along the dimensions of data; None: a name is not known."""
    names = mesh.mesh_dim_names or (None,) * mesh.ndim
    rank, size = 0, 1
    for name, length, own in zip(names, mesh.mesh.shape, mesh.get_coordinate(), strict=True):
        kind = _kind(name) if length > 1 else "shared"
        if not kind:
            return None
        if kind == "data":
            rank, size = rank * length + own, size * length
    return rank, size


def _shown(mesh: Any) -> str:
    sizes = " x ".join(map(str, mesh.mesh.shape))
    names = mesh.mesh_dim_names
    return f"a DeviceMesh of {sizes} ranks{f' with the dimensions {tuple(names)}' if names else ''}"


def _unknown(mesh: Any, begin: str) -> str:
    names = mesh.mesh_dim_names
    first = repr(names[0]) if names else "0"
    return (
        f"{begin} {_shown(mesh)}, and it is not known which ranks have different data. Name their group: "
        f"DataLoader(..., ranks=mesh.get_group({first})), if they are the ranks along {first}. For "
        "several dimensions flatten them first (mesh[...]._flatten()), or pass ranks=fastload.Ranks(rank, "
        "world_size)."
    )
