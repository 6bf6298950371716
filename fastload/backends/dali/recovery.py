"""After DALI failed: our own decoder's verdict on each sample, a new pipeline, and an end to it."""

from __future__ import annotations

import re
import warnings
from collections import deque
from typing import Any

import numpy as np

from fastload import errors
from fastload._native import _C
from fastload.backends.dali.graph import Graph
from fastload.backends.dali.queue import Queue, Work
from fastload.backends.dali.share import DecodeShare
from fastload.backends.native import NativeBackend
from fastload.prefetch.fault import Fault

__all__ = ["Recovery"]

_EXPLAINED = 8  # failures by bad samples, after which DALI gets only samples that were decoded before
_UNEXPLAINED = 3  # failures without a bad sample, within ...
_WITHIN = 10_000  # batches
_DEVICE = re.compile(r"CUDA (runtime|driver) API error")
_SAMPLE = re.compile(r"[Ff]ailed to decode sample #(\d+)")


def _is_damaged(record: Any) -> bool:
    """Whether our own decoder finds an error anywhere in the picture, not only where the window is."""
    try:
        _C.decode_rgb(record, max_pixels=_C.MAX_PIXELS)
    except errors.DecodeError:
        return True
    return False


class Recovery:
    """One undecodable sample ends a DALI pipeline object, and the batches in it are lost.

    The batch that failed is decoded by our own decoder, which also says which samples are bad; DALI is never
    given those again. Then a new pipeline runs the batches that were lost. This is bounded: after 8 failures
    (and those of batches in work) DALI gets only samples that one of both has decoded before; and when a
    batch failed in which our own decoder finds nothing wrong, for the third time in 10,000, that is an error,
    or, where bad samples shall end no epoch, our own decoder takes all samples, which is said.

    Args:
        share: of our own decoder.
        must_go_on: ``on_error`` is not "raise".
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
        self.refused = 0  # samples that DALI is given no more

    def recover(self, work: Work, error: RuntimeError) -> list[Fault]:
        """``work`` failed in DALI: decode it here, and go on with the batches behind it.

        Returns:
            The faults of DALI's part of ``work``; none if it was dropped.

        Raises:
            BackendError: too often, without a bad sample.
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
        """The one of DALI's records that its message names; all if it names none."""
        found = _SAMPLE.search(message)
        if found is not None and int(found.group(1)) < len(work.records):
            return [int(found.group(1))]
        return list(range(len(work.records)))

    def _count_unexplained(self, work: Work, error: RuntimeError) -> None:
        self._unexplained.append(self.batches)
        if len(self._unexplained) < _UNEXPLAINED or self.batches - self._unexplained[0] >= _WITHIN:
            return
        said = (
            f"DALI failed {_UNEXPLAINED} times within {_WITHIN} batches, and the native decoder finds "
            f"nothing wrong with the samples, the last time in {work.key}."
        )
        if not self._must_go_on:
            raise errors.BackendError(
                f'{said} Use backend="native". DALI\'s last message: {error}'
            ) from error
        if self._share.value < 1:  # else it was said, and these are batches that were in work then
            self._share.take_all()
            warnings.warn(
                f"{said} That decoder takes all samples from here on, on the CPU; none is lost. "
                f'backend="native" does so from the start. DALI\'s last message: {error}',
                errors.SlowPathWarning,
                stacklevel=2,
            )
