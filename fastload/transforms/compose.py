"""Specs of chains: :class:`Compose`, several for one sample (:class:`Views`), one per epoch
(:class:`ByEpoch`), drawn for each picture (:class:`DrawEach`); and of a callable for pictures alone
(:class:`ImageOnly`)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from fastload.transforms.operations.operation import set_field
from fastload.transforms.operations.registry import operation_of

MAX_VIEWS = 256  # per sample: a draw stores the view's number in one byte


@dataclass(frozen=True)
class ImageOnly:
    """Call ``transform`` with a sample's picture alone. It must not move pixels, because boxes, masks,
    keypoints and outlines stay as they are.

        Compose([RandomResizedCrop(512), ImageOnly(albumentations.CLAHE())])

    This is how callables that take a picture run on samples with such fields. If a callable moves pixels,
    write one that takes the whole sample, a dict, instead.

    Args:
        transform: called with the picture, a PIL picture or a (C, H, W) tensor as without other fields.
        image: the field of pictures; None: the only one.

    Raises:
        TypeError: ``transform`` is not callable, or it is one of fastload's, which handle all fields.
    """

    transform: Any
    image: str | None = None

    def __post_init__(self) -> None:
        if is_ours(self.transform) or not callable(self.transform):
            raise TypeError(
                "ImageOnly takes a callable; fastload's own transforms handle all fields without it. Found: "
                f"{self.transform!r}."
            )
        if self.image is not None and not isinstance(self.image, str):
            raise TypeError(f"ImageOnly.image must be a field's name, or None. Found: {self.image!r}.")

    def __call__(self, image: Any) -> Any:
        """Return the callable's result for a picture."""
        return self.transform(image)


@dataclass(frozen=True)
class Compose:
    """Apply transforms one after the other. They may include other :class:`Compose` objects and any
    callables; :class:`Views` may come first.

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

    Batches are dicts: ``batch["first"]`` has the pictures of the view of that name. docs/guide/fields.md
    lists the names if a sample has masks, boxes or further pictures.

    Args:
        views: transforms by the views' names; ``(count, transform)`` makes ``count`` views of that transform,
            with different draws, called ``name_0``, ``name_1`` and so on.
        named: the same, as keyword arguments.

    Attributes:
        names: the views' names, in order.
        transforms: the views' transforms, in order.

    Raises:
        TypeError: a value is neither a transform nor callable nor such a pair.
        ValueError: no views, more than 256, two views of one name, or a name that no field may have.
    """

    names: tuple[str, ...]
    transforms: tuple[Any, ...]

    def __init__(self, views: Mapping[str, Any] | None = None, /, **named: Any) -> None:
        items = [*(views or {}).items(), *named.items()]
        counted = [view for name, transform in items for view in _counted(name, transform)]
        names = tuple(name for name, _ in counted)
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice or not 1 <= len(names) <= MAX_VIEWS:
            what = f"{twice[0]!r} twice" if twice else f"{len(names)} views"
            raise ValueError(
                f"A sample must have 1 to {MAX_VIEWS} views, each of another name. Found: {what}."
            )
        from fastload.sample.fields import Image  # few jobs have views
        from fastload.sample.schema import Field

        for name in names:
            Field(name, Image())  # which checks the name
        set_field(self, "names", names)
        set_field(self, "transforms", tuple(transform for _, transform in counted))

    def of(self, batch: Mapping[str, Any]) -> list[Any]:
        """Return the pictures of a batch, view by view in order: the list of crops in multi-crop code."""
        return [batch[name] for name in self.names]


@dataclass(frozen=True)
class DrawEach:
    """Draw a transform for each picture of a sample, where it has several: cameras, or windows of frames.

        DrawEach("camera", Compose([RandomCrop(224), ColorJitter(0.2)]))

    Without it all pictures of a sample share their draws: one crop, one change of colours. It is the whole
    transform, and the core does all of it.

    Args:
        each: "camera": each field of pictures has its own draws, and the frames of its window share them, as
            LeRobot's ``image_transforms`` do; "frame": each picture has its own.
        transform: what is drawn.

    Raises:
        ValueError: ``each`` is neither "camera" nor "frame".
        TypeError: ``transform`` is not one of fastload's or a chain of those.
    """

    each: Literal["camera", "frame"]
    transform: Any

    def __post_init__(self) -> None:
        if self.each not in ("camera", "frame"):
            raise ValueError(f'DrawEach draws for each "camera" or "frame". Found: {self.each!r}.')
        refuse_class(self.transform)
        if isinstance(self.transform, (ByEpoch, DrawEach, Views, Mapping)):
            raise TypeError(f"DrawEach takes one chain of transforms. Found: {self.transform!r}.")
        if not (is_ours(self.transform) or callable(self.transform)):
            raise TypeError(f"DrawEach takes transforms. Found: {self.transform!r}.")


@dataclass(frozen=True)
class ByEpoch:
    """Change the transform at given epochs: for progressive resizing, stronger augmentation later, or none
    at the end.

        ByEpoch({0: chain(128), 6: chain(160), 12: chain(192)})

    Howard, "Training ImageNet in 18 minutes" (2018); Tan and Le, EfficientNetV2 (2021); Touvron et al.,
    FixRes (2019). The choice depends on the epoch alone, so it is the same on all ranks and after a restart.
    Nothing is padded: all batches of an epoch have that epoch's size. Memory is planned for the largest.

    Args:
        transforms: by the first epoch of each; epoch 0 is required. Each is what ``transform=`` takes, all
            with the same dtype, all with Python callables or all without, and with the same views.

    Raises:
        TypeError: a key is not an integer, or a value is not a transform.
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
    """Return the views that one name stands for."""
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
    """Raise TypeError for a class of transforms in place of an object: each picture would become the first
    argument of its constructor. A class that converts (``float``, a subclass of Tensor) is a callable.
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
    """Return whether it is one of fastload's transforms, or a chain, views or a schedule of them."""
    return isinstance(item, (ByEpoch, Compose, DrawEach, Views)) or operation_of(item) is not None
