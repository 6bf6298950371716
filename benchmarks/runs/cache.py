"""One run of what ``bench_cache.py`` measures; prints one JSON line.

    python benchmarks/child.py runs.cache ranks DATASET --cache 2GB --counts 1,2,4,8
    python benchmarks/child.py runs.cache epochs DATASET --cache 2GB --rate 24e6
    python benchmarks/child.py runs.cache cp|warm|fillers DATASET --processes 2 --pages drop|warm

Each has a cache folder of its own in --memory, which it removes. The clock starts after the imports.

    ranks      so many processes, each with a loader of its own, that begin one after the other and read the
               whole set twice; after each of --counts the memory of all that have begun
    epochs     --epochs of the train job, with a throttled disk (--rate, bytes a second; 0: as it is);
               before each the set is dropped from the page cache (--pages drop), left alone after the
               first (keep), or read into it beforehand (warm)
    cp         the set's folder to tmpfs: cp -r, or with several processes a file each, by xargs -P
    warm       fastload warm, with as many threads
    fillers    as many processes of fastload warm at once, with a thread each; from their start
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

from harness.children import child
from harness.command_line import command
from harness.machine import warm_page_cache
from harness.page_cache import evict
from harness.throttle import throttled

BATCH = 128
READS = 2  # of the set by each rank: the first one fills the cache before it can read from there
KINDS = {"Pss_Anon": "anonymous", "Pss_Shmem": "shared", "Pss_File": "files"}


def rank_memory() -> dict[str, float]:
    """PSS of this process by kind, and its page tables, MB (10^6 bytes)."""
    lines = [line.split() for line in Path("/proc/self/smaps_rollup").read_text().splitlines()[1:]]
    found = {KINDS[name[:-1]]: int(size) * 1024e-6 for name, size, _ in lines if name[:-1] in KINDS}
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return {**found, "tables": int(status["VmPTE"].split()[0]) * 1024e-6}


def loader(arguments: argparse.Namespace, crop: bool) -> Any:
    """A shuffled epoch with the cache asked for; pictures as they are, or the train job's crops."""
    from fastload import DataLoader
    from fastload import transforms as t

    steps = t.Compose([t.RandomResizedCrop(224), t.RandomHorizontalFlip()]) if crop else None
    return DataLoader(
        arguments.dataset,
        BATCH,
        shuffle=True,
        num_workers=arguments.threads,
        transform=steps,
        cache=arguments.cache,
    )


def files(dataset: Path) -> list[Path]:
    return [path for path in dataset.rglob("*") if path.is_file()]


def forget(dataset: Path) -> float:
    """Have the kernel drop the set; the share of its bytes that stayed."""
    sizes = [path.stat().st_size for path in files(dataset)]
    return sum(size * evict(path) for path, size in zip(files(dataset), sizes, strict=True)) / sum(sizes)


def rank(arguments: argparse.Namespace) -> None:
    """A rank's process: tells its memory before and after its epoch, and again whenever asked."""
    import fastload.loader.data_loader

    assert fastload.loader.data_loader is not None
    print(json.dumps(rank_memory()), flush=True)
    sys.stdin.readline()
    feed = loader(arguments, crop=False)
    plan = feed.memory_plan()
    slots = plan["slots"] * plan["slot_bytes"]
    samples = sum(len(labels) for _ in range(READS) for _, labels in feed)
    print(json.dumps({"samples": samples, "plan": slots / 1e6}), flush=True)
    for _ in sys.stdin:
        print(json.dumps(rank_memory()), flush=True)
    feed.close()


def ranks(arguments: argparse.Namespace) -> dict[str, Any]:
    """The memory of 1 rank, of 2, and so on."""
    counts = [int(count) for count in arguments.counts.split(",")]
    command = child("runs.cache", "rank", *sys.argv[2:])
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    processes = [subprocess.Popen(command, text=True, **pipes) for _ in range(max(counts))]  # type: ignore[call-overload]

    def answer(process: subprocess.Popen[str], question: str = "") -> dict[str, float]:
        assert process.stdin is not None
        assert process.stdout is not None
        if question:
            process.stdin.write(question + "\n")
            process.stdin.flush()
        return json.loads(process.stdout.readline())  # type: ignore[no-any-return]

    idle = [answer(process) for process in processes]
    found: dict[str, Any] = {"idle": max(memory["anonymous"] for memory in idle)}
    for number, process in enumerate(processes, 1):
        found.update(answer(process, "begin"))
        if number in counts:
            told = [answer(one, "memory") for one in processes[:number]]
            found[f"x{number}"] = {name: sum(memory[name] for memory in told) for name in told[0]}
    found["file"] = held(cache_root())
    for process in processes:
        process.communicate()
    return found


def cache_root() -> Path:
    return Path(os.environ["FASTLOAD_CACHE_DIR"])


def held(folder: Path) -> float:
    """MB that the files in a folder take."""
    return sum(path.stat().st_blocks * 512e-6 for path in files(folder))


