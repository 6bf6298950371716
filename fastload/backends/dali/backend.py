"""The DALI back end: joins records, DALI, the native decoder, error policy and delivery."""

from __future__ import annotations

import os
import re
import time
import warnings
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch

from fastload import errors
from fastload._native import _C
from fastload.backends.dali.graph import (
    BatchShape,
    DecodeShare,
    Graph,
    GraphSpec,
    decoded_bytes,
    decoder_padding,
)
from fastload.backends.faults import SampleReport
from fastload.backends.native import NativeBackend, host_memory
from fastload.backends.options import Options
from fastload.backends.planned_batches import batch_form
from fastload.backends.stats import Counts
from fastload.backends.values import Dali
from fastload.dataset.mixture import Packed
from fastload.errors import SlowPathWarning, StateError
from fastload.machine.cpu import ThreadPlan
from fastload.machine.sizes import counted
from fastload.prefetch.engine_calls import plan_read_ahead
from fastload.prefetch.feeder import Announcements, BatchKey, Fault, Feeder, Pending, following
from fastload.prefetch.slots import Slot
from fastload.sample.delivery import IMAGE, LABEL
from fastload.sampler import BatchIds, Sampler
from fastload.shard.codecs import CODECS, COEFFICIENTS
from fastload.transfer.augment import Augmenter
from fastload.transfer.convert import Converter, Outputs, Shape, crosses_as
from fastload.transfer.streams import CAPTURING, FORKED, Gpu, guarded
from fastload.transforms.plan import Plan

# ---- Batches in work --------------------------------------------------------------------------------


@dataclass
class Work:
    """One batch in work."""

    key: BatchKey
    batch: BatchIds
    records: _C.RecordBatch  # DALI's part, kept until its pixels have come
    parts: list[Pending] = field(default_factory=list)  # the native decoder's, all in one slot
    dropped: bool = False  # nobody waits for it any more

    @property
    def slot(self) -> Slot | None:
        """Memory of the whole batch, if the native decoder has a part of it."""
        return self.parts[0].slot if self.parts else None

    def dali_ids(self) -> npt.NDArray[np.int64]:
        """Return the sample ids of DALI's part."""
        return np.ascontiguousarray(self.batch.ids[self.records.positions], np.int64)


class Queue:
    """A queue that keeps ``depth`` batches beyond the consumer's in work, across the end of an epoch.

    Args:
        feed: gives DALI's part of a batch.
        graph: DALI.
        feeder: the native decoder.
        sampler: which samples each batch has.
        share: the native decoder's share.
        depth: number of batches.
        ahead: samples to announce beyond these, whose records are read.
        most_bytes: limit for a batch's decoded pictures in DALI.
    """

    def __init__(
        self,
        feed: _C.RecordFeed,
        graph: Graph,
        feeder: Feeder,
        sampler: Sampler,
        share: DecodeShare,
        depth: int,
        ahead: int,
        most_bytes: int,
    ) -> None:
        self._feed, self._graph, self._feeder = feed, graph, feeder
        self._sampler = sampler
        self._share = share
        self._depth = depth
        self._most_bytes = most_bytes
        self._works: deque[Work] = deque()
        self._announced = Announcements(sampler, ahead, partial(_announce, feed, share), feed.forget)
        self._last: BatchKey | None = None
        #: What DALI runs, oldest first, including dropped batches.
        self.flights: deque[Work] = deque()

    def take(self, key: BatchKey) -> Work:
        """Return the batch ``key``, with the next ones in work."""
        if self._works and self._works[0].key != key:
            self.cancel()
        if not self._works:
            self._submit(key)
        while len(self._works) <= self._depth:
            coming = following(self._sampler, self._last) if self._last is not None else None
            if coming is None:
                break
            self._submit(coming)
        self._graph.start()
        self._announced.go_on(self._last)
        return self._works.popleft()

    def cancel(self) -> None:
        """Drop all batches. What DALI already runs is left to finish."""
        self._last = None
        self._announced.forget()
        while self._works:
            work = self._works.pop()
            work.dropped = True
            for part in work.parts:
                self._feeder.drop(part)

    def close(self) -> None:
        """Release all batches and their records, after both decoders have ended. Idempotent."""
        self.flights.clear()
        self._works.clear()
        self._announced.clear()

    def again(self, works: list[Work]) -> None:
        """Let a new pipeline run these batches, whose pixels were lost."""
        self.flights = deque(works)
        for work in works:
            self._graph.add(work.records)
        self._graph.start()

    def native(self, work: Work, ids: npt.NDArray[np.int64]) -> Pending:
        """Let the native decoder fill the positions of ``ids`` that are not ``_C.ELSEWHERE``."""
        part = self._feeder.submit_share(work.key, work.batch, ids, work.slot)
        work.parts.append(part)
        return part

    def _submit(self, key: BatchKey) -> None:
        announced = self._announced.find(key)
        batch = announced.batch
        records = self._feed.fetch(
            batch.ids, batch.draws, key.epoch, self._share.value, self._most_bytes, announced.handle
        )
        self._announced.taken()
        work = Work(key, batch, records)
        if len(records) < len(batch.ids):
            rest = np.array(batch.ids, np.int64)
            rest[records.positions] = _C.ELSEWHERE
            self.native(work, rest)
        if len(records):
            self._graph.add(records)
            self.flights.append(work)
        self._works.append(work)
        self._last = key


