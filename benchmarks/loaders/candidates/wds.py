"""WebDataset: tar shards on the local disk, shuffled by shard and in a buffer, decoded by Pillow."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from loaders.candidates.torch_pil import Decoder
from loaders.jobs import Job

VARIANTS = ()
BUFFER = 1000  # as its documentation has it
SHARDS = 16  # every worker reads shards of its own


def versions() -> dict[str, str]:
    from importlib.metadata import version

    import webdataset  # noqa: F401

    return {name: version(name) for name in ("webdataset", "torch", "pillow")}


def prepare(variant: str, folder: Path, workdir: Path) -> None:
    from packers import pack_webdataset

    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    pack_webdataset.pack(folder, workdir / "packed", 1, size // SHARDS)


def batches(job: Job, variant: str, threads: int, folder: Path, workdir: Path) -> Iterator[int]:
    import torch
    import webdataset

    shards = sorted(map(str, (workdir / "packed").glob("*.tar")))
    dataset = webdataset.WebDataset(shards, shardshuffle=100 if job.train else False)
    if job.train:
        dataset = dataset.shuffle(BUFFER)
    decoded = dataset.to_tuple("jpg", "cls").map_tuple(Decoder(job), int)
    loader: torch.utils.data.DataLoader[object] = torch.utils.data.DataLoader(
        decoded, job.batch, num_workers=threads, drop_last=True, persistent_workers=True
    )
    while True:
        for _images, labels in loader:
            yield len(labels)
