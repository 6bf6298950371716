"""Recognises Albumentations' and Kornia's transforms by their modules, without importing either. They have no
equals in the core: Albumentations resizes by OpenCV, which does not antialias, and Kornia works on float
tensors, so pixels differ from Pillow's. They run in Python, called as they want to be."""

from __future__ import annotations

from typing import Any

__all__ = ["Named", "adapted", "other_advice", "other_refusal"]


def _library(item: Any) -> str:
    return (type(item).__module__ or "").partition(".")[0]


def other_refusal(item: Any) -> str:
    """Why the core does not do it, in words; empty for what is neither library's."""
    return {
        "albumentations": "Albumentations works by OpenCV, whose pixels are others than Pillow's",
        "kornia": "Kornia works on float tensors, whose pixels are others than Pillow's",
    }.get(_library(item), "")


def other_advice(item: Any) -> str:
    """What would keep it off the Python path; empty for what is neither library's."""
    return {
        "albumentations": "fastload.transforms has most of its operations, with Pillow's pixels",
        "kornia": "it takes whole batches, on the device if there is one: batch_transform=",
    }.get(_library(item), "")


def adapted(item: Any) -> Any:
    """What calls ``item`` with a sample: Albumentations wants arrays, and by name."""
    return Named(item) if _library(item) == "albumentations" else item


class Named:
    """An Albumentations transform as a callable on PIL pictures and ``(C, H, W)`` tensors: it gets an
    ``(H, W, C)`` array as ``image=``, and its ``"image"`` is the result."""

    def __init__(self, transform: Any) -> None:
        self.transform = transform
        kind = type(transform)
        self.__qualname__ = f"{kind.__module__}.{kind.__qualname__}"

    def __call__(self, picture: Any) -> Any:
        import numpy as np

        array = np.asarray(picture.permute(1, 2, 0) if hasattr(picture, "permute") else picture)
        return self.transform(image=np.ascontiguousarray(array))["image"]
