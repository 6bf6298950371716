"""The doctor on loaders of packed data: known problems made small, their cause and the fix."""

from __future__ import annotations

from pathlib import Path

import pytest
from cache_folder import memory_folder
from pictures import encoded, picture
from plain_pack import plain_pack

from fastload import DataLoader, PackedDataset
from fastload import transforms as T
from fastload.cli import main
from fastload.diagnose.doctor import examine
from fastload.diagnose.facts import Fix, Stage, Verdict

QUICK = 15.0  # seconds of an examination, at most


def photos(count: int, side: int, **options: object) -> list[bytes]:
    return [encoded(picture(seed, side, side), quality=85, **options) for seed in range(count)]


def loader(dataset: object, **options: object) -> DataLoader:
    transform = T.Compose([T.RandomResizedCrop(32), T.RandomHorizontalFlip()])
    given = {"batch_size": 8, "shuffle": True, "transform": transform, "cache": "off", "num_workers": 1}
    return DataLoader(dataset, **(given | options))  # type: ignore[arg-type]


def fix(verdict: Verdict, name: str) -> Fix:
    return next(one for one in verdict.fixes if one.name == name)


@pytest.fixture
def large(tmp_path: Path) -> PackedDataset:
    return plain_pack(tmp_path / "large", photos(40, 1200), [0] * 40, ["a"])


@pytest.fixture
def progressive(tmp_path: Path) -> PackedDataset:
    return plain_pack(tmp_path / "set", photos(40, 400, progressive=True), [0] * 40, ["a"])


def test_large_pictures_are_to_be_packed_smaller(large: PackedDataset) -> None:
    with loader(large) as given:
        verdict = examine(given, step=Stage("step", 1e6), seconds=QUICK)
    assert verdict.limit in ("decode", "threads", "neighbour")
    smaller = fix(verdict, "max-side")
    assert smaller.words == "`pack --max-side 128`"
    assert smaller.gain > 0.2
    assert "temporary folder" in smaller.evidence
    assert smaller.price
    assert smaller.words in str(verdict)
    assert smaller.evidence in verdict.verbose


def test_progressive_files_are_to_be_packed_as_baseline_ones(progressive: PackedDataset) -> None:
    with loader(progressive) as given:
        verdict = examine(given, seconds=QUICK)
    assert fix(verdict, "baseline").words == "`pack --baseline`"


def test_a_slow_step_needs_no_better_loader(packed: PackedDataset) -> None:
    with loader(packed) as given:
        verdict = examine(given, step=Stage("step", 5.0, evidence="Given."), seconds=QUICK)
    assert verdict.limit == "step"
    assert verdict.fixes == ()
    assert "nothing is to be done about the data" in str(verdict)
    assert "The step limits." in str(verdict)


def test_examining_leaves_nothing_behind(
    packed: PackedDataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    with memory_folder(tmp_path) as memory, loader(packed) as given:
        monkeypatch.setattr("fastload.diagnose.doctor._MEMORY", memory.path)
        state = given.state_dict()
        examine(given, seconds=QUICK)
        assert given.state_dict() == state
        assert given.stats()["samples"] == 0
        assert memory.names() == []
    assert list(folder.iterdir()) == []


def test_the_command_says_it(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["doctor", str(folder), "--batch-size", "8", "--step-rate", "5", "--seconds", "6"]
    assert main([*words, "--verbose", "--transform", "eval"]) == 0
    said = capsys.readouterr().out
    assert "The step could take 5 images/s" in said
    assert "    As given by --step-rate." in said


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--step-rate", "0"], "--step-rate must be more than 0. Found: 0"),
        (["--seconds", "1"], "--seconds must be at least 5. Found: 1"),
        (["--transform", "none"], "--transform is one of train, eval"),
        (["--transform", "no_such_module:transform"], "No module named"),
    ],
)
def test_wrong_usage_is_said(
    folder: Path, words: list[str], expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["doctor", str(folder), *words]) == 2
    assert expected in capsys.readouterr().err


SCRIPT = """
import sys, time
import torch
from torch.utils.data import DataLoader, TensorDataset

assert sys.argv[1:] == ["--lr", "0.1"]
for epoch in range(10_000):
    for images, labels in DataLoader(TensorDataset(torch.zeros(64, 3), torch.zeros(64)), batch_size=8):
        time.sleep(0.02)
"""


def test_a_script_is_examined_with_its_own_arguments(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    assert main(["doctor", "--seconds", "15", str(tmp_path / "train.py"), "--lr", "0.1"]) == 0
    said = capfd.readouterr()
    assert "The step limits." in said.out
    assert "is run as it is" in said.err


def test_a_script_says_its_loader_itself(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    assert main(["doctor", "--batch-size", "8", str(tmp_path / "train.py")]) == 2
    assert "--batch-size: a script says that by itself" in capsys.readouterr().err
