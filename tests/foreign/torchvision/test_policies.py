"""torchvision's own policies, v1 and v2, against the core: pixels of every operation at every magnitude, and
what is drawn."""

from __future__ import annotations

from collections import Counter
from typing import Any

import bare_torchvision  # noqa: F401
import numpy as np
import pytest
import torch
from PIL import Image
from torchvision.transforms import InterpolationMode, autoaugment, v2
from torchvision.transforms import v2 as new
from torchvision.transforms.autoaugment import AutoAugmentPolicy
from two_samples import same_shares

from fastload import transforms as T
from fastload._native import _C
from fastload.transforms import compile_plan
from fastload.transforms.operations.policies import leaf
from fastload.transforms.plan import Drawn, PixelUse

pytestmark = pytest.mark.timeout(900)  # 30,000 draws of theirs, several times

SIZE = (45, 64)  # height, width
DRAWS = 30_000
MODULES = {"v1": autoaugment, "v2": v2}


def picture(smooth: bool) -> Any:
    random = np.random.default_rng(1)
    y, x = np.mgrid[: SIZE[0], : SIZE[1]]
    values = (
        np.stack([3 * x + y, 250 - 4 * y, 20 + 2 * x], -1) if smooth else random.integers(0, 256, (*SIZE, 3))
    )
    return values.clip(0, 255).astype(np.uint8)


def tree_of(item: Any) -> PixelUse:
    plan = compile_plan(v2.Compose([v2.CenterCrop(SIZE), item]))
    assert plan.tail == ()
    (use,) = plan.pixels
    return use


def theirs(item: Any, image: Image.Image, name: str, magnitude: float) -> Any:
    """What torchvision's object does for one operation."""
    if hasattr(item, "_apply_image_or_video_transform"):
        return item._apply_image_or_video_transform(image, name, magnitude, item.interpolation, item._fill)
    return autoaugment._apply_op(image, name, magnitude, item.interpolation, item.fill)


def space_of(item: Any) -> dict[str, tuple[Any, bool]]:
    """torchvision's operations with their magnitudes, and whether these have a sign."""
    if isinstance(item, v2.Transform):
        bins = getattr(item, "num_magnitude_bins", 10)
        return {
            name: (make(bins, *SIZE), signed) for name, (make, signed) in item._AUGMENTATION_SPACE.items()
        }
    if isinstance(item, autoaugment.TrivialAugmentWide):
        found = item._augmentation_space(item.num_magnitude_bins)
    else:
        found = item._augmentation_space(getattr(item, "num_magnitude_bins", 10), SIZE)
    return {name: (None if values.ndim == 0 else values, signed) for name, (values, signed) in found.items()}


def leaves(use: PixelUse) -> list[PixelUse]:
    return [use] if not use.parts else [leaf for part in use.parts for leaf in leaves(part)]


FILTERS = [
    (InterpolationMode.NEAREST, None),
    (InterpolationMode.BILINEAR, [11, 22, 33]),
    (InterpolationMode.BICUBIC, 200),
]


@pytest.mark.parametrize("module", MODULES)
@pytest.mark.parametrize(("filter", "fill"), FILTERS)
@pytest.mark.parametrize("smooth", [False, True])
def test_every_operation_of_trivial_augment(module: str, filter: Any, fill: Any, smooth: bool) -> None:
    item = MODULES[module].TrivialAugmentWide(interpolation=filter, fill=fill)
    pixels, compared = picture(smooth), 0
    image = Image.fromarray(pixels)
    parts = tree_of(item).parts
    for (name, (magnitudes, signed)), part in zip(space_of(item).items(), parts, strict=True):
        values = [0.0] if magnitudes is None else [float(value) for value in magnitudes]
        wanted = [sign * value for value in values for sign in ((1.0, -1.0) if signed else (1.0,))]
        number = part.numbers[0] if part.numbers else 0.0
        for i, magnitude in enumerate(wanted):
            drawn = number.values[i] if isinstance(number, Drawn) else number
            use = PixelUse(part.name, 1.0, (drawn, *part.numbers[1:]) if part.numbers else (), part.parts)
            found = _C.operate(pixels, _C.PixelSpec([use.as_node()]), 0, 0, 0)
            assert np.array_equal(found, np.asarray(theirs(item, image, name, magnitude))), (name, magnitude)
            compared += 1
    assert compared == 4 + 9 * 62 + 2 * 31 - 1


