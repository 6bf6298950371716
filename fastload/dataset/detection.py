"""Packed datasets as torch Datasets of pictures and targets, and their objects for COCO's evaluators."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import torch.utils.data

from fastload.collate.detection import Names, Roles, listed
from fastload.collate.planned import Collated
from fastload.dataset.samples import read_sample
from fastload.extras import need
from fastload.sample.fields import Array, Labels
from fastload.sample.layout import IDS, VALID
from fastload.sample.ragged import Ragged
from fastload.shard.dataset import checked_index
from fastload.shard.tickets import deliver

# ---- The dataset ----


class DetectionDataset(torch.utils.data.Dataset[tuple[torch.Tensor, dict[str, Any]]]):
    """A packed dataset as in torchvision's detection references: ``dataset[i]`` is a picture (channels,
    height, width) and its target, a dict as ``collate="list"`` makes it, both as they were packed.

    ``loader.dataset`` is one if ``collate`` makes targets, so that the references'
    ``get_coco_api_from_dataset`` works with it; :attr:`coco` is the same without decoding a picture.
    fastload.DataLoader reads the packed dataset in it.

    Args:
        dataset: a packed one, or a view of some.
        names: the fields' names; None: found automatically.

    Raises:
        ValueError: it has no image, boxes or labels, or it is ambiguous which they are.
    """

    def __init__(self, dataset: Any, names: Names | None = None) -> None:
        #: The packed dataset.
        self.of_packed = dataset
        #: The names of its fields.
        self.names = names or Names()
        self._roles = Roles.of(dataset.schema.fields, self.names)

    def __len__(self) -> int:
        return len(self.of_packed)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.of_packed!r})"

    def __getitem__(self, index: int) -> tuple[torch.Tensor, dict[str, Any]]:
        """Return a picture and its target, without transforms and without masks.

        Raises:
            TypeError, IndexError: no such index.
            SampleError: a damaged record or one that is no picture, with its shard and key.
        """
        sample = self._sample(index)
        roles = self._roles.without("masks")
        found = read_sample(self.of_packed, sample, roles.names)
        batch = {name: _of_one(found[name]) for name in roles.names}
        batch[roles.image] = [found[roles.image]]
        batch[VALID] = torch.ones(1, dtype=torch.bool)
        batch[IDS] = torch.tensor([sample])
        images, targets = listed(Collated(batch, batch, self._keys), roles)
        return images[0], targets[0]

    def __getitems__(self, indices: Sequence[int]) -> list[Any]:
        """Return the samples of a batch; if the indices are a batch of a fastload.DataLoader, that batch."""
        return deliver(indices) or [self[index] for index in indices]

    @property
    def ids(self) -> list[int]:
        """The image ids, in the order of samples."""
        return [self._image_id(self._sample(index)) for index in range(len(self))]

    @cached_property
    def coco(self) -> Any:
        """A ``pycocotools.coco.COCO`` of the set, made at first use, from the fields alone.

        Annotations are those that were packed, with their own ids if the set has ``ids``; if these repeat or
        are not positive, a warning says so, and annotations are numbered from 1.

        Raises:
            LibraryMissing: pycocotools is not installed.
            ValueError: two samples have the same image id.
        """
        need("pycocotools.coco", "dataset.coco")
        from pycocotools.coco import COCO  # type: ignore[import-untyped,unused-ignore]

        api = COCO()
        samples = map(self._sample, range(len(self)))
        api.dataset = coco_facts(self.of_packed, self._roles, samples, self._image_id)
        api.createIndex()
        return api

    def _sample(self, index: int) -> int:
        place, ids = checked_index(index, len(self)), getattr(self.of_packed, "sample_ids", None)
        return place if ids is None else int(ids[place])

    def _keys(self, samples: Sequence[int]) -> list[str]:
        return [self.of_packed.key(sample) for sample in samples]

    def _image_id(self, sample: int) -> int:
        if self._roles.image_id is None:
            return sample
        part, own = self.of_packed.locate(sample)
        return int(part.value(self._roles.image_id, own))

    def __getstate__(self) -> dict[str, Any]:
        return {"of_packed": self.of_packed, "names": self.names}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state["of_packed"], state["names"])  # type: ignore[misc]


def _of_one(value: Any) -> Any:
    """Return a sample's value as in a batch of one."""
    return Ragged.from_list([value]) if isinstance(value, torch.Tensor) else torch.tensor([value])


# ---- A packed set's objects in the form of COCO's annotation files ----


def coco_facts(
    dataset: Any, roles: Roles, samples: Iterable[int], image_id: Callable[[int], int]
) -> dict[str, Any]:
    """Return ``images``, ``annotations`` and ``categories`` of these samples, as ``json.load`` returns them.

    Args:
        dataset: a packed one.
        roles: the role of each field.
        samples: sample ids, each once.
        image_id: returns the image id of a sample id.

    Raises:
        ValueError: two samples have the same image id.
    """
    images: list[dict[str, Any]] = []
    annotations: list[dict[str, Any]] = []
    own_ids: list[int] | None = [] if _has_ids(dataset.schema, roles) else None
    fits = True
    for sample in samples:
        part, own = dataset.locate(sample)
        number, record = image_id(sample), part.record(own, roles.image)
        size = {"width": int(record["width"]), "height": int(record["height"])}
        images.append({"id": number, "file_name": dataset.key(sample), **size})
        columns = _columns(part, own, roles, size)
        count = len(columns["bbox"])
        for row in range(count):
            found = {name: values[row] for name, values in columns.items()}
            annotations.append({"id": len(annotations) + 1, "image_id": number, **found})
        if own_ids is not None:
            ids = part.value("ids", own).tolist()
            own_ids += ids
            fits = fits and len(ids) == count
    _check_apart(images)
    if own_ids is not None:
        _name(annotations, own_ids, fits)
    return {"images": images, "annotations": annotations, "categories": _categories(dataset, roles)}


