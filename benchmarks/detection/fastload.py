"""fastload's side of bench_detection.py: the same chains in its own transforms, over the packed set."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any

from harness.command_line import command, pack_folder

from detection.jobs import MEAN, STD, Job, endless, tokens

__all__ = ["LOADERS", "batches", "prepare"]

GREYS = (123, 117, 104)


def _mask(t: Any) -> dict[str, Any]:
    return {"transform": t.Compose([t.RandomResizedCrop(512), t.RandomHorizontalFlip(), _float(t)])}


def _float(t: Any) -> Any:
    return t.ToDtype("float32", scale=True)


def _clip(t: Any) -> dict[str, Any]:
    crop = t.RandomResizedCrop(224, (0.9, 1.0), interpolation="bicubic")
    return {"transform": t.Compose([crop, _float(t), t.Normalize(MEAN, STD)]), "fields": ["image", "txt"]}


def _ssd(t: Any) -> dict[str, Any]:
    expand = t.RandomZoomOut(fill=GREYS)
    resize = [t.RandomIoUCrop(), t.Resize((320, 320)), t.RandomHorizontalFlip()]
    distort = t.RandomPhotometricDistort(p=1.0)
    chain = t.Compose([distort, expand, *resize, t.SanitizeBoundingBoxes(), _float(t)])
    return {"transform": chain, "collate": "list"}


def _lsj(t: Any) -> dict[str, Any]:
    from fastload import Fields

    geometry = [t.ScaleJitter((1024, 1024)), t.FixedSizeCrop((1024, 1024), fill=GREYS)]
    chain = t.Compose([*geometry, t.RandomHorizontalFlip(), t.SanitizeBoundingBoxes(), _float(t)])
    return {"transform": chain, "collate": "list", "fields": Fields(masks="dense")}


def _letterbox(t: Any) -> dict[str, Any]:
    return {"transform": t.Letterbox(640), "collate": "yolo"}


def _mosaic(t: Any) -> dict[str, Any]:
    return {"transform": t.Compose([t.Mosaic(640), t.RandomHorizontalFlip()]), "collate": "yolo"}


def _frcnn(t: Any) -> dict[str, Any]:
    sides = t.RandomShortestSize(range(480, 801, 32), 1333)
    chain = t.Compose([sides, t.RandomHorizontalFlip(), _float(t)])
    return {"transform": chain, "collate": "pad", "fields": ["image", "image_id", "boxes", "labels"]}


# Job -> the form of the set that it reads, and the loader's options.
LOADERS: dict[str, tuple[str, Callable[[Any], dict[str, Any]]]] = {
    "ssd": ("coco", _ssd),
    "lsj": ("coco", _lsj),
    "letterbox": ("coco", _letterbox),
    "mosaic": ("coco", _mosaic),
    "frcnn": ("coco", _frcnn),
    "mask": ("pairs", _mask),
    "clip": ("tars-index", _clip),
}
PACKED: dict[str, Callable[[Path], tuple[Any, ...]]] = {
    "coco": lambda made: (made, "--as", "coco", "--annotations", made / "annotations" / "instances.json"),
    "pairs": lambda made: (made / "images", "--as", "pairs", "--masks", str(made / "masks")),
}


def prepare(work: Path, jobs: Collection[str]) -> None:
    """Pack the made set in each form that these jobs read, once."""
    for form in {form for job, (form, _) in LOADERS.items() if job in jobs}:
        if (work / form / "dataset.json").exists():
            continue
        if form == "tars-index":
            words = command("index", work / "tars", "--output", work / form)
            subprocess.run(words, check=True, stdout=sys.stderr)
        else:
            source, *options = PACKED[form](work / "made")
            pack_folder(source, work / form, *options)


def batches(job: Job, variant: str, workers: int, work: Path) -> Iterator[int]:
    """Endless: an item a batch."""
    from fastload import DataLoader
    from fastload import transforms as t

    form, options = LOADERS[job.name]
    common: dict[str, Any] = {"shuffle": True, "drop_last": True, "seed": 0, "num_workers": workers}
    loader = DataLoader(work / form, job.batch, **common, **options(t))
    return endless(loader) if job.name != "clip" else _tokenized(loader)


def _tokenized(loader: Any) -> Iterator[int]:
    """Captions as tokens, by the same function as the rival's; here in the consumer's own thread."""
    import torch

    while True:
        for batch in loader:
            torch.tensor([tokens(text) for text in batch["txt"]])
            yield 1
