"""Whether the DataLoader's arguments go with batches that are dicts."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

from fastload.backends.fields import of_channels, viewed
from fastload.backends.objects import Followers, check_objects, warn_of_objects
from fastload.backends.options import Options
from fastload.dataset.mixture import Packed
from fastload.loader.fitting_callables import check_callables
from fastload.sample.fields import Image, Polygons
from fastload.sample.planned import chosen
from fastload.sample.schema import Field
from fastload.transforms.plan import Plan

__all__ = ["check_fields", "warn_of_fields"]


def check_fields(dataset: Packed, plan: Plan, options: Options) -> None:
    """Refuse what is for pairs of an image and a label.

    Args:
        dataset: a packed one.
        plan: the compiled transform.
        options: the loader's.

    Raises:
        ValueError: the dataset lacks a field, or an argument does not go with dicts.
    """
    fields = chosen(dataset.schema, options.fields)
    viewed(fields, plan, Followers(dataset.schema, options.objects, fields))
    _check_rows(dataset, fields, options)
    check_objects(dataset.schema, options.objects, fields, plan)
    check_callables(dataset, plan, options)
    why = "batches are dicts here: the dataset has other fields, or fields=, sizes= or Views was passed"
    if options.backend == "dali":
        raise ValueError(
            f"backend='dali' makes pairs of an image and a label, and {why}. Use backend='native'."
        )
    if options.batch_transform is not None:
        from fastload.backends.named_fields import check_named

        check_named(dataset, plan, options)
    if options.device_memory != "fresh":
        raise ValueError(
            f"device_memory={options.device_memory!r} is for pairs of images and labels, and {why}. "
            "Leave it out."
        )
    images = [field for field in fields if isinstance(field.kind, Image)]
    for field, view in product(images, plan.every):
        if view.normalize:
            channels = field.kind.channels  # type: ignore[attr-defined]
            of_channels(view.mean, channels)
            of_channels(view.std, channels)
    odd = [field for field in images if field.kind != Image()]
    if odd and any(view.source or view.pixels or view.erase is not None for view in plan.every):
        raise ValueError(
            "The transform changes colours or erases, which is for RGB pictures of 8 bits. Found: "
            f"{odd[0]}. Leave the field out by fields=[...], or the operation."
        )


def warn_of_fields(dataset: Packed, plan: Plan, options: Options) -> None:
    """Say what a model would learn wrongly of these fields, once a loader."""
    warn_of_objects(dataset.schema, options.objects, chosen(dataset.schema, options.fields), plan)


def _check_rows(dataset: Packed, fields: Sequence[Field], options: Options) -> None:
    """Refuse ``masks`` and ``objects`` that name what there is not."""
    if options.masks == "dense" and not any(isinstance(field.kind, Polygons) for field in fields):
        have = ", ".join(map(str, fields))
        raise ValueError(
            f"masks='dense' draws outlines and run lengths, and batches have none. Found: {have}."
        )
    for leader, followers in (options.objects or {}).items():
        chosen(dataset.schema, (leader, *followers))
