"""Packed sets as datasets of pictures and targets, and as COCO's evaluator takes them."""

from __future__ import annotations

import io
import pickle
import warnings
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from field_sets import write_field_set
from made_detection import made_set
from object_sets import object_samples, object_schema, object_set
from pycocotools import mask as coco_masks
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval

import fastload
from fastload import DataLoader, PackedDataset
from fastload import transforms as T

COUNT = 13
IDS = (7, 90, 3)


@pytest.fixture(scope="module")
def objects(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[dict[str, Any]]]:
    samples = object_samples(COUNT)
    schema = {**object_schema(), "labels": fastload.Labels(("one", "two", "three"), IDS)}
    return write_field_set(tmp_path_factory.mktemp("coco") / "set", schema, samples), samples


def converted(dataset: Any) -> dict[str, Any]:
    """What torchvision's references make of any dataset (``convert_to_coco_api``), by its description."""
    images, annotations, classes = [], [], set()
    for number in range(len(dataset)):
        picture, target = dataset[number]
        size = {"height": picture.shape[-2], "width": picture.shape[-1]}
        images.append({"id": target["image_id"], **size})
        boxes = target["boxes"]
        boxes[:, 2:] -= boxes[:, :2]  # in place
        for row, box in enumerate(boxes.tolist()):
            label = target["labels"].tolist()[row]
            classes.add(label)
            annotations.append(
                {
                    "image_id": target["image_id"], "bbox": box, "category_id": label,
                    "area": target["area"].tolist()[row], "iscrowd": target["iscrowd"].tolist()[row],
                    "id": len(annotations) + 1, "keypoints": target["keypoints"][row].flatten().tolist(),
                }
            )  # fmt: skip
    return {
        "images": images,
        "annotations": annotations,
        "categories": [{"id": one} for one in sorted(classes)],
    }


def quietly(function: Any) -> Any:
    with redirect_stdout(io.StringIO()):
        return function()


def test_the_loaders_dataset_converts_as_the_references_do(
    objects: tuple[Path, list[dict[str, Any]]],
) -> None:
    folder, samples = objects
    with DataLoader(folder, batch_size=4, transform=T.Resize((9, 9)), collate="list") as loader:
        dataset = loader.dataset
    slow, quick = converted(dataset), dataset.coco.dataset
    assert dataset.ids == [one["image_id"] for one in samples] == [one["id"] for one in slow["images"]]
    assert [{name: one[name] for name in ("id", "height", "width")} for one in quick["images"]] == [
        {name: one[name] for name in ("id", "height", "width")} for one in slow["images"]
    ]
    assert [one["file_name"] for one in quick["images"]] == [f"{number:04d}" for number in range(COUNT)]
    assert len(quick["annotations"]) == len(slow["annotations"]) > 20
    for one, other in zip(quick["annotations"], slow["annotations"], strict=True):
        assert {name: one[name] for name in ("id", "image_id", "category_id", "iscrowd")} == {
            name: other[name] for name in ("id", "image_id", "category_id", "iscrowd")
        }
        assert np.allclose(one["bbox"], other["bbox"], atol=1e-4)
        assert np.allclose(one["area"], other["area"])
        assert one["keypoints"] == other["keypoints"]
    assert quick["categories"] == [
        {"id": 7, "name": "one"}, {"id": 90, "name": "two"}, {"id": 3, "name": "three"}
    ]  # fmt: skip


def test_targets_are_fresh(objects: tuple[Path, list[dict[str, Any]]]) -> None:
    dataset = PackedDataset(objects[0]).as_detection()
    first = dataset[4][1]["boxes"]
    first += 5
    assert torch.equal(dataset[4][1]["boxes"] + 5, first)


