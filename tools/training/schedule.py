"""Learning rates as pure functions of the progress through training, so that resuming needs no state."""

from __future__ import annotations

import math
from collections.abc import Callable

__all__ = ["SCHEDULES", "cosine", "one_cycle"]


def cosine(progress: float, warmup: float) -> float:
    """Linear warm-up over the first ``warmup`` of training, then half a cosine to 0.

    Args:
        progress: the share of all optimiser updates that is done, 0 to 1.
        warmup: a share of them, 0 up to but not including 1.

    Returns:
        A factor of the peak learning rate, 0 to 1.
    """
    if progress < warmup:
        return progress / warmup
    return 0.5 * (1 + math.cos(math.pi * (progress - warmup) / (1 - warmup)))


def one_cycle(progress: float, warmup: float) -> float:
    """Smith and Topin's one-cycle policy (2018) as torch's OneCycleLR has it: from 1/25 of the peak up to it
    over ``warmup`` (where that is 0: 0.3) of training, then down to 1/250,000, both along a cosine.
    """
    warmup = warmup or 0.3
    if progress < warmup:
        start, end, share = 1 / 25, 1.0, progress / warmup
    else:
        start, end, share = 1.0, 1 / 25e4, (progress - warmup) / (1 - warmup)
    return end + (start - end) * 0.5 * (1 + math.cos(math.pi * share))


SCHEDULES: dict[str, Callable[[float, float], float]] = {"cosine": cosine, "onecycle": one_cycle}
