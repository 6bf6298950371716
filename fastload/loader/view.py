"""What ``diagnose`` and ``integrations`` may know of a DataLoader, and what frameworks may change of one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

from fastload.backends.faults import SampleReport
from fastload.backends.options import Options, Order
from fastload.backends.protocol import Backend
from fastload.dataset.views import SourceKind
from fastload.loader.arguments import Arguments
from fastload.machine.cpu import ThreadPlan
from fastload.prefetch.feeder import BatchKey
from fastload.ranks.world import World
from fastload.sampler import Sampler
from fastload.transforms.plan import Plan


class Clocks(Protocol):
    """A loader of which only the clocks are read."""

    def stats(self) -> dict[str, Any]:
        """Return clocks and counts since the loader began."""


class LoaderView(Clocks, Protocol):
    """A fastload.DataLoader to look at: nothing here starts it or moves its place."""

    @property
    def loader(self) -> Any:
        """The loader itself."""

    @property
    def arguments(self) -> Arguments:
        """What the user wrote."""

    @property
    def options(self) -> Options:
        """What it means; it may change until iteration begins."""

    @property
    def order(self) -> Order:
        """Which samples come when, as far as the arguments say it."""

    @property
    def plan(self) -> Plan:
        """The compiled transform."""

    @property
    def dataset(self) -> Any:
        """The dataset that frameworks see."""

    @property
    def opened(self) -> Any:
        """The dataset that is read: of pictures and targets, the packed one behind them."""

    @property
    def kind(self) -> SourceKind:
        """Who reads the dataset."""

    @property
    def threads(self) -> ThreadPlan:
        """Decoding threads; they may change until iteration begins."""

    @property
    def core(self) -> Sampler:
        """This rank's batches of sample ids, in any epoch."""

    @property
    def backends(self) -> Sequence[Backend]:
        """The back ends that have been started."""

    @property
    def errors(self) -> list[SampleReport]:
        """The bad samples met so far."""

    @property
    def site(self) -> str:
        """The place in the program that made it, the same on all ranks."""

    @property
    def is_divided(self) -> bool:
        """Whether the ranks divide the samples among them."""

    @property
    def processes(self) -> World:
        """Rank and world size of this process, whether or not the ranks divide the samples."""

    def place_of_rank(self) -> tuple[World, int | None]:
        """Return the rank and the world size by which samples are divided, and the seed if it is known."""

    def again(self, **changes: Any) -> LoaderView:
        """Make a loader of the same class over the same open dataset, with some arguments changed."""

    def memory_plan(self) -> dict[str, int]:
        """Return the bytes that iterating allocates."""

    def state_dict(self) -> dict[str, Any]:
        """Return what the consumer has received so far."""

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue where ``state`` was saved."""

    def close(self) -> None:
        """End all threads. Idempotent."""

    def __iter__(self) -> Iterator[Any]: ...

    def __len__(self) -> int: ...


class Batches(Iterator[Any], Protocol):
    """One pass over a loader."""

    @property
    def key(self) -> BatchKey | None:
        """The next batch; None before the first one is requested."""

    def __len__(self) -> int: ...


class Companion(Protocol):
    """What a framework puts around each pass over a loader."""

    def watch(self, iterator: Batches) -> Iterator[Any]:
        """Return what the loop iterates over in place of ``iterator``."""

    def place(self, epoch: int, position: int) -> tuple[int, int]:
        """Return the place that a state has in place of this one."""


class AdaptedLoader(LoaderView, Protocol):
    """A fastload.DataLoader that a framework adapts to itself, before iteration begins."""

    @property
    def has_begun(self) -> bool:
        """Whether rank, world size and seed are fixed."""

    def amend(self, **changes: Any) -> None:
        """Change arguments that the framework decides, before iteration begins."""

    def divide(self) -> None:
        """Divide the samples among the ranks, before iteration begins."""

    def pad(self, padding: str) -> None:
        """Fill the last batch of several ranks this way; see :class:`fastload.sampler.Partition`."""

    def follow(self, companion: Companion) -> None:
        """Let ``companion`` stand around each pass from now on."""

    def iterate_from(self, batch: int) -> Iterator[Any]:
        """Iterate over the next epoch from this batch on."""


def view_of(loader: Any) -> AdaptedLoader | None:
    """Return what may be known of a fastload.DataLoader; None: ``loader`` is something else."""
    view = getattr(loader, "__fastload_view__", None)
    return None if view is None else view()


def viewed(loader: Any, what: str) -> AdaptedLoader:
    """Return what may be known of a fastload.DataLoader; ``what``: who takes it.

    Raises:
        TypeError: it is something else.
    """
    view = view_of(loader)
    if view is None:
        raise TypeError(f"{what} takes a fastload.DataLoader. Found: {type(loader).__name__}.")
    return view
