"""Back ends whose batches lie on the device: decoded into pinned slots, or moved there from another one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

import torch

from fastload.backends.faults import SampleReport
from fastload.backends.native import BatchMemory, NativeBackend
from fastload.backends.options import Options
from fastload.backends.protocol import Backend, PlacedBackend
from fastload.backends.shapes import Form, planned_shape
from fastload.backends.stats import Counts
from fastload.dataset.mixture import Packed
from fastload.machine.cpu_budget import ThreadPlan
from fastload.prefetch.feeder import BatchKey, Pending
from fastload.prefetch.slots import PARAMETERS, SlotShape
from fastload.sample.delivery import IMAGE, LABEL
from fastload.sample.layout import HOST, BatchLayout
from fastload.sampler import Sampler
from fastload.transfer.augment import Augmenter
from fastload.transfer.convert import Converter, crosses_as
from fastload.transfer.nested import Mover
from fastload.transfer.outputs import Outputs
from fastload.transfer.pipeline import DEVICE_SLOTS, Pipeline
from fastload.transfer.ring import Ring, ring_bytes, slot_bytes
from fastload.transfer.streams import Gpu, guarded
from fastload.transforms.plan import Plan

__all__ = ["DeviceBackend", "MovedBackend", "PipelineBackend", "device_memory_plan"]

_MOVING = "moving batches to it"


def ring_slots(options: Options) -> int:
    """Host slots: ``prefetch_factor`` in work, and the ones that are being copied."""
    return options.most_prefetch + DEVICE_SLOTS


def device_memory_plan(shape: SlotShape, options: Options, parameters: int = 0) -> dict[str, int]:
    """See :meth:`fastload.DataLoader.memory_plan`; ``shape`` is the delivered batch's."""
    layout = _full(replace(shape, dtype=torch.uint8), parameters)
    slots = ring_slots(options)
    pinned = ring_bytes(layout, slots)
    outputs = Outputs.planned_bytes(shape, options.device_memory)
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
    """A full batch of one image and one label a sample."""
    of = shape.layout(parameters)
    return of.of(shape.batch_size, [None] * len(of.fields))


class PipelineBackend:
    """What decodes into a device's slots: its batches come through a pipeline, and are augmented at its end.

    A subclass makes the host back end and the pipeline, whose ``deliver`` gives a batch and, on the device,
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
        """The batch ``key`` on the device, for use on the current stream.

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
        """What was counted so far."""
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
        self._shape = planned_shape(dataset, crosses_as(plan), options)
        self._ring = Ring(gpu, _full(self._shape, parameters), ring_slots(options))
        self._ring.timeout = options.timeout
        try:
            form = Form.of_pairs(self._shape, parameters)
            memory = BatchMemory(form.delivery, self._ring)
            self._host = NativeBackend(dataset, sampler, crosses_as(plan), options, threads, memory)
        except BaseException:
            self._ring.close()
            raise
        self._converter = Converter(plan, gpu.device, from_unit=jitters)
        shape = replace(self._shape, dtype=self._converter.dtype)
        self._outputs = Outputs(gpu, shape, options.device_memory)
        self._pipeline = Pipeline(
            gpu, self._host.feeder, self._ring, self._host, self._prepare, self._deliver
        )

    def _prepare(self, pending: Pending) -> None:
        if self._augmenter is not None and self._augmenter.parameters:
            shape = self._shape
            drawn = self._augmenter.draw(pending.key.epoch, pending.batch, shape.height, shape.width)
            pending.slot.fields[PARAMETERS].numpy()[:] = drawn

    def _deliver(self, pending: Pending, memory: torch.Tensor) -> tuple[Any, torch.Tensor | None]:
        """Images and labels; and the parameters, a view of the device slot."""
        fields = pending.slot.layout.raw(lambda begin, end: memory[begin:end])
        out = self._outputs.take(len(pending.batch.ids))
        self._gpu.launch(lambda: self._convert(fields, out))
        return out, fields.get(PARAMETERS)

    def _convert(self, fields: Mapping[str, Any], out: tuple[torch.Tensor, torch.Tensor]) -> None:
        pixels = fields[IMAGE]
        if self._augmenter is not None and self._augmenter.jitters:
            pixels = self._augmenter.jitter(pixels, fields[PARAMETERS])
        self._converter(pixels, out[0])
        out[1].copy_(fields[LABEL])


class MovedBackend:
    """Batches of another back end, moved to the device (unless ``gpu`` is None), and augmented there or here.

    Args:
        inner: whose batches may be any nesting of dicts, lists, tuples and tensors.
        gpu: where to; None: they stay on the host.
        augmenter: augmentation of whole batches, or None.
        sampler: which samples a batch has, for the augmentation's keys.
        converter: converts uint8 images after a colour jitter; None: they come converted.
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
        """The batch ``key``, on the device.

        Raises:
            DeviceError: the device reports an error.
        """
        batch = self._inner.batch(key)
        found = guarded(_MOVING, lambda: self._finish(batch, key))
        return {**found, HOST: batch} if self._origins else found

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
        """See :meth:`fastload.backends.torch_workers.TorchBackend.place_state`."""
        return cast(PlacedBackend, self._inner).place_state(key)

    def load_place_state(self, key: BatchKey, state: dict[str, Any]) -> None:
        """See :meth:`fastload.backends.torch_workers.TorchBackend.load_place_state`."""
        cast(PlacedBackend, self._inner).load_place_state(key, state)

    def cancel(self) -> None:
        """Drop the batches that are in work."""
        self._inner.cancel()

    def close(self) -> None:
        """End all threads. Idempotent."""
        self._inner.close()

    def counts(self) -> Counts:
        """What was counted so far."""
        found = self._inner.counts()
        return replace(found, transfer=self._mover.stats()) if self._mover is not None else found
