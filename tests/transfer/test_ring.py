"""The ring: layout, states, and exactly the planned memory."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from simulated_gpu import SimEvent, SimulatedGpu

from fastload.errors import StateError
from fastload.sample.delivery import image_and_label
from fastload.sample.layout import PARAMETERS, BatchLayout, FieldLayout, SampleLayout
from fastload.transfer.pipeline import Ring, SlotState, ring_bytes, slot_bytes


def layout(batch: int = 3, side: int = 5, parameters: int = 4, size: int | None = None) -> BatchLayout:
    """Of ``size`` samples of pairs of one image and one label."""
    drawn = FieldLayout(PARAMETERS, "fixed", torch.float32, (parameters,))
    of = image_and_label(torch.uint8, (side, side))
    of = SampleLayout((*of.fields, drawn)) if parameters else of
    return of.of(batch if size is None else size, [None] * len(of.fields))


@settings(deadline=None)
@given(st.integers(1, 300), st.integers(1, 40), st.integers(0, 8), st.data())
def test_views_do_not_overlap(batch: int, side: int, parameters: int, data: st.DataObject) -> None:
    size = data.draw(st.integers(1, batch))
    of = layout(batch, side, parameters, size)
    slot = torch.zeros(slot_bytes(layout(batch, side, parameters)), dtype=torch.uint8)
    fields = of.raw(lambda begin, end: slot[begin:end])
    images, labels = fields["image"], fields["label"]
    images.fill_(1)
    labels.fill_(0x0202020202020202)
    if parameters:
        assert fields[PARAMETERS].shape == (size, parameters)
        fields[PARAMETERS].view(torch.int32).fill_(0x03030303)
    assert images.shape == (size, 3, side, side)
    assert images.is_contiguous(memory_format=torch.channels_last)
    assert labels.shape == (size,)
    counts = torch.bincount(slot.int(), minlength=4)
    assert counts[1:].tolist() == [images.nbytes, labels.nbytes, 4 * size * parameters]
    assert not slot[of.device_bytes :].any()


def test_exactly_the_planned_bytes_are_pinned() -> None:
    """For 256 pictures of 224x224 torch's allocator would hold 64 MiB a slot."""
    of = layout(256, 224, 0)
    assert slot_bytes(of) - (256 * 9 + 256 * 224 * 224 * 3) < 512
    assert ring_bytes(of, 4) - 4 * slot_bytes(of) < 4096
    small, gpu = layout(), SimulatedGpu(0)
    ring = Ring(gpu, small, 5)
    assert gpu.most_pinned == ring.nbytes == ring_bytes(small, 5)
    ring.close()
    ring.close()
    assert gpu.pinned == {}


def test_slots_are_parts_of_one_mapping() -> None:
    ring = Ring(SimulatedGpu(0), layout(), 3)
    slots = [ring.lease(layout(size=2)) for _ in range(3)]
    assert ring.lease(layout(size=2)) is None
    for number, slot in enumerate(slots):
        assert slot is not None
        slot.bytes.fill_(number)
    for number, slot in enumerate(slots):
        assert slot is not None
        assert (slot.bytes == number).all()
        assert np.shares_memory(slot.memory, slot.fields["image"].numpy())
    ring.close()


def test_states_follow_the_table() -> None:
    gpu = SimulatedGpu(0)
    ring = Ring(gpu, layout(), 1)
    slot = ring.lease(layout(size=3))
    assert slot is not None
    assert ring.states == (SlotState.FILLING,)
    event, told = SimEvent(), []
    gpu.record(event, gpu.user_streams[0])
    with pytest.raises(StateError, match="Slot 0 is filling: it cannot become copying"):
        ring.copying(slot, event)
    ring.collected(slot)
    ring.copying(slot, event, lambda: told.append(1))
    assert ring.states == (SlotState.COPYING,)
    with pytest.raises(StateError, match="Slot 0 is copying: it cannot become ready"):
        ring.collected(slot)
    gpu.synchronize()
    ring.reclaim()
    assert ring.states == (SlotState.FREE,)
    assert told == [1]
    with pytest.raises(StateError, match="Slot 0 is free: it cannot become ready"):
        ring.collected(slot)
    ring.close()


def test_a_must_waits_for_the_device() -> None:
    gpu = SimulatedGpu(0, 0.0)
    ring = Ring(gpu, layout(), 1)
    slot, event = ring.lease(layout(size=3)), SimEvent()
    assert slot is not None
    ring.collected(slot)
    gpu.record(event, gpu.user_streams[0])
    ring.copying(slot, event)
    assert ring.lease(layout(size=1), must=True) is not None
    assert event.passed == 1
    assert ring.blocked_seconds > 0
    ring.close()


def test_lost_slots_are_an_error_not_a_hang() -> None:
    ring = Ring(SimulatedGpu(0), layout(), 1)
    ring.lease(layout(size=3))
    with pytest.raises(StateError, match="lost by interrupts"):
        ring.lease(layout(size=3), must=True)
    ring.close()


def test_no_memory_is_said_with_the_number() -> None:
    huge = layout(2**20, 65500)
    with pytest.raises(StateError, match=r"No memory for slots of \d+ bytes: .*Lower batch_size"):
        Ring(SimulatedGpu(0), huge, 4)
