"""The engine, asked in layouts: where the fields of a batch will lie, and that they be filled there."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from fastload._native import _C
from fastload.prefetch.slots import Slot
from fastload.sample.layout import BatchLayout, FieldLayout, Place, SampleLayout

__all__ = ["Filling"]

Ids = npt.NDArray[np.int64]
Draws = npt.NDArray[np.uint32]


class Filling:
    """Batches of one layout, by one engine.

    Args:
        engine: what fills them.
        layout: of a sample.
        is_pair: the engine fills one image and one label.
    """

    def __init__(self, engine: _C.Engine, layout: SampleLayout, is_pair: bool) -> None:
        self.engine = engine
        self.layout = layout
        self._is_pair = is_pair
        self._of_equal = lru_cache(maxsize=8)(lambda size: layout.of(size, [None] * len(layout.fields)))

    def planned(self, ids: Ids, draws: Draws | None, epoch: int, partners: Ids | None = None) -> BatchLayout:
        """Where the fields of these samples will lie; ``partners``: what each is put together with.

        Raises:
            ValueError: a picture is larger than there is room for.
        """
        if not self.layout.is_measured:
            found: BatchLayout = self._of_equal(len(ids))
            return found
        return self.layout.of(len(ids), self.engine.measure(ids, draws, epoch, partners))

    def submit(
        self,
        slot: Slot,
        ids: Ids,
        draws: Draws | None,
        epoch: int,
        announced: _C.Announced | None = None,
        partners: Ids | None = None,
    ) -> int:
        """Have the core fill a slot; the ticket of the batch."""
        slot.layout.write_numbers(slot.memory, ids != -1)
        if self._is_pair:
            images, labels = slot.layout.places[:2]
            pixels = slot.memory[images.begin : images.begin + images.nbytes]
            numbers = slot.memory[labels.begin : labels.begin + labels.nbytes].view(np.int64)
            return int(self.engine.submit(pixels, numbers, ids, draws, epoch, announced, partners))
        places = [
            _place_for_core(field, place)
            for field, place in zip(self.layout.fields, slot.layout.places, strict=True)
        ]
        return int(self.engine.submit_fields(slot.memory, places, ids, draws, epoch, announced, partners))


def _place_for_core(field: FieldLayout, place: Place) -> Any:
    """A place as ``_C.Engine.submit_fields`` takes it."""
    if field.form == "picture" and field.mode == "pad":
        height, width = place.size
        return place.begin, place.stride, field.picture_bytes(1, width), height, width
    if field.form == "picture" and field.mode == "list":
        assert place.offsets is not None
        return place.begin + place.offsets
    if field.form == "masks" and field.mode == "list":
        return place.begin, place.offsets, place.sizes
    if field.form == "masks":
        return place.begin, place.offsets, *place.size
    if place.offsets is not None:
        return place.begin, place.offsets
    return place.begin, place.stride
