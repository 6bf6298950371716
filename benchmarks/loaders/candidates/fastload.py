"""fastload: the folder packed by ``fastload pack`` with its defaults, read by fastload.DataLoader.

Variants: another shard format (lmdb, hdf5), no entry points (noentries: what the sequential decoder
does), coefficient records (coefficients: of the form "fast"; small), pixels (raw), or the counterparts of
FFCV's variants (max500: JPEGs of at most 500 pixels, quality 90; raw256: pixels, longer side at most 256).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from harness.command_line import pack_folder
from loaders.jobs import MEAN, STD, Job
from recipes.fastload import transform_of

OPTIONS: dict[str, tuple[str, ...]] = {
    "": (),
    "lmdb": ("--format", "lmdb"),
    "hdf5": ("--format", "hdf5"),
    "noentries": ("--entries", "none"),
    "coefficients": ("--coefficients",),
    "small": ("--coefficients", "small"),
    "max500": ("--max-side", "500"),
    "raw": ("--raw",),
    "raw256": ("--raw", "--max-side", "256"),
}
VARIANTS = tuple(variant for variant in OPTIONS if variant)


def versions() -> dict[str, str]:
    import torch

    import fastload

    fastload.DataLoader  # noqa: B018 (what it imports on first use is an import, too)
    return {"fastload": fastload.__version__, "torch": torch.__version__}


def prepare(variant: str, folder: Path, workdir: Path) -> None:
    pack_folder(folder, workdir / "packed", *OPTIONS[variant])


def batches(job: Job, variant: str, threads: int, folder: Path, workdir: Path) -> Iterator[int]:
    from fastload import DataLoader
    from fastload import transforms as t

    geometry = (
        [t.RandomResizedCrop(224), t.RandomHorizontalFlip()]
        if job.train
        else [t.Resize(256), t.CenterCrop(224)]
    )
    ending = [t.Normalize(mean=MEAN, std=STD)] if job.normalize else []
    loader = DataLoader(
        workdir / "packed",
        batch_size=job.batch,
        shuffle=job.train,
        drop_last=True,
        num_workers=threads,
        seed=0,
        transform=transform_of(job.recipe) if job.recipe else t.Compose([*geometry, *ending]),
    )
    while True:
        for batch in loader:
            yield len(batch["label"] if isinstance(batch, dict) else batch[1])
