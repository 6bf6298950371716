"""Albumentations' and Kornia's transforms: in Python, called as they want to be, and said."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torchvision_likes import from_torchvision

from fastload import transforms as T
from fastload.transforms import compile_plan
from fastload.transforms.recognised import Named


class Mirror:
    """As Albumentations' HorizontalFlip(p=1)."""

    def __call__(self, *arguments: Any, image: Any) -> Any:
        if arguments:
            raise KeyError("You have to pass data to augmentations as named arguments")
        assert isinstance(image, np.ndarray)
        return {"image": image[:, ::-1]}


Mirror.__module__ = "albumentations.augmentations.geometric.flip"


def test_albumentations_gets_arrays_by_name() -> None:
    item, crop = Mirror(), T.CenterCrop((5, 7))
    plan = compile_plan(T.Compose([crop, item]))
    assert plan.picture
    (run,) = plan.tail
    pixels = np.random.default_rng(0).integers(0, 256, (5, 7, 3), dtype=np.uint8)
    assert np.array_equal(run(Image.fromarray(pixels)), pixels[:, ::-1])
    step = plan.steps[-1]
    assert step.name == "albumentations.augmentations.geometric.flip.Mirror"
    assert not step.native
    assert "uses OpenCV" in step.why
    assert "fastload.transforms has most of its operations" in step.keep
    tensor = compile_plan(T.Compose([crop, from_torchvision("PILToTensor"), item]))
    (run,) = tensor.tail
    assert np.array_equal(run(torch.from_numpy(pixels).permute(2, 0, 1)), pixels[:, ::-1])


def test_what_follows_says_what_it_stands_behind() -> None:
    plan = compile_plan(T.Compose([Mirror(), from_torchvision("RandomInvert", p=0.5)]))
    assert plan.steps[1].why == "after albumentations.augmentations.geometric.flip.Mirror"


def test_it_can_be_sent_to_workers() -> None:
    again = pickle.loads(pickle.dumps(Named(len)))
    assert again.transform is len


def test_kornia_is_for_whole_batches() -> None:
    kind = type("RandomErasing", (), {"__module__": "kornia.augmentation", "__call__": lambda self, x: x})
    item = kind()
    plan = compile_plan(T.Compose([T.CenterCrop(5), item]))
    assert plan.tail == (item,)
    assert "Kornia works on float tensors" in plan.steps[-1].why
    assert "batch_transform=" in plan.steps[-1].keep


@pytest.mark.parametrize("name", ["mykornia.x", "numpy"])
def test_others_are_callables_like_any(name: str) -> None:
    item = type("Mine", (), {"__module__": name, "__call__": lambda self, x: x})()
    plan = compile_plan(item)
    assert plan.tail == (item,)
    assert plan.steps[0].why == "a callable that the core does not know"
