"""A packed dataset's ``target_transform`` in a loader: applied to the labels of each batch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from numbers import Integral
from typing import Any

import torch
from torch.utils.data import default_collate

from fastload._native import _C
from fastload.transforms.compiler import name_of
from fastload.transforms.plan import Called, Plan


class TargetCollate:
    """A collate function that first passes each label through ``transform``.

    -100, which stands for padding and for skipped samples, stays unchanged.

    Args:
        transform: the dataset's, of an int.
        collate_fn: makes a batch of [(image, label)]; None: images and labels are stacked.
    """

    def __init__(
        self, transform: Callable[[int], Any], collate_fn: Callable[[list[Any]], Any] | None
    ) -> None:
        self._transform = transform
        self._collate_fn = collate_fn

    @property
    def in_words(self) -> str:
        """The functions' names, for messages."""
        then = "default_collate" if self._collate_fn is None else name_of(self._collate_fn)
        return f"labels through {name_of(self._transform)}, then {then}"

    def __call__(self, samples: list[tuple[Any, int]]) -> Any:
        labels = [self._changed(label) for _, label in samples]
        images = [image for image, _ in samples]
        if self._collate_fn is not None:
            return self._collate_fn(list(zip(images, labels, strict=True)))
        return [default_collate(images), self._stacked(labels)]

    def _changed(self, label: int) -> Any:
        return label if label == _C.IGNORE_LABEL else self._transform(label)

    def _stacked(self, labels: list[Any]) -> Any:
        is_marked = [isinstance(label, Integral) and label == _C.IGNORE_LABEL for label in labels]
        other = next((label for label in labels if not isinstance(label, Integral)), None)
        if other is None:
            return torch.tensor([int(label) for label in labels], dtype=torch.int64, device="cpu")
        if any(is_marked):
            raise ValueError(
                f"target_transform makes {type(other).__name__} of labels, and entry {is_marked.index(True)} "
                f"of the batch has the label {_C.IGNORE_LABEL}, which stands for padding or for a skipped "
                "sample: they cannot be stacked. Pass padding='drop' and on_error='raise' or 'replace', "
                "or a collate_fn that sees to it."
            )
        return default_collate(labels)


def with_targets(dataset: Any, collate_fn: Callable[[list[Any]], Any] | None) -> Any:
    """Return a loader's collate function: ``collate_fn`` after the packed dataset's target_transform."""
    transform = getattr(dataset, "target_transform", None)
    return collate_fn if transform is None else TargetCollate(transform, collate_fn)


@dataclass(frozen=True)
class FieldTarget:
    """A callable of dict samples that passes one label through ``transform``; -100 stays unchanged."""

    name: str
    transform: Callable[[int], Any]

    def __call__(self, sample: Mapping[str, Any]) -> dict[str, Any]:
        label = sample[self.name]
        return {**sample, self.name: label if label == _C.IGNORE_LABEL else self.transform(label)}


def with_field_target(dataset: Any, plan: Plan) -> Plan:
    """Return the plan of a loader of dict samples: their target_transform precedes other callables.

    Raises:
        ValueError: there is a target_transform, but no label.
    """
    if plan.scheduled:
        scheduled = tuple((epoch, with_field_target(dataset, one)) for epoch, one in plan.scheduled)
        return replace(with_field_target(dataset, replace(plan, scheduled=())), scheduled=scheduled)
    plan = replace(plan, picture=False)  # callables get the pictures of a dict as tensors
    transform = getattr(dataset, "target_transform", None)
    if transform is None:
        return plan
    label = dataset.schema.label_field
    if label is None:
        raise ValueError(
            f"The dataset has a target_transform and no field that is a label. Fields: {dataset.schema}."
        )
    target = FieldTarget(label.name, transform)
    called = Called(target, "sample", name="target_transform")
    return replace(plan, tail=(target, *plan.tail), called=(called, *plan.called))
