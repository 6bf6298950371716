"""Where the time of a step goes: load, copy to the device, forward, backward, optimiser's step.

The device is waited for after each part, so that the parts add up: nothing overlaps here as it does in
training.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Sequence

from harness.measure import Run, table
from harness.rounds import skip
from starvation.feeds import FEEDS, reason_to_skip
from starvation.training_step import Trainer, synchronize

from articles import data
from articles.data import work
from articles.setting import Chart, Measure, Setting, done, summary

PARTS = ("load", "copy", "forward", "backward", "step")
NAMES = ("torch_pil", "fastload_host", "fastload")
prepare = data.prepare


def cases(setting: Setting) -> Sequence[str]:
    return NAMES


def start(case: str, setting: Setting) -> Measure:
    if reason := reason_to_skip(case, setting.device):
        skip(reason)
    feed = FEEDS[case].open(work(setting))
    ahead = FEEDS[case].ahead(work(setting))
    trainer = Trainer(setting.model, setting.device, amp=setting.amp)

    def step() -> list[float]:
        """perf_counter() before the first part and after each."""
        times = [time.perf_counter()]

        def mark() -> None:
            synchronize(trainer.device)
            times.append(time.perf_counter())

        batch = next(feed)
        mark()
        images, labels = trainer.place(*batch)
        mark()
        loss = trainer.forward(images, labels)
        mark()
        trainer.backward(loss)
        mark()
        trainer.update()
        mark()
        return times

    def measure() -> dict[str, float]:
        for _ in range(ahead + 2):
            step()
        begin, marks = time.perf_counter(), []
        while len(marks) < 5 or time.perf_counter() - begin < setting.seconds:
            marks.append(step())
        spans = [[1000 * (b - a) for a, b in itertools.pairwise(m)] for m in marks]
        return {part: sum(span[i] for span in spans) / len(spans) for i, part in enumerate(PARTS)}

    return measure


def report(runs: Sequence[Run], setting: Setting) -> str:
    rows = []
    for name in done(runs):
        parts = [summary(runs, name, part) for part in PARTS]
        rows.append([name, *(part.text(2) for part in parts), f"{sum(part.median for part in parts):.2f}"])
    note = (
        f"{setting.model}, batches of {setting.batch}, {setting.size}x{setting.size}, AMP {setting.amp}, "
        f"{setting.device}; milliseconds a batch."
    )
    if setting.device == "cpu":
        note += " Copy: nothing to copy without a GPU, except into the model's memory layout."
    return f"{note}\n\n{table(['loader', *PARTS, 'sum of medians'], rows)}"


def chart(runs: Sequence[Run], setting: Setting) -> Chart:
    series = {part: {name: summary(runs, name, part) for name in done(runs)} for part in PARTS}
    return Chart("Where the time of a batch goes", "milliseconds", "stacked", series)
