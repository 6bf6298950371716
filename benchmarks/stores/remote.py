"""One run of bench_remote: a server of its own in another process, and the client or a whole loader on it.

The last line of the output is JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import tempfile
import time
from pathlib import Path

import numpy as np
from stores.line import OBJECT, Line

KILOBYTE, MEGABYTE = 10**3, 10**6
RECORD = 3 * 192 * 192  # bytes, of random_set
BATCH = 64


def cpu_seconds() -> float:
    """Of this process, all threads."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def client(line: Line, arguments: argparse.Namespace) -> dict[str, float]:
    """Ranges of a length, many at once, into memory that is used again."""
    from fastload._native import _C

    schedule = _C.Schedule()
    schedule.part = arguments.length
    store = _C.RemoteStore(
        line.url, "s3://x", region="us-east-1", access_key="k", secret_key="s", schedule=schedule
    )
    memory = np.zeros(OBJECT, np.uint8)
    store.read_into("object", 0, memory)
    begin, cpu, done = time.perf_counter(), cpu_seconds(), 0
    while time.perf_counter() - begin < arguments.seconds:
        store.read_into("object", 0, memory)
        done += OBJECT
    took, used, counts = time.perf_counter() - begin, cpu_seconds() - cpu, store.counts()
    store.close()
    return {
        "cpu_s_per_gb": used / done * 1e9,
        "gb_per_s": done / took / 1e9,
        "limit": counts["limit"],
        "p50_ms": counts["p50_ms"],
    }


def loader(line: Line, arguments: argparse.Namespace) -> dict[str, float]:
    """A cold epoch of a set of raw pictures, from opening by URL on."""
    import fastload
    import fastload.remote.http  # as everything else: what is imported is no round trip
    import fastload.remote.opening
    import fastload.shard.node_sets

    shuffle = "block" if arguments.shuffle == "block" else True
    with fastload.DataLoader(arguments.folder, batch_size=BATCH, num_workers=2) as local:
        next(iter(local))  # imports, and threads
    begin = time.perf_counter()
    with fastload.DataLoader(
        line.url, batch_size=BATCH, shuffle=shuffle, num_workers=2, seed=1, cache=None
    ) as made:
        batches = iter(made)
        next(batches)
        first, before = time.perf_counter() - begin, line.counts()
        records = len(made.dataset) * RECORD
        for _ in batches:
            pass
        took, after = time.perf_counter() - begin, line.counts()
        read = made.stats()["read_ahead"]
    on_line = BATCH * RECORD / arguments.bandwidth if arguments.bandwidth else 0.0
    return {
        "first_batch_s": first,
        "first_batch_line_s": on_line,
        "first_batch_round_trips": (first - on_line) / arguments.latency if arguments.latency else 0.0,
        "first_requests": before.requests,
        "epoch_s": took,
        "line_share": after.bytes / took / arguments.bandwidth if arguments.bandwidth else 0.0,
        "epoch_share": records / took / arguments.bandwidth if arguments.bandwidth else 0.0,
        "mb": after.bytes / MEGABYTE,
        "requests": after.requests,
        "threads": read["threads"],
        "late": read["late"],
        "buffer_mb": read["buffer_peak"] / MEGABYTE,
    }


def main() -> None:
    """See above."""
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=("client", "loader"))
    parser.add_argument("--latency", type=float, default=0.0)
    parser.add_argument("--bandwidth", type=float, default=0.0)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--length", type=int, default=110 * KILOBYTE)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--shuffle", default="exact")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as sets:
        os.environ["FASTLOAD_SETS_DIR"] = sets  # nothing is kept from one run to the next
        measure(arguments)


def measure(arguments: argparse.Namespace) -> None:
    """One run."""
    with Line(arguments.folder, latency=arguments.latency, bandwidth=arguments.bandwidth) as line:
        print(json.dumps((client if arguments.what == "client" else loader)(line, arguments)))


if __name__ == "__main__":
    main()
