"""One run of what ``bench_shard.py`` measures; prints one JSON line.

    python benchmarks/child.py runs.shard ACTION FOLDER --limit 512 --seconds 4

The process first moves itself into a memory cgroup of its own with that limit (v1 or v2, whichever is
writable; without one it fails), and has the kernel drop the set from the page cache. ACTION:

    disk       pread with O_DIRECT: --depth processes, --bytes a request, in random order or --sequential
    loader     the whole loader, two epochs, the first with its start-up; --shuffle exact, block or none;
               --before without reading ahead, as it was; --bandwidth: one epoch of a disk that gives no more
    lmdb       py-lmdb, a random key at a time, in --threads threads
"""

from __future__ import annotations

import argparse
import itertools
import json
import mmap
import os
import random
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
from harness.page_cache import bytes_read, evict
from harness.throttle import throttled

DISK_MEMORY = 48 << 20  # bytes that reads without fastload go to, in turn
HUGE_PAGE = 2 << 20
CGROUPS = Path("/sys/fs/cgroup")
LIMIT_FILES = ("memory.max", "memory.limit_in_bytes")


@contextmanager
def memory_limit(limit: int) -> Iterator[None]:
    """This process in a memory cgroup of its own."""
    parents = [CGROUPS, CGROUPS / "memory"]
    for parent, name in zip(parents, LIMIT_FILES, strict=True):
        if not (parent / "cgroup.procs").exists():
            continue
        with suppress(OSError):  # v2: groups below have a limit only where their parent says so
            (parent / "cgroup.subtree_control").write_text("+memory")
        group = parent / f"fastload-bench-{os.getpid()}"
        group.mkdir()
        if not (group / name).exists():
            group.rmdir()
            continue
        home = parent / own_cgroup("memory" if parent.name == "memory" else "").lstrip("/")
        (group / name).write_text(str(limit))
        (group / "cgroup.procs").write_text(str(os.getpid()))
        try:
            yield
        finally:
            (home / "cgroup.procs").write_text(str(os.getpid()))
            group.rmdir()
        return
    raise SystemExit(f"No writable memory cgroup below {CGROUPS}: run as root, or leave out --limit.")


def own_cgroup(controller: str) -> str:
    """This process's cgroup in the hierarchy of a v1 controller, or in v2's ("")."""
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if controller in controllers.split(","):
            return path
    return "/"


