"""Runs of a set: which samples belong together, in which order, and when; ``runs.fli`` keeps them."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt

from fastload._native import _C
from fastload.errors import FormatError
from fastload.sample.fields import Label, Scalar, Text, words_of
from fastload.shard.index import RECORD, write_paged

if TYPE_CHECKING:
    from fastload.sample.schema import Field, Schema

Ids = npt.NDArray[np.int64]

# ---- What orders a set: ``BY:ORDER:TIME`` ------------------------------------------------------------

KEY = "/"  # in place of a field: the sample's key
NO_RUNS = "none"  # in place of all words: no runs, though the source has some
PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}  # of the units that a time may have
_FPS = re.compile(r"(\d+(?:\.\d+)?)fps")
_ARROW = re.compile(r"(?:timestamp|duration|time32|time64)\[(s|ms|us|ns)\b")


@dataclass(frozen=True)
class RunsSpec:
    """Which fields of a set group its samples into runs, order them, and tell their time.

    Args:
        by: the field whose values a run's samples share (integers, a label or a text); "/": the folder of
            their keys.
        order: the field that orders a run's samples; "/": the last number in the file name of their keys, or
            the name itself if none has a number.
        time: the field that tells their time; None: none does.
        unit: seconds of one unit of that field. None: not said, which :meth:`fitted` settles.
        fps: samples of a run in a second, in place of a field; None: there is no such rate.
    """

    by: str
    order: str = KEY
    time: str | None = None
    unit: float | None = None
    fps: float | None = None

    @classmethod
    def of(cls, words: str) -> RunsSpec:
        """Parse ``BY[:ORDER[:TIME]]``; TIME is ``FIELD``, ``FIELD@UNIT`` (s, ms, us, ns) or ``30fps``.

        Raises:
            ValueError: the words say something else.
        """
        by, order, time, *more = [*words.split(":"), "", ""][: max(3, words.count(":") + 1)]
        legal = (
            "runs are BY[:ORDER[:TIME]]: BY and ORDER are fields or '/' (the key), and TIME is a field, "
            f"FIELD@UNIT ({', '.join(PER_SECOND)}) or a rate such as 30fps"
        )
        if more or not by or time == KEY:
            raise ValueError(f"{legal}. Found: {words!r:.200}.")
        rate = _FPS.fullmatch(time)
        if rate is not None:
            if not 0 < float(rate[1]) < 1e6:
                raise ValueError(f"{legal}, above 0 and below 1000000. Found: {words!r:.200}.")
            return cls(by, order or KEY, fps=float(rate[1]))
        name, mark, unit = time.rpartition("@")
        if name and mark and unit in PER_SECOND:
            return cls(by, order or KEY, name, 1 / PER_SECOND[unit])
        return cls(by, order or KEY, time or None)

    def __str__(self) -> str:
        """Return the words for it."""
        if self.fps is not None:
            return f"{self.by}:{self.order}:{self.fps:.15g}fps"
        if self.time is None:
            return f"{self.by}:{self.order}"
        return f"{self.by}:{self.order}:{self.time}" + ("" if self.unit is None else f"@{self._unit}")

    @property
    def _unit(self) -> str:
        return next(name for name, count in PER_SECOND.items() if 1 / count == self.unit)

    def fitted(self, schema: Schema) -> RunsSpec:
        """Return the spec for these fields, with what its words left open.

        Without a TIME, an ORDER of floats (seconds), or of a table's times, tells the time, too.

        Raises:
            ValueError: a field is missing, or of a kind that says nothing here; the message names it.
        """
        self._check(schema, "BY", self.by, _groups, "a scalar of integers, a label or a text")
        self._check(schema, "ORDER", self.order, _orders, "a scalar of integers or floats")
        if self.fps is not None:
            return self
        if self.time is None:
            if self.order == KEY:
                return self
            unit = _unit_of(schema[self.order])
            return self if unit is None else replace(self, time=self.order, unit=unit)
        self._check(schema, "TIME", self.time, _orders, "a scalar of integers or floats")
        known = _unit_of(schema[self.time])
        if known is None and self.unit is None:
            raise ValueError(
                f"runs {str(self)!r}: the field {self.time!r} is {words_of(schema[self.time].kind)}, and "
                f"nothing says of which unit. Write {self.time}@ and one of {', '.join(PER_SECOND)}."
            )
        of_table = _arrow_unit(schema[self.time])
        if of_table is not None and self.unit not in (None, of_table):
            raise ValueError(
                f"runs {str(self)!r}: the field {self.time!r} was a column of "
                f"{schema[self.time].source['arrow']}. Leave out its unit, which that says."
            )
        return replace(self, unit=known if self.unit is None else self.unit)

    def _check(
        self, schema: Schema, part: str, name: str, is_legal: Callable[[Field], bool], legal: str
    ) -> None:
        if name == KEY:
            return
        if name not in schema:
            raise ValueError(
                f"runs {str(self)!r}: there is no field {name!r}, which is to be {part}. There are: "
                f"{', '.join(schema.names)}; and '/' is the key."
            )
        if not is_legal(schema[name]):
            raise ValueError(
                f"runs {str(self)!r}: {part} must be {legal}, or '/' (the key)."
                f" Found: {name!r}, {words_of(schema[name].kind)}."
            )

    def to_json(self) -> dict[str, Any]:
        """Return it as the manifest has it."""
        body: dict[str, Any] = {"by": self.by, "order": self.order}
        if self.time is not None:
            body |= {"time": self.time} | ({} if self.unit is None else {"unit": self._unit})
        if self.fps is not None:
            body["fps"] = int(self.fps) if self.fps.is_integer() else self.fps
        return body

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> RunsSpec:
        """Make it of what :meth:`to_json` returned.

        Raises:
            ValueError: the object breaks a rule of FORMAT.md, which the message names.
        """
        by, order, time, unit, fps = (body.get(name) for name in ("by", "order", "time", "unit", "fps"))
        names = [by, order, *([] if time is None else [time])]
        has_rate = type(fps) in (int, float) and fps > 0  # type: ignore[operator]
        if (
            not all(type(name) is str and name for name in names)
            or (unit is not None and unit not in PER_SECOND)
            or (unit is None) != (time is None)
            or not (fps is None or (has_rate and time is None))
        ):
            raise ValueError(
                "'runs' must have 'by' and 'order', and may have 'time' with its 'unit' (one of "
                f"{', '.join(PER_SECOND)}) or 'fps'. Found: {body!r:.200}."
            )
        rate = None if fps is None else float(fps)
        return cls(str(by), str(order), time, None if unit is None else 1 / PER_SECOND[unit], rate)

    def id_of(self, dataset_id: str) -> str:
        """Return the id of a set with these runs, 32 hex digits; ``dataset_id``: without them."""
        runs = json.dumps(self.to_json(), ensure_ascii=True, sort_keys=True, separators=(",", ":"))
        return hashlib.blake2b(f"{dataset_id} in runs {runs}".encode(), digest_size=16).hexdigest()


def _groups(field: Field) -> bool:
    kind = field.kind
    return isinstance(kind, Label | Text) or (isinstance(kind, Scalar) and kind.item_dtype.kind in "iu")


def _orders(field: Field) -> bool:
    return isinstance(field.kind, Scalar) and field.kind.item_dtype.kind in "iuf"


def _arrow_unit(field: Field) -> float | None:
    """Return seconds of one unit of a field that was a table's column of times; None: it was not."""
    said = field.source.get("arrow") if isinstance(field.source, Mapping) else None
    found = _ARROW.match(said) if isinstance(said, str) else None
    return None if found is None else 1 / PER_SECOND[found[1]]


