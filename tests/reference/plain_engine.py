"""Engines of one image and one label, and memory for their batches, without a layout in between."""

from __future__ import annotations

from typing import Any

import numpy as np

from fastload._native import _C

__all__ = ["PlainSlot", "plain_engine"]


def plain_engine(
    sources: Any, height: int, width: int, geometry: Any = None, store: Any = None, **settings: Any
) -> Any:
    """An engine for pictures of that size; ``settings``: arguments of ``_C.Engine``."""
    view = _C.ViewPlan(geometry or _C.GeometrySpec(), width, height)
    image = _C.FieldPlan("picture", store=store or _C.StoreSpec())
    label = _C.FieldPlan("label", part=_C.INDEX, width=8)
    settings = {"seed": 0, "threads": 1, "fallback": None, **settings}
    return _C.Engine(sources, [], [view], [image, label], **settings)


class PlainSlot:
    """A batch's memory: labels, then pictures of ``sample_bytes`` bytes back to back."""

    def __init__(self, size: int, sample_bytes: int, fill: int = 77) -> None:
        self.memory = np.full(size * (8 + sample_bytes), fill, np.uint8)
        self.labels = self.memory[: 8 * size].view(np.int64)
        self.images = self.memory[8 * size :]
        self._places = [(8 * size, sample_bytes), (0, 8)]

    def submit(self, engine: Any, ids: Any, epoch: int = 0) -> int:
        """Have the engine fill it; the batch's ticket."""
        return int(engine.submit(self.memory, self._places, np.asarray(ids, np.int64), None, epoch))
