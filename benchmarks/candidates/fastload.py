"""fastload: the folder packed by ``fastload pack`` with its defaults, read by fastload.DataLoader.

Variants name the shard format; without one it is Arrow.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from jobs import MEAN, STD, Job

VARIANTS = ("arrow", "lmdb", "hdf5")
CLI = "import sys; from fastload.cli import main; sys.exit(main())"


def versions() -> dict[str, str]:
    import torch

    import fastload

    fastload.DataLoader  # noqa: B018 (what it imports on first use is an import, too)
    return {"fastload": fastload.__version__, "torch": torch.__version__}


def prepare(variant: str, folder: Path, workdir: Path) -> None:
    form = variant or "arrow"
    command = [sys.executable, "-c", CLI, "pack", str(folder), str(workdir / form), "--format", form]
    subprocess.run(command, check=True, stdout=sys.stderr)


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
        workdir / (variant or "arrow"),
        batch_size=job.batch,
        shuffle=job.train,
        drop_last=True,
        num_workers=threads,
        seed=0,
        transform=t.Compose([*geometry, *ending]),
    )
    while True:
        for _images, labels in loader:
            yield len(labels)
