"""Packed datasets as torch Datasets of pictures and targets, and what evaluators ask of them."""

from __future__ import annotations

from typing import Any

__all__ = ["stored_size"]


def stored_size(dataset: Any, sample: int, image: str) -> tuple[int, int]:
    """(height, width) of a sample's picture as it is stored; (0, 0): the index does not say, or no sample."""
    if sample < 0:
        return 0, 0
    part, own = dataset.locate(sample)
    record = part.record(own, image)
    return int(record["height"]), int(record["width"])
