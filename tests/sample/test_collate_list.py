"""``collate="list"`` against the same made slowly, sample by sample."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from field_sets import write_field_set
from object_sets import object_schema, object_set

import fastload
from fastload import DataLoader, Detection, Pad, Ranks
from fastload import transforms as T

COUNT = 13


@pytest.fixture(scope="module")
def objects(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[dict[str, Any]]]:
    return object_set(tmp_path_factory.mktemp("objects") / "set", COUNT)


def xyxy(sample: dict[str, Any], form: str, relative: bool, size: tuple[int, int]) -> np.ndarray:
    """A sample's boxes, one by one."""
    found = np.zeros((len(sample["boxes"]), 4), np.float64)
    for row, (a, b, c, d) in enumerate(sample["boxes"].astype(np.float64)):
        corners = {
            "xyxy": (a, b, c, d),
            "xywh": (a, b, a + c, b + d),
            "cxcywh": (a - c / 2, b - d / 2, a + c / 2, b + d / 2),
        }[form]
        scale = (size[1], size[0]) * 2 if relative else (1, 1, 1, 1)
        found[row] = [number * by for number, by in zip(corners, scale, strict=True)]
    return found


def order(ids: list[int], samples: list[dict[str, Any]]) -> list[dict[str, Any]]:
    by_id = {sample["image_id"]: sample for sample in samples}
    return [by_id[number] for number in ids]


@pytest.mark.parametrize("relative", [False, True])
@pytest.mark.parametrize("form", ["xyxy", "xywh", "cxcywh"])
def test_pictures_and_targets_of_all_formats(tmp_path: Path, form: str, relative: bool) -> None:
    folder, samples = object_set(tmp_path / "set", COUNT, form=form, relative=relative)
    dataset = fastload.PackedDataset(folder)
    seen = []
    with DataLoader(folder, batch_size=4, shuffle=True, seed=3, collate="list") as loader:
        for images, targets in loader:
            assert len(images) == len(targets)
            for image, target in zip(images, targets, strict=True):
                (sample,) = order([target["image_id"]], samples)
                number = samples.index(sample)
                seen.append(number)
                assert torch.equal(image, dataset.sample(number)["image"])
                wanted = xyxy(sample, form, relative, tuple(image.shape[-2:]))
                assert target["boxes"].dtype == torch.float32
                assert target["boxes"].shape == (len(sample["labels"]), 4)
                assert np.allclose(target["boxes"].numpy(), wanted, atol=1e-4, rtol=0)
                assert target["labels"].tolist() == sample["labels"].tolist()
                assert target["labels"].dtype == target["iscrowd"].dtype == torch.int64
                assert target["area"].tolist() == sample["area"].astype(np.float32).tolist()
                assert target["iscrowd"].tolist() == sample["iscrowd"].astype(int).tolist()
                assert np.array_equal(target["keypoints"].numpy(), sample["keypoints"])
                assert "masks" not in target
    assert sorted(seen) == list(range(COUNT))


def test_sample_ids_and_areas_of_boxes_where_the_set_has_none(tmp_path: Path) -> None:
    none = dict.fromkeys(("image_id", "area", "iscrowd", "keypoints", "masks"))
    folder, samples = object_set(tmp_path / "set", COUNT, **none)
    with DataLoader(folder, batch_size=4, shuffle=True, seed=3, collate="list") as loader:
        targets = [target for _, of_batch in loader for target in of_batch]
    assert sorted(target["image_id"] for target in targets) == list(range(COUNT))
    for target in targets:
        sample = samples[target["image_id"]]
        assert target["labels"].tolist() == sample["labels"].tolist()
        assert target["area"].tolist() == (sample["boxes"][:, 2] * sample["boxes"][:, 3]).tolist()
        assert target["iscrowd"].tolist() == [0] * len(sample["labels"])
        assert set(target) == {"boxes", "labels", "image_id", "area", "iscrowd"}


