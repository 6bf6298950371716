"""Back ends with batches on the device: decoded into pinned slots, or moved there from another back end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import torch

from fastload.backends.batch_form import batch_form, largest_batch
from fastload.backends.faults import SampleReport
from fastload.backends.fields import of_channels
from fastload.backends.native import BatchMemory, NativeBackend
from fastload.backends.options import Options
from fastload.backends.protocol import Backend, PlacedBackend
from fastload.backends.stats import Counts
from fastload.dataset.mixture import Packed
from fastload.machine.cpu import ThreadPlan
from fastload.prefetch.feeder import BatchKey, Pending
from fastload.prefetch.slots import PARAMETERS, Slot, SlotPool, SlotShape, in_steps
from fastload.sample.delivery import IMAGE, LABEL, Pairs
from fastload.sample.fields import Image
from fastload.sample.layout import HOST, VALID, BatchLayout, FieldLayout, SampleLayout, sizes_name
from fastload.sample.ragged import Ragged
from fastload.sampler import Sampler
from fastload.transfer.augment import Augmenter
from fastload.transfer.convert import Converter, Outputs, crosses_as
from fastload.transfer.nested import Mover
from fastload.transfer.pipeline import (
    DEVICE_SLOTS,
    HostSlots,
    Pipeline,
    PooledSlots,
    Ring,
    ring_bytes,
    slot_bytes,
)
from fastload.transfer.streams import Gpu, guarded
from fastload.transforms.plan import Plan

# ---- Pairs of an image and a label on the device ----------------------------------------------------

_MOVING = "moving batches to it"


def ring_slots(options: Options) -> int:
    """Return the number of host slots: ``prefetch_factor`` in work, and those that are being copied."""
    return options.most_prefetch + DEVICE_SLOTS


def device_memory_plan(shape: SlotShape, options: Options, parameters: int = 0) -> dict[str, int]:
    """Plan the memory (:meth:`fastload.DataLoader.memory_plan`); ``shape`` is the delivered batch's."""
    layout = _full(replace(shape, dtype=torch.uint8), parameters)
    slots = ring_slots(options)
    pinned = ring_bytes(layout, slots)
    outputs = Outputs.planned_bytes(shape, options.device.memory)
    return {
        "slots": slots,
        "slot_bytes": slot_bytes(layout),
        "total": pinned,
        "pinned_bytes": pinned,
        "device_slots": DEVICE_SLOTS,
        "device_bytes": DEVICE_SLOTS * slot_bytes(layout) + outputs,
        "batch_bytes": shape.nbytes + 8 * shape.batch_size,
    }


def _full(shape: SlotShape, parameters: int) -> BatchLayout:
    """Return the layout of a full batch with one image and one label per sample."""
    of = shape.layout(parameters)
    return of.of(shape.batch_size, [None] * len(of.fields))


class PipelineBackend:
    """A back end that decodes into a device's slots: batches pass a pipeline, and are augmented at its end.

    A subclass makes the host back end and the pipeline, whose ``deliver`` returns a batch and, on the device,
    what was drawn for its augmentation.

    Args:
        gpu: where to.
        augmenter: augmentation of whole batches, or None.
    """

    _host: NativeBackend
    _pipeline: Pipeline

    def __init__(self, gpu: Gpu, augmenter: Augmenter | None) -> None:
        self._gpu = gpu
        self._augmenter = augmenter

    @property
    def errors(self) -> Sequence[SampleReport]:
        """Reports of the bad samples met so far."""
        return self._host.errors

    def batch(self, key: BatchKey) -> Any:
        """Return the batch ``key`` on the device, for use on the current stream.

        Raises:
            DeviceError: the device reports an error.
            StateError: the current stream records a CUDA graph.
        """
        with self._host.tuning(key):
            return guarded(_MOVING, lambda: self._batch(key))

    def _batch(self, key: BatchKey) -> Any:
        batch, parameters = self._pipeline.batch(key)
        if self._augmenter is not None:
            augment = self._augmenter
            batch = self._gpu.run(lambda: augment(batch, parameters, key))
        self._pipeline.release()
        self._pipeline.look_ahead()
        return batch

    def cancel(self) -> None:
        """Drop the batches that are in work."""
        self._pipeline.cancel()

    def close(self) -> None:
        """End all threads, then unpin. Idempotent."""
        self._host.close()
        self._pipeline.close()

    def counts(self) -> Counts:
        """Return what was counted so far."""
        return replace(self._host.counts(), transfer=self._pipeline.counts())


