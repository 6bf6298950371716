"""The DALI back end: joins records, DALI, our own decoder, error policy and delivery."""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Protocol

import numpy as np
import torch

from fastload._native import _C
from fastload.backends.dali.budget import decoded_bytes, decoder_padding
from fastload.backends.dali.graph import Graph, GraphSpec
from fastload.backends.dali.on_device import DeviceAssembly
from fastload.backends.dali.on_host import HostAssembly
from fastload.backends.dali.queue import Queue, Work
from fastload.backends.dali.recovery import Recovery
from fastload.backends.dali.share import DecodeShare
from fastload.backends.faults import SampleReport
from fastload.backends.native import NativeBackend, host_memory
from fastload.backends.options import Options
from fastload.backends.shapes import planned_form
from fastload.backends.stats import Counts
from fastload.dataset.mixture import Packed
from fastload.errors import SlowPathWarning, StateError
from fastload.machine.cpu_budget import ThreadPlan
from fastload.machine.sizes import counted
from fastload.prefetch.fault import Fault
from fastload.prefetch.feeder import BatchKey
from fastload.prefetch.read_ahead import plan_read_ahead
from fastload.sampler import Sampler
from fastload.shard.codecs import CODECS, COEFFICIENTS
from fastload.transfer.augment import Augmenter
from fastload.transfer.convert import crosses_as
from fastload.transfer.streams import FORKED, Gpu, guarded
from fastload.transforms.plan import Plan

__all__ = ["DaliBackend"]

_LATE = 1e-3  # seconds of waiting that count


class Assembly(Protocol):
    """Puts a batch together where it is delivered."""

    def finish(self, work: Work, pixels: torch.Tensor | None) -> Any:
        """The batch, from DALI's pixels and the complete native parts."""

    def close(self) -> None:
        """Let go of all memory. Idempotent."""


def share_threads(threads: ThreadPlan, options: Options, gpu: Gpu | None) -> tuple[int, ThreadPlan]:
    """DALI's threads, and our own decoder's. They divide the rank's cores where both work on these, and the
    share is known."""
    share, total = options.decode_share, threads.threads
    if gpu is not None or isinstance(share, str) or not 0 < share < 1 or total == 1:
        return total, threads
    own = min(total - 1, max(1, round(total * share)))
    return total - own, replace(threads, threads=own, most=own)


def _tell_of_records(dataset: Packed) -> None:
    """Say how many pictures are left to our own decoder because DALI knows no coefficient records."""
    manifests = [part.manifest for part in dataset.parts]
    found = sum(manifest.codecs.get(CODECS[COEFFICIENTS].name, 0) for manifest in manifests)
    if not found:
        return
    total = sum(manifest.num_records for manifest in manifests)
    warnings.warn(
        f"Not by DALI, which does not know them: {counted(found, 'coefficient record')} of {total} pictures. "
        "The native decoder reads them, on the CPU; pixels are right. backend='native' does the same without "
        "DALI; 'fastload recode SET --jpeg' gives DALI JPEGs.",
        SlowPathWarning,
        stacklevel=4,
    )


