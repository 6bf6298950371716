"""``collate="detr"`` and ``"yolo"`` against the same made slowly, object by object."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from field_sets import write_field_set
from object_sets import object_samples, object_schema, object_set

import fastload
from fastload import DataLoader, Detection, Pad, Ranks
from fastload import transforms as T
from fastload.collate.detection import _with_maps

COUNT = 13
IDS = (7, 90, 3)


@pytest.fixture(scope="module")
def objects(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[dict[str, Any]]]:
    """Boxes over and beyond the border among them, and category ids with gaps."""
    samples = object_samples(COUNT)
    for number in range(4, COUNT, 5):
        samples[number]["boxes"][0] = [-6, -9, 20, 30]
        samples[number]["boxes"][1] = [70, 5, 9, 9]
        samples[number]["iscrowd"][:] = False
    schema = {**object_schema(), "labels": fastload.Labels(("one", "two", "three"), IDS)}
    folder = tmp_path_factory.mktemp("trainers") / "set"
    return write_field_set(folder, schema, samples), samples


def kept_of(sample: dict[str, Any], height: int, width: int) -> list[tuple[int, list[float]]]:
    """Rows that are no crowds and boxes that lie in the picture, clipped to it."""
    found = []
    for row, (x, y, w, h) in enumerate(sample["boxes"].astype(float).tolist()):
        left, right = max(x, 0.0), min(x + w, float(width))
        top, bottom = max(y, 0.0), min(y + h, float(height))
        if right > left and bottom > top and not sample["iscrowd"][row]:
            found.append((row, [left, top, right, bottom]))
    return found


@pytest.mark.parametrize("size", [None, (64, 96)])
def test_detr_pads_masks_and_normalises(objects: tuple[Path, list[dict[str, Any]]], size: Any) -> None:
    folder, samples = objects
    collate = "detr" if size is None else Pad(*size, then=Detection("detr"))
    dataset, seen, beyond = fastload.PackedDataset(folder), [], 0
    with DataLoader(folder, batch_size=4, shuffle=True, seed=5, collate=collate) as loader:
        for batch in loader:
            assert list(batch) == ["pixel_values", "pixel_mask", "labels"]
            extents = [tuple(labels["size"].tolist()) for labels in batch["labels"]]
            largest = tuple(max(size[side] for size in extents) for side in range(2))
            assert tuple(batch["pixel_values"].shape[-2:]) == (size or largest)
            assert batch["pixel_mask"].dtype == torch.int64
            for place, labels in enumerate(batch["labels"]):
                number = (int(labels["image_id"]) - 1000) // 7
                seen.append(number)
                sample, picture = samples[number], dataset.sample(number)["image"]
                height, width = picture.shape[-2:]
                assert labels["orig_size"].tolist() == labels["size"].tolist() == [height, width]
                assert torch.equal(batch["pixel_values"][place, :, :height, :width], picture)
                mask = batch["pixel_mask"][place]
                assert int(mask.sum()) == int(mask[:height, :width].sum()) == height * width
                kept = kept_of(sample, height, width)
                rows = [row for row, _ in kept]
                beyond += len(sample["boxes"]) - len(rows) - int(sample["iscrowd"].sum())
                assert labels["class_labels"].tolist() == [IDS[one] for one in sample["labels"][rows]]
                assert labels["area"].tolist() == sample["area"][rows].astype(np.float32).tolist()
                assert labels["iscrowd"].tolist() == [0] * len(rows)
                assert np.array_equal(labels["keypoints"].numpy(), sample["keypoints"][rows])
                wanted = [
                    [(x1 + x2) / 2 / width, (y1 + y2) / 2 / height, (x2 - x1) / width, (y2 - y1) / height]
                    for _, (x1, y1, x2, y2) in kept
                ]
                assert labels["boxes"].shape == (len(rows), 4)
                assert np.allclose(labels["boxes"].numpy(), np.reshape(wanted, (-1, 4)), atol=1e-6)
    assert sorted(seen) == list(range(COUNT))
    assert beyond == 2


def test_list_has_the_numbers_that_the_source_calls_its_classes(
    objects: tuple[Path, list[dict[str, Any]]],
) -> None:
    folder, samples = objects
    with DataLoader(folder, batch_size=COUNT, collate="list") as loader:
        _, targets = next(iter(loader))
    found = [target["labels"].tolist() for target in targets]
    assert found == [[IDS[one] for one in sample["labels"]] for sample in samples]


def test_yolo_has_flat_rows_and_the_number_of_their_picture(
    objects: tuple[Path, list[dict[str, Any]]],
) -> None:
    folder, samples = objects
    options = {"batch_size": 5, "collate": "yolo", "transform": T.Resize((32, 64))}
    with DataLoader(folder, **options) as loader:
        batches = list(loader)
    assert [len(batch["img"]) for batch in batches] == [5, 5, 3]
    for first, batch in zip((0, 5, 10), batches, strict=True):
        assert batch["img"].dtype == torch.uint8
        assert tuple(batch["img"].shape[1:]) == (3, 32, 64)
        wanted: dict[str, list[Any]] = {"cls": [], "bboxes": [], "batch_idx": [], "keypoints": []}
        for place, sample in enumerate(samples[first : first + 5]):
            number = first + place
            width, height = 40 + number % 21, 60 - number % 19
            assert batch["ori_shape"][place] == (height, width)
            assert batch["resized_shape"][place] == (32, 64)
            assert batch["im_file"][place] == f"{number:04d}"
            for row, (x, y, w, h) in enumerate(sample["boxes"].astype(float).tolist()):
                if not sample["iscrowd"][row]:
                    wanted["cls"].append([sample["labels"][row]])
                    wanted["bboxes"].append(
                        [(x + w / 2) / width, (y + h / 2) / height, w / width, h / height]
                    )
                    wanted["batch_idx"].append(place)
                    points = sample["keypoints"][row].astype(float)
                    wanted["keypoints"].append(points / [width, height, 1])
        for name, values in wanted.items():
            assert batch[name].dtype == torch.float32
            assert np.allclose(batch[name].numpy(), np.array(values), atol=1e-5), name
        assert "masks" not in batch


def test_maps_of_masks_have_smaller_objects_over_larger_ones() -> None:
    """By the description of Ultralytics' ``polygons2masks_overlap``: areas fall, and the i-th is i + 1."""
    rng = np.random.default_rng(2)
    masks = [torch.from_numpy(rng.integers(0, 2, (n, 12, 20), np.uint8)) for n in (3, 0, 2)]
    rows = {"cls": torch.arange(10.0, 15.0).view(-1, 1)}
    more = _with_maps(rows, masks, [3, 0, 2], torch.zeros(3, 3, 12, 20))
    classes = more["cls"][:, 0]
    assert more["masks"].shape == more["sem_masks"].shape == (3, 3, 5)
    assert more["masks"].dtype == torch.uint8
    begin = 0
    for place, of_one in enumerate(masks):
        small = of_one.numpy()[:, 2::4, 2::4]
        order = sorted(range(len(small)), key=lambda row: (-int(small[row].sum()), row))
        assert classes[begin : begin + len(small)].tolist() == [10 + begin + row for row in order]
        wanted = np.zeros((3, 5), np.uint8)
        for number, row in enumerate(order):
            wanted = np.maximum(wanted, small[row] * (number + 1))
        assert np.array_equal(more["masks"][place].numpy(), wanted)
        ours = [10 + begin + row for row in order]
        semantic = [[ours[one - 1] for one in line] for line in wanted.tolist()] if ours else np.zeros((3, 5))
        assert np.array_equal(more["sem_masks"][place].numpy(), semantic)
        begin += len(small)


