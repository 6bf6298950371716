"""Image and text: a small CLIP of open_clip, from nothing, on a packed set of pictures with captions.

    pip install open_clip_torch
    fastload pack coco packed --annotations coco/annotations/captions_train2017.json
    python examples/clip.py packed --batch-size 64

``text=`` draws one caption of each picture anew in each epoch, and open_clip's own tokeniser makes numbers of
it in a thread beside the decoding ones. ``open_clip_train``'s own loop takes the same loader with
``collate=lambda batch: (batch["image"], batch["captions"])``: docs/guide/drop-in.md.
"""

from __future__ import annotations

import sys
from typing import Any

import torch
from open_clip.loss import ClipLoss
from open_clip.model import CLIP
from open_clip.tokenizer import SimpleTokenizer
from short_run import train
from torch import nn

from fastload import PackedDataset
from fastload import transforms as T

SIDE, CONTEXT = 64, 32
MEAN, STD = (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)
TOKENIZER = SimpleTokenizer(context_length=CONTEXT)


def options(dataset: PackedDataset) -> dict[str, Any]:
    """The loader's."""
    crop = T.RandomResizedCrop(SIDE, (0.9, 1.0), interpolation="bicubic")
    chain = T.Compose([crop, T.ToDtype("float32", scale=True), T.Normalize(MEAN, STD)])
    return {"transform": chain, "fields": ["image", "captions"], "text": {"captions": TOKENIZER}}


def model(dataset: PackedDataset) -> nn.Module:
    """Two layers of 64 for pictures, and as many for texts."""
    vision = {"image_size": SIDE, "layers": 2, "width": 64, "patch_size": 16, "head_width": 32}
    text = {
        "context_length": CONTEXT,
        "vocab_size": TOKENIZER.vocab_size,
        "width": 64,
        "heads": 2,
        "layers": 2,
    }
    return CLIP(64, vision, text, output_dict=True)


def loss(network: nn.Module, batch: Any, device: torch.device) -> torch.Tensor:
    """Each picture must find its caption among all of the batch, and each caption its picture."""
    found = network(batch["image"].to(device), batch["captions"].to(device))
    compared: torch.Tensor = ClipLoss()(**found)
    return compared


if __name__ == "__main__":
    sys.exit(train(__doc__, options, model, loss))
