"""Samples picked from packed datasets and put one behind the other: what Subset and ConcatDataset come to."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from fastload._native import _C
from fastload.shard.dataset import PackedFiles

if TYPE_CHECKING:
    from fastload.sample.schema import Schema

__all__ = ["Selection"]


class Selection:
    """What the engine reads of a Subset or a ConcatDataset: datasets, and which of their samples.

    It has *places*, ``len()`` of them, and *sample ids*, which go on from one dataset to the next over all
    of their samples. Random numbers are keyed by sample ids, so that a sample is augmented in a subset as in
    the whole.

    Args:
        members: the datasets, each once (``fastload.dataset.mixture.Packed``).
        ids: (n,) int64, the sample id at each place; None: all samples in order.
    """

    def __init__(self, members: Sequence[Any], ids: npt.NDArray[np.int64] | None) -> None:
        self.select(members, ids)

    def select(self, members: Sequence[Any], ids: npt.NDArray[np.int64] | None) -> None:
        """See the class; for classes whose constructor is another's."""
        self._members = tuple(members)
        self._ends = np.cumsum([len(member) for member in self._members], dtype=np.int64)
        self._ids = ids

    def __len__(self) -> int:
        return self.num_ids if self._ids is None else len(self._ids)

    @property
    def num_ids(self) -> int:
        """Sample ids: how many samples the datasets have in all."""
        return int(self._ends[-1]) if len(self._ends) else 0

    @property
    def sample_ids(self) -> npt.NDArray[np.int64] | None:
        """The sample id at each place; None: the place itself."""
        return self._ids

    @cached_property
    def repeats(self) -> bool:
        """Whether a sample stands at several places."""
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
        from fastload.dataset.schemas import joined_schema

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
        """Label by sample id (not by place), int64; -1 where there is none."""
        return np.concatenate([member.labels for member in self._members])

    def member(self, sample: int) -> tuple[Any, int]:
        """The dataset that has a sample id, and the sample's id there."""
        number = min(int(np.searchsorted(self._ends, sample, side="right")), len(self._members) - 1)
        member = self._members[number]
        return member, sample - int(self._ends[number]) + len(member)

    def locate(self, sample: int) -> tuple[PackedFiles, int]:
        """The packed folder that holds a sample id, and the sample's id there."""
        member, own = self.member(sample)
        found: tuple[PackedFiles, int] = member.locate(own)
        return found

    def label(self, sample: int) -> int:
        """The label of a sample id; -1 where there is none."""
        member, own = self.member(sample)
        return int(member.label(own))

    def key(self, sample: int) -> str:
        """The path of a sample id's record in its source folder."""
        part, own = self.locate(sample)
        return part.key(own)

    def read(self, sample: int) -> bytes:
        """The bytes of a sample id's picture file; see :meth:`fastload.PackedDataset.read`."""
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