@pytest.mark.parametrize("module", MODULES)
@pytest.mark.parametrize("magnitude", [0, 4, 9, 17, 30])
def test_every_operation_of_rand_augment(module: str, magnitude: int) -> None:
    item = MODULES[module].RandAugment(1, magnitude)
    pixels = picture(True)
    (group,) = tree_of(item).parts
    for (name, (values, signed)), part in zip(space_of(item).items(), group.parts, strict=True):
        value = 0.0 if values is None else float(values[magnitude])
        number = part.numbers[0] if part.numbers else 0.0
        for i, sign in enumerate((1.0, -1.0) if signed else (1.0,)):
            drawn = number.values[i] if isinstance(number, Drawn) else number
            use = PixelUse(part.name, 1.0, (drawn, *part.numbers[1:]) if part.numbers else (), part.parts)
            found = _C.operate(pixels, _C.PixelSpec([use.as_node()]), 0, 0, 0)
            wanted = theirs(item, Image.fromarray(pixels), name, sign * value)
            assert np.array_equal(found, np.asarray(wanted)), (name, sign * value)


@pytest.mark.parametrize("module", MODULES)
@pytest.mark.parametrize("policy", list(AutoAugmentPolicy))
def test_every_pair_of_auto_augment(module: str, policy: Any) -> None:
    item = MODULES[module].AutoAugment(policy)
    pixels, space = picture(False), space_of(item)
    pairs = item.policies if module == "v1" else item._policies
    tree = tree_of(item)
    for pair, chain in zip(pairs, tree.parts, strict=True):
        for (name, p, index), part in zip(pair, chain.parts, strict=True):
            assert part.probability == p
            values, signed = space[name]
            value = 0.0 if index is None else float(values[index])
            number = part.numbers[0] if part.numbers else 0.0
            for i, sign in enumerate((1.0, -1.0) if signed else (1.0,)):
                drawn = number.values[i] if isinstance(number, Drawn) else number
                use = PixelUse(part.name, 1.0, (drawn, *part.numbers[1:]) if part.numbers else ())
                found = _C.operate(pixels, _C.PixelSpec([use.as_node()]), 0, 0, 0)
                wanted = theirs(item, Image.fromarray(pixels), name, sign * value)
                assert np.array_equal(found, np.asarray(wanted)), (name, sign * value)


def drawn_by_torchvision(item: Any, monkeypatch: pytest.MonkeyPatch) -> Counter[Any]:
    """What torchvision draws, as the core would say it."""
    image, steps = Image.new("RGB", SIZE[::-1]), []

    def record(given: Any, name: str, magnitude: float, *_: Any, **__: Any) -> Any:
        if name != "Identity":
            if name == "Solarize" and isinstance(item, new.Transform):
                magnitude *= 255.0
            number = leaf(name, [abs(magnitude)], (0.0,) * 4).numbers[:1]
            if number and isinstance(number[0], Drawn):
                number = (number[0].values[0 if magnitude > 0 else 1],)
            steps.append((leaf(name, [0.0], (0.0,) * 4).name, *number))
        return given

    if isinstance(item, new.Transform):
        monkeypatch.setattr(item, "_apply_image_or_video_transform", record)
    else:
        monkeypatch.setattr(autoaugment, "_apply_op", record)
    torch.manual_seed(0)
    found: Counter[Any] = Counter()
    for _ in range(DRAWS):
        item(image)
        found[tuple(steps)] += 1
        steps.clear()
    return found


@pytest.mark.parametrize("module", MODULES)
@pytest.mark.parametrize("name", ["TrivialAugmentWide", "RandAugment", "AutoAugment"])
def test_what_is_drawn(module: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Operations, magnitudes and signs of 30,000 samples, chi-square against torchvision's own."""
    item = getattr(MODULES[module], name)()
    spec = _C.PixelSpec([tree_of(item).as_node()])
    found = Counter(
        tuple((name, *numbers[:1]) for name, numbers in spec.drawn(11, 0, i)) for i in range(DRAWS)
    )
    wanted = drawn_by_torchvision(item, monkeypatch)
    assert same_shares(found, wanted)
    del wanted[wanted.most_common(1)[0][0]]
    assert not same_shares(found, wanted)  # the test can tell


def test_a_whole_recipe_is_native() -> None:
    """torchvision's reference recipe, to the last step but erasing."""
    chain = T.Compose(
        [
            v2.RandomResizedCrop(176, antialias=True),
            v2.RandomHorizontalFlip(0.5),
            v2.TrivialAugmentWide(),
            v2.PILToTensor(),
            v2.ToDtype(torch.float, scale=True),
            v2.Normalize(mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225)),
        ]
    )
    plan = compile_plan(chain)
    assert plan.tail == ()
    assert all(step.native for step in plan.steps)
