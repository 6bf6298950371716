"""One side of one job of bench_detection.py, in its own interpreter; harness/rounds.py's protocol.

python benchmarks/child.py detection.run SIDE JOB --work FOLDER --workers 2 --seconds 3 [--variant pil]
"""

from __future__ import annotations

import argparse
import gc
import importlib
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from harness.rounds import Clock, Measure, serve

from detection.jobs import JOBS

LOADED_AHEAD = 3  # batches a worker that may be ready when a round begins, at most
# Rounds before the first: until the memory of all batches that are prefetched was used once, each new one
# is pages that the kernel fills with zeros. Jobs run for hours.
WARM = 1.0


def measured(batches: Iterator[int], batch: int, workers: int, seconds: float) -> dict[str, Any]:
    """Take what was ready, then whole rounds of ``workers`` batches for ``seconds``."""
    for _ in range(LOADED_AHEAD * max(workers, 1)):
        next(batches)
    clock, count, ends = Clock(), 0, time.perf_counter() + seconds
    while time.perf_counter() < ends:
        for _ in range(max(workers, 1)):
            next(batches)
            count += batch
    found = clock.read()
    micros = 1e6 * found["seconds"] / count
    cpu = 1e6 * found["cpu_seconds"] / count
    return {"rate": count / found["seconds"], "micros": micros, "cpu_micros": cpu, "samples": count}


def main() -> None:
    """Serve rounds."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("side")
    parser.add_argument("job", choices=list(JOBS))
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--variant", default="")
    options = parser.parse_args()
    job = JOBS[options.job]
    side = importlib.import_module(f"detection.{options.side}")

    def start() -> Measure:
        batches = side.batches(job, options.variant, options.workers, options.work)
        ends = time.perf_counter() + WARM * options.seconds
        while next(batches) and time.perf_counter() < ends:
            pass
        gc.freeze()
        return lambda: measured(batches, job.batch, options.workers, options.seconds)

    serve(start)


if __name__ == "__main__":
    main()
