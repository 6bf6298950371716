"""One run of bench_ranks' memory: ranks that train from one set, and the memory of all their processes.

    child.py runs.rank_memory fastload|torch --ranks N --workers 2 --images FOLDER --packed FOLDER

Each rank is a process with a loader of its own, as torchrun starts them. fastload's have the set in the
node cache; torch's read the files, which lie in the page cache, and have so many worker processes each. All
wait for each other when their memory is looked at. Prints one JSON line, in MB: "held" is what cannot be
dropped, private memory and what lies in the tmpfs: the cache, and the batches that workers have sent. Those
are mapped by nobody until they are taken, so that the processes' own figures miss them. "file" are mapped
files, "cache" the cache's part.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from harness.children import child
from harness.machine import pids_of_session, sizes_of
from loaders.jobs import JOBS
from sets.images import bytes_below

JOB = JOBS["train_u8"]
TORCH_BATCHES = 4  # a worker: then it has made its buffers
CACHE = "FASTLOAD_CACHE_DIR"
PR_SET_CHILD_SUBREAPER = 36


def fastload_batches(arguments: argparse.Namespace) -> tuple[Iterator[int], int]:
    """Endless batches, and how many to take: two epochs, the second one from the cache."""
    from fastload import DataLoader
    from fastload import transforms as t

    steps = [t.RandomResizedCrop(224), t.RandomHorizontalFlip()]
    room = f"{2 * bytes_below(arguments.packed) + (64 << 20)}B"
    loader = DataLoader(
        arguments.packed,
        JOB.batch,
        shuffle=True,
        drop_last=True,
        num_workers=arguments.workers,
        transform=t.Compose(steps),
        cache=room,
    )

    def endless() -> Iterator[int]:
        while True:
            for _images, labels in loader:
                yield len(labels)

    return endless(), 2 * len(loader)


def torch_batches(arguments: argparse.Namespace) -> tuple[Iterator[int], int]:
    """Endless batches, and how many to take: so many that every worker has made some."""
    from loaders.candidates import torch_pil

    batches = torch_pil.batches(JOB, "", arguments.workers, arguments.images, arguments.images)
    return batches, TORCH_BATCHES * arguments.workers


def rank(arguments: argparse.Namespace) -> None:
    """A rank's process: trains without a model, says so, and waits with all that it has made."""
    make = fastload_batches if arguments.loader == "fastload" else torch_batches
    batches, count = make(arguments)
    for _ in range(count):
        next(batches)
    print("ready", flush=True)
    sys.stdin.readline()  # its loader is alive meanwhile


def used_bytes(folder: Path) -> int:
    """Of a file system."""
    status = os.statvfs(folder)
    return (status.f_blocks - status.f_bfree) * status.f_frsize


def kinds() -> dict[str, float]:
    """PSS by kind, MB, of all processes of this session but this one, and how many they are."""
    found: dict[str, float] = defaultdict(float)
    for pid in pids_of_session(os.getsid(0)):
        if pid != os.getpid():
            for name, size in sizes_of(pid).items():
                found[name] += size
            found["processes"] += 1
    return found


def end_children() -> None:
    """Kill the ranks, then their workers, and wait: else their CPU time would count as other work's."""
    children = Path(f"/proc/self/task/{os.getpid()}/children")
    while found := [int(pid) for pid in children.read_text().split()]:
        for pid in found:
            os.kill(pid, signal.SIGKILL)
        for pid in found:
            os.waitpid(pid, 0)


def together(arguments: argparse.Namespace, cache: Path) -> dict[str, float]:
    """Start the ranks; the memory of all of them and of their workers, without this process."""
    before = used_bytes(arguments.memory) / 1e6
    line = child("runs.rank_memory", *sys.argv[1:], "--rank")
    env = {**os.environ, CACHE: str(cache), "OMP_NUM_THREADS": "1"}
    ranks = [
        subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env)
        for _ in range(arguments.ranks)
    ]
    for one in ranks:
        assert one.stdout is not None
        if one.stdout.readline() != "ready\n":
            raise SystemExit("A rank has failed.")
    found = kinds()
    in_files = used_bytes(arguments.memory) / 1e6 - before
    end_children()
    return {
        "held": found["Pss_Anon"] + max(found["Pss_Shmem"], in_files),
        "file": found["Pss_File"],
        "cache": bytes_below(cache) / 1e6,
        "processes": found["processes"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("loader", choices=["fastload", "torch"])
    parser.add_argument("--images", type=Path, required=True)
    parser.add_argument("--packed", type=Path, required=True)
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("--workers", type=int, default=2, help="threads or worker processes of each rank")
    parser.add_argument("--memory", type=Path, default=Path("/dev/shm"), help="a tmpfs, for the cache")
    parser.add_argument("--rank", action="store_true", help="be one of the ranks")
    arguments = parser.parse_args()
    if arguments.rank:
        rank(arguments)
        return
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    with tempfile.TemporaryDirectory(dir=arguments.memory, prefix="fastload-ranks-") as cache:
        print(json.dumps(together(arguments, Path(cache))), flush=True)
    os._exit(0)


if __name__ == "__main__":
    main()
