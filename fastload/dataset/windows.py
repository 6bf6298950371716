"""The rows of windows: which samples stand around a sample in its run, and which samples have a window."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from fastload._native import _C
from fastload.dataset.mixture import MixedFiles, Packed
from fastload.errors import FormatError
from fastload.machine.messages import stacklevel
from fastload.sample.windows import Windows
from fastload.sampler.runs import PerRunSampler
from fastload.shard.dataset import PackedFiles

if TYPE_CHECKING:
    from fastload.shard.runs import Runs

Ids = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
_AT_ONCE = 1 << 16  # samples whose windows are looked at together
_SAME = 1e-9  # seconds: of two rows that are equally near, the earlier is taken
_STEADY = 1e-4  # seconds by which the times of a steady rate may be off


def runs_for(files: PackedFiles, given: str | None) -> Runs:
    """Return the runs of a set: as ``Windows.runs`` says, or those that it was packed with.

    Raises:
        ValueError: the set has none, or its fields do not order it as ``given`` says.
    """
    from fastload.shard.runs import RunsSpec, runs_of

    if given is not None:
        return runs_of(files, RunsSpec.of(given))
    found = files.runs
    if found is None:
        raise ValueError(
            f"Windows need the order of rows, and {files.where} has none. Pack it with --runs BY:ORDER:TIME, "
            "as in --runs episode:frame, or name the fields here: "
            'Windows(..., runs="episode:frame").'
        )
    return found


class _PartWindows:
    """The windows of one packed set.

    Args:
        files: the set.
        windows: what is asked for.
    """

    def __init__(self, files: PackedFiles, windows: Windows) -> None:
        self._files = files
        self._windows = windows
        self.runs = runs_for(files, windows.runs)
        self._offsets = windows.distinct
        #: Rows of each offset; None: they differ from sample to sample.
        self._rows = self._as_rows()
        self._warn_of_gaps()

    def _warn_of_gaps(self) -> None:
        """Warn once of rows that are missing inside runs, where windows count rows."""
        from fastload.shard.runs import KEY, gaps_of

        counts_rows = any(not isinstance(one, float) for one in self._offsets)
        # Names of files take too long to read here, and packing has told of them.
        if not counts_rows or self.runs.spec.order == KEY:
            return
        gaps = gaps_of(self.runs, self._files)
        if gaps:
            warnings.warn(
                f"Windows that count rows reach over rows that are missing in {self._files.where}: {gaps}. "
                "Where that matters, give offsets in seconds (floats): then missing rows are errors, and "
                "drop_short=True leaves such windows out.",
                stacklevel=stacklevel(),
            )

    # ---- Seconds as rows -----------------------------------------------------------------------------

    def _as_rows(self) -> Ids | None:
        if not any(isinstance(one, float) for one in self._offsets):
            return np.array(self._offsets, np.int64)
        period = self._period()
        if period is None:
            return None
        rows = []
        for one in self._offsets:
            row = round(one / period) if isinstance(one, float) else one
            off = abs(row * period - one) if isinstance(one, float) else 0.0
            if off > self._tolerance:
                below = math.floor(one / period)
                raise ValueError(
                    f"Windows: no row of {self._files.where} lies {one} s from another. Found: rows every "
                    f"{period:.6g} s ({1 / period:.6g} a second), of which {below * period:.6g} and "
                    f"{(below + 1) * period:.6g} s are the nearest. Name one of these, or a larger "
                    f"tolerance= (now {self._windows.tolerance} s)."
                )
            if off > _STEADY + self._precision:
                return None  # the nearest row is wanted
            rows.append(row)
        return np.array(rows, np.int64)

    def _period(self) -> float | None:
        """Return the seconds from one row to the next, if all rows of all runs come at that rate.

        Errors must not add up from row to row, so each row's time is compared with its number in the run.
        """
        runs = self.runs
        if runs.spec.fps is not None and not len(self._files.dropped):
            return 1.0 / runs.spec.fps
        times, lengths = self._times, np.diff(runs.begins)
        longest = int(lengths.argmax()) if len(lengths) else 0
        if not len(lengths) or lengths[longest] < 2:
            return None
        period = float(times[runs.begins[longest + 1] - 1]) / float(lengths[longest] - 1)
        if period <= 0.0:
            return None
        rows = np.arange(len(times)) - np.repeat(runs.begins[:-1], lengths)
        bound = min(_STEADY, period / 4) + self._precision
        return period if bool(np.abs(times - rows * period).max() <= bound) else None

    @cached_property
    def _times(self) -> npt.NDArray[np.float64]:
        """Seconds at each place, since its run's first row."""
        runs = self.runs
        times = self._stored
        return times - np.repeat(times[runs.begins[:-1]], np.diff(runs.begins))

    @cached_property
    def _stored(self) -> npt.NDArray[np.float64]:
        """Seconds at each place, as the set has them."""
        places = np.arange(int(self.runs.begins[-1]), dtype=np.int64)
        times: npt.NDArray[np.float64] | None = self.runs.times_at(places)
        if times is None:
            seconds = next(one for one in self._offsets if isinstance(one, float))
            raise ValueError(
                f"Windows has offsets in seconds, and the runs of {self._files.where} have no time. Found: "
                f"{seconds!r}. Give integers, which are rows, or say which field is the time: "
                'Windows(..., runs="BY:ORDER:TIME"), TIME such as timestamp, stamp@us or 30fps.'
            )
        return times

    @cached_property
    def _precision(self) -> float:
        """Seconds that times may differ by although they are the same: float32 has steps of a quarter of a
        millisecond after an hour."""
        largest = float(np.abs(self._stored).max(initial=0.0))
        time, steps = self.runs.spec.time, 4 * float(np.spacing(largest))
        if self.runs.spec.fps is not None or time is None:
            return steps
        dtype = self._files.schema[time].item_dtype
        return steps + float(np.spacing(np.asarray(largest, dtype))) if dtype.kind == "f" else steps

    @cached_property
    def _tolerance(self) -> float:
        return float(self._windows.tolerance) + self._precision

    @cached_property
    def _beyond(self) -> float:
        """Seconds beyond a run's ends from which on it is padding: the tolerance, but at most half a step."""
        steps = np.delete(np.diff(self._times), self.runs.begins[1:-1] - 1)
        half = float(np.median(steps)) / 2 if len(steps) else self._tolerance
        return min(self._tolerance, half + self._precision) + _SAME

    # ---- Rows of windows -----------------------------------------------------------------------------

    def found(self, ids: Ids) -> tuple[Ids, Flags, Flags]:
        """Return the rows of samples' windows.

        Args:
            ids: (n,) sample ids of this set.

        Returns:
            (n, offsets) places, clamped at the ends of runs; whether each was clamped; whether it is missing.
        """
        runs = self.runs
        places = runs.places_of(ids)
        run = runs.runs_at(places)
        if self._rows is None:
            return self._found_by_time(places, run)
        first, last = runs.begins[run][:, None], runs.begins[run + 1][:, None] - 1
        wanted = places[:, None] + self._rows
        clamped = np.clip(wanted, first, last)
        return clamped, clamped != wanted, np.zeros(wanted.shape, np.bool_)

    def _found_by_time(self, places: Ids, run: Ids) -> tuple[Ids, Flags, Flags]:
        times, tolerance, line = self._times, self._tolerance, self._line
        low, high = self.runs.begins[run][:, None], self.runs.begins[run + 1][:, None] - 1
        is_time = np.array([isinstance(one, float) for one in self._offsets])
        seconds = np.array(
            [float(one) if timed else 0.0 for one, timed in zip(self._offsets, is_time, strict=True)]
        )
        rows = np.array([0 if timed else int(one) for one, timed in zip(self._offsets, is_time, strict=True)])
        wanted, ends = times[places][:, None] + seconds, times[high]
        on_line = np.clip(wanted, -0.5, ends + 0.5) + (line - times)[low]
        after = np.searchsorted(line, on_line)
        before = np.clip(after - 1, low, high)
        after = np.clip(after, low, high)
        nearer = np.abs(times[before] - wanted) <= np.abs(times[after] - wanted) + _SAME
        by_time, by_row = np.where(nearer, before, after), places[:, None] + rows
        outside = (wanted < -self._beyond) | (wanted > ends + self._beyond)
        clamped = np.clip(by_row, low, high)
        pads = np.where(is_time, outside, clamped != by_row)
        missing = is_time & ~outside & (np.abs(times[by_time] - wanted) > tolerance)
        return np.where(is_time, by_time, clamped), pads, missing

    @cached_property
    def _line(self) -> npt.NDArray[np.float64]:
        """All times on one line, run behind run with two seconds between them: one search finds all rows."""
        times, begins = self._times, self.runs.begins
        ends = np.cumsum(times[begins[1:] - 1] + 2.0)
        return times + np.repeat(ends - times[begins[1:] - 1] - 2.0, np.diff(begins))

    def partners(self, ids: Ids, base: int) -> Ids:
        """Return (n, offsets) sample ids; those of clamped rows with ``_C.PAD_BIT``. ``base``: of the set's
        first sample."""
        places, pads, _ = self.found(ids)
        found: Ids = self.runs.ids_at(places.reshape(-1)).reshape(places.shape) + base
        found[pads] |= _C.PAD_BIT
        return found

    def begins_window(self, ids: Ids) -> Flags:
        """Return which samples have a window.

        Raises:
            FormatError: a row of a window is missing, and ``drop_short`` does not leave it out.
        """
        windows = self._windows
        kept = np.ones(len(ids), np.bool_)
        if windows.stride > 1:
            places = self.runs.places_of(ids)
            kept &= (places - self.runs.begins[self.runs.runs_at(places)]) % windows.stride == 0
        if not windows.drop_short and self._rows is not None:
            return kept
        for begin in range(0, len(ids), _AT_ONCE):
            some = slice(begin, begin + _AT_ONCE)
            _, pads, missing = self.found(ids[some])
            if windows.drop_short:
                kept[some] &= ~(pads | missing).any(1)
            elif (bad := missing.any(1) & kept[some]).any():
                self._fail(int(ids[some][bad][0]))
        return kept

    def _fail(self, sample: int) -> None:
        (places,), _, (missing,) = self.found(np.array([sample], np.int64))
        number = int(np.flatnonzero(missing)[0])
        runs = self.runs
        own = runs.places_of(np.array([sample], np.int64))
        time, near = float(self._stored[own[0]]), float(self._stored[places[number]])
        run = int(runs.runs_at(own)[0])
        nearest = runs.order_of(int(places[number]))
        raise FormatError(
            f"{self._files.where}: {runs.name_of(run)}, {runs.order_of(int(own[0]))} ({time:.6g} s) has no "
            f"row at {self._offsets[number]} s. Found: the nearest is {nearest} at {near:.6g} s, "
            f"{abs(near - time - float(self._offsets[number])):.3g} s from it. Leave such "
            "windows out, Windows(..., drop_short=True), or take the nearest row, a larger tolerance= (now "
            f"{self._windows.tolerance} s)."
        )


