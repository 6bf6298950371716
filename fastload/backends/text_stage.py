"""Texts of batches, drawn and tokenised in separate threads while the engine decodes."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import accumulate, pairwise
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import numpy as np
import torch

from fastload._native import _C
from fastload.dataset.mixture import Packed
from fastload.machine.threads import start_beside
from fastload.prefetch.feeder import BatchKey, following
from fastload.sample.layout import HOST, IDS
from fastload.sample.ragged import Ragged
from fastload.sample.schema import Captions
from fastload.sampler import BatchIds, Sampler

if TYPE_CHECKING:
    from fastload.backends.faults import SampleReport
    from fastload.backends.protocol import Backend, go_on_at


_POLL_SECONDS = 0.1  # how often a waiting consumer looks for signals
_OPERATION = 18  # DrawOp::kText in csrc/core/base/philox.h, where no two operations share a number

_Queue: TypeAlias = "SimpleQueue[_Job | None]"


class Maker(Protocol):
    """What makes the part of batches that comes of texts."""

    #: Fields of the other back end's batches that were read for its sake, and are not delivered.
    dropped: frozenset[str]

    def make(self, key: BatchKey, batch: BatchIds) -> Any:
        """Make it of a batch's samples, in a text thread."""

    def finish(self, key: BatchKey, made: Any, batch: Mapping[str, Any]) -> dict[str, Any]:
        """Return it, in the consumer's thread, for the other back end's ``batch``."""


class TextStage:
    """Another back end's batches, with texts.

    The texts of a batch are read from their columns, which no picture delays, and tokenised as soon as the
    batch is one of the next few.

    Args:
        inner: the other back end; its batches are dicts without what is made.
        sampler: which samples each batch has.
        maker: what is made of texts.
        threads: number of tokenising threads.
        ahead: batches that are tokenised ahead of the consumer.
        move: moves the results to the device, if there is one.
    """

    def __init__(
        self,
        inner: Backend,
        sampler: Sampler,
        maker: Maker,
        threads: int,
        ahead: int,
        move: Callable[[Any], Any] | None = None,
    ) -> None:
        self._inner = inner
        self._sampler = sampler
        self._maker = maker
        self._ahead = ahead
        self._move = move
        self._queue: _Queue = SimpleQueue()
        self._jobs: deque[_Job] = deque()
        self._threads = threads
        self._started = False
        self.counts = inner.counts

    @property
    def errors(self) -> Sequence[SampleReport]:
        """Reports of the bad samples met so far."""
        return self._inner.errors

    def batch(self, key: BatchKey) -> Any:
        """Return the batch ``key``, with its texts."""
        if self._jobs and self._jobs[0].key != key:
            self._forget()
        coming: BatchKey | None = self._jobs[-1].key if self._jobs else None
        while len(self._jobs) <= self._ahead:
            coming = key if coming is None else following(self._sampler, coming)
            if coming is None:
                break
            self._submit(coming)
        batch = self._inner.batch(key)
        replaced = self._replaced(key, batch)
        made = self._jobs[0].result() if replaced is None else self._maker.make(key, replaced)
        self._jobs.popleft()
        texts = self._maker.finish(key, made, batch)
        kept = {name: value for name, value in batch.items() if name not in self._maker.dropped}
        return {**kept, **(texts if self._move is None else self._move(texts))}

    def _replaced(self, key: BatchKey, found: Mapping[str, Any]) -> BatchIds | None:
        """Return the samples in the batch, if some were replaced; else None."""
        delivered = found.get(HOST, found).get(IDS)
        if delivered is None:  # on_error replaces none
            return None
        batch = self._sampler.batch(*key)
        ids = np.where(delivered.numpy() < 0, batch.ids, delivered.numpy())
        if np.array_equal(ids, batch.ids):
            return None
        return BatchIds(ids, batch.draws)

    def _submit(self, key: BatchKey) -> None:
        if not self._started:
            self._started = True
            work, stop = partial(_work, self._queue), partial(self._queue.put, None)
            for _ in range(self._threads):
                start_beside(work, "fastload-text", stop)
        self._jobs.append(_Job(key, partial(self._maker.make, key, self._sampler.batch(*key))))
        self._queue.put(self._jobs[-1])

    def _forget(self) -> None:
        for job in self._jobs:
            job.work = None
        self._jobs.clear()

    def go_on_at(self, key: BatchKey) -> None:
        """See :func:`fastload.backends.protocol.go_on_at`."""
        self._forget()
        go_on_at(self._inner, key)

    def cancel(self) -> None:
        """Drop the batches that are in work."""
        self._forget()
        self._inner.cancel()

    def close(self) -> None:
        """End all threads; one that tokenises finishes its batch first. Idempotent."""
        for job in self._jobs:
            job.work = None
        for _ in range(self._threads if self._started else 0):
            self._queue.put(None)
        self._started = False
        self._inner.close()


