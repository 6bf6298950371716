"""Runs of samples, the slow way: rows in Python, sorted by Python; and small sets that have them."""

from __future__ import annotations

import csv
import json
import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from pack_trees import encoded
from tar_reference import write_tar

import fastload
from fastload import Image, Label, Scalar, Text
from fastload.packing import PackOptions
from fastload.packing.foreign import IndexOptions, index_files
from fastload.packing.packer import pack_shares, plan_shares, publish_shares
from fastload.packing.shares import ShardRanges
from fastload.shard.dataset import PackedFiles

__all__ = [
    "FIELDS",
    "KEYED",
    "SOURCES",
    "Row",
    "check_runs",
    "pack_rows",
    "python_rows",
    "rows_of",
    "runs_by_hand",
]

#: Fields by which rows of a table may be grouped, ordered and timed.
FIELDS = {
    "image": Image(), "label": Label(("kitchen", "hall", "yard")), "episode": Scalar("int64"),
    "scene": Text(), "frame": Scalar("int32"), "stamp": Scalar("float64"), "nanos": Scalar("int64"),
}  # fmt: skip
LENGTHS = (5, 1, 8)


@dataclass(frozen=True)
class Row:
    """A sample of a run."""

    label: int
    episode: int
    scene: str
    frame: int
    stamp: float
    nanos: int

    @property
    def path(self) -> str:
        return f"{self.scene}/f{self.frame}.png"


def rows_of(draw: random.Random, lengths: Sequence[int] = LENGTHS, shuffled: bool = False) -> list[Row]:
    """Rows of several runs. Frames have gaps, and times any distance; of two scenes that begin alike, numbers
    decide which comes first, not letters."""
    rows = []
    for run, length in enumerate(lengths):
        frames = sorted(draw.sample(range(3 * length + 10), length))
        start, nanos = draw.uniform(-5, 5), draw.randrange(10**18)
        for frame in frames:
            start += draw.uniform(0.01, 0.2)
            nanos += draw.randrange(10**6, 10**8)
            rows.append(Row(run % 3, 100 - run, f"scene{run}", frame, start, nanos))
    if shuffled:
        draw.shuffle(rows)
    return rows


def values_of(row: Row | None, key: str, what: str, is_order: bool) -> Any:
    """What a word of a spec says of a row."""
    if what != "/":
        return getattr(row, what)
    folder, _, name = key.rpartition("/")
    return int(re.findall(r"\d+", name.rpartition(".")[0] or name)[-1]) if is_order else folder


def runs_by_hand(rows: Sequence[Row | None], keys: Sequence[str], words: str) -> list[list[int]]:
    """The sample ids of each run, in order; runs by their first samples."""
    by, order = words.split(":")[:2]
    runs: dict[Any, list[int]] = {}
    for sample, row in enumerate(rows):
        runs.setdefault(values_of(row, keys[sample], by, False), []).append(sample)
    for ids in runs.values():
        ids.sort(key=lambda sample: values_of(rows[sample], keys[sample], order, True))
    return list(runs.values())


def times_by_hand(rows: Sequence[Row], runs: list[list[int]], words: str) -> list[float] | None:
    """The seconds of each place."""
    time = [*words.split(":"), "", ""][2]
    if time.endswith("fps"):
        return [number / float(time[:-3]) for ids in runs for number in range(len(ids))]
    if time == "nanos@ns":
        return [rows[sample].nanos / 1e9 for ids in runs for sample in ids]
    has_time = time == "stamp" or (not time and words.split(":")[1] == "stamp")
    return [rows[sample].stamp for ids in runs for sample in ids] if has_time else None


def check_runs(files: PackedFiles, rows: Sequence[Row], words: str) -> None:
    """A set's runs are those of its rows, which are in sample-id order."""
    found, keys = files.runs, [files.key(sample) for sample in range(len(rows))]
    assert found is not None
    wanted = runs_by_hand(rows, keys, words)
    ids = [sample for run in wanted for sample in run]
    assert len(found) == len(wanted)
    assert np.diff(found.begins).tolist() == [len(run) for run in wanted]
    places = np.arange(len(ids))
    assert found.ids_at(places).tolist() == ids
    assert found.places_of(np.array([*ids, -1, len(ids)])).tolist() == [*places.tolist(), -1, -1]
    assert found.runs_at(places).tolist() == [number for number, run in enumerate(wanted) for _ in run]
    times, wanted_times = found.times_at(places), times_by_hand(rows, wanted, words)
    assert (times is None) == (wanted_times is None)
    if times is not None:
        np.testing.assert_allclose(times, np.array(wanted_times), rtol=1e-12, atol=0)
    if ids == sorted(ids):
        assert found.ids is None  # nothing is kept of what can be counted


