"""What a loader says of its steps, and the warning of what runs in Python."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from torchvision_likes import MEAN, STD, from_torchvision, tv_crop

from fastload import DataLoader, errors
from fastload import transforms as T
from fastload.transforms.batch import RandomErasing

CROP = T.RandomResizedCrop(16)


def blur(image: Any) -> torch.Tensor:
    return torch.zeros(1)


def slow_warnings(folder: Path, **options: Any) -> list[str]:
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        loader = DataLoader(folder, 4, **options)
        list(loader)
        list(loader)
    return [str(w.message) for w in found if issubclass(w.category, errors.SlowPathWarning)]


def test_what_leaves_the_core_is_said_once(folder: Path) -> None:
    flip = from_torchvision("RandomHorizontalFlip", p=0.5)
    [message] = slow_warnings(folder, num_workers=0, transform=T.Compose([CROP, blur, flip]))
    assert "blur (a callable that the core does not know)" in message
    assert "RandomHorizontalFlip (after blur)" in message
    assert "put it before blur, if the order does not matter to you" in message
    assert "loader.explain()" in message
    with pytest.warns(errors.SlowPathWarning) as record:
        DataLoader(folder, 4, transform=blur)
    assert record[0].filename == __file__


def test_nothing_is_said_where_nothing_leaves_it(folder: Path) -> None:
    chain = [from_torchvision("RandomHorizontalFlip", p=0.5), tv_crop(), from_torchvision("ToTensor")]
    assert slow_warnings(folder, transform=T.Compose(chain)) == []
    assert slow_warnings(folder, transform=CROP, num_workers=0, collate_fn=list) == []


def lines(loader: DataLoader) -> dict[str, str]:
    """Where each step runs, by stage and what."""
    return {f"{step.stage} {step.what}": step.where for step in loader.explain().steps}


def test_a_native_loader_is_the_cores(folder: Path) -> None:
    chain = T.Compose([CROP, T.RandomHorizontalFlip(), T.Normalize(MEAN, STD)])
    loader = DataLoader(folder, 4, num_workers=2, transform=chain, batch_transform=[RandomErasing()])
    found = loader.explain()
    stages = [step.stage for step in found.steps]
    assert stages == ["order", "read", "decode", *["transform"] * 3, "collate", "batch_transform"]
    assert {step.where for step in found.steps[1:-1]} == {"core"}
    assert found.slow == ()
    text = str(found)
    assert text == repr(found)
    for step in found.steps:
        assert f"{step.stage}: {step.what}\n    {step.where}." in text


def test_python_steps_say_where_why_and_what_would_keep_them(folder: Path) -> None:
    mixing = from_torchvision("CutMix")
    loader = DataLoader(
        folder, 4, num_workers=2, transform=T.Compose([CROP, from_torchvision("ToTensor"), mixing])
    )
    [step] = loader.explain().slow
    assert step.what.endswith("CutMix")
    assert (step.where, step.why) == ("Python, in 2 worker processes", "the core has no CutMix")
    assert "batch_transform=CutMix" in step.keep
    assert f"To keep it in the core: {step.keep}." in str(loader.explain())
    assert lines(loader)["collate torch's default_collate"] == "Python, in 2 worker processes"
    inline = DataLoader(folder, 4, num_workers=0, transform=blur)
    assert inline.explain().slow[0].where == "Python, in the thread that asks for batches"
    assert "decode whole pictures, because no crop or resize comes first" in str(lines(inline))


def test_a_torch_dataset_is_torchs(folder: Path) -> None:
    data = torch.utils.data.TensorDataset(torch.arange(8))
    found = DataLoader(data, 4, num_workers=2).explain()
    assert {step.stage: step.where for step in found.steps}["transform"] == "torch's 2 worker processes"
    assert all("fastload pack" in step.keep for step in found.steps if step.stage == "decode")
