"""Mutation of our own tests: which small errors in what decides a run's data would no test notice?

    PYTHONPATH=.:tests/reference:tests/faults python tests/faults/mutants.py \
        '{"points": 0, "seed": 1, "folder": "/tmp/mutants", "modules": ["state"]}'

``points``: how many mutants of each module, chosen by ``seed``; 0: all. ``modules``: of SUBJECTS, or all.
``tests``: these files in place of the modules' own. ``again``: only those that no test killed the last time.

Prints each mutant that survived and is not in ``equivalent_mutants.json``, a table, and a line of JSON, whose
``bad`` has the modules with less than 90% killed and the table's entries that no longer fit.
"""

from __future__ import annotations

import json
import os
import random
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest
from mutant_ends import main, row_of, say, told
from mutant_runs import PLACE, ROOT, Outcome, Runs, TestRun
from python_mutants import Mutant, mutants_of

_MOST_SECONDS = 20.0  # of tests that a mutant meets, as long as they take without it


@dataclass(frozen=True)
class Subject:
    """Some code, and the tests that answer for it."""

    files: tuple[str, ...]
    tests: tuple[str, ...]  # files or folders below tests/
    functions: tuple[str, ...] = ()  # qualified names; (): all
    left_out: tuple[str, ...] = ()  # functions and classes of these files that other tests answer for


def _sampler(*names: str) -> tuple[str, ...]:
    return tuple(f"fastload/sampler/{name}.py" for name in names)


SUBJECTS = {
    "sampler": Subject(
        _sampler(
            *("block", "buckets", "drawn", "keyed", "mixed", "order", "partners", "quality"),
            *("sampler", "schedule", "scheduled_order", "upcoming"),
        ),
        ("sampler",),
        left_out=("Partition",),
    ),
    "partition": Subject(  # a part of order.py, with stricter tests
        _sampler("order"),
        ("sampler/test_partition.py", "sampler/test_samplers.py", "sampler/test_same_orders.py"),
        (
            *("Partition", "Partition.global_batch", "Partition.num_batches", "Partition.positions"),
            *("Partition.ranks_of", "Partition.consumed"),
        ),
    ),
    "state": Subject(
        ("fastload/backends/state.py", "fastload/loader/data_loader.py"),
        (
            *("contract/test_states.py", "contract/test_determinism.py", "contract/test_stateful.py"),
            *("contract/test_seeds.py", "pack/test_recode.py::test_who_has_the_old_set_open_goes_on"),
            "contract/test_mosaics.py::test_resuming_with_another_batch_size_makes_the_same_samples",
            "contract/test_torch_dataset.py::test_a_state_that_would_be_lost_is_an_error",
        ),
        (
            *("LoaderState", "LoaderState.to_dict", "LoaderState.divided", "LoaderState.from_dict"),
            *("LoaderState.check_fits", "DataLoader.state_dict", "DataLoader.load_state_dict"),
            "DataLoader._checked_state",
            *(
                "DataLoader._go_on_by",
                "DataLoader._state",
                "DataLoader.__getstate__",
                "DataLoader.__setstate__",
            ),
        ),
    ),
    "policy": Subject(
        ("fastload/cache/policy.py",),
        ("cache/test_policy.py", "cache/test_room.py"),
        left_out=(
            "set_name",
            "CachedSet",
            "cached_sets",
            "_look",
            "_why_stale",
            "_is_gone",
            "remove_stale",
            "users_of",
            "_has_open",
            "_is_file",
        ),
    ),
    "manifest": Subject(
        ("fastload/shard/manifest.py",),
        ("shard/test_manifest.py", "shard/test_dataset.py"),
        left_out=(
            "ColumnFile",
            "column_name",
            "entries_of",
            "minor_of",
            "_is_of_version_2",
            "fields_digest",
            "schema_of",
            "column_file",
            "_field",
        ),
    ),
    "index": Subject(
        ("fastload/shard/index.py",),
        ("shard/test_written_tables.py", "shard/test_index.py"),
    ),
}


def chosen(subject: Subject, points: int, seed: int) -> list[Mutant]:
    """The subject's mutants, ``points`` of them unless that is 0."""
    found = [each for file in subject.files for each in mutants_of(file, (PLACE / file).read_bytes())]
    if subject.functions:
        found = [each for each in found if each.where in subject.functions]
    found = [each for each in found if each.where.partition(".")[0] not in subject.left_out]
    if 0 < points < len(found):
        found = random.Random(seed).sample(found, points)
    return found


def tests_for(mutant: Mutant, runs: Sequence[TestRun]) -> list[TestRun]:
    """The tests that execute the mutant's statement, quick ones first; for what runs at import, any.

    What a class has by default, or a constant, is met by tests that run no line of the file.
    """
    wanted = set(mutant.lines)
    if mutant.function is None:
        found = sorted(runs, key=lambda run: (mutant.file not in run.lines, run.seconds))
    else:
        found = [run for run in runs if wanted & set(run.lines.get(mutant.file, ()))]
        found.sort(key=lambda run: run.seconds)
    spent = list(accumulate(run.seconds for run in found))
    quickest = found[: max(1, bisect_right(spent, _MOST_SECONDS))]
    files: Counter[str] = Counter()
    for run in quickest:
        files[_file_of(run)] += run.seconds  # type: ignore[assignment]
    return sorted(quickest, key=lambda run: (files[_file_of(run)], _file_of(run), run.seconds))


