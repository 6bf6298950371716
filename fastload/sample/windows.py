"""Windows: which rows around a sample a batch has of its fields. The rows are found in
:mod:`fastload.dataset.windows`."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass
from itertools import pairwise
from numbers import Integral, Real
from typing import Any, TypeAlias

#: A row by its distance from the sample's own: a number of rows (int), or seconds (float).
Offset: TypeAlias = "int | float"
_FARTHEST = 10**9  # rows or seconds
MOST_STEPS = 4096  # of one field: more are a mistake, and a batch of them would not fit into memory


def pad_name(field: str) -> str:
    """Return a batch's key of which steps of a field are padding: LeRobot's name."""
    return f"{field}_is_pad"


@dataclass(frozen=True, repr=False)
class Windows:
    """``DataLoader(fields=Fields(windows=Windows(...)))``: rows around each sample, as one more axis of the
    batch (``docs/guide/sequences.md``). A dict is short for ``Windows(dict)``.

        Windows({"observation.image": [-0.2, -0.1, 0.0], "action": range(50)})

    Of a field that is named, batches have (batch, steps, ...), and ``FIELD_is_pad`` says, (batch, steps)
    bool, which steps lie before the first row or behind the last one of the sample's run: there the first or
    the last row stands. Other fields are the sample's own. Rows of a set are runs (episodes, videos) if it
    was packed with ``--runs``.

    Args:
        offsets: by field, distances from the sample's own row: integers are rows, floats seconds.
        stride: begin a window at every so many rows of a run, counted from its first.
        drop_short: leave out samples whose window is not whole: it reaches over an end of the run, or a row
            of it is missing.
        per_run: an epoch has so many windows of each run (all, of a run with fewer), drawn anew each epoch,
            one from each of so many equal parts of the run; without shuffle from the middle of each part.
            None: all.
        tolerance: seconds between the time that is asked for and that of the row, which is the nearest one.
            Beyond the ends of a run a step is padding from there on, or from half a step on.
        runs: the order of rows, as in ``fastload pack --runs``, in place of the set's own.

    Raises:
        TypeError, ValueError: of the wrong type, or out of range.
    """

    offsets: Mapping[str, Iterable[Offset]]
    stride: int = 1
    drop_short: bool = False
    per_run: int | None = None
    tolerance: float = 1e-4
    runs: str | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.offsets, Mapping) or not self.offsets:
            raise TypeError(
                'windows must be a dict of offsets by field, {"action": range(50)}. Found: '
                f"{self.offsets!r}."
            )
        object.__setattr__(self, "offsets", {name: _checked(name, one) for name, one in self.offsets.items()})
        for name in ("stride", "per_run"):
            value = getattr(self, name)
            if value is None and name == "per_run":
                continue
            if isinstance(value, bool) or not isinstance(value, Integral) or value < 1:
                raise ValueError(f"Windows.{name} must be an integer >= 1. Found: {value!r}.")
            object.__setattr__(self, name, int(value))
        if self.drop_short not in (True, False):
            raise TypeError(f"Windows.drop_short must be True or False. Found: {self.drop_short!r}.")
        tolerance = self.tolerance
        is_number = isinstance(tolerance, Real) and not isinstance(tolerance, bool)
        if not is_number or not 0 <= float(tolerance) < math.inf:
            raise ValueError(
                f"Windows.tolerance must be a number of seconds >= 0. Found: {self.tolerance!r}."
            )
        if self.runs is not None and not isinstance(self.runs, str):
            raise TypeError(f'Windows.runs must be a text, "episode:frame". Found: {self.runs!r}.')

    def __repr__(self) -> str:
        offsets = ", ".join(f"{name!r}: {_short(one)}" for name, one in self.offsets.items())
        more = [
            f"{name}={getattr(self, name)!r}"
            for name in ("stride", "drop_short", "per_run", "tolerance", "runs")
            if getattr(self, name) != getattr(type(self), name)
        ]
        return f"Windows({', '.join([f'{{{offsets}}}', *more])})"

    def __eq__(self, other: object) -> bool:
        return repr(self) == repr(other) if isinstance(other, Windows) else NotImplemented

    def __hash__(self) -> int:  # 1 and 1.0 are equal, and not the same offset
        return hash(repr(self))

    @classmethod
    def of(cls, value: Any) -> Windows | None:
        """Return the value that ``windows=`` means."""
        return value if value is None or isinstance(value, cls) else cls(value)

    @property
    def distinct(self) -> tuple[Offset, ...]:
        """All offsets but 0, each once, in order: rows first. A sample's partners are numbered by them."""
        # 1 and 1.0 are equal, and not the same offset.
        kinds = {(isinstance(one, float), one) for offsets in self.offsets.values() for one in offsets if one}
        return tuple(one for _, one in sorted(kinds))

    def steps(self, field: str) -> tuple[int, ...]:
        """Return the numbers of a field's offsets among :attr:`distinct`, from 1; 0 is the sample itself."""
        numbers = {(isinstance(one, float), one): at for at, one in enumerate(self.distinct, 1)}
        return tuple(numbers[isinstance(one, float), one] if one else 0 for one in self.offsets[field])


def _checked(name: Any, offsets: Any) -> tuple[Offset, ...]:
    """Return a field's offsets; if one is in seconds, all are."""
    legal = f"windows[{name!r}] must be a list of offsets: integers are rows, floats seconds."
    if not isinstance(name, str):
        raise TypeError(f"windows must be a dict by the names of fields. Found: {name!r}.")
    listed = offsets.tolist() if hasattr(offsets, "tolist") else offsets
    unordered = isinstance(listed, (str, bytes, Mapping, Set))
    if unordered or not isinstance(listed, Iterable):
        raise TypeError(f"{legal} Found: {offsets!r}.")
    listed = list(listed)
    for one in listed:
        if isinstance(one, bool) or not isinstance(one, Real) or not abs(float(one)) <= _FARTHEST:
            raise TypeError(f"{legal} Found: {one!r:.100}; legal are -{_FARTHEST} to {_FARTHEST}.")
    if not 1 <= len(listed) <= MOST_STEPS:
        raise ValueError(f"{legal} Found: {len(listed)} of them; legal are 1 to {MOST_STEPS}.")
    if all(isinstance(one, Integral) for one in listed):
        return tuple(int(one) for one in listed)
    return tuple(float(one) for one in listed)


def _short(offsets: Any) -> str:
    steps = {after - before for before, after in pairwise(offsets)}
    if len(offsets) > 3 and len(steps) == 1 and isinstance(offsets[0], int) and (step := steps.pop()) > 0:
        first, end = offsets[0], offsets[-1] + 1
        return f"range({first}, {end}{'' if step == 1 else f', {step}'})"
    return repr(list(offsets))
