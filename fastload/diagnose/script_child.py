"""The process in which a script is watched: runs it as ``__main__``, in phases, then examines its loader."""

from __future__ import annotations

import builtins
import gc
import importlib.util
import io
import json
import multiprocessing
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from pathlib import Path
from types import CodeType, ModuleType
from typing import TYPE_CHECKING, Any

from fastload.diagnose.across_ranks import findings_of, with_findings
from fastload.diagnose.attribution import Attribution, attributed
from fastload.diagnose.facts import Loop, Sentence, Stage, Verdict
from fastload.diagnose.feed import Feed
from fastload.diagnose.listening import Pass, listen, stop_listening
from fastload.diagnose.peers import FirstRank
from fastload.diagnose.rank_facts import RankFacts, by_rank, facts_of
from fastload.diagnose.ranks import gathered_of, later, rank_of, with_ranks
from fastload.diagnose.sampling import Profile
from fastload.diagnose.step import is_compiled
from fastload.diagnose.watch import Diagnosis, Record, worker_pids
from fastload.machine.sizes import counted
from fastload.ranks.handshake import in_words

if TYPE_CHECKING:
    from fastload.diagnose.ranks import Gathered


# ---- A script's loop in phases: warm-up, watching, feeding, and its end -----------------------------
# The script is not changed, so everything happens inside ``next()``. At first it works as usual, and is
# timed; then it returns a batch that is already loaded, to show what the step can do; then it raises
# :class:`Stopped`, which is not an Exception, so that the script's handlers do not catch it and its
# ``finally`` blocks run.

_WARM_UP = 2  # steps besides a pass's first one, in which libraries choose their algorithms
_LEAST = 5  # batches that are enough when time is over
_QUIET = 0.03  # CPUs that idle threads use at most
_LOOK = 0.1  # seconds
_SMALL_BATCH = 16  # samples, up to which a step's fixed cost may show
_LARGER_STEPS = 8


class Stopped(BaseException):
    """The loop was watched long enough. This is not an error, and the watching code catches it."""


@dataclass(frozen=True)
class Limits:
    """How long each phase is.

    Args:
        batches, seconds: the loop is watched until it has this many of both.
        most: the limit in seconds for watching, once there are a few batches.
        fed, fed_seconds, fed_most: the same for feeding.
        rest: seconds to wait for the loader's threads to finish.
        patience: seconds after which a loop without gradients (validation) is watched, too.
    """

    batches: int = 20
    seconds: float = 5.0
    most: float = 18.0
    fed: int = 10
    fed_seconds: float = 3.0
    fed_most: float = 12.0
    rest: float = 6.0
    patience: float = 30.0

    @classmethod
    def within(cls, seconds: float) -> Limits:
        """Make the limits for an examination of ``seconds``, half of which are for experiments."""
        share = seconds / 60
        return cls(
            seconds=min(5.0, 5 * share),
            most=18 * share,
            fed_seconds=min(3.0, 3 * share),
            fed_most=12 * share,
            rest=6 * share,
            patience=30 * share,
        )

    def are_met(self, loop: Loop) -> bool:
        """Whether a loop was watched for as long as it should be."""
        return len(loop.wait) >= self.batches and loop.seconds >= self.seconds


