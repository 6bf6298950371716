"""The handling of bad samples (raise, skip or replace), and the reports of them."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from fastload import errors
from fastload._native import _C
from fastload.dataset.decoding import bad_sample
from fastload.dataset.mixture import Packed
from fastload.prefetch.feeder import BatchKey, Fault, Feeder, Pending
from fastload.sampler import Sampler

ON_ERROR = ("raise", "skip", "replace")
_MAX_REPORTS = 10_000
_MAX_TRIES = 16  # substitutes tried for one bad sample
_SUBSTITUTE_OP = _C.DRAW_OPS["substitute"]
# Kinds that concern one record; all others (a missing shard, a wrong size) stop the run.
SAMPLE_ERRORS = (errors.DecodeError, errors.ChecksumError)


@dataclass(frozen=True)
class SampleReport:
    """The report of one bad sample."""

    epoch: int
    step: int  # batch of the iteration
    position: int  # in the batch
    sample: int  # sample id
    shard: str  # path
    key: str  # path in the source folder
    error: str  # exception class
    message: str
    substitute: int | None  # sample id that took its place (on_error="replace")


class FaultPolicy:
    """The policy ``on_error`` for the faults of a batch.

    * ``raise``: :class:`~fastload.errors.SampleError`.
    * ``skip``: the position stays, with a black image and the label -100, which torch's ``cross_entropy``
      ignores; the batch keeps its size.
    * ``replace``: another sample of the epoch, chosen by Philox from (seed, epoch, sample id) and so the same
      in every run, takes its place.

    Args:
        dataset: names shard and key in messages.
        on_error: one of ``ON_ERROR``.
        log: path of a JSONL file that gets a line for each :class:`SampleReport`, or None. It is opened at
            once, so that a path that cannot be written to fails before the first batch.

    Raises:
        ValueError: ``on_error`` is not one of these.
        OSError: the log cannot be opened.
    """

    def __init__(
        self,
        dataset: Packed,
        on_error: str,
        log: str | os.PathLike[str] | None,
        sampler: Sampler,
        seed: int,
    ) -> None:
        if on_error not in ON_ERROR:
            raise ValueError(f"on_error must be one of {', '.join(ON_ERROR)}. Found: {on_error!r}.")
        self._dataset = dataset
        self._on_error = on_error
        self._log = log
        self._check_log()
        self._sampler = sampler
        self._seed = seed
        self.reports: list[SampleReport] = []  # the first 10,000
        self.count = 0
        #: Whether reports wait for :meth:`publish`, because batches are completed ahead of their delivery.
        self.holds = False

    def _check_log(self) -> None:
        if self._log is None:
            return
        try:
            with open(self._log, "a", encoding="utf-8"):
                pass
        except OSError as error:
            reason = (
                f"OnError.log cannot be appended to: {error.strerror}. Give a file in a folder that is there"
            )
            raise OSError(error.errno, reason, os.fspath(self._log)) from None

    def apply(self, feeder: Feeder, pending: Pending, faults: list[Fault]) -> None:
        """Deal with the faults of a complete batch.

        Raises:
            SampleError: as the policy says, or if no substitute could be decoded.
            MemoryError: memory ran out for a sample, whatever the policy.
        """
        try:
            self._apply(feeder, pending, faults)
        finally:
            if not self.holds:
                self.publish(pending)

    def _apply(self, feeder: Feeder, pending: Pending, faults: list[Fault]) -> None:
        changes: dict[int, Mapping[str, Any] | None] = {}
        for fault in faults:
            if fault.kind is MemoryError:
                raise self._no_memory(pending.key, fault.sample, fault.message)
            if self._on_error == "raise" or not issubclass(fault.kind, SAMPLE_ERRORS):
                self._report(pending, fault, None)
                raise self._error(fault.sample, fault.message, fault.kind) from fault.kind(fault.message)
            substitute, changes[fault.position] = None, None
            if self._on_error == "replace":
                substitute, changes[fault.position] = self._replace(
                    feeder, pending, fault.position, fault.sample
                )
            self._report(pending, fault, substitute)
        feeder.mend(pending, changes)

    def _replace(
        self, feeder: Feeder, pending: Pending, position: int, sample: int
    ) -> tuple[int, Mapping[str, Any]]:
        """Return the sample id of a substitute, and its batch of one."""
        draws, epoch = pending.batch.draws, pending.key.epoch
        draw = 0 if draws is None else int(draws[position])
        message, kind = "", errors.DecodeError
        for attempt in range(_MAX_TRIES):
            words = _C.sample_words(self._seed, epoch, sample, draw, _SUBSTITUTE_OP, attempt)
            candidate = self._sampler.substitute(epoch, int(words[0]) << 32 | int(words[1]))
            found, faults = feeder.alone(pending, position, candidate)
            if not faults:
                return candidate, found
            message, kind = faults[0].message, faults[0].kind  # type: ignore[assignment]
            if faults[0].kind is MemoryError:
                raise self._no_memory(pending.key, candidate, message)
        none = f"none of {_MAX_TRIES} substitutes could be decoded; the last: {message}"
        raise self._error(sample, none, kind)

    def _no_memory(self, key: BatchKey, sample: int, message: str) -> MemoryError:
        """Return the error for lack of memory, to which no policy applies: it does not concern the sample."""
        return MemoryError(
            f"Batch {key.step} of epoch {key.epoch}, sample {sample}: {message.rstrip('.')}. Lower "
            f"num_workers, batch_size or prefetch_factor, or give the process more memory (ulimit -v, the "
            f"cgroup's limit)."
        )

    def _error(self, sample: int, message: str, kind: type[Exception]) -> errors.SampleError:
        remedy = ', or pass on_error="skip" or on_error="replace"' if self._on_error == "raise" else ""
        return bad_sample(self._dataset, sample, message, kind, remedy)

    def _report(self, pending: Pending, fault: Fault, substitute: int | None) -> None:
        part, own = self._dataset.locate(fault.sample)
        report = SampleReport(
            pending.key.epoch,
            pending.key.step,
            fault.position,
            fault.sample,
            part.reader.shard_path(own),
            part.key(own),
            fault.kind.__name__,
            fault.message,
            substitute,
        )
        pending.reports.append(report)

    def publish(self, pending: Pending) -> None:
        """Publish the reports of a batch, which is delivered or whose error is raised."""
        for report in pending.reports:
            self.count += 1
            if len(self.reports) < _MAX_REPORTS:
                self.reports.append(report)
            if self._log is not None:
                with open(self._log, "a", encoding="utf-8") as file:
                    file.write(json.dumps(asdict(report)) + "\n")