def test_no_objects_at_all(tmp_path: Path) -> None:
    samples = [one for one in object_samples(11) if not len(one["boxes"])]
    assert len(samples) == 3
    folder = write_field_set(tmp_path / "empty", object_schema(), samples)
    with DataLoader(folder, batch_size=3, collate="yolo", transform=T.Resize((16, 16))) as loader:
        batch = next(iter(loader))
    assert batch["cls"].shape == (0, 1)
    assert batch["bboxes"].shape == (0, 4)
    assert batch["batch_idx"].shape == (0,)
    assert batch["keypoints"].shape == (0, 3, 3)
    with DataLoader(folder, batch_size=3, collate="detr") as loader:
        labels = next(iter(loader))["labels"]
    assert [one["boxes"].shape for one in labels] == [(0, 4)] * 3


def test_padding_is_left_out_of_both(objects: tuple[Path, list[dict[str, Any]]]) -> None:
    folder, _ = objects
    for collate, options in (("detr", {}), ("yolo", {"transform": T.Resize((16, 16))})):
        found = counted = 0
        for rank in range(2):
            own = {"batch_size": 7, "ranks": Ranks(rank, 2), "collate": collate, **options}
            with DataLoader(folder, **own) as loader:
                for batch in loader:
                    found += len(batch["labels"]) if collate == "detr" else len(batch["img"])
                counted += loader.stats()["samples"]
        assert found == counted == COUNT


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"collate": "yolo", "transform": T.Resize(20)}, "leaves them at different sizes"),
        ({"collate": Pad(then=Detection("yolo"))}, "'yolo'.* pictures of one size"),
    ],
)
def test_what_does_not_go_is_refused(
    objects: tuple[Path, list[dict[str, Any]]], options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        DataLoader(objects[0], **options)


def test_tv_tensors_are_for_lists() -> None:
    with pytest.raises(ValueError, match="tv_tensors are for"):
        Detection("yolo", tv_tensors=True)


def test_a_users_batches_know_where_their_samples_come_from(tmp_path: Path) -> None:
    folder, samples = object_set(tmp_path / "set", COUNT, image_id=None)
    drawn = [[3, 1], [12], [5, 5, 0]]
    with DataLoader(folder, batch_sampler=drawn, collate="list") as loader:
        found = [[target["image_id"] for target in targets] for _, targets in loader]
    assert found == drawn
    subset = torch.utils.data.Subset(fastload.PackedDataset(folder), [9, 4, 7])
    with DataLoader(subset, batch_size=3, collate="list") as loader:
        assert [target["image_id"] for target in next(iter(loader))[1]] == [9, 4, 7]
    assert len(samples) == COUNT
