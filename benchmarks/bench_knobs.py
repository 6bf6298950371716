"""Which settings of a loader matter, beside those that autotune moves? A sweep of each, its values in turns.

    python benchmarks/bench_knobs.py IMAGES [--seconds 1] [--rounds 3] [--workdir FOLDER]

Threads and prefetch on pictures of about one size and on uneven ones; the buffers of read-ahead (bytes, and
so how many records are announced) on cold records of a disk as it is, of one limited in bytes and of one
limited in reads per second (both need root). docs/measured/cache.md has the effect of a cache's size.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

from doctor.autotune import Judge
from doctor.scenarios import SCENARIOS, Place, Scenario
from harness.machine import facts
from harness.throttle import NoThrottle

from fastload.backends import native
from fastload.prefetch.engine_calls import plan_read_ahead

ROOT = Path(__file__).parents[1]
THREADS = (1, 2, 3, 4, 8)
DEPTHS = (1, 2, 4, 8)
BUFFERS = (1, 4, 16, 64)  # MiB


@contextmanager
def _buffers(megabytes: int) -> Iterator[None]:
    """Loaders that are made meanwhile read ahead with so much memory, and announce as many records."""

    def planned(*given: Any) -> Any:
        plan = plan_read_ahead(*given)
        share = min(1.0, (megabytes << 20) / max(1, plan.buffer_bytes))
        return replace(
            plan, buffer_bytes=int(plan.buffer_bytes * share), samples=max(1, int(plan.samples * share))
        )

    with mock.patch.object(native, "plan_read_ahead", planned):
        yield


def _named(name: str) -> Scenario:
    return next(one for one in SCENARIOS if one.name == name)


def _cold() -> Scenario:
    return Scenario(
        "cold, the disk as it is", (), "", lambda p: p.loader("copies"), prepare=lambda p: p.evict("copies")
    )


def swept(judge: Judge, knob: str, values: Sequence[int], rounds: int) -> dict[int, float]:
    """The median rate with each value of a knob."""
    loops = []
    for value in values:
        if knob == "read-ahead, MiB":
            with _buffers(value):
                loops.append(judge.started())
        else:
            loops.append(judge.loop(**{knob: value}))
    try:
        return dict(zip(values, judge.in_turns(loops, rounds), strict=True))
    finally:
        for loop in loops:
            loop.close()


def cases() -> list[tuple[Scenario, str, Sequence[int]]]:
    """What is swept where."""
    found: list[tuple[Scenario, str, Sequence[int]]] = [
        (_named("decoding limits"), "num_workers", THREADS),
        (_named("decoding limits"), "prefetch_factor", DEPTHS),
        (_named("uneven pictures"), "prefetch_factor", DEPTHS),
    ]
    slow = [_cold(), _named("a slow disk"), _named("a disk with few reads a second")]
    return found + [(scenario, "read-ahead, MiB", BUFFERS) for scenario in slow]


def main(given: list[str] | None = None) -> int:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("images", type=Path)
    parser.add_argument("--seconds", type=float, default=1.0, help="seconds per run of a loop")
    parser.add_argument("--rounds", type=int, default=3, help="turns of all values of a setting")
    parser.add_argument("--workdir", type=Path, help="folder that keeps the sets made of the images")
    parser.add_argument("--output", type=Path, default=ROOT / "build" / "bench" / "knobs.json")
    options = parser.parse_args(given)
    rows = []
    print("| loop | setting | images/s with each value | lowest of highest |\n|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        place = Place(options.images, (options.workdir or Path(folder)).resolve())
        for scenario, knob, values in cases():
            try:
                with scenario.trouble(place):
                    judge = Judge(scenario, place, options.seconds)
                    rates = swept(judge, knob, values, options.rounds)
            except NoThrottle as error:
                print(f"| {scenario.name} | {knob} | {error} | |")
                continue
            rows.append({"name": scenario.name, "setting": knob, "rates": rates})
            cells = ", ".join(f"{value}: {rate:.0f}" for value, rate in rates.items())
            share = min(rates.values()) / max(rates.values())
            print(f"| {scenario.name} | {knob} | {cells} | {share:.2f} |", flush=True)
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(json.dumps({"rows": rows, "machine": facts()}, indent=1))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
