"""One loader over a LeRobot set for some seconds: ``python benchmarks/child.py runs.windows lerobot SET``.

Three frames of two cameras at 224 x 224, the state, and 50 actions, in shuffled batches. Prints samples a
second, from the moment when the queue has been filled and emptied once.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

CAMERAS = ("observation.images.top", "observation.images.wrist")
FPS, SIDE, ACTIONS = 30, 224, 50
WINDOWS = {
    **{camera: [-0.2, -0.1, 0.0] for camera in CAMERAS},
    "action": [step / FPS for step in range(ACTIONS)],
}


def by_lerobot(folder: Path, options: argparse.Namespace) -> Any:
    """LeRobotDataset in torch's DataLoader, as its training script makes both."""
    sys.path.append(str(Path(__file__).parents[2] / "tests" / "reference"))
    import bare_torchvision  # noqa: F401
    from lerobot.datasets.lerobot_dataset import LeRobotDataset
    from torchvision.transforms import v2

    resize = v2.Resize((SIDE, SIDE), antialias=True)
    dataset = LeRobotDataset("me/made", root=folder, delta_timestamps=WINDOWS, image_transforms=resize)
    return torch.utils.data.DataLoader(
        dataset,
        options.batch_size,
        shuffle=True,
        num_workers=options.workers,
        prefetch_factor=2 if options.workers else None,
        persistent_workers=options.workers > 0,
    )


def by_fastload(folder: Path, options: argparse.Namespace) -> Any:
    """fastload.DataLoader on a packed set."""
    from fastload import DataLoader, Fields
    from fastload import transforms as T

    chain: list[Any] = [T.Resize((SIDE, SIDE))]
    if options.dtype == "float32":
        chain.append(T.ToDtype("float32", scale=True))
    fields = Fields(windows=WINDOWS)
    return DataLoader(
        folder,
        options.batch_size,
        shuffle=True,
        seed=0,
        num_workers=options.workers,
        transform=T.Compose(chain),
        fields=fields,
        cache="off",
    )


def batches(loader: Any) -> Iterator[Any]:
    """Epoch after epoch."""
    while True:
        yield from loader


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("way", choices=["lerobot", "fastload"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--dtype", choices=["float32", "uint8"], default="float32")
    parser.add_argument("--seconds", type=float, default=8.0)
    options = parser.parse_args()
    loader = (by_lerobot if options.way == "lerobot" else by_fastload)(options.folder, options)
    given = batches(loader)
    for _ in range(2 * max(options.workers, 1) + 1):
        batch = next(given)
    for camera in CAMERAS:
        assert batch[camera].shape[1:] == (3, 3, SIDE, SIDE), batch[camera].shape
    assert batch["action"].shape[1] == ACTIONS
    began, count = time.perf_counter(), 0
    while time.perf_counter() - began < options.seconds:
        count += len(next(given)["action"])
    print(json.dumps({"rate": count / (time.perf_counter() - began), "samples": count}))


if __name__ == "__main__":
    main()
