"""The process in which a script is watched: runs it as ``__main__``, then examines its loader."""

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
from multiprocessing.connection import Connection
from pathlib import Path
from types import CodeType, ModuleType
from typing import TYPE_CHECKING, Any

from fastload.diagnose.phases import Limits, Phases, Stopped
from fastload.diagnose.rank_limit import gathered_of, later, with_ranks
from fastload.diagnose.torch_loop import listen, stop_listening

if TYPE_CHECKING:
    from fastload.diagnose.facts import Verdict
    from fastload.diagnose.gathered import Gathered

__all__ = ["main"]

_LEAST_SHARE = 0.4  # of the seconds, for the experiments, however long the loop took


def main(order: str) -> None:
    """Do what :func:`fastload.diagnose.script.watch_script` asks for, in JSON."""
    asked: dict[str, Any] = json.loads(order)
    os.set_inheritable(asked["pipe"], False)
    # Where multiprocessing has its sockets; processes that it starts inherit that.
    multiprocessing.current_process()._config["tempdir"] = asked["sockets"]  # type: ignore[attr-defined]
    _Child(asked, Connection(asked["pipe"], readable=False)).run()


class _Child:
    """One script's run. Each message is a word and a value."""

    def __init__(self, asked: dict[str, Any], pipe: Connection) -> None:
        self._asked = asked
        self._pipe = pipe
        self._name = str(asked["path"])
        self._began = 0.0
        limits = Limits.within(asked["seconds"])
        self._ranks: Gathered | None = None  # as they were when this one's loop had been watched
        self._phases = Phases(
            limits, self._first_batch, self._tell, stops=not asked["follow"], enough=self._write_clocks
        )

    def _say(self, name: str, value: Any = None) -> None:
        try:
            self._pipe.send((name, value))
        except OSError:  # nobody listens any more
            raise Stopped from None

    def _first_batch(self) -> None:
        self._began = time.monotonic()
        self._say("began")
        if self._asked["follow"]:
            self._say("follow", True)

    def _tell(self) -> None:
        """What was watched, as soon as it is known: the script may not let itself be ended."""
        record = self._phases.record
        assert record is not None
        self._say("watched", (record.loop(), self._phases.step))

    def _write_clocks(self) -> None:
        """Before the loop is fed, which is no matter of its loader any more."""
        record = self._phases.record
        assert record is not None
        self._ranks = gathered_of(record.loader)

    def run(self) -> None:
        """The script, then the experiments; leaves with the script's exit status."""
        listen(self._phases)
        status: Any = 0
        end = "ended by itself"
        try:
            self._run_script()
        except Stopped:
            end = "was watched, and ended"
        except SystemExit as leaving:
            status = leaving.code
        except BaseException as error:
            status, end = 1, f"failed while it was watched ({type(error).__name__}: {error})"
            sys.excepthook(type(error), error, error.__traceback__)
            self._say("failed", f"{type(error).__name__}: {error}")
        finally:
            stop_listening(self._phases)
        if not self._asked["follow"]:
            self._finish(end)
        sys.exit(status)

    def _finish(self, end: str) -> None:
        record = self._phases.record
        if record is None:
            self._say("nothing", self._nothing())
            return
        record.end()
        if not self._phases.is_over:
            self._tell()
        batches = len(record.wait)
        fed = "" if self._phases.step is not None else " Its step was not measured alone."
        self._say("left", f"{self._name} {end} after {batches} batches of its loop.{fed}")
        gc.collect()  # iterators of its loop, and their workers
        rest = self._asked["seconds"] - (time.monotonic() - self._began)
        try:
            from fastload.diagnose.doctor import examine

            verdict = examine(
                record.loader,
                record.loop(),
                self._phases.step,
                seconds=max(_LEAST_SHARE * self._asked["seconds"], rest),
            )
            self._say("verdict", self._with_ranks(verdict, record.loader))
        except Exception as error:
            self._say("unexamined", f"{type(error).__name__}: {error}")

    def _with_ranks(self, verdict: Verdict, loader: Any) -> Verdict:
        """With what the other ranks have written down in the meantime."""
        if self._ranks is None:
            return verdict
        rank = loader._arranged.known()[0].rank
        return with_ranks(verdict, later(self._ranks, gathered_of(loader), rank), rank)

    def _nothing(self) -> str:
        most = max((record.batches for record in self._phases.watching.all_records), default=None)
        if most is None:
            return (
                f"{self._name} ended without having asked a DataLoader (fastload's, or one that inherits "
                f"from torch.utils.data.DataLoader) for a batch in this process. Give the arguments with "
                f"which it trains; a script that starts processes by itself is watched under torchrun: "
                f"torchrun ... -m fastload doctor {self._name}."
            )
        return (
            f"{self._name} ended after too few batches to say anything: besides the first ones of each "
            f"epoch, {most} counted, at least 2 must. Give it a longer run."
        )

    def _run_script(self) -> None:
        """As the interpreter would: as ``__main__``, which worker processes may import, too."""
        code, module = _of_module(self._name) if self._asked["module"] else _of_file(self._name)
        sys.argv = [str(module.__file__), *self._asked["argv"]]
        sys.modules["__main__"] = module
        exec(code, module.__dict__)


def _of_file(path: str) -> tuple[CodeType, ModuleType]:
    module = ModuleType("__main__")
    module.__file__ = path
    module.__dict__["__builtins__"] = builtins
    sys.path.insert(0, str(Path(path).resolve().parent))
    with io.open_code(os.path.abspath(path)) as file:
        return compile(file.read(), path, "exec", dont_inherit=True), module


def _of_module(name: str) -> tuple[CodeType, ModuleType]:
    """As ``python -m`` does.

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
