"""Small helpers to look at a loader's whole output."""

from __future__ import annotations

from collections.abc import Iterable

import torch

Batch = tuple[torch.Tensor, torch.Tensor]


def all_batches(loader: Iterable[Batch]) -> list[Batch]:
    """Copies of every batch (a loader may reuse memory that nobody holds)."""
    return [(images.clone(), labels.clone()) for images, labels in loader]


def joined(parts: Iterable[list[Batch]]) -> list[Batch]:
    """The batches of several ranks, step by step, joined in rank order."""
    return [
        (torch.cat([images for images, _ in step]), torch.cat([labels for _, labels in step]))
        for step in zip(*parts, strict=True)
    ]


def same(first: list[Batch], second: list[Batch]) -> bool:
    """Whether two lists of batches are equal bit for bit."""
    return len(first) == len(second) and all(
        torch.equal(a[0], b[0]) and torch.equal(a[1], b[1]) for a, b in zip(first, second, strict=True)
    )
