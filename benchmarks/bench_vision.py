"""Pictures for vision-language models: this loader beside the image processors of transformers.

    python benchmarks/bench_vision.py IMAGE_FOLDER [--every 25] [--repeats 7] [--only WORD]
    python benchmarks/bench_vision.py IMAGE_FOLDER --transformers FOLDER/transformers   # of install_rival.sh

It needs transformers with Pillow, here or in the environment ``--transformers``, and compares with the
processors' torchvision classes where torchvision can be imported. Every ``--every``th picture is packed;
"largest" are the six of the folder with the most pixels, "coefficients" the same six as coefficient records.
Figures are CPU time of the whole process per picture, decoding included, with one decoding thread, torch at
one thread, in turns; the loader's batches of 16 (of 4 where a picture has 20 MB and more) are dropped one by
one, as a training step does. "By the clock" compares two threads with one.
"""

from __future__ import annotations

import argparse
import importlib
import io
import json
import os
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from harness.machine import busy_seconds, facts
from harness.measure import MINIMUM_REPEATS, check_repeats, summarize, table
from harness.provenance import provenance
from PIL import Image

import fastload

sys.path.append(str(Path(__file__).parents[1] / "tests" / "reference"))

import bare_torchvision  # noqa: F401 (lets torchvision be imported beside any torch)

BATCH, LARGE_BATCH, LARGEST = 16, 4, 6
ROUNDS = 20  # of the pictures in a set
AHEAD_SECONDS = 0.3  # in which a queue fills up; nobody works meanwhile, so it costs no CPU time
#: transformers' module, class, and settings that differ from the defaults.
PROCESSORS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "Qwen2-VL": ("qwen2_vl", "Qwen2VL", {}),
    "SigLIP2": ("siglip2", "Siglip2", {}),
    "Idefics3": ("idefics3", "Idefics3", {}),
}
LARGE = {"size": {"shortest_edge": 3136, "longest_edge": 12845056}}  # of Qwen2-VL's checkpoints
Work = Callable[[], int]


def made(name: str, is_pil: bool, settings: dict[str, Any]) -> Any:
    """An image processor; None where its library is missing."""
    module, kind, own = PROCESSORS[name]
    middle, end = ("image_processing_pil", "Pil") if is_pil else ("image_processing", "")
    try:
        found = importlib.import_module(f"transformers.models.{module}.{middle}_{module}")
        return getattr(found, f"{kind}ImageProcessor{end}")(**own, **settings)
    except ImportError as error:
        warnings.warn(f"{name}: no {'PIL' if is_pil else 'torchvision'} class: {error}", stacklevel=2)
        return None


def by_processor(processor: Any, files: Sequence[bytes]) -> Work:
    """One picture after the other, decoded by Pillow."""

    def work() -> int:
        for data in files:
            processor(Image.open(io.BytesIO(data)).convert("RGB"), return_tensors="pt")
        return len(files)

    return work


def by_loader(folder: Path, vision: Any, threads: int = 1, batch: int = BATCH) -> Work:
    """An epoch of a loader that stays. It reads ahead into the next one: that belongs to its turn."""
    loader = fastload.DataLoader(folder, batch, num_workers=threads, transform=vision)

    def work() -> int:
        count = 0
        for batch in loader:
            count += len(batch["valid"])
            del batch
        time.sleep(AHEAD_SECONDS)
        return count

    return work


def packed(files: Sequence[bytes], folder: Path, rounds: int, **options: Any) -> Path:
    """A set of these pictures, ``rounds`` times over, so that an epoch is long."""
    rows = [{"image": data} for _ in range(rounds) for data in files]
    fastload.pack(rows, folder, schema={"image": "image"}, **options)
    return folder


def turns(works: dict[str, Work], repeats: int, clock: Callable[[], float]) -> dict[str, list[float]]:
    """Seconds for a picture, in turns: A B C, then C B A."""
    for work in works.values():
        work()
    found: dict[str, list[float]] = {name: [] for name in works}
    for turn in range(repeats):
        for name in list(works)[:: -1 if turn % 2 else 1]:
            began = clock()
            count = works[name]()
            pause = AHEAD_SECONDS if clock is time.perf_counter else 0.0
            found[name].append((clock() - began - pause) / count)
    return found


