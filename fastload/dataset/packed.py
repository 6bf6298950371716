"""Packed datasets as torch Datasets with ImageFolder's samples: a PIL picture and its label."""

from __future__ import annotations

import mmap
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar, overload

import numpy as np
import torch.utils.data

from fastload.dataset.decoding import decode_sample
from fastload.dataset.mixture import MixedFiles, Packed
from fastload.errors import SlowPathWarning
from fastload.extras import need
from fastload.shard.dataset import PackedFiles, checked_index
from fastload.shard.tickets import deliver
from fastload.transforms.callables import calls_v2
from fastload.transforms.compiler import compile_plan
from fastload.transforms.compose import is_ours

if TYPE_CHECKING:
    from PIL import Image
    from typing_extensions import TypeVar as DefaultingTypeVar

    from fastload.dataset.detection import DetectionDataset
    from fastload.sampler.schedule import Schedule

    # The type of a sample: PackedDataset[dict[str, Any]] for a dataset of other fields.
    SampleT = DefaultingTypeVar("SampleT", default=tuple[Image.Image, int])
else:
    SampleT = TypeVar("SampleT")

# Read from the index; ImageFolder's users set some of them, which would have no effect here.
_FIXED = ("class_to_idx", "imgs", "labels", "samples", "targets")

Transform: TypeAlias = "Callable[[Any], Any] | None"


class Listing(Sequence[tuple[str, int]]):
    """(key, label) of every sample, looked up on demand: ImageFolder's ``samples``, without a list."""

    def __init__(self, dataset: Packed) -> None:
        self._dataset = dataset

    def __len__(self) -> int:
        return self._dataset.num_ids

    @overload
    def __getitem__(self, index: int) -> tuple[str, int]: ...
    @overload
    def __getitem__(self, index: slice) -> list[tuple[str, int]]: ...
    def __getitem__(self, index: int | slice) -> Any:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        sample = checked_index(index, len(self))
        return self._dataset.key(sample), self._dataset.label(sample)

    def __repr__(self) -> str:
        return f"<(key, label) of {self._dataset!r}>"


_told = mmap.mmap(-1, 1)  # shared with forked workers: one warning is enough for all epochs


def _tell_of_torchs_loader(dataset: Any) -> None:
    """Warn once that torch's DataLoader, and not the engine, reads a packed dataset.

    Frameworks silently make such loaders from a dataset. A class with its own ``__getitem__`` must be read
    like this, and fastload.DataLoader says so.
    """
    worker = torch.utils.data.get_worker_info()
    if (
        _told[0]
        or (worker is not None and worker.id)
        or type(dataset).__getitem__ is not _Pictures.__getitem__
    ):
        return
    _told[0] = 1
    warnings.warn(
        f"Not in the core but in Python, for each sample: torch's DataLoader reads {dataset!r}. Samples are "
        "right; fastload.DataLoader reads the same dataset with the engine, several times as fast. Where a "
        "framework made the loader, docs/guide/drop-in.md says how it takes ours.",
        SlowPathWarning,
        stacklevel=3,
    )


