"""Hugging Face Accelerate: ``prepare``, skipped batches, ``GradientState`` and saved states of a loader."""

from __future__ import annotations

import contextlib
import json
import sys
import warnings
import weakref
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import torch

from fastload.backends.values import Device
from fastload.dataset.views import SourceKind, TorchDataLoader
from fastload.errors import StateError
from fastload.loader.arguments import Arguments
from fastload.loader.rank_sampler import RankBatches
from fastload.loader.rebuilt import owner_of
from fastload.loader.view import AdaptedLoader, Batches, LoaderView, viewed
from fastload.prefetch.feeder import BatchKey

# ---- skip_first_batches -----------------------------------------------------------------------------
# Accelerate builds a torch ``DataLoader(dataset, batch_sampler=SkipBatchSampler(loader.batch_sampler))``,
# which would reach the engine, but one batch at a time and unknown to the GradientState. If the batch sampler
# is ours, it builds a :class:`SkippingLoader` instead.


class SkippingLoader:
    """A loader whose passes begin at batch ``skip`` of the epoch; otherwise it behaves as ``loader``.

    Args:
        loader: the loader whose epochs are cut.
        skip: number of batches.
        batch_sampler: Accelerate's sampler of the remaining batches.
    """

    def __init__(self, loader: Any, skip: int, batch_sampler: Any) -> None:
        self._loader = loader
        self._skip = skip
        self.batch_sampler = batch_sampler

    def __iter__(self) -> Iterator[Any]:
        return viewed(self._loader, "skip_first_batches").iterate_from(self._skip)

    def __len__(self) -> int:
        return max(0, len(self._loader) - self._skip)

    def __getattr__(self, name: str) -> Any:
        if name == "_loader":
            raise AttributeError(name)
        return getattr(self._loader, name)

    @property
    def __class__(self) -> Any:
        """The class that isinstance sees: the loader's, as with Accelerate's own wrappers."""
        return type(self._loader)

    @__class__.setter
    def __class__(self, value: Any) -> None:
        raise TypeError("The class of a SkippingLoader is its loader's.")


def let_skip() -> None:
    """Let Accelerate's skip_first_batches, if it is imported, make a SkippingLoader of our loaders."""
    module: Any = sys.modules.get("accelerate.data_loader")
    known: Any = getattr(module, "DataLoader", None)  # torch's, or what a program has replaced it with
    if isinstance(known, type) and issubclass(known, TorchDataLoader) and known is not _Built:
        _Built.of = known
        module.DataLoader = _Built


class _Building(type):
    """A metaclass that makes torch's loaders, but a SkippingLoader for the rest of one of ours."""

    def __call__(cls, dataset: Any = None, *args: Any, **kwargs: Any) -> Any:
        rest = _rest_of_ours(kwargs.get("batch_sampler"), kwargs.get("collate_fn"))
        return _Built.of(dataset, *args, **kwargs) if rest is None else rest

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, TorchDataLoader)


class _Built(TorchDataLoader[Any], metaclass=_Building):
    """The class that Accelerate knows as DataLoader.

    Attributes:
        of: the class that it replaces.
    """

    of: ClassVar[Any] = TorchDataLoader


def _rest_of_ours(batches: Any, collate_fn: Any) -> SkippingLoader | None:
    """Return the rest of our loader that has these batches or, if they are the user's, this collate_fn."""
    inner, skip = batches, 0
    skipping = sys.modules["accelerate.data_loader"].SkipBatchSampler
    while type(inner) is skipping:
        skip += inner.skip_batches
        inner = inner.batch_sampler
    owner = inner.owner if type(inner) is RankBatches else owner_of(collate_fn)
    return None if inner is batches or owner is None else SkippingLoader(owner, skip, batches)


# ---- Iterations that GradientState sees -------------------------------------------------------------