def _unit_of(field: Field) -> float | None:
    """Return seconds of one unit of a field, if its kind or its source says that it is a time."""
    return 1.0 if field.kind.item_dtype.kind == "f" else _arrow_unit(field)


@dataclass(frozen=True)
class RunsFile:
    """The manifest's ``runs``: what orders the set, and the file of its runs.

    Args:
        file: its name in the dataset's folder.
        size: bytes of the file.
        digest: CRC-32C of its header and page table.
        count: runs.
        spec: the fields, as :meth:`RunsSpec.fitted` returns them.
    """

    file: str
    size: int
    digest: int
    count: int
    spec: RunsSpec

    def to_json(self) -> dict[str, Any]:
        """Return it as the manifest has it."""
        facts = {"file": self.file, "size": self.size, "digest": self.digest, "count": self.count}
        return facts | self.spec.to_json()

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> RunsFile:
        """Make it of a manifest's entry.

        Raises:
            ValueError: the entry breaks a rule of FORMAT.md, which the message names.
        """
        file, *numbers = (body.get(name) for name in ("file", "size", "digest", "count"))
        if type(file) is not str or not _NAME.fullmatch(file):
            raise ValueError(f"'runs' must name runs.fli or runs-gN.fli. Found: {body!r:.200}.")
        if not all(type(number) is int and number >= 0 for number in numbers):
            raise ValueError(f"'runs' must have 'size', 'digest' and 'count' >= 0. Found: {body!r:.200}.")
        size, digest, count = numbers
        return cls(file, int(size or 0), int(digest or 0), int(count or 0), RunsSpec.from_json(body))


