"""NVIDIA DALI on the CPU. Variants: ``fused`` decodes with its random crop, ``plain`` decodes whole.

Antialiased linear resize, its default. For validation both variants are the same pipeline.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from loaders.jobs import MEAN, STD, Job, class_names
from recipes.dali import RECIPES, augmented, erased

VARIANTS = ("fused", "plain")


def versions() -> dict[str, str]:
    import nvidia.dali.plugin.pytorch
    import torch

    return {"dali": nvidia.dali.__version__, "torch": torch.__version__}


def prepare(variant: str, folder: Path, workdir: Path) -> None:
    """Nothing: the files are read as they lie."""


def batches(job: Job, variant: str, threads: int, folder: Path, workdir: Path) -> Iterator[int]:
    from nvidia.dali.plugin.pytorch import DALIGenericIterator, LastBatchPolicy

    pipeline = build(job, variant, threads, folder)
    loader = DALIGenericIterator(
        [pipeline],
        ["image", "label"],
        reader_name="files",
        auto_reset=True,
        last_batch_policy=LastBatchPolicy.DROP,
    )
    while True:
        for outputs in loader:
            yield len(outputs[0]["label"])


def build(job: Job, variant: str, threads: int, folder: Path) -> Any:
    import nvidia.dali
    from nvidia.dali import fn, types

    if job.recipe and job.recipe not in RECIPES:
        raise SystemExit(f"DALI has no {job.recipe}; it has {', '.join(RECIPES)}.")
    size = 176 if job.recipe == "trivial_augment" else 224

    def pipeline() -> Any:
        files, labels = fn.readers.file(
            file_root=str(folder), dir_filters=class_names(folder), random_shuffle=job.train, name="files"
        )
        flip = fn.random.coin_flip(probability=0.5) if job.train else 0
        if not job.train:
            images = fn.decoders.image(files, device="cpu", output_type=types.RGB)
            images = fn.resize(images, device="cpu", resize_shorter=256)
        elif variant == "plain":
            images = fn.decoders.image(files, device="cpu", output_type=types.RGB)
            images = fn.random_resized_crop(images, device="cpu", size=(size, size))
        else:
            images = fn.decoders.image_random_crop(
                files,
                device="cpu",
                output_type=types.RGB,
                random_area=(0.08, 1.0),
                random_aspect_ratio=(3 / 4, 4 / 3),
            )
            images = fn.resize(images, device="cpu", size=(size, size))
        if job.recipe:  # flipped before, as the recipes are
            images, flip = fn.flip(images, device="cpu", horizontal=flip), 0
            images = augmented(images, job.recipe, size)
            if job.recipe == "trivial_augment":
                images = erased(fn, images, size)
        if job.normalize:
            images = fn.crop_mirror_normalize(
                images,
                device="cpu",
                crop=(size, size),
                mirror=flip,
                mean=[255 * value for value in MEAN],
                std=[255 * value for value in STD],
                dtype=types.FLOAT,
                output_layout="CHW",
            )
        elif job.train:
            images = fn.flip(images, device="cpu", horizontal=flip)
        else:
            images = fn.crop(images, device="cpu", crop=(224, 224))
        return images, labels

    define: Any = nvidia.dali.pipeline_def(
        batch_size=job.batch, num_threads=threads, device_id=None, enable_conditionals=bool(job.recipe)
    )
    built = define(pipeline)()
    built.build()
    return built
