"""A DataLoader's dataset in the form it reads: folders opened, subsets and concatenations kept native."""

from __future__ import annotations

import enum
import os
import warnings
import weakref
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from torch.utils.data import ConcatDataset, Dataset, IterableDataset, Subset
from torch.utils.data.dataloader import DataLoader

from fastload.dataset.mixture import MixedFiles, Packed, Selection
from fastload.dataset.packed import MixedDataset, PackedDataset
from fastload.errors import SlowPathWarning, StateError
from fastload.sampler import Sampler
from fastload.sampler.sampler import MappedSampler
from fastload.shard.dataset import PackedFiles
from fastload.shard.tickets import deliver
from fastload.transforms.compiler import compile_plan

#: torch's own class, also in a program that puts ours in its place before the other modules are imported.
TorchDataLoader = DataLoader

# ---- The kinds of datasets, determined once per loader ----

_OF_DATASETS = ("__getitem__", "__getitems__", "__len__")
_OF_PACKED = (*_OF_DATASETS, "read", "record", "label", "labels", "locate")


class SourceKind(enum.Enum):
    """Who reads a dataset, and who decides its order."""

    PACKED = "packed"  # our own threads read it
    MAPPED = "mapped"  # a torch Dataset: torch's workers read it, in our order
    STREAM = "stream"  # a torch IterableDataset: it decides its own order


def kind_of(dataset: Any) -> SourceKind:
    """Return the kind of a dataset from :func:`fastload.dataset.views.open_dataset`."""
    dataset = getattr(dataset, "of_packed", dataset)  # that of pictures and targets
    if isinstance(dataset, Packed) and (isinstance(dataset, Selection) or not own_code(dataset)):
        return SourceKind.PACKED
    return SourceKind.STREAM if isinstance(dataset, IterableDataset) else SourceKind.MAPPED


def own_code(dataset: Any) -> str:
    """Return the first method of a subclass of a packed dataset, Subset or ConcatDataset that changes its
    samples; "": none."""
    base, names = _base(dataset)
    for name in names:
        if getattr(type(dataset), name, None) is not getattr(base, name, None):
            return name
    return ""


def _base(dataset: Any) -> tuple[type, tuple[str, ...]]:
    """Return the class that the engine knows, and those of its methods that must not be changed."""
    if isinstance(dataset, Packed):
        engine = PackedFiles if isinstance(dataset, PackedFiles) else MixedFiles
        ours = PackedDataset if engine is PackedFiles else MixedDataset
        return ours if isinstance(dataset, ours) else engine, _OF_PACKED
    return Subset if isinstance(dataset, Subset) else ConcatDataset, _OF_DATASETS


# ---- Opening a DataLoader's dataset ----
# torch's ``Subset`` (also nested, and from ``random_split`` and slices) and ``ConcatDataset`` of packed
# datasets become a :class:`~fastload.dataset.mixture.Selection`, which the engine reads. Anything else that
# holds a packed dataset has its own code, which only torch's workers can run: a warning says so once.

Ids = npt.NDArray[np.int64]

# What decides which samples a dataset has: a subclass with its own is not what the engine would read.
_DEEPEST = 8  # nested wrappers that are searched
_MOST = 1000  # datasets of a list that are searched


class _View(Selection):
    """The part of a view that does not depend on which of torch's datasets it is."""

    _original: Any  # torch's

    @property
    def transform(self) -> Any:
        """The packed datasets' common transform."""
        return getattr(self._members[0], "transform", None) if self._members else None

    @property
    def target_transform(self) -> Any:
        """The packed datasets' common target_transform."""
        return getattr(self._members[0], "target_transform", None) if self._members else None

    def now_and_then(self) -> tuple[Ids, Ids]:
        """Return the sample ids that torch's dataset has now, and those of the view."""
        now = _places(self._original, [])
        return now, np.arange(self.num_ids) if self.sample_ids is None else self.sample_ids

    def __repr__(self) -> str:
        of = " and ".join(map(repr, self._members))
        return f"{type(self).__name__.removesuffix('View')}({len(self)} samples of {of})"

    def __getitems__(self: Any, places: Sequence[int]) -> list[Any]:
        """Return the samples of a batch; see ``PackedDataset.__getitems__``."""
        return deliver(places) or [self[place] for place in places]


