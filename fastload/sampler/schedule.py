"""Weights of a mix that change over a run, and how many samples each source has given by each of its blocks.

Everything is counted in samples of the whole run, over all ranks and epochs. Shares are integers, so that
every machine finds the same counts. A source's *wish* is the sum of its shares so far. At the end of each
block it has given its wish, rounded up or down: where some sources may have one sample more, those get it
whose next sample is due first. Earliest deadline first finds such counts if there are any (Horn, 1974), and
there are for any shares: it is a flow problem.
"""

from __future__ import annotations

import base64
import math
import zlib
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from itertools import pairwise
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from fastload.errors import StateError
from fastload.machine.threads import ForkSafeLock
from fastload.sampler.order import IdArray

# ---- Weights over a run -----------------------------------------------------------------------------

UNIT = 1 << 40  # a share of 1
_MOST_SAMPLES = 1 << 62


@dataclass(frozen=True)
class Schedule:
    """``mix(weights=Schedule(...))``: weights that change with the number of samples that the run has had,
    over all ranks and epochs.

    Args:
        at: weights by the sample from which on they count; sample 0 must be among them. Weights are finite
            numbers >= 0, one for each dataset: those with 0 begin later, or have ended. Only proportions
            count.
        ramp: how weights become the next ones. N: in the N samples from a point on, shares change linearly to
            that point's, and stay until the next point; 0: at once. "whole": they change linearly from each
            point to the next, and are at each point what it says.

    Raises:
        TypeError, ValueError: values out of range.
    """

    at: Mapping[int, Sequence[float]]
    ramp: int | Literal["whole"] = 0

    def __post_init__(self) -> None:
        if not isinstance(self.at, Mapping):
            raise TypeError(
                f"Schedule takes a dict of weights by sample, {{0: [1, 1], 1_000_000: [1, 3]}}. Found: "
                f"{self.at!r:.80}."
            )
        for point in self.at:
            if not isinstance(point, int) or isinstance(point, bool) or not 0 <= point < _MOST_SAMPLES:
                raise ValueError(
                    f"A Schedule's points are samples of the run, integers >= 0 and < 2**62. Found: "
                    f"{point!r}."
                )
        points = sorted(self.at)
        if not points or points[0] != 0:
            raise ValueError(f"A Schedule says the weights from sample 0 on. Found: points {points}.")
        object.__setattr__(self, "at", {point: _checked(point, self.at[point]) for point in points})
        if len({len(weights) for weights in self.at.values()}) > 1:
            raise ValueError(
                "A Schedule has as many weights at each point, 0 for a dataset that begins later. Found: "
                f"{', '.join(f'{len(weights)} at {point}' for point, weights in self.at.items())}."
            )
        if self.ramp == "whole":
            return
        if not isinstance(self.ramp, int) or isinstance(self.ramp, bool) or self.ramp < 0:
            raise ValueError(f'ramp must be a number of samples >= 0, or "whole". Found: {self.ramp!r}.')
        least = min((b - a for a, b in pairwise(points[1:])), default=self.ramp)
        if least < self.ramp:
            raise ValueError(
                f"ramp must end before the next point, which follows after {least} samples. Found: "
                f"{self.ramp}."
            )

    @property
    def width(self) -> int:
        """The number of weights at each point."""
        return len(self.at[0])

    def pieces(self) -> list[Piece]:
        """Return the shares over the run: pieces in which they stay, or change linearly."""
        shares = {point: np.cumsum(exact_shares(weights)) for point, weights in self.at.items()}
        points = list(shares)
        found: list[Piece] = []
        for number, point in enumerate(points):
            end = points[number + 1] if number + 1 < len(points) else None
            own = shares[point]
            if self.ramp == "whole":
                found.append(Piece(point, end, own, shares[end] - own if end is not None else None))
                continue
            ramp = self.ramp if number else 0
            if ramp:
                before = shares[points[number - 1]]
                found.append(Piece(point, point + ramp, before, own - before))
            if end is None or point + ramp < end:
                found.append(Piece(point + ramp, end, own, None))
        return found