class Companion:
    """What Accelerate's wrapper would know of one loader.

    Args:
        loader: the loader whose iterations are announced.
        gradient_state: Accelerate's.
        device: where batches go; None: they stay where the loader puts them.
        non_blocking: whether their copies are non-blocking.
    """

    def __init__(
        self, loader: LoaderView, gradient_state: Any, device: torch.device | None, non_blocking: bool
    ) -> None:
        self._known = weakref.ref(loader.loader)  # which holds this
        self.gradient_state = gradient_state
        self._device = device
        self._non_blocking = non_blocking

    @property
    def _loader(self) -> LoaderView:
        loader = self._known()
        assert loader is not None, "whoever iterates holds the loader"
        return viewed(loader, "Accelerate")

    def watch(self, iterator: Batches) -> Watched:
        """Return ``iterator``, announced to Accelerate."""
        return Watched(iterator, self)

    def place(self, epoch: int, position: int) -> tuple[int, int]:
        """Return the place to save; after an epoch's last batch it is the next epoch, as in Accelerate."""
        core = self._loader.core
        is_end = position > 0 and not core.num_batches(epoch, position)
        return (epoch + 1, 0) if is_end else (epoch, position)

    def left(self, key: BatchKey) -> int:
        """Return how many batches from ``key`` to the epoch's end have samples for this rank."""
        core = self._loader.core
        steps = int(core.num_batches(key.epoch, key.start))
        if core.partition.padding == "drop" and steps:
            # even_batches=False: the last, partial batch may have nothing for this rank.
            steps -= len(core.batch(key.epoch, key.start, steps - 1).ids) == 0
        return steps - key.step

    def remainder(self, epoch: int) -> int:
        """Return how many rows of the epoch's last batch, over all ranks, are not padding; 0: all of them."""
        return int(self._loader.core.remainder(epoch))

    def placed(self, batch: Any) -> Any:
        """Return the batch on Accelerate's device, unless the loader's own transfer brings it there."""
        if self._device is None or self._loader.options.device.name is not None:
            return batch
        send = sys.modules["accelerate.utils"].send_to_device  # it is imported: it made this object
        return send(batch, self._device, non_blocking=self._non_blocking)


class Pass:
    """What ``GradientState`` reads, and some versions hold, of one pass over a prepared loader."""

    def __init__(self) -> None:
        self.end_of_dataloader = False  # whether the epoch's last batch has been handed out
        self.remainder = -1  # rows of the last batch, over all ranks, that are not padding; 0: all


class Watched(Iterator[Any]):
    """One pass over a prepared loader, announced to Accelerate."""

    def __init__(self, iterator: Batches, companion: Companion) -> None:
        self._iterator = iterator
        self._companion = companion
        self._pass = Pass()
        self._is_announced = False

    def __next__(self) -> Any:
        if self._pass.end_of_dataloader:
            self._exhaust()
        if not self._is_announced:
            self._companion.gradient_state._add_dataloader(self._pass)
            self._is_announced = True
        try:
            batch = next(self._iterator)
            key = self._iterator.key
            assert key is not None
            self._pass.remainder = self._companion.remainder(key.epoch)
            left = self._companion.left(key)
            if left < 0:  # the last batch has nothing for this rank, and there was no other
                self._exhaust()
            self._pass.end_of_dataloader = left == 0
            return self._companion.placed(batch)
        except BaseException:
            self._forget()
            raise

    def _exhaust(self) -> None:
        """End the loader's iteration, and raise StopIteration."""
        try:
            while True:
                next(self._iterator)
        finally:
            self._forget()

    def _forget(self) -> None:
        if self._is_announced:
            self._is_announced = False
            self._companion.gradient_state._remove_dataloader(self._pass)

    def __del__(self) -> None:
        with contextlib.suppress(Exception):  # an abandoned pass must not hide the one around it
            self._forget()

    def __len__(self) -> int:
        return len(self._iterator)


