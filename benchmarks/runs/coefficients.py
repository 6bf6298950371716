"""One run of what ``bench_transcode.py`` measures; prints one JSON line.

    child.py runs.coefficients to|back FOLDER [--form fast|small]    one thread, in memory
    child.py runs.coefficients libjpeg|jpegtran FOLDER               its yardsticks, one thread
    child.py runs.coefficients pack FOLDER --workdir W [--form F] [--processes N]
    child.py runs.coefficients recode FOLDER --workdir W [--form F] [--processes N]

"to" makes records, "back" the JPEGs of records. "libjpeg" is libjpeg-turbo's transcoding of a JPEG to a
JPEG in this process, "jpegtran" the program ``jpegtran -copy all``: a process a file, less as many runs on
a picture of 8 x 8 pixels. "pack" packs a folder of JPEGs, with entry points or (``--form``) as records;
"recode" turns a copy of a packed set into records, or without ``--form`` into JPEGs.

The clock starts after the imports and after what the action needs has been read or made.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from PIL import Image
from runs.turbo_transform import Transcoder
from sets.images import bytes_below, pictures_in

from fastload import _C, PackedDataset
from fastload.errors import DecodeError
from fastload.packing import PackOptions, pack
from fastload.packing.recode import recode

MINIMUM_SECONDS = 1.0  # of what is done in memory: so long the pictures are gone through again


def read(folder: Path, form: str) -> tuple[list[bytes], list[bytes]]:
    """The JPEGs that can be records, and their records."""
    jpegs, records = [], []
    for path in pictures_in(folder):
        data = path.read_bytes()
        with contextlib.suppress(DecodeError):
            records.append(_C.to_coefficients(np.frombuffer(data, np.uint8), form))
            jpegs.append(data)
    return jpegs, records


def timed(work: Callable[[], object], images: int, at_least: float = 0.0) -> dict[str, float]:
    """``work``, which is ``images`` images, done once and until so many seconds are over."""
    rounds, begin, busy = 0, time.perf_counter(), sum(os.times()[:4])
    while rounds == 0 or time.perf_counter() - begin < at_least:
        work()
        rounds += 1
    seconds, used = time.perf_counter() - begin, sum(os.times()[:4]) - busy
    return {
        "rate": rounds * images / seconds,
        "rate_per_cpu": rounds * images / max(used, 0.01),  # the clock ticks every 0.01 s
        "images": images,
    }


def in_memory(action: str, folder: Path, form: str) -> dict[str, float]:
    """Records made or turned back, or libjpeg-turbo's JPEGs of JPEGs, on this thread."""
    jpegs, records = read(folder, form)
    size = sum(len(jpeg) for jpeg in jpegs)
    if action == "libjpeg":
        transcoder = Transcoder(jpegs)
        found = timed(lambda: [transcoder.run(jpeg) for jpeg in jpegs], len(jpegs), MINIMUM_SECONDS)
        return {**found, "bytes": sum(len(transcoder(jpeg)) for jpeg in jpegs) / size}
    arrays = [np.frombuffer(jpeg, np.uint8) for jpeg in jpegs]
    stored = [np.frombuffer(record, np.uint8) for record in records]
    work: dict[str, Callable[[], object]] = {
        "to": lambda: [_C.to_coefficients(array, form) for array in arrays],
        "back": lambda: [_C.coefficients_to_jpeg(record) for record in stored],
    }
    share = sum(len(record) for record in records) / size
    return {**timed(work[action], len(jpegs), MINIMUM_SECONDS), "bytes": share}


def jpegtran(folder: Path) -> dict[str, float]:
    """The program on each file, without what starting and ending it takes."""
    paths, written = pictures_in(folder), 0
    wall = cpu = 0.0
    with tempfile.TemporaryDirectory() as name:
        tiny, target = Path(name, "tiny.jpg"), Path(name, "target.jpg")
        Image.new("RGB", (8, 8)).save(tiny)
        for path in paths:
            for source, sign in ((tiny, -1), (path, 1)):
                begin, before = time.perf_counter(), children_cpu()
                subprocess.run(["jpegtran", "-copy", "all", "-outfile", target, source], check=True)
                wall += sign * (time.perf_counter() - begin)
                cpu += sign * (children_cpu() - before)
            written += target.stat().st_size
    count, read = len(paths), sum(path.stat().st_size for path in paths)
    rates = {"rate": count / max(wall, 1e-9), "rate_per_cpu": count / max(cpu, 1e-9)}
    return {**rates, "bytes": written / read, "images": count}


def children_cpu() -> float:
    """CPU seconds of ended children; finer than the ticks of os.times()."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def packing(folder: Path, workdir: Path, form: str | None, processes: int) -> dict[str, float]:
    """``fastload pack``; "bytes" are all of the set's files by all of the folder's."""
    with tempfile.TemporaryDirectory(dir=workdir) as name:
        target, options = Path(name, "set"), PackOptions(num_proc=processes, coefficients=form)
        found = timed(lambda: pack(folder, target, options), len(pictures_in(folder)))
        return {**found, "bytes": bytes_below(target) / bytes_below(folder)}


def recoding(folder: Path, workdir: Path, form: str | None, processes: int) -> dict[str, float]:
    """``fastload recode`` of a copy; "bytes" are all of the copy's files afterwards by those before."""
    with tempfile.TemporaryDirectory(dir=workdir) as name:
        copy = Path(name, "set")
        shutil.copytree(folder, copy)
        found = timed(lambda: recode(copy, form, processes), len(PackedDataset(copy)))
        return {**found, "bytes": bytes_below(copy) / bytes_below(folder)}


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("action", choices=("to", "back", "libjpeg", "jpegtran", "pack", "recode"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--form", choices=("fast", "small"))
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--workdir", type=Path, help="where sets are written")
    arguments = parser.parse_args(argv)
    action, folder, form = arguments.action, arguments.folder, arguments.form
    if action in ("pack", "recode"):
        work = packing if action == "pack" else recoding
        values = work(folder, arguments.workdir, form, arguments.processes)
    elif action == "jpegtran":
        values = jpegtran(folder)
    else:
        values = in_memory(action, folder, form or "fast")
    print(json.dumps(values))
    return 0


if __name__ == "__main__":
    sys.exit(main())
