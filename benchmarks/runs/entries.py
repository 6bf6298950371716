"""One run of what ``bench_entries.py`` measures beside the loader; prints one JSON line.

    child.py runs.entries build FOLDER --spacing 64 --threads 2    making entries.fli
    child.py runs.entries decode FOLDER --threads 2    the sequential decoder, all of each JPEG
    child.py runs.entries cold FOLDER --threads 2      one epoch, the set not in the page cache
    child.py runs.entries crops FOLDER --passes 7      decoding crops, spacings in turn for each
    child.py runs.entries large FOLDER --records 400000 --bytes 2500    random access, cold

FOLDER is a packed dataset, but for "large", which writes files of random bytes there. The clock starts
after the imports.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import random
import statistics
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from harness.page_cache import bytes_read, evict
from loaders.jobs import random_crop

from fastload import PackedDataset
from fastload._native import _C
from fastload.errors import DecodeError
from fastload.packing.entries import build_entries, parse_spacing
from fastload.shard.index import RECORD, write_index, write_paged

SPACINGS = ("none", "row", "256", "128", "64", "32")


def build(folder: Path, spacing: int, threads: int) -> dict[str, float]:
    """Seconds to make the entry points of all records, written and synced."""
    dataset = PackedDataset(folder, entries=False)
    begin, busy = time.perf_counter(), time.process_time()
    report = build_entries(dataset, spacing, threads)
    return {
        **rates(len(dataset), begin, busy),
        "entry_bytes": report.entry_bytes / max(report.with_entries, 1),
        "share": report.entry_bytes / dataset.manifest.data_bytes,
    }


def decode(folder: Path, threads: int) -> dict[str, float]:
    """fastload's own decoder without entry points, from the mapping into nowhere, all of each JPEG."""
    dataset = PackedDataset(folder, entries=False)

    def some(first: int) -> None:
        clock = _C.JpegClock()
        for sample in range(first, min(first + 64, len(dataset))):
            try:
                clock.decode(np.frombuffer(dataset.reader.read(sample), np.uint8))
            except DecodeError:
                continue  # not a JPEG that this decoder takes: no entry points either

    begin, busy = time.perf_counter(), time.process_time()
    with ThreadPoolExecutor(threads) as executor:
        list(executor.map(some, range(0, len(dataset), 64)))
    return rates(len(dataset), begin, busy)


def rates(images: int, begin: float, busy: float) -> dict[str, float]:
    """Images per second since ``begin``, and per CPU second of all threads since ``busy``."""
    return {
        "rate": images / (time.perf_counter() - begin),
        "rate_per_cpu": images / (time.process_time() - busy),
    }


def cold(folder: Path, threads: int) -> dict[str, float]:
    """The train job, one shuffled epoch, after the kernel was told to drop all files of the set."""
    from fastload import DataLoader  # imports torch, which the others do not need
    from fastload import transforms as t

    size = 0
    for path in folder.rglob("*"):
        if path.is_file():
            evict(path)
            size += path.stat().st_size
    transform = t.Compose([t.RandomResizedCrop(224), t.RandomHorizontalFlip()])
    read = bytes_read()
    begin, busy = time.perf_counter(), time.process_time()
    loader = DataLoader(folder, 128, shuffle=True, num_workers=threads, seed=0, transform=transform)
    images = sum(len(labels) for _, labels in loader)
    return {**rates(images, begin, busy), "read_share": (bytes_read() - read) / size}


