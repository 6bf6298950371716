"""One way to DALI's batches for bench_dali.py: a process that measures a round when it is asked.

    python benchmarks/child.py runs.dali WAY --images FOLDER --packed FOLDER --job train_u8 --threads 2

WAY is ``bare`` (a pipeline written by hand that does DALI's work alone: the loader's own records and windows,
found before, in the same order, no labels), ``fused`` (one written as in DALI's documentation: it reads the
files, and draws), ``loader`` (fastload.DataLoader(backend="dali")) or ``native`` (without it). All decode no
more than the crop, with the same threads, and as many batches ahead. On ``--records``, the same pictures as
coefficient records: ``records`` is ``loader`` (the native decoder reads them), ``rebuilt`` is ``bare`` with
each made a JPEG again (by the same number of threads, a batch ahead), for DALI to decode.
"""

from __future__ import annotations

import argparse
import time
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from harness.rounds import Clock, Measure, serve, skip
from loaders.jobs import JOBS, MEAN, STD, Job

from fastload import DataLoader, PackedDataset
from fastload import transforms as T
from fastload._native import _C

DEPTH = 2
READY_ROUNDS = 12  # whose batches the bare way has ready
INPUTS = ("records", "start", "shape", "roi_start", "roi_end")
GEOMETRY = T.Compose([T.RandomResizedCrop(224), T.RandomHorizontalFlip()])


def bare(job: Job, arguments: argparse.Namespace, records: Path | None = None) -> Iterator[int]:
    """DALI's work alone: one pipeline, fed with what was made ready."""
    from nvidia.dali import fn, types
    from nvidia.dali.pipeline import Pipeline

    decoder, index = ("cpu", None) if arguments.device == "cpu" else ("mixed", torch.cuda.current_device())
    pipeline: Any = Pipeline(job.batch, arguments.threads, index, prefetch_queue_depth=DEPTH)
    kinds = {"start": types.INT32, "shape": types.INT32, "roi_start": types.FLOAT, "roi_end": types.FLOAT}
    with pipeline:
        encoded = fn.external_source(name="records", dtype=types.UINT8, ndim=1, no_copy=True)
        window = {name: fn.external_source(name=name, dtype=kind, ndim=1) for name, kind in kinds.items()}
        pictures = fn.decoders.image_slice(
            encoded, device=decoder, start=window["start"], shape=window["shape"], axes=[0, 1],
            jpeg_fancy_upsampling=True,
        )  # fmt: skip
        pixels = fn.resize(
            pictures, size=(224, 224), roi_start=window["roi_start"], roi_end=window["roi_end"],
            interp_type=types.INTERP_LINEAR, antialias=True,
        )  # fmt: skip
        if job.normalize:
            mean, std = ([255 * value for value in values] for values in (MEAN, STD))
            pixels = fn.crop_mirror_normalize(
                pixels, dtype=types.FLOAT, output_layout="HWC", mean=mean, std=std
            )
        pipeline.set_outputs(pixels)
    pipeline.build()
    batches = ready_batches(job, arguments.packed, DEPTH + 2 + arguments.batches * READY_ROUNDS, records)
    if records:
        batches = as_jpegs(batches, arguments.threads)
    for _ in range(DEPTH):
        feed(pipeline, next(batches))
    pipeline.schedule_run()
    while True:
        outputs = pipeline.share_outputs()
        images = torch.from_dlpack(outputs[0].as_tensor())
        pipeline.release_outputs()
        feed(pipeline, next(batches))
        pipeline.schedule_run()
        yield len(images)


def feed(pipeline: Any, batch: dict[str, Any]) -> None:
    """The inputs of one batch."""
    for name, values in batch.items():
        pipeline.feed_input(name, values)


def ready_batches(
    job: Job, packed: Path, count: int, records: Path | None = None
) -> Iterator[dict[str, Any]]:
    """Records (mapped, in the page cache) and windows of the loader's own first batches, over and over; with
    ``records`` that set's records of the same samples, in memory.
    """
    from fastload.transforms.compiler import compile_plan

    dataset, sampler = PackedDataset(packed), loader_of(job, packed, backend="native").sampler
    feed = _C.RecordFeed(
        dataset.sources, compile_plan(GEOMETRY).geometry_spec(), 224, 224, seed=0, max_pixels=10**9
    )
    batches: list[dict[str, Any]] = []
    epoch = 0
    other = PackedDataset(records) if records else None

    @cache
    def record_of(sample: int) -> npt.NDArray[np.uint8]:
        assert other is not None
        return np.frombuffer(other.reader.read(sample), np.uint8)

    while len(batches) < count:
        for step in range(sampler.num_batches(epoch)):
            batch = sampler.batch(epoch, 0, step)
            found = feed.fetch(batch.ids, batch.draws, epoch, 0.0, 1 << 62)
            batches.append({name: getattr(found, name) for name in INPUTS})
            if other is not None:
                batches[-1]["records"] = [record_of(sample) for sample in batch.ids[found.positions].tolist()]
        epoch += 1
    while True:
        yield from batches


