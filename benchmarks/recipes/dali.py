"""The recipes that DALI has policies for, on the CPU (nvidia.dali.auto_aug); its pixels are its own."""

from __future__ import annotations

from typing import Any

from loaders.jobs import MEAN

__all__ = ["RECIPES", "augmented", "erased"]

RECIPES = ("trivial_augment", "rand_augment", "auto_augment")


def augmented(images: Any, recipe: str, size: int) -> Any:
    """A pipeline's pictures after the recipe's policy; in a pipeline with enable_conditionals."""
    if recipe == "trivial_augment":
        from nvidia.dali.auto_aug import trivial_augment

        return trivial_augment.trivial_augment_wide(images, shape=(size, size))
    if recipe == "rand_augment":
        from nvidia.dali.auto_aug import rand_augment

        return rand_augment.rand_augment(images, n=2, m=9, shape=(size, size))
    from nvidia.dali.auto_aug import auto_augment

    return auto_augment.auto_augment(images, "image_net", shape=(size, size))


def erased(fn: Any, images: Any, size: int) -> Any:
    """RandomErasing(0.1): in a tenth of the pictures a rectangle has the mean's colour, which becomes 0."""
    area = fn.random.uniform(range=(0.02, 0.33)) * (size * size)
    ratio = fn.random.uniform(range=(0.3, 3.3))
    shape = fn.stack((area * ratio) ** 0.5, (area / ratio) ** 0.5)
    if fn.random.coin_flip(probability=0.1, dtype=_bool()):
        anchor = fn.random.uniform(range=(0.0, 1.0), shape=[2])
        images = fn.erase(
            images,
            anchor=anchor,
            shape=shape / size,
            normalized_anchor=True,
            normalized_shape=True,
            axes=(0, 1),
            fill_value=[255 * value for value in MEAN],
        )
    return images


def _bool() -> Any:
    from nvidia.dali import types

    return types.DALIDataType.BOOL
