"""What bench_detection.py measures: one job a row. Standard library only."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

__all__ = ["JOBS", "MEAN", "STD", "Job", "endless", "tokens"]

MEAN = (0.48145466, 0.4578275, 0.40821073)  # CLIP's
STD = (0.26862954, 0.26130258, 0.27577711)
CONTEXT = 77


@dataclass(frozen=True)
class Job:
    """``batch`` samples a batch; ``rival``: detection_RIVAL.py; ``variants``: the rival's ways."""

    name: str
    rival: str
    batch: int
    goal: float  # how many times the rival's samples a second the project wants
    variants: tuple[str, ...] = ("",)


JOBS = {
    job.name: job
    for job in (
        Job("ssd", "torchvision", 16, 6, ("pil", "tensor")),
        Job("frcnn", "torchvision", 8, 5, ("pil", "tensor")),
        Job("lsj", "torchvision", 4, 8, ("pil", "tensor")),
        Job("letterbox", "ultralytics", 16, 4, ("alone", "threads")),
        Job("mosaic", "ultralytics", 16, 5, ("alone", "threads")),
        Job("mask", "torchvision", 16, 5, ("pil", "tensor")),
        Job("clip", "webdataset", 64, 8),
    )
}


def endless(loader: object) -> Iterator[int]:
    """One item a batch of a loader, epoch after epoch."""
    while True:
        for _ in loader:  # type: ignore[attr-defined]
            yield 1


def tokens(text: str) -> list[int]:
    """A stand-in for a tokeniser, the same on all sides: the bytes between two marks, 77 numbers."""
    found = [256, *text.encode()[: CONTEXT - 2], 257]
    return found + [0] * (CONTEXT - len(found))
