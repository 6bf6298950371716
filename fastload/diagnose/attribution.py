"""Where the time of a watched loop goes: a profile's ticks, summed by kind of work and by line."""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from fastload.diagnose.sampling import FAULT, RUNNING, Seen
from fastload.diagnose.spots import Spot

# ---- System calls -----------------------------------------------------------------------------------

_CALLS = {
    "x86_64": {
        "open": (2, 4, 5, 6, 21, 78, 89, 217, 257, 262, 269, 332),
        "read": (0, 8, 17, 19, 40, 295, 327),
        "network": (7, 23, 42, 43, 45, 47, 232, 270, 271, 281, 288, 299),
        "lock": (72, 73, 202, 220),
        "sleep": (35, 230),
        "write": (1, 18, 20, 26, 74, 75, 77, 82, 87, 264, 296, 316),
    },
    "aarch64": {
        "open": (48, 56, 61, 78, 79, 80, 291),
        "read": (62, 63, 65, 67, 69, 71),
        "network": (72, 73, 202, 203, 207, 212, 22, 242, 243),
        "lock": (25, 32, 98, 192),
        "sleep": (101, 115),
        "write": (64, 66, 68, 70, 82, 83, 84, 276),
    },
}
#: What a thread waits for, by the system call's number: "open", "read", "network", "lock", "sleep", "write".
WAITS: Mapping[int, str] = {
    number: name for name, calls in _CALLS.get(os.uname().machine, {}).items() for number in calls
}

# ---- Summing ----------------------------------------------------------------------------------------

_SAMPLES = ("sample", "collate", "passing")
_MAKES = (
    "python",
    "transform",
    "decode",
    "video",
    "reading",
    "processor",
    "lock",
    "sleep",
    "collate",
    "shared-memory",
)

#: Kinds of work (see :class:`~fastload.diagnose.spots.Spot`) in words.
WORDS: Mapping[str, str] = {
    "reading": "reading",
    "decode": "decoding",
    "video": "decoding video",
    "python": "Python code",
    "transform": "transforms",
    "processor": "a model's processor",
    "lock": "waiting for a lock",
    "sleep": "sleeping",
    "collate": "collating",
    "shared-memory": "into shared memory",
    "pickling": "pickling",
    "starting": "starting workers",
    "step": "the step",
    "sync": "reading values back",
    "logging": "logging and saving",
    "copies": "copies to the device",
    "feed": "a repeated batch",
    "waiting": "waiting",
}


@dataclass(frozen=True)
class Place:
    """A line of the user's code, or a function of a library that no line of the user's has called.

    Args:
        kind: of work there; see :class:`~fastload.diagnose.spots.Spot`.
        spot: one of those that were seen there.
        share: of the time of those who make samples, or of the loop's time outside ``next()``.
    """

    kind: str
    spot: Spot
    share: float

    @property
    def where(self) -> str:
        """File and line; the function of a library, if there is none."""
        spot = self.spot
        if spot.line:
            return f"{_name_of_file(spot.file)} line {spot.line}"
        return f"{spot.library}'s {spot.function}" if spot.library else spot.function

    def __str__(self) -> str:
        return f"{self.where} (`{self.spot.text}`)" if self.spot.text else self.where


def _name_of_file(file: str) -> str:
    if "ipykernel" in file or file.startswith("<ipython"):
        return "a notebook's cell,"
    return os.path.basename(file)


@dataclass(frozen=True)
class Attribution:
    """Shares of time, from ticks.

    Args:
        seconds: for which the loop was seen.
        ticks: of the loop's thread.
        loop: share of the loop's time by kind: those of its step, "waiting", "starting", "passing", and those
            of the samples, if the loop's thread makes them.
        makers: share of the makers' time at work by kind. Makers are worker processes, or the loop's thread.
        busy: share of the workers' time in which they have work; 1 without workers.
        waits: share of the makers' time at work in which they wait, by what for; without "run".
        places: lines of the makers, the greatest share first.
        steps: lines of the step, likewise.
        pictures: the time-weighted count of decoded pictures by format, width, height and file name.
        containers: how arrays are stored that were read.
        bins: for a picture of the timeline: process, begin, end, and its shares by kind.
        workers: worker processes that were seen.
    """

    seconds: float = 0.0
    ticks: int = 0
    loop: Mapping[str, float] = field(default_factory=dict)
    makers: Mapping[str, float] = field(default_factory=dict)
    busy: float = 1.0
    waits: Mapping[str, float] = field(default_factory=dict)
    places: tuple[Place, ...] = ()
    steps: tuple[Place, ...] = ()
    pictures: Mapping[tuple[str, int, int, str], int] = field(default_factory=dict)
    containers: tuple[str, ...] = ()
    bins: tuple[tuple[str, float, float, Mapping[str, float]], ...] = ()
    workers: int = 0

    def place(self, *kinds: str) -> Place | None:
        """Return the line with the greatest share among these kinds; None if there is none."""
        return next((place for place in self.places if place.kind in kinds), None)

    def step_place(self, *kinds: str) -> Place | None:
        """Return the line of the step with the greatest share among these kinds."""
        return next((place for place in self.steps if place.kind in kinds), None)

    def share(self, *kinds: str) -> float:
        """Return the share of the makers' time at work that these kinds have."""
        return sum(self.makers.get(kind, 0.0) for kind in kinds)