class Piece(NamedTuple):
    """A stretch of the run in which shares stay, or change linearly."""

    start: int
    end: int | None  # None: it has none
    first: IdArray  # running sum of the shares at its start, in 1 / UNIT
    change: IdArray | None  # what is added to that up to its end; None: nothing

    def shares(self, middle: float) -> IdArray:
        """Return the shares at sample ``middle`` of the run, in 1 / UNIT; their sum is UNIT."""
        if self.change is None or self.end is None:
            return _differences(self.first)
        return _rounded(self.first + self.change * ((middle - self.start) / (self.end - self.start)))


def _checked(point: int, given: Any) -> tuple[float, ...]:
    try:
        weights = tuple(float(weight) for weight in given)
    except (TypeError, ValueError):
        raise TypeError(
            f"Weights at sample {point} must be a list of numbers. Found: {given!r:.80}."
        ) from None
    if not all(math.isfinite(weight) and weight >= 0 for weight in weights) or not any(weights):
        raise ValueError(
            f"Weights at sample {point} must be finite numbers >= 0, not all of them 0. Found: "
            f"{list(weights)}."
        )
    return weights


def exact_shares(weights: Sequence[float]) -> IdArray:
    """Return weights as shares in 1 / UNIT, rounded by largest remainders; their sum is UNIT. None above 0
    becomes 0: the largest gives what that needs."""
    exact = [Fraction(weight) for weight in weights]
    whole = sum(exact)
    ideal = [weight * UNIT / whole for weight in exact]
    found = [max(int(share), int(share > 0)) for share in ideal]
    found[found.index(max(found))] -= max(0, sum(found) - UNIT)
    largest = sorted(range(len(found)), key=lambda number: found[number] - ideal[number])
    for number in largest[: UNIT - sum(found)]:
        found[number] += 1
    return np.array(found, np.int64)


def _differences(running: npt.NDArray[Any]) -> IdArray:
    found: IdArray = running.copy()
    found[1:] -= running[:-1]
    return found


def _rounded(running: npt.NDArray[np.float64]) -> IdArray:
    """Return whole shares whose running sums are these, rounded: none is below 0."""
    return _differences(np.rint(np.maximum.accumulate(running)).astype(np.int64))


# ---- Where a run's mix began anew -------------------------------------------------------------------


@dataclass(frozen=True)
class MixtureStart:
    """The place of a run from which on its mix counts, and what each source had given by then.

    That of a run is its beginning, or where :func:`fastload.migrate` gave it another mix.
    """

    given: int  # samples of the run
    epoch: int
    position: int  # in that epoch
    counts: tuple[int, ...]  # samples that each source has given
    walks: tuple[int, ...]  # the number of each source's walk, by which its own order is drawn
    free_walk: int  # no source has ever had this number, or one above it
    mix: int = (
        0  # 64 bits of a hash of the mix's exact shares and bounds, which its id does not have; of a run: 0
    )

    @classmethod
    def of_run(cls, sources: int) -> MixtureStart:
        """Return the beginning of a run."""
        return cls(0, 0, 0, (0,) * sources, tuple(range(sources)), sources)

    def to_text(self) -> str:
        """Return it as ASCII without quotes: for 100 sources, 10**10 samples each, some 760 characters."""
        head = (self.given, self.epoch, self.position, self.free_walk)
        walks = () if self.walks == tuple(range(len(self.walks))) else self.walks
        data = b"".join(map(_packed, (head, walks, self.counts))) + self.mix.to_bytes(8, "little")
        return base64.b85encode(data + zlib.crc32(data).to_bytes(4, "little")).decode()

    @classmethod
    def from_text(cls, text: object) -> MixtureStart:
        """Read :meth:`to_text`'s.

        Raises:
            StateError: it is something else, or damaged.
        """
        try:
            data = base64.b85decode(text)  # type: ignore[arg-type]
            if zlib.crc32(data[:-4]).to_bytes(4, "little") != data[-4:]:
                raise ValueError
            head, rest = _unpacked(data[:-4])
            walks, rest = _unpacked(rest)
            counts, rest = _unpacked(rest)
            given, epoch, position, free = head
            if len(rest) != 8:
                raise ValueError
        except (TypeError, ValueError, IndexError):
            raise StateError(
                "mixture of a loader state must be as fastload.migrate wrote it. Found: "
                f"{text!r:.80}: the state is damaged."
            ) from None
        mix = int.from_bytes(rest, "little")
        return cls(given, epoch, position, tuple(counts), tuple(walks or range(len(counts))), free, mix)


