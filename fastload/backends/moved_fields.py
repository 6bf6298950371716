"""Batches of any fields on the device: one copy of what lies together in a slot, cut into fields there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch

from fastload.backends.faults import SampleReport
from fastload.backends.native import NativeBackend, host_memory
from fastload.backends.options import Options
from fastload.backends.shapes import planned_form
from fastload.backends.stats import Counts
from fastload.dataset.mixture import Packed
from fastload.errors import StateError
from fastload.machine.cpu_budget import ThreadPlan
from fastload.prefetch.feeder import BatchKey
from fastload.prefetch.slots import Slot
from fastload.sample.fields import Image
from fastload.sampler import Sampler
from fastload.transfer.convert import Converter, crosses_as
from fastload.transfer.streams import CAPTURING, Gpu, guarded
from fastload.transforms.plan import Plan

__all__ = ["FieldsOnDevice"]


class FieldsOnDevice:
    """A packed dataset of any fields, decoded into pinned memory, copied and converted on the device.

    Objects (text, JSON, outlines) stay on the host. RGB pictures of 8 bits cross as uint8.

    Args:
        dataset: what to read.
        sampler: which samples each batch has.
        plan: the compiled transform; without a tail.
        options: the loader's options.
        threads: decoding threads.
        gpu: where to.
    """

    def __init__(
        self,
        dataset: Packed,
        sampler: Sampler,
        plan: Plan,
        options: Options,
        threads: ThreadPlan,
        gpu: Gpu,
    ) -> None:
        self._gpu = gpu
        self._stream = gpu.new_stream()
        schema, wanted = dataset.schema, planned_form(dataset, plan, options)
        names = [field.name for field in wanted.delivery.layout.fields]
        images = [name for name in names if isinstance(schema[name].kind, Image)]
        crosses = plan
        if all(schema[name].kind == Image() for name in images):
            crosses = crosses_as(plan)
        self._images = images if crosses is not plan else []
        self._converter = Converter(plan, gpu.device)
        pinned = replace(options, pin_memory=True)
        memory = host_memory(planned_form(dataset, crosses, pinned), pinned)
        self._host = NativeBackend(dataset, sampler, crosses, options, threads, memory)
        self._copies = {"count": 0, "bytes": 0, "host_copies": 0}

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
        if self._gpu.capturing():
            raise StateError(CAPTURING)
        with self._host.tuning(key):
            pending = self._host.feeder.take(key)
            self._host.complete(pending)
            return guarded("moving batches to it", lambda: self._moved(pending.slot))

    def _moved(self, slot: Slot) -> dict[str, Any]:
        gpu, layout = self._gpu, slot.layout
        source = torch.from_numpy(slot.memory)
        number = self._copies["count"]
        with gpu.range("fastload.transfer.copy", number):
            memory = gpu.upload(source[: layout.device_bytes], self._stream)
        copied = gpu.new_event()
        gpu.record(copied, self._stream)
        gpu.wait(gpu.current_stream(), copied)
        gpu.use_on_current_stream(memory)
        self._copies["count"] += 1
        self._copies["bytes"] += layout.device_bytes
        self._copies["host_copies"] += not source.is_pinned()
        raw = layout.raw(lambda begin, end: memory[begin:end], lambda begin, end: source[begin:end])
        found: dict[str, Any] = self._host.delivery.batch(raw)
        with gpu.range("fastload.transfer.convert", number):
            for name in self._images:
                found[name] = self._converted(found[name])
        return found

    def _converted(self, pictures: Any) -> Any:
        if isinstance(pictures, list):
            return [self._converted(picture.unsqueeze(0))[0] for picture in pictures]
        out = self._gpu.empty(tuple(pictures.shape), self._converter.dtype)
        self._gpu.launch(lambda: self._converter(pictures, out))
        return out

    def cancel(self) -> None:
        """Drop the batches that are in work."""
        self._host.cancel()

    def close(self) -> None:
        """End all threads. Idempotent."""
        self._host.close()

    def counts(self) -> Counts:
        """What was counted so far."""
        return replace(self._host.counts(), transfer=dict(self._copies))