# ---- Accelerator.prepare ----------------------------------------------------------------------------
# ``Accelerator.prepare`` leaves a loader with ``_is_accelerate_prepared`` unchanged: ranks, order and state
# are ours. What else Accelerate's own wrapper would do is done here from the moment that it asks: batches are
# announced to its ``GradientState`` (so that accumulation ends with the epoch, and ``gather_for_metrics``
# drops padding) and go to its device, and its ``DataLoaderConfiguration`` is honoured. Nothing here imports
# Accelerate.

_STATES = "fastload_loaders.json"
_FRAMES = 6  # from the attribute to Accelerator.prepare_data_loader, through wrappers' __getattr__


def is_prepared(loader: Any) -> bool:
    """Return ``loader._is_accelerate_prepared``; if an Accelerator asks, register ``loader`` with it.

    It is False for a loader over an IterableDataset, which Accelerate itself divides among ranks.

    Raises:
        ValueError: the Accelerator's configuration cannot be honoured.
        StateError: it asks for other batches than those that have been iterated over.
    """
    view = viewed(loader, "Accelerate")
    if view.kind is SourceKind.STREAM:
        return False
    let_skip()
    frame = _asking()
    if frame is not None:
        placed = frame.f_locals.get("device_placement")
        _join(view, frame.f_locals["self"], placed)
    return True


def _asking() -> Any:
    """Return the frame of the Accelerator's method that asks, or None."""
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


def _join(loader: AdaptedLoader, accelerator: Any, placed: bool | None) -> None:
    """Do for ``loader`` what Accelerate's own wrapper does for torch's."""
    _divide(loader)
    _check(loader, accelerator)
    if placed is None:
        placed = accelerator.device_placement
    device = accelerator.device if placed else torch.device("cpu")
    _amend(loader, accelerator, device)
    stateful = bool(getattr(accelerator, "use_stateful_dataloader", False))
    to = device if placed and loader.options.device.name is None and device.type != "cpu" else None
    non_blocking = bool(getattr(accelerator, "non_blocking", False))
    loader.follow(Companion(loader, accelerator.gradient_state, to, non_blocking))
    vars(loader.loader)["use_stateful_dataloader"] = stateful  # which Accelerate looks for
    _remember(loader.loader, accelerator)


def _divide(loader: AdaptedLoader) -> None:
    """Divide the loader among ranks, as Accelerate does, unless its sampler knows its rank."""
    order = loader.order.sampler or loader.order.batch_sampler
    if not loader.has_begun and not hasattr(getattr(order, "sampler", order), "num_replicas"):
        loader.divide()


def _check(loader: LoaderView, accelerator: Any) -> None:
    if accelerator.dispatch_batches:
        raise ValueError(
            "Accelerator(dispatch_batches=True) reads all batches on one rank and sends them to the others. "
            "fastload.DataLoader reads each rank's share on that rank, every sample once per epoch. Found: "
            f"dispatch_batches={accelerator.dispatch_batches}. Leave it out."
        )
    world, _ = loader.place_of_rank()
    if loader.options.ranks.are_given or world.has_peers:
        return
    theirs = accelerator.process_index, accelerator.num_processes
    if loader.is_divided and (world.rank, world.size) != theirs:
        raise ValueError(
            f"Accelerate says rank {accelerator.process_index} of {accelerator.num_processes}, the loader "
            f"finds rank {world.rank} of {world.size}. Pass ranks=fastload.Ranks(rank, world_size) to it."
        )