class Phases:
    """The listener that takes a script's busiest loader through the phases.

    Args:
        limits: how long they are.
        began: called when the first batch of any loader is asked for.
        watched: called once at the end, before the script is stopped.
        stops: whether it is stopped; else it is fed until its process is ended, as on ranks other than the
            first one, which decides when it is over.
        watching: keeps the records.
        clock, sleep: in seconds.
        enough: called when enough was watched, before the loop is fed.
        has_all: whether the other ranks' facts are here, for which a fed loop goes on within its limits.
    """

    def __init__(
        self,
        limits: Limits,
        began: Callable[[], None],
        watched: Callable[[], None],
        stops: bool = True,
        watching: Diagnosis | None = None,
        clock: Callable[[], float] = time.perf_counter,
        sleep: Callable[[float], None] = time.sleep,
        enough: Callable[[], None] = lambda: None,
        has_all: Callable[[], bool] = lambda: True,
    ) -> None:
        self._enough = enough
        self._has_all = has_all
        self.watching = watching or Diagnosis(None, warm_up=_WARM_UP)
        self._limits = limits
        self._began = began
        self._watched = watched
        self._stops = stops
        self._clock = clock
        self._sleep = sleep
        self._since: float | None = None
        self._main: Record | None = None
        self._feed: Feed | None = None
        self._fed_since = 0.0
        self._trying_until = 0.0
        self.is_over = False
        self.is_trying_larger = False

    @property
    def record(self) -> Record | None:
        """The record of the watched loop: the one that was fed, else the busiest; None without batches."""
        records = self.watching.records
        return self._main or (records[0] if records else None)

    @property
    def step(self) -> Stage | None:
        """The step alone; None if the script ended before it was fed."""
        return self._feed.stage() if self._feed is not None else None

    @property
    def larger(self) -> dict[str, object]:
        """What steps on larger batches showed, as notes for the loop."""
        return self._feed.larger_notes() if self._feed is not None else {}

    def next(self, iterator: Any, of: Pass, proceed: Callable[[], Any]) -> Any:
        """See :class:`fastload.diagnose.listening.Listener`."""
        if self.is_over:
            raise Stopped
        if self._since is None:
            self._since = self._clock()
            self._began()
        loader = of.loader
        if loader is None:
            return proceed()
        if self._main is None:
            record = self.watching.record_of(loader)
            record.asked(of, iterator)
            if not self._is_enough(record):
                return record.got(iterator, proceed)
            record.end(iterator)
            self.watching.close()
            self._main = record
            self._enough()
        elif loader is not self._main.loader and not self._is_next(loader, self._main):
            return proceed()
        if self._feed is None:
            return self._begin_feed(iterator, self._main, proceed)
        return self._fed(self._feed)

    def _is_next(self, loader: Any, main: Record) -> bool:
        """Whether it is the watched loader's successor, and that had nothing more to feed a loop with.

        There may be enough at the end of an epoch, whose loader the script then leaves behind.
        """
        return self._feed is None and self.watching.takes_over(loader, main)

    def _is_enough(self, record: Record) -> bool:
        assert self._since is not None
        passed, limits = self._clock() - self._since, self._limits
        if record.with_grad * 2 <= record.batches and passed < limits.patience:
            return False
        if record.batches >= limits.batches and record.seconds >= limits.seconds:
            return True
        return record.batches >= _LEAST and max(record.seconds, passed) >= limits.most

    def _begin_feed(self, iterator: Any, record: Record, proceed: Callable[[], Any]) -> Any:
        """Take one more batch from the loader, and wait until its threads have filled their queue."""
        batch = proceed()  # if it raises StopIteration, the next pass's first batch is taken
        at_rest = self._wait_for_rest(iterator)
        self._feed = Feed(batch, record.batch_size, at_rest, self._clock)
        self._fed_since = self._clock()
        return self._feed.give()

    def _wait_for_rest(self, iterator: Any) -> bool:
        """Wait until the loader's threads and workers rest; return whether they did in time."""
        end = self._clock() + self._limits.rest
        before = self.watching.meter.read(worker_pids(iterator))
        quiet = 0
        while self._clock() < end:
            self._sleep(_LOOK)
            now = self.watching.meter.read(worker_pids(iterator))
            used = now.our_cpu + now.workers_cpu - before.our_cpu - before.workers_cpu
            quiet = quiet + 1 if used <= _QUIET * (now.when - before.when) else 0
            if quiet == 2:
                return True
            before = now
        return False

    def _fed(self, feed: Feed) -> Any:
        """Return the same batch again, or raise Stopped at the end."""
        feed.asked()
        limits, steps = self._limits, len(feed.steps)
        enough = steps >= limits.fed and feed.seconds >= limits.fed_seconds and self._has_all()
        if self._stops and (enough or (steps >= 2 and self._clock() - self._fed_since >= limits.fed_most)):
            if not self.is_trying_larger:
                feed.stage()
                self._watched()
                self._trying_until = self._clock() + limits.fed_seconds
            if self._tries_larger(feed):
                return feed.give_larger()
            self.is_over = True
            raise Stopped
        return feed.give()

    def _tries_larger(self, feed: Feed) -> bool:
        """Whether the loop gets larger batches now, which show what a step costs beside its samples.

        The loop has been watched by then. If its model cannot take them, that is its end.
        """
        assert self._main is not None
        if not self.is_trying_larger:
            small = self._main.batch_size <= _SMALL_BATCH
            quick = _LEAST * feed.seconds <= len(feed.steps) * self._limits.fed_seconds
            self.is_trying_larger = small and quick and not is_compiled() and feed.can_be_larger
            return self.is_trying_larger
        return len(feed.larger_steps) < _LARGER_STEPS and self._clock() < self._trying_until


