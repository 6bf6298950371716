"""One model, fed by each loader on fewer and fewer cores, for bench_few_cores.py; prints one JSON line.

    python benchmarks/child.py starvation.few_cores --model resnet18 --cores 2,4 --feeds fastload ...

One process for all of it: a CUDA context and cuDNN's search cost seconds, and the model is the same. Every
thread that it has moves to the cores in question before a loader is opened, whose threads and workers begin
there. A loader's rounds follow each other: a warm-up before each would cost more than the rounds.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import torch
from starvation.feeds import Work, reason_to_skip
from starvation.run import Loop
from starvation.training_step import AMP, MODELS, Trainer

LEAST_STEPS = 3  # of a round, where a loader is slow


def use_cores(cpus: list[int]) -> None:
    """Every thread of this process, and all that will begin."""
    for thread in os.listdir("/proc/self/task"):
        with contextlib.suppress(ProcessLookupError):
            os.sched_setaffinity(int(thread), cpus)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    add = parser.add_argument
    add("--images", type=Path, required=True)
    add("--packed", type=Path, required=True)
    add("--model", choices=MODELS, required=True)
    add("--device", choices=("cuda", "cpu"), required=True)
    add("--amp", choices=list(AMP), default="off")
    add("--batch", type=int, required=True)
    add("--size", type=int, default=224)
    add("--seconds", type=float, default=0.5, help="of each round")
    add("--rounds", type=int, default=5)
    add("--cores", type=lambda text: [int(part) for part in text.split(",")], required=True)
    add("--feeds", type=lambda text: text.split(","), required=True)
    return parser.parse_args()


def measured(name: str, work: Work, trainer: Trainer, options: argparse.Namespace) -> dict[str, Any]:
    """Rounds of one feed; or why there are none."""
    if reason := reason_to_skip(name, work.device):
        return {"skipped": reason}
    loop = Loop(name, work, trainer)
    loop.warm_up(options.seconds)
    rounds = [loop.measure(options.seconds, LEAST_STEPS) for _ in range(options.rounds)]
    del loop
    gc.collect()  # its threads or workers end
    return {key: [one[key] for one in rounds] for key in rounds[0]}


def main() -> None:
    options = parse()
    allowed = sorted(os.sched_getaffinity(0))
    trainer = Trainer(options.model, options.device, amp=options.amp)
    found = {}
    for cores in options.cores:
        use_cores(allowed[:cores])
        torch.set_num_threads(cores)  # on the CPU the step's own threads would spin for each other
        work = Work(options.images, options.packed, options.batch, options.size, cores, options.device)
        for name in ("synthetic", *options.feeds):
            begin = time.monotonic()
            found[f"{name} {cores}"] = measured(name, work, trainer, options)
            print(
                f"{options.model}, {name}, {cores} cores: {time.monotonic() - begin:.1f} s", file=sys.stderr
            )
    print(json.dumps(found), flush=True)
    os._exit(0)


if __name__ == "__main__":
    main()
