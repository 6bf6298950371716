"""litdata: its chunks on the local disk, its StreamingDataset and loader, decoded and cropped by Pillow."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from loaders.candidates.torch_pil import Decoder
from loaders.jobs import Job

VARIANTS = ()
PRIVATE = ("TMPDIR", "DATA_OPTIMIZER_CACHE_FOLDER", "DATA_OPTIMIZER_DATA_CACHE_FOLDER")


def versions() -> dict[str, str]:
    from importlib.metadata import version

    import litdata  # noqa: F401

    return {name: version(name) for name in ("litdata", "torch", "pillow")}


def prepare(variant: str, folder: Path, workdir: Path) -> None:
    """In a folder for temporary files of its own: litdata.optimize deletes $TMPDIR/data."""
    private = workdir / "fastload-bench-tmp"
    private.mkdir(exist_ok=True)
    os.environ.update(dict.fromkeys(PRIVATE, str(private)))
    from packers import pack_litdata

    pack_litdata.pack(folder, workdir / "packed", 1)


def batches(job: Job, variant: str, threads: int, folder: Path, workdir: Path) -> Iterator[int]:
    import litdata

    decode = Decoder(job)

    class Pictures(litdata.StreamingDataset):  # type: ignore[misc]
        """Its items, decoded."""

        def __getitem__(self, index: Any) -> tuple[Any, int]:
            item = super().__getitem__(index)
            return decode(item["image"]), item["label"]

    dataset = Pictures(str(workdir / "packed"), shuffle=job.train, drop_last=True)
    loader = litdata.StreamingDataLoader(
        dataset, batch_size=job.batch, num_workers=threads, persistent_workers=True
    )
    while True:
        for _images, labels in loader:
            yield len(labels)
