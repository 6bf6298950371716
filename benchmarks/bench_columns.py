"""Columns of a very large dataset: what opening them costs, and whether memory grows with the samples.

    python benchmarks/bench_columns.py [--samples 10000000] [--workdir FOLDER]

It makes two sets with boxes (7 per sample), their classes and a number, one of --samples and one of a
hundredth, and opens both in 1 and in 8 processes, which gather batches of 256 random samples. Files are in
the page cache. "own" is anonymous memory; mapped pages are page cache, shared by all processes.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
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

from fastload._native import _C
from fastload.sample.fields import Array, Boxes, Image, Scalar
from fastload.sample.schema import Schema
from fastload.shard.columns import write_column
from fastload.shard.index import RECORD, write_index
from fastload.shard.manifest import INDEX_NAME, Manifest, Shard, column_name, entries_of, fields_digest

OBJECTS = 7  # a sample
RECORD_BYTES = 100
PART = 100_000  # samples written at a time
SCHEMA = Schema.of(
    {"image": Image(), "boxes": Boxes(), "classes": Array("int32", (None,)), "area": Scalar("float32")}
)
SHOWN = ("open_ms", "first_ms", "later_ms", "own_mb", "mapped_mb")


class Keys:
    """Names of the samples; ``write_index`` walks them twice."""

    def __init__(self, parts: list[range]) -> None:
        self._parts = parts

    def __iter__(self) -> Iterator[list[bytes]]:
        return ([b"%010d.jpg" % number for number in part] for part in self._parts)


def records(parts: list[range]) -> Iterator[np.ndarray]:
    """Index entries of pictures that nobody reads."""
    for part in parts:
        entries = np.zeros(len(part), RECORD)
        entries["offset"] = np.arange(part.start, part.stop) * RECORD_BYTES
        entries["length"], entries["label"], entries["codec"] = RECORD_BYTES, -1, 1
        yield entries


def write_set(folder: Path, samples: int) -> Path:
    """A set whose shard is a hole; its index and columns are whole."""
    folder.mkdir(parents=True)
    parts = [range(at, min(at + PART, samples)) for at in range(0, samples, PART)]
    rng = np.random.default_rng(0)
    corners = rng.uniform(0, 100, (PART * OBJECTS, 2, 2)).astype(np.float32)
    boxes, classes = np.sort(corners, 1).reshape(-1, 4), rng.integers(0, 80, PART * OBJECTS, np.int32)
    files = {}
    for number, field in SCHEMA.columns:
        path = folder / column_name(number)
        if field.storage == "fixed":
            areas = (rng.random(len(part), np.float32) for part in parts)
            files[field.name] = write_column(path, field, samples, areas)
            continue
        values = boxes if field.name == "boxes" else classes
        lengths = (np.full(len(part), OBJECTS * field.item_bytes) for part in parts)
        chunks = (values[: len(part) * OBJECTS].tobytes() for part in parts)
        files[field.name] = write_column(path, field, samples, (), lengths, chunks)
    entries = entries_of(SCHEMA, files)
    index = folder / INDEX_NAME
    write_index(index, records(parts), Keys(parts), fields_digest(entries))
    size = samples * RECORD_BYTES
    with open(folder / "shard.bin", "wb") as file:
        file.truncate(size)
    shards = (Shard("shard.bin", size, samples),)
    digest = _C.Index(str(index)).digest
    Manifest("arrow", samples, size, (), shards, index.stat().st_size, digest, fields=entries).write(folder)
    return folder


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--samples", type=int, default=10_000_000)
    parser.add_argument("--processes", type=int, default=8, help="processes at once, compared with one")
    parser.add_argument("--workdir", type=Path, help="folder of the sets (default: a temporary one)")
    parser.add_argument("--repeats", type=int, default=MINIMUM_REPEATS)
    parser.add_argument("--output", type=Path, default=Path("build/bench/columns.json"))
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    arguments = parse(argv)
    check_repeats(arguments.repeats)
    with tempfile.TemporaryDirectory(dir=arguments.workdir) as work:
        candidates = []
        for samples in (arguments.samples, arguments.samples // 100):
            folder = write_set(Path(work) / str(samples), samples)
            for processes in (1, arguments.processes):
                line = child("runs.columns", folder)
                name = f"{samples:,} samples, {processes} process{'es' if processes > 1 else ''}"
                line += ["--processes", str(processes)]
                candidates.append(Candidate(name, line, reads=(folder,)))
        runs = alternate(candidates, arguments.repeats)
    bad = failures(runs)
    rows = [
        [one.name, *(summarize(values_of(runs, one.name, key)).text(2) for key in SHOWN)]
        for one in candidates
        if one.name not in bad
    ]
    heads = ["", "open, ms", "first batch, ms", "a later one, ms", "own memory, MB", "mapped pages, MB"]
    print(" ".join(f"{name}: {value};" for name, value in facts().items()))
    print(f"\n{table(heads, rows)}")
    for name, error in bad.items():
        print(f"failed: {name}: {error}")
    write_results(arguments.output, "columns", vars(arguments), runs)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