class DaliBackend:
    """A packed dataset, decoded and resized by DALI, on the GPU where there is one.

    Everything happens within :meth:`batch`, on the consumer's thread; DALI's threads and ours run ahead.

    Args:
        dataset: what to read.
        sampler: which samples each batch has.
        plan: the compiled transform; without a tail.
        options: the loader's options.
        threads: decoding threads.
        gpu: where batches shall be; None: on the host.
        augmenter: augmentation of whole batches on the device; None on the host.
    """

    def __init__(
        self,
        dataset: Packed,
        sampler: Sampler,
        plan: Plan,
        options: Options,
        threads: ThreadPlan,
        gpu: Gpu | None = None,
        augmenter: Augmenter | None = None,
    ) -> None:
        self._pid = os.getpid()
        _tell_of_records(dataset)
        dali_threads, native_threads = share_threads(threads, options, gpu)
        own = plan if gpu is None else crosses_as(plan)
        host_options = options if gpu is None else replace(options, pin_memory=True)
        form = planned_form(dataset, own, options)
        shape = form.shape
        assert shape is not None
        size = (shape.height, shape.width)
        self._threads = dali_threads
        self._graph = Graph(_graph_spec(own, options, size, dali_threads, gpu))
        self._host = NativeBackend(
            dataset, sampler, own, host_options, native_threads, host_memory(form, host_options)
        )
        self._feed = _make_feed(self._host.cached, sampler, plan, options, size)
        self._share = DecodeShare(options.decode_share)
        self._queue = Queue(
            self._feed,
            self._graph,
            self._host.feeder,
            sampler,
            self._share,
            options.prefetch_factor,
            plan_read_ahead(dataset, sampler).samples,
            decoded_bytes(shape, options, dali_threads) if gpu is not None else 1 << 62,
        )
        self._recovery = Recovery(
            self._host, self._graph, self._feed, self._queue, self._share, options.on_error != "raise"
        )
        self._assembly: Assembly
        if gpu is None:
            pin = options.pin_memory and torch.cuda.is_available()
            self._assembly = HostAssembly(shape.dtype, dataset.labels, pin)
        else:
            self._assembly = DeviceAssembly(gpu, plan, options, augmenter, shape, dataset.labels)
        self._counts = {"native": 0, "dali": 0}
        self._seconds = {"native": 0.0, "dali": 0.0}

    @property
    def errors(self) -> Sequence[SampleReport]:
        """Reports of the bad samples met so far."""
        return self._host.errors

    def batch(self, key: BatchKey) -> Any:
        """The batch ``key``; blocks. The ones after it are in work when it returns.

        Raises:
            SampleError: as the error policy says.
            BackendError: DALI fails, and not because of a sample; with ``on_error="raise"``.
            DeviceError: the device reports an error.
            StateError: in a fork of the process.
        """
        if os.getpid() != self._pid:
            raise StateError(FORKED)
        return guarded("DALI decoded", lambda: self._batch(key))

    def _batch(self, key: BatchKey) -> Any:
        try:
            work, pixels, faults = self._decoded(key)
        except BaseException:  # perhaps between two of DALI's inputs: what it runs is not known any more
            self._graph.drop()
            self._queue.flights.clear()
            self._queue.cancel()
            raise
        self._count(work, pixels)
        if faults:
            self._host.resolve(work.parts[0], sorted(faults, key=lambda fault: fault.position))
        return self._assembly.finish(work, pixels)

    def _decoded(self, key: BatchKey) -> tuple[Work, torch.Tensor | None, list[Fault]]:
        work = self._queue.take(key)
        first = work.parts[0] if work.parts else None
        native_late = first is not None and not self._host.feeder.is_complete(first)
        began = time.perf_counter()
        pixels, faults = self._pixels(work)
        middle = time.perf_counter()
        if first is not None:
            faults = self._host.wait(first) + faults
        ended = time.perf_counter()
        self._seconds["dali"] += middle - began
        self._seconds["native"] += ended - middle
        self._feed.accept(np.setdiff1d(work.batch.ids, [fault.sample for fault in faults]))
        self._share.observe(native_late and ended - middle > _LATE, middle - began > _LATE)
        return work, pixels, faults

    def _pixels(self, work: Work) -> tuple[torch.Tensor | None, list[Fault]]:
        """DALI's pixels; where it failed, none, and the faults of our own decoder."""
        pixels: torch.Tensor | None = None
        faults: list[Fault] = []
        while len(work.records) and self._queue.flights:
            flight = self._queue.flights.popleft()
            try:
                pixels = self._graph.outputs()
            except RuntimeError as error:
                pixels, faults = None, self._recovery.recover(flight, error)
            if flight is work:
                break
        return pixels, faults

    def _count(self, work: Work, pixels: torch.Tensor | None) -> None:
        by_dali = 0 if pixels is None else len(pixels)
        self._counts["dali"] += by_dali
        self._counts["native"] += int((work.batch.ids >= 0).sum()) - by_dali
        self._recovery.batches += 1

    def cancel(self) -> None:
        """Drop the batches that are in work."""
        self._queue.cancel()

    def close(self) -> None:
        """End all threads, and free DALI's memory. Idempotent."""
        if os.getpid() != self._pid:
            return
        self._host.close()
        self._assembly.close()
        self._graph.close()
        self._queue.close()
        self._feed.close()

    def counts(self) -> Counts:
        """What was counted so far, by both decoders; DALI moves the records as it decodes them.

        ``decoders``: ``share`` of our own decoder; ``samples`` by decoder, ``wait_seconds`` of the consumer
        for each; DALI's ``threads`` and ``failures``, the samples it was ``refused`` since, and pipelines
        ``built``.
        """
        own, records = self._host.counts(), self._feed.read_ahead()
        read_ahead = {name: count + records[name] for name, count in own.read_ahead.items()}
        decoders = {
            "backend": "dali",
            "threads": self._threads,
            "share": self._share.value,
            "samples": dict(self._counts),
            "wait_seconds": dict(self._seconds),
            "failures": self._recovery.failures,
            "refused": self._recovery.refused,
            "built": self._graph.built,
        }
        return replace(own, read_ahead=read_ahead, decoders=decoders)


def _graph_spec(
    plan: Plan, options: Options, size: tuple[int, int], threads: int, gpu: Gpu | None
) -> GraphSpec:
    spec = GraphSpec.of(plan, options.batch_size, size, threads)
    if gpu is None:
        return spec
    return replace(spec, device=gpu.device.index, padding=decoder_padding(options, threads))


def _make_feed(
    dataset: Packed, sampler: Sampler, plan: Plan, options: Options, size: tuple[int, int]
) -> _C.RecordFeed:
    ahead = plan_read_ahead(dataset, sampler)
    return _C.RecordFeed(
        sources=dataset.sources,
        geometry=plan.geometry_spec(),
        out_height=size[0],
        out_width=size[1],
        seed=options.seed,
        max_pixels=options.max_pixels,
        read_ahead=ahead.buffer_bytes,
        keep=ahead.keep,
    )
