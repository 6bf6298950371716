"""``with fastload.diagnose(loader) as d``: a training loop, watched while it runs, and judged afterwards."""

from __future__ import annotations

import os
import sys
import sysconfig
import time
from collections.abc import Callable
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, Any

from fastload.dataset.kind import TorchDataLoader
from fastload.diagnose.facts import Loop, Verdict
from fastload.diagnose.rank_limit import gathered_of, with_ranks
from fastload.diagnose.record import Record, asked_where
from fastload.diagnose.step_facts import OptimizerSteps
from fastload.diagnose.torch_loop import Pass, listen, stop_listening
from fastload.diagnose.usage import Meter
from fastload.errors import StateError

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["Diagnosis", "diagnose"]


def diagnose(loader: Any = None, *, seconds: float = 60.0) -> Diagnosis:
    """Watch a training loop, and say why it waits: ``with fastload.diagnose(loader) as d: ...``.

    Args:
        loader: fastload's or torch's (``torch.utils.data.DataLoader``, or of a class that inherits from
            it); None: all of them whose iteration begins inside.
        seconds: that the experiments may take, which begin when ``d.verdict`` is asked for.

    Returns:
        A context manager. Inside, loops run as they always do. Afterwards ``d.loop`` has what was watched
        and ``d.verdict`` what limits, in words.

    Raises:
        TypeError: ``loader`` is no DataLoader.
    """
    if loader is not None and not isinstance(loader, TorchDataLoader):
        raise TypeError(
            f"diagnose takes a fastload.DataLoader or a torch.utils.data.DataLoader, or nothing for all "
            f"that are iterated inside. Found: {type(loader).__name__}."
        )
    return Diagnosis(loader, seconds)


class Diagnosis:
    """What :func:`diagnose` gives.

    Args:
        loader: None: every loader.
        seconds: for the experiments.
        meter: reads the system's counters.
        clock: seconds.
        warm_up: batches of each loader, besides the first one of a pass, that do not count.
    """

    def __init__(
        self,
        loader: Any = None,
        seconds: float = 60.0,
        meter: Meter | None = None,
        clock: Callable[[], float] = time.perf_counter,
        warm_up: int = 0,
    ) -> None:
        self._loader = loader
        self._seconds = seconds
        self.meter = meter or Meter()
        self._warm_up = warm_up
        self._optimizers = OptimizerSteps()
        self._clock = clock
        self._records: dict[int, Record] = {}
        self._verdict: Verdict | None = None

    def __enter__(self) -> Self:
        listen(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        stop_listening(self)
        self.close()
        if error is None and self.records:
            gathered_of(self.loader)  # for the ranks that are asked for a verdict

    def close(self) -> None:
        """Nothing more is watched; idempotent."""
        self._optimizers.end()
        for record in self._records.values():
            record.end()

    def next(self, iterator: Any, of: Pass, proceed: Callable[[], Any]) -> Any:
        """See :class:`fastload.diagnose.torch_loop.Listener`."""
        loader = of.loader
        if loader is None or (self._loader is not None and loader is not self._loader):
            return proceed()
        return self.record_of(loader).next(iterator, of, proceed)

    def record_of(self, loader: Any) -> Record:
        """What is kept of ``loader``."""
        record = self._records.get(id(loader))
        if record is None:
            where = asked_where(_LIBRARIES)
            record = self._successor_of(loader, where)
            if record is None:
                record = Record(loader, where, self.meter, self._clock, self._warm_up, self._optimizers)
                self._optimizers.begin()
            self._records[id(loader)] = record
        return record

    def _successor_of(self, loader: Any, where: str) -> Record | None:
        """The record of a loader that ``loader`` follows: each epoch of some scripts makes a new one.

        It was asked in the same place, is made in the same way, and nobody but its record has it any more.
        """
        for known, record in self._records.items():
            alike = record.where == where and all(
                getattr(record.loader, name, None) == getattr(loader, name, None)
                for name in ("__class__", "batch_size", "num_workers")
            )
            if alike and sys.getrefcount(record.loader) <= _HELD_BY_RECORD:
                record.loader = loader
                del self._records[known]
                return record
        return None

    @property
    def records(self) -> list[Record]:
        """Of each loader that was watched: training before validation, then the busiest first."""
        found = [record for record in self._records.values() if record.is_enough]
        return sorted(found, key=lambda one: (one.with_grad * 2 <= one.batches, -one.seconds))

    @property
    def all_records(self) -> list[Record]:
        """Of every loader that was asked for a batch, however few it had."""
        return list(self._records.values())

    @property
    def loader(self) -> Any:
        """The loader of :attr:`loop`.

        Raises:
            StateError: as there.
        """
        return self._busiest().loader

    @property
    def loop(self) -> Loop:
        """The loop that was watched; with several loaders the busiest one's that trains.

        Raises:
            StateError: too few batches were asked for inside.
        """
        record = self._busiest()
        loop = record.loop()
        others = [other.loop() for other in self.records if other is not record]
        return loop if not others else _with_note(loop, "other_loops", others)

    @property
    def loops(self) -> list[Loop]:
        """Of every loader that had batches enough, :attr:`loop` first."""
        return [record.loop() for record in self.records]

    @property
    def verdict(self) -> Verdict:
        """What limits the loop, and what would help. The first time, experiments run for it.

        Raises:
            StateError: as for :attr:`loop`.
        """
        if self._verdict is None:
            loop = self.loop
            from fastload.diagnose.doctor import examine  # experiments and packing, only if asked for

            self._verdict = examine(self.loader, loop, None, seconds=self._seconds)
            ranks = gathered_of(self.loader)  # in the meantime the others have left their loops, too
            if ranks is not None:
                self._verdict = with_ranks(self._verdict, ranks, self.loader._arranged.known()[0].rank)
        return self._verdict

    def _busiest(self) -> Record:
        found = self.records
        if found:
            return found[0]
        what = "this loader" if self._loader is not None else "any loader"
        most = max((record.batches for record in self._records.values()), default=0)
        raise StateError(
            f"Too few batches of {what} were asked for inside of diagnose(): {most} count, at least 2 "
            f"must, and the first batch of an epoch and the one without a next() after it do not. "
            f"Run the training loop inside of the with block, from its for statement on."
        )


def _with_note(loop: Loop, name: str, value: object) -> Loop:
    return replace(loop, notes={**loop.notes, name: value})


def _folder(path: str) -> str:
    return os.path.join(os.path.abspath(path), "")


_HELD_BY_RECORD = 2  # references: the record's, and the question's own

# Where frames are not the user's: torch and other packages, the standard library, and ourselves.
_LIBRARIES = tuple(
    {
        _folder(sysconfig.get_path("purelib")),
        _folder(sysconfig.get_path("platlib")),
        _folder(sysconfig.get_path("stdlib")),
        _folder(os.path.dirname(sys.modules["torch"].__path__[0])),
        _folder(os.path.dirname(os.path.dirname(__file__))),
    }
)
