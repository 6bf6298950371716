"""Checkpoints: one file, replaced atomically, that also holds the loader's place in the epoch."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

__all__ = ["FILE_NAME", "Position", "read_checkpoint", "write_checkpoint"]

FILE_NAME = "checkpoint.pt"


@dataclass
class Position:
    """How far training is."""

    epoch: int = 0  # the one that runs, from 0
    step: int = 0  # batches of it that are done
    updates: int = 0  # of the optimiser, since the beginning


def write_checkpoint(folder: Path, body: dict[str, Any]) -> Path:
    """Write ``body`` (tensors and plain values) as ``folder/checkpoint.pt``.

    The old file stays whole until the new one is on the disk.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / FILE_NAME
    temporary = folder / f".tmp-{FILE_NAME}"
    with open(temporary, "wb") as file:
        torch.save(body, file)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)
    return path


def read_checkpoint(folder: Path) -> dict[str, Any] | None:
    """What :func:`write_checkpoint` wrote, on the CPU; None where there is nothing yet.

    Only tensors and plain values are unpickled (``weights_only``), never code.
    """
    path = folder / FILE_NAME
    if not path.is_file():
        return None
    body: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
    return body
