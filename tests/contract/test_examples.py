"""examples/: each trains on a small set that is drawn here, and what it reads is prepared in the core.

Those that need a package of their own (torchvision, transformers, open_clip) run in tests/foreign.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from example_programs import COUNT, EXAMPLES, environment, losses_in, run, train
from field_sets import write_field_set
from made_detection import CLASSES, made_set
from pictures import encoded, jpegs, picture
from PIL import Image as PilImage
from ports import free_port
from process import HANG

import fastload

FOREIGN = {
    "clip": "openclip/test_clip.py",
    "detection": "torchvision/test_detection.py",
    "detr": "transformers/test_detr.py",
    "vision_language": "transformers/test_vlm_example.py",
}
OWN_LOOP = {"classification", "cluster"}
CATS = {"image": fastload.Image(), "label": fastload.Label(("cat", "dog"))}


# ---- Sets -------------------------------------------------------------------------------------------


def photographs(folder: Path, count: int = COUNT) -> Path:
    """Two classes."""
    samples = [{"image": data, "label": number % 2} for number, data in enumerate(jpegs(count))]
    return write_field_set(folder, CATS, samples)


def segmentation(folder: Path) -> Path:
    made = made_set(folder / "made", COUNT)
    samples = [
        {"image": made.images / name, "mask": made.folder / "masks" / f"{name[:-4]}.png"}
        for name in made.names
    ]
    schema = {"image": fastload.Image(), "mask": fastload.Mask(classes=("background", *CLASSES))}
    fastload.pack(samples, folder / "packed", schema, num_proc=1)
    return folder / "packed"


def stereo(folder: Path) -> Path:
    samples: list[dict[str, Any]] = []
    for number in range(COUNT):
        disparity = np.full((72, 90), 256 * (number + 1), np.uint16)
        disparity[:, ::3] = 0
        pair = {side: encoded(picture(2 * number + at, 90, 72)) for at, side in enumerate(("left", "right"))}
        samples.append({**pair, "disparity": encoded(PilImage.fromarray(disparity), "PNG")})
    both = {"left": fastload.Image(), "right": fastload.Image()}
    return write_field_set(
        folder / "packed", {**both, "disparity": fastload.Mask(bits=16, ignore=0)}, samples
    )


def robotics(folder: Path) -> Path:
    """A LeRobot set of two cameras."""
    from lerobot_sets import make_set

    made = make_set(folder / "robot")
    values = {"mean": [1.0, 1.0, 1.0], "std": [2.0, 2.0, 2.0]}
    (made / "meta" / "stats.json").write_text(json.dumps({"action": values}))
    fastload.pack(made, folder / "packed", num_proc=1)
    return folder / "packed"


SETS: dict[str, Callable[[Path], Path]] = {
    "dino": lambda folder: photographs(folder / "packed"),
    "mae": lambda folder: photographs(folder / "packed"),
    "robotics": robotics,
    "segmentation": segmentation,
    "self_supervised": lambda folder: photographs(folder / "packed"),
    "stereo": stereo,
}


def program(name: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The module, imported as Python does that runs it: its folder comes first."""
    monkeypatch.syspath_prepend(EXAMPLES)
    spec = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


# ---- All of them ------------------------------------------------------------------------------------


def test_all_examples_are_tested() -> None:
    assert {path.stem for path in EXAMPLES.glob("*.py")} == {*SETS, *FOREIGN, *OWN_LOOP, "short_run"}
    foreign = Path(__file__).parents[1] / "foreign"
    assert all((foreign / test).exists() for test in FOREIGN.values())


def test_the_list_names_every_example() -> None:
    """examples/README.md, which the repository's page of the folder shows."""
    listed = (EXAMPLES / "README.md").read_text(encoding="utf-8")
    assert [path.name for path in EXAMPLES.glob("*.py") if f"]({path.name})" not in listed] == []


@pytest.mark.parametrize("name", SETS)
def test_it_trains(tmp_path: Path, name: str) -> None:
    losses, printed = train(name, SETS[name](tmp_path))
    assert all(0 < loss < 1000 for loss in losses)
    assert "Python, in" not in printed


# ---- Single ones ------------------------------------------------------------------------------------


def test_a_classification_goes_on_as_if_it_had_not_stopped(tmp_path: Path) -> None:
    photographs(tmp_path / "set" / "train", 12)
    photographs(tmp_path / "set" / "val", 5)
    line = [tmp_path / "set", "--batch-size", 4, "--side", 64]
    whole = run("classification", *line, "--epochs", 2)
    saved = ["--checkpoint", tmp_path / "run.pt"]
    stopped = run("classification", *line, *saved, "--epochs", 1)
    resumed = run("classification", *line, *saved, "--epochs", 2)
    assert list(losses_in(whole, "epoch")) == [1, 2]
    assert losses_in(stopped, "epoch") | losses_in(resumed, "epoch") == losses_in(whole, "epoch")
    assert list(losses_in(resumed, "epoch")) == [2]
    assert whole.splitlines()[-1] == resumed.splitlines()[-1], "accuracy, too"
    assert "Python, in" not in whole