def _amend(loader: AdaptedLoader, accelerator: Any, device: torch.device) -> None:
    """Let ``loader`` make the batches that Accelerate's configuration asks for."""
    size, given = loader.place_of_rank()[0].size, loader.arguments
    changes: dict[str, Any] = {}
    if accelerator.split_batches and size > 1:
        changes["batch_size"] = _share(given, size)
    if size > 1 and given.padding != "drop":
        loader.pad(_padding(given, bool(accelerator.even_batches)))
    wanted = Device.of(given.device)
    if wanted.name is None and device.type == "cuda":
        changes["device"] = device if given.device is None else replace(wanted, name=device)
    if given.seed is None and given.generator is None and accelerator.use_seedable_sampler:
        # As in Accelerate's SeedableRandomSampler: the seed of set_seed(), whatever was drawn since.
        seed = getattr(accelerator.dataloader_config, "data_seed", None)
        seeded = torch.Generator()
        seeded.manual_seed(torch.initial_seed() if seed is None else seed)
        changes["generator"] = seeded
    if not loader.has_begun:
        loader.amend(**changes)
    elif changes.get("batch_size", loader.options.batch_size) != loader.options.batch_size:
        raise StateError(
            "Accelerator(split_batches=True) divides the batch size of a loader that has been iterated over. "
            "Call prepare() before the first iteration."
        )


def _share(given: Arguments, size: int) -> int:
    batch = given.batch_size
    if given.batch_sampler is not None:
        raise ValueError(
            "Accelerator(split_batches=True) divides batches, but a batch_sampler's cannot be divided. "
            "Let the batch_sampler make batches of one rank's size, and leave split_batches out."
        )
    if batch is None or batch % size:
        raise ValueError(
            "With Accelerator(split_batches=True) batch_size must be a multiple of the number of ranks. "
            f"Found: batch_size={batch}, {size} ranks."
        )
    return int(batch) // size


def _padding(given: Arguments, even: bool) -> str:
    """Return the padding of Accelerate's last batch; marks, if asked for, come last over all ranks."""
    if not even:
        return "drop"
    return "end" if given.padding in ("mark", "end") else "repeat"


_told: weakref.WeakSet[Any] = weakref.WeakSet()


def warn_unprepared(loader: Any) -> None:
    """Warn, once per loader, if Accelerate runs several ranks and does not know ``loader``."""
    state = sys.modules["accelerate.state"].AcceleratorState
    view = viewed(loader, "Accelerate")
    if loader in _told or not state._shared_state or view.kind is SourceKind.STREAM:
        return
    _told.add(loader)
    if view.processes.size == 1:
        return
    rows = "its share of the samples is right" if view.is_divided else "each rank reads its whole dataset"
    warnings.warn(
        f"This fastload.DataLoader is iterated over without Accelerator.prepare: {rows}, but "
        "gather_for_metrics keeps the padding of the last batch, gradient accumulation continues past the "
        "epoch's end, and batches are not moved to the device. Pass it to prepare().",
        stacklevel=5,
    )


# ---- save_state and load_state ----------------------------------------------------------------------


def _remember(loader: Any, accelerator: Any) -> None:
    """Let ``save_state`` and ``load_state`` of ``accelerator`` keep the loader's epoch and seed.

    With use_stateful_dataloader Accelerate itself asks for ``state_dict``, and training resumes in mid-epoch.
    Without it, the epoch begins again, and ``skip_first_batches`` leads to its middle.
    """
    loaders: list[weakref.ref[Any]] | None = getattr(accelerator, "_fastload_loaders", None)
    if loaders is None:
        loaders = accelerator._fastload_loaders = []
        accelerator.register_save_state_pre_hook(_Saving(loaders, accelerator))
        accelerator.register_load_state_pre_hook(_Loading(loaders))
    if not any(known() is loader for known in loaders):
        loaders.append(weakref.ref(loader))


class _Saving:
    """A hook that writes the loaders' states beside Accelerate's own files."""

    def __init__(self, loaders: list[weakref.ref[Any]], accelerator: Any) -> None:
        self._loaders = loaders
        self._is_main = bool(accelerator.is_main_process)

    def __call__(self, models: Any, weights: Any, folder: str) -> None:
        loaders = [known() for known in self._loaders]
        states = [None if loader is None else loader.state_dict() for loader in loaders]
        if self._is_main:
            (Path(folder) / _STATES).write_text(json.dumps(states))


class _Loading:
    """A hook that reads these states, and puts each loader at the beginning of its epoch."""

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
