"""mosaicml-streaming: its shards on the local disk, its StreamingDataset, decoded and cropped by Pillow."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from loaders.candidates.torch_pil import Decoder, torchvision_or_none
from loaders.jobs import Job

VARIANTS = ()


def versions() -> dict[str, str]:
    from importlib.metadata import version

    torchvision_or_none()  # it imports torchvision
    import streaming  # noqa: F401

    return {name: version(name) for name in ("mosaicml-streaming", "torch", "pillow")}


def prepare(variant: str, folder: Path, workdir: Path) -> None:
    from packers import pack_mds

    pack_mds.pack(folder, workdir / "packed", 1)


def batches(job: Job, variant: str, threads: int, folder: Path, workdir: Path) -> Iterator[int]:
    import streaming
    import torch
    from streaming.base.util import clean_stale_shared_memory

    decode = Decoder(job)

    class Pictures(streaming.StreamingDataset):  # type: ignore[misc]
        """Its samples, decoded."""

        def __getitem__(self, at: Any) -> tuple[Any, int]:
            sample = super().__getitem__(at)
            return decode(sample["image"]), sample["label"]

    dataset = Pictures(local=str(workdir / "packed"), shuffle=job.train, batch_size=job.batch)
    loader: torch.utils.data.DataLoader[object] = torch.utils.data.DataLoader(
        dataset, job.batch, num_workers=threads, drop_last=True, persistent_workers=True
    )
    try:
        while True:
            for _images, labels in loader:
                yield len(labels)
    finally:
        clean_stale_shared_memory()  # its files in /dev/shm outlive a process that ends as a run does