# ---- Sources ------------------------------------------------------------------------------------------


def python_rows(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """The rows as samples in Python."""
    return [{"image": np.full((4, 4, 3), i % 251, np.uint8), **vars(row)} for i, row in enumerate(rows)]


def _table(rows: Sequence[Row], folder: Path) -> list[dict[str, Any]]:
    for number, row in enumerate(rows):
        path = folder / row.path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(encoded(number, "PNG", 6, 6))
    names = FIELDS["label"].classes  # type: ignore[attr-defined]
    return [{"image": row.path, **vars(row), "label": names[row.label]} for row in rows]


def _csv(rows: Sequence[Row], folder: Path) -> Path:
    table = _table(rows, folder)
    with open(folder / "rows.csv", "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(table[0]))
        writer.writeheader()
        writer.writerows(table)
    return folder / "rows.csv"


def _jsonl(rows: Sequence[Row], folder: Path) -> Path:
    lines = "".join(json.dumps(row) + "\n" for row in _table(rows, folder))
    (folder / "rows.jsonl").write_text(lines, encoding="utf-8")
    return folder / "rows.jsonl"


def _parquet(rows: Sequence[Row], folder: Path) -> Path:
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.Table.from_pylist(_table(rows, folder)), folder / "rows.parquet", row_group_size=4)
    return folder / "rows.parquet"


def _folder(rows: Sequence[Row], folder: Path) -> Path:
    _table(rows, folder)
    return folder


def _tar(rows: Sequence[Row], folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    members = []
    for number, row in enumerate(rows):
        members.append((row.path, encoded(number, "PNG", 6, 6)))
        facts = json.dumps(vars(row)).encode()
        members.append((row.path.removesuffix(".png") + ".json", facts))
    return write_tar(folder / "rows.tar", members)


Pack = Callable[[Sequence[Row], Path, Path, str], None]


def _by(make: Callable[[Sequence[Row], Path], Any], **options: Any) -> Pack:
    def packed(rows: Sequence[Row], folder: Path, output: Path, words: str) -> None:
        schema = None if make in (_folder, _tar) else FIELDS
        fastload.pack(make(rows, folder), output, schema, runs=words, shard_size=4096, **options)

    return packed


def _in_python(rows: Sequence[Row], folder: Path, output: Path, words: str) -> None:
    fastload.pack(python_rows(rows), output, FIELDS, runs=words, raw=True, shard_size=4096)


def _iterable(rows: Sequence[Row], folder: Path, output: Path, words: str) -> None:
    fastload.pack(iter(python_rows(rows)), output, FIELDS, runs=words, raw=True, shard_size=4096)


def _set(rows: Sequence[Row], folder: Path, output: Path, words: str) -> None:
    """A set that has these runs is packed again, without a word of them."""
    _by(_csv)(rows, folder, folder / "set", words)
    fastload.pack(folder / "set", output, format="hdf5")


def _shares(rows: Sequence[Row], folder: Path, output: Path, words: str) -> None:
    source = _csv(rows, folder)
    wanted = PackOptions(runs=words, shard_size=4096, num_proc=1)
    plan_shares(source, output, wanted)
    for share in ("1/2", "0/2"):
        pack_shares(source, output, ShardRanges.parse(share), wanted)
    publish_shares(source, output, wanted)


def _store(rows: Sequence[Row], folder: Path, output: Path, words: str) -> None:
    fastload.pack(_csv(rows, folder), f"file://{output}", FIELDS, runs=words, shard_size=4096)


def _iterable_to_store(rows: Sequence[Row], folder: Path, output: Path, words: str) -> None:
    made = iter(python_rows(rows))
    fastload.pack(made, f"file://{output}", FIELDS, runs=words, raw=True, shard_size=4096)


def _indexed(rows: Sequence[Row], folder: Path, output: Path, words: str) -> None:
    index_files([_tar(rows, folder)], output, IndexOptions(runs=words))


#: Sources of rows with fields, and ways to pack them.
SOURCES: dict[str, Pack] = {
    "python": _in_python, "iterable": _iterable, "csv": _by(_csv), "jsonl": _by(_jsonl),
    "parquet": _by(_parquet), "set": _set, "shares": _shares, "store": _store,
    "iterable to a store": _iterable_to_store,
}  # fmt: skip
#: Sources whose rows have keys alone.
KEYED: dict[str, Pack] = {"folder": _by(_folder), "tar": _by(_tar), "index": _indexed}


def pack_rows(source: str, rows: Sequence[Row], folder: Path, output: Path, words: str) -> PackedFiles:
    """Pack rows; ``folder`` is for what they are made into."""
    {**SOURCES, **KEYED}[source](rows, folder, output, words)
    return PackedFiles(output)
