"""Windows of a loader: which samples have one, and in which order they come."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from torch.utils.data import Subset

from fastload.backends.options import Options, Order
from fastload.dataset.mixture import MixedFiles
from fastload.dataset.views import SourceKind, open_dataset
from fastload.dataset.windows import WindowPlan, ids_of, windows_of
from fastload.errors import StateError
from fastload.sample.windows import Windows
from fastload.shard.dataset import PackedFiles


class LoaderWindows:
    """The windows of one loader.

    Args:
        dataset: the opened dataset.
        kind: how it is read.
        windows: what is asked for.

    Raises:
        ValueError, FormatError: see :func:`fastload.dataset.windows.windows_of`; or no packed dataset.
    """

    def __init__(self, dataset: Any, kind: SourceKind, windows: Windows) -> None:
        if kind is not SourceKind.PACKED:
            raise ValueError(
                "windows are for packed datasets; a torch Dataset makes its own samples. Found: "
                f"{type(dataset).__name__}. Pack it ('fastload pack') to use them."
            )
        self._plan, places = windows_of(dataset, windows)
        #: The dataset with the samples that have a window.
        self.dataset = dataset if places is None else open_dataset(Subset(dataset, places))  # type: ignore[arg-type]
        self._leaves_out = places is not None

    def options(self, options: Options) -> Options:
        """Return the options with the windows' plan."""
        return replace(options, windows=self._plan)

    def order(self, order: Order) -> Order:
        """Return the order, by ``Windows.per_run`` if that is given.

        Raises:
            ValueError: a sampler or blocks give another one.
        """
        windows = self._plan.windows
        if self._leaves_out and (order.is_given or order.block is not None):
            given = "shuffle='block'" if order.block is not None else "a sampler"
            raise ValueError(
                f"Windows leaves samples out (stride={windows.stride}, drop_short={windows.drop_short}), and "
                f"{given} is of the whole dataset: its numbers would mean other samples. Leave out one of "
                "them. A sampler alone may choose the samples, or a torch Subset."
            )
        if windows.per_run is None:
            return order
        if isinstance(self.dataset, MixedFiles) and not self.dataset.is_whole:
            raise ValueError(
                f"Windows(per_run={windows.per_run}) has so many samples of each run, and the weights and "
                "num_samples of a mix say otherwise. Leave these out, or per_run."
            )
        if order.is_given or order.block is not None:
            given = "shuffle='block'" if order.block is not None else "sampler"
            raise ValueError(
                f"Windows(per_run={windows.per_run}) and {given} exclude each other: both give the order."
            )
        ids = ids_of(self.dataset)
        if len(ids) < getattr(self.dataset, "num_ids", 0) and isinstance(self.dataset, PackedFiles):
            raise ValueError(
                f"Windows(per_run={windows.per_run}) counts all samples of a run, and {self.dataset.where} "
                "has dropped ones. Pack it anew, which leaves them out ('fastload pack')."
            )
        return replace(order, sampler=self._plan.per_run_sampler(ids, bool(order.shuffle)), shuffle=None)

    def of_generations(self, files: list[PackedFiles]) -> None:
        """Take the windows of the generation that a job goes on with.

        Raises:
            StateError: epochs have different ones, whose runs may end elsewhere.
        """
        if len({one.id for one in files}) > 1:
            raise StateError(
                "Windows are of one generation of a set: in others a run may go on. Found: a state of a job "
                f"that takes in generations of {files[0].where} one after the other. Begin a new run with "
                "the newest one."
            )
        self._plan = WindowPlan(files[0], self._plan.windows)
