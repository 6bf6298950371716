"""What watching stats() costs: images per second and CPU time with each stream of it, and without.

    python benchmarks/bench_streams.py PACKED [--seconds 3] [--repeats 7] [--threads 2]

One loader runs all the time, in one process; streams take turns, forwards and backwards. A round is some
seconds of batches of 32 without a step, so that every call takes CPU time from decoding. Figures are medians,
of all rounds and of the ratios to the same turn's round without a stream, with the least and the greatest.
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from fastload import DataLoader
from fastload import transforms as T
from fastload.diagnose.pages import History
from fastload.integrations.prometheus import serve
from fastload.integrations.stats_stream import Every

Step = Callable[[], object]
Stream = Callable[[DataLoader[Any]], AbstractContextManager[Step]]


@contextlib.contextmanager
def every(n: int, loader: DataLoader[Any]) -> Iterator[Step]:
    """A callback every so many steps."""
    yield Every(n, loader, lambda step, values: None).step


@contextlib.contextmanager
def history(loader: DataLoader[Any]) -> Iterator[Step]:
    """What fastload.diagnose.report(loader, history=...) takes."""
    with History(loader):
        yield lambda: None


@contextlib.contextmanager
def scraped(loader: DataLoader[Any]) -> Iterator[Step]:
    """Prometheus' server, asked once a second."""
    ended = threading.Event()
    with serve(loader, port=0) as server:

        def ask() -> None:
            while not ended.wait(1):
                urllib.request.urlopen(f"http://127.0.0.1:{server.port}/metrics").read()

        thread = threading.Thread(target=ask)
        thread.start()
        try:
            yield lambda: None
        finally:
            ended.set()
            thread.join()


STREAMS: dict[str, Stream] = {
    "none": lambda loader: contextlib.nullcontext(lambda: None),
    "Every(50)": lambda loader: every(50, loader),
    "Every(1)": lambda loader: every(1, loader),
    "Prometheus, 1/s": scraped,
    "History, 40/s": history,
}


def measured(loader: DataLoader[Any], stream: Stream, seconds: float) -> tuple[float, float]:
    """Images a second, and CPU milliseconds an image, of one round."""
    with stream(loader) as step:
        images, busy, began = 0, time.process_time(), time.perf_counter()
        while time.perf_counter() - began < seconds:
            for batch in loader:
                images += len(batch[0])
                step()
        spent = time.perf_counter() - began
        busy = time.process_time() - busy
    return images / spent, 1e3 * busy / images


def main(argv: list[str] | None = None) -> int:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("data", type=Path, metavar="PACKED")
    parser.add_argument("--seconds", type=float, default=3.0, help="seconds per round (%(default)s)")
    parser.add_argument("--repeats", type=int, default=7, help="number of turns (%(default)s)")
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args(argv)
    chain = T.Compose([T.RandomResizedCrop(224), T.RandomHorizontalFlip()])
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in STREAMS}
    with DataLoader(options.data, 32, True, transform=chain, num_workers=options.threads, seed=0) as loader:
        measured(loader, STREAMS["none"], 0.5)
        for turn in range(options.repeats):
            for name in list(STREAMS)[:: 1 if turn % 2 == 0 else -1]:
                found[name].append(measured(loader, STREAMS[name], options.seconds))
    print(f"{'stream':16} {'images/s':>9} {'of none':>8} {'from..to':>12} {'CPU ms':>7} {'of none':>8}")
    for name, rounds in found.items():
        rates = [own[0] / none[0] for own, none in zip(rounds, found["none"], strict=True)]
        cpus = [own[1] / none[1] for own, none in zip(rounds, found["none"], strict=True)]
        print(
            f"{name:16} {statistics.median(own[0] for own in rounds):9.0f} {statistics.median(rates):8.3f} "
            f"{min(rates):6.2f}..{max(rates):.2f} {statistics.median(own[1] for own in rounds):7.3f} "
            f"{statistics.median(cpus):8.3f}"
        )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