class _Pictures(torch.utils.data.Dataset[SampleT]):
    """The part of a torch Dataset that packed datasets have in common."""

    transform: Transform = None
    target_transform: Transform = None

    def __setattr__(self, name: str, value: Any) -> None:
        if name in _FIXED:
            raise AttributeError(
                f"{name} of a packed dataset cannot be set: it is in the index. Pass target_transform= to "
                "change labels, and a torch Subset (or dataset[first:last]) to choose samples."
            )
        super().__setattr__(name, value)

    @overload
    def __getitem__(self, index: int) -> SampleT: ...
    @overload
    def __getitem__(self, index: slice) -> torch.utils.data.Subset[SampleT]: ...
    def __getitem__(self: Any, index: Any) -> Any:
        """Return a sample like torchvision's ImageFolder, or the samples of a slice as a torch ``Subset``.

        Args:
            index: an integer (also NumPy's, or a tensor of one element), negative from the end; or a slice.

        Returns:
            (picture, label): a PIL picture in RGB, or the result of ``transform`` on it, and the label (-1:
            none), or the result of ``target_transform`` on it. For a set with other fields the dict of
            :meth:`sample`, or the result of ``transform`` on that; ``PackedDataset[dict[str, Any]](folder)``
            tells a type checker.

        Raises:
            TypeError, IndexError: no such index. ValueError: the sample was dropped.
            SampleError: a damaged record or one that is no picture, with its shard and key.
            ShardError: a shard is missing or cannot be read.
            LibraryMissing: Pillow is not installed.
        """
        if isinstance(index, slice):
            return torch.utils.data.Subset(self, range(*index.indices(len(self))))
        sample = checked_index(index, self.num_ids)
        if not self.is_plain:
            return _of_fields(self, sample)
        image = _transformed(decode_sample(self, sample), self.transform)
        label: Any = self.label(sample)
        if self.target_transform is not None:
            label = self.target_transform(label)
        return image, label

    def sample(self: Any, index: int) -> dict[str, Any]:
        """Return a sample of any fields, by field name, without transforms.

        Numbers, text and JSON are Python values; arrays, boxes and points are tensors, as are images
        (channels, height, width) and masks (height, width).

        Raises:
            TypeError, IndexError: no such index. ValueError: the sample was dropped.
            SampleError: a damaged record or one that is no picture, with its shard and key.
            ShardError: a shard is missing or cannot be read.
        """
        from fastload.dataset.samples import read_sample

        return read_sample(self, checked_index(index, self.num_ids))

    def as_detection(self: Any, **names: str) -> DetectionDataset:
        """Return the set as pictures and targets, as in torchvision's detection references.

        Args:
            names: fields not found automatically, named as in :class:`fastload.Detection`.

        Raises:
            ValueError: it has no image, boxes or labels, or it is ambiguous which they are.
            TypeError: there is no such name.
        """
        from fastload.collate.detection import Names
        from fastload.dataset.detection import DetectionDataset

        return DetectionDataset(self, Names(**names))

    def __getitems__(self: Any, indices: Sequence[int]) -> list[Any]:
        """Return the samples of a batch, for the fetcher of torch's DataLoader.

        If the indices are a batch of a fastload.DataLoader, return that batch, for its ``collate_fn``.
        """
        delivered = deliver(indices)
        if delivered is not None:
            return delivered
        _tell_of_torchs_loader(self)
        return [self[index] for index in indices]

    @cached_property
    def targets(self: Any) -> list[int]:
        """Label of every sample, a list of ints as in ImageFolder, of 8 bytes per sample.

        ``labels`` is the same as an array. Changing the list changes no sample.
        """
        labels = self.labels
        found, places = np.unique(labels, return_inverse=True)
        targets: list[int] = np.array(found.tolist(), object)[places].tolist()
        return targets

    @property
    def samples(self: Any) -> Listing:
        """(key, label) of every sample, a lazy sequence; the key is the path in the source folder."""
        return Listing(self)

    @property
    def imgs(self) -> Listing:
        """Alias of ``samples``."""
        return Listing(self)  # type: ignore[arg-type]


