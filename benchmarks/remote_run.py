"""One run of bench_remote: a server of its own in another process, and the client or a whole loader on it.

The last line of the output is JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

sys.path.append(str(Path(__file__).parent.parent / "tests" / "reference"))

from fault_server import FaultServer

KILOBYTE, MEGABYTE = 10**3, 10**6
RECORD = 3 * 192 * 192  # bytes, of random_set
ROUND = 64 * MEGABYTE  # read at once; the same memory each time


def serve(arguments: argparse.Namespace) -> None:
    """Serve until the input ends; says where."""
    objects = {"/object": os.urandom(ROUND)} if arguments.folder is None else None
    with FaultServer(
        objects, folder=arguments.folder, latency=arguments.latency, bandwidth=arguments.bandwidth
    ) as server:
        for _ in sys.stdin:
            print(json.dumps([server.url, len(server.requests), server.body_bytes]), flush=True)


class Server:
    """The server's process."""

    def __init__(self, folder: Path | None, latency: float, bandwidth: float) -> None:
        command = [sys.executable, __file__, "serve", f"--latency={latency}", f"--bandwidth={bandwidth}"]
        command += [] if folder is None else [f"--folder={folder}"]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.url = self.counts()[0]

    def counts(self) -> Any:
        """Its address, requests and bytes so far."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(file=self._process.stdin, flush=True)
        return json.loads(self._process.stdout.readline())

    def stop(self) -> None:
        """End it."""
        self._process.kill()
        self._process.wait()


def cpu_seconds() -> float:
    """Of this process, all threads."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def client(server: Server, arguments: argparse.Namespace) -> dict[str, float]:
    """Ranges of a length, many at once, into memory that is used again."""
    from fastload._native import _C

    schedule = _C.Schedule()
    schedule.part = arguments.length
    store = _C.RemoteStore(
        server.url, "s3://x", region="us-east-1", access_key="k", secret_key="s", schedule=schedule
    )
    memory = np.zeros(ROUND, np.uint8)
    store.read_into("object", 0, memory)
    begin, cpu, done = time.perf_counter(), cpu_seconds(), 0
    while time.perf_counter() - begin < arguments.seconds:
        store.read_into("object", 0, memory)
        done += ROUND
    took, used, counts = time.perf_counter() - begin, cpu_seconds() - cpu, store.counts()
    store.close()
    return {
        "cpu_s_per_gb": used / done * 1e9,
        "gb_per_s": done / took / 1e9,
        "limit": counts["limit"],
        "p50_ms": counts["p50_ms"],
    }


def loader(server: Server, arguments: argparse.Namespace) -> dict[str, float]:
    """A cold epoch of a set of raw pictures, from opening by URL on."""
    import fastload
    import fastload.remote.http  # as everything else: what is imported is no round trip

    shuffle = "block" if arguments.shuffle == "block" else True
    with fastload.DataLoader(arguments.folder, batch_size=64, num_workers=2) as local:
        next(iter(local))  # imports, and threads
    begin = time.perf_counter()
    with fastload.DataLoader(
        server.url, batch_size=64, shuffle=shuffle, num_workers=2, seed=1, cache=None
    ) as made:
        batches = iter(made)
        next(batches)
        first, (_, first_requests, _) = time.perf_counter() - begin, server.counts()
        records = len(made.dataset) * RECORD
        for _ in batches:
            pass
        took, (_, requests, count) = time.perf_counter() - begin, server.counts()
        read = made.stats()["read_ahead"]
    return {
        "first_batch_s": first,
        "first_batch_round_trips": first / arguments.latency if arguments.latency else 0.0,
        "first_requests": first_requests,
        "epoch_s": took,
        "line_share": count / took / arguments.bandwidth if arguments.bandwidth else 0.0,
        "epoch_share": records / took / arguments.bandwidth if arguments.bandwidth else 0.0,
        "mb": count / MEGABYTE,
        "requests": requests,
        "threads": read["threads"],
        "late": read["late"],
        "buffer_mb": read["buffer_peak"] / MEGABYTE,
    }


def main() -> None:
    """See above."""
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=("serve", "client", "loader"))
    parser.add_argument("--latency", type=float, default=0.0)
    parser.add_argument("--bandwidth", type=float, default=0.0)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--length", type=int, default=110 * KILOBYTE)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--shuffle", default="exact")
    arguments = parser.parse_args()
    if arguments.what == "serve":
        return serve(arguments)
    with tempfile.TemporaryDirectory() as sets:
        os.environ["FASTLOAD_SETS_DIR"] = sets  # nothing is kept from one run to the next
        measure(arguments)


def measure(arguments: argparse.Namespace) -> None:
    """One run."""
    server = Server(arguments.folder, arguments.latency, arguments.bandwidth)
    try:
        print(json.dumps((client if arguments.what == "client" else loader)(server, arguments)))
    finally:
        server.stop()


if __name__ == "__main__":
    main()
