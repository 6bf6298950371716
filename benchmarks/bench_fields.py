"""Batches of many fields against images and labels of the same pictures, and opening a large set.

    python benchmarks/bench_fields.py IMAGE_FOLDER
    python benchmarks/bench_fields.py IMAGE_FOLDER --open 10000000

The pictures are packed twice: with a label; and with a label, 4 scalars, 0 to 13 rows of 5 floats and a
caption. Loaders of both take turns (A B, then B A), each measured from its third batch to the end of an
epoch. --open packs that many samples of 7 boxes around one picture and opens them, in
1 and in 8 processes at once: seconds, and anonymous memory of all, in MB.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from machine import facts
from measure import MINIMUM_REPEATS, check_repeats, summarize, table

import fastload
from fastload import Array, Boxes, DataLoader, Image, Label, Scalar, Schema, Text
from fastload import transforms as T
from fastload._native import _C
from fastload.sample.schema import Field
from fastload.shard.columns import write_column
from fastload.shard.fields import column_name, entries_of, fields_digest
from fastload.shard.index import RECORD, write_index
from fastload.shard.manifest import INDEX_NAME, Manifest, Shard

SCALARS = {f"number{i}": Scalar("float32") for i in range(4)}
PLAIN = {"image": Image(), "label": Label()}
RICH = {**PLAIN, **SCALARS, "rows": Array("float32", (None, 5)), "caption": Text()}
BOXES = 7
PART = 1 << 20  # samples written at a time


def pictures_in(folder: Path) -> list[Path]:
    """The JPEGs of a folder."""
    found = sorted(path for path in folder.rglob("*") if path.suffix.lower() in (".jpg", ".jpeg"))
    if not found:
        raise SystemExit(f"{folder} has no JPEGs.")
    return found


class Pictures:
    """The samples of a folder of images, with values for the other fields."""

    def __init__(self, folder: Path, count: int, names: Sequence[str]) -> None:
        found = pictures_in(folder)
        self._paths = [found[i % len(found)] for i in range(count)]
        self._names = names

    def __len__(self) -> int:
        return len(self._paths)

    def __getitem__(self, number: int) -> dict[str, Any]:
        rng = np.random.default_rng(number)
        values: dict[str, Any] = {"image": self._paths[number], "label": number % 10}
        values |= {name: float(number) for name in SCALARS}
        values["rows"] = rng.normal(size=(number % 14, 5)).astype(np.float32)
        values["caption"] = "a photograph of some things, " * (1 + number % 4)
        return {name: values[name] for name in self._names}


def packed(folder: Path, work: Path, count: int) -> tuple[Path, Path]:
    """Both sets."""
    for name, schema in (("plain", PLAIN), ("rich", RICH)):
        fastload.pack(Pictures(folder, count, list(schema)), work / name, schema, num_proc=1, entries=None)
    return work / "plain", work / "rich"


def turns(sets: Sequence[Path], batch_size: int, rounds: int) -> dict[str, list[tuple[float, float]]]:
    """Images a second and a CPU second of each set, in turn."""
    speeds: dict[str, list[tuple[float, float]]] = {path.name: [] for path in sets}
    for turn in range(rounds):
        for path in sets if turn % 2 else sets[::-1]:
            speeds[path.name].append(speed(path, batch_size))
    return speeds


def speed(path: Path, batch_size: int) -> tuple[float, float]:
    """Images a second and a CPU second, of a loader that has begun."""
    transform = T.Compose([T.RandomResizedCrop(224), T.RandomHorizontalFlip()])
    options: dict[str, Any] = {"transform": transform, "shuffle": True, "seed": 0, "drop_last": True}
    with DataLoader(path, batch_size, cache="off", **options) as loader:
        iterator = iter(loader)
        for _ in range(2):
            next(iterator)
        began, cpu = time.perf_counter(), time.process_time()
        count = batch_size * sum(1 for _ in iterator)
        return count / (time.perf_counter() - began), count / (time.process_time() - cpu)


def write_large(folder: Path, picture: Path, count: int) -> None:
    """A set of ``count`` samples of one picture, with 7 boxes and a score each."""
    schema = Schema.of({"image": Image(), "boxes": Boxes(), "score": Scalar("float32")})
    folder.mkdir()
    data = picture.read_bytes()
    (folder / "data.bin").write_bytes(data)
    record = np.zeros(1, RECORD)
    bytes_ = np.frombuffer(data, np.uint8)
    codec, width, height, channels, flags = _C.probe(bytes_)
    found = (len(data), _C.crc32c(bytes_), -1, width, height, _C.codec_names().index(codec), channels, flags)
    for name, value in zip(
        ("length", "crc32c", "label", "width", "height", "codec", "channels", "flags"), found, strict=True
    ):
        record[name] = value
    boxes, score = schema["boxes"], schema["score"]
    files = {
        "boxes": _column(folder / column_name(1), boxes, count),
        "score": _column(folder / column_name(2), score, count),
    }
    entries = entries_of(schema, files)
    parts = [min(PART, count - at) for at in range(0, count, PART)]
    starts = range(0, count, PART)
    keys = ([b"%08d" % i for i in range(at, at + n)] for at, n in zip(starts, parts, strict=True))
    records = (np.repeat(record, n) for n in parts)
    write_index(folder / INDEX_NAME, list(records), list(keys), fields_digest(entries))
    index = _C.Index(str(folder / INDEX_NAME))
    Manifest(
        format="plain",
        num_records=count,
        data_bytes=len(data) * count,
        classes=(),
        shards=(Shard("data.bin", len(data), count),),
        index_size=(folder / INDEX_NAME).stat().st_size,
        index_crc=index.digest,
        fields=entries,
    ).write(folder)


def _column(path: Path, field: Field, count: int) -> Any:
    parts = [min(PART, count - at) for at in range(0, count, PART)]
    if field.storage == "fixed":
        return write_column(path, field, count, [np.zeros(n, np.float32) for n in parts])
    nbytes = BOXES * field.item_bytes
    lengths = [np.full(n, nbytes, np.int64) for n in parts]
    return write_column(path, field, count, (), lengths, _Boxes(parts, nbytes))


class _Boxes:
    """The bytes of all boxes, a part at a time."""

    def __init__(self, parts: Sequence[int], nbytes: int) -> None:
        self._parts, self._nbytes = parts, nbytes

    def __iter__(self) -> Iterator[bytes]:
        for count in self._parts:
            yield bytes(count * self._nbytes)


OPENING = """
import sys, time
from fastload import DataLoader, PackedDataset
from machine import process_memory
before = process_memory()
began = time.perf_counter()
dataset = PackedDataset(sys.argv[1])
dataset.columns["boxes"], dataset.columns["score"]
seconds = time.perf_counter() - began
loader = DataLoader(dataset, 256, shuffle=True, seed=0, fields=["boxes", "score"], num_workers=1, cache="off")
for number, batch in enumerate(loader):
    if number == 20:
        break
