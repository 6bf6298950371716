"""One scenario of bench_autotune.py in a process of its own: a sweep of fixed settings, then autotune.

python benchmarks/child.py doctor.autotune "one thread" --images FOLDER --work FOLDER
"""

from __future__ import annotations

import argparse
import json
import logging
import statistics
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from doctor.run import Loop, Step
from doctor.scenarios import SCENARIOS, Place, Scenario
from harness.rounds import skip
from harness.throttle import NoThrottle

from fastload.backends.options import default_prefetch
from fastload.prefetch.autotune import EXTRA_DEPTH

#: Of bench_doctor.py's, those that threads or prefetch could have to do with.
NAMES = (
    "slow step",
    "slow step, one thread",
    "one thread",
    "one thread and a step",
    "uneven pictures",
    "tiny batches",
    "a slow disk",
    "a CPU quota",
)
THREADS = (1, 2, 3)
CLOSE = 0.97  # of the best fixed setting's rate counts as reached
SMOOTH = 2.0  # seconds over which a rate is taken for that
WARM_UP = 0.4
PIECE = 0.25


@dataclass
class Forced(Place):
    """A place whose loaders have these options, whatever the scenario asks for."""

    forced: dict[str, Any] = field(default_factory=dict)

    def loader(self, name: str, **options: Any) -> Any:
        """As in any place, with the options."""
        return super().loader(name, **options | self.forced)


def _other_loader(place: Place) -> AbstractContextManager[None]:
    """A second training job in the same process, which takes its share of the threads."""

    @contextmanager
    def running() -> Iterator[None]:
        ended = threading.Event()
        loop = Loop(Place(place.images, place.work).loader("plain"), Step(100, 0.0))

        def go_on() -> None:
            while not ended.is_set():
                loop.run(0.2, 0.0)

        thread = threading.Thread(target=go_on)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()
            loop.close()

    return running()


ALL = (
    *(scenario for scenario in SCENARIOS if scenario.name in NAMES),
    Scenario("too many threads", (), "", lambda p: p.loader("plain", num_workers=8)),
    Scenario("two loaders", (), "", lambda p: p.loader("plain", num_workers=1), trouble=_other_loader),
)


class Changes(logging.Handler):
    """What autotune says it did: when, and the setting since then."""

    def __init__(self) -> None:
        super().__init__()
        self._begin = 0.0
        self.found: list[dict[str, Any]] = []

    def begin(self) -> None:
        """Times are counted from now."""
        self._begin = time.perf_counter()

    def emit(self, record: logging.LogRecord) -> None:
        """Called by the logger."""
        if not record.msg.startswith("autotune") or not isinstance(record.args, tuple):
            return
        why, window, _, threads, _, prefetch = record.args
        self.found.append(
            {
                "at": time.perf_counter() - self._begin,
                "threads": threads,
                "prefetch": prefetch,
                "why": f"{why} ({window})",
            }
        )


def reached(pieces: Sequence[tuple[float, float]], wanted: float) -> float | None:
    """Seconds until the rate, over SMOOTH seconds, is ``wanted``; None: it never is.

    ``pieces``: (seconds at its end, samples a second) of each.
    """
    begin = 0.0
    for end, _ in pieces:
        inside = [rate for other, rate in pieces if begin < other <= begin + SMOOTH]
        if begin + SMOOTH <= pieces[-1][0] and statistics.mean(inside) >= wanted:
            return begin
        begin = end
    return None


class Judge:
    """Runs a scenario's loops."""

    def __init__(self, scenario: Scenario, place: Place, seconds: float) -> None:
        self._scenario = scenario
        self._place = place
        self._seconds = seconds
        self._step = Step(scenario.step_rate, scenario.compute)

    def loop(self, **forced: Any) -> Loop:
        """A loop whose loader has these options."""
        place = Forced(self._place.images, self._place.work, self._place.url, forced)
        return Loop(self._scenario.before(place), self._step)

    def started(self) -> Loop:
        """A loop as the scenario has it, whose loader has its threads."""
        self._scenario.prepare(self._place)
        loop = self.loop()
        loop.run(0.0, 0.01)
        return loop

    def rate(self, loop: Loop, seconds: float) -> float:
        """Samples a second of a loop that may have rested meanwhile."""
        self._scenario.prepare(self._place)
        return loop.run(seconds, WARM_UP)

    def sweep(self, settings: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        """The rate of each fixed setting."""
        rows = []
        for setting in settings:
            loop = self.loop(**setting)
            rows.append({**setting, "rate": self.rate(loop, self._seconds)})
            loop.close()
        return rows

    def trace(self, loop: Loop, seconds: float) -> list[tuple[float, float]]:
        """Of a loop that begins now: seconds since then, and samples a second in short pieces."""
        self._scenario.prepare(self._place)
        begin, pieces = time.perf_counter(), [(0.0, 0.0)]
        while pieces[-1][0] < seconds:
            rate = loop.run(PIECE, 0.0)
            pieces.append((time.perf_counter() - begin, rate))
        return pieces[1:]

    def in_turns(self, loops: Sequence[Loop], rounds: int) -> list[float]:
        """The median rate of each of the loops, which all stay open."""
        found: list[list[float]] = [[] for _ in loops]
        for _ in range(rounds):
            for loop, rates in zip(loops, found, strict=True):
                rates.append(self.rate(loop, self._seconds))
        return [statistics.median(rates) for rates in found]


def grid(loader: Any) -> list[dict[str, int]]:
    """The fixed settings that autotune is held against: prefetch as it begins and as deep as it may get."""
    own = loader.prefetch_factor or default_prefetch(loader.num_workers, loader.batch_size)
    return [
        {"num_workers": threads, "prefetch_factor": depth}
        for depth in (own, own + EXTRA_DEPTH)
        for threads in THREADS
    ]


def measured(scenario: Scenario, place: Place, given: argparse.Namespace) -> dict[str, Any]:
    """Everything about one scenario."""
    changes = Changes()
    logger = logging.getLogger("fastload")
    logger.setLevel(logging.INFO)
    with scenario.trouble(place):
        judge = Judge(scenario, place, given.seconds)
        probe = judge.loop()
        settings = grid(probe.loader)
        probe.close()
        swept = judge.sweep(settings)
        best = max(range(len(swept)), key=lambda number: swept[number]["rate"])
        tuned = judge.loop(autotune=True)
        logger.addHandler(changes)
        changes.begin()
        pieces = judge.trace(tuned, given.tune)
        settled = list(changes.found)
        fixed = judge.loop(**settings[best])
        best_rate, steady = judge.in_turns([fixed, tuned], given.rounds)
        fixed.close()
        tuned.close()
    return {
        "name": scenario.name,
        "best": settings[best],
        "best_rate": best_rate,
        "steady": steady,
        "ratio": steady / best_rate,
        "reached": reached(pieces, CLOSE * best_rate),
        "late_changes": sum(change["at"] > given.tune * 2 / 3 for change in settled),
        "changes": changes.found,
        "sweep": swept,
        "trace": pieces,
    }


def main() -> int:
    """Measure and print one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("name", choices=[scenario.name for scenario in ALL])
    parser.add_argument("--images", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--tune", type=float, default=12.0)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    scenario = next(one for one in ALL if one.name == given.name)
    try:
        row = measured(scenario, Place(given.images, given.work), given)
    except NoThrottle as error:
        skip(str(error))
    print(json.dumps(row))
    return 0


if __name__ == "__main__":
    sys.exit(main())
