"""Colour jitter of a batch: torchvision's operations on float pictures, with a factor for each sample."""

from __future__ import annotations

import torch

__all__ = ["color_jitter"]

_GRAY = (0.2989, 0.587, 0.114)  # torchvision's weights of red, green and blue


def color_jitter(
    images: torch.Tensor, factors: torch.Tensor, used: tuple[bool, bool, bool, bool]
) -> torch.Tensor:
    """Brightness, contrast, saturation, then hue.

    Args:
        images: (n, 3, h, w) float32 in [0, 1]; changed in place where an operation allows it.
        factors: (n, 4) float32: three factors, and the hue's shift in turns.
        used: which of the four to apply.

    Returns:
        (n, 3, h, w) float32 in [0, 1].
    """
    brightness, contrast, saturation, hue = factors.view(-1, 4, 1, 1, 1).unbind(1)
    if used[0]:
        images = images.mul_(brightness).clamp_(0.0, 1.0)
    if used[1]:
        images = _blend(images, _gray(images).mean((1, 2, 3), keepdim=True), contrast)
    if used[2]:
        images = _blend(images, _gray(images), saturation)
    return _shift_hue(images, hue[:, 0]) if used[3] else images


def _gray(images: torch.Tensor) -> torch.Tensor:
    """(n, 1, h, w)."""
    red, green, blue = images[:, 0:1], images[:, 1:2], images[:, 2:3]
    return (red * _GRAY[0]).add_(green, alpha=_GRAY[1]).add_(blue, alpha=_GRAY[2])


def _blend(images: torch.Tensor, other: torch.Tensor, factor: torch.Tensor) -> torch.Tensor:
    """``factor * images + (1 - factor) * other``, within [0, 1]."""
    return images.mul_(factor).add_(other * (1.0 - factor)).clamp_(0.0, 1.0)


def _shift_hue(images: torch.Tensor, shift: torch.Tensor) -> torch.Tensor:
    """To HSV, hue plus ``shift`` (n, 1, 1) modulo 1, and back (Smith 1978)."""
    red, green, blue = images.unbind(1)
    high, low = images.amax(1), images.amin(1)
    spread = high - low
    gray = spread == 0
    divisor = spread.masked_fill(gray, 1.0)
    # Distances of the two lesser channels decide the place within the sector of the greatest one.
    r, g, b = ((high - channel) / divisor for channel in (red, green, blue))
    hue = torch.where(high == red, b - g, torch.where(high == green, 2.0 + r - b, 4.0 + g - r))
    hue = (hue / 6.0 + shift).remainder_(1.0).masked_fill_(gray, 0.0)
    # Each channel follows the same trapezoid over the circle, a third of a turn apart (offsets 5, 3, 1).
    channels = []
    for offset in (5.0, 3.0, 1.0):
        k = (hue * 6.0 + offset).remainder_(6.0)
        channels.append(high - spread * torch.minimum(k, 4.0 - k).clamp_(0.0, 1.0))
    return torch.stack(channels, dim=1).contiguous(memory_format=torch.channels_last)
