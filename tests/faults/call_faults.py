"""Fails, shortens or kills a verb at the k-th call of libc, and runs the same command again.

Run as a program with ``failing_calls.so`` preloaded: ``call_faults.py JSON``, with "verbs" (default: all), a
"folder" in memory, how many "points" of each kind (0: all) and a "seed". It forks a child for each point
(cheaper than a new interpreter), and prints one JSON object: points of each kind, and what was bad.

What is bad: a traceback, or an error without words or without the system's reason; a signal that nobody sent;
a minute without an end; a short transfer or EINTR that is an error at all; a manifest that names what is not
there; the same command, run again, fails or gives anything but what an undisturbed run gives, one file more
included (from each state of the disk once).
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import importlib
import io
import json
import os
import random
import signal
import stat
import sys
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from failing_calls import CHANGES, COUNT, FAIL, FAIL_FROM, KILL_BEFORE, KILL_BEHIND, SHORT, TORN, Calls
from verb_processes import tell
from verbs import VERBS, Place, Verb

from fastload.errors import FastloadError

CALLS = Calls()
SECONDS = 60  # until a run counts as hung
WRITES, READS = "write,pwrite,writev,pwritev,sendfile,copy_file_range", "read,pread,readv,preadv"


@dataclass(frozen=True)
class Kind:
    """One way to fail, and at which calls."""

    name: str
    calls: str
    what: int
    error: int = 0
    must_succeed: bool = False  # a program must go on, whatever it does

    @property
    def kills(self) -> bool:
        return self.what in (KILL_BEFORE, KILL_BEHIND, TORN)


KINDS = (
    Kind("killed before", CHANGES, KILL_BEFORE),
    Kind("killed behind", CHANGES, KILL_BEHIND),
    Kind("killed in the middle", WRITES, TORN),
    Kind("ENOSPC", f"{WRITES},fallocate,ftruncate,mkdir,link,rename,open", FAIL, errno.ENOSPC),
    Kind("ENOSPC from then on", f"{WRITES},fallocate,ftruncate,mkdir,link,rename", FAIL_FROM, errno.ENOSPC),
    Kind("EIO", f"{CHANGES},{READS},open,opendir,fstat,stat,statvfs,mmap,flock", FAIL, errno.EIO),
    Kind("EIO from then on", f"{CHANGES},{READS}", FAIL_FROM, errno.EIO),
    Kind("EMFILE", "open,opendir", FAIL, errno.EMFILE),
    Kind("EMFILE from then on", "open,opendir", FAIL_FROM, errno.EMFILE),
    Kind("ENOMEM", "mmap,open,fallocate,mkdir,flock", FAIL, errno.ENOMEM),
    Kind("EINTR", f"{WRITES},{READS},open,flock,fallocate,fsync,ftruncate", FAIL, errno.EINTR, True),
    Kind("short", f"{WRITES},{READS}", SHORT, 0, True),
)


def in_child(run: Callable[[], int], arm: Callable[[], None] = lambda: None) -> dict[str, Any]:
    """``run`` in a child: how it ended, what it said, how many calls there were."""
    here, there = os.pipe()
    known = set(sys.modules)
    child = os.fork()
    if child == 0:
        os.close(here)
        signal.alarm(SECONDS)
        said = io.StringIO()
        outcome: dict[str, Any] = {"code": None}
        try:
            with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
                arm()
                outcome["code"] = run()
        except BaseException as error:
            outcome["error"] = f"{type(error).__name__}: {error}"
            outcome["known"] = isinstance(error, FastloadError | OSError | MemoryError)
            outcome["from"] = traceback.format_exc()[-2000:]
        outcome["seen"], outcome["last"], outcome["struck"] = CALLS.seen, CALLS.last, CALLS.struck
        CALLS.disarm()
        outcome["said"] = said.getvalue()[-2000:]
        outcome["imported"] = sorted(set(sys.modules) - known)
        os.write(there, json.dumps(outcome).encode()[:60000])
        os._exit(0)
    os.close(there)
    with open(here, "rb") as pipe:
        text = pipe.read()
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        return {"signal": os.WTERMSIG(status)}
    return dict(json.loads(text))


def ended_in_words(outcome: dict[str, Any], errors: Sequence[int] = ()) -> str:
    """Why a run that met a fault has not ended as it may, or nothing.

    ``errors``: an error has to name what the system says of one of them.
    """
    if "signal" in outcome:
        return "hung" if outcome["signal"] == signal.SIGALRM else f"died of signal {outcome['signal']}"
    words = outcome.get("error", outcome["said"])
    if "error" in outcome and not (outcome["known"] and len(words) > 20):
        return f"raised {outcome['from']}"
    if "error" not in outcome and outcome["code"] not in (0, 1, 3, 4):
        return f"ended with {outcome['code']}: {words}"
    if "Traceback" in outcome["said"]:
        return f"printed {outcome['said']}"
    if outcome["code"] == 0:
        return ""
    reasons = [os.strerror(error) for error in errors]
    if errors and "damaged" in words:
        return f"calls damaged what the system refused: {words}"
    reasons += ["no room"] * (errno.ENOSPC in errors)
    if not any(reason in words for reason in reasons or [""]) or not words.strip():
        return f"does not say {' or '.join(reasons) or 'a word'}: {words}"
    return ""


class Lane:
    """A verb, its folder, and what an undisturbed run gives."""

    def __init__(self, verb: Verb, root: Path) -> None:
        self.verb, self.place = verb, Place(root)
        self._well: set[bytes] = set()  # states of the folder from which the command went on well
        root.mkdir(parents=True, exist_ok=True)
        self.place.clear()
        verb.prepare(self.place)
        self.begin()
        done = self.run()
        assert done.get("code") == 0, done
        for name in done["imported"]:  # else each child imports them, which takes longer than most verbs
            with contextlib.suppress(ImportError):  # what an extension has put there itself
                importlib.import_module(name)
        self.expected = verb.final(self.place)
        self.begin()
        assert self.run().get("code") == 0
        assert verb.final(self.place) == self.expected, "undisturbed runs differ"

    def begin(self) -> None:
        self.place.clear()
        self.verb.begin(self.place)

    def run(self, *rules: tuple[str, int, int, int]) -> dict[str, Any]:
        def arm() -> None:
            CALLS.disarm()
            for calls, at, what, error in rules:
                CALLS.also(calls, f"{self.place.root}/*", at, what, error)

        return in_child(lambda: self.verb.run(self.place), arm)

    def calls(self) -> Counter[str]:
        """The calls of an undisturbed run."""
        log = self.place.root / "calls"
        log.unlink(missing_ok=True)
        log.touch()
        self.begin()
        CALLS.log(log)  # the child's too
        self.run(("*", -1, COUNT, 0))
        CALLS.log(None)
        return Counter(log.read_text().split())

    def again(self) -> str:
        """The same command: what is wrong with what it gives, or nothing."""
        if self.verb.refuses_twice and self.verb.final(self.place) == self.expected:
            return ""
        left = _state(self.place.work)
        if left in self._well:  # many calls fail one behind the other and leave the same
            return ""
        after = self.run()
        if after.get("code") != 0:
            return f"run again: {after.get('error') or after.get('said') or after}"
        found = self.verb.final(self.place)
        if found != self.expected:
            return f"run again: {_difference(found, self.expected)}"
        self._well.add(left)
        return ""

    def point(self, kind: Kind, rules: list[tuple[str, int, int, int]]) -> str:
        """What is bad about one point, or nothing."""
        self.begin()
        outcome = self.run(*rules)
        if kind.kills:
            bad = "" if outcome.get("signal") == signal.SIGKILL else f"not killed: {outcome}"
        else:
            bad = ended_in_words(outcome, [kind.error] if kind.error else [])
            words = outcome.get("error") or outcome.get("said", "")
            # LMDB itself takes a write that did a part for a disk that failed.
            libraries = kind.what == SHORT and ".lmdb" in words
            if not bad and kind.must_succeed and outcome.get("code") != 0 and not libraries:
                bad = f"an error: {words}"
        bad = bad or self.verb.sound(self.place)
        if not bad and outcome.get("code") == 0:
            found = self.verb.final(self.place)
            bad = "" if found == self.expected else f"done, and {_difference(found, self.expected)}"
        else:
            bad = bad or self.again()
        return f"{bad} (last call: {outcome.get('last')})" if bad else ""

    def pair(self, random_: random.Random, count: int) -> list[str]:
        """What is bad about a fault in the recovery of another, or nothing: behind a failing call, or in the
        run that goes on behind a kill."""
        error = random_.choice((errno.EIO, errno.ENOSPC, 0))
        first = (CHANGES, random_.randrange(count), FAIL if error else KILL_BEFORE, error)
        kind = random_.choice([each for each in KINDS if each.what != FAIL_FROM and not each.must_succeed])
        second = (kind.calls, random_.randrange(8 if error else count), kind.what, kind.error)
        self.begin()
        if error:
            outcome = self.run(first, second)
        else:
            self.run(first)
            outcome = self.run(second)
        killed = kind.kills and outcome.get("signal") == signal.SIGKILL
        bad = "" if killed else ended_in_words(outcome, [each for each in (error, kind.error) if each])
        bad = bad or self.verb.sound(self.place) or self.again()
        return [f"compound {first}, {second}", bad] if bad else []


def _state(folder: Path) -> bytes:
    """A digest of all that lies in a folder."""
    hashed = hashlib.blake2b(digest_size=16)
    for path in sorted(folder.rglob("*")):
        status = path.lstat()
        hashed.update(repr((str(path.relative_to(folder)), status.st_mode, status.st_size)).encode())
        if stat.S_ISREG(status.st_mode):
            hashed.update(path.read_bytes())
        elif stat.S_ISLNK(status.st_mode):
            hashed.update(os.fsencode(os.readlink(path)))
    return hashed.digest()


def _difference(found: Any, expected: Any) -> str:
    if not isinstance(found, dict) or not isinstance(expected, dict):
        return f"{found} is not {expected}"
    names = sorted(n for n in found.keys() | expected.keys() if found.get(n) != expected.get(n))
    return f"other files than undisturbed: {names}"


def attack(lane: Lane, given: dict[str, Any]) -> tuple[dict[str, int], list[Any]]:
    """All kinds of faults in one verb: points, and what was bad."""
    verb, random_ = lane.verb.name, random.Random(f"{given['seed']} {lane.verb.name}")
    there, points, found = lane.calls(), {}, []
    for kind in KINDS:
        if given.get("kinds") and kind.name not in given["kinds"]:
            continue
        count = sum(there[name] for name in kind.calls.split(","))
        chosen = points_of(count, given["points"], random_)
        for at in chosen:
            if bad := lane.point(kind, [(kind.calls, at, kind.what, kind.error)]):
                found.append([f"{verb}: {kind.name} at {at}", bad])
        points[f"{verb}: {kind.name}"] = len(chosen)
    count = sum(there[name] for name in CHANGES.split(","))
    pairs = (given["points"] or 40) if count and not given.get("kinds") else 0
    for _ in range(pairs):
        if bad := lane.pair(random_, count):
            found.append([f"{verb}: {bad[0]}", bad[1]])
    points[f"{verb}: compound"] = pairs
    return points, found


def points_of(count: int, wanted: int, random_: random.Random) -> list[int]:
    """All k, or so many of them by the seed."""
    everything = range(count)
    return list(everything) if wanted == 0 or wanted >= count else sorted(random_.sample(everything, wanted))


def main(given: dict[str, Any]) -> None:
    """Attack the verbs that were named, or all."""

    def attacked(name: str, root: Path) -> tuple[dict[str, int], list[Any]]:
        return attack(Lane(VERBS[name], root), given)

    tell("call_faults", given.get("verbs") or list(VERBS), attacked, given)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
