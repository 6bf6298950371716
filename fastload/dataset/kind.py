"""What a dataset is to a loader: asked once, when the loader is made."""

from __future__ import annotations

import enum
from typing import Any

from torch.utils.data import ConcatDataset, IterableDataset, Subset

# This module is imported with our DataLoader, so before a program can put that in torch's place.
from torch.utils.data.dataloader import DataLoader as TorchDataLoader

from fastload.dataset.mixture import MixedFiles, Packed
from fastload.dataset.pictures import MixedDataset, PackedDataset
from fastload.dataset.selection import Selection
from fastload.shard.dataset import PackedFiles

__all__ = ["Kind", "TorchDataLoader", "kind_of", "own_code"]

_OF_DATASETS = ("__getitem__", "__getitems__", "__len__")
_OF_PACKED = (*_OF_DATASETS, "read", "record", "label", "labels", "locate")


class Kind(enum.Enum):
    """Who reads a dataset, and who decides its order."""

    PACKED = "packed"  # our own threads read it
    MAPPED = "mapped"  # a torch Dataset: torch's workers read it, in our order
    STREAM = "stream"  # a torch IterableDataset: it decides its own order


def kind_of(dataset: Any) -> Kind:
    """The kind of a dataset, as :func:`fastload.dataset.views.open_dataset` returned it."""
    dataset = getattr(dataset, "of_packed", dataset)  # pictures and targets of one
    if isinstance(dataset, Packed) and (isinstance(dataset, Selection) or not own_code(dataset)):
        return Kind.PACKED
    return Kind.STREAM if isinstance(dataset, IterableDataset) else Kind.MAPPED


def own_code(dataset: Any) -> str:
    """The first method of a subclass of a packed dataset, Subset or ConcatDataset that changes which samples
    there are; "": none."""
    base, names = _base(dataset)
    for name in names:
        if getattr(type(dataset), name, None) is not getattr(base, name, None):
            return name
    return ""


def _base(dataset: Any) -> tuple[type, tuple[str, ...]]:
    """The class that the engine knows, and what of it must not be changed."""
    if isinstance(dataset, Packed):
        engine = PackedFiles if isinstance(dataset, PackedFiles) else MixedFiles
        ours = PackedDataset if engine is PackedFiles else MixedDataset
        return ours if isinstance(dataset, ours) else engine, _OF_PACKED
    return Subset if isinstance(dataset, Subset) else ConcatDataset, _OF_DATASETS
