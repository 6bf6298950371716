"""collate=Patches against timm's own way from a picture to a NaFlex model, and a step of such a model."""

from __future__ import annotations

from pathlib import Path

import bare_torchvision  # noqa: F401
import pytest
import torch
from field_sets import write_field_set
from pictures import encoded, picture
from timm.data.naflex_dataset import NaFlexCollator
from timm.data.naflex_transforms import get_image_size_for_seq, patchify_image
from timm.models import create_model

import fastload
from fastload import DataLoader, Patches
from fastload import transforms as T

COUNT, PATCH, MOST = 9, 16, 49


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    schema = {"image": fastload.Image(), "label": fastload.Label(("a", "b", "c"))}
    samples = [
        {"image": encoded(picture(number, 40 + 31 * number, 300 - 25 * number)), "label": number % 3}
        for number in range(COUNT)
    ]
    return write_field_set(tmp_path_factory.mktemp("naflex") / "set", schema, samples)


def test_patches_are_timms(folder: Path) -> None:
    chain = T.Compose([T.ResizeToPatches(PATCH, MOST), T.ToDtype("float32", scale=True)])
    with DataLoader(folder, COUNT, transform=chain, collate="ragged") as loader:
        plain = next(iter(loader))
    with DataLoader(folder, COUNT, transform=chain, collate=Patches("naflex", PATCH, MOST)) as loader:
        found = next(iter(loader))
    for number, one in enumerate(plain["image"]):
        size = 300 - 25 * number, 40 + 31 * number
        assert one.shape[1:] == get_image_size_for_seq(size, PATCH, max_seq_len=MOST)[1]
    cut = [patchify_image(one.contiguous(), (PATCH, PATCH)) for one in plain["image"]]
    samples = [dict(zip(("patches", "patch_coord", "patch_valid"), parts, strict=True)) for parts in cut]
    labels = plain["label"].tolist()
    wanted, targets = NaFlexCollator(MOST)(list(zip(samples, labels, strict=True)))
    for name in ("patches", "patch_coord", "patch_valid"):
        assert found[name].dtype == wanted[name].dtype
        assert torch.equal(found[name], wanted[name]), name
    assert torch.equal(found["label"], targets)


def test_a_model_takes_them(folder: Path) -> None:
    torch.manual_seed(0)
    model = create_model("naflexvit_base_patch16_gap", num_classes=3, embed_dim=48, depth=1, num_heads=2)
    chain = T.Compose([T.ResizeToPatches(PATCH, MOST), T.ToDtype("float32", scale=True)])
    with DataLoader(folder, COUNT, transform=chain, collate=Patches("naflex", PATCH)) as loader:
        batch = next(iter(loader))
    names = ("patches", "patch_coord", "patch_valid")
    scores = model({name: batch[name] for name in names})
    assert scores.shape == (COUNT, 3)
    torch.nn.functional.cross_entropy(scores, batch["label"]).backward()
    weights = [one.grad for one in model.parameters() if one.grad is not None]
    assert sum(bool(one.abs().max() > 0) for one in weights) > 5
