"""Scripts that are watched as they are: run as ``__main__``, fed, ended, examined."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

import pytest
from doctor_runs import left_in, two_ranks
from process import settled

import fastload
from fastload import PackedDataset
from fastload.cli import main
from fastload.diagnose import script as script_module
from fastload.diagnose.facts import Verdict
from fastload.diagnose.script import announcement, watch_script
from fastload.diagnose.script_child import _of_module
from fastload.errors import ScriptError

HEAD = """
import sys, time
import torch
from torch.utils.data import DataLoader, Dataset


class Data(Dataset):
    def __len__(self):
        return 3000

    def __getitem__(self, index):
        return torch.zeros(3, 4, 4), index


def loop(loader, steps=10**9, seconds=0.01):
    for number, (images, labels) in enumerate(loader):
        time.sleep(seconds)
        if number == steps:
            break
"""
SECONDS = 6.0


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """For a message that a crowded machine is late with; under pytest's bound."""
    monkeypatch.setattr(script_module, "_GRACE", 90.0)


def script(folder: Path, text: str, head: str = HEAD) -> str:
    path = folder / "train.py"
    path.write_text(head + textwrap.dedent(text))
    return str(path)


@pytest.mark.parametrize("workers", [0, 2])
def test_a_script_is_watched_fed_and_ended(tmp_path: Path, workers: int) -> None:
    path = script(
        tmp_path,
        f"""
        import picked  # beside the script
        assert __name__ == "__main__" and sys.argv[1:] == ["--lr", "0.1"], sys.argv
        try:
            for epoch in range(100):
                loop(DataLoader(Data(), 4, num_workers={workers}))
        finally:
            print("saved", picked.WORD)
        print("never")
        """,
    )
    (tmp_path / "picked.py").write_text("WORD = 'it'\n")
    code = (
        "import sys; from fastload.diagnose import script; script._GRACE = 90.0\n"
        f"found = script.watch_script({path!r}, ['--lr', '0.1'], {SECONDS})\n"
        "assert found.loop is not None and found.step is not None\n"
        "print(found.words)\n"
        "print(found.loop.batch_size, found.loop.threads, found.loop.loader)\n"
        "assert len(found.loop.wait) >= 5\n"  # 20, unless they take long
        "assert 0 < found.step.rate < 4 / 0.01, found.step  # a sleep may take longer\n"
    )
    here = {**os.environ, "PYTHONPATH": str(Path(fastload.__file__).parents[1])}
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=here, cwd=tmp_path)
    assert run.returncode == 0, run.stderr
    assert "saved it\n" in run.stdout
    assert "never" not in run.stdout
    assert f"{path} was watched, and ended after " in run.stdout
    assert f"4 {workers} torch DataLoader asked in train.py:16" in run.stdout


def test_spawned_workers_are_not_taken_for_the_loop(tmp_path: Path) -> None:
    path = script(
        tmp_path,
        """
        print("imported as", __name__)
        if __name__ == "__main__":
            loop(DataLoader(Data(), 4, num_workers=1, multiprocessing_context="spawn"))
        """,
    )
    found = watch_script(path, [], SECONDS, quiet=True)
    assert found.loop is not None
    assert found.loop.notes["start_method"] == "spawn"
    assert found.step is not None


def test_our_loader_is_examined_where_it_is(tmp_path: Path, packed: PackedDataset) -> None:
    path = script(
        tmp_path,
        f"""
        import fastload
        from fastload import transforms as T
        loader = fastload.DataLoader({str(packed.folder)!r}, 4, True, transform=T.RandomResizedCrop(32))
        while True:
            loop(loader)
        """,
    )
    found = watch_script(path, [], SECONDS, quiet=True)
    assert found.loop is not None
    assert found.step is not None
    assert isinstance(found.verdict, Verdict)
    assert found.verdict.step_rate == pytest.approx(found.step.rate)
    assert found.verdict.loop is not None


def test_a_module_is_run_as_python_m_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "project"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "parts.py").write_text(HEAD)
    (package / "__main__.py").write_text(
        "from .parts import *\n"
        "assert (__name__, __package__) == ('__main__', 'project')\n"
        "assert sys.argv[0] == __file__, sys.argv\n"
        "loop(DataLoader(Data(), 4))\n"
    )
    monkeypatch.chdir(tmp_path)
    found = watch_script("project", [], SECONDS, module=True, quiet=True)
    assert found.step is not None
    with pytest.raises(ImportError, match="No module named nowhere can be run"):
        _of_module("nowhere")


def test_under_torchrun_the_first_rank_says(tmp_path: Path) -> None:
    path = script(
        tmp_path,
        """
        torch.distributed.init_process_group("gloo")
        model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 2))
        for images, labels in DataLoader(Data(), 4):
            time.sleep(0.01)
            model(images).sum().backward()
        """,
    )
    rank = tmp_path / "rank.py"
    rank.write_text(
        "import os, pathlib\n"
        "from fastload.diagnose import script; script._GRACE = 90.0\n"
        f"found = script.watch_script({path!r}, [], {SECONDS}, quiet=True)\n"
        "notes = found.loop.notes if found.loop else {}\n"
        "words = [found.words, notes.get('world_size'), notes.get('parallel'), found.step is not None]\n"
        f"pathlib.Path({str(tmp_path)!r}, os.environ['RANK']).write_text(repr(words))\n"
    )
    two_ranks(tmp_path, "rank.py")
    first = (tmp_path / "0").read_text()
    assert "was watched, and ended after" in first
    assert first.endswith(", 2, 'DistributedDataParallel', True]")
    second = (tmp_path / "1").read_text()
    assert second.startswith("['This rank ran along; the first")
    assert second.endswith(", None, None, False]")