class _Job:
    """The job of making one batch's texts."""

    def __init__(self, key: BatchKey, work: Callable[[], Any]) -> None:
        self.key = key
        self.work: Callable[[], Any] | None = work  # None: no longer wanted
        self._done = threading.Event()
        self._found: Any = None
        self._error: BaseException | None = None

    def run(self) -> None:
        work = self.work
        try:
            if work is not None:
                self._found = work()
        except BaseException as error:  # of any kind: the consumer gets it
            self._error = error
        self._done.set()

    def result(self) -> Any:
        """Wait for what is made, and return it."""
        while not self._done.wait(_POLL_SECONDS):  # signal handlers run here
            pass
        if self._error is not None:
            raise self._error
        return self._found


def _work(queue: _Queue) -> None:
    while (job := queue.get()) is not None:
        job.run()
        del job


class Tokenized:
    """What callables make of texts, or the texts themselves.

    Args:
        dataset: what is read.
        text: what to make of texts, by field.
        seed: the loader's.
    """

    dropped: frozenset[str] = frozenset()

    def __init__(self, dataset: Packed, text: Mapping[str, Captions], seed: int) -> None:
        self._dataset = dataset
        self._text = dict(text)
        self._seed = seed

    def make(self, key: BatchKey, batch: BatchIds) -> dict[str, Any]:
        """See :class:`Maker`."""
        dataset, text, seed = self._dataset, self._text, self._seed
        return {name: _made(dataset, name, text[name], seed, key, batch) for name in text}

    def finish(self, key: BatchKey, made: dict[str, Any], batch: Mapping[str, Any]) -> dict[str, Any]:
        """See :class:`Maker`."""
        return made


def drawn_texts(
    dataset: Packed, name: str, pick: str, seed: int, epoch: int, batch: BatchIds
) -> list[list[str]]:
    """Return the texts at each of a batch's positions: a random one of several, the first, or all.

    The draw depends on sample, epoch and seed, as all of a sample's draws. Without a text, and at positions
    without a sample, the result is "", or no texts with ``pick="all"``.
    """
    several = [_texts(dataset, name, sample) for sample in batch.ids.tolist()]
    if pick == "all":
        return several
    if pick == "first":
        return [texts[:1] or [""] for texts in several]
    words = _C.batch_words(seed, epoch, batch.ids, batch.draws, _OPERATION, 1)[:, 0].tolist()
    return [
        [texts[((high << 32 | low) * len(texts)) >> 64]] if texts else [""]
        for texts, (high, low, *_) in zip(several, words, strict=True)
    ]


def _texts(dataset: Packed, name: str, sample: int) -> list[str]:
    if sample < 0:
        return []
    part, own = dataset.locate(sample)
    value = part.value(name, own)
    return [value] if isinstance(value, str) else value or []


def _made(dataset: Packed, name: str, captions: Captions, seed: int, key: BatchKey, batch: BatchIds) -> Any:
    several = drawn_texts(dataset, name, captions.pick, seed, key.epoch, batch)
    flat = [text for texts in several for text in texts]
    if captions.tokenize is None:
        return several if captions.pick == "all" else flat
    try:
        rows = captions.tokenize(flat)
    except Exception as error:
        ids = ", ".join(map(str, batch.ids.tolist()))
        raise RuntimeError(
            f"text: the callable for {name!r} raised {type(error).__name__}: {error}. It had the texts of "
            f"batch {key.step} of epoch {key.epoch}, samples {ids}."
        ) from error
    _check(name, rows, len(flat))
    return _grouped(rows, [len(texts) for texts in several]) if captions.pick == "all" else rows


def _check(name: str, made: Any, count: int) -> None:
    parts = dict(made) if isinstance(made, Mapping) else {"": made}
    for part, value in parts.items():
        if hasattr(value, "__len__") and len(value) != count:
            where = f" under {part!r}" if part else ""
            raise ValueError(
                f"text: the callable for {name!r} returned {len(value)} rows{where} for {count} texts. It "
                "must return one for each."
            )


def _grouped(made: Any, lengths: list[int]) -> Any:
    """Group the rows of all texts by sample."""
    if isinstance(made, Mapping):
        return {name: _grouped(value, lengths) for name, value in made.items()}
    ends = [0, *accumulate(lengths)]
    if isinstance(made, torch.Tensor):
        return Ragged.trusted(made, torch.tensor(ends, dtype=torch.int64, device=made.device))
    return [made[begin:end] for begin, end in pairwise(ends)]