# ---- Runs of an opened set --------------------------------------------------------------------------


class Tables(Protocol):
    """What runs are made of: a :class:`~fastload.shard.dataset.PackedFiles`, or its files before there is a
    manifest."""

    @property
    def schema(self) -> Schema:
        """The fields."""

    @property
    def index(self) -> Any:
        """The ``_C.Index``, which has labels and keys."""

    @property
    def columns(self) -> Mapping[str, Any]:
        """The other fields' ``_C.Column`` by name."""

    @property
    def num_ids(self) -> int:
        """Sample ids, with those that were dropped."""

    @property
    def dropped(self) -> Ids:
        """The samples that were dropped, ascending."""


class Runs:
    """The runs of a set: its samples in *places* ``[0, len(ids))``, run behind run, each in its order.

    Args:
        spec: what made them.
        begins: (r + 1,) places at which runs begin, and the end.
        ids: (n,) sample id at each place; None: place and sample id are the same.
        files: the set.
        rows: (n,) number of each place's row in its run, by which a rate tells the time; None: they are
            counted.
    """

    def __init__(
        self, spec: RunsSpec, begins: Ids, ids: Ids | None, files: Tables, rows: Ids | None = None
    ) -> None:
        self.spec, self.begins, self.ids = spec, begins, ids
        self._files, self._rows = files, rows

    def __len__(self) -> int:
        """The number of runs."""
        return len(self.begins) - 1

    def __repr__(self) -> str:
        return f"Runs({str(self.spec)!r}, {len(self)} runs of {self.begins[-1]} samples)"

    @cached_property
    def _places(self) -> Ids | npt.NDArray[np.int32]:
        assert self.ids is not None
        count = self._files.num_ids
        places = np.full(count, -1, np.int32 if count < 2**31 else np.int64)
        places[self.ids] = np.arange(len(self.ids))
        return places

    def places_of(self, ids: Ids) -> Ids:
        """Return the places of samples, int64 in the shape of ``ids``; -1: in no run, because it was dropped
        or came in a later generation."""
        count = int(self.begins[-1]) if self.ids is None else self._files.num_ids
        there = (ids >= 0) & (ids < count)
        if self.ids is None:
            return np.where(there, ids, -1)
        return np.where(there, self._places[np.where(there, ids, 0)], -1).astype(np.int64)

    def ids_at(self, places: Ids) -> Ids:
        """Return the sample ids at places, int64."""
        return places if self.ids is None else self.ids[places]

    def ids_in(self, runs: Iterable[int]) -> Ids:
        """Return the sample ids of some runs, by their numbers: run by run, in order."""
        places = [np.arange(self.begins[run], self.begins[run + 1], dtype=np.int64) for run in runs]
        return self.ids_at(np.concatenate(places)) if places else np.empty(0, np.int64)

    def runs_at(self, places: Ids) -> Ids:
        """Return the number of the run of each place, int64 from 0."""
        return np.searchsorted(self.begins, places, "right").astype(np.int64) - 1

    def times_at(self, places: Ids) -> npt.NDArray[np.float64] | None:
        """Return the time of each place in seconds, float64; None: nothing tells it."""
        spec = self.spec
        if spec.fps is not None:
            rows = places - self.begins[self.runs_at(places)] if self._rows is None else self._rows[places]
            return rows / spec.fps
        if spec.time is None or spec.unit is None:
            return None
        values = _numbers(self._files, spec.time, self.ids_at(places).ravel()).reshape(places.shape)
        return values.astype(np.float64) / round(1 / spec.unit)

    def name_of(self, run: int) -> str:
        """Return what a run's samples share, for messages: ``episode_index 7``, ``folder 'seq01'``."""
        return _run_name(self._files, self.spec, int(self.ids_at(self.begins[run : run + 1])[0]))

    def order_of(self, place: int) -> str:
        """Return what orders the sample at a place, for messages: ``frame_index 12``, ``file '012.jpg'``."""
        return _order_name(self._files, self.spec, int(self.ids_at(np.array([place]))[0]))

    @classmethod
    def seen(cls, spec: RunsSpec, begins: Ids, ids: Ids | None, files: Tables) -> Runs:
        """Return a table of all samples of a set's files as one generation sees it: without samples that were
        dropped, or that came later."""
        if not len(files.dropped) and begins[-1] == files.num_ids:
            return cls(spec, begins, ids, files)
        all_ids = np.arange(begins[-1]) if ids is None else ids
        begins, all_ids = _kept(begins, all_ids, all_ids < files.num_ids)
        rows = None
        if spec.fps is not None and len(files.dropped):  # those that remain keep their times
            rows = _rows(begins, [each[all_ids] for each in _order_values(files, spec.order)])
        there = ~np.isin(all_ids, files.dropped)
        begins, all_ids = _kept(begins, all_ids, there)
        in_order = bool((all_ids == np.arange(len(all_ids))).all())
        return cls(spec, begins, None if in_order else all_ids, files, None if rows is None else rows[there])


