"""Chains of torchvision's transforms, v1 and v2, that are drawn at random, with callables of a user's between
them: on sets with boxes, masks, points and outlines, in every form of batches.

Where a chain draws nothing, a batch has what torchvision makes of the same samples: of Pillow's pictures, or
of tensors. Whatever it draws, all fields lie where the picture's marks do (tests/reference/marked_chains.py).
Or the chain is refused before the first batch, in words. Each run draws 240 chains, the long form
(tests/reference/long_forms.py) 10,000.
"""

from __future__ import annotations

import random
import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import bare_torchvision  # noqa: F401
import numpy as np
import PIL.Image
import pytest
import torch
from long_forms import SEED, as_drawn, how_many
from marked_chains import (
    COUNT,
    FORMATS,
    FORMS,
    Found,
    Outcome,
    World,
    corners,
    edge_of,
    eroded,
    make_world,
    tried,
)
from torchvision import transforms as v1
from torchvision import tv_tensors
from torchvision.transforms import InterpolationMode as Mode
from torchvision.transforms import v2

from fastload import transforms as T

CHAINS = how_many(240, 10_000)
FIRST = SEED * 1_000_000  # a chain's number is its seed
Rng = random.Random


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    return make_world(tmp_path_factory.mktemp("marked"))


# ---- what chains are made of -----------------------------------------------------------------------


@dataclass(frozen=True)
class Step:
    """A transform, and what becomes of marks behind it.

    Args:
        make: the transform.
        upright: sides stay upright, so that boxes fit.
        drawn: it draws, so that torchvision's result is another one.
        sees: marks keep a colour of their own, where nobody has painted over them.
        loose: pixels that places are apart behind it: v2 resizes masks of tensors by the pixel to the left.
        zeros: it leaves boxes without sides.
    """

    make: Callable[[Rng], Any]
    upright: bool = True
    drawn: bool = False
    sees: bool = True
    loose: float = 0.0
    zeros: bool = False


def sides(rng: Rng) -> list[int]:
    return [rng.randrange(0, 12) for _ in range(4)]


def fill(rng: Rng) -> Any:
    return rng.choice(
        [0, 9, (1, 2, 3), [7, 8, 9], {tv_tensors.Image: (123, 117, 104), tv_tensors.Mask: 3, "others": 0}]
    )


def size(rng: Rng) -> tuple[int, int]:
    return rng.randrange(40, 80), rng.randrange(40, 90)


def mode(rng: Rng) -> str:
    return rng.choice(["constant", "constant", "edge", "reflect", "symmetric"])


def certain(rng: Rng) -> float:
    return float(rng.choice([0, 1]))


def filter_of(rng: Rng) -> Any:
    return rng.choice([Mode.BILINEAR, Mode.BILINEAR, Mode.BICUBIC, Mode.NEAREST])


def geometry(of: Any) -> dict[str, Step]:
    """What v1 and v2 have both."""
    return {
        "flip": Step(lambda rng: of.RandomHorizontalFlip(certain(rng))),
        "flips": Step(lambda rng: of.RandomHorizontalFlip(), drawn=True),
        "upside": Step(lambda rng: of.RandomVerticalFlip(certain(rng))),
        "upsides": Step(lambda rng: of.RandomVerticalFlip(), drawn=True),
        "pad": Step(lambda rng: of.Pad(sides(rng), rng.choice([0, 9, (1, 2, 3)]))),
        "border": Step(lambda rng: of.Pad(sides(rng), padding_mode=mode(rng)), sees=False),
        "centre": Step(lambda rng: of.CenterCrop(size(rng))),
        "crop": Step(lambda rng: of.RandomCrop((rng.randrange(30, 44), rng.randrange(36, 50))), drawn=True),
        "padded crop": Step(lambda rng: of.RandomCrop((66, 70), sides(rng), True, 4), drawn=True),
        "bordered crop": Step(
            lambda rng: of.RandomCrop((60, 64), rng.choice([None, 8]), True, 0, mode(rng)),
            drawn=True,
            sees=False,
        ),
        "resize": Step(
            lambda rng: of.Resize(size(rng), filter_of(rng), antialias=rng.random() < 0.8), loose=1.0
        ),
        "shorter": Step(lambda rng: of.Resize(rng.randrange(40, 70)), loose=1.0),
        "resized crop": Step(lambda rng: of.RandomResizedCrop((60, 66), (0.5, 1.0)), drawn=True, loose=1.0),
        "rotate": Step(lambda rng: of.RandomRotation(20, fill=rng.choice([0, 5])), False, True, loose=1),
        "turn": Step(
            lambda rng: of.RandomRotation((90, 90), expand=True) if rng.random() < 0.5
            else of.RandomRotation((180, 180)),
            loose=1,
        ),
        "affine": Step(
            lambda rng: of.RandomAffine(
                10, (0.1, 0.1), (0.9, 1.2), 5, Mode.BILINEAR, rng.choice([0, (1, 2, 3)])
            ),
            False, True, loose=1,
        ),
        "moved": Step(lambda rng: of.RandomAffine(0, scale=(1.1, 1.1)), loose=1),
        "perspective": Step(lambda rng: of.RandomPerspective(0.2, 1.0), False, True, loose=1),
        "elastic": Step(lambda rng: of.ElasticTransform(20.0), False, True, loose=3),
    }  # fmt: skip