class PackedDataset(PackedFiles, _Pictures[SampleT]):
    """A folder made by ``fastload pack``, as a torch Dataset of (PIL picture in RGB, label).

    :class:`fastload.DataLoader` reads it, also as a ``Subset`` or in a ``ConcatDataset``, by the engine,
    without worker processes; it compiles ``transform`` like the loader's own. In torch's DataLoader it also
    works, in that loader's workers.

    Opening maps the index and checks its header; shards are opened when their first record is read. Pickles
    as its folder or URL, which is opened again.

    Args:
        folder: a folder made by ``fastload pack`` or ``fastload index``, or the ``dataset.json`` in it; or
            its URL in a store (docs/guide/remote.md).
        transform: as in ImageFolder, a callable of a PIL picture; or one of ``fastload.transforms``. May
            also be set later, before a loader is made.
        target_transform: a callable of the label, an int.
        entries: also open the JPEGs' entry points, if there are any.
        storage_options: for a URL: credentials, endpoint and so on.
        generation: of a set that has grown (``fastload pack --append``), from 1; None: the newest.

    ``len()`` counts the samples that were not dropped (``fastload drop``); their ids, which indexing takes,
    are ``sample_ids``.

    Raises:
        FormatError: not a packed dataset, or damaged.
        ShardError: a file cannot be opened.
        ValueError: there is no such generation.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        transform: Transform = None,
        target_transform: Transform = None,
        *,
        entries: bool = True,
        storage_options: Mapping[str, Any] | None = None,
        generation: int | None = None,
    ) -> None:
        super().__init__(folder, entries=entries, storage_options=storage_options, generation=generation)
        self.transform = transform
        self.target_transform = target_transform

    @property
    def root(self) -> str:
        """The packed folder's path, or URL."""
        return self.where

    def __repr__(self) -> str:
        return f"{super().__repr__()[:-1]}{_transforms_of(self)})"


class MixedDataset(MixedFiles, _Pictures[SampleT]):
    """See :func:`fastload.mix`. Samples are those of :class:`PackedDataset`, labels by the joined classes.

    Sample ids continue from one dataset to the next; ``len()`` is the sum of the sizes. Classes are joined
    by name, in order of their first appearance.
    """

    def __init__(
        self,
        datasets: Sequence[PackedFiles | str | os.PathLike[str]],
        weights: Sequence[float] | Schedule | None = None,
        num_samples: int | None = None,
        transform: Transform = None,
        target_transform: Transform = None,
        storage_options: Mapping[str, Any] | None = None,
        *,
        temperature: float | None = None,
        max_epochs: float | Sequence[float | None] | None = None,
        exhausted: Literal["share", "stop"] = "share",
    ) -> None:
        super().__init__(datasets, weights, num_samples, storage_options, temperature, max_epochs, exhausted)
        for part in self.parts:
            for name in ("transform", "target_transform"):
                if getattr(part, name, None) is not None:
                    raise ValueError(
                        f"{part!r} has its own {name}, which a mix does not apply. Pass {name}= to mix."
                    )
        self.transform = transform
        self.target_transform = target_transform

    def _part(self, folder: str | os.PathLike[str], storage_options: Mapping[str, Any] | None) -> PackedFiles:
        return PackedDataset(folder, storage_options=storage_options)

    def __repr__(self) -> str:
        return f"{super().__repr__()[:-1]}{_transforms_of(self)})"


def mix(
    datasets: Sequence[PackedFiles | str | os.PathLike[str]],
    weights: Sequence[float] | Schedule | None = None,
    num_samples: int | None = None,
    transform: Transform = None,
    target_transform: Transform = None,
    storage_options: Mapping[str, Any] | None = None,
    *,
    temperature: float | None = None,
    max_epochs: float | Sequence[float | None] | None = None,
    exhausted: Literal["share", "stop"] = "share",
) -> MixedDataset:
    """Join several packed datasets into one, for :class:`fastload.DataLoader`.

    Args:
        datasets: folders made by ``fastload pack``, their URLs in stores, or open ones.
        weights: their shares of an epoch, any positive numbers; None: in proportion to their sizes. Or
            :class:`fastload.Schedule`: weights that change with the samples that the run has had.
        num_samples: positions of an epoch over all ranks; None: the sum of the sizes.
        transform, target_transform: as in :class:`fastload.PackedDataset`.
        storage_options: for all URLs among them.
        temperature: in place of weights: shares in proportion to ``size ** (1 / temperature)``. 1: by size;
            higher ones are flatter.
        max_epochs: the most passes through each dataset in the whole run, which may be fractions: one number,
            or one for each dataset (None: no bound).
        exhausted: what happens when a dataset has given that. "share": its share goes to the others, in
            proportion; when none is left, the run ends. "stop": the run ends. A run that ends has a shorter
            last epoch, and then empty ones; a warning says which dataset is exhausted, and when.

    Returns:
        The mix. With ``shuffle=True`` each dataset has its exact share of an epoch (rounded to whole
        samples), evenly spread; each is walked in its own shuffled order, which continues in the next epoch
        and is shuffled again when it has been passed. Without shuffle an epoch is the datasets one after
        the other, each from its beginning.

    Raises:
        TypeError: a dataset is none of these.
        ValueError: no datasets, weights that are not positive, an epoch too short to include each dataset, a
            temperature or max_epochs out of range, classes that cannot be joined, or a dataset with its own
            transform.
        FormatError, ShardError: a dataset cannot be opened.
    """
    return MixedDataset(
        datasets,
        weights,
        num_samples,
        transform,
        target_transform,
        storage_options,
        temperature=temperature,
        max_epochs=max_epochs,
        exhausted=exhausted,
    )