class DeviceBackend(PipelineBackend):
    """A packed dataset, decoded as uint8 into pinned slots, copied and converted on the device.

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
        jitters = augmenter is not None and augmenter.jitters
        parameters = augmenter.parameters if augmenter is not None else 0
        form = batch_form(dataset, crosses_as(plan), options)
        self._shape = SlotShape.of(form.delivery.layout, options.batch_size)
        self._ring = Ring(gpu, _full(self._shape, parameters), ring_slots(options))
        self._ring.timeout = options.timeout
        try:
            form = replace(form, delivery=Pairs(self._shape.layout(parameters)))
            memory = BatchMemory(form, self._ring)
            self._host = NativeBackend(dataset, sampler, crosses_as(plan), options, threads, memory)
        except BaseException:
            self._ring.close()
            raise
        self._converter = Converter(plan, gpu.device, from_unit=jitters)
        shape = replace(self._shape, dtype=self._converter.dtype)
        self._outputs = Outputs(gpu, shape, options.device.memory)
        self._pipeline = Pipeline(
            gpu, self._host.feeder, self._ring, self._host, self._prepare, self._deliver
        )

    def _prepare(self, pending: Pending) -> None:
        if self._augmenter is not None and self._augmenter.parameters:
            shape = self._shape
            drawn = self._augmenter.draw(pending.key.epoch, pending.batch, shape.height, shape.width)
            pending.slot.fields[PARAMETERS].numpy()[:] = drawn

    def _deliver(self, pending: Pending, memory: torch.Tensor) -> tuple[Any, torch.Tensor | None]:
        """Return images and labels, and the parameters, a view of the device slot."""
        fields = pending.slot.layout.raw(lambda begin, end: memory[begin:end])
        out = self._outputs.take(len(pending.batch.ids))
        self._gpu.launch(lambda: self._convert(fields, out))
        return list(out), fields.get(PARAMETERS)

    def _convert(self, fields: Mapping[str, Any], out: tuple[torch.Tensor, torch.Tensor]) -> None:
        pixels = fields[IMAGE]
        if self._augmenter is not None and self._augmenter.jitters:
            pixels = self._augmenter.jitter(pixels, fields[PARAMETERS])
        self._converter(pixels, out[0])
        out[1].copy_(fields[LABEL])


class MovedBackend:
    """Batches of another back end, moved to the device (unless ``gpu`` is None), and augmented there or here.

    Args:
        inner: the other back end; its batches may be any nesting of dicts, lists, tuples and tensors.
        gpu: where to; None: they stay on the host.
        augmenter: augmentation of whole batches, or None.
        sampler: which samples a batch has, for the augmentation's keys.
        converter: converts uint8 images after a colour jitter; None: they are converted already.
        origins: see :class:`fastload.backends.options.Options`.
    """

    def __init__(
        self,
        inner: Backend,
        gpu: Gpu | None,
        augmenter: Augmenter | None,
        sampler: Sampler,
        converter: Converter | None = None,
        origins: bool = False,
    ) -> None:
        self._origins = origins and gpu is not None
        self._inner = inner
        self._gpu = gpu
        self._mover = Mover(gpu) if gpu is not None else None
        self._augmenter = augmenter
        self._sampler = sampler
        self._converter = converter

    @property
    def errors(self) -> Sequence[SampleReport]:
        """Reports of the bad samples met so far."""
        return self._inner.errors

    def __len__(self) -> int:
        return len(self._inner)  # type: ignore[arg-type]

    def batch(self, key: BatchKey) -> Any:
        """Return the batch ``key``, on the device.

        Raises:
            DeviceError: the device reports an error.
        """
        batch = self._inner.batch(key)
        moved = guarded(_MOVING, lambda: self._finish(batch, key))
        return {**moved, HOST: batch} if self._origins else moved

    def _finish(self, batch: Any, key: BatchKey) -> Any:
        if self._augmenter is None:
            return self._mover(batch) if self._mover is not None else batch
        batch = self._augmenter.taken(batch)
        parameters = self._augmenter.drawn(key, batch)
        if self._mover is not None:
            batch, parameters = self._mover((batch, parameters))
        if self._gpu is not None:
            return self._gpu.run(lambda: self._augment(batch, parameters, key))
        return self._augment(batch, parameters, key)

    def _augment(self, batch: Any, parameters: torch.Tensor | None, key: BatchKey) -> Any:
        assert self._augmenter is not None
        if self._converter is not None:
            batch = self._augmenter.converted(batch, parameters, self._converter)
        return self._augmenter(batch, parameters, key)

    def place_state(self, key: BatchKey) -> dict[str, Any]:
        """Pass on :meth:`fastload.backends.torch_workers.TorchBackend.place_state`."""
        return cast(PlacedBackend, self._inner).place_state(key)

    def load_place_state(self, key: BatchKey, state: dict[str, Any]) -> None:
        """Pass on :meth:`fastload.backends.torch_workers.TorchBackend.load_place_state`."""
        cast(PlacedBackend, self._inner).load_place_state(key, state)

    def cancel(self) -> None:
        """Drop the batches that are in work."""
        self._inner.cancel()

    def close(self) -> None:
        """End all threads. Idempotent."""
        self._inner.close()

    def counts(self) -> Counts:
        """Return what was counted so far."""
        counts = self._inner.counts()
        return replace(counts, transfer=self._mover.stats()) if self._mover is not None else counts


# ---- Any fields on the device, by one copy of what lies together in a slot --------------------------


def fields_memory_plan(dataset: Packed, plan: Plan, options: Options) -> dict[str, int]:
    """Plan the memory; see :meth:`fastload.DataLoader.memory_plan`."""
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
    """The form in which pixels cross the bus.

    Args:
        plan: the core's.
        images: the fields that are converted on the device, with the plans that they are converted by.
    """

    plan: Plan
    images: dict[str, Plan]

    @classmethod
    def of(cls, dataset: Packed, plan: Plan, layout: SampleLayout) -> _Crossing:
        """Choose uint8 if all images have 8 bits; else the form in which they are delivered."""
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
    pass a ring; others pass memory of the size that each needs.

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
        crossing = _Crossing.of(dataset, plan, batch_form(dataset, plan, options).delivery.layout)
        form = batch_form(dataset, crossing.plan, options)
        self._converters = {
            name: Converter(wanted, gpu.device, from_unit=self._jitters)
            for name, wanted in crossing.images.items()
        }
        slots, self._slots = _host_slots(gpu, form.delivery.layout, options)
        try:
            memory = BatchMemory(form, slots)
            self._host = NativeBackend(dataset, sampler, crossing.plan, options, threads, memory)
        except BaseException:
            self._slots.close()
            raise
        self._pipeline = Pipeline(
            gpu, self._host.feeder, self._slots, self._host, self._prepare, self._deliver
        )
        self._partial: set[BatchKey] = set()  # batches with positions without a sample

    def _prepare(self, pending: Pending) -> None:
        if not bool(pending.slot.fields[VALID].all()):
            self._partial.add(pending.key)

    def _deliver(self, pending: Pending, memory: torch.Tensor) -> tuple[Any, torch.Tensor | None]:
        """Return the batch in the consumer's memory (pictures by field, all else in one piece), and what was
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
        found: Any = self._host.delivery.batch(raw)
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
        """Write 0 where there is no picture, as on the host: the uint8 0 has become another number."""
        valid = raw[VALID]
        if field.mode == "pad":
            sizes = raw[sizes_name(field.name)]
            self._gpu.launch(lambda: pictures.masked_fill_(_outside(sizes, *pictures.shape[-2:]), 0))
        if key in self._partial:
            self._gpu.launch(lambda: _clear(pictures, valid.logical_not()))

    def _delivered(self, value: Any, field: FieldLayout) -> Any:
        """Convert a value to the dtype that is delivered."""
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
    """Copy a batch's values on the host, except pixels: the slot is filled again."""
    values: dict[str, Any] = {}
    pixels = {field.name for field in slot.layout.layout.fields if field.form in ("picture", "masks")}
    for name, value in slot.fields.items():
        if isinstance(value, torch.Tensor) and name not in pixels:
            values[name] = value.clone()
        elif isinstance(value, Ragged) and name not in pixels:
            values[name] = value.mapped(torch.clone)
    return values