def test_a_job_that_one_rank_is_told_to_stop_goes_on_with_fewer_ranks(tmp_path: Path) -> None:
    line = [photographs(tmp_path / "set", 26), "--global-batch", 4]

    def ranks(count: int, *more: object) -> list[subprocess.Popen[str]]:
        told = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": str(count)}
        command = [sys.executable, *map(str, (EXAMPLES / "cluster.py", *line, *more))]
        return [
            subprocess.Popen(
                command, env={**environment(), **told, "RANK": str(rank)}, stdout=subprocess.PIPE, text=True
            )
            for rank in range(count)
        ]

    def ended(job: list[subprocess.Popen[str]]) -> dict[int, float]:
        try:
            printed = [one.communicate(timeout=HANG)[0] for one in job]
        finally:
            for one in job:  # a rank whose other has gone would wait for it for half an hour
                one.kill()
        assert [one.returncode for one in job] == [0] * len(job)
        return losses_in(printed[0])

    saved = ["--checkpoint", tmp_path / "run.pt"]
    two = ranks(2, *saved, "--steps", 10**6)
    assert two[0].stdout is not None
    seen = two[0].stdout.readline() + two[0].stdout.readline()
    two[1].terminate()
    stopped = losses_in(seen) | ended(two)
    assert list(stopped) == list(range(1, len(stopped) + 1))
    steps = len(stopped) + 2
    resumed = ended(ranks(1, *saved, "--steps", steps))
    assert list(resumed) == [steps - 1, steps]
    whole = ended(ranks(1, "--steps", steps))
    assert stopped | resumed == pytest.approx(whole, abs=1e-3)
    assert not os.path.exists(tmp_path / "run.part")


def test_a_signal_during_the_exchange_of_a_step_is_in_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = program("cluster", monkeypatch)
    job = object.__new__(cluster.Job)
    job.ranks, job.steps, job.told, job.stopping, job.device = 1, 0, False, False, torch.device("cpu")
    job.network = cluster.small_network(2)
    job.optimizer = torch.optim.SGD(job.network.parameters(), 0.1)
    images, labels = torch.rand(2, 3, 32, 32), torch.tensor([0, 1])
    monkeypatch.setattr(torch.distributed, "all_reduce", lambda shared: job.stop())
    job.step(images, labels)
    assert not job.stopping, "the other ranks do not know of it"
    monkeypatch.setattr(torch.distributed, "all_reduce", lambda shared: None)
    job.step(images, labels)
    assert job.stopping


def test_hidden_patches_are_not_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    mae = program("mae", monkeypatch)
    torch.manual_seed(0)
    images, network = torch.rand(2, 3, 224, 224), mae.model(None).eval()
    patches = mae.patches_of(images)
    row, column = divmod(31, 14)
    piece = images[1, :, 16 * row : 16 * row + 16, 16 * column : 16 * column + 16]
    assert torch.equal(patches[1, 31], piece.permute(1, 2, 0).flatten())
    seen = torch.stack([torch.randperm(196)[:49] for _ in range(2)])
    hidden = torch.ones(2, 196, dtype=torch.bool).scatter(1, seen, False)
    with torch.no_grad():
        made = network(patches, seen)
        assert torch.equal(network(patches.masked_fill(hidden.unsqueeze(-1), 9.0), seen), made)
        assert not torch.equal(network(patches.masked_fill(~hidden.unsqueeze(-1), 9.0), seen), made)


def test_the_teacher_learns_from_the_student_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dino = program("dino", monkeypatch)
    torch.manual_seed(0)
    network = dino.model(None)
    with fastload.DataLoader(photographs(tmp_path / "set"), 2, seed=1, **dino.options(None)) as loader:
        batch = next(iter(loader))
    before = [one.clone() for one in network.teacher.parameters()]
    with torch.no_grad():
        for one in network.student.parameters():
            one.add_(1.0)
    dino.loss(network, batch, torch.device("cpu")).backward()
    assert all(one.grad is None for one in network.teacher.parameters())
    assert all(one.grad is not None for one in network.student.parameters())
    for was, now in zip(before, network.teacher.parameters(), strict=True):
        assert torch.allclose(now, was + (1 - dino.MOMENTUM), atol=1e-5)
