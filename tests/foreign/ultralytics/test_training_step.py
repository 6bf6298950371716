"""Batches of ``collate="yolo"``: the same rows as Ultralytics' own data set gives of the same files, and
steps of its model on them."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

os.environ["YOLO_OFFLINE"] = "1"
import bare_torchvision  # noqa: F401
import torch
from made_detection import CLASSES, MadeSet, made_set, write_yolo
from ultralytics.cfg import get_cfg
from ultralytics.data.dataset import YOLODataset
from ultralytics.models.yolo.detect import DetectionTrainer
from ultralytics.nn.tasks import DetectionModel

import fastload
from fastload import DataLoader
from fastload import transforms as T

COUNT, BATCH, SIZE = 8, 4, 96


@pytest.fixture(scope="module")
def sets(tmp_path_factory: pytest.TempPathFactory) -> tuple[MadeSet, Path]:
    folder = tmp_path_factory.mktemp("yolo")
    made = made_set(folder / "made", COUNT, crowds=0.0)
    fastload.pack(write_yolo(made), folder / "packed", as_="yolo", num_proc=1)
    return made, folder / "packed" / "train"


def test_batches_are_those_of_its_data_set(sets: tuple[MadeSet, Path]) -> None:
    """In validation. Pixels are another resize's; boxes are float32 of six decimals in the files."""
    made, packed = sets
    dataset = YOLODataset(
        img_path=str(made.images), imgsz=SIZE, augment=False, rect=False, hyp=get_cfg(),
        data={"names": dict(enumerate(CLASSES)), "nc": len(CLASSES), "channels": 3}, task="detect",
    )  # fmt: skip
    with DataLoader(packed, BATCH, transform=T.Letterbox(SIZE), collate="yolo") as loader:
        for first, ours in zip(range(0, COUNT, BATCH), loader, strict=True):
            theirs = dataset.collate_fn([dataset[number] for number in range(first, first + BATCH)])
            for name in ("img", "cls", "bboxes", "batch_idx"):
                assert ours[name].dtype == theirs[name].dtype, name
                assert ours[name].shape == theirs[name].shape, name
            assert torch.equal(ours["cls"], theirs["cls"])
            assert torch.equal(ours["batch_idx"], theirs["batch_idx"])
            assert torch.allclose(ours["bboxes"], theirs["bboxes"], atol=2e-6)
            for name in ("ori_shape", "resized_shape"):
                assert [tuple(one) for one in ours[name]] == [tuple(one) for one in theirs[name]], name
            assert [Path(one).name for one in ours["im_file"]] == [
                Path(one).name for one in theirs["im_file"]
            ]
            apart = (ours["img"].float() - theirs["img"].float()).abs().mean((1, 2, 3))
            assert float(apart.max()) < 12  # of the same pictures, in the same colours and places


@pytest.mark.parametrize("mosaic", [False, True], ids=["letterbox", "mosaic"])
def test_its_model_trains(sets: tuple[MadeSet, Path], mosaic: bool) -> None:
    torch.manual_seed(0)
    model: Any = DetectionModel("yolo11n.yaml", nc=len(CLASSES), verbose=False)
    model.args = get_cfg()
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    prepared = SimpleNamespace(device=torch.device("cpu"), args=SimpleNamespace(multi_scale=0.0))
    first = T.Mosaic(SIZE) if mosaic else T.Letterbox(SIZE)
    chain = T.Compose([first, T.RandomHorizontalFlip()])
    before = [one.detach().clone() for one in model.parameters()]
    steps = 0
    with DataLoader(sets[1], BATCH, shuffle=True, seed=1, transform=chain, collate="yolo") as loader:
        for batch in loader:
            batch = DetectionTrainer.preprocess_batch(prepared, batch)
            losses, _ = model.train()(batch)
            assert torch.isfinite(losses).all()
            assert float(losses.detach().sum()) > 0
            optimizer.zero_grad()
            losses.sum().backward()
            optimizer.step()
            steps += 1
    assert steps == COUNT // BATCH
    changed = [not torch.equal(one, old) for one, old in zip(model.parameters(), before, strict=True)]
    assert sum(changed) > len(changed) / 2
