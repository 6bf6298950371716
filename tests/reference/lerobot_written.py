"""A LeRobot set as LeRobot's own writer makes it, in which no row, camera or column is like another."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import bare_torchvision  # noqa: F401
import numpy as np
import numpy.typing as npt
from lerobot.datasets.lerobot_dataset import LeRobotDataset

FPS = 10
LENGTHS = (9, 4, 2, 7)
TOP, WRIST, STILL = "observation.images.top", "observation.images.wrist", "observation.images.still"
CAMERAS = (TOP, WRIST, STILL)  # the last one has no video
HEIGHT, WIDTH = 48, 64
_VECTOR = {"dtype": "float32", "shape": (6,), "names": None}
_FEATURES: dict[str, Any] = {
    **{name: {"dtype": "image" if name == STILL else "video", "shape": (HEIGHT, WIDTH, 3),
              "names": ["height", "width", "channels"]} for name in CAMERAS},
    "observation.state": _VECTOR,
    "action": _VECTOR,
    "observation.grid": {"dtype": "float32", "shape": (2, 3), "names": None},
    "next.reward": {"dtype": "float32", "shape": (1,), "names": None},
    "next.done": {"dtype": "bool", "shape": (1,), "names": None},
    "count": {"dtype": "int32", "shape": (1,), "names": None},
    "fine": {"dtype": "float64", "shape": (2,), "names": None},
    "flags": {"dtype": "bool", "shape": (3,), "names": None},
    "note": {"dtype": "string", "shape": (1,), "names": None},
}  # fmt: skip


def picture(camera: str, episode: int, row: int) -> npt.NDArray[np.uint8]:
    """(HEIGHT, WIDTH, 3): slopes up and down, without edges, whose brightness says which row it is."""
    turn = 17 * episode + 11 * row + 31 * CAMERAS.index(camera)
    y, x = np.mgrid[:HEIGHT, :WIDTH]
    layers = [y + turn, x + 2 * turn, np.full_like(x, 5 * turn)]
    return (30 + np.abs(np.stack(layers, -1) % 380 - 190)).astype(np.uint8)


def write_set(root: Path) -> Path:
    """Write the set into a new folder, and return that."""
    made = LeRobotDataset.create("me/made", FPS, _FEATURES, root=root, use_videos=True, vcodec="h264")
    random = np.random.default_rng(0)
    for episode, length in enumerate(LENGTHS):
        for row in range(length):
            frame: dict[str, Any] = {name: picture(name, episode, row) for name in CAMERAS}
            for name in ("observation.state", "action"):
                frame[name] = random.random(6, np.float32)
            frame["observation.grid"] = random.random((2, 3), np.float32)
            frame["next.reward"] = np.array([row / 7], np.float32)
            frame["next.done"] = np.array([row == length - 1])
            frame["count"] = np.array([100 * episode + row], np.int32)
            frame["fine"] = random.random(2)
            frame["flags"] = random.random(3) < 0.5
            made.add_frame(frame | {"note": f"{episode} é {row}", "task": ("pick", "place it")[episode % 2]})
        made.save_episode()
    made.finalize()
    return root