def _host_slots(gpu: Gpu, layout: SampleLayout, options: Options) -> tuple[Any, HostSlots]:
    """Make the slots that batches are decoded into: for the feeder, and for the pipeline."""
    most = ring_slots(options)
    if layout.is_measured:
        pooled = PooledSlots(gpu, SlotPool(keep=most, pin=torch.cuda.is_available()), most)
        return pooled, pooled
    ring = Ring(gpu, layout.of(options.batch_size, [None] * len(layout.fields)), most)
    ring.timeout = options.timeout
    return ring, ring


def _clear(pictures: Any, where: torch.Tensor) -> None:
    """Fill the selected ones of a batch's pictures, a tensor or a list, with 0."""
    if isinstance(pictures, list):
        for number, picture in enumerate(pictures):
            picture.masked_fill_(where[number], 0)
    else:
        pictures.masked_fill_(where.view(-1, 1, 1, 1), 0)


def _outside(sizes: torch.Tensor, height: int, width: int) -> torch.Tensor:
    """Return which pixels, (n, 1, height, width), lie outside pictures of these heights and widths (n, 2)."""
    rows = torch.arange(height, device=sizes.device).view(1, height, 1)
    columns = torch.arange(width, device=sizes.device).view(1, 1, width)
    beside = (rows >= sizes[:, 0].view(-1, 1, 1)) | (columns >= sizes[:, 1].view(-1, 1, 1))
    return beside.unsqueeze(1)


def _pictures_begin(layout: BatchLayout) -> int:
    """Return the first byte of a picture; without any, the end of the device's part."""
    pairs = zip(layout.layout.fields, layout.places, strict=True)
    return min(
        (place.begin for field, place in pairs if field.form == "picture"), default=layout.device_bytes
    )