def test_a_transform_moves_boxes_and_pictures_of_one_size_are_a_list_too(
    objects: tuple[Path, list[dict[str, Any]]],
) -> None:
    folder, samples = objects
    with DataLoader(folder, batch_size=5, transform=T.Resize((30, 20)), collate="list") as loader:
        images, targets = next(iter(loader))
    assert isinstance(images, list)
    assert [tuple(image.shape) for image in images] == [(3, 30, 20)] * 5
    for number, target in enumerate(targets):
        x, y, width, height = (samples[number]["boxes"][:, one].astype(float) for one in range(4))
        across, down = 20 / (40 + number % 21), 30 / (60 - number % 19)
        wanted = np.stack([x * across, y * down, (x + width) * across, (y + height) * down], 1)
        assert np.allclose(target["boxes"].numpy(), wanted, atol=1e-4, rtol=0)


def test_padding_and_skipped_samples_are_left_out(objects: tuple[Path, list[dict[str, Any]]]) -> None:
    folder, samples = objects
    found: list[int] = []
    counted = 0
    for rank in range(2):
        with DataLoader(folder, batch_size=4, ranks=Ranks(rank, 2), collate="list") as loader:
            for images, targets in loader:
                assert len(images) == len(targets) == len([t["boxes"] for t in targets])
                found += [target["image_id"] for target in targets]
            counted += loader.stats()["samples"]
    assert counted == len(found) == COUNT
    assert sorted(found) == [sample["image_id"] for sample in samples]  # 14 positions, one of them padding


def test_fields_of_other_names_are_named(tmp_path: Path) -> None:
    _, samples = object_set(tmp_path / "set", 5)
    schema = {"picture": fastload.Image(), "first": fastload.Boxes("xywh"), "second": fastload.Boxes("xywh"),
              "classes": fastload.Array("int64", (None,))}  # fmt: skip
    named = [
        {"picture": one["image"], "first": one["boxes"], "second": one["boxes"][:1], "classes": one["labels"]}
        for one in samples
    ]
    folder = write_field_set(tmp_path / "named", schema, named)
    with pytest.raises(ValueError, match="2 may be it: first, second"):
        DataLoader(folder, collate="list")
    spec = Detection("list", boxes="first", labels="classes")
    with DataLoader(folder, batch_size=5, collate=spec) as loader:
        _, targets = next(iter(loader))
    assert [target["labels"].tolist() for target in targets] == [one["labels"].tolist() for one in samples]


@pytest.mark.parametrize(
    ("schema", "options", "message"),
    [
        ({"labels": None}, {}, "a field that is the labels; of those that batches have, none is"),
        ({"boxes": None}, {}, "a field that is the boxes; of those that batches have, none is"),
        ({}, {"fields": ["image", "labels"]}, "a field that is the boxes"),
        ({}, {"collate": Pad(then=Detection("list"))}, "takes a list of pictures, which Pad does not make"),
        ({}, {"collate": Detection("list", boxes="bbox")}, "boxes='bbox'.: batches have no such field"),
    ],
)
def test_what_does_not_go_is_refused(
    tmp_path: Path, schema: dict[str, Any], options: dict[str, Any], message: str
) -> None:
    folder, _ = object_set(tmp_path / "set", 5, **schema)
    with pytest.raises(ValueError, match=message):
        DataLoader(folder, **{"collate": "list", **options})


def test_rows_that_do_not_go_together_are_refused(tmp_path: Path) -> None:
    _, samples = object_set(tmp_path / "set", 5)
    samples[3]["labels"] = samples[3]["labels"][:-1]
    write_field_set(tmp_path / "bad", object_schema(), samples)
    with (
        DataLoader(tmp_path / "bad", batch_size=5, collate="list") as loader,
        pytest.raises(ValueError, match="'labels' has 2 rows for the sample at position 3 .* 'boxes' has 3"),
    ):
        next(iter(loader))


def test_forms_of_detection() -> None:
    with pytest.raises(ValueError, match="form must be one of list"):
        Detection("rows")
