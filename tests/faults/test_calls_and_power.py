"""Every verb with failing calls, kills and power cuts, at a few points by a seed; `make faults` takes all."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from driven import shimmed
from verbs import VERBS

HALVES = [sorted(VERBS)[::2], sorted(VERBS)[1::2]]


@pytest.fixture
def memory() -> Iterator[Path]:
    """A folder in memory, which the node cache has to be in."""
    folder = Path(tempfile.mkdtemp(prefix="fastload-test-", dir="/dev/shm"))
    yield folder
    shutil.rmtree(folder)


@pytest.mark.parametrize("verbs", HALVES, ids=["even", "odd"])
def test_what_fails_ends_in_words_and_the_same_command_goes_on(
    memory: Path, tmp_path: Path, verbs: list[str]
) -> None:
    told = shimmed(
        "call_faults.py", tmp_path, {"verbs": verbs, "folder": str(memory), "points": 1, "seed": 1}
    )
    assert told["bad"] == []
    for verb in verbs:
        kinds = [kind for kind, points in told["points"].items() if kind.startswith(f"{verb}: ") and points]
        assert len(kinds) >= 8, verb


def test_a_power_cut_leaves_nothing_that_is_named_and_not_there(memory: Path, tmp_path: Path) -> None:
    told = shimmed("power_faults.py", tmp_path, {"folder": str(memory), "points": 1, "seed": 1})
    assert told["bad"] == []
    assert set(told["points"]) == {verb.name for verb in VERBS.values() if verb.durable}
    assert min(told["points"].values()) >= 2
