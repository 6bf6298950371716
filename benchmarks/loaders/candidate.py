"""One run of one loader candidate, in the interpreter of its own environment; prints one JSON line.

    python benchmarks/child.py loaders.candidate NAME prepare --folder IMAGES --workdir DIR
    python benchmarks/child.py loaders.candidate NAME run --folder IMAGES --workdir DIR --job train_u8

NAME is a file of candidates/, or one and a variant of it: ``ffcv_raw256`` is variant ``raw256`` of
candidates/ffcv.py. Such a file imports nothing but the standard library when it is loaded, and has

    VARIANTS                                            names of its variants; () if it has none
    versions()                                          imports all a run needs; library -> version
    prepare(variant, folder, workdir)                   writes what a run reads, once; may do nothing
    batches(job, variant, threads, folder, workdir)     endless iterator over the sizes of the batches
                                                        it makes, epoch after epoch

Standard library only: rivals' environments have neither fastload nor the others' libraries.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import json
import os
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from types import ModuleType
from typing import Any

from harness.machine import session_cpu, session_memory
from loaders.jobs import JOBS

__all__ = ["find", "names", "rate"]

FOLDER = Path(__file__).parent / "candidates"
WARM_UP_SECONDS = 1.0  # at most; a run shorter than this warms up as long as it measures


def names() -> list[str]:
    """The candidates there are, without their variants."""
    return sorted(path.stem for path in FOLDER.glob("*.py"))


def find(name: str) -> tuple[ModuleType, str]:
    """The module of candidate ``name``, and the variant the name asks for ("" for none)."""
    for stem in sorted(names(), key=len, reverse=True):
        if name == stem or name.startswith(stem + "_"):
            module = importlib.import_module(f"loaders.candidates.{stem}")
            variant = name[len(stem) + 1 :]
            if variant and variant not in module.VARIANTS:
                raise SystemExit(f"{stem} has no variant {variant!r}; it has {', '.join(module.VARIANTS)}.")
            return module, variant
    raise SystemExit(f"There is no candidate {name!r}; there are {', '.join(names())}.")


def rate(sizes: Iterator[int], threads: int, seconds: float, started: float) -> dict[str, float]:
    """Consume batches: first one, warm-up, then whole rounds of ``threads`` batches for ``seconds``.

    Whole rounds, because n workers finish their batches nearly together: a run that ended inside a
    burst would count work that the next burst's time has to pay for.
    """
    next(sizes)
    first = time.monotonic()
    rounds = 0
    while rounds < 2 or time.monotonic() - first < min(WARM_UP_SECONDS, seconds):
        for _ in range(threads):
            next(sizes)
        rounds += 1
    begin, busy = time.monotonic(), session_cpu(os.getsid(0))
    now = begin
    images = 0
    while now - begin < seconds:
        for _ in range(threads):
            images += next(sizes)
        now = time.monotonic()
    busy = session_cpu(os.getsid(0)) - busy
    return {
        "first_batch": first - started,
        "images": images,
        "seconds": now - begin,
        "rate": images / (now - begin),
        "rate_per_cpu": images / max(busy, 0.01),  # the clock ticks every 0.01 s
    }


def run(arguments: argparse.Namespace) -> dict[str, Any]:
    """Measure one job; seconds count from the start of the process."""
    started = float(os.environ.get("BENCH_STARTED", time.monotonic()))
    module, variant = find(arguments.name)
    versions = module.versions()
    imported = time.monotonic() - started
    job = JOBS[arguments.job]
    if arguments.batch:
        job = replace(job, batch=arguments.batch)
    sizes = module.batches(job, variant, arguments.threads, arguments.folder, arguments.workdir)
    result: dict[str, Any] = rate(sizes, arguments.threads, arguments.seconds, started)
    result["memory_at_end"] = asdict(session_memory(os.getsid(0)))  # all that the loader has made is alive
    sizes.close()
    gc.collect()  # worker processes end and are waited for: their CPU time counts as this run's
    result["imports"] = imported
    result["first_after_imports"] = result["first_batch"] - imported
    return {**result, "threads": arguments.threads, "versions": versions}


def prepare(arguments: argparse.Namespace) -> dict[str, Any]:
    """Let the candidate write what it reads."""
    module, variant = find(arguments.name)
    arguments.workdir.mkdir(parents=True, exist_ok=True)
    begin = time.monotonic()
    module.prepare(variant, arguments.folder, arguments.workdir)
    return {"seconds": time.monotonic() - begin}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("name")
    parser.add_argument("action", choices=["prepare", "run"])
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--workdir", type=Path, required=True)
    parser.add_argument("--job", choices=list(JOBS), default="train_u8")
    parser.add_argument("--batch", type=int, help="images in a batch, other than the job's")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=4.0)
    arguments = parser.parse_args()
    result = run(arguments) if arguments.action == "run" else prepare(arguments)
    print(json.dumps(result), flush=True)
    sys.stderr.flush()
    os._exit(0)  # what is measured is over: no waiting for a library's worker threads to end


if __name__ == "__main__":
    main()
