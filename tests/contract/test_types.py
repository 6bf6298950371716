"""A user's project that uses fastload passes mypy --strict and pyright, and its mistakes are found."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import fastload

PROJECT = '''
"""A user's training script."""
from __future__ import annotations

from typing import Any

import torch
from PIL import Image
from torch.utils.data import ConcatDataset, Dataset, Subset, random_split
from typing_extensions import assert_type

import fastload
from fastload import Block, Cache, Dali, DataLoader, Device, Fields, MixedDataset, OnError, PackedDataset
from fastload import Pad, Ranks, SubsetSampler, Tokenizers, WeightedSampler, mix
from fastload import transforms as T
from fastload.errors import DecodeError, FastloadError

Batch = tuple[torch.Tensor, torch.Tensor]


def loaders(folder: str) -> tuple[DataLoader[Batch], DataLoader[int]]:
    steps = T.Compose([T.RandomResizedCrop(224), T.RandomHorizontalFlip(), T.Normalize((0.5,), (0.5,))])
    train: DataLoader[Batch] = DataLoader(folder, 256, shuffle=True, drop_last=True, transform=steps, seed=0)
    DataLoader(folder, shuffle=Block(1000), cache=Cache("64GB", decoded=256), on_error="replace")
    DataLoader(folder, backend=Dali("auto", memory_limit=1 << 30), device=Device(memory="reuse"))
    DataLoader(folder, ranks=Ranks(0, 2, handshake="off"), on_error=OnError("skip", max_pixels=10**6))
    DataLoader(folder, fields=Fields(["image"], masks="dense"), collate=Pad(64, 64), padding="drop")
    DataLoader(folder, text=Tokenizers({"caption": len}, threads=2), collate=Pad(then=list))
    return train, DataLoader([1, 2, 3], batch_size=2)


def train(folder: str) -> float:
    loader = DataLoader(folder, batch_size=4, num_workers=2, on_error="skip")
    assert_type(loader, DataLoader[Any])
    total = torch.zeros(())
    for images, labels in loader:
        total += images.float().mean() + labels.sum()
    assert_type(len(loader), int)
    state = loader.state_dict()
    assert_type(state, dict[str, Any])
    loader.load_state_dict(state)
    loader.set_epoch(3)
    assert_type(loader.batch_size, int | None)
    as_torch: torch.utils.data.DataLoader[Any] = loader
    with loader as same:
        same.stats()
    del as_torch
    return float(total)


def datasets(folder: str) -> None:
    data = PackedDataset(folder)
    picture, label = data[0]
    assert_type(picture, Image.Image)
    assert_type(label, int)
    assert_type(data.classes, list[str])
    assert_type(data.class_to_idx, dict[str, int])
    assert_type(data.targets, list[int])
    assert_type(data.samples[0], tuple[str, int])
    assert_type(data[0:3], Subset[tuple[Image.Image, int]])
    assert_type(data + data, ConcatDataset[tuple[Image.Image, int]])
    fields = PackedDataset[dict[str, Any]](folder)
    assert_type(fields[0], dict[str, Any])
    assert_type(fields[0:3], Subset[dict[str, Any]])
    first, second = random_split(data, [0.5, 0.5])
    assert_type(first, Subset[tuple[Image.Image, int]])
    both: MixedDataset = mix([data, folder], weights=[1, 2])
    assert_type(both[0], tuple[Image.Image, int])
    as_dataset: Dataset[tuple[Image.Image, int]] = both
    DataLoader(ConcatDataset([first, second, as_dataset]))
    DataLoader(both, sampler=WeightedSampler([1.0, 2.0], 2))
    DataLoader(data, sampler=SubsetSampler([1, 2]))
    try:
        next(iter(DataLoader(data)))
    except DecodeError as error:
        print(error)
    except FastloadError:
        print(fastload.__version__, fastload.IGNORE_LABEL + 1)
'''
WRONG = """
import fastload
from fastload import DataLoader, PackedDataset

fastload.Dataloader
DataLoader("packed", batchsize=4)
DataLoader("packed", num_workers="4")
DataLoader("packed").set_epoch("one")
DataLoader("packed").nothing
PackedDataset("packed").clases
DataLoader("packed", on_error="ignore")
"""
CACHE = Path(__file__).parents[1] / ".mypy_cache"
MISTAKES = {5, 6, 7, 8, 9, 10, 11}  # lines of WRONG


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """The project's folder: ``train.py``, and ``wrong.py`` with a mistake in each of its last lines."""
    (tmp_path / "train.py").write_text(PROJECT.lstrip())
    (tmp_path / "wrong.py").write_text(WRONG)
    return tmp_path


def sources() -> Path | None:
    """Where the package lies if it is not installed: checkers find installed ones by themselves."""
    place = Path(str(fastload.__file__)).parents[1]
    return None if place.name == "site-packages" else place


def judged(found: set[tuple[str, int]], text: str) -> None:
    """No error in train.py, and each mistake of wrong.py. What is in a package no user is told."""
    assert {line for file, line in found if file == "train.py"} == set(), text
    assert {line for file, line in found if file == "wrong.py"} == MISTAKES, text


def test_the_package_says_that_it_has_types() -> None:
    assert (Path(str(fastload.__file__)).parent / "py.typed").exists()


@pytest.mark.timeout(900)
def test_mypy(project: Path) -> None:
    place = sources()
    env = {**os.environ, "MYPYPATH": str(place) if place else ""}
    # What "make lint" has found out about torch with these options need not be found out again.
    alike = ["--cache-dir", str(CACHE), "--python-version", "3.10", "--no-warn-unused-ignores"]
    line = [sys.executable, "-m", "mypy", "--strict", *alike, "train.py", "wrong.py"]
    done = subprocess.run(line, cwd=project, env=env, capture_output=True, text=True, check=False)
    found = re.findall(r"^([^:\n]+):(\d+): error", done.stdout, re.MULTILINE)
    judged({(file, int(number)) for file, number in found}, done.stdout + done.stderr)


@pytest.mark.timeout(900)
def test_pyright(project: Path) -> None:
    beside = os.path.dirname(sys.executable)
    pyright = shutil.which("basedpyright", path=os.pathsep.join([beside, os.environ["PATH"]]))
    if pyright is None:
        pytest.skip("needs basedpyright, which brings its own node")
    place = sources()
    settings = {"typeCheckingMode": "standard", "extraPaths": [str(place)] if place else []}
    (project / "pyrightconfig.json").write_text(json.dumps(settings))
    line = [pyright, "--pythonpath", sys.executable, "--outputjson"]
    done = subprocess.run(line, cwd=project, capture_output=True, text=True, check=False)
    body = json.loads(done.stdout)
    assert body["summary"]["filesAnalyzed"] == 2
    found = {
        (Path(each["file"]).name, each["range"]["start"]["line"] + 1)
        for each in body["generalDiagnostics"]
        if each["severity"] == "error"
    }
    judged(found, done.stdout)