def test_a_script_that_ends_by_itself_is_judged_by_what_there_was(tmp_path: Path) -> None:
    path = script(tmp_path, "loop(DataLoader(Data(), 4), 12, 0.001)\nsys.exit(3)\n")
    found = watch_script(path, [], SECONDS, quiet=True)
    assert found.loop is not None
    assert len(found.loop.wait) == 9  # of 13: the first, two of warm-up, and the one without a next()
    assert found.step is None
    for words in (
        "ended by itself, too early for more than a hint: 9 batches counted",
        "takes 20 batches that count",
        "more epochs or steps",
    ):
        assert words in found.words
    assert found.verdict is not None
    assert re.search(r"this is a hint, from 9 batches and [\d.]+ s: the", found.verdict.sentences[-1].text)


def test_a_script_that_ends_before_its_step_is_measured_gives_no_mere_hint(tmp_path: Path) -> None:
    """Of batches there were enough, and the loop's end came with the last of them."""
    path = script(tmp_path, "loop(DataLoader(Data(), 4), 23, 0.05)\n")
    found = watch_script(path, [], SECONDS, quiet=True)
    assert found.loop is not None
    assert len(found.loop.wait) == 20
    assert found.words.endswith("ended by itself after 20 batches of its loop. To measure its step alone, "
                                "the loop must go on for up to 1.2 s more.")  # fmt: skip
    assert found.verdict is not None
    assert "hint" not in found.verdict.sentences[-1].text


def test_a_script_that_fails_shows_its_own_lines_alone(tmp_path: Path) -> None:
    for text in ("def fail():\n    1 / 0\nfail()\n", "def f(:\n"):
        with pytest.raises(ScriptError) as error:
            watch_script(script(tmp_path, text), [], SECONDS, quiet=True)
        assert "train.py" in str(error.value)
        assert "script_child" not in str(error.value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("print('hello')\n1 / 0\n", r"failed before its loop .*: ZeroDivisionError: (.|\n)*line 2[0-9], in"),
        ("print('nothing')\n", r"never asked a DataLoader (.|\n)*torchrun"),
        (
            "next(iter(DataLoader(Data(), 4)))\n",
            r"ended after too few batches .* 0 counted\. .* more epochs or",
        ),
        ("def f(:\n", r"failed before its loop could be watched: SyntaxError: (.|\n)*train.py"),
        ("import os, signal\nos.kill(os.getpid(), 9)\n", r"ended by signal SIGKILL before its loop"),
    ],
)
def test_what_gives_nothing_to_watch_says_why(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(ScriptError, match=words):
        watch_script(script(tmp_path, text), [], SECONDS, quiet=True)


def test_a_failure_in_the_loop_leaves_what_was_seen(tmp_path: Path) -> None:
    text = "loop(DataLoader(Data(), 4), 12, 0.001)\nraise ValueError('lost')\n"
    found = watch_script(script(tmp_path, text), [], SECONDS, quiet=True)
    assert found.loop is not None
    assert "failed while it was watched (ValueError: lost) after 9 batches" in found.words


def test_a_missing_script_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """And nothing is announced."""
    (tmp_path / "folder.py").mkdir()
    for name, words in (
        ("nowhere.py", "nowhere.py is not there. Give the path"),
        ("folder.py", "is a folder, no"),
    ):
        with pytest.raises(FileNotFoundError, match=words):
            watch_script(str(tmp_path / name))
        assert main(["doctor", str(tmp_path / name)]) == 1
        said = capsys.readouterr()
        assert said.err.startswith("fastload doctor: ")
        assert words in said.err
        assert "is run as it is" not in said.err + said.out


def test_nothing_is_left_in_the_temporary_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of workers that are killed with a script that does not let itself be ended."""
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setattr(script_module, "_GRACE", 20.0)  # for a loop of seconds, and then waited out
    text = """
        import multiprocessing, os
        from multiprocessing.util import get_temp_dir

        def has_sockets(worker):
            assert os.path.isdir(get_temp_dir())  # as a tensor's way makes one

        loader = DataLoader(Data(), 4, num_workers=2, worker_init_fn=has_sockets)
        has_sockets(0)
        while True:
            try:
                loop(loader, 10**9, 0.001)
            except BaseException:
                time.sleep(1000)
    """
    found = watch_script(script(tmp_path, text), [], SECONDS, quiet=True)
    assert "went on when its loop was to end" in found.words
    assert settled(lambda: left_in(temporary), []) == []


def test_what_will_be_done_can_be_said_before() -> None:
    assert announcement("train.py", 30).startswith("train.py is run as it is, for about 30 s from its first")
