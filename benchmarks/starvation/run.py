"""One feed that trains one model, for bench_starvation.py: a process that measures a round when it is asked.

    python benchmarks/child.py starvation.run fastload --images FOLDER --packed FOLDER --model resnet18

Data wait on the CPU is the time in ``next()``. On CUDA the host runs ahead of the device, so that its own
waiting proves nothing: there it is the time between one step's end and the next one's beginning on the
device's stream, by events. It includes the copy where the loader leaves that to the training loop.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from harness.rounds import Clock, Measure, serve, skip
from starvation.copies import profile_copies
from starvation.feeds import FEEDS, Work, reason_to_skip
from starvation.training_step import AMP, MODELS, Trainer, synchronize, wake

PROFILED_STEPS = 10
LEAST_STEPS = 5


class Loop:
    """Training on one feed."""

    def __init__(self, name: str, work: Work, trainer: Trainer) -> None:
        self._feed: Iterator[Any] = FEEDS[name].open(work)
        self._ahead = FEEDS[name].ahead(work)
        self._trainer = trainer
        self._cuda = work.device != "cpu"
        self._batch = work.batch
        self._waited = 0.0
        self._ends: list[Any] = []
        self._begins: list[Any] = []

    def step(self) -> None:
        """One step, with its marks on the device's stream."""
        before = time.perf_counter()
        batch = next(self._feed)
        self._waited += time.perf_counter() - before
        images, labels = self._trainer.place(*batch)
        self._mark(self._begins)
        self._trainer.step(images, labels)
        self._mark(self._ends)

    def _mark(self, marks: list[Any]) -> None:
        if self._cuda:
            marks.append(torch.cuda.Event(enable_timing=True))
            marks[-1].record()

    def warm_up(self, seconds: float) -> None:
        """Take what lies ready, and go on until ``seconds`` are over."""
        begin, steps = time.monotonic(), 0
        while steps < self._ahead + 3 or time.monotonic() - begin < seconds:
            self.step()
            steps += 1
        synchronize(self._trainer.device)

    def measure(self, seconds: float, least: int = LEAST_STEPS) -> dict[str, float]:
        """Train for ``seconds`` and at least so many steps; means over them."""
        self._waited, self._begins, self._ends = 0.0, [], []
        clock, begin, steps = Clock(), time.perf_counter(), 0
        while steps < least or time.perf_counter() - begin < seconds:
            self.step()
            steps += 1
        synchronize(self._trainer.device)
        total = clock.read()
        host = 1000 * self._waited / steps
        device = self._gaps() if self._cuda else host
        step = 1000 * total["seconds"] / steps
        return {
            "steps": steps,
            "step_ms": step,
            "wait_ms": device,
            "wait_share": device / step,
            "host_wait_ms": host,
            "rate": steps * self._batch / total["seconds"],
            "cores": total["cores"],
        }

    def _gaps(self) -> float:
        """Mean milliseconds between one step's end and the next one's beginning, on the device."""
        pairs = list(zip(self._ends[:-1], self._begins[1:], strict=True))
        return float(sum(end.elapsed_time(begin) for end, begin in pairs)) / len(pairs)

    def copies(self) -> dict[str, float]:
        """Copies from the host and how much of them is hidden."""
        values = profile_copies(self.step, PROFILED_STEPS)
        self._begins, self._ends = [], []
        return values


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("feed", choices=list(FEEDS))
    parser.add_argument("--images", type=Path, required=True)
    parser.add_argument("--packed", type=Path, required=True)
    parser.add_argument("--model", choices=list(MODELS), required=True)
    parser.add_argument("--device", choices=("cuda", "cpu"), required=True)
    parser.add_argument("--amp", choices=list(AMP), default="off")
    parser.add_argument("--batch", type=int, required=True)
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--warm-up", type=float, default=0.5)
    parser.add_argument("--copies", action="store_true", help="profile the copies in the first round")
    return parser.parse_args()


def start(options: argparse.Namespace) -> Measure:
    """The loop, warm; what measures a round of it."""
    names = ("images", "packed", "batch", "size", "threads", "device")
    work = Work(**{name: getattr(options, name) for name in names})
    loop = Loop(options.feed, work, Trainer(options.model, options.device, amp=options.amp))
    loop.warm_up(options.warm_up)
    wanted = options.copies and options.device == "cuda"  # of the first round only

    def measure() -> dict[str, float]:
        nonlocal wanted
        loop.warm_up(options.warm_up)
        values = loop.measure(options.seconds)
        if wanted:
            values |= loop.copies()
        wanted = False
        return values

    return measure


def main() -> None:
    options = parse()
    if reason := reason_to_skip(options.feed, options.device):
        skip(reason)
    wake(options.device)
    serve(lambda: start(options))


if __name__ == "__main__":
    main()
