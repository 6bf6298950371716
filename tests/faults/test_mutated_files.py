"""Files with something changed: 25 mutations of each kind by a seed, and an instrument that can fail."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.extend(str(Path(__file__).resolve().parents[1] / name) for name in ("faults", "pack", "reference"))

import mutated_files
from cache_folder import memory_folder
from driven import driven
from mutated_sets import ERROR, facts
from mutations import mutant, text_mutant

SEED = 20261125
POINTS = 25
BY_NAME = {kind.name: kind for kind in mutated_files.KINDS}


@pytest.fixture
def work(tmp_path: Path) -> Iterator[Path]:
    """A folder in memory."""
    with memory_folder(tmp_path) as folder:
        yield folder.path


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What `make faults` finds: in a process of its own, whose children get none of pytest's threads."""
    folder = tmp_path_factory.mktemp("mutated")
    return driven("mutated_files.py", {"points": POINTS, "seed": SEED, "folder": str(folder)})


@pytest.mark.parametrize("name", BY_NAME)
def test_mutations_of(found: dict[str, Any], name: str) -> None:
    assert [each for each in found["bad"] if each[0].startswith(f"{name},")] == []
    assert found["points"][name] == POINTS


def _others_pixels(folder: Path) -> list[Any]:
    """A reader that trusts: what is damaged is some other picture."""
    return [["black", 0, "x"] if sample == ERROR else sample for sample in facts(folder)]


def _careless(folder: Path) -> list[Any]:
    try:
        return facts(folder)
    except ValueError as error:
        raise KeyError(str(error)) from error


@pytest.mark.parametrize(
    ("read", "words"), [(_others_pixels, "wrong: "), (_careless, "KeyError")], ids=["other pixels", "a class"]
)
def test_a_planted_defect_is_found(work: Path, read: Any, words: str) -> None:
    kind = BY_NAME["index.fli" if read is _careless else "Arrow shard"]
    planted = mutated_files.Kind(kind.name, kind.make, kind.target, read, kind.seal)
    _, wrong = mutated_files.run_kind(planted, POINTS, SEED, work)
    assert any(what.startswith(words) for _, what in wrong)


def test_mutations_differ_and_come_again() -> None:
    whole = bytes(range(256)) * 8
    made = [mutant(whole, random.Random(number)) for number in range(300)]
    assert all(data != whole for _, data in made)
    assert made == [mutant(whole, random.Random(number)) for number in range(300)]
    assert len({data for _, data in made}) > 280


def test_mutations_of_texts_change_tokens() -> None:
    whole = b'{"a": [1, 2, 3], "b": "text", "c": null}'
    made = {text_mutant(whole, random.Random(number))[1] for number in range(400)}
    assert whole not in made
    assert any(b"1e999" in data for data in made)
