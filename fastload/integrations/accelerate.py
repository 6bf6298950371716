"""What Hugging Face Accelerate needs beyond the loader.

``Accelerator.prepare`` leaves a loader as it is that says ``_is_accelerate_prepared``: ranks, order and state
are ours. What Accelerate's own wrapper would do besides is done here, from the moment that it asks: batches
are announced to its ``GradientState`` (so that accumulation ends with the epoch and ``gather_for_metrics``
drops what fills the last batch), they go to its device, and its ``DataLoaderConfiguration`` is honoured.

Nothing here imports Accelerate before it is there.
"""

from __future__ import annotations

import json
import sys
import warnings
import weakref
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from fastload.dataset.views import Kind
from fastload.errors import StateError
from fastload.integrations.skipping import let_skip
from fastload.integrations.watched import Companion

if TYPE_CHECKING:
    from fastload.loader.data_loader import DataLoader

__all__ = ["is_prepared", "warn_unprepared"]

_STATES = "fastload_loaders.json"
_FRAMES = 6  # from the attribute to Accelerator.prepare_data_loader, through wrappers' __getattr__


def is_prepared(loader: DataLoader[Any]) -> bool:
    """What ``loader._is_accelerate_prepared`` is; if an Accelerator asks, ``loader`` is registered with it.

    False for a loader over an IterableDataset, which Accelerate divides among ranks by itself.

    Raises:
        ValueError: the Accelerator's configuration cannot be honoured.
        StateError: it asks for other batches than those that have been iterated over.
    """
    if loader._arranged.kind is Kind.STREAM:
        return False
    let_skip()
    frame = _asking()
    if frame is not None:
        placed = frame.f_locals.get("device_placement")
        _join(loader, frame.f_locals["self"], placed)
    return True


def _asking() -> Any:
    """The frame of the Accelerator's method that asks, or None."""
    module = sys.modules.get("accelerate.accelerator")
    frame: Any = sys._getframe(2)
    for _ in range(_FRAMES):
        if module is None or frame is None:
            return None
        if frame.f_code.co_name == "prepare_data_loader" and isinstance(
            frame.f_locals.get("self"), module.Accelerator
        ):
            return frame
        frame = frame.f_back
    return None


def _join(loader: DataLoader[Any], accelerator: Any, placed: bool | None) -> None:
    """Do for ``loader`` what Accelerate's own wrapper does for torch's."""
    _divide(loader)
    _check(loader, accelerator)
    if placed is None:
        placed = accelerator.device_placement
    device = accelerator.device if placed else torch.device("cpu")
    _amend(loader, accelerator, device)
    stateful = bool(getattr(accelerator, "use_stateful_dataloader", False))
    given = loader._arranged.given["device"]
    to = device if placed and given is None and device.type != "cpu" else None
    non_blocking = bool(getattr(accelerator, "non_blocking", False))
    loader._companion = Companion(loader, accelerator.gradient_state, to, non_blocking)
    loader.use_stateful_dataloader = stateful
    _remember(loader, accelerator)


def _divide(loader: DataLoader[Any]) -> None:
    """Accelerate divides what it prepares, but a sampler that knows its rank has done that already."""
    arranged = loader._arranged
    order = arranged.given["sampler"] or arranged.given["batch_sampler"]
    if arranged.beginning.has_begun or hasattr(getattr(order, "sampler", order), "num_replicas"):
        return
    arranged.divide()
    loader._sampler.remake()


def _check(loader: DataLoader[Any], accelerator: Any) -> None:
    if accelerator.dispatch_batches:
        raise ValueError(
            "Accelerator(dispatch_batches=True) reads all batches on one rank and sends them to the others. "
            "fastload.DataLoader reads each rank's share on that rank, every sample once an epoch. Found: "
            f"dispatch_batches={accelerator.dispatch_batches}. Leave it out."
        )
    beginning, given = loader._arranged.beginning, loader._arranged.given
    world = beginning.world
    if given["rank"] is not None or given["process_group"] is not None or world.has_peers:
        return
    theirs = accelerator.process_index, accelerator.num_processes
    if beginning.is_divided and (world.rank, world.size) != theirs:
        raise ValueError(
            f"Accelerate says rank {accelerator.process_index} of {accelerator.num_processes}, the "
            f"loader finds rank {world.rank} of {world.size}. Pass rank= and world_size= to it."
        )