@pytest.mark.parametrize("kind", ["bbox", "segm"])
def test_perfect_predictions_are_worth_one(objects: tuple[Path, list[dict[str, Any]]], kind: str) -> None:
    folder, samples = objects
    coco = quietly(lambda: PackedDataset(folder).as_detection().coco)
    found = []
    for sample in samples:
        for row in np.flatnonzero(~sample["iscrowd"]):
            height, width = 60 - samples.index(sample) % 19, 40 + samples.index(sample) % 21
            outline = [one.astype(float).reshape(-1).tolist() for one in sample["masks"][row]]
            found.append(
                {
                    "image_id": sample["image_id"], "category_id": IDS[sample["labels"][row]],
                    "bbox": sample["boxes"][row].tolist(), "score": 0.9,
                    "segmentation": coco_masks.merge(coco_masks.frPyObjects(outline, height, width)),
                }
            )  # fmt: skip
    evaluator = quietly(lambda: COCOeval(coco, coco.loadRes(found), kind))
    quietly(lambda: (evaluator.evaluate(), evaluator.accumulate(), evaluator.summarize()))
    assert evaluator.stats[0] == pytest.approx(1.0)


def test_what_is_missing_is_made_up_as_the_page_says(tmp_path: Path) -> None:
    none = dict.fromkeys(("image_id", "area", "iscrowd", "keypoints", "masks"))
    folder, samples = object_set(tmp_path / "set", 5, form="cxcywh", relative=True, **none)
    dataset = PackedDataset(folder).as_detection(labels="labels")
    facts = dataset.coco.dataset
    assert dataset.ids == [0, 1, 2, 3, 4]
    boxes = np.concatenate([one["boxes"] for one in samples]).astype(float)
    pictures = [number for number, one in enumerate(samples) for _ in one["boxes"]]
    for row, (box, number) in enumerate(zip(boxes, pictures, strict=True)):
        width, height = 40 + number % 21, 60 - number % 19
        wanted = [
            (box[0] - box[2] / 2) * width,
            (box[1] - box[3] / 2) * height,
            box[2] * width,
            box[3] * height,
        ]
        one = facts["annotations"][row]
        assert np.allclose(one["bbox"], wanted, atol=1e-4)
        assert one["area"] == pytest.approx(wanted[2] * wanted[3], rel=1e-5)
        assert set(one) == {"id", "image_id", "category_id", "bbox", "area", "iscrowd"}
    assert {one["id"] for one in facts["categories"]} == set(
        np.concatenate([one["labels"] for one in samples])
    )


def test_annotations_keep_their_ids(tmp_path: Path) -> None:
    folder, samples = object_set(tmp_path / "plain", 5)
    schema = {**object_schema(), "ids": fastload.Array("int64", (None,))}
    named = [{**one, "ids": 500 + 10 * row + np.arange(len(one["boxes"]))} for row, one in enumerate(samples)]
    kept = write_field_set(tmp_path / "set", schema, named)
    coco = PackedDataset(kept).as_detection().coco
    assert isinstance(coco, COCO)
    assert sorted(coco.getAnnIds()) == np.concatenate([one["ids"] for one in named]).tolist()
    assert sorted(PackedDataset(folder).as_detection().coco.getAnnIds()) == list(range(1, 11))


@pytest.mark.parametrize(("first", "step", "what"), [(7, 0, "repeat"), (-10, 10, "are not all positive")])
def test_ids_that_evaluators_would_mistake_are_counted_anew(
    tmp_path: Path, first: int, step: int, what: str
) -> None:
    schema = {**object_schema(), "ids": fastload.Array("int64", (None,))}
    samples = object_set(tmp_path / "plain", 5)[1]
    named = [
        {**one, "ids": first + step * row + np.arange(len(one["boxes"]))} for row, one in enumerate(samples)
    ]
    folder = write_field_set(tmp_path / "set", schema, named)
    with pytest.warns(UserWarning, match=f"ids of annotations {what}: .coco numbers annotations from 1"):
        coco = quietly(lambda: PackedDataset(folder).as_detection().coco)
    assert sorted(coco.getAnnIds()) == list(range(1, 11))
    found = [
        {**{key: one[key] for key in ("image_id", "category_id", "bbox")}, "score": 0.9}
        for one in coco.dataset["annotations"]
        if not one["iscrowd"]
    ]
    evaluator = quietly(lambda: COCOeval(coco, coco.loadRes(found), "bbox"))
    quietly(lambda: (evaluator.evaluate(), evaluator.accumulate(), evaluator.summarize()))
    assert evaluator.stats[0] == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("kind", "extra", "warned"),
    [("int64", 1, True), ("int32", -1, True), ("float32", 0, False), ("uint64", 0, False)],
)
def test_a_field_ids_of_something_else(tmp_path: Path, kind: str, extra: int, warned: bool) -> None:
    """A caption's tokens, say: they are no annotations' ids."""
    schema = {**object_schema(), "ids": fastload.Array(kind, (None,))}
    samples = object_set(tmp_path / "plain", 5)[1]
    named = [
        {**one, "ids": 100 * row + np.arange(max(0, len(one["boxes"]) + extra)) + 1}
        for row, one in enumerate(samples)
    ]
    folder = write_field_set(tmp_path / "set", schema, named)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        coco = quietly(lambda: PackedDataset(folder).as_detection().coco)
    assert sorted(coco.getAnnIds()) == list(range(1, 11))
    assert any("not one for each box: .coco numbers" in str(one.message) for one in said) == warned


