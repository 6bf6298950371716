"""examples/recipes: each runs on a packed folder and makes what it says; all of it in the core."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from field_sets import write_field_set
from pictures import jpegs
from process import HANG

import fastload

RECIPES = Path(__file__).parents[2] / "examples" / "recipes"
COUNT, BATCH = 13, 4
SHAPES = {
    "simclr": ["pictures: (8, 3, 224, 224) torch.float32"],
    "dino": ["teacher and student: (8, 3, 224, 224) torch.float32", "student: (32, 3, 96, 96) torch.float32"],
    "mae": ["patches: (4, 49, 768) torch.float32", "places: (4, 49) torch.int64"],
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    samples = [{"image": data, "label": number % 2} for number, data in enumerate(jpegs(COUNT))]
    schema = {"image": fastload.Image(), "label": fastload.Label(("cat", "dog"))}
    return write_field_set(tmp_path_factory.mktemp("recipes") / "set", schema, samples)


def recipe(name: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The module, imported as Python does that runs it: its folder comes first."""
    monkeypatch.syspath_prepend(RECIPES)
    spec = importlib.util.spec_from_file_location(f"recipe_{name}", RECIPES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module: ModuleType = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_all_recipes_are_tested() -> None:
    assert {path.stem for path in RECIPES.glob("*.py")} == {*SHAPES, "running"}


@pytest.mark.parametrize("name", SHAPES)
def test_it_runs(folder: Path, name: str) -> None:
    line = [sys.executable, str(RECIPES / f"{name}.py"), str(folder), "--batch-size", str(BATCH)]
    done = subprocess.run([*line, "--batches", "4"], capture_output=True, text=True, timeout=HANG)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert [text for text in lines if text.split(":")[0] in "".join(SHAPES[name])] == SHAPES[name]
    assert lines[-1].endswith(" images/s")
    assert float(lines[-1].split()[0]) > 0
    assert "Python, in" not in done.stdout


def test_first_views_come_before_second_ones(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    simclr = recipe("simclr", monkeypatch)
    with fastload.DataLoader(folder, COUNT, transform=simclr.views, seed=1) as loader:
        batch = next(iter(loader))
    first, second = simclr.pairs(batch)["pictures"].split(COUNT)
    assert torch.equal(first, batch["first"])
    assert torch.equal(second, batch["second"])
    assert bool((first != second).flatten(1).any(1).all())


def test_hidden_patches_are_left_out(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mae = recipe("mae", monkeypatch)
    with fastload.DataLoader(folder, COUNT, transform=mae.transform, seed=1) as loader:
        images, labels = next(iter(loader))
    found = mae.visible((images, labels))
    row, column = divmod(int(found["places"][5, 7]), 14)
    patch = images[5, :, 16 * row : 16 * row + 16, 16 * column : 16 * column + 16]
    assert torch.equal(found["patches"][5, 7], patch.permute(1, 2, 0).flatten())
    assert found["places"].sort(1).values.diff(dim=1).gt(0).all()
