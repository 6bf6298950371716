"""What torchvision's v2 does to boxes and points that nobody asked for, in chains of its objects; and what is
said where a loader does otherwise."""

from __future__ import annotations

import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from field_sets import write_field_set
from pictures import encoded, picture
from torchvision_likes import from_torchvision, tv_crop

from fastload import DataLoader, Of, PackedDataset
from fastload import transforms as T
from fastload._native import _C
from fastload.sample.fields import Array, Boxes, Image, Keypoints, Texts
from fastload.sample.schema import Schema
from fastload.transforms.recognised import translate

V1 = "torchvision.transforms.transforms"
BILINEAR = SimpleNamespace(value="bilinear")
FLIP = from_torchvision("RandomHorizontalFlip", p=0.5)
CROP = from_torchvision("RandomCrop", size=(20, 20), padding=None, pad_if_needed=False)
RESIZE = from_torchvision("Resize", size=[30], interpolation=BILINEAR, max_size=None, antialias=True)
AFFINE = from_torchvision(
    "RandomAffine",
    degrees=(-30, 30),
    translate=(0.2, 0.2),
    scale=None,
    shear=None,
    interpolation=SimpleNamespace(value="nearest"),
    fill=0,
    center=None,
)
EXPAND = from_torchvision("RandomZoomOut", fill=0, side_range=(1.0, 3.0), p=1.0)


def packed(folder: Path, kinds: dict[str, Any], rows: list[dict[str, Any]]) -> PackedDataset:
    rows = [{"image": encoded(picture(n, 40, 36 + n)), **row} for n, row in enumerate(rows)]
    return PackedDataset(write_field_set(folder, Schema.of({"image": Image(), **kinds}), rows))


def boxes_of(dataset: PackedDataset, chain: list[Any], name: str = "boxes", **more: Any) -> torch.Tensor:
    options: dict[str, Any] = {"seed": 5, "collate": "ragged", "num_workers": 2, **more}
    rows = [batch[name].values for batch in DataLoader(dataset, 4, transform=T.Compose(chain), **options)]
    return torch.cat(rows)


@pytest.fixture(scope="module")
def boxed(tmp_path_factory: pytest.TempPathFactory) -> PackedDataset:
    rng = np.random.default_rng(8)
    low = rng.random((10, 5, 2)) * 25
    corners = np.concatenate([low, low + 2 + rng.random((10, 5, 2)) * 30], 2).astype(np.float32)
    return packed(
        tmp_path_factory.mktemp("v2") / "set", {"boxes": Boxes()}, [{"boxes": rows} for rows in corners]
    )


@pytest.mark.parametrize(
    "chain",
    [[tv_crop()], [FLIP, RESIZE, CROP], [RESIZE, AFFINE], [AFFINE, tv_crop()], [EXPAND]],
    ids=["crop", "window", "moved", "moved first", "expanded"],
)
def test_chains_of_torchvision_cut_boxes_off(boxed: PackedDataset, chain: list[Any]) -> None:
    found = boxes_of(boxed, chain)
    assert torch.equal(found, boxes_of(boxed, [*chain, T.ClampBoundingBoxes()]))
    if chain != [EXPAND]:  # nothing ends there
        specs = [spec for item in chain for spec in translate(item) or ()]
        assert not torch.equal(found, boxes_of(boxed, specs))


def test_flips_and_resizes_cut_nothing_off(boxed: PackedDataset) -> None:
    chain = [FLIP, RESIZE]
    specs = [T.RandomHorizontalFlip(0.5), T.Resize(30)]
    assert torch.equal(boxes_of(boxed, chain), boxes_of(boxed, specs))
    assert not torch.equal(boxes_of(boxed, chain), boxes_of(boxed, [*specs, T.ClampBoundingBoxes()]))


def test_torchvision_v1_knows_no_boxes(boxed: PackedDataset) -> None:
    old = from_torchvision("RandomCrop", V1, size=(20, 20), padding=None, pad_if_needed=False)
    assert torch.equal(
        boxes_of(boxed, [RESIZE, old]), boxes_of(boxed, [T.Resize(30), T.RandomCrop((20, 20))])
    )


