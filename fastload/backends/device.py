"""Back ends with batches on the device: decoded into pinned slots, or moved there from another back end."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias, cast

import torch

from fastload.backends.batch_form import Form, batch_parts, of_core
from fastload.backends.faults import SampleReport
from fastload.backends.fields import most_measured, of_channels
from fastload.backends.native import BatchMemory, NativeBackend
from fastload.backends.options import Options
from fastload.backends.planned_batches import batch_form
from fastload.backends.protocol import Backend, PlacedBackend
from fastload.backends.stats import Counts
from fastload.dataset.mixture import Packed
from fastload.machine.cpu import ThreadPlan
from fastload.prefetch.feeder import BatchKey, Pending
from fastload.prefetch.slots import Slot, SlotPool, in_steps
from fastload.sample.delivery import IMAGE
from fastload.sample.fields import Image
from fastload.sample.layout import HOST, PARAMETERS, VALID, BatchLayout, FieldLayout, SampleLayout, sizes_name
from fastload.sample.ragged import Ragged
from fastload.sampler import Sampler
from fastload.transfer.augment import Augmenter, parameters_of
from fastload.transfer.convert import BUFFERS, Converter, Outputs, Shape, bytes_of, crosses_as
from fastload.transfer.nested import Mover
from fastload.transfer.pipeline import DEVICE_SLOTS, Pipeline, PooledSlots, Ring, ring_bytes, slot_bytes
from fastload.transfer.streams import Gpu, guarded
from fastload.transforms.plan import Plan

_MOVING = "moving batches to it"


# ---- What crosses the bus ---------------------------------------------------------------------------


@dataclass(frozen=True)
class _Pictures:
    """A field of pictures, which the device writes into memory of its own.

    Args:
        number: which of the layout's fields.
        field: that field.
        plan: what they are converted by; None: they crossed as they are delivered, but for a mask's dtype.
    """

    number: int
    field: FieldLayout
    plan: Plan | None

    def shapes(self, batch: BatchLayout) -> list[Shape]:
        """Return what the tensors of a batch are: one, or one for each picture if they differ in size."""
        field, place = self.field, batch.places[self.number]
        dtype = field.delivered or field.dtype
        if self.plan is not None:
            dtype = getattr(torch, self.plan.dtype)
        if field.mode != "list":
            steps = (len(field.steps),) if field.steps else ()
            return [((batch.size, *steps, *field.shape[:-2], *place.size), dtype)]
        assert place.sizes is not None
        return [((1, *field.shape[:-2], *size), dtype) for size in place.sizes.tolist()]


@dataclass(frozen=True)
class Crossing:
    """The form in which batches cross the bus: pictures of 8 bits as uint8, if there are no deeper ones.

    Args:
        plan: the core's.
        form: of what crosses, with the numbers for augmentation on the device.
        pictures: the fields of pictures.
    """

    plan: Plan
    form: Form
    pictures: tuple[_Pictures, ...]

    @classmethod
    def of(cls, dataset: Packed, plan: Plan, options: Options, parameters: int) -> Crossing:
        """Plan it.

        Args:
            dataset, plan, options: the loader's; the plan has no tail.
            parameters: float32 numbers that augmentation has for each sample.

        Raises:
            ValueError: see :func:`fastload.backends.batch_form.output_size`.
        """
        core, form = plan, batch_form(dataset, plan, options)
        fields = [field for field in form.delivery.layout.fields if field.form == "picture"]
        kinds: dict[str, Any] = {field.name: dataset.schema[field.schema_name].kind for field in fields}
        images = {name: kind for name, kind in kinds.items() if isinstance(kind, Image)}
        if all(kind.bits == 8 for kind in images.values()):
            core = crosses_as(plan)
            form = batch_form(dataset, core, options)
        else:
            images = {}
        layout = form.delivery.layout
        pictures = tuple(
            _Pictures(number, field, _of_kind(plan.of_view(field.view), images.get(field.name)))
            for number, field in enumerate(layout.fields)
            if field.form == "picture"
        )
        if parameters:
            drawn = FieldLayout(PARAMETERS, "fixed", torch.float32, (parameters,))
            layout = replace(layout, fields=(*layout.fields, drawn))
        form = replace(form, delivery=replace(form.delivery, layout=layout))
        return cls(core, form, pictures)

    @property
    def layout(self) -> SampleLayout:
        """The layout of a sample that crosses."""
        return self.form.delivery.layout

    def shapes(self, batch: BatchLayout) -> list[Shape]:
        """Return what the device writes for the consumer: bytes of all that is no picture, then pictures."""
        first = self.pictures[0].number if self.pictures else None
        begin = batch.device_bytes if first is None else batch.places[first].begin
        return [((begin,), torch.uint8), *(shape for one in self.pictures for shape in one.shapes(batch))]


def _of_kind(plan: Plan, kind: Image | None) -> Plan | None:
    """Return a view's plan with numbers for the channels of such pictures."""
    if kind is None:
        return None
    mean, std = (of_channels(numbers, kind.channels) for numbers in (plan.mean, plan.std))
    return replace(plan, mean=mean, std=std)  # type: ignore[arg-type]