class SubsetView(_View, Subset[Any]):
    """A torch ``Subset`` of packed datasets, with its attributes, and what the engine reads."""

    def __init__(self, subset: Subset[Any], members: Sequence[Packed], ids: Ids | None) -> None:
        self.__dict__.update(subset.__dict__)
        self._original = subset
        self.select(members, ids)

    def __reduce__(self) -> Any:
        return open_dataset, (Subset(self.dataset, self.indices),)


class ConcatView(_View, ConcatDataset[Any]):
    """A torch ``ConcatDataset`` of packed datasets, with its attributes, and what the engine reads."""

    def __init__(self, concat: ConcatDataset[Any], members: Sequence[Packed], ids: Ids | None) -> None:
        self.__dict__.update(concat.__dict__)
        self._original = concat
        self.select(members, ids)

    def __reduce__(self) -> Any:
        return open_dataset, (ConcatDataset(self.datasets),)


def open_dataset(dataset: Any, storage_options: Mapping[str, Any] | None = None) -> Any:
    """Return a loader's dataset: a folder opened, a Subset or ConcatDataset of packed ones as a view of it.

    Anything else is returned as it is, with a warning if it holds packed datasets.

    Raises:
        TypeError: a list of folders or of packed datasets; indices of a Subset that are not integers.
        IndexError: indices of a Subset that are out of range.
        ValueError: storage_options without a URL.
        FormatError, ShardError: a folder cannot be opened.
    """
    dataset = getattr(dataset, "of_packed", dataset)  # that of pictures and targets
    if isinstance(dataset, (str, os.PathLike)):
        opened = PackedDataset(dataset, storage_options=storage_options)
        _opened[id(opened)] = opened
        return opened
    if storage_options:
        raise ValueError(
            "storage_options are for a URL as the dataset; pass an open one its own: PackedDataset(URL, "
            f"storage_options=...). Found: {_name(dataset)}."
        )
    if isinstance(dataset, (list, tuple)):
        _check_list(dataset)
    if isinstance(dataset, _View):
        return dataset
    reason = why_not_native(dataset)
    if reason:
        _warn_once(
            f"DataLoader reads {_name(dataset)} with torch's workers, not with the engine: {reason}. To keep "
            "the engine, give the loader the packed dataset itself (or a Subset or ConcatDataset of packed "
            "ones), and what is done to its samples as transform= or collate_fn=.",
            SlowPathWarning,
        )
        return dataset
    if not isinstance(dataset, (Subset, ConcatDataset)) or not _holds_packed(dataset):
        return dataset
    members: list[Any] = []
    ids: Ids | None = _places(dataset, members)
    assert ids is not None
    _check_there(ids, members)
    if len(ids) == sum(member.num_ids for member in members) and np.array_equal(ids, np.arange(len(ids))):
        ids = None
    _warn_of_labels(dataset)
    _warn_of_weights(members)
    if isinstance(dataset, Subset):
        return SubsetView(dataset, members, ids)
    return ConcatView(dataset, members, ids)


# Datasets that a loader opened: frameworks make new loaders from those.
_opened: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()


def is_named(dataset: Any) -> bool:
    """Return whether a loader got what torch's does not know: a packed set's path or URL, or a mix.

    A loader that is made from another one's attributes has the dataset that this one opened.
    """
    dataset = getattr(dataset, "of_packed", dataset)
    if isinstance(dataset, (str, os.PathLike, MixedFiles)):
        return True
    return _opened.get(id(dataset)) is dataset


