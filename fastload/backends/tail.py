"""Python callables on decoded samples, and user collate functions: the part of a batch that is not native."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch

from fastload import errors
from fastload._native import _C
from fastload.dataset.decoding import sample_error
from fastload.dataset.mixture import Packed
from fastload.errors import LibraryMissing
from fastload.machine.generators import set_generators
from fastload.sample.delivery import IMAGE, LABEL, Delivery
from fastload.sample.layout import VIEW
from fastload.transforms.called import calls_v2
from fastload.transforms.plan import Plan
from fastload.transforms.view_tail import as_picture, takes_generator

if TYPE_CHECKING:
    from fastload.backends.handed import HandOver

__all__ = ["CallableError", "SampleKey", "Tail", "failed"]

_TAIL_OP = _C.DRAW_OPS["callable"]
_GENERATOR, _GLOBALS, _COLLATE = 0, 1, 2  # blocks of _TAIL_OP


@dataclass(frozen=True)
class SampleKey:
    """What a sample's randomness depends on."""

    seed: int
    epoch: int
    sample: int
    draw: int = 0

    def words(self, block: int) -> Any:
        """Four random 32-bit words, the same for this sample in every run."""
        sample = max(self.sample, 0)  # -1: padding
        return _C.sample_words(self.seed, self.epoch, sample, self.draw, _TAIL_OP, block)

    def generator(self) -> torch.Generator:
        """A CPU generator that is the same for this sample in every run."""
        words = self.words(_GENERATOR)
        generator = torch.Generator()
        generator.manual_seed(int(words[0]) << 31 | int(words[1]) >> 1)
        return generator


class CallableError(Exception):
    """A callable failed on a sample; the cause says how."""

    def __init__(self, sample: int) -> None:
        super().__init__(sample)
        self.sample = sample


