"""Packed datasets as torch Datasets of pictures and targets, and what evaluators ask of them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import torch.utils.data

from fastload.collate.listed import listed
from fastload.collate.planned import Delivered
from fastload.collate.roles import Names, Roles
from fastload.dataset.pictures import checked_index
from fastload.dataset.samples import read_sample
from fastload.extras import need
from fastload.sample.layout import IDS, VALID
from fastload.sample.ragged import Ragged
from fastload.shard.tickets import deliver

__all__ = ["DetectionDataset"]


class DetectionDataset(torch.utils.data.Dataset[tuple[torch.Tensor, dict[str, Any]]]):
    """A packed dataset as torchvision's detection references have one: ``dataset[i]`` is a picture (channels,
    height, width) and its target, a dict as ``collate="list"`` makes it, both as they were packed.

    ``loader.dataset`` is one where ``collate`` makes targets, so that the references'
    ``get_coco_api_from_dataset`` works with it; :attr:`coco` is the same without decoding a picture.
    fastload.DataLoader reads the packed dataset in it.

    Args:
        dataset: a packed one, or a view of some.
        names: of its fields; None: found by themselves.

    Raises:
        ValueError: it has no image, boxes or labels, or it is not known which they are.
    """

    def __init__(self, dataset: Any, names: Names | None = None) -> None:
        #: The packed dataset.
        self.of_packed = dataset
        #: Of its fields.
        self.names = names or Names()
        self._roles = Roles.of(dataset.schema.fields, self.names)

    def __len__(self) -> int:
        return len(self.of_packed)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.of_packed!r})"

    def __getitem__(self, index: int) -> tuple[torch.Tensor, dict[str, Any]]:
        """A picture and its target, without transforms and without masks.

        Raises:
            TypeError, IndexError: no such index.
            SampleError: a record that is damaged or no picture, with its shard and key.
        """
        sample = self._sample(index)
        roles = self._roles.without("masks")
        found = read_sample(self.of_packed, sample, roles.names)
        batch = {name: _of_one(found[name]) for name in roles.names}
        batch[roles.image] = [found[roles.image]]
        batch[VALID] = torch.ones(1, dtype=torch.bool)
        batch[IDS] = torch.tensor([sample])
        images, targets = listed(Delivered(batch, batch, self._keys), roles)
        return images[0], targets[0]

    def __getitems__(self, indices: Sequence[int]) -> list[Any]:
        """The samples of a batch; where the indices are a batch of a fastload.DataLoader, that batch."""
        return deliver(indices) or [self[index] for index in indices]

    @property
    def ids(self) -> list[int]:
        """The image ids, in the order of samples."""
        return [self._image_id(self._sample(index)) for index in range(len(self))]

    @cached_property
    def coco(self) -> Any:
        """A ``pycocotools.coco.COCO`` of the set, made when it is first asked for, from the fields alone.

        Annotations are those that were packed, with their own ids where the set has ``ids``; a warning says
        where these repeat or are not positive, and annotations are counted from 1.

        Raises:
            LibraryMissing: pycocotools is not installed.
            ValueError: two samples have one image id.
        """
        need("pycocotools.coco", "dataset.coco")
        from pycocotools.coco import COCO  # type: ignore[import-untyped,unused-ignore]

        from fastload.dataset.coco_facts import coco_facts

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
    """A sample's value as a batch of one has it."""
    return Ragged.from_list([value]) if isinstance(value, torch.Tensor) else torch.tensor([value])