after = process_memory()
print(seconds, after.anonymous - before.anonymous, flush=True)
sys.stdin.read()
"""


def opened(folder: Path, processes: int) -> tuple[float, float]:
    """The slowest opening in seconds, and the processes' anonymous memory in MB after some batches."""
    command = [sys.executable, "-c", OPENING, str(folder)]
    here = str(Path(__file__).parent)
    running = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=here)
        for _ in range(processes)
    ]
    found = [process.stdout.readline().split() for process in running if process.stdout is not None]
    for process in running:
        process.communicate("")
    return max(float(seconds) for seconds, _ in found), sum(float(memory) for _, memory in found)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("images", type=Path)
    parser.add_argument("--count", type=int, default=4096, help="samples, the images again and again")
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--repeats", type=int, default=max(7, MINIMUM_REPEATS))
    parser.add_argument("--open", type=int, default=0, help="samples of the large set; 0: none")
    options = parser.parse_args(arguments)
    check_repeats(options.repeats)
    print(f"{facts()['cpu']}, {facts()['cores']} cores")
    with tempfile.TemporaryDirectory() as work:
        sets = packed(options.images, Path(work), options.count)
        speeds = turns(sets, options.batch_size, options.repeats)
        for number, unit in enumerate(("images/s", "images a CPU second")):
            taken = {name: [one[number] for one in found] for name, found in speeds.items()}
            ratios = [rich / plain for rich, plain in zip(taken["rich"], taken["plain"], strict=True)]
            print(table(("set", unit, "lowest", "highest"), [(n, *_shown(v)) for n, v in taken.items()]))
            print(f"rich / plain: {summarize(ratios).text(3)}")
        if options.open:
            large = Path(work) / "large"
            write_large(large, pictures_in(options.images)[0], options.open)
            rows = [(n, *(f"{value:.3f}" for value in opened(large, n))) for n in (1, 8)]
            print(table(("processes", "opening, s", "anonymous memory of all, MB"), rows))


def _shown(values: Sequence[float]) -> tuple[str, ...]:
    found = summarize(values)
    return tuple(f"{value:.0f}" for value in (found.median, found.low, found.high))


if __name__ == "__main__":
    sys.exit(main())
