"""The part of a batch that is not native: Python callables on decoded samples, and collate functions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import torch

from fastload import errors
from fastload._native import _C
from fastload.dataset.decoding import sample_error
from fastload.dataset.mixture import Packed
from fastload.errors import LibraryMissing
from fastload.extras import tv_tensors
from fastload.machine.generators import set_generators
from fastload.sample.delivery import Delivery
from fastload.sample.layout import VIEW
from fastload.transforms.compiler import as_picture, takes_generator
from fastload.transforms.plan import Plan

# ---- Callables on decoded samples -------------------------------------------------------------------

_TAIL_OP = _C.DRAW_OPS["callable"]
_GENERATOR, _GLOBALS, _COLLATE = 0, 1, 2  # blocks of _TAIL_OP


@dataclass(frozen=True)
class SampleKey:
    """The key of a sample's randomness."""

    seed: int
    epoch: int
    sample: int
    draw: int = 0

    def words(self, block: int) -> Any:
        """Return four random 32-bit words, the same for this sample in every run."""
        sample = max(self.sample, 0)  # -1: padding
        return _C.sample_words(self.seed, self.epoch, sample, self.draw, _TAIL_OP, block)

    def generator(self) -> torch.Generator:
        """Return a CPU generator that is the same for this sample in every run."""
        words = self.words(_GENERATOR)
        generator = torch.Generator()
        generator.manual_seed(int(words[0]) << 31 | int(words[1]) >> 1)
        return generator


class CallableError(Exception):
    """The failure of a callable on a sample; the cause says how."""

    def __init__(self, sample: int) -> None:
        super().__init__(sample)
        self.sample = sample


class Steps(NamedTuple):
    """What is done to a sample in turn.

    Args:
        given: makes what the first callable gets, or ``collate_fn`` if there are none.
        functions: the callables, each with whether it takes a generator.
        finished: makes what ``collate_fn`` gets.
    """

    given: Callable[[Any], Any]
    functions: list[tuple[Callable[..., Any], bool]]
    finished: Callable[[Any], Any]


class Adapter(Protocol):
    """What passes samples to callables."""

    def steps(self) -> Steps:
        """Return what is done to a sample; called where it is done."""


class PictureAdapter:
    """An adapter for samples (image, label), of which callables get the picture alone: a PIL one, mode RGB,
    or a tensor (3, H, W)."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan

    def steps(self) -> Steps:
        """Return what is done to a sample."""
        functions = [(_of_picture(one), takes_generator(one)) for one in self._plan.tail]
        return Steps(_of_picture(self._first()), functions, as_is)

    def _first(self) -> Callable[[torch.Tensor], Any]:
        """Return the function that turns the core's tensor into what torchvision's chain has there."""
        if self._plan.picture:
            return as_picture
        if self._plan.state == "image":
            with suppress(LibraryMissing):  # an old torchvision, whose v2 gives plain tensors
                return tv_tensors().Image  # type: ignore[no-any-return]
        return as_is


def _of_picture(function: Callable[..., Any]) -> Callable[..., Any]:
    def of_sample(sample: Any, **generator: torch.Generator) -> Any:
        image, label = sample
        return function(image, **generator), label

    return of_sample


def as_is(value: Any) -> Any:
    """Return ``value``."""
    return value


class Tail:
    """A runner of callables on decoded samples, in turn, which then collates a batch's samples.

    Before each sample the global generators of torch (CPU), ``random`` and NumPy are set from seed, epoch and
    sample id; before a batch is collated, from those of its first sample. A callable with a parameter
    ``generator`` also gets its own ``torch.Generator``.

    Args:
        adapter: passes samples to the callables.
        collate_fn: makes a batch of samples; None: as ``delivery`` does.
        seed: the loader's.
        delivery: the form of the decoded batches.
        moves: whether callables may move pixels.
    """

    def __init__(
        self,
        adapter: Adapter,
        collate_fn: Callable[[Any], Any] | None,
        seed: int,
        delivery: Delivery,
        moves: bool,
    ) -> None:
        self._adapter = adapter
        self._steps: Steps | None = None  # made where they run
        self._collate_fn = collate_fn
        self._seed = seed
        self._delivery = delivery
        self._moves = moves

    def batch(
        self,
        raw: Mapping[str, Any],
        epoch: int,
        ids: npt.NDArray[np.int64],
        draws: npt.NDArray[np.uint32] | None,
    ) -> Any:
        """Return the batch of samples that the core has decoded.

        Args:
            raw: from :meth:`fastload.sample.layout.BatchLayout.raw`.
            epoch, ids, draws: what the samples' randomness depends on.

        Raises:
            CallableError: a callable failed; the cause is its error.
        """
        delivery = self._delivery
        keys = self._keys(epoch, ids, draws)
        samples = [self._made(one, key) for one, key in zip(delivery.samples(raw), keys, strict=True)]
        set_generators(keys[0].words(_COLLATE))
        try:
            batch = delivery.collated(samples, self._collate_fn)
        except Exception as error:
            raise CallableError(keys[0].sample) from error
        origins = [field.name for field in delivery.layout.fields if field.is_origin]
        if not origins:
            return batch
        # Copies: a worker process sends a tensor with all the memory that it is a view of.
        by_name = {name: raw[name].clone() for name in origins}
        if VIEW in by_name and self._moves:
            by_name[VIEW][:, 2:4] = 0  # it may no longer be where the core has put it
        return {**batch, **by_name}

    def _keys(
        self, epoch: int, ids: npt.NDArray[np.int64], draws: npt.NDArray[np.uint32] | None
    ) -> list[SampleKey]:
        draw = np.zeros(len(ids), np.uint32) if draws is None else draws
        return [SampleKey(self._seed, epoch, int(i), int(d)) for i, d in zip(ids, draw, strict=True)]

    def _made(self, sample: Any, key: SampleKey) -> Any:
        """Run the callables on a sample."""
        if self._steps is None:
            self._steps = self._adapter.steps()
        given, functions, finished = self._steps
        sample = given(sample)
        if functions:
            set_generators(key.words(_GLOBALS))
        try:
            for function, draws in functions:
                sample = function(sample, generator=key.generator()) if draws else function(sample)
        except Exception as error:
            raise CallableError(key.sample) from error
        return finished(sample)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_steps": None}


_DICTS = (
    ". Samples of this loader are dicts by field; one that takes a picture alone, and moves nothing in it, "
    "runs as fastload.transforms.ImageOnly(...)"
)

_ALONE = ". A callable gets one argument: the picture, or, of a set with several fields, the sample as a dict"


def failed(sample: int, dataset: Packed, error: BaseException) -> errors.SampleError:
    """Return the error for a callable that failed on a sample."""
    what = f"the transform or collate function raised {type(error).__name__}: {error}"
    if isinstance(error, (AttributeError, TypeError)) and "dict" in str(error):
        what += _DICTS
    elif isinstance(error, TypeError) and "required positional argument" in str(error):
        what += _ALONE
    return sample_error(dataset, max(sample, 0), what)
