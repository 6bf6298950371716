"""The part of a batch that is not native: Python callables on decoded samples, and collate functions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from fastload import errors
from fastload._native import _C
from fastload.backends.faults import SAMPLE_ERRORS
from fastload.cache.tiers import bounded_sizes
from fastload.dataset.decoding import decode_record, sample_error
from fastload.dataset.mixture import Packed
from fastload.errors import LibraryMissing
from fastload.machine.generators import set_generators
from fastload.prefetch.feeder import Fault
from fastload.sample.delivery import IMAGE, LABEL, Delivery
from fastload.sample.layout import VIEW
from fastload.transforms.callables import calls_v2
from fastload.transforms.compiler import as_picture, takes_generator
from fastload.transforms.plan import Plan

if TYPE_CHECKING:
    from fastload.backends.callable_samples import HandOver


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


class Tail:
    """A runner of callables on decoded samples, in turn, which then collates a batch's samples.

    Before each sample the global generators of torch (CPU), ``random`` and NumPy are set from seed, epoch and
    sample id; before a batch is collated, from those of its first sample. A callable with a parameter
    ``generator`` also gets its own ``torch.Generator``.

    Args:
        plan: the compiled transform, which has the callables. For pairs of an image and a label they get
            PIL pictures, mode RGB, or tensors (3, H, W).
        collate_fn: makes a batch of [(sample, label)]; None: samples and labels are stacked.
        seed: the loader's.
        delivery: the form of the decoded batches. If these are dicts, callables and ``collate_fn`` get each
            sample as a dict with pictures as tensors, or ``tv_tensors`` if the chain has something of
            torchvision's v2.
        handed: passes such dicts to callables.
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
        """Return the batch of samples that the core has decoded.

        Args:
            raw: from :meth:`fastload.sample.layout.BatchLayout.raw`.
            epoch, ids, draws: what the samples' randomness depends on.

        Raises:
            CallableError: a callable failed; the cause is its error.
        """
        delivery = self._delivery
        assert delivery is not None
        if delivery.is_pair:
            # A copy of the labels: a worker process sends a tensor with all the memory that it is a view of.
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
        by_name = {name: raw[name].clone() for name in origins}
        if VIEW in by_name and self._moves:
            by_name[VIEW][:, 2:4] = 0  # it may no longer be where the core has put it
        return {**batch, **by_name}

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
        """Return the batch of decoded samples.

        Args:
            images: (3, H, W) each, in channels_last strides; may be made lazily.
            labels: (n,) int64; read after all images.
            epoch, ids, draws: what the samples' randomness depends on.

        Raises:
            CallableError: a callable failed; the cause is its error.
        """
        keys = self._keys(epoch, ids, draws)
        given = self._picture()
        samples = [self._made(given(image), key) for image, key in zip(images, keys, strict=True)]
        if self._collate_fn is None:
            return self._collated(keys, samples, torch.utils.data.default_collate), labels
        return self._collated(keys, list(zip(samples, labels.tolist(), strict=True)), self._collate_fn)

    def _picture(self) -> Callable[[torch.Tensor], Any]:
        """Return the function that turns the core's tensor into what torchvision's chain has there."""
        if self._plan.picture:
            return as_picture
        if self._plan.state == "image":
            from fastload.backends.callable_samples import tv_tensors

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
        """Run the callables on a sample."""
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
        """Return the callables, each with whether it takes a generator."""
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
    """Return the error for a callable that failed on a sample."""
    what = f"the transform or collate function raised {type(error).__name__}: {error}"
    if isinstance(error, (AttributeError, TypeError)) and "dict" in str(error):
        what += _DICTS
    elif isinstance(error, TypeError) and "required positional argument" in str(error):
        what += _ALONE
    return sample_error(dataset, max(sample, 0), what)


# ---- Samples that differ in size, decoded one by one ------------------------------------------------

_UNKNOWN_SIDE = 256  # pixels of a black picture whose size the index does not know


class Stopped(Exception):
    """The end of a batch by a bad sample that is an error, described by the last fault."""


class Request(NamedTuple):
    """The samples to decode, as in :class:`fastload.sampler.BatchIds`, and their substitutes."""

    epoch: int
    ids: npt.NDArray[np.int64]  # (n,); -1: padding
    draws: npt.NDArray[np.uint32] | None  # (n,)
    substitutes: npt.NDArray[np.int64] | None  # (n, tries), for on_error="replace"


class Rendered:
    """Labels and faults of a request, complete once all its images have been taken."""

    def __init__(self, labels: npt.NDArray[np.int64]) -> None:
        self.labels = labels
        self.faults: list[Fault] = []


