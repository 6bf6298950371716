"""Operations before the crop, on the whole picture: what is compiled, and every pixel against Pillow."""

from __future__ import annotations

from typing import Any

import numpy as np
import PIL
import pytest
from odd_files import ODD_FILES
from pixel_reference import drawn_around
from plain_pack import plain_pack
from source_reference import shown
from torchvision_likes import from_torchvision, tv_crop
from transform_reference import Draws

from fastload import Cache, DataLoader, PackedDataset
from fastload import transforms as T
from fastload.transforms import compile_plan

JITTER = T.ColorJitter(0.4, 0.4, 0.4, 0.1)
CROP, FLIP, UPSIDE = T.RandomResizedCrop(24), T.RandomHorizontalFlip(), T.RandomVerticalFlip()
TURN = T.RandomRotation(40, fill=7)


def places(*chain: Any) -> tuple[list[str], list[str], list[str]]:
    plan = compile_plan(T.Compose(chain))
    assert plan.tail == ()
    return tuple([use.name for use in uses] for uses in (plan.source, plan.geometry, plan.pixels))  # type: ignore[return-value]


@pytest.mark.parametrize(
    ("chain", "wanted"),
    [
        ((JITTER, CROP), (["order"], ["random_resized_crop"], [])),
        ((JITTER, T.Resize(30), T.RandomCrop(9)), (["order"], ["resize_shorter", "random_crop"], [])),
        ((JITTER, T.CenterCrop(9), JITTER), (["order"], ["center_crop"], ["order"])),
        ((FLIP, JITTER, CROP), (["order"], ["horizontal_flip", "random_resized_crop"], [])),
        ((JITTER, FLIP, CROP), (["order"], ["horizontal_flip", "random_resized_crop"], [])),
        # A flip stays on its side of what moves pixels.
        ((FLIP, TURN, CROP), (["horizontal_flip", "rotate"], ["random_resized_crop"], [])),
        ((TURN, FLIP, CROP), (["rotate", "horizontal_flip"], ["random_resized_crop"], [])),
        ((JITTER, FLIP, TURN, CROP), (["horizontal_flip", "order", "rotate"], ["random_resized_crop"], [])),
        ((FLIP, TURN, CROP, FLIP),
         (["horizontal_flip", "rotate"], ["random_resized_crop", "horizontal_flip"], [])),
        ((TURN, UPSIDE, CROP), (["rotate", "vertical_flip"], ["random_resized_crop"], [])),
        ((UPSIDE, TURN, CROP), (["vertical_flip", "rotate"], ["random_resized_crop"], [])),
        # Flips alone need no whole picture.
        ((UPSIDE, FLIP, CROP), ([], ["vertical_flip", "horizontal_flip", "random_resized_crop"], [])),
        ((FLIP, UPSIDE, CROP), ([], ["horizontal_flip", "vertical_flip", "random_resized_crop"], [])),
        ((FLIP, JITTER, CROP, FLIP),
         (["order"], ["horizontal_flip", "random_resized_crop", "horizontal_flip"], [])),
        ((T.TrivialAugmentWide(), CROP), (["choice"], ["random_resized_crop"], [])),
        ((JITTER, FLIP), ([], ["horizontal_flip"], ["order"])),
    ],
)  # fmt: skip
def test_what_stands_before_the_crop(chain: Any, wanted: Any) -> None:
    assert places(*chain) == wanted


@pytest.mark.parametrize(
    ("chain", "message"),
    [
        ((T.Resize(30), JITTER, T.RandomCrop(9)), r"RandomCrop.* is out of order"),
        ((JITTER, CROP, JITTER, CROP), r"RandomResizedCrop.* is out of order"),
        ((JITTER, T.ToDtype("float32"), CROP), r"RandomResizedCrop.* is out of order"),
        (
            (FLIP, T.ClampBoundingBoxes(), T.CenterCrop(40), TURN, CROP),
            r"RandomResizedCrop.* is out of order",
        ),
        ((T.RandAugment(), CROP), r"RandAugment shifts by a share of the picture's size, which differs"),
    ],
)
def test_what_cannot_is_said(chain: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        compile_plan(T.Compose(chain))


def test_torchvisions_objects() -> None:
    jitter = from_torchvision("RandomGrayscale", p=0.5)
    plan = compile_plan(T.Compose([jitter, tv_crop(), from_torchvision("ToTensor")]))
    assert ([use.name for use in plan.source], plan.pixels, plan.tail) == (["grayscale"], (), ())
    assert (
        plan.steps[0].why == "runs in the core with identical results, on the whole picture, before the crop"
    )
    assert all("whole" not in step.why for step in plan.steps[1:])
    between = T.Compose([from_torchvision("RandomInvert", p=0.5), tv_crop(), jitter, tv_crop()])
    plan = compile_plan(between)
    assert (len(plan.source), len(plan.pixels), len(plan.tail)) == (1, 1, 1)


def test_draws_are_random_where_only_the_source_draws() -> None:
    assert compile_plan(T.Compose([T.RandomInvert(0.5), T.CenterCrop(9)])).is_random
    assert not compile_plan(T.Compose([T.Grayscale(3), T.CenterCrop(9)])).is_random


CHAINS = [
    T.Compose([JITTER, CROP, FLIP]),
    T.Compose([T.RandomInvert(0.5), T.CenterCrop((40, 30)), T.RandomInvert(0.5)]),
    T.Compose([T.RandomApply([TURN, T.RandomGrayscale(0.5)], 0.7), FLIP, CROP, T.RandomSolarize(99, 0.5)]),
    T.Compose([T.RandomPerspective(0.5, 0.7), T.Resize((31, 20))]),
    T.Compose([T.TrivialAugmentWide(), T.RandomResizedCrop((20, 33), interpolation="bicubic")]),
]


@pytest.fixture(scope="module")
def odd(tmp_path_factory: pytest.TempPathFactory) -> PackedDataset:
    """All kinds of files: progressive, CMYK, gray, palettes, PNG, WebP, what only Pillow decodes."""
    blobs = [*ODD_FILES.values()] * 2
    return plain_pack(tmp_path_factory.mktemp("odd"), blobs, range(len(blobs)))


@pytest.mark.skipif(int(PIL.__version__.split(".")[0]) < 13, reason="pass order of Pillow >= 13")
@pytest.mark.parametrize("side", [None, 48])
@pytest.mark.parametrize("chain", CHAINS, ids=range(len(CHAINS)))
def test_batches_equal_pillow(odd: PackedDataset, chain: Any, side: int | None) -> None:
    plan, seen, worked = compile_plan(chain), 0, 0
    loader = DataLoader(
        odd, 9, shuffle=True, seed=11, num_workers=2, transform=chain, cache=Cache(decoded=side)
    )
    for epoch in range(2):
        for images, labels in loader:
            for image, sample in zip(images, labels.tolist(), strict=True):
                draws = Draws(11, epoch, sample)
                wanted = shown(odd.read(sample), plan, draws, side)
                worked += len(drawn_around(plan, draws)[0]) > 0
                found = image.permute(1, 2, 0).numpy()
                assert np.array_equal(found, wanted), (epoch, sample)
                seen += 1
    assert seen == 2 * len(odd)
    assert seen // 4 < worked