def _announce(
    feed: _C.RecordFeed, share: DecodeShare, key: BatchKey, batch: BatchIds, partners: None
) -> _C.AnnouncedRecords:
    return feed.announce(batch.ids, batch.draws, key.epoch, share.value)


# ---- Batches on the host ----------------------------------------------------------------------------


def runs(positions: npt.NDArray[np.int64]) -> Iterator[tuple[int, int, int]]:
    """Yield runs of consecutive ones among ascending positions: (first, its index in the list, count)."""
    if not len(positions):
        return
    begins = np.concatenate([[0], np.flatnonzero(np.diff(positions) != 1) + 1, [len(positions)]])
    for begin, end in zip(begins[:-1].tolist(), begins[1:].tolist(), strict=True):
        yield int(positions[begin]), begin, end - begin


class HostAssembly:
    """Assembly of a batch on the host, in DALI's memory if it has all samples, else in a slot.

    Args:
        dtype: of the images.
        labels: of every sample.
        pin: whether to copy into pinned memory, which DALI's is not.
    """

    def __init__(self, dtype: torch.dtype, labels: npt.NDArray[np.int64], pin: bool = False) -> None:
        self._dtype = dtype
        self._pin = pin
        self._labels = labels

    def finish(self, work: Work, pixels: torch.Tensor | None) -> list[torch.Tensor]:
        """Return images (n, 3, h, w) with channels_last strides, and labels (n,).

        Args:
            work: the batch, with complete native parts.
            pixels: DALI's part, (k, h, w, 3), or None.
        """
        slot = work.slot
        if slot is None:
            assert pixels is not None
            images = pixels.permute(0, 3, 1, 2).to(self._dtype)  # a view, unless DALI lacks the dtype
            labels = torch.from_numpy(self._labels[work.batch.ids])
            return [images.pin_memory() if self._pin else images, labels]
        if pixels is not None:
            for position, first, count in runs(work.records.positions):
                rows = slot.fields[IMAGE][position : position + count]
                rows.copy_(pixels[first : first + count].permute(0, 3, 1, 2))
            slot.fields[LABEL].numpy()[work.records.positions] = self._labels[work.dali_ids()]
        return [slot.fields[IMAGE], slot.fields[LABEL]]

    def close(self) -> None:
        """Do nothing."""


# ---- Batches on the device --------------------------------------------------------------------------
# As for the native back end, one kernel on the consumer's stream writes into the consumer's memory, so every
# dtype and every ``Device.memory`` is possible. DALI's memory, which its pool reuses as soon as it is
# released, and pinned rows that are being copied are kept until the event after that kernel has passed.

_CLOSING_SECONDS = 10.0  # limit for the consumer's work that is still under way


def _copy_runs(rows: torch.Tensor, pixels: torch.Tensor, positions: npt.NDArray[np.int64]) -> None:
    for position, first, count in runs(positions):
        rows[position : position + count].copy_(pixels[first : first + count])


