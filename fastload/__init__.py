"""fastload: image data loading for PyTorch training.

Importing this package imports neither torch nor a shard format's library; ``DataLoader`` imports torch
when it is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from fastload import errors, transforms
from fastload._native import _C
from fastload.cache.settings import CacheSetting
from fastload.mixture import MixedDataset, mix
from fastload.sampler import SubsetSampler, WeightedSampler
from fastload.shard.dataset import PackedDataset

if TYPE_CHECKING:
    from fastload.loader import DataLoader

__all__ = [
    "IGNORE_LABEL",
    "CacheSetting",
    "DataLoader",
    "MixedDataset",
    "PackedDataset",
    "SubsetSampler",
    "WeightedSampler",
    "errors",
    "mix",
    "transforms",
]
__version__ = "0.1.0"

#: The label of padding and of skipped samples; torch's ``cross_entropy`` ignores it by default.
IGNORE_LABEL: int = _C.IGNORE_LABEL


def __getattr__(name: str) -> Any:
    if name == "DataLoader":
        return import_module("fastload.loader").DataLoader
    raise AttributeError(f"module 'fastload' has no attribute {name!r}")
