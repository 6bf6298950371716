"""Which fields of a batch lie in memory of their own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from field_sets import RICH, rich_samples, write_field_set

from fastload import DataLoader, Ragged
from fastload import transforms as T


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_field_set(tmp_path_factory.mktemp("delivery") / "rich", RICH, rich_samples(12))


def left_in_the_batch(folder: Path, transform: Any, **options: Any) -> set[str]:
    """Names of fields that lie where the batch's largest one does."""
    with DataLoader(folder, 6, transform=transform, seed=0, **options) as loader:
        batch = next(iter(loader))
    parts: dict[str, torch.Tensor] = {}
    for name, value in batch.items():
        if isinstance(value, Ragged):
            parts |= {name: value.values, f"{name} offsets": value.offsets}
        elif isinstance(value, torch.Tensor):
            parts[name] = value
    largest = max(parts.values(), key=lambda part: part.nbytes)
    place = largest.untyped_storage().data_ptr()
    return {name for name, part in parts.items() if part.untyped_storage().data_ptr() == place}


def test_small_fields_do_not_keep_the_pictures(folder: Path) -> None:
    fields = ["image", "mask", "label", "boxes"]
    assert left_in_the_batch(folder, T.CenterCrop(32), fields=fields) == {"image", "mask"}
    large = T.Compose([T.CenterCrop(32), T.ToDtype("float32")])
    assert left_in_the_batch(folder, large, fields=fields) == {"image"}  # the mask is a 12th of it


def test_many_small_views_are_not_copied(folder: Path) -> None:
    views = T.Views({"large": T.CenterCrop(32), "small": (8, T.CenterCrop(12))})
    found = left_in_the_batch(folder, views, fields=["image", "label"])
    assert found == {"large", *(f"small_{number}" for number in range(8))}
    few = T.Views({"large": T.CenterCrop(32), "small": (2, T.CenterCrop(6))})
    assert left_in_the_batch(folder, few, fields=["image", "label"]) == {"large"}
