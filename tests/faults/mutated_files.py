"""Files of every kind with something changed, each opened and read whole in a forked child under RLIMIT_AS.

    export ARROW_DEFAULT_MEMORY_POOL=system  # see SMALL_POOLS
    PYTHONPATH=.:tests/reference:tests/faults python tests/faults/mutated_files.py '{"points": 0, "seed": 1}'

``points``: mutations of each kind of file; 0: MOST. ``only``: a part of the kinds' names. Allowed is an error
in words, or exactly the pixels, labels and names that were packed. Of files that have checksums, every third
mutation has them made right again: then pictures may be others (but of caches in front of the set's own
checksums), and nothing else may. Not allowed: another class of error, a signal, a hang, or memory past what
honest reading takes and MARGIN.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

sys.path.extend(str(Path(__file__).resolve().parents[1] / name) for name in ("faults", "pack", "reference"))

import mutated_others
import mutated_sets
import torch
from judged import Outcome, bad, judge, judge_all, place_in_memory
from mutated_sets import ERROR, Kind

KINDS = (*mutated_sets.KINDS, *mutated_others.KINDS)
MOST = 2000
MARGIN = 128 << 20  # bytes of addresses above honest reading's: a child reads a batch of files
BATCH = 50  # mutations a child
SHARE = 5  # one in so many goes through a loader, too
SEALED = 3  # one in so many has its checksums made right again


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


@dataclass
class Honest:
    """A kind's set as it was made."""

    kind: Kind
    files: dict[str, bytes | None]  # of the folder, by path; None: a folder
    facts: list[Any]
    batches: list[str]
    payload: list[tuple[int, int]]
    target: str
    peak: int

    def lay_out(self, folder: Path) -> None:
        """All files anew, none of them written over."""
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        for name, data in self.files.items():
            path = folder / name
            if data is None:
                path.mkdir(mode=0o700, parents=True, exist_ok=True)
            else:
                path.write_bytes(data)
                path.chmod(0o600)


def prepare(kind: Kind, work: Path) -> Honest:
    """Make a kind's set in a child and read it."""
    folder = work / "of" / "set"

    def made() -> Callable[[], Any]:
        shutil.rmtree(work / "of", ignore_errors=True)
        (work / "of").mkdir()
        kind.make(folder)

        def read() -> dict[str, Any]:
            payload = kind.payload(folder) if kind.payload else []
            found = kind.read(folder)
            told = kind.epoch(folder) if kind.epoch else []
            return {
                "facts": found,
                "batches": told,
                "payload": payload,
                "target": str(kind.target(folder).relative_to(folder)),
            }

        return read

    outcome = judge(lambda: None, work, prepare=made)
    if outcome.ended != "returned":
        raise RuntimeError(f"{kind.name}: the honest set cannot be read: {outcome}")
    paths = sorted(folder.rglob("*"))
    files = {str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None for path in paths}
    found = outcome.value
    payload = [(int(a), int(b)) for a, b in found["payload"]]
    return Honest(kind, files, found["facts"], found["batches"], payload, found["target"], outcome.peak)


def mutation(honest: Honest, seed: int, number: int) -> tuple[str, bytes, bool]:
    """The changed file, and whether its checksums are to be made right."""
    rng = random.Random(f"{seed} {honest.kind.name} {number}")
    whole = honest.files[honest.target]
    assert whole is not None
    words, data = honest.kind.mutant(whole, rng)
    sealed = honest.kind.seal is not None and number % SEALED == SEALED - 1
    return words + (", sealed" if sealed else ""), data, sealed


def differs(found: list[Any], wanted: list[Any]) -> str:
    """What is neither an error nor as it was, in words."""
    if len(found) > len(wanted):
        return f"{len(found)} samples or batches; there were {len(wanted)}"
    for number, (one, other) in enumerate(zip(found, wanted, strict=False)):
        if one not in (other, ERROR):
            return f"{number} is {one!r:.200}; it was {other!r:.200}"
    return ""