def colours(of: Any) -> dict[str, Step]:
    return {
        "jitter": Step(
            lambda rng: of.ColorJitter((1.2, 1.2), (0.8, 0.8), (1.1, 1.1), (0.04, 0.04)), drawn=True
        ),
        "brighter": Step(lambda rng: of.ColorJitter(brightness=(0.8, 0.8))),
        "contrast": Step(lambda rng: of.ColorJitter(contrast=(0.7, 0.7))),
        "saturation": Step(lambda rng: of.ColorJitter(saturation=(1.3, 1.3))),
        "hue": Step(lambda rng: of.ColorJitter(hue=(0.1, 0.1))),
        "jitters": Step(lambda rng: of.ColorJitter(0.1, 0.1, 0.1, 0.02), drawn=True),
        "gray": Step(lambda rng: of.Grayscale(3)),
        "grays": Step(lambda rng: of.RandomGrayscale(0.5), drawn=True),
        "invert": Step(lambda rng: of.RandomInvert(certain(rng))),
        "posterize": Step(lambda rng: of.RandomPosterize(5, certain(rng))),
        "solarize": Step(lambda rng: of.RandomSolarize(256, certain(rng))),
        "sharpen": Step(lambda rng: of.RandomAdjustSharpness(1.4, certain(rng)), loose=1),
        "autocontrast": Step(lambda rng: of.RandomAutocontrast(certain(rng))),
        "equalize": Step(lambda rng: of.RandomEqualize(certain(rng)), sees=False),
        "blur": Step(lambda rng: of.GaussianBlur(3, (0.4, 0.4)), loose=1),
        "some": Step(
            lambda rng: of.RandomApply([of.ColorJitter(0.1), of.RandomInvert(1.0)], 0.5), drawn=True
        ),
        "order": Step(lambda rng: of.RandomOrder([of.ColorJitter(0.1), of.RandomInvert(1.0)]), drawn=True),
        "choice": Step(lambda rng: of.RandomChoice([of.RandomInvert(1.0), of.Grayscale(3)]), drawn=True),
        "erase": Step(lambda rng: of.RandomErasing(1.0, (0.02, 0.05)), drawn=True, sees=False),
        "policy": Step(lambda rng: of.TrivialAugmentWide(), False, True, sees=False, loose=3),
        "ten": Step(lambda rng: of.TenCrop(30), sees=False),
    }


