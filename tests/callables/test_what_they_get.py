"""What Python callables and collate functions get, and what becomes of what they return."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from epochs import all_batches, same
from PIL import Image
from torchvision_likes import MEAN, STD, from_torchvision, tv_crop

from fastload import DataLoader, PackedDataset, errors
from fastload import transforms as T

CROP = T.RandomResizedCrop(24)
WORKERS = pytest.mark.parametrize("workers", [0, 2])


def to_tensor(image: Image.Image) -> torch.Tensor:
    """torchvision's ``PILToTensor``."""
    assert isinstance(image, Image.Image)
    assert image.mode == "RGB"
    return torch.from_numpy(np.array(image)).permute(2, 0, 1)


def as_array(image: Any) -> Any:
    return np.array(image)


@WORKERS
def test_the_first_callable_gets_the_picture(folder: Path, workers: int) -> None:
    native = all_batches(DataLoader(folder, 8, True, seed=0, transform=CROP))
    chain = T.Compose([CROP, to_tensor])
    assert same(
        all_batches(DataLoader(folder, 8, True, seed=0, num_workers=workers, transform=chain)), native
    )
    images, _ = next(
        iter(DataLoader(folder, 8, True, seed=0, num_workers=workers, transform=T.Compose([CROP, as_array])))
    )
    assert images.shape == (8, 24, 24, 3)
    assert torch.equal(images.permute(0, 3, 1, 2), native[0][0])


@WORKERS
def test_a_callable_alone_gets_the_whole_picture(packed: PackedDataset, workers: int) -> None:
    def whole(image: Image.Image) -> Any:
        return np.array(image)[:20, :20]

    found = [
        image for images, _ in DataLoader(packed, 8, num_workers=workers, transform=whole) for image in images
    ]
    assert len(found) == len(packed)
    for sample, image in enumerate(found):
        decoded = Image.open(io.BytesIO(packed.read(sample))).convert("RGB")
        assert np.array_equal(np.array(decoded)[:20, :20], image)


@WORKERS
def test_behind_a_tensor_comes_a_tensor(folder: Path, workers: int) -> None:
    seen = {}
    for name, chain in {
        "uint8": [CROP, T.ToDtype("uint8")],
        "PILToTensor": [tv_crop(size=[24, 24]), from_torchvision("PILToTensor")],
        "ToTensor": [tv_crop(size=[24, 24]), from_torchvision("ToTensor")],
        "normalized": [CROP, T.Normalize(MEAN, STD)],
    }.items():

        def check(image: Any) -> Any:
            assert isinstance(image, torch.Tensor)
            return image + 0

        chain_and_check = T.Compose([*chain, check])
        images, _ = next(iter(DataLoader(folder, 8, seed=0, num_workers=workers, transform=chain_and_check)))
        assert images.shape == (8, 3, 24, 24)
        seen[name] = images
    assert seen["uint8"].dtype == seen["PILToTensor"].dtype == torch.uint8
    assert torch.allclose(seen["ToTensor"], seen["uint8"] / 255, rtol=0, atol=2**-23)
    assert seen["normalized"].dtype == torch.float32


@WORKERS
def test_several_crops_collate_as_torch_does(folder: Path, workers: int) -> None:
    """DINO's and MoCo's: a list, a tuple, a dict of crops."""

    def crops(image: Image.Image) -> Any:
        small = to_tensor(image.crop((0, 0, 8, 8)))
        return {"list": [to_tensor(image), small], "tuple": (small, 3), "number": 1.5}

    batch, labels = next(iter(DataLoader(folder, 6, num_workers=workers, transform=T.Compose([CROP, crops]))))
    assert [part.shape for part in batch["list"]] == [(6, 3, 24, 24), (6, 3, 8, 8)]
    assert torch.equal(batch["list"][0][:, :, :8, :8], batch["tuple"][0])
    assert batch["tuple"][1].tolist() == [3] * 6
    assert batch["number"].dtype == torch.float64
    assert labels.tolist() == [0, 1, 2, 3, 4, 0]