def _has_ids(schema: Any, roles: Roles) -> bool:
    if "ids" not in schema:
        return False
    field = schema["ids"]
    return isinstance(field.kind, Array) and field.kind.has_ids and field.of in (roles.boxes, None)


def _check_apart(images: list[dict[str, Any]]) -> None:
    """Raise if image ids repeat: predictions name their picture by its id alone."""
    first: dict[int, dict[str, Any]] = {}
    for image in images:
        other = first.setdefault(image["id"], image)
        if other is not image:
            raise ValueError(
                f"Image ids must differ, or an evaluator takes pictures for one another. Found: "
                f"{image['id']} for {other['file_name']!r} and for {image['file_name']!r}. Evaluate each "
                "set by itself, and each sample once."
            )


def _name(annotations: list[dict[str, Any]], ids: list[int], fits: bool) -> None:
    """Set the annotations' ids, unless evaluators, which keep one per id and take 0 for no object, would
    confuse them. ``fits``: each sample has as many ids as boxes."""
    if not fits:
        what = "are not one for each box"
    elif len(set(ids)) < len(ids):
        what = "repeat"
    elif min(ids, default=1) < 1:
        what = "are not all positive"
    else:
        for one, own in zip(annotations, ids, strict=True):
            one["id"] = own
        return
    warnings.warn(f"The ids of annotations {what}: .coco numbers annotations from 1 instead.", stacklevel=4)


def _columns(part: Any, own: int, roles: Roles, size: dict[str, int]) -> dict[str, list[Any]]:
    """Return each key's value for each object of a sample."""
    boxes = part.value(roles.boxes, own).astype(np.float64)
    if roles.relative:
        boxes = boxes * np.array([size["width"], size["height"]] * 2)
    if roles.format == "xyxy":
        boxes = np.concatenate([boxes[:, :2], boxes[:, 2:] - boxes[:, :2]], 1)
    elif roles.format == "cxcywh":
        boxes = np.concatenate([boxes[:, :2] - boxes[:, 2:] / 2, boxes[:, 2:]], 1)
    classes = part.value(roles.labels, own).tolist()
    crowds = (
        [0] * len(boxes) if roles.iscrowd is None else part.value(roles.iscrowd, own).astype(int).tolist()
    )
    area = boxes[:, 2] * boxes[:, 3] if roles.area is None else part.value(roles.area, own)
    columns = {
        "bbox": boxes.tolist(),
        "category_id": [roles.numbers[one] if roles.numbers and one >= 0 else one for one in classes],
        "area": area.tolist(),
        "iscrowd": crowds,
    }
    if roles.masks is not None:
        columns["segmentation"] = [_segmentation(one) for one in part.value(roles.masks, own)]
    if roles.keypoints is not None:
        columns |= _points(part.value(roles.keypoints, own))
    return columns


def _segmentation(outline: Any) -> Any:
    """Return outlines as flat lists of numbers; run lengths as they are."""
    if isinstance(outline, dict):
        return {"size": list(outline["size"]), "counts": list(outline["counts"])}
    return [polygon.reshape(-1).tolist() for polygon in outline]


def _points(points: np.ndarray) -> dict[str, list[Any]]:
    if points.shape[2] == 2:
        points = np.concatenate([points, np.full((*points.shape[:2], 1), 2, points.dtype)], 2)
    labelled = (points[..., 2] > 0).sum(1).tolist()
    return {"keypoints": [one.reshape(-1).tolist() for one in points], "num_keypoints": labelled}


def _categories(dataset: Any, roles: Roles) -> list[dict[str, Any]]:
    """Return the classes by the source's numbers; without names, the labels that occur."""
    field = dataset.schema[roles.labels]
    kind, source = field.kind, field.source
    known = source.get("categories") if isinstance(source, dict) else None
    if isinstance(known, list) and sorted(one["id"] for one in known) == sorted(roles.numbers):
        return [dict(one) for one in known]  # as the JSON had them, with all their keys
    names = list(kind.classes) if isinstance(kind, Labels) else []
    if not names:
        return [{"id": number, "name": str(number)} for number in _seen(dataset, roles)]
    numbers = roles.numbers or range(len(names))
    return [{"id": number, "name": name} for number, name in zip(numbers, names, strict=True)]


def _seen(dataset: Any, roles: Roles) -> list[int]:
    numbers: set[int] = set()
    for part in dataset.parts:
        for own in part.ids_at(np.arange(len(part))).tolist():
            numbers.update(part.value(roles.labels, own).tolist())
    return sorted(numbers)
