"""What somebody does with files who does not know that they are hostile."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from pack_trees import encoded

import fastload
from fastload import DataLoader, PackedDataset, transforms
from fastload.packing.foreign import IndexOptions, index_files
from fastload.packing.unpack import unpack
from fastload.packing.verify import verify

__all__ = [
    "BLOBS",
    "crops",
    "epoch",
    "index_and_read",
    "listed",
    "pack_and_read",
    "read_all",
    "small",
    "unpacked",
]

BLOBS = [encoded(i) for i in range(5)]


def small(data: Any) -> str:
    """What stands for pixels or values in a comparison."""
    return hashlib.blake2b(np.ascontiguousarray(data).tobytes(), digest_size=8).hexdigest()


def read_all(folder: Path | str, **options: Any) -> Callable[[], list[Any]]:
    """Each sample, decoded."""

    def use() -> list[Any]:
        dataset: Any = PackedDataset(folder, **options)
        if not dataset.is_plain:
            samples = [dataset.sample(i) for i in range(len(dataset))]
            return [sorted(sample) for sample in samples]
        return [(small(image), label) for image, label in (dataset[i] for i in range(len(dataset)))]

    return use


def crops(folder: Path | str, **options: Any) -> Callable[[], int]:
    """An epoch of a loader that cuts a small crop from each picture; how many samples came."""

    def use() -> int:
        options_ = {"transform": transforms.RandomResizedCrop(16), "num_workers": 1, "seed": 1, **options}
        with DataLoader(folder, 4, **options_) as loader:
            return sum(len(batch[0]) for batch in loader)

    return use


epoch = crops


def listed(folder: Path) -> Callable[[], list[str]]:
    """What ``fastload verify`` finds; raises what is wrong, as the command says it."""

    def use() -> list[str]:
        problems = verify(folder)[0]
        if problems:
            raise fastload.errors.FormatError(f"verify finds: {problems[0]}")
        return []

    return use


def unpacked(folder: Path, **options: Any) -> Callable[[], None]:
    """``fastload unpack`` beside the set."""

    def use() -> None:
        unpack(folder, folder.parent / "unpacked" / "here", **options)

    return use


def index_and_read(path: Path, **options: Any) -> Callable[[], Any]:
    """``fastload index`` of others' files, then each sample."""

    def use() -> Any:
        output = path.parent / "indexed"
        index_files([path], output, IndexOptions(**options))
        return read_all(output)()

    return use


def pack_and_read(source: Path, **options: Any) -> Callable[[], Any]:
    """``fastload pack`` in this process, then each sample."""

    def use() -> Any:
        output = source.parent / "packed"
        fastload.pack(source, output, num_proc=1, **options)
        return read_all(output)()

    return use
