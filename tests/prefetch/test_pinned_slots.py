"""Slots in torch's pinned memory: what torch's allocator must know of their fields."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from fastload.prefetch.slots import SlotPool
from fastload.sample.delivery import image_and_label


def storage_of(tensor: torch.Tensor) -> int:
    """torch's object for the memory; copies that have not run yet are known by it."""
    return int(tensor.untyped_storage()._cdata)


@pytest.mark.parametrize("size", [1, 8])
def test_every_field_is_a_view_of_the_tensor_that_torch_pinned(
    monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    pinned: list[torch.Tensor] = []
    empty = torch.empty

    def pinning(*shape: Any, pin_memory: bool = False, **options: Any) -> torch.Tensor:
        made = empty(*shape, **options)
        if pin_memory:  # which needs a GPU
            pinned.append(made)
        return made

    monkeypatch.setattr(torch, "empty", pinning)
    layout = image_and_label(torch.float32, (6, 5))
    slot = SlotPool(1, pin=True).lease(layout.of(size, [None] * len(layout.fields)))
    (whole,) = pinned
    assert len(slot.fields) >= 3
    assert {storage_of(field) for field in slot.fields.values()} == {storage_of(whole)}
    slot.memory[:] = 7
    assert whole[: len(slot.memory)].eq(7).all()