def _file_of(run: TestRun) -> str:
    return run.test.split("::")[0]


@dataclass(frozen=True)
class Equivalents:
    """The mutants that no test can kill, each with its reason, by what they are called."""

    reasons: Mapping[tuple[str, str, str, str], str]

    @classmethod
    def read(cls, path: Path) -> Equivalents:
        entries = json.loads(path.read_text(encoding="utf-8"))
        return cls({(e["file"], e["where"], e["before"], e["after"]): e["why"] for e in entries})

    def stale(self, mutants: Iterable[Mutant], files: Iterable[str]) -> list[tuple[str, str, str, str]]:
        """The entries for these files that fit none of all their mutants."""
        known, named = {mutant.key for mutant in mutants}, set(files)
        return [key for key in self.reasons if key[0] in named and key not in known]


def table(outcomes: Mapping[str, Sequence[Outcome]], equivalents: Equivalents) -> dict[str, dict[str, int]]:
    """How many of each module's mutants met which end."""
    rows = {}
    for name, found in outcomes.items():
        ends = Counter(
            "equivalent" if o.verdict == "survived" and o.mutant.key in equivalents.reasons else o.verdict
            for o in found
        )
        rows[name] = row_of(ends)
    return rows


class Campaign:
    """Tries the mutants of each subject.

    Args:
        plan: mutants by subject.
        tests: by subject, where in tests/ they are.
    """

    def __init__(
        self,
        plan: Mapping[str, Sequence[Mutant]],
        tests: Mapping[str, Sequence[str]],
        equivalents: Equivalents,
    ) -> None:
        self.plan, self.tests, self.equivalents = plan, tests, equivalents
        self.done: dict[str, list[Outcome]] = {}

    def __call__(self, runs: Runs) -> None:
        ran, left_out = runs.baseline()
        say(f"{len(ran)} tests, {sum(run.seconds for run in ran):.0f} s; left out: {left_out}")
        for name, mutants in self.plan.items():
            below = tuple(f"tests/{place}" for place in self.tests[name])
            own = [run for run in ran if run.test.startswith(below)]
            found = self.done.setdefault(name, [])
            for number, mutant in enumerate(mutants, 1):
                found.append(self._one(runs, mutant, tests_for(mutant, own)))
                if number % 100 == 0:
                    say(f"{name}: {number} of {len(mutants)}")

    def _one(self, runs: Runs, mutant: Mutant, tests: Sequence[TestRun]) -> Outcome:
        if not tests:
            say(f"survived (no test runs it): {mutant}")
            return Outcome(mutant, "survived")
        outcome = runs.try_one(mutant, tests)
        if outcome.verdict == "survived" and mutant.key not in self.equivalents.reasons:
            say(f"survived ({len(tests)} tests): {mutant}")
        elif outcome.verdict == "by time" or outcome.by.startswith(("exit code", "collection")):
            say(f"{outcome.verdict} ({outcome.by}): {mutant}")
        return outcome


def run(wish: Mapping[str, Any]) -> dict[str, Any]:
    """What the program prints last."""
    seed, points, folder = int(wish["seed"]), int(wish["points"]), Path(wish["folder"])
    names = list(wish.get("modules", SUBJECTS))
    folder.mkdir(parents=True, exist_ok=True)
    os.environ["HYPOTHESIS_STORAGE_DIRECTORY"] = str(folder / "hypothesis")
    os.environ["OMP_NUM_THREADS"] = "1"
    every = {name: chosen(SUBJECTS[name], 0, seed) for name in names}
    equivalents = Equivalents.read(Path(__file__).with_name("equivalent_mutants.json"))
    noted = folder / "survived.json"
    again = {tuple(key) for key in json.loads(noted.read_text())} if wish.get("again") else None
    campaign = Campaign(
        {
            name: [
                each for each in chosen(SUBJECTS[name], points, seed) if again is None or each.key in again
            ]
            for name in names
        },
        {name: wish.get("tests", SUBJECTS[name].tests) for name in names},
        equivalents,
    )
    files = list(dict.fromkeys(mutant.file for mutants in every.values() for mutant in mutants))
    tests = list(dict.fromkeys(f"{ROOT}/tests/{place}" for name in names for place in campaign.tests[name]))
    options = ["-q", "-s", "-p", "no:cacheprovider", f"--rootdir={ROOT}", f"--hypothesis-seed={seed}"]
    code = pytest.main(
        [*options, f"--basetemp={folder / 'collected'}", *tests], [Runs(files, folder, campaign)]
    )
    found = [outcome for outcomes in campaign.done.values() for outcome in outcomes]
    noted.write_text(json.dumps([each.mutant.key for each in found if each.verdict != "killed"]))
    rows = table(campaign.done, equivalents)
    stale = equivalents.stale([mutant for mutants in every.values() for mutant in mutants], files)
    bad = [[" ".join(key[:2]), f"no such mutant: {key[2]} -> {key[3]}"] for key in stale]
    if code not in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED) or set(rows) != set(names):
        bad.append(["pytest", f"ended with {code!r}"])
    return told("mutants", seed, rows, bad)


if __name__ == "__main__":
    main(run)