class Tail:
    """Runs callables one after the other on a decoded sample, then collates the samples of a batch.

    Before each sample the global generators of torch (CPU), ``random`` and NumPy are set from seed, epoch and
    sample id; before the batch is collated from those of its first sample. A callable with a parameter
    ``generator`` gets a ``torch.Generator`` of its own besides.

    Args:
        plan: the compiled transform, whose callables these are. Of an image and a label they get PIL
            pictures, mode RGB, or tensors (3, H, W).
        collate_fn: what makes a batch of [(sample, label)]; None: samples and labels are stacked.
        seed: the loader's.
        delivery: of the batches that the samples come from. Where these are dicts, callables and
            ``collate_fn`` get each sample as a dict, its pictures as tensors; as ``tv_tensors`` where
            something of torchvision's v2 is in them.
        handed: hands such dicts to callables.
    """

    def __init__(
        self,
        plan: Plan,
        collate_fn: Callable[[list[Any]], Any] | None,
        seed: int,
        delivery: Delivery | None = None,
        handed: HandOver | None = None,
    ) -> None:
        self._delivery = delivery
        self._handed = handed
        self._plan = plan
        self._functions: list[tuple[Callable[..., Any], bool]] | None = None  # made where they run
        self._collate_fn = collate_fn
        self._wraps = handed is not None and calls_v2(collate_fn)
        self._seed = seed

    def of_fields(
        self,
        raw: Mapping[str, Any],
        epoch: int,
        ids: npt.NDArray[np.int64],
        draws: npt.NDArray[np.uint32] | None,
    ) -> Any:
        """The batch of samples that the core has decoded.

        Args:
            raw: of :meth:`fastload.sample.layout.BatchLayout.raw`.
            epoch, ids, draws: what their randomness depends on.

        Raises:
            CallableError: a callable failed; from its error.
        """
        delivery = self._delivery
        assert delivery is not None
        if delivery.is_pair:
            # Labels of their own: a worker process sends a tensor with all the memory that it is a view of.
            return self.batch(iter(raw[IMAGE]), raw[LABEL].clone(), epoch, ids, draws)
        keys = self._keys(epoch, ids, draws)
        samples = [self._made(one, key) for one, key in zip(delivery.samples(raw), keys, strict=True)]
        if self._wraps:
            assert self._handed is not None
            samples = [self._handed.as_v2(one) for one in samples]
        batch = self._collated(keys, samples, self._collate_fn or delivery.collated)
        origins = [field.name for field in delivery.layout.fields if field.is_origin]
        if not origins:
            return batch
        found = {name: raw[name].clone() for name in origins}
        if VIEW in found and self._moves:
            found[VIEW][:, 2:4] = 0  # where the core has put it is not where it is
        return {**batch, **found}

    @property
    def _moves(self) -> bool:
        """Whether callables may move pixels."""
        return any(one.moves or one.takes == "sample" for one in self._plan.called)

    def batch(
        self,
        images: Iterable[torch.Tensor],
        labels: torch.Tensor,
        epoch: int,
        ids: npt.NDArray[np.int64],
        draws: npt.NDArray[np.uint32] | None,
    ) -> Any:
        """The batch of decoded samples.

        Args:
            images: (3, H, W) each, in channels_last strides; may be made while they are taken.
            labels: (n,) int64; read when all images have been taken.
            epoch, ids, draws: what their randomness depends on.

        Raises:
            CallableError: a callable failed; from its error.
        """
        keys = self._keys(epoch, ids, draws)
        given = self._picture()
        samples = [self._made(given(image), key) for image, key in zip(images, keys, strict=True)]
        if self._collate_fn is None:
            return self._collated(keys, samples, torch.utils.data.default_collate), labels
        return self._collated(keys, list(zip(samples, labels.tolist(), strict=True)), self._collate_fn)

    def _picture(self) -> Callable[[torch.Tensor], Any]:
        """What makes of the core's tensor what torchvision's chain has there."""
        if self._plan.picture:
            return as_picture
        if self._plan.state == "image":
            from fastload.backends.handed import tv_tensors

            with suppress(LibraryMissing):  # an old torchvision, whose v2 gives plain tensors
                return tv_tensors().Image  # type: ignore[no-any-return]
        return _as_is

    def _keys(
        self, epoch: int, ids: npt.NDArray[np.int64], draws: npt.NDArray[np.uint32] | None
    ) -> list[SampleKey]:
        draw = np.zeros(len(ids), np.uint32) if draws is None else draws
        return [SampleKey(self._seed, epoch, int(i), int(d)) for i, d in zip(ids, draw, strict=True)]

    @staticmethod
    def _collated(keys: list[SampleKey], samples: list[Any], collate: Callable[[list[Any]], Any]) -> Any:
        set_generators(keys[0].words(_COLLATE))
        try:
            return collate(samples)
        except Exception as error:
            raise CallableError(keys[0].sample) from error

    def _made(self, sample: Any, key: SampleKey) -> Any:
        """What the callables make of a sample."""
        if not self._plan.tail:
            return sample
        if self._functions is None:
            self._functions = self._ready()
        set_generators(key.words(_GLOBALS))
        try:
            for function, draws in self._functions:
                sample = function(sample, generator=key.generator()) if draws else function(sample)
        except Exception as error:
            raise CallableError(key.sample) from error
        return sample

    def _ready(self) -> list[tuple[Callable[..., Any], bool]]:
        """The callables, each with whether it takes a generator."""
        if self._handed is not None:
            return [(self._handed.ready(), True)]
        return [(function, takes_generator(function)) for function in self._plan.tail]

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_functions": None}


_DICTS = (
    ". Samples of this loader are dicts by field; one that takes a picture alone, and moves nothing in it, "
    "runs as fastload.transforms.ImageOnly(...)"
)

_ALONE = ". A callable gets one argument: the picture, or, of a set with several fields, the sample as a dict"


def _as_is(image: torch.Tensor) -> torch.Tensor:
    return image


def failed(sample: int, dataset: Packed, error: BaseException) -> errors.SampleError:
    """The error of a callable, with the sample it happened on."""
    what = f"the transform or collate function raised {type(error).__name__}: {error}"
    if isinstance(error, (AttributeError, TypeError)) and "dict" in str(error):
        what += _DICTS
    elif isinstance(error, TypeError) and "required positional argument" in str(error):
        what += _ALONE
    return sample_error(dataset, max(sample, 0), what)
