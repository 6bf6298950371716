"""ResNets: torchvision's where it is installed, else the same networks built here.

He et al., "Deep Residual Learning for Image Recognition", CVPR 2016; the bottleneck has its stride in the 3x3
convolution, as in torchvision. Parameter names are torchvision's, so checkpoints fit both. ``resnet8`` is a
small one for a CPU: three stages of one block each.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Sequence

import torch
from torch import nn

__all__ = ["MODELS", "ResNet", "build_model"]


def conv(inputs: int, outputs: int, size: int, stride: int = 1) -> nn.Conv2d:
    """A convolution without bias (BatchNorm follows), padded to keep the extent at stride 1."""
    return nn.Conv2d(inputs, outputs, size, stride, padding=size // 2, bias=False)


class Block(nn.Module):
    """What both blocks share: the shortcut, and a projection where the shape changes."""

    expansion = 1

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        outputs = width * self.expansion
        self.relu = nn.ReLU(inplace=True)
        self.downsample: nn.Module | None = None
        if stride != 1 or inputs != outputs:
            self.downsample = nn.Sequential(conv(inputs, outputs, 1, stride), nn.BatchNorm2d(outputs))

    def residual(self, x: torch.Tensor) -> torch.Tensor:
        """What is added to the shortcut."""
        raise NotImplementedError

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(N, C, H, W) to (N, C', H / stride, W / stride)."""
        shortcut = x if self.downsample is None else self.downsample(x)
        y: torch.Tensor = self.relu(self.residual(x) + shortcut)
        return y


class BasicBlock(Block):
    """Two 3x3 convolutions."""

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__(inputs, width, stride)
        self.conv1 = conv(inputs, width, 3, stride)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = conv(width, width, 3)
        self.bn2 = nn.BatchNorm2d(width)

    def residual(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
        return y


class Bottleneck(Block):
    """1x1, 3x3 and 1x1 convolutions."""

    expansion = 4

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__(inputs, width, stride)
        self.conv1 = conv(inputs, width, 1)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = conv(width, width, 3, stride)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = conv(width, width * self.expansion, 1)
        self.bn3 = nn.BatchNorm2d(width * self.expansion)

    def residual(self, x: torch.Tensor) -> torch.Tensor:
        y = self.relu(self.bn1(self.conv1(x)))
        y = self.relu(self.bn2(self.conv2(y)))
        z: torch.Tensor = self.bn3(self.conv3(y))
        return z


class ResNet(nn.Module):
    """A stem, stages of residual blocks, global average pooling and a linear layer."""

    def __init__(self, block: type[Block], counts: Sequence[int], classes: int, width: int = 64) -> None:
        super().__init__()
        self.conv1 = conv(3, width, 7, 2)
        self.bn1 = nn.BatchNorm2d(width)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(3, 2, padding=1)
        inputs = width
        self.stages: list[str] = []
        for stage, count in enumerate(counts):
            blocks = []
            for position in range(count):
                stride = 2 if stage > 0 and position == 0 else 1
                blocks.append(block(inputs, width << stage, stride))
                inputs = (width << stage) * block.expansion
            self.stages.append(f"layer{stage + 1}")
            self.add_module(self.stages[-1], nn.Sequential(*blocks))
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(inputs, classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(N, 3, H, W) float images to (N, classes) logits."""
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        for name in self.stages:
            x = self.get_submodule(name)(x)
        logits: torch.Tensor = self.fc(torch.flatten(self.avgpool(x), 1))
        return logits


# name: block, blocks a stage, width of the first stage
MODELS: dict[str, tuple[type[Block], tuple[int, ...], int]] = {
    "resnet8": (BasicBlock, (1, 1, 1), 32),
    "resnet18": (BasicBlock, (2, 2, 2, 2), 64),
    "resnet50": (Bottleneck, (3, 4, 6, 3), 64),
}


def build_model(name: str, classes: int) -> nn.Module:
    """A model of MODELS with random weights; torchvision's class where it has one and is installed."""
    if name != "resnet8" and importlib.util.find_spec("torchvision") is not None:
        model: nn.Module = getattr(importlib.import_module("torchvision.models"), name)(num_classes=classes)
        return model
    block, counts, width = MODELS[name]
    return ResNet(block, counts, classes, width)