def owners(honest: Honest, data: bytes) -> set[int] | None:
    """Whose pictures alone a mutation may have changed; None: it is not within pictures."""
    whole = honest.files[honest.target]
    assert whole is not None
    if len(data) != len(whole):
        return None
    changed = [at for at, (a, b) in enumerate(zip(whole, data, strict=True)) if a != b]
    found = [next((n for n, (a, b) in enumerate(honest.payload) if a <= at < b), None) for at in changed]
    return None if None in found else {number for number in found if number is not None}


def judged(honest: Honest, seed: int, number: int, work: Path) -> str:
    """In the child: what is wrong with what is read of one mutation, or nothing."""
    kind, folder = honest.kind, work / "now" / "set"
    shutil.rmtree(work / "now", ignore_errors=True)
    honest.lay_out(folder)
    _, data, sealed = mutation(honest, seed, number)
    path = folder / honest.target
    if sealed and kind.seal is not None:
        path.unlink()
        try:
            honest.lay_out(folder)
            kind.seal(folder, path, data)
        except Exception:  # what cannot be sealed is left as it is
            honest.lay_out(folder)
            path.write_bytes(data)
    else:
        path.write_bytes(data)
    found = kind.read(folder)
    told = kind.epoch(folder) if kind.epoch and number % SHARE == 0 else []
    if sealed and not kind.strict:
        return ""
    if honest.payload or kind.payload:
        theirs = owners(honest, data)
        if theirs is None or len(found) != len(honest.facts):
            return ""
        found = [ERROR if n in theirs else one for n, one in enumerate(found)]
    if kind.name == "loader state" or kind.name == "MDS index":
        return "" if sum(1 for one in found if one != ERROR) <= 8 else f"{found!r:.200}"
    return differs(found, honest.facts) or differs(told, honest.batches)


def run_kind(kind: Kind, points: int, seed: int, work: Path) -> tuple[dict[str, int], list[list[str]]]:
    """Counts of what came of a kind's mutations, and what is wrong."""
    honest = prepare(kind, work)
    counts = {"right": 0, "refused": 0}
    wrong = []
    for first in range(0, points, BATCH):
        numbers = range(first, min(first + BATCH, points))
        uses = [partial(judged, honest, seed, number, work) for number in numbers]
        outcomes = judge_all(uses, work, ceiling=honest.peak + MARGIN, seconds=60.0)
        for number, outcome in zip(numbers, outcomes, strict=True):
            fault = fault_of(outcome)
            if fault:
                words = mutation(honest, seed, number)[0]
                wrong.append([f"{kind.name}, seed {seed}, mutation {number}: {words}", fault])
            counts["refused" if outcome.ended == "raised" else "right"] += 1
    return counts, wrong


def fault_of(outcome: Outcome) -> str:
    """What is wrong with an outcome: how it ended, or what was read."""
    return bad(outcome) or (
        f"wrong: {outcome.value}" if outcome.ended == "returned" and outcome.value else ""
    )


def run(points: int, seed: int, work: Path, only: str = "") -> dict[str, Any]:
    """All kinds."""
    found: dict[str, int] = {}
    wrong: list[list[str]] = []
    os.environ["FASTLOAD_CACHE_DIR"] = "/proc/no-cache-but-those-named"
    for kind in KINDS:
        if only not in kind.name:
            continue
        counts, bads = run_kind(kind, points or MOST, seed, work)
        found[kind.name] = points or MOST
        wrong += bads
        say(f"{kind.name}: {points or MOST} mutations, {counts['refused']} refused, {len(bads)} bad")
        for where, what in bads[:20]:
            say(f"    {where}: {what:.1500}")
    return {"instrument": "mutated_files", "seed": seed, "points": found, "bad": wrong}


def main(options: dict[str, Any]) -> int:
    torch.set_num_threads(1)
    folder = place_in_memory(options.get("folder"))
    with tempfile.TemporaryDirectory(dir=folder) as work:
        result = run(
            int(options.get("points", 0)),
            int(options.get("seed", 1)),
            Path(work),
            str(options.get("only", "")),
        )
    say(json.dumps(result))
    return 1 if result["bad"] else 0


if __name__ == "__main__":
    sys.exit(main(json.loads(sys.argv[1]) if len(sys.argv) > 1 else {}))