def _transforms_of(dataset: _Pictures[Any]) -> str:
    values = {name: getattr(dataset, name) for name in ("transform", "target_transform")}
    return "".join(f", {name}={value!r}" for name, value in values.items() if value is not None)


def _of_fields(dataset: Any, sample: int) -> Any:
    """Return a sample that is a dict, after the dataset's transforms."""
    transform, target = dataset.transform, dataset.target_transform
    if is_ours(transform):
        raise ValueError(
            f"{transform!r} is done to all fields of a sample at once by fastload.DataLoader. Found: an "
            "index into the dataset itself. Use the loader, a transform that takes a dict, or "
            "dataset.sample(i)."
        )
    _check_moved(dataset, transform)
    from fastload.dataset.samples import read_sample

    result = read_sample(dataset, sample)
    label = dataset.schema.label_field
    if target is not None and label is not None:
        result[label.name] = target(result[label.name])
    return result if transform is None else transform(result)


def _check_moved(dataset: Any, transform: Any) -> None:
    """Refuse a transform that would move a picture but not its boxes or points.

    Raises:
        ValueError: the set has boxes or the like, and the transform is torchvision v2's.
    """
    known, of_v2 = dataset.__dict__.get("_known_transform", (None, False))
    if known is not transform:  # the check may walk many objects
        of_v2 = calls_v2(transform)
        dataset.__dict__["_known_transform"] = (transform, of_v2)
    if not of_v2:
        return
    from fastload.sample.fields import PLACES  # here, because a plain job never needs it

    placed = [field.name for field in dataset.schema.fields if isinstance(field.kind, PLACES)]
    if placed:
        raise ValueError(
            f"{transform!r} would move the picture and leave {', '.join(map(repr, placed))}: an index into "
            "the dataset itself gives plain tensors, and torchvision's v2 moves tv_tensors. "
            "fastload.DataLoader hands it those: use the loader, or dataset.sample(i) and wrap its fields."
        )


def _transformed(pixels: Any, transform: Any) -> Any:
    """Transform a (height, width, 3) picture by a callable or one of ``fastload.transforms``.

    The latter draw as in the engine, from a seed of torch's generator.
    """
    if transform is None:
        return _as_pil(pixels)
    if not is_ours(transform):
        return transform(_as_pil(pixels))
    plan = compile_plan(transform)
    if plan.views or plan.scheduled:
        raise ValueError(
            f"{'Views' if plan.views else 'Epochs'} are made by fastload.DataLoader. Found: an index into a "
            f"dataset with the transform {transform!r}. Use the loader, or another transform."
        )
    seed = int(torch.empty((), dtype=torch.int64, device="cpu").random_().item())
    stored = plan.made_of(pixels, seed)
    image: Any = torch.from_numpy(stored).view(getattr(torch, plan.dtype)).permute(2, 0, 1)
    if plan.tail and plan.picture:
        image = _as_pil(stored.reshape(*stored.shape[:2], -1))
    for function in plan.tail:
        image = function(image)
    return image


def _as_pil(pixels: Any) -> Image.Image:
    need("PIL.Image", "a sample (which is a PIL picture; dataset.read(i) gives its bytes)")
    from PIL import Image

    return Image.fromarray(pixels)
