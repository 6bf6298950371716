"""torchvision's random steps, made to do the same at each draw.

fastload's native steps draw numbers of their own for each sample, torchvision's others: pictures can only be
compared where nothing is left to the draw.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import bare_torchvision  # noqa: F401
from torchvision import transforms
from torchvision.transforms import functional

BRIGHT, TURN = 1.3, 10.0


def fix_steps() -> None:
    """Replace them in ``torchvision.transforms``.

    None draws a number, as no native step of fastload's does, so that a program's own steps behind them draw
    the same.
    """
    flip, jitter = transforms.RandomHorizontalFlip, transforms.ColorJitter
    gray, erasing = transforms.RandomGrayscale, transforms.RandomErasing
    forwards: dict[Any, Callable[[Any, Any], Any]] = {
        flip: lambda self, image: functional.hflip(image),
        jitter: lambda self, image: functional.adjust_brightness(image, BRIGHT),
        gray: lambda self, image: functional.rgb_to_grayscale(image, 3),
        erasing: lambda self, image: image,
    }
    for kind, forward in forwards.items():
        kind.forward = forward
    for name, made in {
        "RandomResizedCrop": _resized_crop,
        "RandomCrop": _crop,
        "RandomHorizontalFlip": lambda p=0.5: flip(p=1.0),
        "ColorJitter": lambda *given, **more: jitter(brightness=(BRIGHT, BRIGHT)),
        "RandomGrayscale": lambda p=0.1: gray(p=1.0),
        "RandomApply": lambda steps, p=0.5: transforms.Compose(list(steps)),
        "RandomRotation": lambda degrees, **more: turned,
        "RandomErasing": lambda *given, **more: erasing(p=0.0),
    }.items():
        setattr(transforms, name, made)


def _resized_crop(size: Any, *given: Any, **more: Any) -> Any:
    side = size if isinstance(size, int) else size[0]
    kept = {name: more[name] for name in ("interpolation", "antialias") if name in more}
    return transforms.Compose([transforms.Resize(side, **kept), transforms.CenterCrop(side)])


def _crop(size: Any, padding: Any = None, *given: Any, **more: Any) -> Any:
    steps = [] if padding is None else [transforms.Pad(padding)]
    return transforms.Compose([*steps, transforms.CenterCrop(size)])


def turned(image: Any) -> Any:
    """A rotation by ``TURN`` degrees."""
    return functional.rotate(image, TURN)
