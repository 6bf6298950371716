"""What processes started by spawn import by name, for which the tests' own modules have none."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from PIL import Image


def whose(image: Image.Image) -> torch.Tensor:
    """Process id, and a draw of torch's generator."""
    return torch.tensor([os.getpid(), torch.rand(()).item()], dtype=torch.float64)


def as_array(image: Image.Image) -> torch.Tensor:
    """A transform, for torch's collate function: the picture's middle."""
    return torch.from_numpy(np.array(image.resize((16, 16))))


def plus_ten(label: int) -> int:
    """A target_transform."""
    return label + 10


def rank_with_loader(rank: int, loader: Any, store: str, found: str) -> None:
    """One of two ranks, which gets its loader before it joins the group; writes labels, length and seed."""
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
    labels = torch.cat([labels for _, labels in loader]).tolist()
    Path(f"{found}{rank}").write_text(json.dumps([labels, len(loader), loader.state_dict()["seed"]]))
    dist.destroy_process_group()
