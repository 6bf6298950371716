"""Stereo: two pictures of one scene and the disparity of each pixel, all with one crop.

    pictures = {"left": fastload.Image(), "right": fastload.Image()}
    disparity = fastload.Mask(bits=16, ignore=0)      # PNGs, in 1/256 of a pixel, 0: unknown (as KITTI's)
    fastload.pack(samples, "packed", {**pictures, "disparity": disparity})
    python examples/stereo.py packed

A crop leaves disparities as they are; a resize would change them, and a flip would swap left and right, so
neither is in the chain. Masks of 16 bits come as int32.
"""

from __future__ import annotations

import sys
from typing import Any

import torch
from short_run import train
from torch import nn

from fastload import PackedDataset
from fastload import transforms as T

SIDE = 64
UNIT = 256.0  # of what is stored, a pixel


def options(dataset: PackedDataset) -> dict[str, Any]:
    """The loader's."""
    return {"transform": T.Compose([T.RandomCrop(SIDE), T.ToDtype("float32", scale=True)])}


def model(dataset: PackedDataset) -> nn.Module:
    """Convolutions over both pictures, one above the other."""
    layers: list[nn.Module] = []
    for inside, outside in ((6, 32), (32, 32), (32, 32)):
        layers += [nn.Conv2d(inside, outside, 5, padding=2), nn.ReLU()]
    return nn.Sequential(*layers, nn.Conv2d(32, 1, 1))


def loss(network: nn.Module, batch: Any, device: torch.device) -> torch.Tensor:
    """The mean error in pixels where the disparity is known."""
    both = torch.cat([batch["left"], batch["right"]], dim=1).to(device)
    stored = batch["disparity"].to(device)
    error = (network(both)[:, 0] - stored / UNIT).abs()
    return error[stored > 0].mean()


if __name__ == "__main__":
    sys.exit(train(__doc__, options, model, loss))
