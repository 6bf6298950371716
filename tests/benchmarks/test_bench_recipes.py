"""bench_recipes in its smallest form, and its recipes: all of them but the callable's run in the core."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from recipes.fastload import transform_of
from recipes.named import RECIPES
from small_photos import environment

from fastload.transforms import compile_plan

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.mark.parametrize("recipe", RECIPES)
def test_recipes_run_in_the_core(recipe: str) -> None:
    plan = compile_plan(transform_of(recipe))
    views = [plan.of_view(number) for number in range(max(len(plan.views), 1))]
    assert len(views) == {"simclr": 2, "dino": 10}.get(recipe, 1)
    assert {bool(view.tail) for view in views} == {recipe == "callable"}
    assert all(bool(view.pixels) != (recipe == "callable") for view in views)


def test_the_tables(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    for number in range(20):
        path = tmp_path / "photos" / f"class{number % 2}" / f"{number:02d}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(random.integers(0, 256, (64, 80, 3), dtype=np.uint8)).save(path)
    options = [
        "--jobs", "train_f32,rand_augment", "--only", "fastload", "--seconds", 0.1, "--images", 200,
        "--threads", 1, "--baseline", "fastload", "--output", tmp_path / "recipes.json",
    ]  # fmt: skip
    command = [sys.executable, BENCHMARKS / "bench_recipes.py", tmp_path / "photos", *options]
    done = subprocess.run(
        [str(word) for word in command],
        capture_output=True,
        text=True,
        timeout=280,
        env=environment(),
        check=False,
    )
    assert done.returncode == 0, done.stderr
    (row,) = [line for line in done.stdout.splitlines() if line.startswith("| rand_augment |")]
    whole, ratio, operations, each = row.strip("| ").split(" | ")[1:]
    assert min(float(whole), float(operations)) > 0
    assert float(ratio) > 0
    assert len(each.split(", ")) > 3
