"""Several packed datasets read as one: mixtures by weight, subsets and concatenations."""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Mapping, Sequence
from functools import cached_property
from numbers import Integral
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from fastload._native import _C
from fastload.errors import StateError
from fastload.sampler.mixed import MixedOrder, shares
from fastload.shard.dataset import PackedFiles, checked_id

if TYPE_CHECKING:
    from fastload.sample.schema import Schema
    from fastload.sampler.schedule import Course, MixtureStart, Schedule
    from fastload.sampler.scheduled_order import ScheduledOrder


# ---- Samples picked from packed datasets, for Subset and ConcatDataset ----


class Selection:
    """What the engine reads of a Subset or a ConcatDataset: datasets, and which of their samples.

    It has *places*, ``len()`` of them, and *sample ids*, which continue from one dataset to the next over
    all of their samples. Random numbers are keyed by sample ids, so that a sample is augmented in a subset
    as in the whole set.

    Args:
        members: the datasets, each once (``fastload.dataset.mixture.Packed``).
        ids: (n,) int64, the sample id at each place; None: all samples in order.
    """

    def __init__(self, members: Sequence[Any], ids: npt.NDArray[np.int64] | None) -> None:
        self.select(members, ids)

    def select(self, members: Sequence[Any], ids: npt.NDArray[np.int64] | None) -> None:
        """Initialise as the class does; for classes whose constructor is another's."""
        self._members = tuple(members)
        self._ends = np.cumsum([member.num_ids for member in self._members], dtype=np.int64)
        self._ids = ids

    def __len__(self) -> int:
        return self.num_ids if self._ids is None else len(self._ids)

    @property
    def num_ids(self) -> int:
        """The number of sample ids: the datasets' samples in total."""
        return int(self._ends[-1]) if len(self._ends) else 0

    @property
    def sample_ids(self) -> npt.NDArray[np.int64] | None:
        """The sample id at each place; None: the place itself."""
        return self._ids

    @cached_property
    def repeats(self) -> bool:
        """Whether a sample has several places."""
        if self._ids is None:
            return False
        is_there = np.zeros(self.num_ids, bool)
        is_there[self._ids] = True
        return int(is_there.sum()) < len(self._ids)

    @cached_property
    def id(self) -> str:
        """Dataset id, 32 hex digits: a hash of the datasets' ids and of the sample ids."""
        chosen = (
            None
            if self._ids is None
            else hashlib.blake2b(self._ids.astype("<i8", copy=False).data).hexdigest()
        )
        facts = json.dumps([[member.id for member in self._members], chosen])
        return hashlib.blake2b(facts.encode(), digest_size=16).hexdigest()

    @property
    def is_plain(self) -> bool:
        """Whether samples are an image and a label."""
        return all(part.is_plain for part in self.parts)

    @cached_property
    def schema(self) -> Schema:
        """The fields of all samples.

        Raises:
            ValueError: the datasets have different fields.
        """
        from fastload.dataset.joined import joined_schema

        return joined_schema(self.parts)

    @property
    def parts(self) -> tuple[PackedFiles, ...]:
        """The packed folders it consists of."""
        return tuple(part for member in self._members for part in member.parts)

    @property
    def sources(self) -> list[tuple[_C.Reader, _C.Entries | None, list[int]]]:
        """What ``_C.Engine`` reads; see :attr:`PackedFiles.sources`."""
        return [source for member in self._members for source in member.sources]

    @cached_property
    def labels(self) -> npt.NDArray[np.int64]:
        """Label by sample id (not by place), int64; -1: none."""
        return np.concatenate([member.labels for member in self._members])

    def member(self, sample: int) -> tuple[Any, int]:
        """Return the dataset that has a sample id, and the sample's id in it."""
        number = min(int(np.searchsorted(self._ends, sample, side="right")), len(self._members) - 1)
        member = self._members[number]
        return member, sample - int(self._ends[number]) + member.num_ids

    def locate(self, sample: int) -> tuple[PackedFiles, int]:
        """Return the packed folder that holds a sample id, and the sample's id in it."""
        member, own = self.member(sample)
        found: tuple[PackedFiles, int] = member.locate(own)
        return found

    def label(self, sample: int) -> int:
        """Return the label of a sample id; -1: none."""
        member, own = self.member(sample)
        return int(member.label(own))

    def key(self, sample: int) -> str:
        """Return the path of a sample id's record in its source folder."""
        part, own = self.locate(sample)
        return part.key(own)

    def read(self, sample: int) -> bytes:
        """Return the bytes of a sample id's picture file; see :meth:`fastload.PackedDataset.read`."""
        part, own = self.locate(sample)
        return part.read(own)

    def with_caches(
        self,
        caches: Sequence[_C.CacheFile | None],
        field_caches: Sequence[Mapping[str, _C.CacheFile]] | None = None,
        tiers: Sequence[Mapping[str | None, _C.DiskTier]] | None = None,
    ) -> Selection:
        """See :meth:`PackedFiles.with_caches`; one file, or None, and mappings for each of ``parts``."""
        none: list[dict[Any, Any]] = [{}] * len(caches)
        fields, disks = list(field_caches or none), list(tiers or none)
        at, members = 0, []
        for member in self._members:
            end = at + len(member.parts)
            members.append(member.with_caches(caches[at:end], fields[at:end], disks[at:end]))
            at = end
        return Selection(members, self._ids)


