"""SPDL: threads that decode with FFmpeg's mjpeg decoder; crop, flip and swscale's bilinear as filters.

float32 is made by torch operations on the collated uint8 batch.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from loaders.jobs import MEAN, STD, Job, listing, random_crop

VARIANTS = ()


def versions() -> dict[str, str]:
    from importlib.metadata import version

    import spdl.io
    import spdl.pipeline
    import torch

    spdl.io.demux_image  # noqa: B018 (the first use loads FFmpeg)
    return {"spdl": version("spdl"), "spdl_io": version("spdl_io"), "torch": torch.__version__}


def prepare(variant: str, folder: Path, workdir: Path) -> None:
    """Nothing: the files are read as they lie."""


def filters(job: Job, width: int, height: int) -> str:
    """FFmpeg's filter string for one image of that size."""
    if job.train:
        left, top, w, h = random_crop(width, height)
        flip = "hflip," if random.random() < 0.5 else ""
        return f"crop={w}:{h}:{left}:{top}:exact=1,scale=224:224:flags=bilinear,{flip}format=pix_fmts=rgb24"
    w, h = (256, int(256 * height / width)) if width <= height else (int(256 * width / height), 256)
    left, top = round((w - 224) / 2), round((h - 224) / 2)
    return f"scale={w}:{h}:flags=bilinear,crop=224:224:{left}:{top}:exact=1,format=pix_fmts=rgb24"


def batches(job: Job, variant: str, threads: int, folder: Path, workdir: Path) -> Iterator[int]:
    import spdl.io
    import spdl.pipeline
    import torch

    torch.set_num_threads(1)
    mean, std = (torch.tensor(values) * 255 for values in (MEAN, STD))
    items = listing(folder)

    def decode(item: tuple[str, int]) -> tuple[Any, int]:
        packets = spdl.io.demux_image(item[0])
        return spdl.io.decode_packets(packets, filter_desc=filters(job, packets.width, packets.height)), item[
            1
        ]

    def collate(pairs: list[tuple[Any, int]]) -> tuple[Any, Any]:
        images = spdl.io.to_torch(spdl.io.convert_frames([frames for frames, _ in pairs]))
        if job.normalize:
            images = images.float().sub_(mean).div_(std).permute(0, 3, 1, 2).contiguous()
        return images, torch.tensor([label for _, label in pairs])

    while True:
        order = random.sample(items, len(items)) if job.train else items
        pipeline = (
            spdl.pipeline.PipelineBuilder()
            .add_source(order)
            .pipe(decode, concurrency=threads, output_order="completion" if job.train else "input")
            .aggregate(job.batch, drop_last=True)
            .pipe(collate)
            .add_sink(2)
            .build(num_threads=threads)
        )
        with pipeline.auto_stop():
            for _images, labels in pipeline.get_iterator():
                yield len(labels)
