"""What a loader was doing from moment to moment, by its own clocks."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fastload.machine.threads import start_beside

if TYPE_CHECKING:
    from fastload.loader.data_loader import DataLoader

__all__ = ["STAGES", "History", "Moments"]

STAGES = ("shard", "decode", "transform")


class Moments:
    """A loader's clocks at several moments.

    Args:
        rows: of each moment: time, samples decoded, samples delivered, threads at once, and each stage's
            seconds, summed over threads.
        batch_size: samples a batch.
    """

    def __init__(self, rows: list[tuple[float, ...]], batch_size: int) -> None:
        self._rows: NDArray[np.float64] = np.array(rows, np.float64).reshape(-1, 4 + len(STAGES))
        self.batch_size = batch_size

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def times(self) -> NDArray[np.float64]:
        """Seconds since the first moment."""
        times: NDArray[np.float64] = self._rows[:, 0] - self._rows[0, 0]
        return times

    @property
    def ahead(self) -> NDArray[np.float64]:
        """The queue's depth: batches' worth of samples that are decoded and not yet delivered."""
        return (self._rows[:, 1] - self._rows[:, 2]) / self.batch_size

    @property
    def threads(self) -> int:
        """How many threads there were at once, at most."""
        return int(self._rows[:, 3].max())

    def busy(self, columns: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Threads that were busy with each stage.

        Clocks advance when a sample is done, so that nothing shows between two moments of less than that:
        they are taken together until there are at most ``columns`` of them.

        Returns:
            edges in seconds (n + 1,), and threads (stages, n).
        """
        last = len(self._rows) - 1
        picked = np.unique(np.linspace(0, last, min(columns, last) + 1).astype(np.int64))
        rows = self._rows[picked]
        spans = np.maximum(np.diff(rows[:, 0]), 1e-9)
        return self.times[picked], (np.diff(rows[:, 4:], axis=0) / spans[:, None]).T


class History:
    """Looks at a loader's clocks again and again, from a thread of its own, while the loader is used.

    ``with History(loader) as history: ...`` around a part of the training loop. Each look takes some 0.15 ms.

    Args:
        every: seconds between two looks.
        most: looks that are kept; then every second one is dropped, and the time between them is doubled.
    """

    def __init__(self, loader: DataLoader[Any], every: float = 0.025, most: int = 4096) -> None:
        if every <= 0 or most < 16:
            raise ValueError(f"every must be > 0 seconds and most >= 16. Found: every={every}, most={most}.")
        self._loader = loader
        self._every, self._most = every, most
        self._rows: list[tuple[float, ...]] = []
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> History:
        self._look()
        self._thread = start_beside(self._run, "fastload-history", self._ended.set)
        return self

    def __exit__(self, *exception: object) -> None:
        self._ended.set()
        if self._thread is not None:
            self._thread.join()
        self._look()

    @property
    def moments(self) -> Moments:
        """What was seen so far."""
        return Moments(list(self._rows), self._loader._arranged.batch_size)

    def _run(self) -> None:
        while not self._ended.wait(self._every):
            self._look()
            if len(self._rows) >= self._most:
                self._rows = self._rows[::2]
                self._every *= 2

    def _look(self) -> None:
        now, stats = time.perf_counter(), self._loader.stats()
        stages = stats["stages"]
        counts = (stages["decode"]["count"], stats["samples"], stats["threads"])
        self._rows.append((now, *counts, *(stages[name]["seconds"] for name in STAGES)))