def given_transform(dataset: Any, transform: Any) -> Any:
    """Return the transform of a loader over ``dataset``: its own argument, or the dataset's.

    Raises:
        ValueError: both are set.
    """
    if kind_of(dataset) is not SourceKind.PACKED:
        return transform
    own = getattr(dataset, "transform", None)
    if own is not None and transform is not None:
        raise ValueError(
            f"The dataset has a transform and the loader was given one, too. Pass only one of them. Found: "
            f"{own!r} and {transform!r}."
        )
    return transform if own is None else own


def read_by(dataset: Any, sampler: Sampler) -> Sampler:
    """Return ``sampler``, which yields places of ``dataset``, for reading by sample id."""
    if not isinstance(dataset, Selection) or dataset.sample_ids is None:
        return sampler
    return MappedSampler(sampler, dataset.sample_ids, dataset.repeats)  # type: ignore[return-value]


def transforms_of(dataset: Any) -> list[Any]:
    """Return the transforms and target_transforms of the packed datasets in one that the engine reads."""
    members = _members(dataset) if kind_of(dataset) is SourceKind.PACKED else ()
    return [getattr(one, name, None) for one in members for name in ("transform", "target_transform")]


def check_unchanged(dataset: Any, transforms: Sequence[Any]) -> None:
    """Refuse to continue with a dataset that has changed since the loader was made.

    torch's loader would follow; the engine has compiled the transform, and the state names the samples.

    Raises:
        StateError: a transform is none of ``transforms``, from :func:`transforms_of`; or the indices of a
            Subset were changed.
    """
    if any(now is not then for now, then in zip(transforms_of(dataset), transforms, strict=True)):
        raise StateError(
            "The dataset's transform or target_transform was changed after the DataLoader was made. Set it "
            "before, or make a new DataLoader."
        )
    if isinstance(dataset, _View) and not np.array_equal(*dataset.now_and_then()):
        raise StateError(
            f"The samples of {dataset!r} were changed after the DataLoader was made. Make a new DataLoader. "
            "(To choose other samples every epoch, use sampler=.)"
        )


def why_not_native(dataset: Any) -> str:
    """Return why torch's workers must read a dataset with packed ones in it; "": they need not."""
    if isinstance(dataset, _View) or not _holds_packed(dataset):
        return ""
    reason = _obstacle(dataset)
    if reason:
        return reason
    members = list(_members(dataset))
    for name in ("transform", "target_transform"):
        values = [getattr(member, name, None) for member in members]
        if not all(_same(one, values[0]) for one in values):
            return f"its packed datasets have different {name}s"
    return ""


def _same(transform: Any, other: Any) -> bool:
    """Return whether two transforms are one, or the core does the same for both."""
    if transform is other or transform is None or other is None:
        return transform is other
    try:
        return compile_plan(transform) == compile_plan(other)
    except (TypeError, ValueError):  # reported when it is used
        return False


def _obstacle(dataset: Any) -> str:
    """Return what in ``dataset`` the engine cannot do."""
    if isinstance(dataset, _View):
        return ""
    if isinstance(dataset, Packed):
        own = own_code(dataset)
        return f"{_name(dataset)} has its own {own}" if own else ""
    for base in (Subset, ConcatDataset):
        if isinstance(dataset, base):
            own = own_code(dataset)
            if own:
                return f"{_name(dataset)} has its own {own}"
            inner = [dataset.dataset] if isinstance(dataset, Subset) else dataset.datasets
            return next(filter(None, map(_obstacle, inner)), "")
    if _holds_packed(dataset):
        return f"{_name(dataset)} has its own code"
    return f"{_name(dataset)} is not packed"


def _members(dataset: Any) -> Iterator[Any]:
    """Yield the packed datasets in a nest of Subset and ConcatDataset."""
    if isinstance(dataset, Subset):
        yield from _members(dataset.dataset)
    elif isinstance(dataset, ConcatDataset):
        for inner in dataset.datasets:
            yield from _members(inner)
    else:
        yield dataset


