"""One run of bench_ranks: several ranks on this machine, each a process that joins a gloo group.

    child.py runs.ranks rate --ranks N  images a second of all ranks together, and their memory (PSS, MB)
    child.py runs.ranks idle --ranks N  the memory of so many ranks that make no loader
    child.py runs.ranks kill --ranks N  seconds from SIGKILL of one rank to the error on the last one
    child.py runs.ranks resume          seconds to the first batch, with a state at 90% of an epoch

Prints one JSON line.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from harness.machine import process_memory
from loaders.jobs import MEAN, STD

GLOBAL_BATCH = 256
RESUMED_AT = 0.9  # of the epoch


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("mode", choices=["rate", "idle", "kill", "resume"])
    parser.add_argument("--dataset", type=Path, required=True)
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1, help="of each rank")
    parser.add_argument("--seconds", type=float, default=2.0)
    return parser.parse_args()


def loader(arguments: argparse.Namespace) -> Any:
    """The train job; batches of all ranks together have 256 images."""
    from fastload import DataLoader
    from fastload import transforms as t

    steps = [t.RandomResizedCrop(224), t.RandomHorizontalFlip(), t.Normalize(mean=MEAN, std=STD)]
    return DataLoader(
        arguments.dataset,
        batch_size=GLOBAL_BATCH // arguments.ranks,
        shuffle=True,
        drop_last=True,
        num_workers=arguments.threads,
        transform=t.Compose(steps),
    )


def epochs(batches: Any) -> Iterator[Any]:
    """Batches of one epoch after another: a fast machine is through a small one before the time is."""
    while True:
        yield from batches


def rate(arguments: argparse.Namespace, dist: Any) -> dict[str, float]:
    """Images of this rank in ``--seconds``, all ranks at the same time; its memory when all are at work."""
    batches = epochs(loader(arguments)) if arguments.mode == "rate" else None
    for _ in range(4 if batches else 0):
        next(batches)  # type: ignore[arg-type]
    dist.barrier()
    images, begin, cpu = 0, time.monotonic(), time.process_time()
    while batches is not None and time.monotonic() - begin < arguments.seconds:
        images += len(next(batches)[1])
    seconds, cpu = time.monotonic() - begin, time.process_time() - cpu
    dist.barrier()
    memory = process_memory()
    dist.barrier()  # nobody leaves, and gives its share of common pages to others, before all have looked
    used = {"images": images, "cpu": cpu, "anonymous": memory.anonymous, "pss": memory.total}
    return {"rate": images / seconds if images else 0.0, **used}


def step_until_error(arguments: argparse.Namespace, dist: Any) -> dict[str, float]:
    """Batch, collective, batch, collective; the moment of the error."""
    import torch

    batches = loader(arguments)
    try:
        while True:
            for done, _ in enumerate(batches):
                dist.all_reduce(torch.zeros(1000))
                if done == 3:
                    print("stepping", flush=True)
    except RuntimeError:
        return {"failed_at": time.monotonic()}


def rank(arguments: argparse.Namespace) -> None:
    """One rank's process."""
    import torch.distributed as dist

    place = {"rank": int(os.environ["RANK"]), "world_size": int(os.environ["WORLD_SIZE"])}
    dist.init_process_group("gloo", init_method=f"file://{os.environ['BENCH_STORE']}", **place)
    values = step_until_error(arguments, dist) if arguments.mode == "kill" else rate(arguments, dist)
    print(json.dumps(values), flush=True)
    os._exit(0)


def start(arguments: argparse.Namespace, folder: str) -> list[subprocess.Popen[str]]:
    """All ranks, with torchrun's variables; they meet in a file, as a free port may not stay free."""
    processes = []
    for number in range(arguments.ranks):
        here = {"RANK": str(number), "LOCAL_RANK": str(number), "BENCH_STORE": f"{folder}/store"}
        world = {"WORLD_SIZE": str(arguments.ranks), "LOCAL_WORLD_SIZE": str(arguments.ranks)}
        variables = {**os.environ, **here, **world, "OMP_NUM_THREADS": "1"}
        command = [sys.executable, *sys.argv]
        processes.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=variables))
    return processes


def together(arguments: argparse.Namespace) -> dict[str, float]:
    """Start the ranks, and sum what they print."""
    with tempfile.TemporaryDirectory(prefix="fastload-ranks-") as folder:
        processes = start(arguments, folder)
        victim, killed = None, 0.0
        if arguments.mode == "kill":
            for process in processes:
                assert process.stdout is not None
                assert process.stdout.readline() == "stepping\n"
            victim = processes.pop()
            killed = time.monotonic()
            victim.send_signal(signal.SIGKILL)
        printed = [json.loads(process.communicate()[0].splitlines()[-1]) for process in processes]
    if victim is not None:
        victim.wait()
        return {"error_after": max(values["failed_at"] for values in printed) - killed}
    return {name: sum(values[name] for values in printed) for name in printed[0]}


def resume(arguments: argparse.Namespace) -> dict[str, float]:
    """A restart of a process that knows nothing but the state."""
    import fastload.loader.data_loader

    assert fastload.loader.data_loader is not None
    imported = time.monotonic()
    fresh = loader(arguments)
    state = fresh.state_dict()
    state["position"] = int(len(fresh) * RESUMED_AT) * GLOBAL_BATCH
    begin = time.monotonic()
    fresh.load_state_dict(state)
    images, _ = next(iter(fresh))
    done = time.monotonic()
    assert len(images) == GLOBAL_BATCH
    started = float(os.environ["BENCH_STARTED"])
    return {
        "from_start": done - started,
        "after_imports": done - imported,
        "load_and_first_batch": done - begin,
        "state_bytes": len(json.dumps(state)),
        "epoch_position": state["position"],
    }


def main() -> None:
    arguments = parse()
    if "RANK" in os.environ:
        rank(arguments)
    print(json.dumps(resume(arguments) if arguments.mode == "resume" else together(arguments)), flush=True)
    os._exit(0)


if __name__ == "__main__":
    main()