def _amend(loader: DataLoader[Any], accelerator: Any, device: torch.device) -> None:
    """Let ``loader`` make the batches that Accelerate's configuration asks for."""
    arranged = loader._arranged
    size, given = arranged.beginning.world.size, loader._arguments
    changes: dict[str, Any] = {}
    if accelerator.split_batches and size > 1:
        changes["batch_size"] = _share(given, size)
    if size > 1 and not arranged.given["drop_padding"]:
        loader._sampler.pad(_padding(given, bool(accelerator.even_batches)))
    if given["device"] is None and device.type == "cuda":
        changes["device"] = device
    if given["seed"] is None and given["generator"] is None and accelerator.use_seedable_sampler:
        # As Accelerate's SeedableRandomSampler: by set_seed(), whatever was drawn since.
        seed = getattr(accelerator.dataloader_config, "data_seed", None)
        seeded = torch.Generator()
        seeded.manual_seed(torch.initial_seed() if seed is None else seed)
        changes["generator"] = seeded
    changes = {name: new for name, new in changes.items() if arranged.given[name] != new}
    if not arranged.beginning.has_begun:
        loader._amend(changes)
    elif "batch_size" in changes:
        raise StateError(
            "Accelerator(split_batches=True) divides the batch size of a loader that has been iterated over. "
            "Call prepare() before the first iteration."
        )


def _share(given: dict[str, Any], size: int) -> int:
    batch = given["batch_size"]
    if given["batch_sampler"] is not None:
        raise ValueError(
            "Accelerator(split_batches=True) divides batches, those of a batch_sampler cannot be. Let the "
            "batch_sampler make batches of one rank's size, and leave split_batches out."
        )
    if batch % size:
        raise ValueError(
            "With Accelerator(split_batches=True) batch_size must be a multiple of the number of ranks. "
            f"Found: batch_size={batch}, {size} ranks."
        )
    return int(batch) // size


def _padding(given: dict[str, Any], even: bool) -> str:
    """The last batch as Accelerate makes it; where marks are asked for, they come last over all ranks."""
    if not even:
        return "drop"
    return "end" if given["padding"] in ("mark", "end") else "repeat"


def warn_unprepared(loader: DataLoader[Any]) -> None:
    """Warn, once a loader, if Accelerate runs several ranks and does not know ``loader``."""
    state = sys.modules["accelerate.state"].AcceleratorState
    if loader._told_accelerate or not state._shared_state or loader._arranged.kind is Kind.STREAM:
        return
    loader._told_accelerate = True
    beginning = loader._arranged.beginning
    if beginning.processes.size == 1:
        return
    rows = (
        "its share of the samples is right" if beginning.is_divided else "each rank reads its whole dataset"
    )
    warnings.warn(
        f"This fastload.DataLoader is iterated over without Accelerator.prepare: {rows}, but "
        "gather_for_metrics keeps the rows that fill the last batch, gradient accumulation goes on over the "
        "epoch's end, and batches stay where they are. Pass it to prepare().",
        stacklevel=5,
    )


# ---- save_state and load_state -------------------------------------------------------------------


def _remember(loader: DataLoader[Any], accelerator: Any) -> None:
    """Let ``save_state`` and ``load_state`` of ``accelerator`` keep the loader's epoch and seed.

    With use_stateful_dataloader Accelerate itself asks for ``state_dict``, and training goes on in the middle
    of the epoch. Without, the epoch begins anew, and ``skip_first_batches`` leads to its middle.
    """
    loaders: list[weakref.ref[Any]] | None = getattr(accelerator, "_fastload_loaders", None)
    if loaders is None:
        loaders = accelerator._fastload_loaders = []
        accelerator.register_save_state_pre_hook(_Saving(loaders, accelerator))
        accelerator.register_load_state_pre_hook(_Loading(loaders))
    if not any(known() is loader for known in loaders):
        loaders.append(weakref.ref(loader))


class _Saving:
    """Writes the loaders' states beside Accelerate's own files."""

    def __init__(self, loaders: list[weakref.ref[Any]], accelerator: Any) -> None:
        self._loaders = loaders
        self._is_main = bool(accelerator.is_main_process)

    def __call__(self, models: Any, weights: Any, folder: str) -> None:
        found = [known() for known in self._loaders]
        states = [None if loader is None else loader.state_dict() for loader in found]
        if self._is_main:
            (Path(folder) / _STATES).write_text(json.dumps(states))


class _Loading:
    """Reads them, and puts each loader at the beginning of its epoch."""

    def __init__(self, loaders: list[weakref.ref[Any]]) -> None:
        self._loaders = loaders

    def __call__(self, models: Any, folder: str) -> None:
        path = Path(folder) / _STATES
        if not path.exists():
            return
        states = json.loads(path.read_text())
        if len(states) != len(self._loaders):
            raise StateError(
                f"{path} has the states of {len(states)} loaders, this Accelerator has prepared "
                f"{len(self._loaders)}. Prepare the same loaders, in the same order, before load_state()."
            )
        for known, state in zip(self._loaders, states, strict=True):
            loader = known()
            if loader is not None and state is not None:
                loader.load_state_dict({**state, "position": 0})