def _packed(values: Sequence[int]) -> bytes:
    """Return how many, how many bits each, and the bits."""
    bits = max((value.bit_length() for value in values), default=0)
    joined = sum(value << place * bits for place, value in enumerate(values))
    return (
        len(values).to_bytes(3, "little")
        + bytes([bits])
        + joined.to_bytes(-(-bits * len(values) // 8), "little")
    )


def _unpacked(data: bytes) -> tuple[list[int], bytes]:
    count, bits = int.from_bytes(data[:3], "little"), data[3]
    end = 4 + -(-bits * count // 8)
    joined, one = int.from_bytes(data[4:end], "little"), (1 << bits) - 1
    return [joined >> place * bits & one for place in range(count)], data[end:]


# ---- Counts at the ends of blocks -------------------------------------------------------------------

_LEAST_BLOCK = 1 << 12  # samples
_SMALL_UNTIL = 1 << 26  # samples of the run; from there on blocks are larger, which limits their number
_LONG_BLOCK = 1 << 16
_LONGEST_BLOCK = 1 << 20
_STRETCH = 64  # blocks between two places that are kept
_LITTLE = 1e-100  # what a share of 0 is divided by


class Mark(NamedTuple):
    """The end of a block."""

    given: int  # samples of the run so far
    counts: IdArray  # of each source
    owed: IdArray  # what is missing to each source's wish, in 1 / UNIT samples
    spent: bytes = b""  # bools: which sources are exhausted; empty: none


class Course:
    """How many samples each source has given at the end of each block: a pure function of its arguments.

    Args:
        schedule: the weights.
        start: where the mix begins.
        limits: (sources,) the most samples that each may give in the run; None: no bounds. An exhausted
            source's share goes to the others in proportion.
        stops: the run ends when the first source is exhausted.
    """

    def __init__(
        self, schedule: Schedule, start: MixtureStart, limits: IdArray | None = None, stops: bool = False
    ) -> None:
        self._pieces = schedule.pieces()
        self._starts = [piece.start for piece in self._pieces]
        self._limits = limits
        self._stops = stops
        self._first = start.given
        counts = np.array(start.counts, np.int64)
        first = Mark(start.given, counts, np.zeros_like(counts))
        self._marks = [first if limits is None else self._with_spent(first)]
        self._lock = ForkSafeLock()
        self._blocks_of = lru_cache(maxsize=8)(self._make_blocks)
        self._constant = lru_cache(maxsize=4)(self._make_constant)
        #: (sample of the run, source) where sources were exhausted, as far as the run is known.
        self.exhausted: list[tuple[int, int]] = []
        self._note_spent(b"", self._marks[0])
        #: The samples that the run has; None: no end is known yet.
        self.end: int | None = None

    @property
    def is_bounded(self) -> bool:
        """Whether sources may be exhausted."""
        return self._limits is not None

    def reach(self, given: int) -> int:
        """Find the blocks up to this sample of the run; return it, or the run's end if that comes before."""
        while self._marks[-1].given < given and self.end is None:
            with self._lock.held():
                self._go_on()
        return given if self.end is None else min(given, self.end)

    def _go_on(self) -> None:
        mark = before = self._marks[-1]
        for mark in self._walk(before):
            if mark.spent != before.spent:
                self._note_spent(before.spent, mark)
            before = mark
        if mark is self._marks[-1]:
            self.end = mark.given
        else:
            self._marks.append(mark)

    def _note_spent(self, before: bytes, mark: Mark) -> None:
        for source, is_spent in enumerate(mark.spent):
            if is_spent and not (before and before[source]):
                self.exhausted.append((mark.given, source))

    def block(self, given: int) -> tuple[Mark, Mark]:
        """Return the beginning and the end of the block that has sample ``given`` of the run."""
        self.reach(given + 1)
        stretch = bisect_right(self._marks, given, key=_given) - 1
        marks = self._blocks_of(stretch)
        number = bisect_right(marks, given, key=_given) - 1
        return marks[number], marks[number + 1]

    def counts_before(self, given: int) -> IdArray:
        """Return the counts at the end of the block before sample ``given`` of the run, at most the run's "
        "end."""
        return self.block(given - 1)[1].counts if given > self._first else self._marks[0].counts

    def shares(self, given: int) -> IdArray:
        """Return the shares that are wished at a sample of the run, in 1 / UNIT; all 0: it is over."""
        if self.reach(given + 1) <= given:
            return np.zeros_like(self._marks[0].counts)
        return self._shares(self._piece(given), given + 0.5, self.block(given)[0].spent)

    def _make_blocks(self, stretch: int) -> list[Mark]:
        first = self._marks[stretch]
        return [first, *self._walk(first)]

    def _walk(self, mark: Mark) -> Iterator[Mark]:
        for _ in range(_STRETCH):
            after = self._after(mark)
            if after is None:
                return
            yield (mark := after)

    def _room(self, mark: Mark) -> IdArray:
        """Return what each source may still be wished, in 1 / UNIT samples, <= 0 if it is exhausted; as much
        as two blocks have stands for any more."""
        assert self._limits is not None
        room: IdArray = np.clip(self._limits - mark.counts, -1, 2 * _LONGEST_BLOCK) * UNIT - mark.owed
        return room

    def _with_spent(self, mark: Mark) -> Mark:
        spent = self._room(mark) <= 0
        return mark._replace(spent=spent.tobytes() if spent.any() else b"")

    def _is_near(self, mark: Mark, size: int) -> bool:
        """Whether a source may be exhausted in the ``size`` samples after ``mark``."""
        assert self._limits is not None
        left = self._limits - mark.counts
        if mark.spent:
            left = left[~np.frombuffer(mark.spent, bool)]
        return bool((left <= size + 1).any())

    def _piece(self, given: int) -> int:
        return bisect_right(self._starts, given) - 1

    def _shares(self, number: int, middle: float, spent: bytes) -> IdArray:
        """Return the shares at sample ``middle``, in a piece of the schedule; all 0: nothing is left."""
        if self._pieces[number].change is None:
            return self._constant(number, spent)
        return _left(self._pieces[number].shares(middle), spent)

    def _make_constant(self, number: int, spent: bytes) -> IdArray:
        return _left(self._pieces[number].shares(0.0), spent)

    def _after(self, mark: Mark) -> Mark | None:
        """Return the end of the block that begins at ``mark``; None: the run ends there."""
        number = self._piece(mark.given)
        size = self._block_size(mark.given, number)
        share = self._shares(number, mark.given + size / 2, mark.spent)
        if mark.spent and (self._stops or not share.any()):
            return None
        is_near = self._limits is not None and self._is_near(mark, size)
        if is_near:
            room, has = self._room(mark), share > 0
            whole = int((room[has] // share[has]).min())  # samples until a source is exhausted
            if whole < size:
                size = max(1, whole)
                share = self._shares(number, mark.given + size / 2, mark.spent)
            owed = mark.owed + _within(share, size, room)
        else:
            owed = mark.owed + share * size
        added: IdArray = np.maximum(owed >> 40, 0)
        owed -= added << 40
        rest = size - int(added.sum())
        if rest:
            self._settle(mark.given + size, number, share, rest, added, owed)
        after = Mark(mark.given + size, mark.counts + added, owed, mark.spent)
        return self._with_spent(after) if is_near else after

    def _block_size(self, given: int, number: int) -> int:
        """Return the samples from ``given`` on to the end of its block, at most to that of the piece."""
        done, block = given - self._first, _LEAST_BLOCK
        if done >= _SMALL_UNTIL:
            block = min(
                _LONG_BLOCK << max(0, done.bit_length() - _SMALL_UNTIL.bit_length() - 1), _LONGEST_BLOCK
            )
        size = block - done % block
        end = self._pieces[number].end
        return size if end is None else min(size, end - given)

    def _settle(
        self, given: int, number: int, share: IdArray, rest: int, added: IdArray, owed: IdArray
    ) -> None:
        """Give ``rest`` samples more to the sources whose next sample is due first, or take -rest back from
        those whose last one was due last, because others had given more than they were owed."""
        if rest > 0:
            due = np.where(owed > 0, self._due(given, number, owed, share), np.inf)
            chosen = np.argsort(due, kind="stable")[:rest]
            added[chosen] += 1
            owed[chosen] -= UNIT
        while rest < 0:
            overdue = np.where(added > 0, owed / np.maximum(share, _LITTLE), np.inf)
            chosen = np.argsort(overdue, kind="stable")[:-rest]
            chosen = chosen[added[chosen] > 0]
            added[chosen] -= 1
            owed[chosen] += UNIT
            rest += len(chosen)

    def _due(self, given: int, number: int, owed: IdArray, share: IdArray) -> npt.NDArray[np.float64]:
        """Return when each source's next sample is due, in samples of the run from a point that is the same
        for all; huge: never. No source is taken to be exhausted before."""
        due: npt.NDArray[np.float64] = (UNIT - owed) / np.maximum(share, _LITTLE)
        end = self._pieces[number].end
        if end is None or due[owed > 0].max() <= end - given:
            return due
        starts, sums, first, slope = self._outlook
        past = given - starts[number]
        wish = sums[number] + first[number] * past + slope[number] * past * past / 2 + (UNIT - owed)
        at = np.clip((sums <= wish).sum(axis=0) - 1, number, None)
        source = np.arange(len(owed))
        left, now, bend = wish - sums[at, source], first[at, source], slope[at, source]
        root = np.sqrt(np.maximum(now * now + 2 * bend * left, 0))
        later: npt.NDArray[np.float64] = starts[at] - given + 2 * left / np.maximum(now + root, _LITTLE)
        return later

    @cached_property
    def _outlook(self) -> tuple[npt.NDArray[np.float64], ...]:
        """For each piece its start, and for each source the wish by then, the share there, and how that "
        "grows."""
        starts = np.array(self._starts, np.float64)
        first = np.array([piece.shares(float(piece.start)) for piece in self._pieces], np.float64)
        slope, sums = np.zeros_like(first), np.zeros_like(first)
        for number, piece in enumerate(self._pieces[:-1]):
            long = starts[number + 1] - starts[number]
            if piece.change is not None:
                slope[number] = _differences(piece.change) / long
            sums[number + 1] = sums[number] + (first[number] + slope[number] * long / 2) * long
        return starts, sums, first, slope


def _given(mark: Mark) -> int:
    return mark.given


def _left(shares: IdArray, spent: bytes) -> IdArray:
    """Divide the shares of sources that are spent (bools as bytes; none if empty) among the others."""
    if not any(spent):
        return shares
    left = np.where(np.frombuffer(spent, bool), 0, shares)
    total = int(left.sum())
    return _rounded(np.cumsum(left) * (UNIT / total)) if total else left


def _within(share: IdArray, size: int, room: IdArray) -> IdArray:
    """Return what ``size`` samples add to each wish: at most its room. What is over goes to the first source
    that has room, one with a share if there is one."""
    room = np.maximum(room, 0)
    kept = np.minimum(share * size, room)
    over = size * UNIT - int(kept.sum())
    if not over:
        return kept
    first = np.argsort(share == 0, kind="stable")
    free = np.minimum(room - kept, over)[first]
    kept[first] += np.clip(over - (np.cumsum(free) - free), 0, free)
    return kept