OF_V2: dict[str, Step] = {
    "zoom": Step(lambda rng: v2.RandomZoomOut(fill(rng), (1.0, 1.6), 1.0), drawn=True),
    "zoomed": Step(lambda rng: v2.RandomZoomOut(fill(rng), (1.5, 1.5), 0.0)),
    "typed pad": Step(lambda rng: v2.Pad(sides(rng), fill(rng))),
    "iou": Step(lambda rng: v2.RandomIoUCrop(min_scale=0.6), drawn=True, zeros=True),
    "jittered": Step(lambda rng: v2.ScaleJitter((70, 70), (1.0, 1.0)), loose=1.0),
    "jitters": Step(lambda rng: v2.ScaleJitter((70, 70), (0.8, 1.3)), drawn=True, loose=1.0),
    "shortest": Step(lambda rng: v2.RandomShortestSize([60], 100), loose=1.0),
    "between": Step(lambda rng: v2.RandomResize(50, 70), drawn=True, loose=1.0),
    "distort": Step(lambda rng: v2.RandomPhotometricDistort(p=1.0), drawn=True),
    "channels": Step(lambda rng: v2.RandomChannelPermutation(), drawn=True),
    "noise": Step(lambda rng: v2.GaussianNoise(0.0, 0.01), drawn=True),
    "clamp": Step(lambda rng: v2.ClampBoundingBoxes()),
    "clamp points": Step(lambda rng: v2.ClampKeyPoints()),
    "sanitize": Step(lambda rng: v2.SanitizeBoundingBoxes(min_size=rng.choice([1, 3]))),
    "sanitize alone": Step(lambda rng: v2.SanitizeBoundingBoxes(labels_getter=None)),
    "convert": Step(lambda rng: v2.ConvertBoundingBoxFormat(rng.choice(["XYXY", "XYWH", "CXCYWH"]))),
    "some moves": Step(
        lambda rng: v2.RandomApply([v2.RandomHorizontalFlip(1.0), v2.SanitizeBoundingBoxes()], 0.5),
        drawn=True,
    ),
    "chosen": Step(
        lambda rng: v2.RandomChoice([v2.RandomHorizontalFlip(1.0), v2.CenterCrop(50)]), drawn=True
    ),
    "jpeg": Step(lambda rng: v2.JPEG(90), drawn=True, sees=False),
    "identity": Step(lambda rng: v2.Identity()),
    "lambda": Step(lambda rng: v2.Lambda(lambda value: value)),
    "mixup": Step(lambda rng: v2.MixUp(num_classes=3), sees=False),
}  # fmt: skip
TYPES: dict[str, Step] = {
    "image": Step(lambda rng: v2.ToImage()),
    "to tensor": Step(lambda rng: v2.PILToTensor()),
    "float": Step(lambda rng: v2.ToDtype(torch.float32, scale=True)),
    "by type": Step(
        lambda rng: v2.ToDtype(
            {
                rng.choice([tv_tensors.Image, torch.Tensor]): torch.float32,
                tv_tensors.Mask: torch.int64,
                "others": None,
            },
            scale=True,
        )
    ),
    "pure": Step(lambda rng: v2.ToPureTensor()),
    "old": Step(lambda rng: v1.ToTensor()),
}  # fmt: skip


def still(sample: Any) -> Any:
    return sample


class Upright(v2.Transform):
    """A user's own, of which nothing is known: all of a sample mirrored, by torchvision's functions."""

    def transform(self, inpt: Any, params: Any) -> Any:
        return v2.functional.horizontal_flip(inpt)


def bright(image: Any) -> Any:
    """For a picture alone."""
    if isinstance(image, PIL.Image.Image):
        return image.point(lambda value: min(255, value + 3))
    return (image.float() + (3 if image.dtype == torch.uint8 else 3 / 255)).to(image.dtype)


OWN: dict[str, Step] = {
    "still": Step(lambda rng: still),
    "user": Step(lambda rng: Upright()),
    "picture": Step(lambda rng: T.ImageOnly(bright)),
    "alone": Step(lambda rng: bright),
}
STEPS: dict[str, dict[str, Step]] = {
    "v2": {**geometry(v2), **OF_V2},
    "colours": colours(v2),
    "v1": {**geometry(v1), **colours(v1)},
    "own": OWN,
    "types": TYPES,
}


@dataclass
class Drawn:
    names: list[str]
    steps: list[Step]
    chain: list[Any]

    @property
    def becomes(self) -> str | None:
        found = [one.format.lower() for one in self.chain if isinstance(one, v2.ConvertBoundingBoxFormat)]
        return found[-1] if found else None

    @property
    def how(self) -> dict[str, Any]:
        return {
            "exact": all(step.upright for step in self.steps) and not self.keeps_cut_boxes,
            "loose": 2.5 + sum(step.loose for step in self.steps),
            "sees": all(step.sees for step in self.steps),
            "zeros": any(step.zeros for step in self.steps),
            "points": "v2: clamp points" not in self.names,
        }

    @property
    def keeps_cut_boxes(self) -> bool:
        """v1, which knows no boxes, has no rule that cuts them off at the border, and a border behind it
        shows where they go on."""
        cuts = ("crop", "padded crop", "bordered crop", "resized crop", "centre")
        return any(name.startswith("v1: ") and name[4:] in cuts for name in self.names)

    @property
    def is_comparable(self) -> bool:
        """Whether torchvision makes the same: it draws nothing, and moves all of a sample. Its v1 and its v2
        behind ToPureTensor move the picture and leave the rest, which the core never does."""
        alone = any(name.startswith("v1: ") and name[4:] in geometry(v1) for name in self.names)
        pure = "types: pure" in self.names[:-1]
        return not (alone or pure) and not any(step.drawn for step in self.steps)

    @property
    def mask_apart(self) -> float:
        """Each step that takes the nearest pixel may take its neighbour."""
        return 2 + sum(step.loose for step in self.steps) / 2

    @property
    def boxes_apart(self) -> float:
        """Where torchvision's centre crop is larger than the picture, its boxes may be a pixel off."""
        return 1e-2 + 1.0 * sum(name.endswith(": centre") for name in self.names)


