"""One run of bench_stores, in the interpreter of its own environment; the last line it prints is JSON.

    python benchmarks/child.py stores.run NAME prepare --folder IMAGES --packed FOLDER --shard-bytes 8000000
    python benchmarks/child.py stores.run NAME run --packed FOLDER --url s3://BUCKET/PREFIX ...

NAME is a file of readers/, or one and a variant of it, as in loaders/candidate.py. Such a file imports
nothing but the standard library when it is loaded, and has VARIANTS, versions(), CACHED (whether a second
epoch comes from the local disk), prepare(folder, target, shard_bytes), which writes what is put into the
store, and epochs(source, variant, threads), which gives epoch after epoch an iterator over its batches'
sizes.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from harness.machine import session_cpu
from stores.line import Line
from stores.reader_parts import Source

__all__ = ["add_options", "find", "names", "source_of"]

FOLDER = Path(__file__).parent / "readers"


def names() -> list[str]:
    """The readers there are, without their variants."""
    return sorted(path.stem for path in FOLDER.glob("*.py"))


def find(name: str) -> tuple[ModuleType, str]:
    """The module of a reader, and the variant the name asks for ("" for none)."""
    stem, _, variant = name.partition("_")
    if stem not in names():
        raise SystemExit(f"There is no reader {stem!r}; there are {', '.join(names())}.")
    module = importlib.import_module(f"stores.readers.{stem}")
    if variant and variant not in module.VARIANTS:
        raise SystemExit(f"{stem} has no variant {variant!r}; it has {', '.join(module.VARIANTS) or 'none'}.")
    return module, variant


@dataclass(frozen=True)
class Epoch:
    """What an epoch took; ``first`` is its first batch."""

    images: int
    seconds: float
    first_seconds: float
    first_requests: int
    requests: int
    bytes: int
    cpu: float


def measure(epoch: Iterator[int], line: Line, begin: float) -> Epoch:
    """Take all batches of an epoch that began at ``begin`` (time.perf_counter())."""
    before, cpu = line.counts(), session_cpu(os.getsid(0))
    images = next(epoch)
    first, first_requests = time.perf_counter() - begin, line.counts().requests - before.requests
    images += sum(epoch)
    took, after = time.perf_counter() - begin, line.counts()
    return Epoch(
        images,
        took,
        first,
        first_requests,
        after.requests - before.requests,
        after.bytes - before.bytes,
        session_cpu(os.getsid(0)) - cpu,
    )


def source_of(arguments: argparse.Namespace, endpoint: str, cache: Path) -> Source:
    """The set as it is seen at an address."""
    bucket, _, prefix = arguments.url.removeprefix("s3://").partition("/")
    files = sorted(path for path in arguments.packed.rglob("*") if path.is_file())
    keys = [path.relative_to(arguments.packed) for path in files]
    addresses = tuple(f"{endpoint}/{bucket}/{prefix}/{key}" for key in keys)
    size = sum(path.stat().st_size for path in files)
    return Source(arguments.url, endpoint, arguments.packed, addresses, cache, arguments.batch, size)


def run(arguments: argparse.Namespace, cache: Path) -> dict[str, Any]:
    """Two epochs from an empty cache."""
    module, variant = find(arguments.name)
    versions = module.versions()
    with Line(upstream=arguments.upstream, latency=arguments.latency, bandwidth=arguments.bandwidth) as line:
        os.environ["AWS_ENDPOINT_URL"] = line.url
        source = source_of(arguments, line.url, cache)
        begin = time.perf_counter()
        epochs = module.epochs(source, variant, arguments.threads)
        cold = measure(next(epochs), line, begin)
        second = measure(next(epochs), line, time.perf_counter()) if module.CACHED else None
        epochs.close()
        gc.collect()
    found = {f"cold_{name}": value for name, value in vars(cold).items()}
    found |= {f"second_{name}": value for name, value in vars(second).items()} if second else {}
    return {**found, "versions": versions}


def add_options(parser: argparse.ArgumentParser) -> None:
    """Those of a run."""
    parser.add_argument("--packed", type=Path, required=True, help="what prepare writes, as in the store")
    parser.add_argument("--url", default="", help="s3://BUCKET/PREFIX")
    parser.add_argument("--upstream", default="", help="the store, HOST:PORT")
    parser.add_argument("--latency", type=float, default=0.0)
    parser.add_argument("--bandwidth", type=float, default=0.0)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--batch", type=int, default=64)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("name")
    parser.add_argument("action", choices=["prepare", "run"])
    parser.add_argument("--folder", type=Path, help="pictures, for prepare")
    parser.add_argument("--shard-bytes", type=int, default=8_000_000)
    add_options(parser)
    arguments = parser.parse_args()
    if arguments.action == "prepare":
        find(arguments.name)[0].prepare(arguments.folder, arguments.packed, arguments.shard_bytes)
        result: dict[str, Any] = {}
    else:
        with tempfile.TemporaryDirectory(prefix="fastload-bench-") as cache:
            result = run(arguments, Path(cache))
    print(json.dumps(result), flush=True)
    sys.stderr.flush()
    os._exit(0)  # what is measured is over: no waiting for a library's worker threads to end


if __name__ == "__main__":
    main()
