"""Batches of any fields on the device: one copy of what lies together in a slot, cut into fields there."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch

from fastload.backends.device import PipelineBackend, ring_slots
from fastload.backends.fields import of_channels
from fastload.backends.native import BatchMemory, NativeBackend
from fastload.backends.options import Options
from fastload.backends.shapes import largest_batch, planned_form
from fastload.dataset.mixture import Packed
from fastload.machine.cpu_budget import ThreadPlan
from fastload.prefetch.feeder import BatchKey, Pending
from fastload.prefetch.slots import Slot, SlotPool, in_steps
from fastload.sample.fields import Image
from fastload.sample.layout import HOST, VALID, BatchLayout, FieldLayout, SampleLayout, sizes_name
from fastload.sample.ragged import Ragged
from fastload.sampler import Sampler
from fastload.transfer.augment import Augmenter
from fastload.transfer.convert import Converter, crosses_as
from fastload.transfer.nested import Mover
from fastload.transfer.pipeline import DEVICE_SLOTS, Pipeline
from fastload.transfer.pooled import PooledSlots
from fastload.transfer.ring import HostSlots, Ring, ring_bytes, slot_bytes
from fastload.transfer.streams import Gpu
from fastload.transforms.plan import Plan

__all__ = ["FieldsOnDevice", "fields_memory_plan"]


def fields_memory_plan(dataset: Packed, plan: Plan, options: Options) -> dict[str, int]:
    """See :meth:`fastload.DataLoader.memory_plan`."""
    delivered = largest_batch(dataset, plan, options)
    layout = largest_batch(dataset, _Crossing.of(dataset, plan, delivered.layout).plan, options)
    slots, size = ring_slots(options), slot_bytes(layout)
    pinned, device = ring_bytes(layout, slots), slot_bytes(replace(layout, nbytes=layout.device_bytes))
    if layout.layout.is_measured:  # torch's allocator rounds to powers of two
        size, device = 1 << (in_steps(layout.nbytes) - 1).bit_length(), in_steps(layout.device_bytes)
        pinned = slots * size
    return {
        "slots": slots,
        "slot_bytes": size,
        "total": pinned,
        "pinned_bytes": pinned,
        "device_slots": DEVICE_SLOTS,
        "device_bytes": DEVICE_SLOTS * device,
        "batch_bytes": delivered.device_bytes,
    }


@dataclass(frozen=True)
class _Crossing:
    """How pixels cross the bus.

    Args:
        plan: the core's.
        images: the fields that are converted on the device, with the plans that say to what.
    """

    plan: Plan
    images: dict[str, Plan]

    @classmethod
    def of(cls, dataset: Packed, plan: Plan, layout: SampleLayout) -> _Crossing:
        """As uint8, where all images have 8 bits; else as they are delivered."""
        fields = [field for field in layout.fields if not field.is_origin]
        kinds = {field.name: dataset.schema[field.schema_name].kind for field in fields}
        images = {name: kind for name, kind in kinds.items() if isinstance(kind, Image)}
        if any(kind.bits != 8 for kind in images.values()):
            return cls(plan, {})
        views = {field.name: plan.of_view(field.view) for field in fields}
        wanted: dict[str, Plan] = {}
        for name, kind in images.items():
            numbers: Any = {
                one: of_channels(getattr(views[name], one), kind.channels) for one in ("mean", "std")
            }
            wanted[name] = replace(views[name], **numbers)
        return cls(crosses_as(plan), wanted)


class FieldsOnDevice(PipelineBackend):
    """A packed dataset of any fields, decoded into pinned memory, copied and converted on the device.

    Objects (text, JSON, outlines) stay on the host. Pictures of 8 bits cross as uint8. Batches of one size
    come through a ring; the others through memory of what each of them needs.

    Args:
        dataset: what to read.
        sampler: which samples each batch has.
        plan: the compiled transform; without a tail.
        options: the loader's options.
        threads: decoding threads.
        gpu: where to.
        augmenter: augmentation of whole batches, or None.
    """

    def __init__(
        self,
        dataset: Packed,
        sampler: Sampler,
        plan: Plan,
        options: Options,
        threads: ThreadPlan,
        gpu: Gpu,
        augmenter: Augmenter | None,
    ) -> None:
        super().__init__(gpu, augmenter)
        self._origins = options.origins
        self._jitters = augmenter is not None and augmenter.jitters
        self._mover = Mover(gpu) if augmenter is not None else None
        crossing = _Crossing.of(dataset, plan, planned_form(dataset, plan, options).delivery.layout)
        form = planned_form(dataset, crossing.plan, options)
        self._converters = {
            name: Converter(wanted, gpu.device, from_unit=self._jitters)
            for name, wanted in crossing.images.items()
        }
        slots, self._slots = _host_slots(gpu, form.delivery.layout, options)
        try:
            memory = BatchMemory(form.delivery, slots)
            self._host = NativeBackend(dataset, sampler, crossing.plan, options, threads, memory)
        except BaseException:
            self._slots.close()
            raise
        self._pipeline = Pipeline(
            gpu, self._host.feeder, self._slots, self._host, self._prepare, self._deliver
        )
        self._partial: set[BatchKey] = set()  # batches that have positions without a sample

    def _prepare(self, pending: Pending) -> None:
        if not bool(pending.slot.fields[VALID].all()):
            self._partial.add(pending.key)

    def _deliver(self, pending: Pending, memory: torch.Tensor) -> tuple[dict[str, Any], torch.Tensor | None]:
        """The consumer's own: what is small and rows in one piece, and each field of pictures; and what was
        drawn for its augmentation."""
        layout = pending.slot.layout
        end = _pictures_begin(layout)
        rest = self._copied(memory[:end])
        host = torch.from_numpy(pending.slot.memory)
        raw = layout.raw(
            lambda begin, to: rest[begin:to] if to <= end else memory[begin:to],
            lambda begin, to: host[begin:to],
        )
        parameters = self._parameters(pending.key, raw)
        for field in layout.layout.fields:
            if field.form == "picture":
                converter = self._converters.get(field.name)
                if converter is not None and self._jitters:
                    raw[field.name] = self._jittered(raw[field.name], parameters)
                pictures = self._pictures(raw[field.name], converter)
                raw[field.name] = self._delivered(pictures, field)
                if converter is not None and not converter.keeps_zero:
                    self._blank(pictures, raw, field, pending.key)
            elif field.form == "masks":
                raw[field.name] = self._delivered(raw[field.name], field)
        self._partial.discard(pending.key)
        found: dict[str, Any] = self._host.delivery.batch(raw)
        if self._origins:
            found[HOST] = _numbers(pending.slot)
        return found, parameters

    def _parameters(self, key: BatchKey, raw: dict[str, Any]) -> Any:
        if self._augmenter is None or self._mover is None:
            return None
        return self._mover(self._augmenter.drawn(key, raw))

    def _jittered(self, pixels: torch.Tensor, parameters: Any) -> torch.Tensor:
        augmenter = self._augmenter
        assert augmenter is not None
        return self._gpu.run(lambda: augmenter.jitter(pixels, parameters))

    def _pictures(self, pictures: Any, converter: Converter | None) -> Any:
        if isinstance(pictures, list):
            return [self._pictures(picture.unsqueeze(0), converter)[0] for picture in pictures]
        if converter is None:
            return self._copied(pictures)
        out = self._gpu.empty(tuple(pictures.shape), converter.dtype)
        self._gpu.launch(lambda: converter(pictures, out))
        return out

    def _blank(self, pictures: Any, raw: dict[str, Any], field: FieldLayout, key: BatchKey) -> None:
        """Write 0 where there is no picture, as it is on the host: the uint8 0 became another number."""
        valid = raw[VALID]
        if field.mode == "pad":
            sizes = raw[sizes_name(field.name)]
            self._gpu.launch(lambda: pictures.masked_fill_(_outside(sizes, *pictures.shape[-2:]), 0))
        if key in self._partial:
            self._gpu.launch(lambda: _clear(pictures, valid.logical_not()))

    def _delivered(self, value: Any, field: FieldLayout) -> Any:
        """In the dtype that is delivered."""
        dtype = field.delivered
        if dtype is None:
            return value
        if isinstance(value, list):
            return [self._delivered(one, field) for one in value]
        if isinstance(value, Ragged):
            return Ragged.trusted(self._delivered(value.values, field), value.offsets, value._known())
        out = self._gpu.empty(tuple(value.shape), dtype)
        self._gpu.launch(lambda: out.copy_(value))
        return out

    def _copied(self, values: torch.Tensor) -> torch.Tensor:
        out = self._gpu.empty(tuple(values.shape), values.dtype)
        self._gpu.launch(lambda: out.copy_(values))
        return out

    def cancel(self) -> None:
        """Drop the batches that are in work."""
        super().cancel()
        self._partial.clear()


def _numbers(slot: Slot) -> dict[str, Any]:
    """What a batch has on the host besides pixels, in memory of its own: the slot is filled again."""
    found: dict[str, Any] = {}
    pixels = {field.name for field in slot.layout.layout.fields if field.form in ("picture", "masks")}
    for name, value in slot.fields.items():
        if isinstance(value, torch.Tensor) and name not in pixels:
            found[name] = value.clone()
        elif isinstance(value, Ragged) and name not in pixels:
            found[name] = value.mapped(torch.clone)
    return found


def _host_slots(gpu: Gpu, layout: SampleLayout, options: Options) -> tuple[Any, HostSlots]:
    """Where batches are decoded into: as the feeder and as the pipeline know it."""
    most = ring_slots(options)
    if layout.is_measured:
        pooled = PooledSlots(gpu, SlotPool(keep=most, pin=torch.cuda.is_available()), most)
        return pooled, pooled
    ring = Ring(gpu, layout.of(options.batch_size, [None] * len(layout.fields)), most)
    ring.timeout = options.timeout
    return ring, ring


def _clear(pictures: Any, where: torch.Tensor) -> None:
    """Fill those of a batch's pictures, one tensor or a list, with 0."""
    if isinstance(pictures, list):
        for number, picture in enumerate(pictures):
            picture.masked_fill_(where[number], 0)
    else:
        pictures.masked_fill_(where.view(-1, 1, 1, 1), 0)


def _outside(sizes: torch.Tensor, height: int, width: int) -> torch.Tensor:
    """Which pixels (n, 1, height, width) lie beside the pictures of these heights and widths, (n, 2)."""
    rows = torch.arange(height, device=sizes.device).view(1, height, 1)
    columns = torch.arange(width, device=sizes.device).view(1, 1, width)
    beside = (rows >= sizes[:, 0].view(-1, 1, 1)) | (columns >= sizes[:, 1].view(-1, 1, 1))
    return beside.unsqueeze(1)


def _pictures_begin(layout: BatchLayout) -> int:
    """The first byte of a picture; without any, the end of what a device has."""
    pairs = zip(layout.layout.fields, layout.places, strict=True)
    return min(
        (place.begin for field, place in pairs if field.form == "picture"), default=layout.device_bytes
    )