class WindowPlan:
    """The windows of what a loader reads.

    Args:
        dataset: what is read.
        windows: what is asked for.

    Raises:
        ValueError: a set has no runs, or no time, or an offset does not fall on its rows.
    """

    def __init__(self, dataset: Packed, windows: Windows) -> None:
        self.windows = windows
        self._parts = [_PartWindows(part, windows) for part in dataset.parts]
        self._bases = np.cumsum([0, *(part.num_ids for part in dataset.parts)], dtype=np.int64)

    def partners(self, ids: Ids) -> Ids:
        """Return the samples that stand around others.

        Args:
            ids: (n,) int64 sample ids; -1: padding.

        Returns:
            (n, offsets) int64 sample ids, by :attr:`Windows.distinct`; those of rows that are not there, and
            stand in for by a run's first or last row, with ``_C.PAD_BIT``; -1 for padding.
        """
        found = np.full((len(ids), len(self.windows.distinct)), -1, np.int64)
        for number, mine, own in self._of_parts(ids):
            found[mine] = self._parts[number].partners(own, int(self._bases[number]))
        return found

    def _of_parts(self, ids: Ids) -> list[tuple[int, Any, Ids]]:
        """Return for each set its number, where its samples are among ``ids``, and their own ids."""
        if len(self._parts) == 1 and (ids >= 0).all():
            return [(0, slice(None), ids)]
        home = np.searchsorted(self._bases, ids, side="right") - 1
        masks = [(number, (home == number) & (ids >= 0)) for number in range(len(self._parts))]
        return [(number, mine, ids[mine] - self._bases[number]) for number, mine in masks if mine.any()]

    def begins_window(self, ids: Ids) -> Flags:
        """Return which of these samples have a window.

        Raises:
            FormatError: a row of a window is missing.
        """
        kept = np.zeros(len(ids), np.bool_)
        for number, mine, own in self._of_parts(ids):
            kept[mine] = self._parts[number].begins_window(own)
        return kept

    def per_run_sampler(self, ids: Ids, shuffle: bool) -> PerRunSampler:
        """Return the order of ``Windows.per_run``; ``ids``: the sample at each place of the dataset."""
        assert self.windows.per_run is not None
        runs, rows = np.empty(len(ids), np.int64), np.empty(len(ids), np.int64)
        first = 0
        for number, mine, own in self._of_parts(ids):
            table = self._parts[number].runs
            rows[mine] = table.places_of(own)
            runs[mine] = first + table.runs_at(rows[mine])
            first += len(table.begins) - 1
        order = np.lexsort((rows, runs))
        _, begins = np.unique(runs[order], return_index=True)
        begins = np.append(begins, len(ids)).astype(np.int64)
        return PerRunSampler(order.astype(np.int64), begins, self.windows.per_run, shuffle)


