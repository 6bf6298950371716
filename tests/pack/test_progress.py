"""What the command line says of a work in a log: its beginning, a line now and then, words of the work."""

from __future__ import annotations

from pathlib import Path

import pytest

from fastload.cli import progress
from fastload.cli.progress import PackProgress
from fastload.packing.progress import Work, entries_work

SET = Path("/data/set")
BEGINNINGS = {
    Work("packing", SET, "file", 5, 3_000_000, where="into 2 shards of"): (
        "packing 5 files, 3.0 MB, into 2 shards of /data/set"
    ),
    Work("packing", SET, "file", 5, 3_000_000, 2, 1_000_000, "into 1 shard of"): (
        "packing 5 files, 3.0 MB, into 1 shard of /data/set, 2 of them packed before"
    ),
    Work("packing", SET, "sample", 9, done=4, where="into"): (
        "packing 9 samples into /data/set, 4 of them packed before"
    ),
    Work(
        "recoding", SET, "sample", 9, 2000, 3, 700
    ): "recoding 9 samples, 2.0 kB, of /data/set, 3 of them before",
    Work("indexing", SET, "file", 1, 2000, where="into"): "indexing 1 file, 2.0 kB, into /data/set",
    entries_work(SET, 7): "making the entry points of 7 records of /data/set",
}


@pytest.mark.parametrize("work", BEGINNINGS)
def test_how_a_log_begins(work: Work, capsys: pytest.CaptureFixture[str]) -> None:
    with PackProgress(quiet=False) as shown:
        shown.started(work)
        shown.advanced(1, 100)
    assert capsys.readouterr().err == f"{BEGINNINGS[work]}\n"


def test_lines_and_words(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "_LOG_SECONDS", -1.0)
    with PackProgress(quiet=False) as shown:
        shown.started(Work("packing", SET, "file", 5, 3_000_000, 2, 1_000_000, "into"))
        shown.advanced(2, 500_000)
        shown.said(SET, "process 7 makes the plan; waiting for it")
        shown.started(entries_work(SET, 7))
        shown.advanced(3)
    with PackProgress(quiet=True) as shown:
        shown.started(entries_work(SET, 7))
        shown.said(SET, "nothing")
    _, files, words, _, records = capsys.readouterr().err.splitlines()
    assert files.startswith("4/5 files, ")
    assert " MB/s, " in files
    assert words == "set: process 7 makes the plan; waiting for it"
    assert records.startswith("3/7 records, ")
    assert " per second, " in records
