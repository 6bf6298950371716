"""Robotics: a policy that says the next actions from the last frames of all cameras, on a LeRobot set.

    fastload pack pusht packed --as lerobot
    python examples/robotics.py packed --batch-size 64

A sample is a window: three frames of each camera, and the next actions. A frame that several windows of a
batch share is decoded once. The set of any other robot does as well, if it has runs, fields of these names,
and the mean and deviation of its actions in meta/stats.json. docs/start/lerobot.md trains LeRobot's own
policies.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import torch
from short_run import train
from torch import nn

from fastload import Fields, Image, PackedDataset
from fastload import transforms as T

FRAMES, HORIZON, SIDE, WIDTH = 3, 8, 96, 64
ACTION, STATE = "action", "observation.state"


def cameras(dataset: PackedDataset) -> list[str]:
    """The fields with pictures."""
    return [field.name for field in dataset.schema.fields if isinstance(field.kind, Image)]


def options(dataset: PackedDataset) -> dict[str, Any]:
    """The loader's."""
    past: dict[str, Any] = dict.fromkeys(cameras(dataset), range(1 - FRAMES, 1))
    steps = [T.Resize((SIDE, SIDE)), T.ColorJitter(0.2, 0.2, 0.2), T.ToDtype("float32", scale=True)]
    return {
        "transform": T.DrawEach("camera", T.Compose(steps)),
        "fields": Fields(windows={**past, ACTION: range(HORIZON)}),
    }


class Policy(nn.Module):
    """Convolutions for frames, and one layer over what they see and the robot's state."""

    mean: torch.Tensor
    deviation: torch.Tensor

    def __init__(self, dataset: PackedDataset) -> None:
        super().__init__()
        told = json.loads((Path(dataset.root) / "meta" / "stats.json").read_text())[ACTION]
        self.register_buffer("mean", torch.tensor(told["mean"]))
        self.register_buffer("deviation", torch.tensor(told["std"]).clamp_min(1e-6))
        self.cameras = cameras(dataset)
        layers: list[nn.Module] = []
        for inside, outside in ((3, 16), (16, 32), (32, WIDTH)):
            layers += [nn.Conv2d(inside, outside, 3, 2, 1), nn.GroupNorm(4, outside), nn.ReLU()]
        self.eyes = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten())
        seen = FRAMES * len(self.cameras) * WIDTH + dataset.schema[STATE].kind.shape[0]
        out = HORIZON * len(self.mean)
        self.arm = nn.Sequential(nn.Linear(seen, 4 * WIDTH), nn.ReLU(), nn.Linear(4 * WIDTH, out))

    def forward(self, batch: dict[str, torch.Tensor]) -> torch.Tensor:
        """Actions as they are normalised, (n, HORIZON, numbers of an action)."""
        frames = torch.cat([batch[camera] for camera in self.cameras], dim=1)  # (n, frames of all, 3, h, w)
        seen = self.eyes(frames.flatten(0, 1)).view(len(frames), -1)
        said: torch.Tensor = self.arm(torch.cat([seen, batch[STATE].float()], dim=1))
        return said.view(len(frames), HORIZON, -1)


def model(dataset: PackedDataset) -> nn.Module:
    """For the cameras, the state and the actions of the set."""
    return Policy(dataset)


def loss(network: nn.Module, batch: Any, device: torch.device) -> torch.Tensor:
    """The mean error of the actions, but for those behind an episode's end, which repeat the last one."""
    moved = {name: value.to(device) for name, value in batch.items() if isinstance(value, torch.Tensor)}
    wanted = (moved[ACTION] - network.mean) / network.deviation
    error = (network(moved) - wanted).abs().mean(2)
    return error[~moved[f"{ACTION}_is_pad"]].mean()


if __name__ == "__main__":
    sys.exit(train(__doc__, options, model, loss))