def attributed(seen: Sequence[Seen], begin: float, end: float, at_work: float = 1.0) -> Attribution:
    """Sum what was seen.

    Args:
        seen: by the profile.
        begin, end: seconds of ``time.monotonic()``; what lies outside is left out.
        at_work: share of the time that threads had a CPU when they wanted one. A thread that waits for a CPU
            looks as if it ran, so ticks of running threads count only so much: then shares are those of a
            machine where nothing else runs.
    """
    inside = [each for each in seen if each.end > begin and each.begin < end]
    main = [each for each in inside if each.process == "main"]
    workers = [each for each in inside if each.process != "main"]
    loop = _by_spot(main, at_work)
    made = _by_spot(workers or main, at_work)
    total = sum(loop.values())
    making = {at: count for at, count in made.items() if at[0].part in _SAMPLES and at[1] != "waiting"}
    sum_made = sum(making.values())
    own = sum(count for (thread, spot, _), count in _ticks(workers) if not thread and spot.part != "starting")
    idle = sum(count for (thread, spot, _), count in _ticks(workers) if not thread and spot.part == "idle")
    pictures: Counter[tuple[str, int, int, str]] = Counter()
    containers: Counter[str] = Counter()
    for each in inside:
        pictures.update(each.pictures)
        containers.update(each.containers)
    return Attribution(
        seconds=max((each.end for each in main), default=begin) - begin,
        ticks=int(total),
        loop=_shares(
            ((spot.part if spot.part in ("waiting", "starting", "feed") else kind), count)
            for (spot, kind, _), count in loop.items()
        ),
        makers=_shares((kind, count) for (_, kind, _), count in making.items()),
        busy=1 - idle / own if own else 1.0,
        waits=_waits(making, sum_made),
        places=_places(making, sum_made),
        steps=_places({at: count for at, count in loop.items() if at[0].part == "loop"}, total),
        pictures=pictures,
        containers=tuple(name for name, _ in containers.most_common()),
        bins=tuple(_bin(each) for each in inside),
        workers=len({each.process for each in workers}),
    )


_KeyT = TypeVar("_KeyT")
_At = tuple[Spot, str, int]  # a spot, its kind by what the thread waited for, and the system call


def kind_of(spot: Spot, state: int) -> str:
    """Return the kind of work, when what the thread waits for is taken into account."""
    waits = WAITS.get(state, "")
    if spot.part == "passing" and state != RUNNING:
        return "waiting"  # for the other process
    if spot.kind == "lock":
        return "lock" if waits == "lock" else "python"
    if spot.part not in ("sample", "collate") or spot.kind not in _MAKES:
        return spot.kind
    if waits in ("open", "read", "network") or state == FAULT:
        return "reading"
    return "sleep" if waits == "sleep" and spot.part == "sample" else spot.kind


def _ticks(seen: Iterable[Seen]) -> Iterable[tuple[tuple[str, Spot, int], int]]:
    for each in seen:
        yield from each.ticks.items()


def _by_spot(seen: Iterable[Seen], running: float) -> dict[_At, float]:
    """Sum ticks; those of running threads count ``running``.

    A thread that passes batches counts only while it runs, since it does so beside the main one.
    """
    counts: dict[_At, float] = defaultdict(float)
    for (thread, spot, state), count in _ticks(seen):
        if not thread or state == RUNNING or spot.part != "passing":
            counts[spot, kind_of(spot, state), state] += count * (running if state == RUNNING else 1.0)
    return counts


def _shares(rows: Iterable[tuple[str, float]]) -> dict[str, float]:
    counts: dict[str, float] = defaultdict(float)
    for kind, count in rows:
        counts[kind] += count
    total = sum(counts.values())
    return {kind: counts[kind] / total for kind in _descending(counts)} if total else {}


def _descending(counts: Mapping[_KeyT, float]) -> list[_KeyT]:
    return sorted(counts, key=lambda key: -counts[key])


def _waits(counts: Mapping[_At, float], total: float) -> dict[str, float]:
    found: dict[str, float] = defaultdict(float)
    for (_, kind, state), count in counts.items():
        name = "fault" if state == FAULT else WAITS.get(state, "")
        # Elsewhere a wait for a lock is one for the GIL or of a library's own threads, and so on.
        if name and kind in ("reading", "sleep", "lock"):
            found[name] += count
    return {name: count / total for name, count in found.items()} if total else {}


def _places(counts: Mapping[_At, float], total: float) -> tuple[Place, ...]:
    """Return the lines by their share; the spot with the most ticks stands for its line."""
    lines: dict[tuple[str, str, int, str], float] = defaultdict(float)
    spots: dict[tuple[str, str, int, str], dict[Spot, float]] = {}
    for (spot, kind, _), count in counts.items():
        key = (kind, spot.file, spot.line, "" if spot.line else f"{spot.library}.{spot.function}")
        lines[key] += count
        of_line = spots.setdefault(key, defaultdict(float))
        of_line[spot] += count
    return tuple(Place(key[0], _descending(spots[key])[0], lines[key] / total) for key in _descending(lines))


def _bin(seen: Seen) -> tuple[str, float, float, Mapping[str, float]]:
    rows = (
        ("waiting" if spot.part in ("idle", "waiting") else kind_of(spot, state), count)
        for (thread, spot, state), count in seen.ticks.items()
        if not thread
    )
    return seen.process, seen.begin, seen.end, _shares(rows)