# ---- The script's process, from inside --------------------------------------------------------------

_WATCHED, _BY_ITSELF = "was watched, and ended", "ended by itself"
_LEAST_SHARE = 0.4  # of the seconds is left to experiments, however long the loop took
_LONGER = "Give the script arguments with which it trains longer: more epochs or steps."
_LATE = 3.0  # seconds for the other ranks of a script that ends by itself


def main(order: str) -> None:
    """Do what :func:`watch_script` asks for, in JSON."""
    asked: dict[str, Any] = json.loads(order)
    os.set_inheritable(asked["pipe"], False)
    # The folder of multiprocessing's sockets; processes that it starts inherit this.
    multiprocessing.current_process()._config["tempdir"] = asked["folder"]  # type: ignore[attr-defined]
    _Child(asked, Connection(asked["pipe"], readable=False)).run()


class _Child:
    """One script's run, then the examination of its loader. Each message is a word and a value."""

    def __init__(self, asked: dict[str, Any], pipe: Connection) -> None:
        self._asked = asked
        self._pipe = pipe
        self._name = str(asked["path"])
        self._began = 0.0
        self._limits = Limits.within(asked["seconds"])
        self._clocks: Gathered | None = None  # at the end of watching this rank's loop
        self._facts: RankFacts | None = None  # of this rank, from then on
        self._others = 0  # on this node
        if not asked["follow"]:
            ranks = os.environ.get("LOCAL_WORLD_SIZE") or os.environ.get("WORLD_SIZE") or "1"
            self._others = int(ranks) - 1
        self._first = FirstRank(asked["peers"], self._others) if self._others > 0 else None
        self._phases = Phases(
            self._limits,
            self._first_batch,
            self._tell,
            stops=not asked["follow"],
            enough=self._enough,
            has_all=lambda: self._first is None or self._first.has_all(),
        )
        self._profile = Profile()

    def _say(self, name: str, value: Any = None) -> None:
        try:
            self._pipe.send((name, value))
        except OSError:  # the receiver is gone
            raise Stopped from None

    def _first_batch(self) -> None:
        self._began = time.monotonic()
        self._say("began")

    def _tell(self) -> None:
        """Send what was watched at once: the script may refuse to end."""
        record = self._phases.record
        assert record is not None
        missing = self._missing()
        self._say("watched", (record.loop(), self._phases.step, self._ranks, missing))
        if self._first is not None:
            self._first.close()

    @property
    def _ranks(self) -> tuple[RankFacts, ...]:
        """The facts of this node's ranks so far; none if this rank is alone."""
        if self._first is None or self._facts is None:
            return ()
        return tuple(by_rank([self._facts, *self._first.facts]).values())

    def _missing(self) -> str:
        """Say which ranks are not compared, and why."""
        known = {each.rank for each in self._ranks}
        silent = [rank for rank in range(self._others + 1) if rank not in known]
        words = f" Nothing was heard of {in_words(silent)}." if known and silent else ""
        if known and max(each.world_size for each in self._ranks) > self._others + 1:
            words += " The ranks of other nodes ran along, and are not compared."
        return words

    def _enough(self) -> None:
        """End the profile. Exchange clocks and facts, which describe no loader once the loop is fed."""
        self._profile.stop()
        record = self._phases.record
        assert record is not None
        self._clocks = gathered_of(record.loader)
        self._tell_facts(record)

    def _tell_facts(self, record: Record) -> None:
        """Send this rank's facts to the first one, or keep them if this is the first of several."""
        if self._facts is not None or (self._first is None and not self._asked["follow"]):
            return
        self._facts = facts_of(record.loop(), record.loader)
        if self._asked["follow"]:
            self._say("facts", self._facts)

    def run(self) -> None:
        """Run the script, then the experiments; exit with the script's status."""
        listen(self._phases)
        if not self._asked["follow"]:
            self._profile.start()
        status: Any = 0
        end = _BY_ITSELF
        try:
            self._run_script()
        except Stopped:
            end = _WATCHED
        except SystemExit as leaving:
            status = leaving.code
        except BaseException as error:
            status, end = self._failed(error)
        finally:
            stop_listening(self._phases)
            self._profile.stop()
        if not self._asked["follow"]:
            self._finish(end)
        elif self._phases.record is not None:
            self._phases.record.end()
            self._tell_facts(self._phases.record)
        sys.exit(status)

    def _failed(self, error: BaseException) -> tuple[int, str]:
        """Say that the script failed; it did not if its model only takes no larger batches."""
        if self._phases.is_trying_larger and isinstance(error, Exception):
            return 0, _WATCHED
        steps = error.__traceback__
        while steps is not None and steps.tb_frame.f_code.co_filename == __file__:
            steps = steps.tb_next  # as if the script ran alone
        sys.excepthook(type(error), error.with_traceback(steps), steps)
        self._say("failed", f"{type(error).__name__}: {error}")
        return 1, f"failed while it was watched ({type(error).__name__}: {error})"

    def _finish(self, end: str) -> None:
        record = self._phases.record
        if record is None:
            self._say("nothing", self._nothing())
            return
        record.end()
        if not (self._phases.is_over or self._phases.is_trying_larger):
            self._tell_facts(record)
            if self._first is not None:
                self._first.wait(_LATE)
            self._tell()
        loop = record.loop()
        is_hint = self._phases.step is None and not self._limits.are_met(loop)
        self._say("left", self._left(end, loop, is_hint))
        gc.collect()  # frees the loop's iterators, and so ends their workers
        rest = self._asked["seconds"] - (time.monotonic() - self._began)
        try:
            from fastload.diagnose.doctor import examine

            verdict = examine(
                record.loader,
                replace(loop, notes={**loop.notes, **self._phases.larger}),
                self._phases.step,
                max(_LEAST_SHARE * self._asked["seconds"], rest),
                self._attribution(record),
                (self._asked["folder"], self._asked["memory"]),
            )
            verdict = self._with_ranks(verdict, record.loader)
            verdict = with_findings(verdict, findings_of(self._ranks))
            self._say("verdict", _as_hint(verdict, loop) if is_hint else verdict)
        except Exception as error:
            self._say("unexamined", f"{type(error).__name__}: {error}")

    def _left(self, end: str, loop: Loop, is_hint: bool) -> str:
        """Return how the loop ended, and what it lacks if that was too early."""
        count, limits = counted(len(loop.wait), "batch"), self._limits
        if self._phases.step is not None:
            return f"{self._name} {end} after {count} of its loop."
        if end != _BY_ITSELF:
            hint = " What follows is a hint." if is_hint else ""
            return f"{self._name} {end} after {count} of its loop. Its step was not measured alone.{hint}"
        needed = f"the loop must go on for up to {limits.fed_most:.2g} s more"
        if not is_hint:
            return f"{self._name} {end} after {count} of its loop. To measure its step alone, {needed}."
        return (
            f"{self._name} {end}, too early for more than a hint: {count} counted, {loop.seconds:.2g} s "
            "together (the first ones do not count), and its step was not measured alone. A verdict to rely "
            f"on takes {limits.batches} batches that count and {limits.seconds:.2g} s; then {needed}. "
            f"{_LONGER}"
        )

    def _attribution(self, record: Record) -> Attribution:
        """Sum the profile from the loop's first batch on."""
        return attributed(self._profile.seen, record.began, self._profile.ended, record.at_work())

    def _with_ranks(self, verdict: Verdict, loader: Any) -> Verdict:
        """Add what the other ranks have written meanwhile."""
        if self._clocks is None:
            return verdict
        rank = rank_of(loader)
        return with_ranks(verdict, later(self._clocks, gathered_of(loader), rank), rank)

    def _nothing(self) -> str:
        most = max((record.batches for record in self._phases.watching.all_records), default=None)
        if most is None:
            return (
                f"{self._name} never asked a DataLoader (fastload's, or one that inherits from "
                f"torch.utils.data.DataLoader) for a batch in this process. Pass the arguments that make it "
                f"train; a script that starts processes by itself is watched under torchrun: torchrun ... -m "
                f"fastload doctor {self._name}."
            )
        return (
            f"{self._name} ended after too few batches to be judged: apart from the first ones of each "
            f"epoch, {most} counted. A hint takes 2, and a verdict to rely on {self._limits.batches} and "
            f"{self._limits.seconds:.2g} s. {_LONGER}"
        )

    def _run_script(self) -> None:
        """Run the script as the interpreter would: as ``__main__``, which workers may also import."""
        code, module = _of_module(self._name) if self._asked["module"] else _of_file(self._name)
        sys.argv = [str(module.__file__), *self._asked["argv"]]
        sys.modules["__main__"] = module
        exec(code, module.__dict__)


