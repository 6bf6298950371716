"""Named attacks: a sample by a seed, those that found something once, and an instrument that can fail."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.extend(
    str(Path(__file__).resolve().parents[1] / name) for name in ("faults", "attacks", "pack", "reference")
)

import hostile_inputs
from attack_rules import ATTACKS, EITHER, HONEST, MARKED, Attack, Rule, cases_of, is_quoted
from judged import SECONDS, Outcome, bad, judge

ROOT = Path(__file__).resolve().parents[2]
SEED = 20261125
FOUND = (
    "a device without end as the manifest",
    "a fifo as a shard of no bytes",
    "a fifo as entries",
    "a fifo as the manifest",
    "a manifest of 64 mib of empty lists",
    "a panoptic png that is postscript",
    "a redirection to a server of another protocol",
    "a shard whose name has a million letters",
    "a size of 1e999",
    "a data yaml of a billion laughs",
    "a data yaml of 10 to the 15 classes",
    "a tier that says 255 classes of nothing",
    "a version of ten million letters",
    "a yolo label that is a fifo",
    "an arrow body that unpacks to 2 to the 62 bytes",
    "an epoch of 2 to the 200",
    "an hdf5 of 2 to the 40 rows",
    "an index that is a fifo",
    "an lmdb that lost its last page",
    "an mds index that is a fifo",
    "an mds shard that is a fifo",
    "cache files of all kinds that are listed",
    "class names that are one text",
    "half of a pair as a class",
    "half of a pair in a shards name",
    "keys of several types",
    "ten million class names",
)
RULE = Rule("SECURITY.md", "What is trusted", "take memory without a bound")


@pytest.fixture(scope="module", autouse=True)
def _loaded() -> None:
    """All attacks, once."""
    if not ATTACKS:
        hostile_inputs.load()


def program(folder: Path, **options: Any) -> dict[str, Any]:
    """The program in a process of its own: its last line."""
    told = json.dumps({"seed": SEED, "folder": str(folder), **options})
    paths = [str(ROOT / "tests" / name) for name in ("reference", "faults")]
    done = subprocess.run(
        [sys.executable, ROOT / "tests" / "faults" / "hostile_inputs.py", told],
        capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([*paths, *(one for one in sys.path if one)])},
    )  # fmt: skip
    assert done.returncode in (0, 1), done.stderr[-2000:]
    return dict(json.loads(done.stdout.splitlines()[-1]))


def test_what_found_something_once(tmp_path: Path) -> None:
    found = program(tmp_path, names=FOUND)
    assert found["bad"] == []
    assert sum(found["points"].values()) == len(FOUND)


def test_a_sample(tmp_path: Path) -> None:
    found = program(tmp_path, points=12)
    assert found["bad"] == []
    assert sum(found["points"].values()) == 12


def test_there_are_sixty_and_each_has_its_rule() -> None:
    assert len(ATTACKS) >= 60
    assert {attack.kind for attack in ATTACKS.values()} == set(HONEST)
    rules = {attack.rule for attack in ATTACKS.values()} | {rule for _, rule in MARKED}
    assert [str(rule) for rule in rules if not is_quoted(rule)] == []
    assert sum(len(list(cases_of(test))) for test, _ in MARKED) >= 150


def test_a_rule_that_nobody_wrote_is_found() -> None:
    assert not is_quoted(Rule("SECURITY.md", "What is trusted", "files are always right"))
    assert not is_quoted(Rule("SECURITY.md", "Reporting", RULE.words))


def _hang() -> None:
    while True:
        pass


def _die() -> None:
    os.abort()


def _grow() -> int:
    return len(bytearray(1 << 30))


def _lose() -> None:
    raise KeyError("a key")


def _stray() -> None:
    (Path.home() / "strayed").open("ab").close()
    (Path.home() / "strayed").unlink()


def _mumble() -> None:
    raise ValueError("no")


DEFECTS: dict[str, tuple[Any, str]] = {
    "hangs": (_hang, "hangs"),
    "dies": (_die, "signal 6"),
    "grows": (_grow, "MemoryError"),
    "has another class": (_lose, "KeyError"),
    "writes elsewhere": (_stray, "strayed: open"),
    "has no words": (_mumble, "with 2 characters"),
}


@pytest.mark.parametrize("defect", DEFECTS)
def test_the_judge_finds_code_that(tmp_path: Path, defect: str) -> None:
    use, words = DEFECTS[defect]
    seconds = 3.0 if use is _hang else SECONDS  # the others may be slow
    assert words in bad(judge(use, tmp_path, ceiling=64 << 20, seconds=seconds))


def test_the_judge_lets_pass_what_is_right(tmp_path: Path) -> None:
    assert bad(judge(lambda: [1, 2], tmp_path, ceiling=64 << 20)) == ""


def test_a_verdict_needs_the_right_end() -> None:
    def attack(words: str | None) -> Attack:
        return Attack("x", "manifest", RULE, lambda folder: _lose, words, 0, 1.0)

    refused = Outcome("raised", "FormatError", True, "it is no manifest of ours")
    taken = Outcome("returned", value=[1])
    assert hostile_inputs.verdict(attack("no manifest"), refused) == ""
    assert "without" in hostile_inputs.verdict(attack("too large"), refused)
    assert "taken as good" in hostile_inputs.verdict(attack("no manifest"), taken)
    assert hostile_inputs.verdict(attack(None), taken) == ""
    assert "no manifest" in hostile_inputs.verdict(attack(None), refused)
    assert hostile_inputs.verdict(attack(EITHER), refused) == ""