class DeviceAssembly:
    """Assembly of a batch on the device.

    Args:
        gpu: the device.
        plan: what the images become.
        options: the loader's.
        augmenter: augmentation of whole batches, or None.
        shape: of the uint8 batches.
        labels: of every sample.
    """

    def __init__(
        self,
        gpu: Gpu,
        plan: Plan,
        options: Options,
        augmenter: Augmenter | None,
        shape: BatchShape,
        labels: npt.NDArray[np.int64],
    ) -> None:
        self._gpu = gpu
        self._augmenter = augmenter
        self._shape = shape
        self._labels = labels
        self._converter = Converter(plan, gpu.device, from_unit=augmenter is not None and augmenter.jitters)
        self._outputs = Outputs(gpu, options.device.memory, self._shapes(shape.batch_size))
        self._kept: deque[tuple[Any, Any]] = deque()

    def finish(self, work: Work, pixels: torch.Tensor | None) -> Any:
        """Return the batch, augmented, for use on the current stream.

        Args:
            work: the batch, with complete native parts.
            pixels: DALI's part, (k, h, w, 3) uint8 on the device, or None.

        Raises:
            StateError: the current stream records a CUDA graph.
        """
        if self._gpu.capturing():
            raise StateError(CAPTURING)
        while self._kept and self._gpu.passed(self._kept[0][0]):
            self._kept.popleft()
        gpu, stream = self._gpu, self._gpu.current_stream()
        labels = self._host_labels(work, pixels)
        parameters = self._parameters(work, stream)
        pixels_of_all = self._whole(work, pixels, stream)
        images, numbers = self._outputs.take(self._shapes(len(work.batch.ids)))
        self._outputs.lend((images, numbers))

        def deliver() -> None:
            augmenter, source = self._augmenter, pixels_of_all
            if augmenter is not None and augmenter.jitters:
                source = augmenter.jitter(source, parameters)
            self._converter(source, images)

        gpu.launch(deliver)
        gpu.copy(numbers, labels, stream)
        event = gpu.new_event()
        gpu.record(event, stream)
        self._kept.append((event, (pixels, pixels_of_all, work.slot, labels)))
        if self._augmenter is None:
            return [images, numbers]
        augment = self._augmenter
        return gpu.run(lambda: augment([images, numbers], parameters, work.key))

    def _shapes(self, size: int) -> list[Shape]:
        """Return what the images and labels of a batch are."""
        images = size, 3, self._shape.height, self._shape.width
        return [(images, self._converter.dtype), ((size,), torch.int64)]

    def _whole(self, work: Work, pixels: torch.Tensor | None, stream: Any) -> torch.Tensor:
        """Return all pixels, (n, 3, h, w) uint8."""
        slot, gpu = work.slot, self._gpu
        if slot is None:
            assert pixels is not None
            return pixels.permute(0, 3, 1, 2)
        size = len(work.batch.ids)
        assembled = gpu.empty((size, 3, self._shape.height, self._shape.width), torch.uint8)
        rows = assembled.permute(0, 2, 3, 1)  # contiguous, as DALI's pixels and the slot's are
        positions = np.arange(0) if pixels is None else work.records.positions
        if pixels is not None:
            gpu.launch(lambda: _copy_runs(rows, pixels, positions))
        host = slot.fields[IMAGE].permute(0, 2, 3, 1)
        for position, _, count in runs(np.setdiff1d(np.arange(size), positions)):
            gpu.copy(rows[position : position + count], host[position : position + count], stream)
        return assembled

    def _host_labels(self, work: Work, pixels: torch.Tensor | None) -> torch.Tensor:
        if work.slot is None:
            return torch.from_numpy(self._labels[work.batch.ids])
        if pixels is not None:
            work.slot.fields[LABEL].numpy()[work.records.positions] = self._labels[work.dali_ids()]
        labels: torch.Tensor = work.slot.fields[LABEL]
        return labels

    def _parameters(self, work: Work, stream: Any) -> torch.Tensor:
        if self._augmenter is None or not self._augmenter.parameters:
            return torch.empty(len(work.batch.ids), 0, device=self._gpu.device)
        shape = self._shape
        drawn = self._augmenter.draw(work.key.epoch, work.batch, shape.height, shape.width)
        return self._gpu.upload(torch.from_numpy(drawn), stream)

    def close(self) -> None:
        """Wait for the consumer's kernels that read DALI's memory. Idempotent."""
        limit = time.monotonic() + _CLOSING_SECONDS
        with suppress(RuntimeError):  # a lost device
            while self._kept and time.monotonic() < limit:
                if self._gpu.passed(self._kept[0][0]):
                    self._kept.popleft()
                else:
                    time.sleep(1e-3)
        self._kept.clear()


# ---- Failures of DALI -------------------------------------------------------------------------------