def disk(folder: Path, depth: int, size: int, sequential: bool, seconds: float) -> dict[str, float]:
    """Bytes per second of the files that hold the records, by ``depth`` processes, each with one request.

    They read into huge pages, as the loader does (small ones cost a virtual machine's disk half its speed),
    and through as much memory as the loader's buffers: a reader that overwrites what it has just read works
    in the CPU's cache, and is faster than any that hands it on.
    """
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path.stat().st_size > 16 << 20)
    descriptors = [os.open(path, os.O_RDONLY | os.O_DIRECT) for path in files]
    places = [
        (descriptor, offset)
        for descriptor, path in zip(descriptors, files, strict=True)
        for offset in range(0, path.stat().st_size - size, size)
    ]
    if not sequential:
        random.shuffle(places)
    counters = mmap.mmap(-1, 16 * depth)  # of each process: bytes, nanoseconds; shared
    gate, opened = os.pipe()
    processes = []
    for i in range(depth):
        pid = os.fork()
        if pid == 0:
            os.close(opened)
            buffers = huge_buffers(max(1, DISK_MEMORY // depth // size), size)
            os.read(gate, 1)  # its end: all begin
            struct.pack_into("<QQ", counters, 16 * i, *_read_places(places[i::depth], buffers, seconds))
            os._exit(0)
        processes.append(pid)
    time.sleep(0.02 * depth)  # until all are at the gate
    os.close(opened)
    for pid in processes:
        os.waitpid(pid, 0)
    done = [struct.unpack_from("<QQ", counters, 16 * i) for i in range(depth)]
    return {"rate": sum(count for count, _ in done) / max(spent for _, spent in done) * 1e9}


def _read_places(places: list[tuple[int, int]], buffers: list[memoryview], seconds: float) -> tuple[int, int]:
    """Bytes and nanoseconds."""
    begin, done = time.monotonic_ns(), 0
    deadline = begin + int(seconds * 1e9)
    for (descriptor, offset), buffer in zip(places, itertools.cycle(buffers), strict=False):
        done += os.preadv(descriptor, [buffer], offset)
        if time.monotonic_ns() > deadline:
            break
    return done, time.monotonic_ns() - begin


def huge_buffers(count: int, size: int) -> list[memoryview]:
    """``count`` buffers of ``size`` bytes side by side, in huge pages where there are any, all touched."""
    memory = mmap.mmap(-1, count * size + HUGE_PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    first = -np.frombuffer(memory, np.uint8).ctypes.data % HUGE_PAGE
    memory.madvise(mmap.MADV_HUGEPAGE)
    np.frombuffer(memory, np.uint8)[:: mmap.PAGESIZE] = 1
    view = memoryview(memory)
    return [view[first + i * size : first + (i + 1) * size] for i in range(count)]


def run_threads(work: Callable[[int], None], count: int) -> None:
    threads = [threading.Thread(target=work, args=(i,)) for i in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def loader(folder: Path, arguments: argparse.Namespace) -> dict[str, Any]:
    """Record bytes per second that arrive in batches, in the first epoch with start-up, and in the second."""
    import fastload.backends.native
    from fastload import Block, DataLoader, PackedDataset
    from fastload import transforms as t
    from fastload.prefetch.engine_calls import ReadAheadPlan

    if arguments.before:
        fastload.backends.native.plan_read_ahead = lambda *_: ReadAheadPlan(0, 0, 1.0)
    dataset = PackedDataset(folder)
    block = Block(arguments.block or None, arguments.window or None)
    shuffle = {"exact": True, "block": block, "none": False}[arguments.shuffle]
    transform = t.Compose([t.RandomResizedCrop(224), t.RandomHorizontalFlip()]) if arguments.crop else None
    feed = DataLoader(
        dataset,
        128,
        shuffle=shuffle,
        num_workers=arguments.threads,
        transform=transform,
        cache="off",
    )
    mean, busy, read = dataset.manifest.data_bytes / len(dataset), time.process_time(), bytes_read()
    # Without a limit of memory the second epoch would come from the page cache, at any bandwidth.
    epochs = [_epoch(feed, arguments.seconds) for _ in range(1 if arguments.bandwidth else 2)]
    cpu, read = time.process_time() - busy, bytes_read() - read
    (samples, wall), (more, second) = epochs[0], epochs[-1]
    done, spent = (sum(column) for column in zip(*epochs, strict=True))
    backend = feed._epochs.backend
    found = {
        "rate": samples * mean / wall,
        "second": more * mean / second,
        "images": samples / wall,
        "cpu_us": 1e6 * cpu / done,
        "read_rate": read / spent,  # of the disk, what was read ahead in vain and entry points included
        "read_bytes": read / done,
        **{f"ahead_{name}": value for name, value in backend.counts().read_ahead.items()},
    }
    feed.close()
    return found


def _epoch(feed: Any, seconds: float) -> tuple[int, float]:
    """Samples of an epoch, or of so many seconds of it, and how long they took."""
    begin, samples = time.perf_counter(), 0
    for _, labels in feed:
        samples += len(labels)
        if time.perf_counter() - begin > seconds:
            break
    return samples, time.perf_counter() - begin


def lmdb_reader(folder: Path, threads: int, seconds: float) -> dict[str, float]:
    """Record bytes per second that stock py-lmdb gives in random order."""
    import lmdb

    environments = [
        lmdb.open(str(path.parent), readonly=True, lock=False, readahead=False, max_readers=512)
        for path in sorted(folder.rglob("data.mdb"))
    ]
    places = []
    for environment in environments:
        with environment.begin() as transaction:
            places += [(environment, b"%08d" % i) for i in range(transaction.stat()["entries"])]
    random.shuffle(places)
    numbers, done = itertools.count(), [0] * threads
    deadline = time.perf_counter() + seconds

    def work(thread: int) -> None:
        while time.perf_counter() < deadline and (i := next(numbers)) < len(places):
            environment, key = places[i]
            with environment.begin() as transaction:
                done[thread] += len(transaction.get(key))

    begin = time.perf_counter()
    run_threads(work, threads)
    return {"rate": sum(done) / (time.perf_counter() - begin)}


def run(arguments: argparse.Namespace) -> dict[str, Any]:
    folder = arguments.folder
    if not arguments.warm:
        for path in folder.rglob("*"):
            if path.is_file():
                evict(path)
    if arguments.action == "disk":
        return disk(folder, arguments.depth, arguments.bytes, arguments.sequential, arguments.seconds)
    if arguments.action == "lmdb":
        return lmdb_reader(folder, arguments.threads, arguments.seconds)
    if arguments.bandwidth:
        with throttled(folder, arguments.bandwidth):
            return loader(folder, arguments)
    return loader(folder, arguments)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("action", choices=["disk", "loader", "lmdb"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--limit", type=int, default=0, help="MB of memory, page cache included; 0: none")
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--depth", type=int, default=32)
    parser.add_argument("--bytes", type=int, default=108 << 10)
    parser.add_argument("--sequential", action="store_true")
    parser.add_argument("--shuffle", choices=["exact", "block", "none"], default="exact")
    parser.add_argument("--window", type=int, default=0, help="of the blocks, records")
    parser.add_argument("--block", type=int, default=0, help="the same")
    parser.add_argument("--before", action="store_true", help="without reading ahead")
    parser.add_argument("--crop", action="store_true", help="pictures are JPEGs: crop them to 224x224")
    parser.add_argument("--bandwidth", type=int, default=0, help="bytes/s of the disk, without --limit")
    parser.add_argument("--warm", action="store_true", help="leave the page cache alone")
    arguments = parser.parse_args()
    if arguments.limit and arguments.bandwidth:
        parser.error("--limit and --bandwidth exclude each other")
    if arguments.limit:
        with memory_limit(arguments.limit << 20):
            values = run(arguments)
    else:
        values = run(arguments)
    print(json.dumps(values), flush=True)


if __name__ == "__main__":
    main()