def _as_hint(verdict: Verdict, loop: Loop) -> Verdict:
    """Return the verdict with what makes it uncertain behind all else."""
    note = (
        f"Note: this is a hint, from {counted(len(loop.wait), 'batch')} and {loop.seconds:.2g} s: the script "
        "ended too early."
    )
    return replace(verdict, sentences=(*verdict.sentences, Sentence(note)))


def _of_file(path: str) -> tuple[CodeType, ModuleType]:
    module = ModuleType("__main__")
    module.__file__ = path
    module.__dict__["__builtins__"] = builtins
    sys.path.insert(0, str(Path(path).resolve().parent))
    with io.open_code(os.path.abspath(path)) as file:
        return compile(file.read(), path, "exec", dont_inherit=True), module


def _of_module(name: str) -> tuple[CodeType, ModuleType]:
    """Find a module's code as ``python -m`` does.

    Raises:
        ImportError: there is no such module.
    """
    sys.path.insert(0, os.getcwd())
    spec = importlib.util.find_spec(name)
    if spec is not None and spec.submodule_search_locations is not None:
        spec = importlib.util.find_spec(f"{name}.__main__")
    loader: Any = spec.loader if spec is not None else None
    code = loader.get_code(spec.name) if spec is not None and loader is not None else None
    if spec is None or code is None:
        raise ImportError(f"No module named {name} can be run.", name=name)
    module = ModuleType("__main__")
    module.__file__, module.__spec__, module.__loader__ = spec.origin, spec, loader
    module.__package__ = spec.parent
    module.__dict__["__builtins__"] = builtins
    return code, module