def rebuilt(job: Job, arguments: argparse.Namespace) -> Iterator[int]:
    """DALI on JPEGs that are made of coefficient records first."""
    return bare(job, arguments, arguments.records)


def as_jpegs(batches: Iterator[dict[str, Any]], threads: int) -> Iterator[dict[str, Any]]:
    """The batches with JPEGs in place of coefficient records, made while the batch before is at work."""
    with ThreadPoolExecutor(threads) as executor:

        def begin() -> tuple[dict[str, Any], list[Future[Any]]]:
            batch = next(batches)
            return batch, [executor.submit(jpeg_of, record) for record in batch["records"]]

        ahead = begin()
        in_use: deque[dict[str, Any]] = deque(maxlen=DEPTH + 2)  # DALI is given no copies
        while True:
            (batch, jpegs), ahead = ahead, begin()
            in_use.append({**batch, "records": [jpeg.result() for jpeg in jpegs]})
            yield in_use[-1]


def jpeg_of(record: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    if bytes(record[:2]) == b"\xff\xd8":  # it could not become a coefficient record
        return record
    return np.frombuffer(_C.coefficients_to_jpeg(record), np.uint8)


def fused(job: Job, arguments: argparse.Namespace) -> Iterator[int]:
    """bench_loader.py's candidate."""
    from loaders.candidates import dali

    if arguments.device != "cpu":
        skip("this pipeline is for the CPU")
    return dali.batches(job, "fused", arguments.threads, arguments.images, arguments.packed)


def loader_of(job: Job, packed: Path, **options: Any) -> DataLoader:
    """fastload.DataLoader for the job."""
    ending = [T.Normalize(mean=MEAN, std=STD)] if job.normalize else []
    return DataLoader(
        packed,
        batch_size=job.batch,
        shuffle=True,
        drop_last=True,
        prefetch_factor=DEPTH,
        seed=0,
        transform=T.Compose([GEOMETRY, *ending]),
        **options,
    )


def loader(job: Job, arguments: argparse.Namespace, backend: str = "dali") -> Iterator[int]:
    """Its batches."""
    options = {"num_workers": arguments.threads, "device": arguments.device, "backend": backend}
    batches = loader_of(job, arguments.packed, **options)
    while True:
        for images, _labels in batches:
            yield len(images)


def of_records(job: Job, arguments: argparse.Namespace) -> Iterator[int]:
    """The loader on coefficient records."""
    return loader(job, argparse.Namespace(**{**vars(arguments), "packed": arguments.records}))


def native(job: Job, arguments: argparse.Namespace) -> Iterator[int]:
    """The same without DALI."""
    return loader(job, arguments, "native")


WAYS = {
    "bare": bare,
    "fused": fused,
    "loader": loader,
    "native": native,
    "records": of_records,
    "rebuilt": rebuilt,
}


def start(arguments: argparse.Namespace) -> Measure:
    """The way's batches, running."""
    if arguments.way != "native":
        try:
            import nvidia.dali  # noqa: F401
        except ImportError as error:
            skip(f"DALI is not installed ({error})")
    sizes = WAYS[arguments.way](JOBS[arguments.job], arguments)
    for _ in range(DEPTH + 2):
        next(sizes)

    def measure() -> dict[str, float]:
        clock, own = Clock(), time.thread_time()
        images = sum(next(sizes) for _ in range(arguments.batches))
        if arguments.device != "cpu":
            torch.cuda.synchronize()
        total = clock.read()
        own = 1000 * (time.thread_time() - own) / arguments.batches
        return {"images": images, "rate": images / total["seconds"], "thread_ms": own}

    return measure


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("way", choices=list(WAYS))
    parser.add_argument("--images", type=Path, required=True)
    parser.add_argument("--packed", type=Path, required=True)
    parser.add_argument("--records", type=Path, help="the same as coefficient records")
    parser.add_argument("--job", choices=["train_u8", "train_f32"], default="train_u8")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--batches", type=int, default=20, help="in a round")
    parser.add_argument("--device", default="cpu")
    arguments = parser.parse_args()
    serve(lambda: start(arguments))


if __name__ == "__main__":
    main()
