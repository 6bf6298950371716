"""The doctor on loaders of packed data: known problems made small, their cause and the fix."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path

import pytest
from cache_folder import memory_folder
from pictures import encoded, picture
from plain_pack import plain_pack

import fastload
from fastload import DataLoader, PackedDataset
from fastload import transforms as T
from fastload.cli import main
from fastload.diagnose import script
from fastload.diagnose.doctor import examine
from fastload.diagnose.facts import Fix, Stage, Verdict
from fastload.diagnose.fixes.data import repacked
from fastload.diagnose.trial import Trial
from fastload.loader.view import LoaderView


def photos(count: int, side: int, **options: object) -> list[bytes]:
    return [encoded(picture(seed, side, side), quality=85, **options) for seed in range(count)]


def loader(dataset: object, **options: object) -> DataLoader:
    transform = T.Compose([T.RandomResizedCrop(32), T.RandomHorizontalFlip()])
    given = {"batch_size": 8, "shuffle": True, "transform": transform, "cache": "off", "num_workers": 1}
    return DataLoader(dataset, **(given | options))  # type: ignore[arg-type]


def fix(verdict: Verdict, name: str) -> Fix:
    return next(one for one in verdict.fixes if one.name == name)


@pytest.fixture
def packing_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of all that could help only packing otherwise is tried."""
    monkeypatch.setattr("fastload.diagnose.doctor.REGISTRY", (repacked,))


def three_times_as_fast(
    makers: Mapping[str, Callable[[], LoaderView]], *_: object, step: object
) -> dict[str, Trial]:
    """Made-up runs of loaders that do work: what is packed otherwise takes a third of the time."""
    found = {}
    for name, make in makers.items():
        with closing(make()) as made:
            next(iter(made))
        times = 1 if name == "now" else 3
        found[name] = Trial(100.0 * times, 0.01 / times, 1.0, 1, {"decode": 0.01 / times})
    return found


@pytest.mark.usefixtures("packing_only")
def test_large_progressive_pictures_are_to_be_packed_smaller_or_as_baseline_ones(
    tmp_path: Path, quick: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fastload.diagnose.fixes.data.in_turns", three_times_as_fast)
    large = plain_pack(tmp_path / "large", photos(40, 360, progressive=True), [0] * 40, ["a"])
    with loader(large) as given:
        verdict = examine(given, step=Stage("step", 1e6), seconds=quick)
    assert fix(verdict, "baseline").words == "`pack --baseline`"
    smaller = fix(verdict, "max-side")
    assert smaller.words == "`pack --max-side 128`"
    assert smaller.gain > 0.2
    assert "temporary folder" in smaller.evidence
    assert "300 images/s, and 100 as they are, in turns" in smaller.evidence
    assert smaller.price
    assert smaller.words in str(verdict)
    assert smaller.evidence in verdict.verbose


@pytest.mark.flaky(reruns=2)  # measures: on a crowded machine threads' turns can outweigh what they do
@pytest.mark.usefixtures("packing_only")
def test_large_pictures_are_found_to_be_slower(tmp_path: Path) -> None:
    large = plain_pack(tmp_path / "large", photos(40, 1200), [0] * 40, ["a"])
    with loader(large) as given:
        verdict = examine(given, step=Stage("step", 1e6), seconds=15)
    # Decoding, and what there is too little of for it: beside others' work that looks like either.
    assert verdict.limit not in ("step", "storage", "python", "collate", "transform")
    assert fix(verdict, "max-side").gain > 0


def test_a_slow_step_needs_no_better_loader_and_examining_leaves_nothing_behind(
    packed: PackedDataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quick: float
) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    with memory_folder(tmp_path) as memory, loader(packed) as given:
        monkeypatch.setattr("fastload.diagnose.doctor._MEMORY", memory.path)
        state = given.state_dict()
        verdict = examine(given, step=Stage("step", 1.0, evidence="Given."), seconds=quick)
        assert given.state_dict() == state
        assert given.stats()["samples"] == 0
        assert memory.names() == []
    assert list(folder.iterdir()) == []
    assert verdict.limit == "step"
    assert verdict.fixes == ()
    assert "the data pipeline is not the bottleneck" in str(verdict)
    assert "The training step is the bottleneck." in str(verdict)


def test_the_command_says_it(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["doctor", str(folder), "--batch-size", "8", "--step-rate", "1", "--seconds", "5"]
    assert main([*words, "--verbose", "--transform", "eval"]) == 0
    said = capsys.readouterr().out
    assert "The step can take 1 images/s" in said
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
        time.sleep(0.05)
"""


def test_a_set_of_lists_of_pictures_is_refused_in_words(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fastload.pack([{"images": []}], tmp_path / "set", schema={"images": "images"}, num_proc=1)
    assert main(["doctor", str(tmp_path / "set"), "--seconds", "5"]) == 2
    assert "has lists of pictures, 'images'" in capsys.readouterr().err


def test_a_script_is_examined_with_its_own_arguments(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A step that takes as long for any batch, and longer than a crowded machine lets it wait for one."""
    monkeypatch.setattr(script, "_GRACE", 90.0)
    (tmp_path / "train.py").write_text(SCRIPT)
    assert main(["doctor", "--seconds", "20", str(tmp_path / "train.py"), "--lr", "0.1"]) == 0
    said = capfd.readouterr()
    assert "the data pipeline is not the bottleneck" in said.out
    assert "Small batches are the bottleneck" in said.out
    assert "is run as it is" in said.err


def test_a_script_says_its_loader_itself(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    assert main(["doctor", "--batch-size", "8", str(tmp_path / "train.py")]) == 2
    assert "--batch-size: a script sets that itself" in capsys.readouterr().err