def epochs(arguments: argparse.Namespace) -> dict[str, Any]:
    """Seconds, CPU seconds and the cache's counters of each epoch."""
    import fastload.loader.data_loader

    assert fastload.loader.data_loader is not None
    stayed = (
        warm_page_cache([arguments.dataset]) * 0.0 if arguments.pages == "warm" else forget(arguments.dataset)
    )
    limit = throttled(arguments.dataset, int(arguments.rate)) if arguments.rate else nullcontext("")
    found: dict[str, Any] = {"epochs": []}
    feed, before = None, {"hits": 0, "misses": 0, "stored": 0}
    with limit as found["storage"]:
        for number in range(arguments.epochs):
            if number and arguments.pages == "drop":
                stayed = max(stayed, forget(arguments.dataset))
            begin, start = time.perf_counter(), used()
            feed = feed or loader(
                arguments, arguments.crop
            )  # a cache is made by the first epoch: its time, too
            samples = sum(len(labels) for _, labels in feed)
            seconds = time.perf_counter() - begin
            cpu, read = (now - then for now, then in zip(used(), start, strict=True))
            counts = {name: value for name, value in feed.stats()["cache"].items() if name in before}
            grown = {name: value - before[name] for name, value in counts.items()}
            before.update(counts)
            found["epochs"].append(
                {"seconds": seconds, "cpu": cpu, "rate": samples / seconds, "read": read / 1e6, **grown}
            )
    assert feed is not None
    found.update(stayed=stayed, held=held(cache_root()), cache=feed.stats()["cache"])
    feed.close()
    return found


def warm(arguments: argparse.Namespace) -> Callable[[], None]:
    """``fastload warm``, at once in so many forks of this process, which has imported everything."""
    from fastload.cli import main as fastload
    from fastload.cli import warm as verb

    assert verb is not None  # imported before the clock starts

    def work() -> None:
        children = []
        for _ in range(arguments.processes):
            child = os.fork()
            if child == 0:
                code = 1
                try:
                    code = fastload(["warm", str(arguments.dataset), "--to", str(cache_root())])
                finally:
                    os._exit(code)
            children.append(child)
        statuses = [os.waitpid(child, 0)[1] for child in children]
        if any(statuses):
            raise SystemExit("fastload warm failed")

    return work


def fillers(arguments: argparse.Namespace) -> Callable[[], None]:
    """So many processes of ``fastload warm`` at once, with a thread each."""
    place = ["--to", str(cache_root()), "--threads", "1"]
    line = command("warm", arguments.dataset, *place)

    def work() -> None:
        processes = [subprocess.Popen(line) for _ in range(arguments.processes)]
        codes = [process.wait() for process in processes]
        if any(codes):
            raise SystemExit("fastload warm failed")

    return work


def cp(arguments: argparse.Namespace) -> Callable[[], None]:
    """cp -r, or a cp for each file, so many at a time."""
    target = cache_root()
    each = f"find . -type f -print0 | xargs -0 -P {arguments.processes} -n 1 cp --parents -t {target}"
    line = ["cp", "-r", ".", str(target)] if arguments.processes == 1 else ["sh", "-c", each]
    return partial(subprocess.run, line, check=True, cwd=arguments.dataset)


def copy(arguments: argparse.Namespace) -> dict[str, Any]:
    """The set to tmpfs; how fast, and how often it was read from the disk."""
    sizes = sum(path.stat().st_size for path in files(arguments.dataset))
    stayed = forget(arguments.dataset) if arguments.pages == "drop" else 0.0
    if arguments.pages != "drop":
        warm_page_cache([arguments.dataset])
    work = {"cp": cp, "warm": warm, "fillers": fillers}[arguments.action](arguments)
    begin, before = time.perf_counter(), used()
    work()
    seconds, after = time.perf_counter() - begin, used()
    missing = sizes - held(cache_root()) * 1e6
    if missing > 0.02 * sizes + (1 << 20):
        raise SystemExit(f"{missing:.0f} of {sizes} bytes did not arrive.")
    cpu, read = (now - then for now, then in zip(after, before, strict=True))
    return {"rate": sizes / seconds, "seconds": seconds, "cpu": cpu, "read": read / sizes, "stayed": stayed}


def used() -> tuple[float, float]:
    """CPU seconds and bytes read from disks, of this process and of those that it has waited for."""
    found = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in found), sum(one.ru_inblock * 512.0 for one in found)


@contextmanager
def own_cache(memory: Path) -> Iterator[None]:
    """A cache folder for this run alone."""
    folder = tempfile.mkdtemp(prefix="fastload-bench-", dir=memory)
    os.environ["FASTLOAD_CACHE_DIR"] = folder
    try:
        yield
    finally:
        shutil.rmtree(folder)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("action", choices=["ranks", "rank", "epochs", "cp", "warm", "fillers"])
    parser.add_argument("dataset", type=Path)
    parser.add_argument("--memory", type=Path, default=Path("/dev/shm"), help="a tmpfs with room")
    parser.add_argument("--cache", default="off")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--counts", default="1,2,4,8", help="of ranks")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--rate", type=float, default=0.0, help="of the disk, bytes a second")
    parser.add_argument("--pages", choices=["drop", "keep", "warm"], default="drop")
    parser.add_argument("--crop", action="store_true", help="pictures are JPEGs: crop them to 224x224")
    parser.add_argument("--processes", type=int, default=1, help="of cp and fillers; threads of warm")
    arguments = parser.parse_args()
    if arguments.action == "rank":
        return rank(arguments)
    actions = {"ranks": ranks, "epochs": epochs, "cp": copy, "warm": copy, "fillers": copy}
    with own_cache(arguments.memory):
        values = actions[arguments.action](arguments)
    print(json.dumps(values), flush=True)
    return None


if __name__ == "__main__":
    main()
