"""Memory does not grow with the set: listing, planning and combining go through files."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from fastload.packing import options as pack_options
from fastload.packing.cut import WORK_NAME, Plan, ShardPlan, planned_bytes
from fastload.packing.listing import Listing, ListingWriter, Totals
from fastload.packing.shard_writer import ShardPart
from fastload.packing.target import publish_planned
from fastload.sample.schema import Schema
from fastload.shard.index import RECORD

MB = 1_000_000


def peak(work: Callable[[], object]) -> int:
    """The most bytes that Python and NumPy held at a time."""
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def write_listing(folder: Path, files: int) -> tuple[Totals, ListingWriter]:
    folder.mkdir(parents=True, exist_ok=True)
    writer = ListingWriter(folder, 256 * MB)
    for i in range(files):
        writer.add(b"class_%05d/image_%08d.jpeg" % (i // 1000, i), 110_000, i, i // 1000)
    return writer.finish(), writer


def test_listing(tmp_path: Path) -> None:
    small = peak(lambda: write_listing(tmp_path / "small", 10_000))
    large = peak(lambda: write_listing(tmp_path / "large", 100_000))
    assert large < small + MB
    listing = Listing(tmp_path / "large")
    assert len(listing) == 100_000
    [row] = listing.rows(63_456, 63_457)
    assert row == (b"class_00063/image_00063456.jpeg", 110_000, 63_456, 63)
    assert peak(lambda: sum(1 for _ in listing.rows())) < 8 * MB


def test_planning(tmp_path: Path) -> None:
    needs = []
    for files in (10_000, 100_000):
        folder = tmp_path / str(files)
        totals, writer = write_listing(folder, files)
        assert [stop for _, stop, _ in writer.shards[:-1]] == [start for start, _, _ in writer.shards[1:]]
        assert all(size <= 256 * MB for _, _, size in writer.shards)
        shards = tuple(ShardPlan(f"s{i}", *cut) for i, cut in enumerate(writer.shards))
        plan = Plan(pack_options.PackOptions().identity(), {}, totals, Schema.plain(), shards)
        needs.append(peak(lambda plan=plan, folder=folder: planned_bytes(plan, folder)))
    assert needs[1] < needs[0] + MB


def unpublished(folder: Path, shards: int, records: int) -> Plan:
    """A pack whose shards (empty files) are finished, and whose index is still to be written."""
    (folder / WORK_NAME).mkdir(parents=True)
    plans = tuple(ShardPlan(f"s-{i:05d}.arrow", i * records, (i + 1) * records, 0) for i in range(shards))
    for shard in plans:
        entries = np.zeros(records, RECORD)
        entries["length"], entries["codec"] = 1, 1
        keys = [b"class/%010d.jpg" % i for i in range(shard.start, shard.stop)]
        (folder / shard.name).touch()
        ShardPart(entries, keys, [], 0).write(folder / WORK_NAME / f"{shard.name}.part")
    totals = Totals(shards * records, 1, "", "", 0)
    return Plan(pack_options.PackOptions().identity(), {}, totals, Schema.plain(["class"]), plans)


def test_combining(tmp_path: Path) -> None:
    peaks = []
    for shards in (5, 50):
        plan = unpublished(tmp_path / str(shards), shards, 4000)
        peaks.append(peak(lambda plan=plan, shards=shards: publish_planned(tmp_path / str(shards), plan)))
    assert peaks[1] < peaks[0] + MB


@pytest.mark.parametrize("start", [0, 1, 8191, 8192, 20_000])
def test_ranges_of_a_listing(tmp_path: Path, start: int) -> None:
    write_listing(tmp_path, 20_001)
    blob, rows = Listing(tmp_path).read(start, min(start + 3, 20_001))
    text, ends = blob.tobytes(), rows["end"].tolist()
    names = [text[a:b] for a, b in zip([0, *ends[:-1]], ends, strict=True)]
    assert names == [
        b"class_%05d/image_%08d.jpeg" % (i // 1000, i) for i in range(start, min(start + 3, 20_001))
    ]