class Renderer:
    """A decoder and transformer of single samples; bad ones become blank or are replaced (``on_error``).

    Args:
        dataset: what to read.
        plan: the compiled transform.
        seed, max_pixels, on_error: the loader's.
        side: ``Cache.decoded``; such samples are scaled each time.
    """

    def __init__(
        self,
        dataset: Packed,
        plan: Plan,
        seed: int,
        max_pixels: int,
        on_error: str,
        side: int | str | None = None,
    ) -> None:
        if plan.needs_engine:
            raise ValueError(
                "Callables behind Mosaic get pictures of one size: let Resize((height, width)) say it."
            )
        self._dataset = dataset
        self._plan = plan
        self._seed = seed
        self._max_pixels = max_pixels
        self._on_error = on_error
        self._side = side

    def __call__(self, request: Request) -> tuple[Iterator[torch.Tensor], Rendered]:
        """Return the images, (3, H, W) of the plan's dtype in channels_last strides, and labels and faults,
        all decoded lazily. A fault that stops the run raises :class:`Stopped` when the image is taken."""
        known = self._dataset.labels[np.maximum(request.ids, 0)]
        rendered = Rendered(np.where(request.ids < 0, _C.IGNORE_LABEL, known))
        return self._images(request, rendered), rendered

    def _images(self, request: Request, found: Rendered) -> Iterator[torch.Tensor]:
        for position, sample in enumerate(request.ids.tolist()):
            draw = 0 if request.draws is None else int(request.draws[position])
            key = SampleKey(self._seed, request.epoch, sample, draw)
            if sample < 0:
                yield self._black(key)
                continue
            try:
                image = self._render(key)
            except Exception as error:
                image = self._instead(request, position, key, error, found)
            yield image

    def _instead(
        self, request: Request, position: int, key: SampleKey, error: Exception, found: Rendered
    ) -> torch.Tensor:
        """Return what comes instead of a bad sample."""
        fault = Fault(position, key.sample, type(error), str(error))
        if self._on_error == "raise" or not isinstance(error, SAMPLE_ERRORS):
            found.faults.append(fault._replace(fatal=True))
            raise Stopped from error
        if request.substitutes is None:
            found.faults.append(fault)
            found.labels[position] = _C.IGNORE_LABEL
            return self._black(key)
        message = ""
        for substitute in request.substitutes[position].tolist():
            try:
                image = self._render(SampleKey(key.seed, key.epoch, substitute, key.draw))
            except SAMPLE_ERRORS as other:
                message = str(other)
                continue
            found.labels[position] = self._dataset.labels[substitute]
            found.faults.append(fault._replace(substitute=substitute))
            return image
        tries = request.substitutes.shape[1]
        none = f"none of {tries} substitutes could be decoded; the last: {message}"
        found.faults.append(fault._replace(fatal=True, message=none))
        raise Stopped

    def _render(self, key: SampleKey) -> torch.Tensor:
        part, own = self._dataset.locate(key.sample)
        picture: Any = decode_record(part, own, self._max_pixels)
        picture = _bounded(picture, self._side)
        stored = self._plan.made_of(picture, key.seed, key.epoch, key.sample, key.draw)
        return torch.from_numpy(stored).view(getattr(torch, self._plan.dtype)).permute(2, 0, 1)

    def _black(self, key: SampleKey) -> torch.Tensor:
        """Return zeros of the size that the sample would have by the index (padding: the first sample's)."""
        sample = max(key.sample, 0)
        part, own = self._dataset.locate(sample)
        record = part.record(own)
        sizes = bounded_sizes(record["width"], record["height"], self._side)
        width, height = (int(size) or _UNKNOWN_SIDE for size in sizes)
        geometry = self._plan.geometry_spec()
        try:
            view = _C.draw_view(geometry, width, height, key.seed, key.epoch, sample, key.draw)
        except ValueError:  # smaller than RandomCrop's size: take that
            assert self._plan.output_size is not None
            view = _C.View(((0, 0, 1, 1), (1, 1), (0, 0, *self._plan.output_size[::-1]), False))
        width, height = view.made
        return torch.zeros(height, width, 3, dtype=getattr(torch, self._plan.dtype), device="cpu").permute(
            2, 0, 1
        )


def _bounded(picture: Any, side: int | str | None) -> Any:
    height, width = picture.shape[:2]
    new_width, new_height = (int(size) for size in bounded_sizes(width, height, side))
    if (new_width, new_height) == (width, height):
        return picture
    target, whole = (new_width, new_height), (0, 0, new_width, new_height)
    scaled = _C.resize(picture, _C.View(((0, 0, width, height), target, whole, False)))
    return scaled.reshape(new_height, new_width, 3)
