"""How much the pixels of backend="dali" differ from the native back end's, over a whole folder.

    python benchmarks/dali_pixels.py IMAGE_FOLDER [--device cuda]

Differences of uint8 values: in all pixels, and in those more than 4 pixels from the border. PSNR in dB of the
worst sample, and of all.
"""

from __future__ import annotations

import argparse
import math
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import torch
from harness.command_line import pack_folder
from harness.machine import facts
from harness.measure import table

from fastload import DataLoader
from fastload import transforms as T

EDGE = 4
TRANSFORMS = {
    "RandomResizedCrop(224), flip": T.Compose([T.RandomResizedCrop(224), T.RandomHorizontalFlip()]),
    "the same, bicubic": T.RandomResizedCrop(224, interpolation="bicubic"),
    "Resize(256), CenterCrop(224)": T.Compose([T.Resize(256), T.CenterCrop(224)]),
    "CenterCrop(96)": T.CenterCrop(96),
}


class Differences:
    """Sums over batches."""

    def __init__(self) -> None:
        self.most = self.most_inside = 0
        self.more_than_one = self.total = self.squares = self.pixels = 0
        self.worst = math.inf

    def add(self, found: torch.Tensor, wanted: torch.Tensor) -> None:
        """Two batches of uint8 images."""
        difference = (found.cpu().int() - wanted.int()).abs()
        self.most = max(self.most, int(difference.max()))
        self.most_inside = max(self.most_inside, int(difference[..., EDGE:-EDGE, EDGE:-EDGE].max()))
        self.more_than_one += int((difference > 1).sum())
        self.total += int(difference.sum())
        squares = difference.pow(2).flatten(1).sum(1, dtype=torch.int64)
        self.squares += int(squares.sum())
        self.pixels += difference.numel()
        self.worst = min(self.worst, psnr(int(squares.max()), difference[0].numel()))

    def row(self) -> list[str]:
        """greatest, greatest inside, share above 1, mean, PSNR."""
        return [
            str(self.most),
            str(self.most_inside),
            f"{self.more_than_one / self.pixels:.4%}",
            f"{self.total / self.pixels:.3f}",
            f"{self.worst:.1f}",
            f"{psnr(self.squares, self.pixels):.1f}",
        ]


def psnr(squares: int, count: int) -> float:
    """dB."""
    return 10 * math.log10(255**2 * count / squares) if squares else math.inf


def compare(packed: Path, transform: T.Compose, device: str) -> Differences:
    """All samples once, shuffled as in training."""
    options = {"batch_size": 50, "shuffle": True, "seed": 0, "transform": transform}
    found = Differences()
    native = DataLoader(packed, **options)
    with native, DataLoader(packed, backend="dali", device=device, **options) as dali:
        for (images, labels), (pixels, same) in zip(dali, native, strict=True):
            assert torch.equal(labels.cpu(), same)
            found.add(images, pixels)
        print(dali.stats()["decoders"]["samples"], file=sys.stderr)
    return found


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, metavar="IMAGE_FOLDER")
    parser.add_argument("--device", default="cpu")
    arguments = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as workdir:
        packed = Path(workdir) / "packed"
        pack_folder(arguments.folder, packed)
        rows = [
            [name, *compare(packed, transform, arguments.device).row()]
            for name, transform in TRANSFORMS.items()
        ]
    print(" ".join(f"{name}: {value};" for name, value in facts().items()))
    header = ["transform", "greatest", "inside", "more than 1", "mean", "PSNR, worst", "PSNR"]
    print(table(header, rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
