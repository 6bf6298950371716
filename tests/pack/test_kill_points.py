"""Kills and failing calls at the level of libc, at points all over a command: the same command goes on."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import failing_calls
import pytest
from pack_trees import class_tree, environment

from fastload.packing import PackOptions, pack

DRIVER = Path(__file__).with_name("call_driver.py")


def driven(tmp_path: Path, **given: Any) -> dict[str, Any]:
    """What the driver found; see there."""
    library = failing_calls.build(tmp_path)
    preloaded = failing_calls.environment(library)["LD_PRELOAD"]
    task = {"folder": str(tmp_path), **given}
    done = subprocess.run(
        [sys.executable, DRIVER, json.dumps(task)], capture_output=True, text=True, timeout=300,
        env=environment(LD_PRELOAD=preloaded), check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


@pytest.mark.parametrize(
    "given", [{}, {"again": True, "restart_again": False}], ids=["anew", "over one that is there"]
)
def test_an_index_killed_anywhere_is_made_by_the_same_command(
    tmp_path: Path, given: dict[str, bool], format_name: str
) -> None:
    source = class_tree(tmp_path / "source", classes=2, images=12)
    pack(source, tmp_path / "shards", PackOptions(format=format_name, shard_size=16384, num_proc=1))
    shards = str(tmp_path / "shards")
    found = driven(tmp_path, command="index", source=shards, format=format_name, points=20, **given)
    assert found["calls"] >= 60
    check(found, 12)


def check(found: dict[str, Any], points: int) -> None:
    assert found["points"] >= points
    assert (found["stuck"], found["different"], found["wrong"]) == ([], [], [])


@pytest.mark.parametrize("what", [failing_calls.FAIL, failing_calls.FAIL_FROM], ids=["once", "for ever"])
def test_a_failing_write_is_an_error_in_words(tmp_path: Path, format_name: str, what: int) -> None:
    source = class_tree(tmp_path / "source", classes=2, images=6)
    calls = "write,pwrite,writev,ftruncate"
    found = driven(
        tmp_path, command="pack", source=str(source), format=format_name, what=what, calls=calls, points=16,
        errno=errno.EIO, options={"format": format_name, "shard_size": 16384},
    )  # fmt: skip
    check(found, 9)
    assert found["words"]
    assert all(os.strerror(errno.EIO) in text for text in found["words"]), found["words"]


def test_too_many_open_files_are_no_damage(tmp_path: Path, format_name: str) -> None:
    source = class_tree(tmp_path / "source", classes=2, images=12)
    found = driven(
        tmp_path, command="pack", source=str(source), format=format_name, calls="open", points=16,
        errno=errno.EMFILE, begun=60, options={"format": format_name, "shard_size": 16384},
    )  # fmt: skip
    check(found, 9)
    assert all("damaged" not in text and "not a whole" not in text for text in found["words"])
    # Not at every point: a busy machine's threads may have opened all files before the call that is to fail.
    assert 2 * sum(os.strerror(errno.EMFILE) in text for text in found["words"]) >= found["points"]
