"""Reading from a store: what the client costs, and how much of the bandwidth a cold epoch uses.

    python benchmarks/bench_remote.py [--workdir FOLDER] [--records 4000] [--latency 0.02] [--bandwidth 100e6]

The store is tests/reference/fault_server.py in its own process, on loopback. For the client it has an object
in memory and no limit; its Python threads limit GB/s, so what counts is the client's CPU time. For the loader
it keeps a latency per request and a bandwidth for all together, and has a set of raw pictures (110,592 bytes
each), so that decoding costs nothing; each run opens it by URL with nothing kept on the node. "of the line"
counts all that was fetched, with the beginning of the next epoch; "of the epoch" only the epoch's records. A
round trip is the latency, and connections are made without one. The time that the line itself needs for the
first batch's bytes is not a round trip, and is shown separately.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from harness.children import child
from harness.machine import facts
from harness.measure import (
    MINIMUM_REPEATS,
    Candidate,
    alternate,
    check_repeats,
    failures,
    summarize,
    table,
    values_of,
    write_results,
)
from sets.random_set import write_random

LENGTHS = {"110 KB": 110_000, "1 MB": 1_000_000, "8 MB": 8 << 20}
CLIENT = {"cpu_s_per_gb": "CPU s a GB", "gb_per_s": "GB/s"}
LOADER = {
    "line_share": "of the line",
    "epoch_share": "of the epoch",
    "first_batch_s": "first batch, s",
    "first_batch_line_s": "of that its bytes on the line, s",
    "first_batch_round_trips": "the rest, round trips",
    "epoch_s": "epoch, s",
    "requests": "requests",
    "threads": "reading threads",
}


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """The arguments."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--workdir", type=Path, default=Path(tempfile.gettempdir()))
    parser.add_argument("--records", type=int, default=4000)
    parser.add_argument("--latency", type=float, default=0.02, help="seconds per request")
    parser.add_argument("--bandwidth", type=float, default=100e6, help="bytes per second")
    parser.add_argument("--seconds", type=float, default=3.0, help="seconds per run of the client")
    parser.add_argument("--repeats", type=int, default=MINIMUM_REPEATS)
    parser.add_argument("--output", type=Path, default=Path("build/bench"))
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    """See above."""
    arguments = parse(argv)
    check_repeats(arguments.repeats)
    line = child("stores.remote")
    with tempfile.TemporaryDirectory(dir=arguments.workdir) as work:
        folder = Path(work) / "set"
        write_random(folder, "arrow", arguments.records)
        clients = [
            Candidate(name, [*line, "client", f"--length={length}", f"--seconds={arguments.seconds}"])
            for name, length in LENGTHS.items()
        ]
        bounds = [f"--latency={arguments.latency}", f"--bandwidth={arguments.bandwidth}"]
        loaders = [
            Candidate(
                f"{name} shuffle", [*line, "loader", f"--folder={folder}", f"--shuffle={name}", *bounds]
            )
            for name in ("exact", "block")
        ]
        runs = alternate([*clients, *loaders], arguments.repeats)
    bad = failures(runs)
    print(" ".join(f"{name}: {value};" for name, value in facts().items()))
    for candidates, columns in ((clients, CLIENT), (loaders, LOADER)):
        rows = [
            [one.name, *(summarize(values_of(runs, one.name, key)).text(2) for key in columns)]
            for one in candidates
            if one.name not in bad
        ]
        print(f"\n{table(['', *columns.values()], rows)}")
    for name, error in bad.items():
        print(f"failed: {name}: {error}")
    write_results(arguments.output, "remote", vars(arguments), runs)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
