"""Training made faster one change at a time: baseline, then I/O, then AMP, then DataParallel against DDP.

The last two need several GPUs; DDP runs tools/train.py under torchrun, with as many processes as there are
GPUs (or --ranks, also on the CPU), and its figure is that of the second of two epochs.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from harness.measure import Run, failures, table
from harness.rounds import Clock, skip
from starvation.feeds import FEEDS
from starvation.tables import reason_of
from starvation.training_step import Trainer, synchronize

from articles import data
from articles.data import work
from articles.setting import Chart, Measure, Setting, done, summary

TRAIN = Path(__file__).resolve().parents[2] / "tools" / "train.py"
# name: feed, threads (None: as asked for), AMP, channels_last, DataParallel
RUNGS: dict[str, tuple[str, int | None, bool, bool, bool]] = {
    "baseline: torch DataLoader, 0 workers": ("torch_pil", 0, False, False, False),
    "I/O: torch DataLoader with workers": ("torch_pil", None, False, False, False),
    "I/O: fastload": ("fastload", None, False, False, False),
    "AMP and channels_last": ("fastload", None, True, True, False),
    "DataParallel": ("fastload", None, True, True, True),
}
DDP = "DistributedDataParallel"
prepare = data.prepare


def cases(setting: Setting) -> Sequence[str]:
    return [*RUNGS, DDP]


def start(case: str, setting: Setting) -> Measure:
    if case == DDP:
        return distributed(setting)
    feed_name, threads, amp, layout, parallel = RUNGS[case]
    if parallel and setting.gpus < 2:
        skip(f"needs two GPUs, here are {setting.gpus}")
    job = work(setting, threads)
    feed = FEEDS[feed_name].open(job)
    precision = ("bf16" if setting.amp == "off" else setting.amp) if amp else "off"
    trainer = Trainer(setting.model, setting.device, amp=precision, channels_last=layout, parallel=parallel)

    def measure() -> dict[str, float]:
        for _ in range(FEEDS[feed_name].ahead(job) + 2):
            trainer.step(*trainer.place(*next(feed)))
        synchronize(trainer.device)
        clock, begin, steps = Clock(), time.perf_counter(), 0
        while steps < 3 or time.perf_counter() - begin < setting.seconds:
            trainer.step(*trainer.place(*next(feed)))
            steps += 1
        synchronize(trainer.device)
        values = clock.read()
        return {"rate": steps * job.batch / values["seconds"], "cores": values["cores"]}

    return measure


def distributed(setting: Setting) -> Measure:
    """A round is a run of the training script."""
    ranks = setting.ranks or setting.gpus
    if ranks < 2:
        skip(f"needs two GPUs, here are {setting.gpus} (--ranks 2 tries it on the CPU)")
    log = setting.folder / "ddp.jsonl"
    command = [
        sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks),
        str(TRAIN), str(setting.folder / "packed"), "--model", setting.model, "--size", str(setting.size),
        "--batch-size", str(setting.batch), "--amp", "bf16" if setting.amp == "off" else setting.amp,
        "--epochs", "2", "--device", setting.device, "--log-file", str(log),
    ]  # fmt: skip

    def measure() -> dict[str, float]:
        log.unlink(missing_ok=True)
        subprocess.run(command, check=True, stdout=sys.stderr)
        epochs = [json.loads(line) for line in log.read_text().splitlines()]
        return {"rate": epochs[-1]["images_per_second"], "ranks": epochs[-1]["world_size"]}

    return measure


def report(runs: Sequence[Run], setting: Setting) -> str:
    names, bad = done(runs), failures(runs)
    first = summary(runs, next(iter(RUNGS)), "rate").median if next(iter(RUNGS)) in names else None
    rows, before = [], first
    for name in cases(setting):
        if name not in names:
            rows.append([name, reason_of(bad.get(name, "")) or "failed", "", ""])
            continue
        rate = summary(runs, name, "rate")
        over = [f"{rate.median / other:.2f}x" if other else "-" for other in (before, first)]
        rows.append([name, rate.text(), *over])
        before = rate.median
    note = f"{setting.model}, batches of {setting.batch}, {setting.size}x{setting.size}, {setting.device}."
    return f"{note}\n\n{table(['added', 'images/s', 'over the row above', 'over the baseline'], rows)}"


def chart(runs: Sequence[Run], setting: Setting) -> Chart:
    series = {"training": {name: summary(runs, name, "rate") for name in done(runs)}}
    return Chart("Training, one change after the other", "images/s", "bars", series)