def _holds_packed(dataset: Any, depth: int = 0) -> bool:
    """Return whether ``dataset`` is packed, or an attribute of it is, or is a list of such."""
    if isinstance(dataset, Packed):
        return True
    if depth > _DEEPEST:
        return False
    for value in list(getattr(dataset, "__dict__", {}).values()):
        candidates = value[:_MOST] if isinstance(value, (list, tuple)) else [value]
        inner = (one for one in candidates if isinstance(one, (Dataset, PackedFiles, MixedFiles)))
        if any(_holds_packed(one, depth + 1) for one in inner):
            return True
    return False


def _places(dataset: Any, members: list[Any]) -> Ids:
    """Return the sample id at each place; the packed datasets are added to ``members``, each once."""
    if isinstance(dataset, Subset):
        within = _places(dataset.dataset, members)
        return within[_indices(dataset, len(within))]
    if isinstance(dataset, ConcatDataset):
        return np.concatenate([_places(inner, members) for inner in dataset.datasets])
    if not any(member is dataset for member in members):
        members.append(dataset)
    number = next(i for i, member in enumerate(members) if member is dataset)
    first = sum(member.num_ids for member in members[:number])
    return np.arange(first, first + dataset.num_ids, dtype=np.int64)


def _check_there(ids: Ids, members: Sequence[Any]) -> None:
    """Raise ValueError if one of the samples was dropped."""
    first = 0
    for member in members:
        if len(getattr(member, "dropped", ())):
            own = ids[(ids >= first) & (ids < first + member.num_ids)] - first
            member.check_there(own)
        first += member.num_ids


def _indices(subset: Subset[Any], count: int) -> Ids:
    """Return a Subset's indices, from 0 to ``count`` - 1; negative ones count from the end, as in lists."""
    source: Any = subset.indices
    is_range = isinstance(source, range)
    listed = np.arange(source.start, source.stop, source.step) if is_range else np.asarray(source)
    if listed.size and (listed.dtype.kind not in "iu" or listed.ndim != 1):
        raise TypeError(
            "The indices of a Subset must be a list of integers. Found: "
            f"{listed.dtype} of the shape {listed.shape}."
        )
    indices: Ids = listed.astype(np.int64, copy=False).reshape(-1)
    wrong = indices[(indices < -count) | (indices >= count)]
    if len(wrong):
        raise IndexError(f"A Subset has index {wrong[0]}, which is out of range for {count} samples.")
    return np.where(indices < 0, indices + count, indices) if (indices < 0).any() else indices


def _check_list(dataset: Sequence[Any]) -> None:
    for kind, words in (((str, os.PathLike), "folders"), (Packed, "packed datasets")):
        if dataset and all(isinstance(one, kind) for one in dataset):
            raise TypeError(
                f"DataLoader reads one dataset. Found: a {_name(dataset)} of {len(dataset)} {words}. Pass "
                "fastload.mix([...]), which joins them by class names, or a torch ConcatDataset of "
                "fastload.PackedDataset, which leaves labels as they are."
            )


def _warn_of_labels(dataset: Any) -> None:
    """Warn if a label stands for different classes in the datasets of a ConcatDataset."""
    named: dict[int, tuple[str, Any]] = {}
    for member in _members(dataset):
        for label, name in enumerate(member.classes):
            other, where = named.setdefault(label, (name, member))
            if other != name:
                _warn_once(
                    f"A ConcatDataset joins packed datasets whose labels mean different classes: {label} is "
                    f"{other!r} in {where!r} and {name!r} in {member!r}. It leaves labels as they are; "
                    "fastload.mix([...]) joins them by class names."
                )
                return


def _warn_of_weights(members: Sequence[Any]) -> None:
    for member in members:
        if isinstance(member, MixedFiles) and not member.is_whole:
            _warn_once(
                f"A Subset or ConcatDataset has each sample of {member!r} once: the weights and num_samples "
                "of the mix do not count. Use a WeightedSampler over the subset."
            )


_warned: set[str] = set()


def _warn_once(message: str, category: type[Warning] = UserWarning) -> None:
    if message not in _warned:
        _warned.add(message)
        warnings.warn(message, category, stacklevel=6)


def _name(dataset: Any) -> str:
    return type(dataset).__name__
