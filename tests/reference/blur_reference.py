"""torchvision's Gaussian blur of a picture, by torch's convolution."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch


def torchvision_weights(taps: int, sigma: float) -> torch.Tensor:
    """``_get_gaussian_kernel1d`` of torchvision 0.28, v1."""
    half = (taps - 1) * 0.5
    weights = torch.exp(-0.5 * (torch.linspace(-half, half, taps) / sigma).pow(2))
    return weights / weights.sum()


def v2_weights(taps: int, sigma: float) -> torch.Tensor:
    """The same of transforms.v2."""
    limit = (taps - 1) / (2.0 * 2.0**0.5)
    return torch.softmax(torch.linspace(-limit, limit, taps).div(sigma).pow(2).neg(), dim=0)


def core_weights(taps: int, sigma: float) -> torch.Tensor:
    """The core's: torchvision's with an exp that is rounded once."""
    x = np.arange(-(taps // 2), taps // 2 + 1, dtype=np.float32) / np.float32(sigma)
    exponents = np.float32(-0.5) * (x * x)
    weights = torch.from_numpy(np.exp(exponents.astype(np.float64)).astype(np.float32))
    return weights / weights.sum()


def convolved(pixels: Any, across: torch.Tensor, down: torch.Tensor) -> Any:
    """``F.gaussian_blur`` of (height, width, 3) uint8 with these weights."""
    x, y = len(across) // 2, len(down) // 2
    padded = np.pad(pixels, ((y, y), (x, x), (0, 0)), mode="reflect").transpose(2, 0, 1)
    image = torch.from_numpy(padded.astype(np.float32)).unsqueeze(0)
    kernel = torch.mm(down[:, None], across[None, :]).expand(3, 1, -1, -1)
    blurred = torch.nn.functional.conv2d(image, kernel, groups=3)
    return blurred.round()[0].to(torch.uint8).permute(1, 2, 0).contiguous().numpy()