def _kept(begins: Ids, ids: Ids, there: npt.NDArray[np.bool_]) -> tuple[Ids, Ids]:
    """Return runs without the places where ``there`` is false, and without those that then have none."""
    ends = np.append(0, np.cumsum(there, dtype=np.int64))
    return np.unique(np.append(0, ends[begins])), ids[there]


def _rows(begins: Ids, orders: list[npt.NDArray[Any]]) -> Ids:
    """Return the number of each place's row in its run; samples of the same order are one row, as one of them
    took the place of a dropped one."""
    new = np.ones(begins[-1], np.bool_)
    new[1:] = np.any([each[1:] != each[:-1] for each in orders], axis=0)
    new[begins[:-1]] = True
    numbers = np.cumsum(new, dtype=np.int64)
    rows: Ids = numbers - np.repeat(numbers[begins[:-1]], np.diff(begins))
    return rows


def runs_of(files: Tables, spec: RunsSpec) -> Runs:
    """Compute the runs of a set from its columns and keys.

    Args:
        files: the set.
        spec: as words say it, or fitted.

    Raises:
        ValueError: a field is missing or of a wrong kind; two samples of a run have the same order, or no
            value; a time does not increase. The message names samples and run.
    """
    spec = spec.fitted(files.schema)
    return Runs.seen(spec, *table_of(files, spec), files)


# ---- Computing them ---------------------------------------------------------------------------------
# Runs are numbered by their first samples, so those of an earlier generation come first.

_CHUNK = 1 << 16  # samples whose values are in memory at a time
_ESCAPED = 128  # the flag of a percent-encoded key
_NUMBER = re.compile(rb"(\d+)(?:\.(\d+))?\D*\Z")  # the last one in a name; with what a point divides from it
_NAME = re.compile(r"runs(-g[1-9]\d{0,8})?\.fli")


