"""Today's training recipes through whole loaders: RandAugment, TrivialAugment, timm's, SimCLR, DINO.

    python benchmarks/bench_recipes.py IMAGE_FOLDER --rivals torch_pil=/envs/torch_pil/bin/python
    python benchmarks/bench_recipes.py IMAGE_FOLDER --rivals-in FOLDER --workers torch_pil=3

recipes/named.py defines them; torch's side is torchvision's and timm's own code (install_rival.sh torch_pil).
First it runs bench_loader.py, whose options it takes, with the recipes as jobs; then it measures what each
recipe costs beside the classic one (train_f32), and the operations' shares of that.
"""

from __future__ import annotations

import json
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import bench_loader
import numpy as np
from harness.measure import Run, failures, summarize, table, values_of
from PIL import Image
from recipes.fastload import transform_of
from recipes.named import RECIPES
from sets.images import pictures_in

from fastload._native import _C
from fastload.transforms import compile_plan

CLASSIC = "train_f32"
SAMPLES = 200
REPEATS = 10  # of an operation on a picture


def operations(recipe: str) -> list[Any]:
    """The operations on pixels of each view of a recipe: (side in pixels, PixelSpec, number of the view)."""
    plan = compile_plan(transform_of(recipe))
    views = [plan.of_view(number) for number in range(max(len(plan.views), 1))]
    return [(view.output_size, view.pixel_spec(), number) for number, view in enumerate(views)]


def _seconds(picture: Any, spec: Any) -> float:
    began = time.thread_time()
    _C.operate(picture, spec, 0, 0, 0, repeat=REPEATS)
    return (time.thread_time() - began) / REPEATS


def costs(recipe: str, pictures: Sequence[Path]) -> dict[str, float]:
    """Microseconds a sample that each operation of a recipe takes, over what is drawn for SAMPLES samples."""
    found: dict[str, float] = defaultdict(float)
    views = operations(recipe)
    for sample in range(SAMPLES):
        for (height, width), spec, number in views:
            with Image.open(pictures[sample % len(pictures)]) as image:
                picture = np.asarray(image.convert("RGB").resize((width, height)))
            nothing = _seconds(picture, _C.PixelSpec([]))
            for name, numbers in spec.drawn(0, 0, sample, view=number):
                spent = _seconds(picture, _C.PixelSpec([(name, 1.0, list(numbers))]))
                found[name] += 1e6 * max(spent - nothing, 0.0) / SAMPLES
    return dict(found)


def _cpu(runs: Sequence[Run], job: str) -> float:
    """CPU microseconds a sample of fastload's side of a job."""
    return 1e6 / summarize(values_of(runs, f"{job} | fastload", "rate_per_cpu")).median


def rows(runs: Sequence[Run], jobs: Sequence[str], pictures: Sequence[Path]) -> Iterator[tuple[str, ...]]:
    """Of each recipe: CPU time, that over the classic one's, its operations' part, and their shares."""
    for job in jobs:
        spent = costs(job, pictures)
        ordered = sorted(spent.items(), key=lambda item: -item[1])
        shares = ", ".join(f"{name} {cost:.0f}" for name, cost in ordered if cost >= 0.5)
        whole = _cpu(runs, job)
        yield job, f"{whole:.0f}", f"{whole / _cpu(runs, CLASSIC):.2f}", f"{sum(spent.values()):.0f}", shares


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and print."""
    given = list(sys.argv[1:] if argv is None else argv)
    if "--jobs" not in given:
        given += ["--jobs", ",".join([CLASSIC, *RECIPES])]
    if "--output" not in given:
        given += ["--output", str(bench_loader.HERE.parent / "build" / "bench" / "recipes.json")]
    options = bench_loader.parse(given)
    status = bench_loader.main(given)
    runs = [Run(**run) for run in json.loads(options.output.read_text())["runs"]]
    failed = failures(runs)
    jobs = [job for job in options.jobs if job in RECIPES and f"{job} | fastload" not in failed]
    heads = ("recipe", "fastload, CPU us a sample", f"/ {CLASSIC}", "operations, us", "operations, us each")
    print("\n" + table(heads, list(rows(runs, jobs, pictures_in(options.folder)))))
    return status


if __name__ == "__main__":
    sys.exit(main())
