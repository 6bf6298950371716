"""``collate=Patches(...)`` against the same cut slowly, patch by patch; ``tests/foreign`` has timm's own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from field_sets import write_field_set
from pictures import encoded, picture
from simulated_gpu import SimulatedGpu

import fastload
from fastload import DataLoader, Pad, Patches, Ranks
from fastload import transforms as T

COUNT = 11
FLOATS = (T.ToDtype("float32", scale=True), T.Normalize([0.5] * 3, [0.5] * 3))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    schema = {"image": fastload.Image(), "label": fastload.Label(("a", "b", "c")), "title": fastload.Text()}
    samples = [
        {
            "image": encoded(picture(seed=number, width=30 + 7 * number, height=90 - 6 * number)),
            "label": number % 3,
            "title": f"title {number}",
        }
        for number in range(COUNT)
    ]
    return write_field_set(tmp_path_factory.mktemp("patches") / "set", schema, samples)


def slow(pictures: list[torch.Tensor], patch: int, length: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The patches, their rows and columns, and which there are."""
    channels = pictures[0].shape[0]
    patches = np.zeros((len(pictures), length, patch * patch * channels), pictures[0].numpy().dtype)
    places, seen = np.zeros((len(pictures), length, 2), np.int64), np.zeros((len(pictures), length), bool)
    for number, one in enumerate(pictures):
        pixels = one.permute(1, 2, 0).numpy()
        rows, columns = pixels.shape[0] // patch, pixels.shape[1] // patch
        for row in range(rows):
            for column in range(columns):
                at = row * columns + column
                cut = pixels[row * patch : (row + 1) * patch, column * patch : (column + 1) * patch]
                patches[number, at] = cut.ravel()
                places[number, at], seen[number, at] = (row, column), True
    return patches, places, seen


def of_processor(pixels: torch.Tensor, seen: torch.Tensor) -> torch.Tensor:
    """What transformers' PIL class makes of patches of pixels (``rescale``, then ``normalize``, by NumPy)."""
    rescaled = (pixels.numpy().astype(np.float64) * (1 / 255)).astype(np.float32)
    values = (rescaled - np.float32(0.5)) / np.float32(0.5)
    return torch.from_numpy(np.where(seen.numpy()[:, :, None], values, np.float32(0)))


