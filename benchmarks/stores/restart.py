"""One run of bench_stores' restart: a job ends at 90% of its first epoch, and another goes on from its state.

    python benchmarks/child.py stores.restart --packed FOLDER --url s3://BUCKET/PREFIX --upstream HOST:PORT

Each of the two is a process of its own; both find the set's index on the node, and the second one the first
one's tier on disk. The last line of the output is JSON: seconds from opening the set to the first batch of
each, and what the second one fetched of the records that the first one's batches had.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from stores.line import Counts, Line
from stores.reader_parts import Source
from stores.readers.fastload import loader_of, versions
from stores.run import add_options, source_of

SHARE = 0.9
SEED = 0  # loader_of's


def job(arguments: argparse.Namespace, source: Source) -> dict[str, Any]:
    """One of the two: the first until SHARE of the epoch, the second from there to its end."""
    versions()
    begin = time.perf_counter()
    with loader_of(source, "", arguments.threads, f"{source.cache / 'tier'}:64GB") as loader:
        if arguments.state:
            loader.load_state_dict(json.loads(arguments.state))
        batches = iter(loader)
        next(batches)
        first = time.perf_counter() - begin
        for _ in range(len(loader) if arguments.state else int(SHARE * len(loader)) - 1):
            if next(batches, None) is None:
                break
        state = loader.state_dict()
        disk = loader.stats()["cache"]["disk"]
    return {"first": first, "state": state, "disk": disk}


def again(source: Source, steps: int, ranges: list[tuple[str, int, int]]) -> int:
    """Bytes of the records of an epoch's first batches that ranges have."""
    from fastload import PackedDataset
    from fastload.sampler import Partition, Sampler
    from fastload.sampler.sampler import ShuffledOrder

    dataset = PackedDataset(source.packed)
    sampler = Sampler(ShuffledOrder(len(dataset), SEED), Partition(source.batch))
    records = dataset.records[np.concatenate([sampler.batch(0, 0, step).ids for step in range(steps)])]
    total = 0
    for number, shard in enumerate(dataset.manifest.shards):
        own = records[records["shard"] == number]
        begins = own["offset"].astype(np.int64)
        ends = begins + own["length"]
        for path, first, end in ranges:
            if path.endswith("/" + shard.file):
                total += int(np.maximum(np.minimum(ends, end) - np.maximum(begins, first), 0).sum())
    return total


def settled(line: Line) -> Counts:
    """The line's counts, once no request of a job that has ended comes any more."""
    counts, same = line.counts(), 0
    while same < 3:
        time.sleep(0.2)
        before, counts = counts, line.counts()
        same = same + 1 if counts == before else 0
    return counts


def run(arguments: argparse.Namespace) -> dict[str, Any]:
    """Both jobs, behind one line."""
    from fastload import PackedDataset

    versions()
    with Line(upstream=arguments.upstream, latency=arguments.latency, bandwidth=arguments.bandwidth) as line:
        os.environ["AWS_ENDPOINT_URL"] = line.url
        source = source_of(arguments, line.url, arguments.cache)
        os.environ["FASTLOAD_SETS_DIR"] = str(source.cache / "sets")
        steps = int(SHARE * -(-len(PackedDataset(source.url)) // source.batch))
        command = [sys.executable, *sys.argv, f"--cache={source.cache}", f"--endpoint={line.url}"]
        found: list[dict[str, Any]] = []
        before = line.counts()
        for state in ("", None):
            given = json.dumps(found[0]["state"]) if state is None else state
            mark = len(line.ranges())
            done = subprocess.run([*command, f"--state={given}", "--job"], stdout=subprocess.PIPE, check=True)
            found.append(json.loads(done.stdout.splitlines()[-1]))
            after = settled(line)
            found[-1]["fetched"], before = after.bytes - before.bytes, after
        return {
            "begin_first": found[0]["first"],
            "restart_first": found[1]["first"],
            "begin_bytes": found[0]["fetched"],
            "held_records": found[0]["disk"]["held_records"],
            "restart_bytes": found[1]["fetched"],
            "again_bytes": again(source, steps, line.ranges()[mark:]),
            "restart_misses": found[1]["disk"]["misses"],
            "disks": [each["disk"] for each in found],
        }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_options(parser)
    parser.add_argument("--job", action="store_true", help="be one of the two")
    parser.add_argument("--state", default="")
    parser.add_argument("--cache", type=Path)
    parser.add_argument("--endpoint", default="")
    arguments = parser.parse_args()
    if arguments.job:
        source = source_of(arguments, arguments.endpoint, arguments.cache)
        print(json.dumps(job(arguments, source)), flush=True)
        return
    with tempfile.TemporaryDirectory(prefix="fastload-bench-") as cache:
        arguments.cache = Path(cache)
        print(json.dumps(run(arguments)), flush=True)


if __name__ == "__main__":
    main()