def windows_of(dataset: Any, windows: Windows) -> tuple[WindowPlan, Ids | None]:
    """Plan the windows of a packed dataset.

    Returns:
        The plan, and the places of the dataset's samples that have a window; None: all have one.

    Raises:
        ValueError: see :class:`WindowPlan`; no sample has a window; or some have none in a mix by weights.
        FormatError: a row of a window is missing.
    """
    plan = WindowPlan(dataset, windows)
    ids = ids_of(dataset)
    kept = plan.begins_window(ids)
    if kept.all():
        return plan, None
    if not kept.any():
        raise ValueError(
            f"No sample of {dataset!r} has a whole window. Found: {windows!r}. Take shorter offsets, or "
            "leave drop_short out."
        )
    if isinstance(dataset, MixedFiles):
        raise ValueError(
            "The weights of a mix count all samples, and Windows leaves some out by stride or drop_short. "
            f"Found: {windows!r}. Leave these out, or join the sets by a torch ConcatDataset."
        )
    # A place of a packed set is a sample id, also where samples were dropped.
    return plan, ids[kept] if isinstance(dataset, PackedFiles) else np.flatnonzero(kept)


def ids_of(dataset: Any) -> Ids:
    """Return the sample id at each place of a dataset."""
    ids: Sequence[int] | Ids | None = getattr(dataset, "sample_ids", None)
    return np.arange(dataset.num_ids, dtype=np.int64) if ids is None else np.asarray(ids, np.int64)