def drawn(rng: Rng) -> Drawn:
    names: list[str] = []
    kinds = rng.choice(
        [["v2"] * 4 + ["colours"] * 2, ["v2"] * 4 + ["colours", "v1", "own", "types"], ["v2", "own"]]
    )
    if rng.random() < 0.4:
        names.append("types: image")
    for _ in range(rng.randrange(1, 7)):
        kind = rng.choice(kinds)
        names.append(f"{kind}: {rng.choice(list(STEPS[kind]))}")
    if rng.random() < 0.3:
        names += ["types: image", "types: float"]
    steps = [STEPS[kind][name] for kind, name in (one.split(": ") for one in names)]
    return Drawn(names, steps, [step.make(rng) for step in steps])


# ---- what torchvision makes of the same samples ----------------------------------------------------


def wanted(
    sample: dict[str, Any], form: tuple[str, bool], chain: list[Any], as_pil: bool, dense: bool
) -> Any:
    """A sample of torchvision's own types behind a chain; None: torchvision refuses it."""
    height, width = sample["mask"].shape
    rows = torch.from_numpy(sample["boxes"])
    if form[1]:
        rows = rows * torch.tensor([width, height] * 2)
    picture: Any = PIL.Image.fromarray(sample["image"])
    given = {
        "image": picture if as_pil else tv_tensors.Image(picture),
        "mask": tv_tensors.Mask(torch.from_numpy(sample["mask"])),
        "boxes": tv_tensors.BoundingBoxes(rows, format=form[0].upper(), canvas_size=(height, width)),
        "labels": torch.from_numpy(sample["labels"]),
    }
    if dense:
        masks = [sample["mask"] % 10 == mark for mark in sample["labels"]]
        stacked = np.stack(masks).astype(np.uint8) if masks else np.zeros((0, height, width), np.uint8)
        given["outlines"] = tv_tensors.Mask(torch.from_numpy(stacked))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for step in chain:
                if isinstance(step, T.ImageOnly) or type(step).__module__ == v1.RandomCrop.__module__:
                    is_image = isinstance(given["image"], tv_tensors.Image)
                    made = step(given["image"])
                    is_plain = isinstance(made, torch.Tensor)
                    given["image"] = tv_tensors.Image(made) if is_image and is_plain else made
                elif isinstance(step, v2.SanitizeBoundingBoxes):
                    given = sanitized(step, given)
                else:
                    given = step(given)
    except Exception:
        return None
    return given


def sanitized(step: Any, given: dict[str, Any]) -> dict[str, Any]:
    """What is kept does not hang on what float32 rounds: centres of boxes that end at the border put some of
    them a millionth of a pixel behind it, and torchvision drops these."""
    form = given["boxes"].format
    boxes = v2.functional.convert_bounding_box_format(given["boxes"], new_format="XYXY")
    if form.value != "XYXY":
        inside = v2.functional.clamp_bounding_boxes(boxes)
        boxes = tv_tensors.wrap(torch.where((boxes - inside).abs() < 1e-3, inside, boxes), like=boxes)
    made = step({**given, "boxes": boxes})
    return {**made, "boxes": v2.functional.convert_bounding_box_format(made["boxes"], new_format=form)}


