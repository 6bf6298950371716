"""Named ranges for profilers; next to nothing where nobody profiles.

``torch.autograd.profiler.record_function`` costs microseconds even when no profiler runs; asking whether one
does costs a twentieth of one.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch.autograd.profiler import record_function

__all__ = ["profiled"]


def profiled(name: str, number: int | None = None) -> AbstractContextManager[Any]:
    """A range in the traces of torch.profiler (and, under ``emit_nvtx``, of NVTX tools).

    Args:
        name: of the range.
        number: of the batch, appended as ``#number``.
    """
    if not torch.autograd._profiler_enabled():  # type: ignore[attr-defined]
        return nullcontext()
    return record_function(name if number is None else f"{name}#{number}")