def jobs(
    files: Sequence[bytes], large: Sequence[bytes], folder: Path
) -> Iterator[tuple[str, dict[str, Work]]]:
    """The rows of the table, and what takes turns in each."""
    small_set = packed(files, folder / "small", ROUNDS)
    large_set = packed(large, folder / "large", ROUNDS)
    coefficients = packed(large, folder / "coefficients", ROUNDS, coefficients="fast")
    for name in PROCESSORS:
        pil, other = made(name, True, {}), made(name, False, {})
        works = {"PIL": by_processor(pil, files)}
        works |= {} if other is None else {"torchvision": by_processor(other, files)}
        for dtype in ("float32", "bfloat16", "uint8"):
            rule = fastload.Vision(pil, dtype=dtype)  # type: ignore[arg-type]
            works[dtype] = by_loader(small_set, rule, batch=LARGE_BATCH if name == "Idefics3" else BATCH)
        yield name, works
    pil, other = made("Qwen2-VL", True, LARGE), made("Qwen2-VL", False, LARGE)
    vision = fastload.Vision(pil)
    works = {"PIL": by_processor(pil, large)}
    works |= {} if other is None else {"torchvision": by_processor(other, large)}
    works["float32"] = by_loader(large_set, vision, batch=LARGE_BATCH)
    works["coefficients"] = by_loader(coefficients, vision, batch=LARGE_BATCH)
    works["uint8"] = by_loader(large_set, fastload.Vision(pil, dtype="uint8"), batch=LARGE_BATCH)
    yield "Qwen2-VL, largest six", works
    vision = fastload.Vision(made("Qwen2-VL", True, {}))
    pairs = {f"{threads} threads": by_loader(small_set, vision, threads) for threads in (1, 2)}
    yield "Qwen2-VL, by the clock", pairs


def pixels(path: Path) -> int:
    """The pixels of a picture."""
    with Image.open(path) as image:
        return int(image.width * image.height)


def rows_of(name: str, found: dict[str, list[float]]) -> list[list[str]]:
    """Lines of the table: milliseconds, and how many times as fast as each reference."""
    base = {key: found[key] for key in ("PIL", "torchvision", "1 threads") if key in found}
    lines = []
    for way, seconds in found.items():
        line = [name, way, f"{1e3 * summarize(seconds).median:.2f}"]
        line[-1] += f" [{1e3 * min(seconds):.2f}, {1e3 * max(seconds):.2f}]"
        for key in ("PIL", "torchvision", "1 threads"):
            ratios = [other / own for other, own in zip(base.get(key, []), seconds, strict=False)]
            told = ratios and way not in ("PIL", key)
            line.append(
                f"{summarize(ratios).median:.2f} [{min(ratios):.2f}, {max(ratios):.2f}]" if told else ""
            )
        lines.append(line)
    return lines


def elsewhere(environment: Path, words: Sequence[object]) -> int:
    """Run this in another environment, with the fastload of this one."""
    with tempfile.TemporaryDirectory() as folder:
        for part in Path(fastload.__file__).parents[1].glob("fastload*"):  # its version, too
            Path(folder, part.name).symlink_to(part)
        line = [str(word) for word in (environment / "bin" / "python", __file__, *words)]
        return subprocess.run(line, env={**os.environ, "PYTHONPATH": folder}).returncode


def watched(works: dict[str, Work], repeats: int, name: str) -> tuple[dict[str, list[float]], float]:
    """The seconds of a job's turns, and how many cores other processes took meanwhile."""
    began, busy, own = time.monotonic(), busy_seconds(), time.process_time()
    found = turns(works, repeats, time.perf_counter if "clock" in name else time.process_time)
    others = busy_seconds() - busy - (time.process_time() - own)
    return found, max(0.0, others / (time.monotonic() - began))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("images", type=Path)
    parser.add_argument("--transformers", type=Path, metavar="ENVIRONMENT", help="a folder with bin/python")
    parser.add_argument("--every", type=int, default=25)
    parser.add_argument("--repeats", type=int, default=max(7, MINIMUM_REPEATS))
    parser.add_argument("--only", default="", help="rows whose name has this")
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "results" / "vision.json")
    arguments = parser.parse_args()
    check_repeats(arguments.repeats)
    if arguments.transformers:
        own = ["--every", arguments.every, "--repeats", arguments.repeats, "--only", arguments.only]
        return elsewhere(
            arguments.transformers, [arguments.images, *own, "--output", arguments.output.absolute()]
        )
    torch.set_num_threads(1)
    paths = sorted(path for path in arguments.images.rglob("*") if path.suffix.lower() in (".jpg", ".jpeg"))
    files = [path.read_bytes() for path in paths[:: arguments.every]]
    large = [path.read_bytes() for path in sorted(paths, key=pixels)[-LARGEST:]]
    measured, outside, lines = {}, 0.0, []
    with tempfile.TemporaryDirectory() as folder:
        for name, works in jobs(files, large, Path(folder)):
            if arguments.only in name:
                measured[name], others = watched(works, arguments.repeats, name)
                outside = max(outside, others)
                lines += rows_of(name, measured[name])
    print(" ".join(f"{name}: {value};" for name, value in facts().items()))
    print(f"{len(files)} pictures\n")
    print(table(["job", "way", "ms a picture", "times PIL", "times torchvision", "times 1 thread"], lines))
    given = {name: str(value) for name, value in vars(arguments).items()}
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    failures = {
        f"{name} | torchvision": "transformers' torchvision class cannot be imported"
        for name, ways in measured.items()
        if "PIL" in ways and "torchvision" not in ways
    }
    body = {"benchmark": "vision", **provenance(), "arguments": given, "seconds": measured}
    body |= {"outside_cores": outside, "failures": failures}
    arguments.output.write_text(json.dumps(body, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