def apart(
    found: Found, made: dict[str, Any], becomes: tuple[str, bool], most: float, most_of_mask: float
) -> str:
    """What of a sample is not torchvision's; empty: all is."""
    image = made["image"]
    if isinstance(image, PIL.Image.Image):
        image = v2.functional.pil_to_tensor(image)
    if found.images[0].shape != image.shape:
        return f"the picture is {tuple(found.images[0].shape)}, torchvision's {tuple(image.shape)}"
    if found.images[0].dtype != image.dtype and image.dtype != torch.uint8:
        return f"the picture is {found.images[0].dtype}, torchvision's {image.dtype}"
    ours, theirs = (
        one.double() * (255 if one.is_floating_point() else 1) for one in (found.images[0], image)
    )
    off = (ours - theirs).abs()
    if float(off.mean()) > 1.0:
        return f"pixels are {float(off.mean()):.2f} levels apart in the mean, {float(off.max()):.0f} at most"
    if found.mask is not None:
        if found.mask.dtype != made["mask"].dtype:
            return f"the mask is {found.mask.dtype}, torchvision's {made['mask'].dtype}"
        theirs = made["mask"].long()
        for one in theirs.unique().tolist():  # by the nearest pixel, which borders are no two alike in
            differ = eroded(theirs == one, most_of_mask) & (found.mask.long() != one) & ~edge_of(theirs, 2)
            if bool(differ.any()):
                return f"{int(differ.sum())} of the mask's pixels that are {one} are others"
    boxes = made["boxes"]
    if found.boxes is not None:
        rows = corners(torch.as_tensor(boxes).as_subclass(torch.Tensor), becomes[0], False, found.size)
        if rows.shape != found.boxes.shape:
            return f"there are {len(found.boxes)} boxes, {len(rows)} in torchvision"
        if len(rows) and float((rows - found.boxes).abs().max()) > most:
            return f"boxes are {found.boxes.tolist()}, torchvision's {rows.tolist()}"
    if found.labels is not None and found.labels.tolist() != made["labels"].tolist():
        return f"labels are {found.labels.tolist()}, torchvision's {made['labels'].tolist()}"
    return ""


def compared(world: World, form: tuple[str, bool], trial: Drawn, found: Outcome, batch_form: str) -> str:
    """What differs from torchvision, on Pillow's pictures and on tensors."""
    dense = "dense" in batch_form
    becomes = (trial.becomes or form[0], False)
    refused = 0
    for sample, one in zip(world.samples[form], found.batches, strict=True):
        made = [wanted(sample, form, trial.chain, as_pil, dense) for as_pil in (True, False)]
        known = [one for one in made if one is not None]
        refused += not known
        if not known:
            continue
        wrong = [apart(one, theirs, becomes, trial.boxes_apart, trial.mask_apart) for theirs in known]
        if all(wrong):
            return "; ".join(dict.fromkeys(wrong))
    return ""


REFUSALS = (
    "would be left behind",
    "takes one picture, and samples have several",
    "torchvision refuses it",
    "mixes the samples of a batch",
    "which torchvision refuses for",
    "mirrors or repeats what the picture shows",
    "has a fill of several numbers",
    "fill masks with different numbers",
    "would leave 'outlines' behind",
    "cannot follow",
    "stands behind",
    "drops objects, and",
    "stacks pictures",
    "of places",
)
# At the first batch: pictures that a chain has drawn too small for a crop or a border, or too large.
ERRORS = (
    "RandomCrop of",
    "Required crop size",
    "Padding size should be less",
    "Pad(420, 420) has room for less",
)


def unlike(world: World, number: int, kinds: Counter[str]) -> str:
    """What is wrong with a chain; empty: nothing is."""
    rng = Rng(number)
    form, batch_form = rng.choice(FORMATS), rng.choice(FORMS)
    trial = drawn(rng)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        chain = v2.Compose(trial.chain)
        found = tried(world, form, batch_form, chain, trial.becomes, number, **trial.how)
    kinds[found.kind] += 1
    wrong = found.words if found.kind != "right" else ""
    if found.kind == "refused" and any(words in wrong for words in REFUSALS):
        return ""
    if found.kind == "failed":
        made = [
            wanted(world.samples[form][i], form, trial.chain, as_pil, False)
            for i in range(COUNT) for as_pil in (True, False)
        ]  # fmt: skip
        if any(one is None for one in made) or any(words in wrong for words in ERRORS):
            kinds["fails in torchvision, too"] += 1
            return ""
    if not wrong and trial.is_comparable and batch_form not in ("views", "mix", "listed"):
        kinds["compared"] += 1
        wrong = compared(world, form, trial, found, batch_form)
    what = f"chain {number}, {form}, {batch_form}: {trial.names} {trial.chain}: {wrong}"
    return as_drawn(what) if wrong else ""


@pytest.mark.parametrize("part", range(4))
def test_chains_are_torchvisions_or_refused(world: World, part: int) -> None:
    kinds: Counter[str] = Counter()
    numbers = range(FIRST + part, FIRST + CHAINS, 4)
    wrong = [words for words in (unlike(world, number, kinds) for number in numbers) if words]
    assert not wrong, "\n".join([f"{len(wrong)} of {len(numbers)} chains", *wrong])
    assert kinds["right"] > CHAINS // 40, kinds
