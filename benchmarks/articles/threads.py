"""The number of threads (torch: worker processes) swept: float32 images a second, in host memory."""

from __future__ import annotations

import time
from collections.abc import Sequence

from harness.measure import Run, table
from harness.rounds import Clock
from starvation.feeds import FEEDS

from articles import data
from articles.data import work
from articles.setting import Chart, Measure, Setting, done, summary

NAMES = ("fastload", "torch_pil")
prepare = data.prepare


def counts(setting: Setting) -> list[int]:
    """1, 2, 4, ... and the number asked for."""
    found = [2**power for power in range(10) if 2**power < setting.threads]
    return [*found, setting.threads]


def cases(setting: Setting) -> Sequence[str]:
    return [f"{name} {count}" for name in NAMES for count in counts(setting)]


def start(case: str, setting: Setting) -> Measure:
    name, _, count = case.partition(" ")
    job = work(setting, int(count), "cpu")
    feed = FEEDS[name].open(job)

    def measure() -> dict[str, float]:
        for _ in range(FEEDS[name].ahead(job) + job.threads):
            next(feed)
        clock, begin, batches = Clock(), time.perf_counter(), 0
        while time.perf_counter() - begin < setting.seconds:
            for _ in range(job.threads):  # whole rounds of all workers, which finish nearly together
                next(feed)
            batches += job.threads
        values = clock.read()
        return {"rate": batches * job.batch / values["seconds"], "cores": values["cores"]}

    return measure


def report(runs: Sequence[Run], setting: Setting) -> str:
    names = done(runs)
    rows = []
    for count in counts(setting):
        row = [str(count)]
        for name in NAMES:
            here = f"{name} {count}" in names
            row.append(summary(runs, f"{name} {count}", "rate").text() if here else "failed")
        rows.append(row)
    return table(["threads", *(f"{name}, images/s" for name in NAMES)], rows)


def chart(runs: Sequence[Run], setting: Setting) -> Chart:
    series = {
        name: {
            case.partition(" ")[2]: summary(runs, case, "rate")
            for case in done(runs)
            if case.startswith(name)
        }
        for name in NAMES
    }
    return Chart("Threads (torch: workers)", "images/s", "lines", series)
