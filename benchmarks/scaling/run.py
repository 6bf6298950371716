"""One case of bench_threads.py: a job in so many processes of so many threads, measured when it is asked.

    python benchmarks/child.py scaling.run f32 --folder FOLDER --processes 2 --threads 8

Several processes are ranks of one job; each begins a round when all are told to, and their images are summed.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from harness.children import child
from harness.machine import session_cpu
from harness.rounds import Measure, serve
from scaling.work import CONTROLS, JOBS, TORCH, Work, open_job

STAGES = ("shard", "decode", "transform", "prefetch")
ADD_UP = ("rate", "cores")  # of processes; the others are shares


class Part:
    """One process's batches."""

    def __init__(self, work: Work) -> None:
        self._loader, self._sizes = open_job(work)
        self._threads = work.threads
        # What may lie ready when nobody has taken a batch for a while: it must not count as made now.
        self._workers = work.job in TORCH
        self._ready = 0 if work.job in CONTROLS else 2 * work.threads if self._workers else 4
        self.take(self._ready + 1)

    def take(self, count: int) -> int:
        """Samples of so many batches."""
        return sum(next(self._sizes) for _ in range(count))

    def _clocks(self) -> dict[str, float]:
        """Seconds, all threads' added up, since the loader was made."""
        if self._loader is None:
            return {}
        stats = self._loader.stats()
        found = {name: float(stats["stages"][name]["seconds"]) for name in STAGES}
        return {**found, "wait": float(stats["data_wait"]["seconds"])}

    def _cpu(self) -> float:
        """CPU seconds of this process, and of its workers where it has any."""
        return session_cpu(os.getsid(0)) if self._workers else time.process_time()

    def round(self, seconds: float) -> dict[str, float]:
        """Images a second, cores in use, and how the threads and the consumer spent the time."""
        together = self._threads if self._workers else 1  # workers finish their batches nearly together
        self.take(self._ready + together)
        before, cpu, begin, images = self._clocks(), self._cpu(), time.perf_counter(), 0
        while time.perf_counter() - begin < seconds:
            images += self.take(together)
        spent = time.perf_counter() - begin
        found = {"rate": images / spent, "cores": (self._cpu() - cpu) / spent}
        clocks = {name: value - before[name] for name, value in self._clocks().items()}
        if clocks:
            found |= {"waits": clocks.pop("wait") / spent}
            found |= {name: value / (spent * self._threads) for name, value in clocks.items()}
        return found


class Parts:
    """Several processes with a part each."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._processes = [
            subprocess.Popen(
                self._command(options, rank), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            )
            for rank in range(options.processes)
        ]
        for process in self._processes:
            self._answer(process)

    @staticmethod
    def _command(options: argparse.Namespace, rank: int) -> list[str]:
        words = ["--folder", options.folder, "--threads", options.threads, "--seconds", options.seconds]
        return child("scaling.run", options.job, *words, "--rank", rank, "--ranks", options.processes)

    @staticmethod
    def _answer(process: subprocess.Popen[str]) -> dict[str, float]:
        assert process.stdout is not None
        found: dict[str, float] = json.loads(process.stdout.readline())
        return found

    def round(self) -> dict[str, float]:
        """One round of all: the sum of what adds up, the mean of the rest."""
        for process in self._processes:
            assert process.stdin is not None
            process.stdin.write("round\n")
            process.stdin.flush()
        answers = [self._answer(process) for process in self._processes]
        found = {name: sum(answer[name] for answer in answers) for name in answers[0]}
        return {name: value if name in ADD_UP else value / len(answers) for name, value in found.items()}


def answer(part: Part, seconds: float) -> None:
    """A rank's side of Parts."""
    sys.stdout.write(json.dumps({"ready": True}) + "\n")
    sys.stdout.flush()
    for _ in sys.stdin:
        sys.stdout.write(json.dumps(part.round(seconds)) + "\n")
        sys.stdout.flush()


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("job", choices=[*JOBS, *TORCH, *CONTROLS])
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--rank", type=int)
    parser.add_argument("--ranks", type=int, default=1)
    return parser.parse_args()


def start(options: argparse.Namespace) -> Measure:
    """Everything running; what measures a round."""
    if options.processes > 1:
        return Parts(options).round
    part = Part(Work(options.job, options.folder, options.threads))
    return lambda: part.round(options.seconds)


def main() -> None:
    options = parse()
    if options.rank is not None:
        work: Any = Work(options.job, options.folder, options.threads, options.rank, options.ranks)
        answer(Part(work), options.seconds)
        return
    serve(lambda: start(options))


if __name__ == "__main__":
    main()
