"""The order of a mix whose shares change over the run, whose datasets end, or which began in one's middle.

As in :mod:`fastload.sampler.mixed`, but blocks are cut over the whole run: :class:`Course` says how many
samples each part has in one, a shuffle keyed by the block's first sample where they are. Each part is walked
in its own order, which the number of its walk decides, so that it goes on in another mix of the same run.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from fastload.errors import StateError
from fastload.machine.messages import stacklevel
from fastload.sampler.mixed import walked
from fastload.sampler.order import IdArray, derived_seed, shuffled
from fastload.sampler.schedule import UNIT, Course, MixtureStart


class ScheduledOrder:
    """Sample ids of a mix whose shares change over the run, whose parts end, or which began in the middle of
    one.

    Args:
        sizes: samples in each part, >= 1.
        names: what messages call the parts.
        num_samples: positions of an epoch, unless the run ends in it.
        seed: seed of the whole order.
        course: how many samples each part gives.
        start: where the course begins.
    """

    is_drawn = False
    repeats = True
    shuffle = True

    def __init__(
        self,
        sizes: IdArray,
        names: Sequence[str],
        num_samples: int,
        seed: int,
        course: Course,
        start: MixtureStart,
    ) -> None:
        self._sizes = sizes
        self._names = names
        self._samples = num_samples
        self._seed = seed
        self._course = course
        #: Where this mix began to count, for the loader's state.
        self.start = start
        self._firsts = np.cumsum(sizes) - sizes
        self._part_seeds = [derived_seed(seed, walk) for walk in start.walks]
        self._said = 0
        self._walk = lru_cache(maxsize=4)(self._make_walk)

    def total(self, epoch: int) -> int:
        """Return the positions of an epoch; fewer than ``num_samples`` if the run ends in it or before.

        Raises:
            StateError: the epoch was before this mix began.
        """
        first = self._at(epoch)
        if not self._course.is_bounded:
            return self._samples
        end = self._course.reach(first + self._samples)
        self._say(first + self._samples)
        return min(max(end - first, 0), self._samples)

    def _at(self, epoch: int) -> int:
        """Return the sample of the run at an epoch's beginning; of the epoch in which the mix began, where
        that would be."""
        if epoch < self.start.epoch:
            raise self._too_early(f"epoch {epoch}")
        return self.start.given - self.start.position + (epoch - self.start.epoch) * self._samples

    def check_begun(self, epoch: int, position: int) -> None:
        """Refuse to deliver samples from before this mix began, which were another one's.

        Raises:
            StateError: ``position`` of ``epoch`` is before that.
        """
        if (epoch, position) < (self.start.epoch, self.start.position):
            raise self._too_early(f"epoch {epoch}, position {position:,}")

    def _too_early(self, found: str) -> StateError:
        return StateError(
            f"This mix began in epoch {self.start.epoch}, by fastload.migrate, at position "
            f"{self.start.position:,}. Found: {found}, which was another mix's. Run it with the mix of that "
            "time, and a state from before; or load the migrated state, which goes on from there."
        )

    def _say(self, end: int) -> None:
        """Warn of each part that ends before this sample of the run, once."""
        for given, part in self._course.exhausted[self._said :]:
            if given >= end:
                return
            self._said += 1
            count = int(self._course.counts_before(given)[part])
            what = "its share goes to the others from there on"
            if self._course.reach(given + 1) == given:
                what = "the mix ends there, and later epochs have none"
            warnings.warn(
                f"The mix's {self._names[part]} has given {count:,} samples, all that max_epochs allows, "
                f"{self._place(given)}: {what}.",
                stacklevel=stacklevel(),
            )

    def _place(self, given: int) -> str:
        epochs, position = divmod(given - self._at(self.start.epoch), self._samples)
        return f"at sample {given:,} of the run (epoch {self.start.epoch + epochs}, position {position:,})"

    def ids(self, positions: IdArray, epoch: int) -> IdArray:
        """Return the sample ids at ``positions``. Those before the mix began, which only partners and
        substitutes come from, get ids of later ones."""
        given = self._at(epoch) + positions
        early = given < self.start.given
        if early.any():
            rest = self.total(epoch) - self.start.position
            if rest <= 0:
                return np.zeros(len(positions), np.int64)
            given = np.where(early, self.start.given + positions % rest, given)
        found = np.empty(len(positions), np.int64)
        left = np.arange(len(positions))
        while len(left):
            before, after = self._course.block(int(given[left[0]]))
            inside = (given[left] >= before.given) & (given[left] < after.given)
            own, left = left[inside], left[~inside]
            of_block, steps = self._walk(before.given)
            places = given[own] - before.given
            parts = of_block[places].astype(np.int64)
            found[own] = self._firsts[parts] + walked(parts, steps[places], self._sizes, self._part_seeds)
        return found

    def _make_walk(self, given: int) -> tuple[npt.NDArray[np.int16], IdArray]:
        """Return the parts and steps of all samples of the block that begins at ``given``."""
        before, after = self._course.block(given)
        counts = after.counts - before.counts
        ends, size = np.cumsum(counts), after.given - given
        places = shuffled(np.arange(size, dtype=np.int64), size, self._seed, given)
        parts = np.searchsorted(ends, places, side="right").astype(np.int16)
        steps = np.empty(size, np.int64)
        steps[np.argsort(parts, kind="stable")] = np.arange(size) + np.repeat(
            before.counts - (ends - counts), counts
        )
        return parts, steps

    def given(self, epoch: int, position: int) -> IdArray:
        """Return how many samples each part has given in the run before a position, which may be its epoch's
        end."""
        return self._given(self._at(epoch) + position)

    def _given(self, given: int) -> IdArray:
        given = self._course.reach(max(self.start.given, given))
        if self._course.reach(given + 1) <= given:
            return self._course.counts_before(given)
        before, _ = self._course.block(given)
        parts = self._walk(before.given)[0][: given - before.given]
        return before.counts + np.bincount(parts, minlength=len(self._sizes))

    def wished(self, epoch: int, position: int) -> npt.NDArray[np.float64]:
        """Return each part's share at a position, as it is wished; all 0: the run is over."""
        return self._course.shares(max(self.start.given, self._at(epoch) + position)) / UNIT

    def start_at(self, epoch: int, position: int) -> MixtureStart:
        """Return the place before a position, for another mix to begin there; where the run has ended, if it
        has."""
        counts = self.given(epoch, position)
        given = self._course.reach(self._at(epoch) + position)
        own = self.start
        return MixtureStart(given, epoch, position, tuple(counts.tolist()), own.walks, own.free_walk)
