"""Detection: transformers' DETR, from a small configuration and without weights, on a packed set of objects.

    fastload pack coco packed            # coco/annotations/instances_*.json beside the pictures
    python examples/detr.py packed --batch-size 2

``collate="detr"`` gives the model's own arguments: ``pixel_values`` padded to the batch's largest sides,
``pixel_mask``, and ``labels`` with boxes as parts of the picture.
"""

from __future__ import annotations

import sys
from typing import Any

import torch
from short_run import train
from torch import nn
from transformers import DetrConfig, DetrForObjectDetection, ResNetConfig

from fastload import PackedDataset
from fastload import transforms as T

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def options(dataset: PackedDataset) -> dict[str, Any]:
    """The loader's."""
    geometry = [T.RandomHorizontalFlip(), T.Resize(160, max_size=240)]
    ending = [T.ToDtype("float32", scale=True), T.Normalize(MEAN, STD)]
    return {"transform": T.Compose([*geometry, *ending]), "collate": "detr"}


def model(dataset: PackedDataset) -> nn.Module:
    """DETR of two layers on a small ResNet."""
    kind = dataset.schema["labels"].kind
    backbone = ResNetConfig(
        embedding_size=16, hidden_sizes=[16, 32, 64, 64], depths=[1, 1, 1, 1], layer_type="basic",
        out_features=["stage4"],
    )  # fmt: skip
    config = DetrConfig(
        backbone_config=backbone, use_timm_backbone=False, use_pretrained_backbone=False,
        num_labels=max(kind.ids or range(len(kind.classes))) + 1, num_queries=20, d_model=64,
        encoder_layers=2, decoder_layers=2, encoder_attention_heads=4, decoder_attention_heads=4,
        encoder_ffn_dim=128, decoder_ffn_dim=128,
    )  # fmt: skip
    return DetrForObjectDetection(config)


def loss(network: nn.Module, batch: Any, device: torch.device) -> torch.Tensor:
    """The model's own."""
    labels = [
        {name: value.to(device) for name, value in one.items() if isinstance(value, torch.Tensor)}
        for one in batch["labels"]
    ]
    pixels = {name: batch[name].to(device) for name in ("pixel_values", "pixel_mask")}
    found: torch.Tensor = network(**pixels, labels=labels).loss
    return found


if __name__ == "__main__":
    sys.exit(train(__doc__, options, model, loss))
