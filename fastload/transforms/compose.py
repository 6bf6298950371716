"""Specs of whole chains, of several of them for one sample, and by the epoch: :class:`Compose`,
:class:`Views`, :class:`ByEpoch`; and of a callable that is for pictures alone, :class:`ImageOnly`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from fastload.transforms.operations.operation import set_field
from fastload.transforms.operations.registry import operation_of

MAX_VIEWS = 256  # of a sample: a draw knows its view by one byte


@dataclass(frozen=True)
class ImageOnly:
    """Call ``transform`` with a sample's picture alone. It must not move pixels: boxes, masks, keypoints and
    outlines stay as they are.

        Compose([RandomResizedCrop(512), ImageOnly(albumentations.CLAHE())])

    This is how callables that take a picture run on samples with such fields. A callable that moves pixels
    would leave the boxes behind: write one that takes the whole sample, a dict, instead.

    Args:
        transform: called with the picture, a PIL picture or a (C, H, W) tensor as without other fields.
        image: the field of pictures; None: the only one.

    Raises:
        TypeError: ``transform`` is not callable, or it is one of fastload's, which see to all fields.
    """

    transform: Any
    image: str | None = None

    def __post_init__(self) -> None:
        if is_ours(self.transform) or not callable(self.transform):
            raise TypeError(
                "ImageOnly takes a callable; fastload's own transforms see to all fields without it. Found: "
                f"{self.transform!r}."
            )
        if self.image is not None and not isinstance(self.image, str):
            raise TypeError(f"ImageOnly.image must be a field's name, or None. Found: {self.image!r}.")

    def __call__(self, image: Any) -> Any:
        """What the callable makes of a picture."""
        return self.transform(image)


@dataclass(frozen=True)
class Compose:
    """Apply transforms one after the other. It may hold other :class:`Compose` objects and any callables, and
    :class:`Views` as the first element.

    Raises:
        TypeError: an element is neither a transform nor callable.
    """

    transforms: Iterable[Any]

    def __post_init__(self) -> None:
        parts = tuple(self.transforms)
        for part in parts:
            refuse_class(part)
            if not is_ours(part) and not callable(part):
                raise TypeError(f"Compose takes transforms and callables. Found: {part!r}.")
        set_field(self, "transforms", parts)


@dataclass(frozen=True, init=False)
class Views:
    """Make several views of each sample from one reading, each with its own crop, flip, colours and dtype.

        Views(first=Compose([...]), second=Compose([...]))
        Views({"global_0": ..., "global_1": ..., "local": (8, Compose([...]))})  # and local_0 to local_7

    Batches are dicts: ``batch["first"]`` has the pictures under the view of that name. docs/guide/fields.md
    has the names where a sample has masks, boxes or further pictures.

    Args:
        views: transforms by the views' names; ``(count, transform)`` for as many views of that transform,
            which differ by what they draw and are called ``name_0``, ``name_1`` and so on.
        named: the same, as keyword arguments.

    Attributes:
        names: of the views, in order.
        transforms: of the views, in order.

    Raises:
        TypeError: something that is neither a transform nor callable nor such a pair.
        ValueError: no views, more than 256, names that two views have, or that no field may have.
    """

    names: tuple[str, ...]
    transforms: tuple[Any, ...]

    def __init__(self, views: Mapping[str, Any] | None = None, /, **named: Any) -> None:
        given = [*(views or {}).items(), *named.items()]
        found = [one for name, transform in given for one in _counted(name, transform)]
        names = tuple(name for name, _ in found)
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice or not 1 <= len(names) <= MAX_VIEWS:
            what = f"{twice[0]!r} twice" if twice else f"{len(names)} views"
            raise ValueError(
                f"A sample must have 1 to {MAX_VIEWS} views, each of another name. Found: {what}."
            )
        from fastload.sample.fields import Image  # few jobs have views
        from fastload.sample.schema import Field

        for name in names:
            Field(name, Image())  # which looks at the name
        set_field(self, "names", names)
        set_field(self, "transforms", tuple(transform for _, transform in found))

    def of(self, batch: Mapping[str, Any]) -> list[Any]:
        """The pictures of a batch under each view, in order: what multi-crop code calls its list of crops."""
        return [batch[name] for name in self.names]


@dataclass(frozen=True)
class ByEpoch:
    """Change the transform at given epochs: for progressive resizing, stronger augmentation later, or a last
    part without it.

        ByEpoch({0: chain(128), 6: chain(160), 12: chain(192)})

    Howard, "Training ImageNet in 18 minutes" (2018); Tan and Le, EfficientNetV2 (2021); Touvron et al.,
    FixRes (2019). Which one holds is a function of the epoch alone, so it is the same on all ranks, and after
    a restart. Nothing is padded: all batches of an epoch have its own size. Memory is planned for the
    largest.

    Args:
        transforms: by the first epoch that each is for; 0 must be there. Each is what ``transform=`` may be,
            all with the same dtype, all with Python callables or all without, and with the same views.

    Raises:
        TypeError: keys that are no integers, or something that is no transform.
        ValueError: no transform for epoch 0, or a negative epoch.
    """

    transforms: Mapping[int, Any]

    def __post_init__(self) -> None:
        for epoch, transform in self.transforms.items():
            if isinstance(epoch, bool) or not isinstance(epoch, int):
                raise TypeError(f"ByEpoch takes transforms by their first epochs. Found: {epoch!r}.")
            if epoch < 0:
                raise ValueError(f"ByEpoch's epochs must be at least 0. Found: {epoch}.")
            refuse_class(transform)
            known = transform is None or is_ours(transform)
            if isinstance(transform, ByEpoch) or not (known or callable(transform)):
                raise TypeError(f"ByEpoch takes a transform for each epoch. Found: {transform!r}.")
        if 0 not in self.transforms:
            raise ValueError(f"ByEpoch needs a transform for epoch 0. Found: {sorted(self.transforms)}.")
        set_field(self, "transforms", dict(sorted(self.transforms.items())))


def _counted(name: str, transform: Any) -> list[tuple[str, Any]]:
    """The views that stand under one name."""
    count = None
    if isinstance(transform, tuple) and len(transform) == 2:
        count, transform = transform
        if type(count) is not int or count < 1:
            raise ValueError(
                f"Views takes (count, transform) with a count of at least 1. Found: {count!r} for {name!r}."
            )
    refuse_class(transform)
    known = transform is None or is_ours(transform)
    if isinstance(transform, Views) or not (known or callable(transform)):
        raise TypeError(
            "Views takes a transform, or (count, transform), for each name, and no Views in it. "
            f"Found: {transform!r} for {name!r}."
        )
    return [(name, transform)] if count is None else [(f"{name}_{i}", transform) for i in range(count)]


def refuse_class(item: Any) -> None:
    """Raise TypeError for a class of transforms in the place of a transform: each picture would be given to
    it as the first of its arguments. A class that converts (``float``, a subclass of Tensor) is a callable
    like others.
    """
    if not isinstance(item, type):
        return
    is_spec = item.__module__.startswith("fastload.transforms")
    if is_spec or any("__call__" in vars(cls) for cls in item.__mro__):
        raise TypeError(
            f"A transform must be an object. Found: the class {item.__qualname__}. Call it with its "
            f"arguments: {item.__qualname__}(...)."
        )


def is_ours(item: Any) -> bool:
    """Whether it is one of fastload's transforms, or a chain, views or a schedule of such."""
    return isinstance(item, (ByEpoch, Compose, Views)) or operation_of(item) is not None
