"""What the doctor asks of CUDA, where the user's script has begun to use it; it never begins by itself."""

from __future__ import annotations

import torch

__all__ = ["is_in_use", "synchronise"]


def is_in_use() -> bool:
    """Whether this process has initialised CUDA."""
    return bool(torch.cuda.is_available() and torch.cuda.is_initialized())  # type: ignore[no-untyped-call]


def synchronise() -> None:
    """Wait until the device has done what it was given, if there is one in use."""
    if is_in_use():
        torch.cuda.synchronize()