def table_of(files: Tables, spec: RunsSpec) -> tuple[Ids, Ids | None]:
    """Return begins and ids (see :class:`Runs`) of all samples, of dropped ones, too; ``spec``: fitted.

    Raises:
        ValueError: as :func:`runs_of`; dropped samples are not looked at.
    """
    alive = np.ones(files.num_ids, np.bool_)
    alive[files.dropped] = False
    groups = _group_numbers(files, spec.by, alive)
    names = _names(files, alive) if spec.order == KEY else None
    orders = names.values if names is not None else _order_values(files, spec.order, alive)
    ids = np.lexsort([*orders[::-1], groups]).astype(np.int64)
    begins = np.append(0, np.cumsum(np.bincount(groups), dtype=np.int64))
    seen = ids[alive[ids]]
    same_run = groups[seen[1:]] == groups[seen[:-1]]
    same = same_run & np.all([each[seen[1:]] == each[seen[:-1]] for each in orders], axis=0)
    if same.any():
        a, b = _pair(seen, same)
        what = "one number in their file names" if spec.order == KEY else _order_name(files, spec, a)
        raise ValueError(
            f"runs {str(spec)!r}: two samples of {_run_name(files, spec, a)} have {what}: "
            f"{_sample(files, a)} and {_sample(files, b)}. Each sample of a run has its own: name other "
            "fields, or leave one of the two out."
        )
    if names is not None:
        _check_names(files, spec, seen, same_run, names)
    if spec.time is not None:
        _check_times(files, spec, seen, same_run)
    return begins, None if (ids[1:] > ids[:-1]).all() else ids


def gaps_in(runs: Runs, files: Tables) -> str:
    """Return where samples are missing, by integers that order them, though a rate tells their time; "":
    nowhere that anybody could know."""
    found = gaps_of(runs, files) if runs.spec.fps is not None else ""
    if not found:
        return ""
    return (
        f"{found}. A rate ({runs.spec.fps:.15g}fps) counts the samples that are there, so those behind a gap "
        "come too early. Where that matters, give TIME as a field."
    )


def gaps_of(runs: Runs, files: Tables) -> str:
    """Return in words where samples are missing, by integers that order them; "": nowhere that anybody could
    know."""
    spec = runs.spec
    numbers, *rest = _order_values(files, spec.order)
    if numbers.dtype.kind not in "iu" or any(each.any() for each in rest):
        return ""
    values = numbers[runs.ids_at(np.arange(runs.begins[-1]))]
    of = np.repeat(np.arange(len(runs)), np.diff(runs.begins))
    at = np.flatnonzero(of[1:] == of[:-1])
    steps, of = values[at + 1] - values[at], of[at]
    least = np.full(len(runs), np.iinfo(steps.dtype).max, steps.dtype)
    np.minimum.at(least, of, steps)
    even = np.bincount(of, steps % least[of] != 0, len(runs)) == 0  # others are no counts
    gaps = np.flatnonzero((steps > least[of]) & even[of])
    if not len(gaps):
        return ""
    first, count = int(at[gaps[0]]), len(np.unique(of[gaps]))
    return (
        f"{count} of {len(runs)} runs have gaps: in {runs.name_of(int(of[gaps[0]]))}, {runs.order_of(first)} "
        f"is followed by {runs.order_of(first + 1)}"
    )


def _check_times(files: Tables, spec: RunsSpec, seen: Ids, same_run: npt.NDArray[np.bool_]) -> None:
    assert spec.time is not None
    times = _numbers(files, spec.time, np.arange(files.num_ids))
    _require(files, f"runs {str(spec)!r}: {spec.time!r}", seen[~_finite(times[seen])], "is no number")
    back = same_run & ~(times[seen[1:]] > times[seen[:-1]])
    if back.any():
        a, b = _pair(seen, back)
        raise ValueError(
            f"runs {str(spec)!r}: the time does not increase with the order in {_run_name(files, spec, a)}: "
            f"{spec.time} is {times[a]} at {_order_name(files, spec, a)} ({_sample(files, a)}), and "
            f"{times[b]} at {_order_name(files, spec, b)} ({_sample(files, b)}), which comes next. Mend the "
            "times, or leave TIME out."
        )