def test_pictures_of_one_image_id_are_not_evaluated(objects: tuple[Path, list[dict[str, Any]]]) -> None:
    twice = torch.utils.data.ConcatDataset([PackedDataset(objects[0]), PackedDataset(objects[0])])
    wrong = r"Image ids must differ.* Found: \d+ for '.*' and for '"
    with DataLoader(twice, batch_size=3, collate="list") as loader, pytest.raises(ValueError, match=wrong):
        loader.dataset.coco  # noqa: B018


def test_a_loader_is_made_of_it_again_and_it_pickles(objects: tuple[Path, list[dict[str, Any]]]) -> None:
    folder, samples = objects
    subset = torch.utils.data.Subset(PackedDataset(folder), [8, 2, 4])
    with DataLoader(subset, batch_size=3, collate="list") as loader:
        dataset = loader.dataset
        wanted = [target["image_id"] for target in next(iter(loader))[1]]
    assert wanted == [samples[number]["image_id"] for number in (8, 2, 4)] == dataset.ids
    again = pickle.loads(pickle.dumps(dataset))
    assert [again[place][1]["image_id"] for place in range(3)] == wanted
    with DataLoader(again, batch_size=3, collate="list") as loader:
        assert [target["image_id"] for target in next(iter(loader))[1]] == wanted
    with pytest.raises(IndexError, match="out of range"):
        again[3]


def test_torchs_loader_around_ours_gets_the_engines_batches(
    objects: tuple[Path, list[dict[str, Any]]],
) -> None:
    with DataLoader(objects[0], batch_size=4, collate="list", shuffle=True, seed=1) as loader:
        around = torch.utils.data.DataLoader(
            loader.dataset, batch_sampler=loader.batch_sampler, collate_fn=loader.collate_fn
        )
        found = [target["image_id"] for _, targets in around for target in targets]
        assert found == [target["image_id"] for _, targets in DataLoader(objects[0], batch_size=4,
                         collate="list", shuffle=True, seed=1) for target in targets]  # fmt: skip


def test_a_packed_coco_set_says_what_its_json_said(tmp_path: Path) -> None:
    made = made_set(tmp_path / "coco", 6, seed=3)
    fastload.pack(tmp_path / "coco", tmp_path / "packed", annotations=[str(made.json)], num_proc=1)
    (folder,) = sorted(path.parent for path in (tmp_path / "packed").rglob("dataset.json"))
    found = quietly(lambda: PackedDataset(folder).as_detection().coco)
    wanted = quietly(lambda: COCO(str(made.json)))
    assert sorted(found.getImgIds()) == sorted(wanted.getImgIds())
    assert sorted(found.getAnnIds()) == sorted(wanted.getAnnIds())
    assert found.dataset["categories"] == wanted.dataset["categories"]
    assert len(wanted.anns) > 6
    for number, one in wanted.anns.items():
        other = found.anns[number]
        for name in ("image_id", "category_id", "iscrowd", "num_keypoints"):
            assert other[name] == one[name]
        assert np.allclose(other["bbox"], one["bbox"], atol=1e-4)
        assert np.array_equal(found.annToMask(other), wanted.annToMask(one))