# ---- Mixtures ----

_MOST_SAMPLES = 1 << 48  # of an epoch: shares of more are not exact in float64
_COMPUTED = ("class_to_idx", "labels", "targets")  # derived: not pickled


class MixedFiles:
    """See :func:`fastload.mix`; needs no torch.

    Sample ids continue from one dataset to the next; ``len()`` is the sum of the sizes. Classes
    are joined by name, in order of their first appearance, and labels follow them.
    """

    def __init__(
        self,
        datasets: Sequence[PackedFiles | str | os.PathLike[str]],
        weights: Sequence[float] | Schedule | None = None,
        num_samples: int | None = None,
        storage_options: Mapping[str, Any] | None = None,
        temperature: float | None = None,
        max_epochs: float | Sequence[float | None] | None = None,
        exhausted: Literal["share", "stop"] = "share",
    ) -> None:
        from fastload.sampler.schedule import Schedule

        for given in datasets:
            if not isinstance(given, (PackedFiles, str, os.PathLike)):
                raise TypeError(
                    "mix takes folders made by 'fastload pack' and fastload.PackedDataset. Found: "
                    f"{type(given).__name__}. For subsets use a torch ConcatDataset and a WeightedSampler."
                )
        if storage_options and not any("://" in str(given) for given in datasets):
            raise ValueError("storage_options are for URLs of stores. Found: none among the datasets.")
        self.parts = tuple(
            given
            if isinstance(given, PackedFiles)
            else self._part(given, storage_options if "://" in str(given) else None)
            for given in datasets
        )
        for part in self.parts:
            if len(part.dropped):
                raise ValueError(
                    f"{part.where} has {len(part.dropped)} dropped samples, which a mix would count. Found "
                    "that among the datasets: pack it anew, which leaves them out ('fastload pack')."
                )
        sizes = [len(part) for part in self.parts]
        if not sizes or 0 in sizes:
            raise ValueError(f"mix needs datasets with at least one sample each. Found sizes: {sizes}.")
        self._sizes = np.array(sizes, np.int64)
        self._ends = np.cumsum(self._sizes)
        if temperature is not None:
            weights = self._by_temperature(temperature, weights)
        #: The weights over the run, if they change; else None.
        self.schedule: Schedule | None = None
        if isinstance(weights, Schedule):
            self.schedule = self._checked_schedule(weights)
            weights = weights.at[0]
        #: The weights that a run begins with, (datasets,) float64.
        self.weights = self._checked(weights)
        self.num_samples = len(self) if num_samples is None else _checked_number(num_samples)
        #: The most samples of each dataset in a run; None: no bounds.
        self.limits = self._checked_limits(max_epochs)
        if exhausted not in ("share", "stop"):
            raise ValueError(f'exhausted must be "share" or "stop". Found: {exhausted!r}.')
        if exhausted == "stop" and self.limits is None:
            raise ValueError(
                'exhausted="stop" goes with max_epochs: without it no dataset is ever exhausted.'
            )
        self._stops = exhausted == "stop"
        #: Where the mix began in its run; None: at the beginning.
        self.start: MixtureStart | None = None
        if self.schedule is None and (self.counts == 0).any():
            part = self.parts[int(np.argmin(self.counts))]
            raise ValueError(
                f"{part.where} would have no sample in an epoch of {self.num_samples}. Raise its weight or "
                "num_samples, or leave it out."
            )
        self.classes, self._label_maps = _joined_classes(self.parts)
        if not self.is_plain:
            self.schema = self._schema()  # raises if datasets have different fields

    @property
    def is_plain(self) -> bool:
        """Whether samples are an image and a label."""
        return all(part.is_plain for part in self.parts)

    @cached_property
    def schema(self) -> Schema:
        """The fields of all samples; an image and a label if the manifests name none."""
        return self._schema()

    def _schema(self) -> Schema:
        from fastload.dataset.joined import joined_schema

        return joined_schema(self.parts, self.classes)

    def _part(self, folder: str | os.PathLike[str], storage_options: Mapping[str, Any] | None) -> PackedFiles:
        return PackedFiles(folder, storage_options=storage_options)

    def _checked(self, weights: Sequence[float] | None) -> npt.NDArray[np.float64]:
        if weights is None:
            return self._sizes.astype(np.float64)
        try:
            checked = np.asarray(weights, np.float64)
        except (TypeError, ValueError):
            raise TypeError(
                f"weights must be a list of {len(self.parts)} numbers, in the order of the datasets, or a "
                f"Schedule. Found: {weights!r:.200}."
            ) from None
        are_positive = self.schedule is not None or (checked > 0).all()
        if checked.shape != self._sizes.shape or not np.isfinite(checked).all() or not are_positive:
            raise ValueError(
                f"weights must be {len(self.parts)} finite numbers > 0, one for each dataset. "
                f"Found: {checked.tolist()}."
            )
        return checked

    def _by_temperature(
        self, temperature: float, weights: Sequence[float] | Schedule | None
    ) -> Sequence[float]:
        if weights is not None:
            raise ValueError(
                "temperature and weights exclude each other: temperature makes weights of the datasets' "
                f"sizes. Found: temperature={temperature!r} and weights."
            )
        if not isinstance(temperature, (int, float)) or not 0 < temperature < math.inf:
            raise ValueError(f"temperature must be a finite number > 0. Found: {temperature!r}.")
        # Machines' powers differ in the last bit, which must not reach the counts.
        largest = float(self._sizes.max())
        return [float(f"{(size / largest) ** (1 / temperature):.12g}") for size in self._sizes.tolist()]

    def _checked_schedule(self, schedule: Schedule) -> Schedule:
        if schedule.width != len(self.parts):
            raise ValueError(
                f"A Schedule for {len(self.parts)} datasets has as many weights at each point. Found: "
                f"{schedule.width}."
            )
        for part, weights in zip(self.parts, zip(*schedule.at.values(), strict=True), strict=True):
            if not any(weights):
                raise ValueError(f"{part.where} has weight 0 at all points of the Schedule. Leave it out.")
        return schedule

    def _checked_limits(
        self, max_epochs: float | Sequence[float | None] | None
    ) -> npt.NDArray[np.int64] | None:
        """Return the most samples of each dataset; 2**62 without a bound."""
        from fractions import Fraction
        from numbers import Real

        several = isinstance(max_epochs, (Sequence, np.ndarray))
        given: list[Any] = list(max_epochs) if several else [max_epochs] * len(self.parts)  # type: ignore[arg-type]
        are_numbers = all(
            most is None or (isinstance(most, Real) and 0 < float(most) < math.inf) for most in given
        )
        if len(given) != len(self.parts) or not are_numbers:
            raise ValueError(
                f"max_epochs must be a finite number > 0, or {len(self.parts)} of these, one for each "
                f"dataset, None for no bound. Found: {max_epochs!r}."
            )
        if all(most is None for most in given):
            return None
        sizes = self._sizes.tolist()
        limits = [
            1 << 62 if most is None else min(int(Fraction(float(most)) * size), 1 << 62)
            for most, size in zip(given, sizes, strict=True)
        ]
        if 0 in limits:
            part = self.parts[limits.index(0)]
            raise ValueError(
                f"max_epochs={max_epochs!r} leaves no sample of {part.where}, which has {len(part)}. Raise "
                "it, or leave the dataset out."
            )
        return np.array(limits, np.int64)

    @property
    def is_constant(self) -> bool:
        """Whether all epochs have the same counts: no schedule, no bounds, begun with the run."""
        return self.schedule is None and self.limits is None and self.start is None

    @property
    def is_whole(self) -> bool:
        """Whether each epoch has each sample once."""
        return self.is_constant and np.array_equal(self.counts, self._sizes)

    @cached_property
    def counts(self) -> npt.NDArray[np.int64]:
        """Samples of each dataset in an epoch, (datasets,) int64; if that changes, about those of the run's
        first one."""
        if self.schedule is None and self.limits is None:
            return shares(self.weights, self.num_samples)
        course = self._course(self._run_start())
        end = course.reach(self.num_samples)
        before, _ = course.block(end - 1)
        return before.counts + shares(course.shares(end - 1).astype(np.float64), end - before.given)

    def _run_start(self) -> MixtureStart:
        from fastload.sampler.schedule import MixtureStart

        return MixtureStart.of_run(len(self.parts))

    def _whole_schedule(self) -> Schedule:
        from fastload.sampler.schedule import Schedule

        return self.schedule or Schedule({0: self.weights.tolist()})

    def _course(self, start: MixtureStart) -> Course:
        from fastload.sampler.schedule import Course

        return Course(self._whole_schedule(), start, self.limits, self._stops)

    def starting(self, start: MixtureStart | None) -> MixedFiles:
        """Return this mix as it goes on from ``start``, the place of a run; None: as it begins a run.

        Raises:
            StateError: ``start`` is of a mix with another number of datasets, or with other weights.
        """
        if start is not None and len(start.counts) != len(self.parts):
            raise StateError(
                f"The state was migrated to a mix of {len(start.counts)} datasets. Found: {len(self.parts)}."
            )
        if start is not None and start.mix != self.exact:
            raise StateError(
                "The state was migrated to a mix with other weights, another Schedule or other bounds, if "
                f"only a little. Found: {self._weights_in_words()}. Make the mix with the same arguments as "
                "for fastload.migrate, or migrate anew: fastload.migrate(state, this_mix, old=that_mix)."
            )
        other = object.__new__(type(self))
        other.__dict__ |= self.__dict__ | {"start": start}
        return other

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name not in _COMPUTED}

    def __len__(self) -> int:
        return int(self._ends[-1])

    @property
    def num_ids(self) -> int:
        """The number of sample ids."""
        return len(self)

    def __repr__(self) -> str:
        shares = ", ".join(
            f"{count} of {part!r}" for part, count in zip(self.parts, self.counts, strict=True)
        )
        first = "" if self.schedule is None and self.limits is None else "the first "
        return f"{type(self).__name__}({first or 'an '}epoch of {self.num_samples}: {shares})"

    @cached_property
    def id(self) -> str:
        """Dataset id, 32 hex digits: a hash of the datasets' ids and their shares of an epoch."""
        facts: list[Any] = [[part.id for part in self.parts], self.counts.tolist()]
        if self.schedule is not None or self.limits is not None:
            facts = [facts[0], *self._exact_facts()]
        return hashlib.blake2b(json.dumps(facts).encode(), digest_size=16).hexdigest()

    def _exact_facts(self) -> list[Any]:
        """Return all that the counts of a mix follow from that changes, or began in the middle of a run."""
        from fastload.sampler.schedule import exact_shares

        schedule = self._whole_schedule()
        weights = {point: exact_shares(own).tolist() for point, own in schedule.at.items()}
        limits = None if self.limits is None else self.limits.tolist()
        return [self.num_samples, weights, schedule.ramp, limits, self._stops]

    @cached_property
    def exact(self) -> int:
        """64 bits of a hash of shares and bounds, for the state of a migrated run: it goes by the exact
        shares, and the id of a constant mix has those of an epoch, rounded to samples."""
        facts = json.dumps(self._exact_facts())
        return int.from_bytes(hashlib.blake2b(facts.encode(), digest_size=8).digest(), "little")

    def _weights_in_words(self) -> str:
        bounds = "" if self.limits is None else f", at most {self.limits.tolist()} samples"
        return f"{self.schedule or self.weights.tolist()}{bounds}"

    @cached_property
    def class_to_idx(self) -> dict[str, int]:
        """Label by class name."""
        return {name: label for label, name in enumerate(self.classes)}

    @cached_property
    def labels(self) -> npt.NDArray[np.int64]:
        """Label of every sample, (n,) int64; -1: none."""
        found = []
        for part, labels in zip(self.parts, self._label_maps, strict=True):
            own = part.labels
            found.append(np.where(own < 0, own, np.array(labels)[own]) if labels else own)
        return np.concatenate(found)

    def with_caches(
        self,
        caches: Sequence[_C.CacheFile | None],
        field_caches: Sequence[Mapping[str, _C.CacheFile]] | None = None,
        tiers: Sequence[Mapping[str | None, _C.DiskTier]] | None = None,
    ) -> MixedFiles:
        """See :meth:`PackedFiles.with_caches`; one file, or None, and mappings for each dataset."""
        other = object.__new__(type(self))
        none: list[dict[Any, Any]] = [{}] * len(self.parts)
        parts = zip(self.parts, caches, field_caches or none, tiers or none, strict=True)
        cached = tuple(part.with_caches([cache], [fields], [disk]) for part, cache, fields, disk in parts)
        other.__dict__ |= self.__dict__ | {"parts": cached}
        return other

    @property
    def sources(self) -> list[tuple[_C.Reader, _C.Entries | None, list[int]]]:
        """What ``_C.Engine`` reads; see :attr:`PackedFiles.sources`."""
        return [
            (part.reader, part.entries, labels)
            for part, labels in zip(self.parts, self._label_maps, strict=True)
        ]

    def order(self, seed: int, shuffle: bool) -> MixedOrder | ScheduledOrder:
        """Return the order of sample ids in an epoch.

        Raises:
            ValueError: weights or bounds that change an epoch, without shuffle.
        """
        if self.is_constant:
            return MixedOrder(self._sizes, self.counts, seed, shuffle)
        if not shuffle:
            raise ValueError(
                "A mix with a Schedule or max_epochs needs shuffle=True: without it, an epoch is the "
                "datasets one after the other, the same every time. Found: shuffle=False."
            )
        from fastload.sampler.scheduled_order import ScheduledOrder

        names, start = [part.where for part in self.parts], self.start or self._run_start()
        return ScheduledOrder(self._sizes, names, self.num_samples, seed, self._course(start), start)

    def locate(self, sample: int) -> tuple[PackedFiles, int]:
        """Return the dataset that holds a sample, and its id in it."""
        part = int(np.searchsorted(self._ends, sample, side="right"))
        part = min(part, len(self.parts) - 1)  # the dataset rejects ids beyond the end
        return self.parts[part], sample - int(self._ends[part] - self._sizes[part])

    def label(self, sample: int) -> int:
        """Return one sample's label; -1: none."""
        sample = checked_id(sample, len(self))
        number = int(np.searchsorted(self._ends, sample, side="right"))
        part, labels = self.parts[number], self._label_maps[number]
        own = part.label(sample - int(self._ends[number] - self._sizes[number]))
        return labels[own] if labels and own >= 0 else own

    def key(self, sample: int) -> str:
        """Return the record's path in its source folder; see :meth:`fastload.PackedDataset.key`."""
        part, own = self.locate(checked_id(sample, len(self)))
        return part.key(own)

    def read(self, sample: int) -> bytes:
        """Return the bytes of the picture's file; see :meth:`fastload.PackedDataset.read`."""
        part, own = self.locate(checked_id(sample, len(self)))
        return part.read(own)


Packed: TypeAlias = PackedFiles | MixedFiles | Selection


def _checked_number(num_samples: Any) -> int:
    is_whole = isinstance(num_samples, Integral) and not isinstance(num_samples, bool)
    if not is_whole or not 1 <= num_samples <= _MOST_SAMPLES:
        raise ValueError(
            "num_samples must be an integer from 1 to 2**48, the samples of an epoch over all ranks. Found: "
            f"{num_samples!r:.80}."
        )
    return int(num_samples)


def _joined_classes(parts: Sequence[PackedFiles]) -> tuple[list[str], list[list[int]]]:
    """Return all class names, and each part's new labels by its own labels ([]: unchanged)."""
    found = [list(part.manifest.classes) for part in parts]
    if all(names == found[0] for names in found):
        return parts[0].classes, [[] for _ in parts]  # the classes of objects are the same in all
    for part, own in zip(parts, found, strict=True):
        if not own and (part.labels >= 0).any():
            raise ValueError(
                f"{part.where} has labels but no class names, others have names: their labels cannot be "
                "joined. Pack it with classes."
            )
    names = list(dict.fromkeys(name for own in found for name in own))
    numbers = {name: number for number, name in enumerate(names)}
    return names, [[numbers[name] for name in own] for own in found]