def large(folder: Path, records: int, size: int) -> dict[str, float]:
    """What one record's entry points cost to read at random from storage, in microseconds and bytes.

    "first" is with no page checked yet, so that each page's checksum is computed; "later" is after all
    have been, and the kernel was told to take the mapping's pages away.
    """
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(0)
    write_index(folder / "index.fli", [np.zeros(records, RECORD)], [[b""] * records])
    index = _C.Index(str(folder / "index.fli"))
    path = folder / "entries.fli"
    block = rng.bytes(size * 100)
    lengths = [np.full(records, size, np.uint64)]
    write_paged(path, b"FLENTRY1", (), lengths, (block for _ in range(records // 100)), 64, index.digest)
    evict(path)
    entries = _C.Entries(str(path), index)
    few = rng.permutation(records)[:2000].tolist()
    values = {f"first_{name}": value for name, value in timed(entries, few).items()}
    entries.verify()
    page_out(path)
    return {**values, **{f"later_{name}": value for name, value in timed(entries, few).items()}}


def timed(entries: _C.Entries, samples: list[int]) -> dict[str, float]:
    """Microseconds and bytes read from storage for one of ``samples``."""
    read, begin = bytes_read(), time.perf_counter()
    for sample in samples:
        entries.get(sample)
    seconds = time.perf_counter() - begin
    return {"us": 1e6 * seconds / len(samples), "bytes": (bytes_read() - read) / len(samples)}


def crops(folder: Path, passes: int) -> dict[str, float]:
    """CPU microseconds to decode a random crop (no resize), by spacing; median over ``passes``.

    The spacings take turns for each picture, so that other processes disturb all of them alike.
    """
    dataset, clock = PackedDataset(folder, entries=False), _C.JpegClock()
    random.seed(0)
    jobs = []
    for sample in range(len(dataset)):
        data = np.frombuffer(dataset.read(sample), np.uint8)
        if not _C.jpeg_supported(data):
            continue
        record = dataset.records[sample]
        made = {text: _C.jpeg_build_entries(data, parse_spacing(text) or 0) for text in SPACINGS[1:]}
        if made["row"].size:
            jobs.append((data, int(record["width"]), int(record["height"]), {"none": None, **made}))
    totals: dict[str, list[float]] = {text: [] for text in SPACINGS}
    for _ in range(passes):
        spent = dict.fromkeys(SPACINGS, 0.0)
        for data, width, height, made in jobs:
            roi = random_crop(width, height)
            for text in random.sample(SPACINGS, len(SPACINGS)):
                begin = time.thread_time()
                clock.decode(data, roi, made[text], parse_spacing(text) or 0)
                spent[text] += time.thread_time() - begin
        for text, seconds in spent.items():
            totals[text].append(1e6 * seconds / len(jobs))
    return {text: round(statistics.median(values), 1) for text, values in totals.items()}


def page_out(path: Path) -> None:
    """As evict(), for a file that this process maps, by madvise(MADV_PAGEOUT)."""
    libc = ctypes.CDLL(None, use_errno=True)
    for line in Path("/proc/self/maps").read_text().splitlines():
        if line.endswith(str(path)):
            begin, end = (int(part, 16) for part in line.split()[0].split("-"))
            if libc.madvise(ctypes.c_void_p(begin), ctypes.c_size_t(end - begin), 21) != 0:
                raise OSError(ctypes.get_errno(), "madvise(MADV_PAGEOUT)")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("action", choices=["build", "decode", "cold", "crops", "large"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--spacing", default="64")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--passes", type=int, default=7)
    parser.add_argument("--records", type=int, default=400_000)
    parser.add_argument("--bytes", type=int, default=2500, help="of each record's entry points")
    arguments = parser.parse_args()
    if arguments.action == "build":
        spacing = parse_spacing(arguments.spacing)
        if spacing is None:
            parser.error("there is nothing to build without entry points")
        values = build(arguments.folder, spacing, arguments.threads)
    elif arguments.action == "crops":
        values = crops(arguments.folder, arguments.passes)
    elif arguments.action == "large":
        values = large(arguments.folder, arguments.records, arguments.bytes)
    else:
        action = decode if arguments.action == "decode" else cold
        values = action(arguments.folder, arguments.threads)
    print(json.dumps(values))


if __name__ == "__main__":
    main()