def _check_names(
    files: Tables, spec: RunsSpec, seen: Ids, same_run: npt.NDArray[np.bool_], names: _Names
) -> None:
    """Refuse names whose other numbers say another order than the last ones do, as dates and times may."""
    heads = names.head_of[seen]
    for at in np.flatnonzero(same_run & (heads[1:] != heads[:-1])).tolist():
        one, other = (names.heads[heads[place]] for place in (at, at + 1))
        if one + b"-" == other or other + b"-" == one:
            raise ValueError(
                f"runs {str(spec)!r}: the file names of {_sample(files, int(seen[at]))} and "
                f"{_sample(files, int(seen[at + 1]))} do not say whether '-' is a sign or a hyphen. Name a "
                "field as ORDER, or rename the files."
            )
        a, b = (re.split(rb"(\d+)", head) for head in (one, other))
        if a[::2] == b[::2] and [*map(int, a[1::2])] > [*map(int, b[1::2])]:
            raise ValueError(
                f"runs {str(spec)!r}: {_sample(files, int(seen[at]))} comes before "
                f"{_sample(files, int(seen[at + 1]))} by the last number in its file name, and behind it by "
                "those before that one. Name a field as ORDER, or rename the files."
            )


def _pair(seen: Ids, where: npt.NDArray[np.bool_]) -> tuple[int, int]:
    at = int(np.flatnonzero(where)[0])
    return int(seen[at]), int(seen[at + 1])


def _group_numbers(files: Tables, by: str, alive: npt.NDArray[np.bool_]) -> Ids:
    """Return the number of each sample's run, (n,)."""
    if by != KEY and files.schema[by].storage == "fixed":
        values = _numbers(files, by, np.arange(len(alive)))
        if isinstance(files.schema[by].kind, Label):
            _require(files, f"the label {by!r}", np.flatnonzero((values < 0) & alive), "is missing")
        _, first, groups = np.unique(values, return_index=True, return_inverse=True)
        ranks = np.empty(len(first), np.int64)
        ranks[np.argsort(first)] = np.arange(len(first))
        return ranks[groups]
    numbers: dict[bytes, int] = {}
    found = (numbers.setdefault(value, len(numbers)) for value in _texts(files, by, alive))
    return np.fromiter(found, np.int64, len(alive))


def _texts(files: Tables, by: str, alive: npt.NDArray[np.bool_]) -> Iterator[bytes]:
    if by == KEY:
        yield from (name.rpartition(b"/")[0] for name in _keys(files))
        return
    for start in range(0, len(alive), _CHUNK):
        data, ends = files.columns[by].gather(np.arange(start, min(start + _CHUNK, len(alive))))
        whole, places = data.tobytes(), ends.tolist()
        for i in range(len(places) - 1):
            value = whole[places[i] : places[i + 1]]
            if value == b"\xff" and alive[start + i]:
                _require(files, f"the text {by!r}", np.array([start + i]), "is missing")
            yield value


def _order_values(
    files: Tables, order: str, alive: npt.NDArray[np.bool_] | None = None
) -> list[npt.NDArray[Any]]:
    """Return what samples are ordered by, (n,) each, the first one deciding."""
    if order == KEY:
        return _names(files, alive).values
    values = _numbers(files, order, np.arange(files.num_ids))
    if alive is not None:
        _require(files, f"the order {order!r}", np.flatnonzero(alive & ~_finite(values)), "is no number")
    return [values]


@dataclass(frozen=True)
class _Names:
    """What the file names of keys say of their order.

    Args:
        values: the last number, and the digits behind its point, (n,) each; of names without a number their
            rank, and -1.
        heads: what is before the last number, of all names.
        head_of: (n,) which of them each name has.
    """

    values: list[npt.NDArray[Any]]
    heads: list[bytes]
    head_of: npt.NDArray[np.int32]