_EXPLAINED = 8  # failures by bad samples, after which DALI gets only samples decoded before
_UNEXPLAINED = 3  # failures without a bad sample, within ...
_WITHIN = 10_000  # batches
_DEVICE = re.compile(r"CUDA (runtime|driver) API error")
_SAMPLE = re.compile(r"[Ff]ailed to decode sample #(\d+)")


def _is_damaged(record: Any) -> bool:
    """Whether the native decoder finds an error anywhere in the picture, not only in the window."""
    try:
        _C.decode_rgb(record, max_pixels=_C.MAX_PIXELS)
    except errors.DecodeError:
        return True
    return False


class Recovery:
    """Recovery from a sample that DALI cannot decode, which ends a pipeline object with its batches.

    The native decoder decodes the batch that failed, and tells which samples are bad; DALI never gets those
    again. Then a new pipeline runs the lost batches. This is bounded: after 8 failures (and those of batches
    in work) DALI gets only samples that one of the two has decoded before. The third failure within 10,000
    batches in which the native decoder finds nothing wrong is an error, or, if bad samples must not end an
    epoch, the native decoder takes all samples, with a warning.

    Args:
        share: the native decoder's share.
        must_go_on: whether ``on_error`` is not "raise".
    """

    def __init__(
        self,
        host: NativeBackend,
        graph: Graph,
        feed: _C.RecordFeed,
        queue: Queue,
        share: DecodeShare,
        must_go_on: bool,
    ) -> None:
        self._host, self._graph, self._feed, self._queue = host, graph, feed, queue
        self._share, self._must_go_on = share, must_go_on
        self._unexplained: deque[int] = deque(maxlen=_UNEXPLAINED)
        self.batches = 0  # delivered
        self.failures = 0
        self.refused = 0  # samples that DALI gets no more

    def recover(self, work: Work, error: RuntimeError) -> list[Fault]:
        """Decode ``work``, which failed in DALI, and go on with the batches after it.

        Returns:
            The faults of DALI's part of ``work``; none if it was dropped.

        Raises:
            BackendError: DALI failed too often without a bad sample.
            DeviceError: the device reports an error.
        """
        if _DEVICE.search(str(error)):
            raise errors.DeviceError(f"The device failed while DALI decoded: {error}") from error
        self.failures += 1
        lost = [flight for flight in self._queue.flights if not flight.dropped]
        self._graph.drop()
        self._queue.flights.clear()
        faults = [] if work.dropped else self._decode(work, error)
        if self.failures == _EXPLAINED:
            self._feed.require_accepted()
        self._queue.again(lost)
        return faults

    def _decode(self, work: Work, error: RuntimeError) -> list[Fault]:
        ids = np.full(len(work.batch.ids), _C.ELSEWHERE, np.int64)
        ids[work.records.positions] = work.dali_ids()
        faults = self._host.wait(self._queue.native(work, ids))
        suspects = self._suspects(work, str(error))
        damaged = [i for i in suspects if _is_damaged(work.records.records[i])]
        bad = np.array([fault.sample for fault in faults] + work.dali_ids()[damaged].tolist(), np.int64)
        if not len(bad):
            bad = work.dali_ids()[suspects]
            self._count_unexplained(work, error)
        self._feed.refuse(bad)
        self.refused += len(np.unique(bad))
        return faults

    def _suspects(self, work: Work, message: str) -> list[int]:
        """Return the record that DALI's message names; all if it names none."""
        match = _SAMPLE.search(message)
        if match is not None and int(match.group(1)) < len(work.records):
            return [int(match.group(1))]
        return list(range(len(work.records)))

    def _count_unexplained(self, work: Work, error: RuntimeError) -> None:
        self._unexplained.append(self.batches)
        if len(self._unexplained) < _UNEXPLAINED or self.batches - self._unexplained[0] >= _WITHIN:
            return
        what = (
            f"DALI failed {_UNEXPLAINED} times within {_WITHIN} batches, and the native decoder finds "
            f"nothing wrong with the samples, the last time in {work.key}."
        )
        if not self._must_go_on:
            raise errors.BackendError(
                f'{what} Use backend="native". DALI\'s last message: {error}'
            ) from error
        if self._share.value < 1:  # else the warning was given, and these batches were in work then
            self._share.take_all()
            warnings.warn(
                f"{what} That decoder takes all samples from here on, on the CPU; none is lost. "
                f'backend="native" does so from the start. DALI\'s last message: {error}',
                errors.SlowPathWarning,
                stacklevel=2,
            )


# ---- The back end -----------------------------------------------------------------------------------

