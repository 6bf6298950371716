"""The command line says in words what is wrong with an argument or a path, and what to do."""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from pack_trees import class_tree, environment
from process import HANG

from fastload import DataLoader
from fastload.cli import main
from fastload.cli.commands import VERBS, in_words
from fastload.cli.completion import SHELLS
from fastload.errors import FormatError, PackError
from fastload.machine.sizes import counted


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["plan", "{set}", "--batch-size", "0"], 2, "must be a whole number, at least 1. Found: 0."),
        (["plan", "{set}", "--batch-size", "two"], 2, "at least 1. Found: two."),
        (["plan", "{set}", "--block", "-1"], 2, "at least 1. Found: -1."),
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
            "index.fli is not a packed dataset: it is a file. Pass the folder that",
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
        f"{packed}: 4 records are intact (CRC-32C)",
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


def test_advice_is_given_once() -> None:
    full = PackError("cannot write /data/a.mdb: no room. Make room and run the same command again.")
    full.__cause__ = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    assert in_words(full) == str(full)


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


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (["pack", "a", "b", "--fromat", "lmdb"], "--format"),
        (["verify", "a", "--decod-all"], "--decode"),
        (["pack", "a", "b", "--max_side", "9", "--shardsize=9"], "--max-side, --shard-size"),
        (["pck", "a", "b"], "pack"),
        (["shuffle", "a"], "plan FOLDER --shuffle block"),
        (["pack", "a", "b", "--as", "coca"], "coco"),
    ],
)
def test_what_was_meant(words: list[str], meant: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 2
    assert capsys.readouterr().err.endswith(f". Did you mean {meant}?\n")


def test_nothing_is_meant_by_anything(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pack", "a", "b", "--zzz"]) == 2
    assert capsys.readouterr().err.endswith("unrecognized arguments: --zzz. See 'fastload --help'.\n")


@pytest.fixture
def splits(tmp_path: Path) -> Path:
    """A folder that a parent of train/ and val/ was packed into."""
    class_tree(tmp_path / "source" / "train", 2, 3)
    class_tree(tmp_path / "source" / "val", 2, 2)
    assert (
        main(["pack", str(tmp_path / "source"), str(tmp_path / "sets"), "--entries", "none", "--quiet"]) == 0
    )
    return tmp_path / "sets"


@pytest.mark.parametrize("scheme", ["", "file://"])
def test_info_of_a_folder_of_splits(splits: Path, scheme: str, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert main(["info", f"{scheme}{splits}"]) == 0
    shown = capsys.readouterr().out
    assert shown.index(f"{splits}/train\n") < shown.index("6, 10.") < shown.index(f"{splits}/val\n")
    assert main(["info", f"{scheme}{splits}", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)["datasets"]
    assert [(one["folder"].rpartition("/")[2], one["records"]) for one in told] == [("train", 6), ("val", 4)]
    assert main(["info", f"{scheme}{splits.parent}"]) == 1
    assert "is not a packed dataset" in capsys.readouterr().err


def test_verify_of_several(splits: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    lines = [
        f"{splits}/train: 6 records are intact (CRC-32C)",
        f"{splits}/val: 4 records are intact (CRC-32C)",
    ]
    for folders in ([splits], [splits / "train", splits / "val"]):
        assert main(["verify", *map(str, folders)]) == 0
        said = capsys.readouterr()
        assert said.out.splitlines() == lines
        assert said.err.startswith("Not checked: whether the pictures decode (--decode).")
    assert main(["verify", str(splits), "--decode"]) == 0
    assert capsys.readouterr().err == ""
    shard = next((splits / "val").glob("*.arrow"))
    data = bytearray(shard.read_bytes())
    data[len(data) // 2] ^= 1
    shard.write_bytes(data)
    assert main(["verify", str(splits), "--json"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert (told["ok"], [one["ok"] for one in told["datasets"]]) == (False, [True, False])
    assert main(["verify", str(splits / "val"), "--json"]) == 1
    assert json.loads(capsys.readouterr().out).keys() == {"ok", "records", "found", "problems"}
    assert main(["verify", str(splits / "train"), str(splits / "none")]) == 1
    assert "there is no such folder" in capsys.readouterr().err


def test_images_that_are_not_packed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    class_tree(tmp_path / "val")
    words = (
        "it is a folder of images, and has no dataset.json. Pack it into another folder, with 'fastload pack "
        f"{tmp_path}/val OUTPUT'"
    )
    with pytest.raises(FormatError, match=re.escape(words)):
        DataLoader(tmp_path / "val")
    assert main(["info", str(tmp_path / "val")]) == 1
    assert words in capsys.readouterr().err


@pytest.mark.parametrize(("major", "advice"), [(2, "Upgrade fastload"), (0, "No fastload has written it")])
def test_other_versions(
    folder: Path, tmp_path: Path, major: int, advice: str, capsys: pytest.CaptureFixture[str]
) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy)
    body = json.loads((copy / "dataset.json").read_text())
    (copy / "dataset.json").write_text(json.dumps({**body, "fastload": [major, 0]}))
    assert main(["info", str(copy)]) == 1
    said = capsys.readouterr().err
    assert advice in said
    assert ("Upgrade" in said) == (major > 1)


def test_a_plan_names_each_row_once(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", str(folder), "--nodes", "2", "--ranks", "2", "--rate", "1000000000"]) == 0
    shown = capsys.readouterr().out
    for row in ("no cache", "a cache on each node", "a cache that all nodes share", "waiting"):
        assert len(re.findall(rf"^  {row}  ", shown, re.MULTILINE)) == 1, row
    assert not re.search(r"\de-\d", shown)


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
        check=True, timeout=HANG,
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
        capture_output=True, text=True, check=True, timeout=HANG,
    )  # fmt: skip
    assert [line.partition("\t")[0].rstrip("/ ") for line in done.stdout.splitlines() if line] == offered


@pytest.mark.parametrize("shell", SHELLS)
def test_each_shell_has_a_script_of_all_verbs(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("shtab")
    assert main(["completion", shell]) == 0
    script = capsys.readouterr().out
    assert [verb for verb in VERBS if verb not in script] == []
