"""What two runs of a training program were given and lost, side by side: ``python compared.py OUT RANKS``."""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

FIRST = 1  # losses that must agree; later ones grow apart where pixels differ by a last bit


@dataclass
class Compared:
    """How two runs differ, over all ranks.

    Args:
        batches, samples: how many both gave.
        differ: in words, where lengths, sizes, labels or numbers of losses are not equal; "" if all are.
        pixels: the largest difference of two pixels or floats, relative where a batch has values over 1.
        losses: the largest relative difference of the first loss, and of all.
        steps: how many losses there are.
        passes: by the engine, of how many.
    """

    batches: int = 0
    samples: int = 0
    differ: str = ""
    pixels: float = 0.0
    losses: tuple[float, float] = (0.0, 0.0)
    steps: int = 0
    passes: tuple[int, int] = (0, 0)

    def add(self, ours: dict[str, Any], theirs: dict[str, Any]) -> None:
        """One rank's runs."""
        counts = [[len(p["batches"]) for p in run["passes"]] for run in (ours, theirs)]
        lengths = [[p["len"] for p in run["passes"]] for run in (ours, theirs)]
        for what, (mine, other) in (("batches of each pass", counts), ("len()", lengths)):
            if mine != other:
                self.differ = self.differ or f"{what}: {mine}, {other}"
        for number, (mine, other) in enumerate(zip(ours["passes"], theirs["passes"], strict=False)):
            self.passes = self.passes[0] + bool(mine["engine"]), self.passes[1] + 1
            for step, (a, b) in enumerate(zip(mine["batches"], other["batches"], strict=False)):
                self._batch(a, b, f"pass {number}, batch {step}")
        if len(ours["losses"]) != len(theirs["losses"]):
            self.differ = self.differ or f"losses: {len(ours['losses'])}, {len(theirs['losses'])}"
        for step, (a, b) in enumerate(zip(ours["losses"], theirs["losses"], strict=False)):
            apart = abs(a - b) / max(abs(b), 1e-12)
            if math.isnan(apart):
                self.differ = self.differ or f"loss {step}: {a}, {b}"
            first, whole = self.losses
            self.losses = max(first, apart if step < FIRST else 0.0), max(whole, apart)
        self.steps += len(theirs["losses"])

    def _batch(self, a: list[Any], b: list[Any], where: str) -> None:
        self.batches += 1
        sizes = [len(value) for value in a if isinstance(value, torch.Tensor) and value.ndim]
        self.samples += sizes[0] if sizes else len(a)
        shapes = [[shape_of(value) for value in leaves] for leaves in (a, b)]
        if shapes[0] != shapes[1]:
            self.differ = self.differ or f"{where}: {shapes[0]}, {shapes[1]}"
            return
        for mine, other in zip(a, b, strict=False):
            if isinstance(mine, torch.Tensor) and (mine.is_floating_point() or mine.dtype == torch.uint8):
                values = other.double()
                scale = max(1.0, float(values.abs().max())) if mine.numel() else 1.0
                apart = float((mine.double() - values).abs().max()) / scale if mine.numel() else 0.0
                self.pixels = max(self.pixels, apart)
                if math.isnan(apart):
                    self.differ = self.differ or f"{where}: not a number"
            elif not (torch.equal(mine, other) if isinstance(mine, torch.Tensor) else mine == other):
                self.differ = self.differ or f"{where}: {mine}, {other}"


def shape_of(value: Any) -> Any:
    """What must be equal before values are compared."""
    return (str(value.dtype), tuple(value.shape)) if isinstance(value, torch.Tensor) else type(value).__name__


def compare(out: Path, ours: str, theirs: str, ranks: int, looks: bool = False) -> Compared:
    """Two ways of a program; ``looks``: passes that were left after the first batch do not count."""
    found = Compared()
    for rank in range(ranks):
        runs = [torch.load(out / way / f"rank{rank}.pt", weights_only=False) for way in (ours, theirs)]
        for run in runs if looks else []:
            run["passes"] = [one for one in run["passes"] if len(one["batches"]) != 1 or one["len"] == 1]
        found.add(*runs)
    return found


if __name__ == "__main__":
    for ours, theirs in (("import", "torch"), ("packed", "files")):
        if (Path(sys.argv[1]) / ours).exists():
            found = compare(Path(sys.argv[1]), ours, theirs, int(sys.argv[2]))
            sys.stdout.write(f"{ours}: {found}\n")
