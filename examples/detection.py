"""Detection: torchvision's Faster R-CNN, from nothing, on a packed set of objects.

    fastload pack coco packed            # coco/annotations/instances_*.json beside the pictures
    python examples/detection.py packed --batch-size 2

``collate="list"`` gives what torchvision's detection models take: a list of pictures, each of its own size,
and a list of targets with ``boxes`` and ``labels``. The model resizes and normalises by itself.
"""

from __future__ import annotations

import sys
from typing import Any

import torch
from short_run import train
from torch import nn
from torchvision.models.detection import fasterrcnn_mobilenet_v3_large_320_fpn

from fastload import PackedDataset
from fastload import transforms as T


def options(dataset: PackedDataset) -> dict[str, Any]:
    """The loader's."""
    chain = T.Compose([T.RandomHorizontalFlip(), T.ToDtype("float32", scale=True)])
    return {"transform": chain, "collate": "list"}


def model(dataset: PackedDataset) -> nn.Module:
    """With a class for each number up to the set's greatest; 0 is the background."""
    kind = dataset.schema["labels"].kind
    classes = max(kind.ids or range(1, len(kind.classes))) + 1
    network: nn.Module = fasterrcnn_mobilenet_v3_large_320_fpn(
        weights=None, weights_backbone=None, num_classes=classes
    )
    return network


def loss(network: nn.Module, batch: Any, device: torch.device) -> torch.Tensor:
    """The sum of the model's four."""
    images, targets = batch
    moved = [{name: target[name].to(device) for name in ("boxes", "labels")} for target in targets]
    losses = network([image.to(device) for image in images], moved)
    return torch.stack(list(losses.values())).sum()


if __name__ == "__main__":
    sys.exit(train(__doc__, options, model, loss))