def test_two_fields_of_boxes_stay_whole_and_that_is_said(tmp_path: Path) -> None:
    row = {"a": np.array([[-9, 2, 90, 9]]), "b": np.array([[0, 0, 90, 9]])}
    two = packed(tmp_path / "two", {"a": Boxes(), "b": Boxes()}, [row])
    with pytest.warns(UserWarning, match="for one field of boxes: a, b stay whole") as said:
        found = boxes_of(two, [RESIZE, CROP], "a")
    assert len(said) == 1
    assert torch.equal(found, boxes_of(two, [T.Resize(30), T.RandomCrop((20, 20))], "a"))
    alone = boxes_of(two, [RESIZE, CROP], "a", fields=["image", "a"])
    assert alone.min() >= 0
    assert alone.max() <= 20


def test_points_without_pairs_are_said_once_where_a_chain_mirrors(tmp_path: Path) -> None:
    rows = [{"points": np.ones((1, 5, 3))}] * 3
    silent = packed(tmp_path / "silent", {"points": Keypoints(5)}, rows)
    flip = T.RandomHorizontalFlip(0.1)
    mirroring: list[Any] = [
        flip,
        T.RandomVerticalFlip(),
        T.RandomApply([T.RandomVerticalFlip()], 0.5),
        T.Views({"a": T.Resize(9), "b": flip}),
        T.ByEpoch({0: flip, 1: T.Compose([flip, T.RandomGrayscale(0.1)])}),
    ]
    for chain in mirroring:
        with pytest.warns(
            UserWarning, match=r"which of the 5 points of 'points' .*Keypoints\(5, pairs"
        ) as said:
            DataLoader(silent, 2, transform=chain)
        assert len(said) == 1
        assert said[0].filename == __file__
    told = packed(tmp_path / "told", {"points": Keypoints(5, pairs=((0, 1),))}, rows)
    one = packed(tmp_path / "one", {"points": Keypoints(1)}, [{"points": np.ones((1, 1, 3))}])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        DataLoader(silent, 2, transform=T.Compose([T.RandomHorizontalFlip(0.0), T.Resize(9)]))
        DataLoader(silent, 2, transform=flip, fields=["image"], collate="ragged")
        DataLoader(told, 2, transform=flip)
        DataLoader(one, 2, transform=flip)


def test_texts_of_objects_are_not_dropped_apart_from_them(tmp_path: Path) -> None:
    kinds = {"boxes": Boxes(), "words": Of("boxes", Texts()), "ids": Of("boxes", Array("int64", (None,)))}
    row = {"boxes": np.array([[0, 0, 9, 9], [3, 3, 3, 9]]), "words": ["one", "two"], "ids": np.arange(2)}
    texts = packed(tmp_path / "texts", kinds, [row])
    with pytest.raises(ValueError, match=r"cannot be dropped with them. Found: words=texts of boxes. Leave"):
        DataLoader(texts, 1, transform=T.SanitizeBoundingBoxes())
    (batch,) = DataLoader(texts, 1, transform=T.ClampBoundingBoxes())
    assert batch["words"] == [["one", "two"]]
    (batch,) = DataLoader(texts, 1, transform=T.SanitizeBoundingBoxes(), fields=["boxes", "ids"])
    assert batch["ids"].values.tolist() == [0]


@pytest.mark.parametrize("form", ["xywh", "cxcywh"])
@pytest.mark.parametrize("relative", [False, True])
@pytest.mark.parametrize("flip", [False, True])
def test_boxes_at_the_border_reach_over_it_by_rounding_alone(form: str, relative: bool, flip: bool) -> None:
    """As stored, in two decimals or as parts of the picture, they end there; a hundredth more is too much."""
    rng = np.random.default_rng(9)
    plan = _C.ObjectsPlan(0, format=form, relative=relative, clip=True, drop=True, inside=True)
    for _ in range(200):
        width, height = (int(side) for side in rng.integers(9, 2000, 2))
        sides = np.array([width, height] * 2)
        view = _C.View(((0, 0, width, height), (width // 2, height), (0, 0, width // 2, height), flip))
        low = np.round(rng.random((4, 2)) * (sides[:2] - 4), 2)
        high = np.tile(sides[:2].astype(np.float64), (4, 1))
        high[2:] += np.array([[0.02, 0], [0, 0.02]])
        rows = np.concatenate([low, high - low], 1)
        if form == "cxcywh":
            rows[:, :2] += rows[:, 2:] / 2
        stored = (rows / sides if relative else rows).astype(np.float32)
        numbers, boxes = _C.keep_objects(
            plan, view, width, height, stored.reshape(-1).view(np.uint8), np.empty(0, np.uint8)
        )
        assert numbers.tolist() == [0, 1]
        assert boxes.min() >= 0
