"""A training script's samples a second: runs it for some seconds and counts what its DataLoaders give.

    python benchmarks/doctor/case_rate.py --seconds 6 SCRIPT.py [ARGUMENTS]

The script runs as __main__, unchanged. The clock starts with the first batch and what came with it within the
first second, as workers load some ahead meanwhile; starts of further epochs count. The last line of output is
one JSON object: rank, samples, batches, seconds, rate, and the seconds to the first batch.
"""

from __future__ import annotations

import argparse
import json
import os
import runpy
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import dataloader

__all__ = ["run"]

SETTLING = 1.0  # seconds from the first batch on that do not count
LATE = 60.0  # seconds after which a script that gives no more batches is ended
STILL = 5.0  # seconds without a batch, after the time is over


class Stop(BaseException):
    """The time is over; no Exception, so that the script does not take it for a failure of its own."""


def samples_of(batch: Any) -> int:
    """The first dimension of the first tensor in a batch; the batch's own length where there is none."""
    found = _first_dimension(batch)
    return found or (len(batch) if isinstance(batch, Sequence) else 0)


def _first_dimension(batch: Any) -> int:
    if isinstance(batch, torch.Tensor):
        return int(batch.shape[0]) if batch.ndim else 1
    if isinstance(batch, Mapping):
        batch = list(batch.values())
    if isinstance(batch, Sequence) and not isinstance(batch, (str, bytes)):
        return next((n for value in batch if (n := _first_dimension(value))), 0)
    return 0


class Counter:
    """Samples and batches since the clock's start."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.born = time.perf_counter()
        self.first = self.begin = self.end = 0.0
        self.samples = self.batches = 0
        self._said = threading.Lock()

    def count(self, batch: Any) -> None:
        """One more batch; raises Stop when the time is over."""
        now = time.perf_counter()
        if not self.first:
            self.first = now
        elif not self.begin and now - self.first >= min(SETTLING, self.seconds / 4):
            self.begin = self.end = now
        elif self.begin:
            self.samples += samples_of(batch)
            self.batches += 1
            self.end = now
        if self.begin and now - self.begin >= self.seconds:
            raise Stop

    def watch(self) -> None:
        """End the process when no batch comes any more: a rank may wait for one that has ended."""
        while True:
            time.sleep(0.5)
            now = time.perf_counter()
            over = self.begin and now - self.begin > self.seconds and now - self.end > STILL
            if over or now - max(self.end, self.first, self.born) > LATE:
                self.say()
                os._exit(0 if self.batches else 1)

    def say(self) -> None:
        """Print what was found, once."""
        if not self._said.acquire(blocking=False):
            return
        seconds = self.end - self.begin
        found = {
            "rank": int(os.environ.get("RANK", "0")),
            "samples": self.samples,
            "batches": self.batches,
            "seconds": seconds,
            "rate": self.samples / seconds if seconds > 0 else 0.0,
            "first_batch": self.first - self.born if self.first else None,
        }
        sys.stdout.write(json.dumps(found) + "\n")
        sys.stdout.flush()


def run(script: Path, arguments: Sequence[str], seconds: float) -> None:
    """Run a script and print what it gave; raises what it raises."""
    counter = Counter(seconds)
    plain = dataloader._BaseDataLoaderIter.__next__

    def counted(self: Any) -> Any:
        batch = plain(self)
        counter.count(batch)
        return batch

    # Iterators are their own __next__ by this one attribute.
    dataloader._BaseDataLoaderIter.__next__ = counted  # type: ignore[method-assign]
    threading.Thread(target=counter.watch, daemon=True).start()
    sys.argv = [str(script), *arguments]
    sys.path[0] = str(script.resolve().parent)
    try:
        runpy.run_path(str(script), run_name="__main__")
    except Stop:
        counter.say()
    except Exception:
        # Another rank has ended, and a collective with it.
        if "RANK" not in os.environ or counter.end - counter.begin < seconds / 2:
            raise
        counter.say()
    if "RANK" in os.environ:
        os._exit(0)  # without waiting for the process group's other ranks


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=6.0)
    parser.add_argument("script", type=Path)
    parser.add_argument("arguments", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    run(options.script, options.arguments, options.seconds)


if __name__ == "__main__":
    main()
