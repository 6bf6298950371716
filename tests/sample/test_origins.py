"""Where the samples of a batch come from, for whoever makes something else of it: substitutes among them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from field_sets import write_field_set
from object_sets import object_samples, object_schema

import fastload
from fastload import DataLoader, Fields
from fastload import transforms as T

COUNT, BAD = 13, (2, 9)
SCHEMA = {**object_schema(), "image_id": None, "title": fastload.Text()}


@pytest.fixture(scope="module")
def damaged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Some pictures cannot be decoded; of the 60 - 40 pixels no two samples have the same."""
    schema = {name: kind for name, kind in SCHEMA.items() if kind is not None}
    samples: list[dict[str, Any]] = []
    for number, sample in enumerate(object_samples(COUNT)):
        sample["title"], sample["iscrowd"][:] = f"title {number}", False
        if number in BAD:
            sample["image"] = b"\xff\xd8 no picture"
        samples.append({name: sample[name] for name in schema})
    return write_field_set(tmp_path_factory.mktemp("origins") / "set", schema, samples)


def delivered(loader: DataLoader) -> list[int]:
    """The samples of one pass in their order, with substitutes where they are."""
    own = {report.sample: report.substitute for report in loader.errors}
    assert set(own) == set(BAD)
    return [int(own.get(number, number) or 0) for number in range(COUNT)]


def size_of(number: int) -> tuple[int, int]:
    return 60 - number % 19, 40 + number % 21


def same(sample: dict[str, Any]) -> dict[str, Any]:
    """A callable of a user's, which sees fields alone."""
    assert not any(name.startswith(".") for name in sample)
    return dict(sample)


@pytest.mark.parametrize("tail", [[], [same]])
def test_a_substitute_has_its_own_id_key_and_size(damaged: Path, tail: list[Any]) -> None:
    options: dict[str, Any] = {
        "batch_size": 5,
        "on_error": "replace",
        "seed": 3,
        "num_workers": 0 if tail else 2,
    }
    chain = T.Compose([T.Resize((16, 24)), *tail])
    with DataLoader(damaged, collate="yolo", transform=chain, **options) as loader:
        batches = list(loader)
        wanted = delivered(loader)
    assert [int(key) for batch in batches for key in batch["im_file"]] == wanted
    assert [shape for batch in batches for shape in batch["ori_shape"]] == [size_of(one) for one in wanted]
    with DataLoader(damaged, collate="list", transform=chain, **options) as loader:
        targets = [target for _, of_batch in loader for target in of_batch]
    assert [target["image_id"] for target in targets] == wanted
    assert [len(target["boxes"]) for target in targets] == [one % 5 for one in wanted]
    with DataLoader(damaged, collate="detr", transform=chain, **options) as loader:
        labels = [label for batch in loader for label in batch["labels"]]
    assert [tuple(label["orig_size"].tolist()) for label in labels] == [size_of(one) for one in wanted]


@pytest.mark.parametrize("collate", [None, lambda batch: {**batch, "more": len(batch)}])
def test_a_substitute_has_its_own_texts(damaged: Path, collate: Any) -> None:
    text = {"title": fastload.Captions()}
    options: dict[str, Any] = {"fields": ["image", "title"], "transform": T.CenterCrop(8), "collate": collate}
    with DataLoader(damaged, 5, text=text, on_error="replace", **options) as loader:
        batches = list(loader)
        wanted = delivered(loader)
    assert [title for batch in batches for title in batch["title"]] == [f"title {one}" for one in wanted]
    assert all(set(batch) <= {"image", "valid", "title", "more"} for batch in batches)


@pytest.mark.parametrize(
    "chain",
    [
        [T.Letterbox(64)],
        [T.Letterbox(48, rule="letterbox", center=False)],
        [T.RandomResizedCrop((20, 33))],
        [T.RandomResizedCrop((30, 20)), T.RandomHorizontalFlip(1.0)],
    ],
)
def test_ratio_and_pad_bring_stored_pixels_to_the_view(damaged: Path, chain: list[Any]) -> None:
    """As the boxes tell, which the view moves by another code: centres and sides in parts of the picture."""
    samples, mirrored = object_samples(COUNT), len(chain) == 2
    transform, checked = T.Compose(chain), 0
    with DataLoader(damaged, 4, collate="yolo", transform=transform, on_error="skip", shuffle=True) as loader:
        for batch in loader:
            height, width = batch["img"].shape[-2:]
            for place, key in enumerate(batch["im_file"]):
                stored = samples[int(key)]["boxes"].astype(np.float64)
                (down, across), (left, top) = batch["ratio_pad"][place]
                x, y, w, h = (stored[:, one] for one in range(4))
                wanted = np.stack(
                    [(x + w / 2) * across + left, (y + h / 2) * down + top, w * across, h * down], 1
                )
                if mirrored:
                    wanted[:, 0] = width - wanted[:, 0]
                rows = batch["bboxes"][batch["batch_idx"] == place].double() * torch.tensor(
                    [width, height] * 2
                )
                assert np.allclose(rows.numpy(), wanted, atol=1e-4, rtol=0)
                checked += len(stored)
    assert checked > 15


@pytest.mark.parametrize("collate", ["list", "detr", "yolo"])
def test_a_batch_of_bad_samples_has_none(damaged: Path, collate: str) -> None:
    options: dict[str, Any] = {
        "batch_sampler": [list(BAD)],
        "on_error": "skip",
        "fields": Fields(masks="dense"),
    }
    with DataLoader(damaged, collate=collate, transform=T.Resize((16, 24)), **options) as loader:
        (batch,) = list(loader)
    if collate == "list":
        assert batch == ([], [])
    elif collate == "detr":
        assert batch["pixel_values"].shape[0] == batch["pixel_mask"].shape[0] == len(batch["labels"]) == 0
    else:
        assert batch["img"].shape == (0, 3, 16, 24)
        assert batch["bboxes"].shape == (0, 4)
        assert batch["batch_idx"].shape == (0,)
        assert batch["masks"].shape == (0, 4, 6)


@pytest.mark.parametrize(
    "operation", [T.Mosaic(32), T.RandomRotation(20), T.RandomQuarterTurn(1), T.RandomVerticalFlip(1.0)]
)
def test_what_is_no_scale_and_shift_is_not_said(damaged: Path, operation: Any) -> None:
    chain = T.Compose([operation] if isinstance(operation, T.Mosaic) else [T.Resize((32, 32)), operation])
    rows = ["labels", "area", "iscrowd"]
    fields = Fields(
        ["image", "boxes", *rows], rows_of={"boxes": rows} if isinstance(operation, T.Mosaic) else None
    )
    options: dict[str, Any] = {"collate": "yolo", "transform": chain, "fields": fields, "on_error": "skip"}
    with DataLoader(damaged, COUNT, **options) as loader:
        (batch,) = list(loader)
    assert len(batch["im_file"]) == len(batch["ratio_pad"]) > 2
    assert set(batch["ratio_pad"]) == {None}
    assert list(batch["ori_shape"]) == [size_of(int(key)) for key in batch["im_file"]]