@WORKERS
def test_pictures_at_the_end_are_an_error_as_torchs(folder: Path, workers: int) -> None:
    def nothing(image: Image.Image) -> Image.Image:
        return image

    with pytest.raises(
        errors.SampleError, match=r"Sample 0 \(key '0.img'.*found <class 'PIL.Image.Image'>"
    ) as caught:
        next(iter(DataLoader(folder, 8, seed=0, num_workers=workers, transform=T.Compose([CROP, nothing]))))
    assert isinstance(caught.value.__cause__, TypeError)
    assert caught.value.sample == 0


def as_list(samples: list[Any]) -> Any:
    return samples


@WORKERS
def test_a_collate_function_takes_pictures_of_different_sizes(folder: Path, workers: int) -> None:
    """Detection's ``Resize(800, max_size=1333)``; the plan's dtype, or PIL where torchvision's chain is."""
    resize = T.Resize(30, max_size=40)

    def sizes(image: Image.Image) -> tuple[int, int]:
        return image.height, image.width

    options: dict[str, Any] = {"num_workers": workers, "collate_fn": as_list}
    wanted = [
        size for size, _ in flat(DataLoader(folder, 8, transform=T.Compose([resize, sizes]), **options))
    ]
    assert len(set(wanted)) > 1
    found = flat(DataLoader(folder, 8, transform=resize, **options))
    assert [tuple(image.shape[1:]) for image, _ in found] == wanted
    assert all(image.dtype == torch.uint8 for image, _ in found)
    assert [label for _, label in found] == [i % 5 for i in range(52)]
    found = flat(DataLoader(folder, 8, transform=T.Compose([resize, T.Normalize(MEAN, STD)]), **options))
    assert {image.dtype for image, _ in found} == {torch.float32}
    attributes = {"interpolation": "bilinear", "max_size": 40, "antialias": True}
    chain = from_torchvision("Resize", size=[30], **attributes)
    found = flat(DataLoader(folder, 8, transform=chain, **options))
    assert [(image.height, image.width) for image, _ in found] == wanted
    with pytest.raises(ValueError, match="or a collate_fn that makes a list of them"):
        next(iter(DataLoader(folder, 8, transform=resize)))


def flat(loader: DataLoader) -> list[Any]:
    return [sample for batch in loader for sample in batch]


def test_without_a_transform_a_collate_function_gets_tensors(folder: Path) -> None:
    image, label = flat(DataLoader(folder, 8, collate_fn=as_list))[3]
    assert isinstance(image, torch.Tensor)
    assert (image.dtype, image.shape[0], label) == (torch.uint8, 3, 3)


class Odd(Exception):
    """Cannot be pickled: it needs an argument that its message is not."""

    def __init__(self, first: int, second: int) -> None:
        super().__init__("odd")


@WORKERS
@pytest.mark.parametrize("error", [lambda: KeyError("nothing"), lambda: Odd(1, 2), lambda: StopIteration()])
def test_errors_of_callables_name_the_sample(folder: Path, workers: int, error: Callable[[], Any]) -> None:
    def fails(image: Image.Image) -> torch.Tensor:
        raise error()

    for on_error in ("raise", "skip", "replace"):  # a wrong callable is no bad sample
        options: dict[str, Any] = {"num_workers": workers, "on_error": on_error}
        loader = DataLoader(folder, 4, transform=T.Compose([CROP, fails]), **options)
        name = type(error()).__name__
        with pytest.raises(errors.SampleError, match=rf"Sample 0 \(key '0.img' .*raised {name}") as caught:
            next(iter(loader))
        assert type(caught.value.__cause__).__name__ == name
        assert loader.errors == []


def test_without_pillow_the_loader_says_so(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(
        ImportError, match=r'to_tensor in transform gets PIL pictures.*pip install "fastload\[pil\]"'
    ):
        DataLoader(folder, 4, transform=to_tensor)
    DataLoader(folder, 4, transform=T.Compose([T.ToDtype("uint8"), as_array]))
