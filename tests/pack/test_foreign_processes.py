"""``fastload index`` of many tars: by any number of processes the same, and gone on with after a stop."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from pack_trees import encoded, snapshot
from tar_reference import bad_members, captioned, write_tar

from fastload import PackedDataset
from fastload.errors import FormatError, PackError
from fastload.packing import foreign as foreign_job
from fastload.packing.foreign import IndexOptions, index_files
from fastload.packing.foreign_fields import described
from fastload.packing.progress import Observer, Work
from fastload.packing.shard_writer import ShardPart


class Counts(Observer):
    """What is told of the progress."""

    def __init__(self) -> None:
        self.begun: tuple[int, ...] = ()
        self.files = self.bytes = 0

    def started(self, work: Work) -> None:
        if work.size is not None:  # not of the entry points
            self.begun = (work.count, work.size, work.done, work.done_size)

    def advanced(self, count: int, size: int = 0) -> None:
        if size:
            self.files, self.bytes = self.files + count, self.bytes + size


@pytest.fixture
def tars(tmp_path: Path) -> list[Path]:
    """Tars of different sizes; the first has no captions, the last bad members."""
    (tmp_path / "tars").mkdir()
    found = [
        write_tar(tmp_path / "tars" / f"{k:03d}.tar", captioned(3 * k, 100 * k) or [("z.jpg", encoded(1))])
        for k in range(5)
    ]
    return [*found, write_tar(tmp_path / "tars" / "bad.tar", bad_members())]


def contents(folder: Path) -> dict[str, bytes]:
    return {name: data for name, data in snapshot(folder).items() if name != "dataset.json"}


def test_several_processes_give_the_same_bytes(tars: list[Path], tmp_path: Path) -> None:
    counts = Counts()
    one = index_files(tars, tmp_path / "one", IndexOptions(on_error="skip", num_proc=1))
    two = index_files(tars, tmp_path / "two", IndexOptions(on_error="skip", num_proc=2), counts)
    assert one == two
    assert contents(tmp_path / "one") == contents(tmp_path / "two")
    size = sum(path.stat().st_size for path in tars)
    assert counts.begun == (6, size, 0, 0)
    assert (counts.files, counts.bytes) == (6, size)


def test_errors_of_a_process_are_those_of_one(tars: list[Path], tmp_path: Path) -> None:
    for processes in (1, 2):
        with pytest.raises(PackError, match=r"not usable as images: 8 records"):
            index_files(tars, tmp_path / "out", IndexOptions(num_proc=processes, restart=True))
    tars[2].write_bytes(tars[2].read_bytes()[:3000])
    for processes in (1, 2):
        with pytest.raises(FormatError, match=r"002\.tar, byte .* the tar"):
            index_files(tars[:4], tmp_path / "cut", IndexOptions(num_proc=processes))


def test_what_was_done_before_an_error_is_kept(tars: list[Path], tmp_path: Path) -> None:
    with pytest.raises(PackError, match="not usable as images"):
        index_files(tars, tmp_path / "out", IndexOptions(num_proc=1))
    write_tar(tars[1], captioned(4, 500))  # another file now: what is known of it is of no use
    counts = Counts()
    found = index_files(tars, tmp_path / "out", IndexOptions(on_error="skip"), counts)
    assert counts.begun[2] == 4
    assert counts.files == 2
    assert found == index_files(tars, tmp_path / "whole", IndexOptions(on_error="skip"))
    assert contents(tmp_path / "out") == contents(tmp_path / "whole")


def test_what_other_options_gave_is_not_taken_over(tars: list[Path], tmp_path: Path) -> None:
    with pytest.raises(PackError, match="not usable as images"):
        index_files(tars, tmp_path / "out", IndexOptions(num_proc=1))
    counts = Counts()
    options = IndexOptions(on_error="skip", fields=(("json", "none"),))
    found = index_files(tars, tmp_path / "out", options, counts)
    assert counts.begun[2] == 0
    assert "json" not in found.schema.names


@pytest.mark.parametrize("bad", ["skip", "raise"])
def test_bad_records_that_were_left_out_do_not_pass(
    tars: list[Path], tmp_path: Path, bad: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What "skip" has finished is no use to "raise"."""

    def stops(job: foreign_job.IndexJob, number: int, part: ShardPart) -> None:
        part.write(job.part_path(number))
        raise PackError("stopped here")

    with monkeypatch.context() as patch:
        patch.setattr(foreign_job.IndexJob, "publish", stops)
        with pytest.raises(PackError, match="stopped here"):
            index_files(tars[::-1], tmp_path / "out", IndexOptions(on_error="skip", num_proc=1))
    counts, options = Counts(), IndexOptions(on_error=bad)
    if bad == "raise":
        with pytest.raises(PackError, match="not usable as images: 8 records"):
            index_files(tars[::-1], tmp_path / "out", options, counts)
    else:
        index_files(tars[::-1], tmp_path / "out", options, counts)
    assert counts.begun[2] == (1 if bad == "skip" else 0)


def test_killed_it_goes_on(tars: list[Path], tmp_path: Path) -> None:
    """The command, killed once a part is there, and with it its processes; the rest is made by the next."""
    out = tmp_path / "out"
    command = [sys.executable, "-m", "fastload", "index", str(tmp_path / "tars"), "--output", str(out)]
    command += ["--on-error", "skip", "--num-proc", "2", "--entries", "none"]
    with subprocess.Popen(command, start_new_session=True, stderr=subprocess.DEVNULL) as process:
        while process.poll() is None and not list(out.glob(".fastload-pack/[0-9]*.part")):
            time.sleep(0.005)
        process.kill()
    if (out / ".fastload-pack").exists():
        (out / ".fastload-pack" / "3.tar").touch()  # of a store, it would be a copy
    counts = Counts()
    options = IndexOptions(on_error="skip", entries=None)
    found = index_files([tmp_path / "tars"], out, options, counts)
    assert counts.begun == () or counts.begun[2] >= 1
    assert found == index_files([tmp_path / "tars"], tmp_path / "whole", options)
    assert contents(out) == contents(tmp_path / "whole")
    assert len(PackedDataset(out)) == found.num_records


def test_a_file_that_is_written_meanwhile_is_not_indexed(
    tars: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its part would be one of neither contents."""
    options = IndexOptions(on_error="skip", num_proc=1)
    changed = tars[2].read_bytes()

    def written_meanwhile(file: Path, foreign: Any, *how: Any) -> Any:
        found = described(file, foreign, *how)
        if Path(file).name == tars[2].name:
            tars[2].write_bytes(changed)  # of the same size
        return found

    with monkeypatch.context() as patch:
        patch.setattr(foreign_job, "described", written_meanwhile)
        with pytest.raises(PackError, match=r"002\.tar was changed while it was indexed\. Index it again"):
            index_files(tars, tmp_path / "out", options)
    index_files(tars, tmp_path / "out", options)
    index_files(tars, tmp_path / "whole", options)
    assert contents(tmp_path / "out") == contents(tmp_path / "whole")