@pytest.mark.parametrize(("most", "patch", "length"), [(36, 8, 36), (20, 5, None), (1, 16, 4)])
@pytest.mark.parametrize("floats", [False, True])
def test_each_patch_is_where_it_was(
    folder: Path, most: int, patch: int, length: int | None, floats: bool
) -> None:
    chain = T.Compose([T.ResizeToPatches(patch, most), *(FLOATS if floats else ())])
    options: dict[str, Any] = {"batch_size": 4, "transform": chain, "shuffle": True, "seed": 4}
    with DataLoader(folder, collate="ragged", **options) as loader:
        wanted = list(loader)
    with DataLoader(folder, collate=Patches("naflex", patch, length), **options) as loader:
        found = list(loader)
    with DataLoader(folder, collate=Patches("siglip2", patch, length), **options) as loader:
        others = list(loader)
    pixels = {**options, "transform": T.ResizeToPatches(patch, most)}
    with DataLoader(folder, collate=Patches("naflex", patch, length), **pixels) as loader:
        bare = list(loader)
    counts = []
    for batch, other, plain, bytes_ in zip(found, others, wanted, bare, strict=True):
        pictures = plain["image"]
        shapes = [[side // patch for side in one.shape[-2:]] for one in pictures]
        counts += [rows * columns for rows, columns in shapes]
        longest = max(rows * columns for rows, columns in shapes) if length is None else length
        patches, places, seen = slow(pictures, patch, longest)
        assert set(batch) == {"patches", "patch_coord", "patch_valid", "label", "title", "valid"}
        assert np.array_equal(batch["patches"].numpy(), patches)
        assert np.array_equal(batch["patch_coord"].numpy(), places)
        assert np.array_equal(batch["patch_valid"].numpy(), seen)
        assert batch["title"] == plain["title"]
        assert torch.equal(batch["label"], plain["label"])
        values = of_processor(bytes_["patches"], bytes_["patch_valid"]) if floats else bytes_["patches"]
        assert other["pixel_values"].dtype == batch["patches"].dtype
        assert torch.equal(other["pixel_values"], values)
        assert other["spatial_shapes"].tolist() == shapes
        assert other["pixel_attention_mask"].dtype == torch.int32
        assert np.array_equal(other["pixel_attention_mask"].numpy(), seen)
    assert len(counts) == COUNT
    assert max(counts) <= most


def test_padding_of_ranks_has_no_patches(folder: Path) -> None:
    options: dict[str, Any] = {"transform": T.ResizeToPatches(8, 9), "collate": Patches(patch=8, length=9)}
    there: list[bool] = []
    for rank in range(2):
        with DataLoader(folder, 6, ranks=Ranks(rank, 2), **options) as loader:
            (batch,) = list(loader)
        there += batch["valid"].tolist()
        assert batch["patch_valid"].any(1).tolist() == batch["valid"].tolist()
        assert not batch["patches"][~batch["valid"]].any()
    assert sorted(there) == [False] + [True] * COUNT


def test_half_precision_and_texts(folder: Path) -> None:
    chain = T.Compose([T.ResizeToPatches(8, 9), *FLOATS, T.ToDtype("bfloat16")])
    text = {"title": lambda texts: torch.tensor([len(text) for text in texts])}
    options: dict[str, Any] = {"transform": chain, "text": text, "collate": Patches(patch=8)}
    with DataLoader(folder, COUNT, **options) as loader:
        (batch,) = list(loader)
    with DataLoader(folder, COUNT, transform=chain, collate="ragged") as loader:
        (plain,) = list(loader)
    pictures = [one.float() for one in plain["image"]]
    patches, _, _ = slow(pictures, 8, batch["patches"].shape[1])
    assert batch["patches"].dtype == torch.bfloat16
    assert np.array_equal(batch["patches"].float().numpy(), patches)
    assert batch["title"].tolist() == [len(f"title {number}") for number in range(COUNT)]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_processor_s_values_on_a_device(dtype: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bit for bit those of the host, which are the processor's, rounded; pixels cross the bus."""
    last = T.ToDtype(dtype)
    chain = T.Compose([T.ResizeToPatches(8, 20), T.RandomHorizontalFlip(), *FLOATS, last])
    options: dict[str, Any] = {
        "transform": chain,
        "shuffle": True,
        "seed": 2,
        "collate": Patches("siglip2", 8),
    }
    with DataLoader(folder, 4, **options) as loader:
        wanted = list(loader)
    gpu = SimulatedGpu(3, 0.2)
    for where in ("backends.choice", "transfer.cuda"):
        monkeypatch.setattr(f"fastload.{where}.find_gpu", lambda device: gpu)
    monkeypatch.setattr("fastload.backends.choice.goes_to_gpu", lambda device: True)
    with DataLoader(folder, 4, device="cuda", **options) as loader:
        found = list(loader)
        gpu.synchronize()
    assert len(found) == len(wanted) == 3
    assert gpu.copied_bytes < sum(batch["pixel_values"].nbytes for batch in wanted)
    for batch, one in zip(found, wanted, strict=True):
        assert batch["pixel_values"].dtype == getattr(torch, dtype)
        for name in ("pixel_values", "pixel_attention_mask", "spatial_shapes"):
            assert torch.equal(batch[name], one[name]), name


def test_what_a_callable_gets_is_not_changed(folder: Path) -> None:
    """Beside a transform of whole batches, the values are the transform's own."""
    seen = []

    def look(batch: Any) -> Any:
        seen.append(batch["image"][0].dtype)
        return batch

    chain = T.Compose([T.ResizeToPatches(8, 20), *FLOATS])
    with DataLoader(
        folder, 4, transform=chain, collate=Patches("siglip2", 8), batch_transform=look
    ) as loader:
        found = next(iter(loader))["pixel_values"]
    with DataLoader(folder, 4, transform=chain, collate=Patches("siglip2", 8)) as loader:
        others = next(iter(loader))["pixel_values"]
    assert seen == [torch.float32]
    assert float((found - others).abs().max()) <= 1.2e-7


def test_on_a_device_they_are_the_same(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options: dict[str, Any] = {"transform": T.Compose([T.ResizeToPatches(8, 20), *FLOATS]), "seed": 0}
    options |= {"shuffle": True, "collate": Patches(patch=8)}
    with DataLoader(folder, 4, **options) as loader:
        wanted = list(loader)
    gpu = SimulatedGpu(3, 0.2)
    for where in ("backends.choice", "transfer.cuda"):
        monkeypatch.setattr(f"fastload.{where}.find_gpu", lambda device: gpu)
    monkeypatch.setattr("fastload.backends.choice.goes_to_gpu", lambda device: True)
    with DataLoader(folder, 4, device="cuda", **options) as loader:
        found = list(loader)
        gpu.synchronize()
    assert len(found) == len(wanted) == 3
    for batch, one in zip(found, wanted, strict=True):
        assert set(batch) == set(one)
        assert (batch["patches"] - one["patches"]).abs().max() <= 2.0**-21
        for name in ("patch_coord", "patch_valid", "label"):
            assert torch.equal(batch[name], one[name])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"transform": T.Resize((30, 32))}, "has 30 x 32 pixels .* T.ResizeToPatches.16, most"),
        (
            {"collate": Patches(length=3), "transform": T.ResizeToPatches(16, 9)},
            "of a batch has [4-9] patches",
        ),
        ({"collate": Pad(then=Patches())}, "pads patches, not pictures. Found: .*Pad"),
        ({"collate": Patches(image="other")}, "needs one image field. Found: 0 of"),
        ({"transform": T.Views(a=T.CenterCrop(16), b=T.CenterCrop(32))}, "Found: Views of a, b"),
    ],
)
def test_what_does_not_go_is_refused(folder: Path, options: dict[str, Any], message: str) -> None:
    with (
        pytest.raises(ValueError, match=message),
        DataLoader(folder, COUNT, **{"collate": Patches(), **options}) as loader,
    ):
        next(iter(loader))


def test_forms_of_patches() -> None:
    with pytest.raises(ValueError, match="form must be one of naflex, siglip2"):
        Patches("rows")
    with pytest.raises(ValueError, match="length must be an integer of at least 1. Found: 0"):
        Patches(length=0)