def _names(files: Tables, alive: npt.NDArray[np.bool_] | None) -> _Names:
    numbers, fractions = np.zeros((2, files.num_ids), np.int64)
    heads, head_of = {b"": 0}, np.zeros(files.num_ids, np.int32)
    plain: dict[int, bytes] = {}
    digits: dict[int, int] = {}  # a sample of each number of digits behind the point
    for sample, key in enumerate(_keys(files)):
        name = key.rpartition(b"/")[2]
        stem, point, suffix = name.rpartition(b".")
        found = _NUMBER.search(name if not point or suffix.isdigit() else stem)
        if found is None:
            plain[sample] = name
            continue
        whole, fraction = found.groups(b"")
        if int(whole) >= 2**63 or int(fraction or 0) >= 2**63:
            raise ValueError(
                f"the last number in the file name of {_sample(files, sample)} is above 2**63, so it cannot "
                "order the sample. Name a field as ORDER."
            )
        head = name[: found.start()]
        sign = -1 if head == b"-" else 1
        numbers[sample], fractions[sample] = sign * int(whole), sign * int(fraction or 0)
        head_of[sample] = heads.setdefault(b"" if head == b"-" else head, len(heads))
        digits.setdefault(len(fraction), sample)
    if plain and len(plain) < files.num_ids and alive is not None:
        without = np.array(sorted(plain), np.int64)
        _require(files, "the number in the file name", without[alive[without]], "is missing, others have one")
    if len(digits) > 1:
        a, b = list(digits.values())[:2]
        raise ValueError(
            f"the last numbers in file names have different numbers of digits behind a point: "
            f"{_sample(files, a)} and {_sample(files, b)}. 1.5 comes behind 1.25 as a number and before it "
            "as a count: name a field as ORDER."
        )
    if plain:
        fractions[:] = -1  # so that nobody takes the ranks for numbers
        ranks = {name: rank for rank, name in enumerate(sorted(set(plain.values())))}
        numbers[[*plain]] = [ranks[name] for name in plain.values()]
    return _Names([numbers, fractions], [*heads], head_of)


def _keys(files: Tables) -> Iterator[bytes]:
    """Yield each sample's key as it is in the source."""
    flags = files.index.records().view(RECORD)[:, 0]["flags"]
    for sample in range(files.num_ids):
        key = bytes(files.index.key(sample))
        yield unescaped(key) if flags[sample] & _ESCAPED else key


def unescaped(key: bytes) -> bytes:
    """Return the path of a percent-encoded key."""
    return re.sub(rb"%([0-9A-Fa-f]{2})", lambda match: bytes([int(match[1], 16)]), key)


def _numbers(files: Tables, field: str, ids: Ids) -> npt.NDArray[Any]:
    """Return a scalar's or label's values of samples, (n,) of its dtype."""
    schema = files.schema
    if schema.label_field is not None and schema.label_field.name == field:
        if len(ids) < files.num_ids // 8:
            some = b"".join(files.index.record(sample) for sample in ids.tolist())
            return np.frombuffer(some, RECORD)["label"]
        labels: npt.NDArray[Any] = files.index.records().view(RECORD)[:, 0]["label"][ids]
        return labels
    column, dtype = files.columns[field], schema[field].item_dtype
    parts = [column.gather(ids[at : at + _CHUNK])[0].view(dtype) for at in range(0, len(ids), _CHUNK)]
    return np.concatenate(parts) if parts else np.zeros(0, dtype)


