"""Files of somebody else's (machine/paths.py): what is no file is refused, and none stays open."""

from __future__ import annotations

import os
import sys
import warnings
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from fastload.machine.paths import open_regular, read_regular


class Stopped(Exception):
    """What a signal's handler raised."""


def descriptors() -> set[str]:
    return set(os.listdir("/proc/self/fd"))


def raises_at(step: int, path: Path) -> bool:
    """Whether ``read_regular`` has that many steps, behind each of which a signal's handler may run."""
    steps = 0

    def handler(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal steps
        if event != "call" and frame.f_code.co_filename == regular:
            steps += 1
            if steps == step:
                raise Stopped

    regular = read_regular.__code__.co_filename
    sys.setprofile(handler)
    try:
        read_regular(path, 100)
    except Stopped:
        return True
    finally:
        sys.setprofile(None)
    return False


def test_the_bytes_unless_they_are_too_many(tmp_path: Path) -> None:
    (path := tmp_path / "file").write_bytes(bytes(range(100)))
    for name in (path, str(path), os.fsencode(path)):
        assert read_regular(name, 100) == path.read_bytes()
        assert read_regular(name, 99) is None


def test_a_handler_that_raises_at_any_moment_leaves_no_descriptor(tmp_path: Path) -> None:
    (path := tmp_path / "file").write_bytes(b"data")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # a file that nobody closed closes itself
        before, steps = descriptors(), 1
        while raises_at(steps, path):
            assert descriptors() == before, steps
            steps += 1
    assert steps > 8


@pytest.mark.parametrize(
    ("made", "refused"),
    [
        (os.mkfifo, "it is no regular file, but a FIFO, a socket or a device"),
        (os.mkdir, "Is a directory"),
        (
            lambda path: os.symlink("/dev/null", path),
            "it is no regular file, but a FIFO, a socket or a device",
        ),
        (lambda path: os.symlink("nowhere", path), "No such file or directory"),
    ],
    ids=["fifo", "folder", "device", "nothing"],
)
def test_what_is_no_file(tmp_path: Path, made: Any, refused: str) -> None:
    path = tmp_path / "it"
    made(path)
    before = descriptors()
    for name in (path, os.fsencode(path)):
        with pytest.raises(OSError, match=refused) as error:
            open_regular(name)
        assert os.fsencode(error.value.filename) == os.fsencode(path)
    assert descriptors() == before


def test_a_path_that_cannot_be_one() -> None:
    with pytest.raises(ValueError, match="null"):
        open_regular("a\0b")
