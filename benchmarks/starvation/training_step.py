"""One step of training, in parts that can be timed: the networks are those of tools/train.py, and ViT-S.

SGD with momentum, cross entropy, optionally mixed precision and channels_last memory, as anybody would train.
"""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional as F

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))

from training.models import MODELS as RESNETS
from training.models import build_model

__all__ = ["AMP", "MODELS", "SmallCNN", "Trainer", "ViTSmall", "synchronize", "wake"]

MODELS = (*RESNETS, "vit_s")

AMP: dict[str, torch.dtype | None] = {"off": None, "bf16": torch.bfloat16, "fp16": torch.float16}


class SmallCNN(torch.nn.Sequential):
    """The network of PyTorch's MNIST example, for 1 or 3 channels of 28x28 pixels."""

    def __init__(self, channels: int) -> None:
        super().__init__(
            torch.nn.Conv2d(channels, 32, 3),
            torch.nn.ReLU(),
            torch.nn.Conv2d(32, 64, 3),
            torch.nn.ReLU(),
            torch.nn.MaxPool2d(2),
            torch.nn.Flatten(),
            torch.nn.Linear(9216, 128),
            torch.nn.ReLU(),
            torch.nn.Linear(128, 10),
        )


class ViTSmall(torch.nn.Module):
    """ViT-S/16 (Touvron et al., "Training data-efficient image transformers", 2021) for 224x224 pixels."""

    def __init__(self, classes: int, size: int = 224) -> None:
        super().__init__()
        self.patches = torch.nn.Conv2d(3, 384, 16, 16)
        self.token = torch.nn.Parameter(torch.zeros(1, 1, 384))
        self.places = torch.nn.Parameter(0.02 * torch.randn(1, 1 + (size // 16) ** 2, 384))
        layer = torch.nn.TransformerEncoderLayer(384, 6, 1536, 0.0, "gelu", batch_first=True, norm_first=True)
        self.blocks = torch.nn.TransformerEncoder(
            layer, 12, torch.nn.LayerNorm(384), enable_nested_tensor=False
        )
        self.head = torch.nn.Linear(384, classes)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """(N, 3, H, W) to (N, classes) logits."""
        x = self.patches(images).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(len(x), -1, -1), x], 1)
        logits: torch.Tensor = self.head(self.blocks(x + self.places[:, : x.shape[1]])[:, 0])
        return logits


class Trainer:
    """A model and its optimiser on one device.

    Args:
        model: a module, or a name of MODELS (with ``classes`` outputs).
        device: "cuda" or "cpu".
        amp: a key of AMP.
        channels_last: memory layout of model and images.
        parallel: wrap the model in torch.nn.DataParallel, over all GPUs.
    """

    def __init__(
        self,
        model: str | torch.nn.Module,
        device: str,
        *,
        classes: int = 1000,
        amp: str = "off",
        channels_last: bool = True,
        parallel: bool = False,
    ) -> None:
        torch.backends.cudnn.benchmark = True
        torch.manual_seed(0)
        self.device = torch.device(device)
        self.layout = torch.channels_last if channels_last else torch.contiguous_format
        module: Any = model
        if isinstance(model, str):
            module = ViTSmall(classes) if model == "vit_s" else build_model(model, classes)
        self.model = module.to(self.device, memory_format=self.layout).train()
        if parallel:
            self.model = torch.nn.DataParallel(self.model)
        self._amp = AMP[amp]
        self._scaler = torch.amp.GradScaler(self.device.type, enabled=amp == "fp16")
        self._optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01, momentum=0.9)

    def place(self, images: torch.Tensor, labels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """The batch on the device in the model's layout; no work where it is there already."""
        images = images.to(self.device, non_blocking=True, memory_format=self.layout)
        return images, labels.to(self.device, non_blocking=True)

    def forward(self, images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """The loss."""
        amp = torch.autocast(self.device.type, self._amp) if self._amp else contextlib.nullcontext()
        with amp:
            return F.cross_entropy(self.model(images), labels)

    def backward(self, loss: torch.Tensor) -> None:
        """All gradients."""
        torch.autograd.backward(self._scaler.scale(loss))

    def update(self) -> None:
        """The optimiser's step."""
        self._scaler.step(self._optimizer)
        self._scaler.update()
        self._optimizer.zero_grad(set_to_none=True)

    def step(self, images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Forward, backward and update with a placed batch; the loss, not read from the device."""
        loss = self.forward(images, labels)
        self.backward(loss)
        self.update()
        return loss.detach()


def wake(device: str) -> None:
    """What takes a process seconds once: a context of the GPU, torchvision, what an optimiser imports."""
    if device != "cpu":
        Trainer("resnet18", device)


def synchronize(device: torch.device) -> None:
    """Wait until the device has done everything."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