def _finite(values: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    return np.isfinite(values) if values.dtype.kind == "f" else np.ones(len(values), np.bool_)


def _require(files: Tables, what: str, wrong: Ids, how: str) -> None:
    """Raise ValueError if there are samples whose value is wrong."""
    if len(wrong):
        more = f", and of {len(wrong) - 1} more" if len(wrong) > 1 else ""
        raise ValueError(
            f"{what} of {_sample(files, int(wrong[0]))}{more} {how}: it would have no place in a run. Mend "
            "or leave out these samples, or name another field."
        )


# ---- Names in messages ------------------------------------------------------------------------------


def _key(files: Tables, sample: int) -> str:
    return str(bytes(files.index.key(sample)).decode("utf-8", "backslashreplace"))


def _sample(files: Tables, sample: int) -> str:
    return f"{_key(files, sample)!r} (sample {sample})"


def _run_name(files: Tables, spec: RunsSpec, sample: int) -> str:
    if spec.by == KEY:
        return f"folder {_key(files, sample).rpartition('/')[0]!r}"
    return f"{spec.by} {_value(files, spec.by, sample)}"


def _order_name(files: Tables, spec: RunsSpec, sample: int) -> str:
    if spec.order == KEY:
        return f"file {_key(files, sample).rpartition('/')[2]!r}"
    return f"{spec.order} {_value(files, spec.order, sample)}"


def _value(files: Tables, name: str, sample: int) -> str:
    kind = files.schema[name].kind
    if isinstance(kind, Text):
        return repr(bytes(files.columns[name].value(sample)).decode("utf-8", "backslashreplace"))
    value = _numbers(files, name, np.array([sample]))[0]
    if isinstance(kind, Label) and 0 <= value < len(kind.classes):
        return repr(kind.classes[value])
    return str(value)


# ---- The file (layout: FORMAT.md) -------------------------------------------------------------------
# It has the frame of a field of 64-bit integers, so the core reads and checks it as one.

NAME = "runs.fli"
_MAGIC, _PAGE_BYTES = b"FLFIELD1", 16384


def runs_name(mark: str = "") -> str:
    """Return the file's name; ``mark``: "", or that of a generation."""
    return f"runs{mark}.fli"


def write_runs(path: Path, spec: RunsSpec, begins: Ids, ids: Ids | None) -> RunsFile:
    """Write the runs of all samples (see :class:`Runs`); the file gets its name when it is complete and on
    the device."""
    temporary = path.with_name(f".tmp-{path.name}")
    parts = [begins, *([] if ids is None else [ids])]
    try:
        fixed = (part.astype("<i8") for part in parts)
        write_paged(temporary, _MAGIC, fixed, spacing=8, page_bytes=_PAGE_BYTES)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
    digest = int(_C.Column(str(path), "fixed", 8).digest)
    return RunsFile(path.name, path.stat().st_size, digest, len(begins) - 1, spec)


def open_runs(path: Path, file: RunsFile, records: int) -> Any:
    """Open the file as a ``_C.Column``.

    Raises:
        FormatError, ChecksumError, ShardError: the file is damaged, another set's, or cannot be read.
    """
    column = _C.Column(str(path), "fixed", 8)
    counts = (file.count + 1, file.count + 1 + records)
    if column.digest != file.digest or len(column) not in counts:
        raise FormatError(
            f"{path} does not belong to this manifest: it has {len(column)} numbers and digest "
            f"{column.digest:#010x}, the manifest says {counts[0]} or {counts[1]}, and {file.digest:#010x}. "
            "Restore both files from the same pack."
        )
    return column


def read_runs(path: Path, file: RunsFile, records: int) -> tuple[Ids, Ids | None]:
    """Read begins and ids (see :class:`Runs`) of all ``records`` samples, checked.

    Raises:
        As :func:`open_runs`.
    """
    column = open_runs(path, file, records)
    numbers = column.gather(np.arange(len(column)))[0].view("<i8")
    begins, ids = numbers[: file.count + 1], numbers[file.count + 1 :]
    wrong = begins[0] != 0 or begins[-1] != records or (begins[1:] <= begins[:-1]).any()
    if wrong or (len(ids) and not 0 <= ids.min() <= ids.max() < records):
        raise FormatError(f"{path}: runs must begin in ascending places, and have ids below {records}.")
    return begins, ids if len(ids) else None