def ring_slots(options: Options) -> int:
    """Return the number of host slots: ``prefetch_factor`` in work, and those that are being copied."""
    return options.most_prefetch + DEVICE_SLOTS


def device_memory_plan(dataset: Packed, plan: Plan, options: Options) -> dict[str, int]:
    """Plan the memory; see :meth:`fastload.DataLoader.memory_plan`."""
    parameters = parameters_of(batch_parts(dataset, plan, options, True))
    crossing = Crossing.of(dataset, of_core(dataset, plan, options, True), options, parameters)
    layout, count = crossing.layout, options.batch_size
    most = most_measured(dataset, crossing.plan, layout, count, options.cache.decoded)
    largest = layout.of(count, most)
    slots, size = ring_slots(options), slot_bytes(largest)
    pinned, device = ring_bytes(largest, slots), size
    if not _has_one_size(layout):  # torch's allocator rounds to powers of two
        size, device = 1 << (in_steps(largest.nbytes) - 1).bit_length(), in_steps(largest.device_bytes)
        pinned = slots * size
    batch = bytes_of(crossing.shapes(largest))
    return {
        "slots": slots,
        "slot_bytes": size,
        "total": pinned,
        "pinned_bytes": pinned,
        "device_slots": DEVICE_SLOTS,
        "device_bytes": DEVICE_SLOTS * device + BUFFERS[options.device.memory] * batch,
        "batch_bytes": batch,
    }


def _has_one_size(layout: SampleLayout) -> bool:
    return all(field.has_one_size for field in layout.fields)


# ---- Packed datasets, decoded into pinned slots -----------------------------------------------------


