"""The command line says in words what is wrong with an argument or a path, and what to do."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from pack_trees import class_tree, environment

from fastload.cli import main
from fastload.cli.commands import VERBS
from fastload.cli.completion import SHELLS
from fastload.cli.system_errors import in_words
from fastload.errors import PackError
from fastload.machine.sizes import counted


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["shuffle", "{set}", "--batch-size", "0"], 2, "must be a whole number, at least 1. Found: 0."),
        (["shuffle", "{set}", "--batch-size", "two"], 2, "at least 1. Found: two."),
        (["shuffle", "{set}", "--block", "-1"], 2, "at least 1. Found: -1."),
        (
            ["warm", "{set}", "--batch-size", "4"],
            2,
            "--batch-size only says which records --ranks A-B/W reads",
        ),
        (["warm", "{set}", "--seed", "0", "--shuffle", "none"], 2, "--seed, --shuffle only says which"),
        (["warm", "{set}", "--ranks", "0/2", "--epoch", "-1"], 2, "at least 0. Found: -1."),
        (
            ["info", "{set}/index.fli"],
            1,
            "index.fli is not a packed dataset: it is a file. Give the folder that",
        ),
        (["unpack", "{set}", "/proc/x"], 1, "cannot unpack into /proc/x: No such file or directory"),
        (["unpack", "{set}", "{set}/index.fli/x"], 1, "Not a directory. A part of the path is a file where"),
        (["unpack", "{set}", "{set}/index.fli"], 1, "index.fli exists and is not an empty folder"),
        (["index", "{set}/dataset.json", "--output", "{set}/index.fli"], 1, "by its first bytes"),
    ],
)
def test_words(
    words: list[str], code: int, message: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([word.format(set=folder) for word in words]) == code
    said = capsys.readouterr()
    assert message in said.err
    assert "Errno" not in said.err
    assert said.out == ""


def test_a_whole_dataset_may_be_given_by_its_manifest(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["info", str(folder / "dataset.json")]) == 0
    assert "52" in capsys.readouterr().out


def test_verify_of_a_set_without_entry_points(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    class_tree(tmp_path / "source", 2, 2)
    packed = tmp_path / "set"
    assert main(["pack", str(tmp_path / "source"), str(packed), "--entries", "none", "--quiet"]) == 0
    capsys.readouterr()
    assert main(["verify", str(packed), "--entries"]) == 0
    said = capsys.readouterr().out.splitlines()
    assert said == [
        f"{packed}: there are no entry points (entries.fli) to check; 'fastload index {packed} --entries' "
        "makes them",
        f"{packed}: 4 records are whole (CRC-32C)",
    ]


@pytest.mark.parametrize("number", [errno.EACCES, errno.EROFS, errno.ENOSPC, errno.EIO, errno.EMFILE])
def test_errors_of_the_system(number: int) -> None:
    error = OSError(number, os.strerror(number), "/data/set/index.fli")
    text = in_words(error)
    assert text.startswith(f"/data/set/index.fli: {os.strerror(number)}. ")
    assert len(text) > len(f"/data/set/index.fli: {os.strerror(number)}. ")  # what to do
    wrapped = PackError(f"cannot pack into /data: {error}.")
    wrapped.__cause__ = error
    advice = text.split(". ", 1)[1]
    assert in_words(wrapped) == (
        f"cannot pack into /data: {os.strerror(number)}: '/data/set/index.fli'. {advice}"
    )


def test_errors_of_ours_stay_as_they_are() -> None:
    assert in_words(PackError("no room")) == "no room"
    assert in_words(OSError("words of a library")) == "words of a library"


def test_one_is_not_many() -> None:
    assert [counted(1, "file"), counted(2, "file"), counted(0, "class")] == ["1 file", "2 files", "0 classes"]


def test_one_bad_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bad = tmp_path / "source" / "a" / "x.jpg"
    bad.parent.mkdir(parents=True)
    bad.write_bytes(b"text")
    assert main(["pack", str(tmp_path / "source"), str(tmp_path / "set"), "--quiet"]) == 1
    assert "1 file cannot be packed" in capsys.readouterr().err


def test_without_a_verb_all_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    shown = capsys.readouterr().err
    assert [verb for verb in VERBS if f"\n    {verb}" not in shown] == []


def test_version_is_enough_for_a_report(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    said = capsys.readouterr().out
    for word in ("fastload 0.", f"Python {sys.version_info[0]}.", "torch 2.", "Linux", "/fastload)"):
        assert word in said


def test_completion_says_what_it_needs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "shtab", None)
    assert main(["completion", "bash"]) == 1
    assert 'pip install "fastload[completion]"' in capsys.readouterr().err


COMPLETED = pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("fastload ver", ["verify"]),
        ("fastload verify --dec", ["--decode"]),
        ("fastload pack --format a", ["arrow"]),
        ("fastload info fold", ["folder"]),
    ],
)


@COMPLETED
def test_bash_completes(
    typed: str, offered: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("shtab")
    assert main(["completion", "bash"]) == 0
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder.txt").touch()
    words = " ".join(f"'{word}'" for word in typed.split(" "))
    program = (
        capsys.readouterr().out
        + f"\nCOMP_WORDS=({words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))\n"
        + 'COMPREPLY=(); _shtab_fastload; printf "%s\\n" "${COMPREPLY[@]}"\n'
    )
    done = subprocess.run(
        ["bash", "--norc"], input=program, cwd=tmp_path, env=environment(), capture_output=True, text=True,
        check=True, timeout=100,
    )  # fmt: skip
    assert [word.rstrip("/ ") for word in done.stdout.split()] == offered


@COMPLETED
@pytest.mark.skipif(shutil.which("fish") is None, reason="needs fish")
def test_fish_completes(
    typed: str, offered: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("shtab")
    assert main(["completion", "fish"]) == 0
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder.txt").touch()
    program = f"{capsys.readouterr().out}\ncomplete -C '{typed}'\n"
    done = subprocess.run(
        ["fish", "--no-config"], input=program, cwd=tmp_path, env={**environment(), "HOME": str(tmp_path)},
        capture_output=True, text=True, check=True, timeout=100,
    )  # fmt: skip
    assert [line.partition("\t")[0].rstrip("/ ") for line in done.stdout.splitlines() if line] == offered


@pytest.mark.parametrize("shell", SHELLS)
def test_each_shell_has_a_script_of_all_verbs(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("shtab")
    assert main(["completion", shell]) == 0
    script = capsys.readouterr().out
    assert [verb for verb in VERBS if verb not in script] == []
