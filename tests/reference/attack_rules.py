"""The registry of attacks: named hostile inputs, and the rule of FORMAT.md or SECURITY.md that each breaks.

An attack is a small function that makes a file, a set or a folder in the folder that it is given, and returns
what somebody does with it, who does not know (``attack``). Tests that are attacks themselves, one by one or
with parameters, say which rule theirs is (``breaks``), and count as well.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

__all__ = [
    "ATTACKS",
    "EITHER",
    "HONEST",
    "MARKED",
    "Attack",
    "Rule",
    "attack",
    "breaks",
    "cases_of",
    "honest",
    "is_quoted",
]

ROOT = Path(__file__).parents[2]
MIB = 1 << 20
EITHER = "*"  # what is used returns what is right, or raises an error in words

Make = Callable[[Path], Callable[[], Any]]
Case = TypeVar("Case", bound=Callable[..., Any])


@dataclass(frozen=True)
class Rule:
    """A sentence, or a part of one, of a document's section."""

    file: str  # "FORMAT.md" or "SECURITY.md"
    section: str  # its heading, without the marks
    words: str  # as they stand there

    def __str__(self) -> str:
        return f"{self.file}, {self.section}: {self.words}"


@dataclass(frozen=True)
class Attack:
    """One hostile input."""

    name: str
    kind: str  # of input: what HONEST has a job for
    rule: Rule
    make: Make
    words: str | None  # that the error must have (a regular expression); None: what is used returns; EITHER
    extra: int  # bytes beyond the honest job's and the margin, where the rule itself allows them
    seconds: float


ATTACKS: dict[str, Attack] = {}
HONEST: dict[str, list[Make]] = {}
MARKED: list[tuple[Callable[..., Any], Rule]] = []


def attack(
    kind: str, rule: Rule, words: str | None, *, extra: int = 0, seconds: float = 60.0
) -> Callable[[Make], Make]:
    """Register an attack under its function's name."""

    def register(make: Make) -> Make:
        name = make.__name__.replace("_", " ")  # type: ignore[attr-defined]
        if name in ATTACKS:
            raise ValueError(f"two attacks are called {name!r}.")
        ATTACKS[name] = Attack(name, kind, rule, make, words, extra, seconds)
        return make

    return register


def honest(kind: str) -> Callable[[Make], Make]:
    """Register a legitimate small job of a kind of input: what it takes, attacks of the kind may take."""

    def register(make: Make) -> Make:
        HONEST.setdefault(kind, []).append(make)
        return make

    return register


def breaks(rule: Rule) -> Callable[[Case], Case]:
    """Say of a test that its hostile inputs break this rule."""

    def register(test: Case) -> Case:
        MARKED.append((test, rule))
        return test

    return register


def cases_of(test: Callable[..., Any]) -> Iterator[str]:
    """The names of a test's inputs: its own, with its parameters'."""
    name = test.__name__.removeprefix("test_").replace("_", " ")
    marks = [m for m in getattr(test, "pytestmark", ()) if m.name == "parametrize"]
    for values in itertools.product(*(_named(*mark.args[:2], mark.kwargs.get("ids")) for mark in marks)):
        yield f"{name}: {', '.join(values)}" if values else name


def _named(names: Any, values: Any, ids: Any) -> list[str]:
    if ids is not None and not callable(ids):
        return [str(one) for one in ids]
    return [f"{value if isinstance(value, str) else repr(value):.60}" for value in values]


@cache
def _sections(file: str) -> dict[str, str]:
    found: dict[str, str] = {}
    heading = ""
    for line in (ROOT / file).read_text(encoding="utf-8").splitlines():
        if line.startswith("#"):
            heading = line.lstrip("#").strip()
        found[heading] = found.get(heading, "") + " " + line
    return found


def is_quoted(rule: Rule) -> bool:
    """Whether the section has these words, however its lines are broken."""
    text = _sections(rule.file).get(rule.section, "")
    return " ".join(rule.words.split()) in " ".join(text.split())