class DeviceBackend:
    """A packed dataset of any fields, decoded into pinned memory, copied and converted on the device.

    Objects (text, JSON, outlines) stay on the host. Batches of one size pass a ring; others pass memory of
    the size that each needs.

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
        self._gpu = gpu
        self._augmenter = augmenter
        parameters = augmenter.parameters if augmenter is not None else 0
        self._crossing = crossing = Crossing.of(dataset, plan, options, parameters)
        layout = crossing.layout
        self._origins = options.origins and any(field.is_origin for field in layout.fields)
        jitter = augmenter.jitter if augmenter is not None and augmenter.jitters else None
        self._writers = [_Writer(one, gpu.device, jitter) for one in crossing.pictures]
        self._lists = any(one.field.mode == "list" for one in crossing.pictures)
        self._keeps_zero = all(writer.keeps_zero for writer in self._writers)
        self._known: dict[tuple[int, int], _Read] = {}  # by device slot and number of samples
        #: Whether a field's dtype changes when the batch is shown: masks of objects.
        self._casts = any(field.form == "masks" and field.delivered is not None for field in layout.fields)
        full = layout.empty(options.batch_size)
        self._outputs = Outputs(gpu, options.device.memory, crossing.shapes(full))
        self._slots = _host_slots(gpu, full, options, sampler)
        try:
            memory = BatchMemory(crossing.form, self._slots)
            self._host = NativeBackend(dataset, sampler, crossing.plan, options, threads, memory)
        except BaseException:
            self._slots.close()
            raise
        feeder = self._host.feeder
        self._pipeline = Pipeline(gpu, feeder, self._slots, self._host, self._prepare, self._deliver)

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

    def _prepare(self, pending: Pending) -> tuple[bool, dict[str, Any]]:
        """Draw the numbers for augmentation; return whether all positions are samples, and a copy of what a
        collate needs on the host."""
        slot, augmenter = pending.slot, self._augmenter
        if augmenter is not None and augmenter.parameters:
            size = slot.fields[augmenter.named.image or IMAGE].shape[-2:]
            drawn = augmenter.draw(pending.key.epoch, pending.batch, *size)
            slot.fields.pop(PARAMETERS).numpy()[:] = drawn
        whole = self._keeps_zero or 0 not in slot.memory[: slot.layout.size].tobytes()
        return whole, _numbers(slot) if self._origins else {}

    def _deliver(
        self, pending: Pending, memory: torch.Tensor, prepared: tuple[bool, dict[str, Any]]
    ) -> tuple[Any, torch.Tensor | None]:
        """Return the batch in the consumer's memory (pictures by field, all else in one piece), and what was
        drawn for its augmentation."""
        layout, host, (whole, numbers) = pending.slot.layout, pending.slot.memory, prepared
        shapes, head, pixels = self._read(layout, memory)
        rest, *taken = self._outputs.take(shapes)
        outs: list[Any] = taken
        if self._lists:
            outs = [
                [taken.pop(0)[0] for _ in one] if isinstance(one, list) else taken.pop(0) for one in pixels
            ]
        raw = layout.raw(
            lambda begin, end: rest[begin:end],
            lambda begin, end: torch.from_numpy(host[begin:end]),
            {writer.name: out for writer, out in zip(self._writers, outs, strict=True)},
        )
        parameters = raw.pop(PARAMETERS, None)

        def kernels() -> None:
            rest.copy_(head)
            for writer, source, out in zip(self._writers, pixels, outs, strict=True):
                writer(source, out, raw, parameters, whole)

        self._gpu.launch(kernels)
        self._outputs.lend(raw.values())
        delivery = self._host.delivery
        batch = self._gpu.run(lambda: delivery.batch(raw)) if self._casts else delivery.batch(raw)
        if self._origins:
            batch[HOST] = numbers
        return batch, parameters

    def _read(self, layout: BatchLayout, memory: torch.Tensor) -> _Read:
        """Return what the device reads and writes for a batch in a device slot; see :class:`Crossing`."""
        key = memory.data_ptr(), layout.size
        if key not in self._known:
            shapes = self._crossing.shapes(layout)
            pictures = ((one.field, layout.places[one.number]) for one in self._crossing.pictures)
            pixels = [layout.pictures(*one, lambda begin, end: memory[begin:end]) for one in pictures]
            read = shapes, memory[: shapes[0][0][0]], pixels
            if not self._slots.slot_bytes:  # the next one of as many samples has another size
                return read
            self._known[key] = read
        return self._known[key]

    def cancel(self) -> None:
        """Drop the batches that are in work."""
        self._pipeline.cancel()

    def close(self) -> None:
        """End all threads, then unpin. Idempotent."""
        self._host.close()
        self._known.clear()
        self._pipeline.close()

    def counts(self) -> Counts:
        """Return what was counted so far."""
        return replace(self._host.counts(), transfer=self._pipeline.counts())


def _host_slots(gpu: Gpu, full: BatchLayout, options: Options, sampler: Sampler) -> Ring | PooledSlots:
    """Make the slots that batches are decoded into; ``full``: the largest, if they have one size."""
    most = ring_slots(options)
    if not _has_one_size(full.layout) or not sampler.has_one_size:
        return PooledSlots(gpu, SlotPool(keep=most, pin=torch.cuda.is_available()), most)
    ring = Ring(gpu, full, most)
    ring.timeout = options.timeout
    return ring


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


#: What the consumer's tensors are, what they are written from: all that is no picture, and pictures by field.
_Read: TypeAlias = "tuple[list[Shape], torch.Tensor, list[Any]]"


class _Writer:
    """A writer of one field's pictures into the consumer's memory, in the dtype that is delivered.

    Args:
        pictures: the field.
        device: the device.
        jitter: changes the colours of (n, 3, h, w) uint8 by the numbers drawn; returns float32 in [0, 1].
    """

    def __init__(
        self,
        pictures: _Pictures,
        device: torch.device,
        jitter: Callable[[torch.Tensor, torch.Tensor], torch.Tensor] | None,
    ) -> None:
        self.name = pictures.field.name
        self._pads = pictures.field.mode == "pad"
        self._steps = bool(pictures.field.steps)
        self._jitter = jitter
        self._converter: Converter | None = None
        if pictures.plan is not None:
            self._converter = Converter(pictures.plan, device, from_unit=jitter is not None)
        #: Whether 0 in the slot, where there is no picture, stays 0.
        self.keeps_zero = self._converter is None or self._converter.keeps_zero

    def __call__(self, pixels: Any, out: Any, batch: Mapping[str, Any], parameters: Any, whole: bool) -> None:
        """Write pictures.

        Args:
            pixels: a tensor, or one for each sample, in the device slot.
            out: likewise, for the consumer.
            batch: values by field.
            parameters: the numbers drawn for each sample, or None.
            whole: whether all positions are samples.
        """
        if isinstance(pixels, list):
            for one, into in zip(pixels, out, strict=True):
                self._write(one.unsqueeze(0), into.unsqueeze(0), parameters)
        else:
            self._write(pixels, out, parameters)
        if self.keeps_zero:
            return
        if self._pads:
            out.masked_fill_(_outside(batch[sizes_name(self.name)], *out.shape[-2:]), 0)
        if not whole:
            _clear(out, batch[VALID].logical_not())

    def _write(self, pixels: torch.Tensor, out: torch.Tensor, parameters: Any) -> None:
        if self._converter is None:
            out.copy_(pixels)
            return
        if self._steps:  # for the kernel they are as many pictures
            pixels, out = pixels.flatten(0, 1), out.flatten(0, 1)
        if self._jitter is not None:
            pixels = self._jitter(pixels, parameters)
        self._converter(pixels, out)


def _clear(pictures: Any, where: torch.Tensor) -> None:
    """Fill the selected ones of a batch's pictures, a tensor or a list, with 0."""
    if isinstance(pictures, list):
        for number, picture in enumerate(pictures):
            picture.masked_fill_(where[number], 0)
    else:
        pictures.masked_fill_(where.view(-1, *[1] * (pictures.dim() - 1)), 0)


def _outside(sizes: torch.Tensor, height: int, width: int) -> torch.Tensor:
    """Return which pixels, (n, 1, height, width), lie outside pictures of these heights and widths (n, 2)."""
    rows = torch.arange(height, device=sizes.device).view(1, height, 1)
    columns = torch.arange(width, device=sizes.device).view(1, 1, width)
    beside = (rows >= sizes[:, 0].view(-1, 1, 1)) | (columns >= sizes[:, 1].view(-1, 1, 1))
    return beside.unsqueeze(1)


# ---- Batches of other back ends ---------------------------------------------------------------------


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