_LATE = 1e-3  # seconds of waiting from which a decoder counts as late


class Assembly(Protocol):
    """Assembly of a batch where it is delivered."""

    def finish(self, work: Work, pixels: torch.Tensor | None) -> Any:
        """Return the batch, from DALI's pixels and the complete native parts."""

    def close(self) -> None:
        """Release all memory. Idempotent."""


def share_threads(threads: ThreadPlan, options: Options, gpu: Gpu | None) -> tuple[int, ThreadPlan]:
    """Return DALI's threads and the native decoder's. They divide the rank's cores if both use the CPU and
    the share is known."""
    share, total = (options.dali or Dali()).decode_share, threads.threads
    if gpu is not None or isinstance(share, str) or not 0 < share < 1 or total == 1:
        return total, threads
    own = min(total - 1, max(1, round(total * share)))
    return total - own, replace(threads, threads=own, most=own)


def _tell_of_records(dataset: Packed) -> None:
    """Warn how many pictures the native decoder takes because DALI knows no coefficient records."""
    manifests = [part.manifest for part in dataset.parts]
    count = sum(manifest.codecs.get(CODECS[COEFFICIENTS].name, 0) for manifest in manifests)
    if not count:
        return
    total = sum(manifest.num_records for manifest in manifests)
    warnings.warn(
        f"Not by DALI, which does not know them: {counted(count, 'coefficient record')} of {total} pictures. "
        "The native decoder reads them, on the CPU; pixels are right. backend='native' does the same without "
        "DALI; 'fastload recode SET --jpeg' gives DALI JPEGs.",
        SlowPathWarning,
        stacklevel=4,
    )


class DaliBackend:
    """A packed dataset, decoded and resized by DALI, on the GPU if there is one.

    Everything happens within :meth:`batch`, on the consumer's thread; both decoders' threads run ahead.

    Args:
        dataset: what to read.
        sampler: which samples each batch has.
        plan: the compiled transform; without a tail.
        options: the loader's options.
        threads: decoding threads.
        gpu: where batches go; None: they stay on the host.
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
        self._unbatched = options.unbatched
        _tell_of_records(dataset)
        dali_threads, native_threads = share_threads(threads, options, gpu)
        own = plan if gpu is None else crosses_as(plan)
        host_options = options if gpu is None else replace(options, pin_memory=True)
        form = batch_form(dataset, own, options)
        shape = BatchShape.of(form.delivery.layout, options.batch_size)
        size = (shape.height, shape.width)
        self._threads = dali_threads
        self._graph = Graph(_graph_spec(own, options, size, dali_threads, gpu))
        self._host = NativeBackend(
            dataset, sampler, own, host_options, native_threads, host_memory(form, host_options)
        )
        self._feed = _make_feed(self._host.cached, sampler, plan, options, size)
        self._share = DecodeShare((options.dali or Dali()).decode_share)
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
            self._host, self._graph, self._feed, self._queue, self._share, options.errors.action != "raise"
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
        """Return the batch ``key``; blocks. The next ones are in work by then.

        Raises:
            SampleError: as the error policy says.
            BackendError: DALI fails for another reason than a sample, with ``on_error="raise"``.
            DeviceError: the device reports an error.
            StateError: in a fork of the process.
        """
        if os.getpid() != self._pid:
            raise StateError(FORKED)
        return guarded("DALI decoded", lambda: self._batch(key))

    def _batch(self, key: BatchKey) -> Any:
        try:
            work, pixels, faults = self._decoded(key)
        except BaseException:  # perhaps between two of DALI's inputs: it is unknown what DALI runs now
            self._graph.drop()
            self._queue.flights.clear()
            self._queue.cancel()
            raise
        self._count(work, pixels)
        if faults:
            self._host.resolve(work.parts[0], sorted(faults, key=lambda fault: fault.position))
        batch = self._assembly.finish(work, pixels)
        return [batch[0][0], int(batch[1][0])] if self._unbatched else batch

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
        """Return DALI's pixels; if it failed, None and the native decoder's faults."""
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
        """Return what was counted so far, by both decoders; DALI moves the records as it decodes them.

        ``decoders`` has the native decoder's ``share``; ``samples`` and the consumer's ``wait_seconds`` by
        decoder; DALI's ``threads``, ``failures``, samples ``refused`` to it, and pipelines ``built``.
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
        max_pixels=options.errors.max_pixels,
        read_ahead=ahead.buffer_bytes,
        keep=ahead.keep,
    )
