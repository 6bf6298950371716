"""A packed set whose labels are row numbers, the same pictures for torch's own loader, and a tiny model.

What a program of a foreign framework saw can so be told from the labels alone.
"""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from pictures import jpegs
from PIL import Image
from plain_pack import plain_pack
from torch.utils.data import Dataset

SIDE = 32
ROWS = 51  # 12 batches of 4 and one of 3; over two ranks 6 of 8 and one of 3


def make_numbered_set(folder: Path, rows: int = ROWS) -> Path:
    """Pack ``rows`` pictures, picture i with label i, into ``folder``."""
    plain_pack(folder, jpegs(rows), list(range(rows)))
    return folder


class NumberedPictures(Dataset[tuple[torch.Tensor, int]]):
    """The same pictures and labels in the slow, plain way: (3, SIDE, SIDE) float32 in [0, 1]."""

    def __init__(self, rows: int = ROWS) -> None:
        self._blobs = jpegs(rows)

    def __len__(self) -> int:
        return len(self._blobs)

    def __getitem__(self, row: int) -> tuple[torch.Tensor, int]:
        picture = Image.open(io.BytesIO(self._blobs[row])).convert("RGB").resize((SIDE, SIDE))
        pixels = torch.frombuffer(bytearray(picture.tobytes()), dtype=torch.uint8)
        return pixels.view(SIDE, SIDE, 3).permute(2, 0, 1) / 255.0, int(row)


def tiny_model() -> torch.nn.Module:
    """One linear layer over the pixels, always with the same weights."""
    with torch.random.fork_rng():
        torch.manual_seed(5)
        return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * SIDE * SIDE, 1))


def loss_of(output: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """A loss that depends on each picture and its row."""
    return ((output[:, 0] - labels / ROWS) ** 2).mean()


def weights_of(model: torch.nn.Module) -> list[float]:
    """Some weights and the sum of all, for an exact comparison (JSON keeps doubles)."""
    flat = torch.cat([parameter.detach().flatten() for parameter in model.parameters()]).double()
    return [*flat[:: len(flat) // 16].tolist(), float(flat.sum())]


def write_result(folder: str | Path, rank: int, result: Any) -> None:
    """What this rank saw, for :func:`read_results`."""
    (Path(folder) / f"rank{rank}.json").write_text(json.dumps(result))


def read_results(folder: Path, world: int) -> list[Any]:
    """What each rank wrote."""
    return [json.loads((folder / f"rank{rank}.json").read_text()) for rank in range(world)]


def once_each(batches_of_ranks: Sequence[Sequence[Sequence[int]]], rows: int = ROWS) -> bool:
    """Whether the ranks' batches of one epoch have every row, none twice but what fills the last batch.

    Args:
        batches_of_ranks: for each rank its batches' labels; padding is below 0 or repeats.
        rows: the set's size.
    """
    world = len(batches_of_ranks)
    full = [label for batches in batches_of_ranks for batch in batches[:-1] for label in batch if label >= 0]
    last = [label for batches in batches_of_ranks for label in batches[-1] if label >= 0]
    repeated = len(full) + len(last) - len({*full, *last})
    return {*full, *last} == set(range(rows)) and len(set(full)) == len(full) and repeated < max(2, world)
