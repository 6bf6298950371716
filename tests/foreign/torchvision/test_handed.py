"""What torchvision's transforms and a user's callables get of samples with boxes, masks and points, and what
comes back: one case each. Chains at random are in test_chains.py."""

from __future__ import annotations

import functools
import pickle
import warnings
from pathlib import Path
from typing import Any

import bare_torchvision  # noqa: F401
import numpy as np
import PIL.Image
import pytest
import torch
from torchvision import transforms as v1
from torchvision import tv_tensors
from torchvision.transforms import v2

import fastload
from fastload import Array, Boxes, DataLoader, Fields, Image, Keypoints, Label, Labels, Mask, Of, Polygons
from fastload import transforms as T
from fastload.backends.callable_samples import HandOver
from fastload.errors import SampleError
from fastload.sample.layout import Sizes
from fastload.sample.planned import layout_of
from fastload.transforms import compile_plan

FLIP = v2.RandomHorizontalFlip(1.0)
#: A white rectangle on black: left, top, right, bottom.
PLACE = (10, 5, 30, 15)
HEIGHT, WIDTH = 40, 80


def still(sample: Any) -> Any:
    return sample


def rows(form: str, relative: bool) -> Any:
    left, top, right, bottom = PLACE
    sides = {
        "xyxy": [left, top, right, bottom],
        "xywh": [left, top, right - left, bottom - top],
        "cxcywh": [20, 10, 20, 10],
    }[form]
    found = np.array([sides, [0, 0, 4, 4] if form != "cxcywh" else [2, 2, 4, 4]], np.float32)
    return found / np.array([WIDTH, HEIGHT] * 2, np.float32) if relative else found


def write(folder: Path, form: str = "xyxy", relative: bool = False, **more: Any) -> Path:
    left, top, right, bottom = PLACE

    def samples() -> Any:
        for number in range(4):
            pixels = np.zeros((HEIGHT, WIDTH, 3), np.uint8)
            pixels[top:bottom, left:right] = 255
            count = 0 if number == 3 else 2
            points = np.array([[[left, top, 2], [right, bottom, 1], [0, 0, 0]]] * 2, np.float32)
            yield {
                "image": pixels,
                "mask": (pixels[..., 0] > 0).astype(np.uint8),
                "boxes": rows(form, relative)[:count],
                "labels": np.array([1, 2][:count]),
                "area": np.array([200.0, 16.0][:count], np.float32),
                "points": points[:count],
                **{name: value[1] for name, value in more.items()},
            }

    schema = {
        "image": Image(),
        "mask": Mask(),
        "boxes": Boxes(form, relative),
        "labels": Of("boxes", Labels(("a", "b", "c"))),
        "area": Of("boxes", Array("float32", (None,))),
        "points": Of("boxes", Keypoints(3, pairs=((0, 1),))),
        **{name: value[0] for name, value in more.items()},
    }
    fastload.pack(samples(), folder, schema)
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("handed") / "set")


def first(dataset: Any, chain: Any, **options: Any) -> Any:
    with DataLoader(dataset, transform=chain, **{"batch_size": 4, "num_workers": 0, **options}) as loader:
        return next(iter(loader))


def extent(image: Any) -> list[int]:
    """Left, top, right, bottom of what is bright."""
    bright = image.double() if image.dim() == 2 else image.double().amax(0)
    found, columns = torch.nonzero(bright > bright.max() / 2, as_tuple=True)
    return [int(columns.min()), int(found.min()), int(columns.max()) + 1, int(found.max()) + 1]


CHAINS: dict[str, list[Any]] = {
    "a flip twice": [FLIP, FLIP],
    "behind a callable": [still, FLIP],
    "not antialiased": [v2.Resize((20, 40), antialias=False)],
    "two crops": [v2.CenterCrop((40, 60)), v2.CenterCrop((40, 40))],
    "rotated": [v2.ToImage(), v2.RandomRotation((90, 90))],
    "the tutorial's": [v2.ToImage(), v2.ColorJitter(0.1), FLIP],
    "detection": [v2.ToImage(), v2.RandomPhotometricDistort(), v2.RandomZoomOut((1, 2, 3), p=1.0), FLIP],
    "colour of a pad": [v2.Pad(3, fill=(1, 2, 3)), v2.RandomCrop(30, 2, fill=(1, 2, 3))],
    "affine": [v2.RandomAffine(0, (0.2, 0.2), fill=(1, 2, 3))],
    "upside down, below": [v2.RandomVerticalFlip(1.0), v2.Pad([0, 0, 0, 3])],
    "upside down, middle": [v2.RandomVerticalFlip(1.0), v2.CenterCrop((33, 60))],
    "own class": [still, v2.RandomApply([still, v2.RandomVerticalFlip(1.0)], 1.0)],
}


@pytest.mark.parametrize("name", list(CHAINS))
@pytest.mark.parametrize("views", [False, True])
def test_all_fields_move_with_the_picture(folder: Path, name: str, views: bool) -> None:
    chain = v2.Compose(CHAINS[name])
    if views and still in CHAINS[name]:
        with pytest.raises(ValueError, match="still gets the picture of the view 'a' alone"):
            first(folder, T.Views(a=chain))
        return
    batch = first(folder, T.Views(a=chain) if views else chain, collate="ragged")
    seen = 0
    for i in range(3):
        image, mask = (batch["a"], batch["a_mask"]) if views else (batch["image"], batch["mask"])
        boxes = batch["a_boxes" if views else "boxes"][i]
        visible = mask[i] == 1
        if int(visible.sum()) < 30:
            continue
        seen += 1
        place = extent(image[i])
        ids = extent(visible.float())
        assert max(abs(a - b) for a, b in zip(ids, place, strict=True)) <= 1
        assert max(abs(a - b) for a, b in zip(boxes[0].tolist(), place, strict=True)) <= 1.01
    assert seen or name == "colour of a pad"


BY_TYPE = {tv_tensors.Image: torch.float32, "others": None}
ENDS = [
    v2.ToDtype(torch.float32, scale=True),
    v2.ConvertBoundingBoxFormat("XYXY"),
    v2.SanitizeBoundingBoxes(),
    v2.ToPureTensor(),
]
ZOOMED = [v2.RandomZoomOut((9, 8, 7)), v2.RandomIoUCrop()]
JUDGED = [v2.RandomIoUCrop(), v2.SanitizeBoundingBoxes()]


@pytest.mark.parametrize(
    "order",
    [
        [v2.ToImage(), v2.ColorJitter(0.1), FLIP],
        [v2.ToImage(), v2.RandomPhotometricDistort(), *ZOOMED, FLIP, *ENDS],
        [v2.RandomIoUCrop(), FLIP, v2.PILToTensor(), *ENDS],
        [v2.ToImage(), v2.RandomShortestSize([30, 40], 90), FLIP, *ENDS],
        [*JUDGED, FLIP, v2.Resize((64, 64)), v2.SanitizeBoundingBoxes()],
        [v2.ToImage(), v2.RandomResize(20, 80), FLIP, v2.RandomCrop(20), v2.ToDtype(BY_TYPE, scale=True)],
        [v2.ClampBoundingBoxes(), v2.CenterCrop(30), v2.CenterCrop(20), v2.RandomVerticalFlip(), v2.Pad(2)],
    ],
)
def test_orders_of_the_tutorial_and_the_references_are_native(folder: Path, order: list[Any]) -> None:
    with DataLoader(folder, 4, transform=v2.Compose(order), collate="ragged", num_workers=0) as loader:
        assert not loader.explain().slow, order
        assert len(list(loader)) == 1


def test_masks_are_int64_where_the_references_ask_for_it(folder: Path) -> None:
    by_type = {tv_tensors.Image: torch.float32, tv_tensors.Mask: torch.int64, "others": None}
    of_tensors = {torch.Tensor: torch.float32, tv_tensors.Mask: torch.int64, "others": None}
    for chain in (
        [v2.ToImage(), v2.ToDtype(by_type, scale=True), v2.Normalize([0.5] * 3, [0.5] * 3)],
        [v2.PILToTensor(), v2.ToDtype(of_tensors, scale=True), v2.Normalize([0.5] * 3, [0.5] * 3)],
        [v2.ToImage(), still, v2.ToDtype(by_type, scale=True), v2.Normalize([0.5] * 3, [0.5] * 3)],
        [v2.PILToTensor(), still, v2.ToDtype(of_tensors, scale=True), v2.Normalize([0.5] * 3, [0.5] * 3)],
    ):
        batch = first(folder, v2.Compose(chain))
        assert (batch["image"].dtype, batch["mask"].dtype) == (torch.float32, torch.int64)
        assert batch["boxes"].dtype == torch.float32
        assert (float(batch["image"].min()), float(batch["image"].max())) == (-1.0, 1.0)


def test_what_a_callable_gets_is_torchvisions(folder: Path, tmp_path: Path) -> None:
    got: list[Any] = []

    def look(sample: Any) -> Any:
        got.append(sample)
        return sample

    kinds = {
        "image": tv_tensors.Image,
        "mask": tv_tensors.Mask,
        "boxes": tv_tensors.BoundingBoxes,
        "points": tv_tensors.KeyPoints,
        "labels": torch.Tensor,
    }
    for chain in ([v2.ToImage(), look], [FLIP, look], [look, FLIP]):
        got.clear()
        first(folder, v2.Compose(chain))
        assert {name: type(got[0][name]) for name in kinds} == kinds
        assert got[0]["boxes"].canvas_size == (HEIGHT, WIDTH)
        assert got[0]["boxes"].format == tv_tensors.BoundingBoxFormat.XYXY
        assert got[0]["points_visibility"].shape == (2, 3)
        assert got[3]["boxes"].shape == (0, 4)
    got.clear()
    first(folder, v2.Compose([v2.PILToTensor(), look]))
    assert (type(got[0]["image"]), type(got[0]["mask"])) == (torch.Tensor, tv_tensors.Mask)
    got.clear()
    first(folder, v2.Compose([v2.ToImage(), v2.ToPureTensor(), look]))
    assert all(type(got[0][name]) is torch.Tensor for name in kinds)
    pairs = tmp_path / "pairs"
    pixels = np.zeros((8, 9, 3), np.uint8)
    fastload.pack(
        ({"image": pixels, "label": i} for i in range(4)), pairs, {"image": Image(), "label": Label()}
    )
    for chain, kind in (
        ([v2.ToImage(), look], tv_tensors.Image),
        ([v2.ToImage(), v2.ToDtype(torch.float32, scale=True), look], tv_tensors.Image),
        ([v2.PILToTensor(), look], torch.Tensor),
        ([v1.ToTensor(), look], torch.Tensor),
        ([FLIP, look], PIL.Image.Image),
    ):
        got.clear()
        if kind is PIL.Image.Image:
            chain = [*chain, v2.ToImage()]
        first(pairs, v2.Compose(chain))
        assert type(got[0]) is kind, chain
    images: list[Any] = []
    first(pairs, v2.Compose([v2.ToImage()]), collate_fn=lambda batch: images.extend(one for one, _ in batch))
    assert type(images[0]) is tv_tensors.Image


@pytest.mark.parametrize("form", [("xyxy", True), ("xywh", False), ("cxcywh", False), ("cxcywh", True)])
def test_boxes_come_back_in_their_own_format(tmp_path: Path, form: tuple[str, bool]) -> None:
    dataset = write(tmp_path / "set", *form)
    for chain in ([FLIP], [still, FLIP], [still, FLIP, v2.SanitizeBoundingBoxes(), FLIP, FLIP]):
        batch = first(dataset, v2.Compose(chain))
        left, top, right, bottom = PLACE
        wanted = {
            "xyxy": [WIDTH - right, top, WIDTH - left, bottom],
            "xywh": [WIDTH - right, top, right - left, bottom - top],
            "cxcywh": [WIDTH - 20, 10, 20, 10],
        }[form[0]]
        scale = [WIDTH, HEIGHT] * 2 if form[1] else [1] * 4
        assert torch.allclose(batch["boxes"][0][0], torch.tensor(wanted) / torch.tensor(scale), atol=1e-5)
        assert (batch["boxes"].dtype, batch["labels"].dtype) == (torch.float32, torch.int32)
        assert batch["boxes"].counts() == [2, 2, 2, 0]


@pytest.mark.parametrize("before", [[], [still]])
def test_boxes_are_converted_where_the_chain_says_so(tmp_path: Path, before: list[Any]) -> None:
    chain = [*before, v2.ConvertBoundingBoxFormat("CXCYWH"), v2.ClampBoundingBoxes()]
    batch = first(write(tmp_path / "a"), v2.Compose(chain))
    assert batch["boxes"][0].tolist() == [[20, 10, 20, 10], [2, 2, 4, 4]]
    batch = first(
        write(tmp_path / "b", "cxcywh", True), v2.Compose([*before, v2.ConvertBoundingBoxFormat("XYXY")])
    )
    assert torch.allclose(
        batch["boxes"][0][0] * torch.tensor([WIDTH, HEIGHT] * 2), torch.tensor([*PLACE]).float()
    )
    _, targets = first(
        tmp_path / "b", v2.Compose([*before, v2.ConvertBoundingBoxFormat("XYXY")]), collate="list"
    )
    assert torch.allclose(targets[0]["boxes"][0], torch.tensor([*PLACE]).float())


NESTED = v2.RandomApply([v2.SanitizeBoundingBoxes(min_size=5)], 1.0)


@pytest.mark.parametrize(
    "chain",
    [
        [v2.SanitizeBoundingBoxes(min_size=5)],
        [still, v2.SanitizeBoundingBoxes(min_size=5)],
        [still, v2.SanitizeBoundingBoxes(min_size=5, labels_getter=None)],
        [still, v2.SanitizeBoundingBoxes(min_size=5, labels_getter=lambda sample: sample["labels"])],
        [still, NESTED],
        [v2.SanitizeBoundingBoxes(min_size=5), v2.Resize((HEIGHT, WIDTH))],
        [v2.RandomRotation((0, 0)), v2.SanitizeBoundingBoxes(min_size=5), v2.RandomAffine(0)],
    ],
)
def test_what_is_of_a_box_goes_with_it(folder: Path, chain: list[Any]) -> None:
    batch = first(folder, v2.Compose(chain))
    assert [batch[name].counts() for name in ("boxes", "labels", "area", "points")] == [[1, 1, 1, 0]] * 4
    assert (batch["labels"].values.tolist(), batch["area"].values.tolist()) == ([1] * 3, [200.0] * 3)


def test_labels_of_another_name_are_found(tmp_path: Path) -> None:
    dataset = write(tmp_path / "set")
    chain = v2.Compose([still, NESTED])
    for objects, name in ((None, "area"), ({"boxes": ["area"]}, "area")):
        batch = first(dataset, chain, fields=Fields(["image", "boxes", name], rows_of=objects))
        assert [one.tolist() for one in batch[name]] == [[200.0]] * 3 + [[]]


def test_a_callable_that_leaves_rows_behind_is_an_error(folder: Path) -> None:
    def halved(sample: Any) -> Any:
        return {**sample, "boxes": sample["boxes"][:1]}

    for chain in (halved, v2.Compose([v2.ToImage(), halved])):
        with pytest.raises(
            fastload.errors.SampleError, match=r"left 1 of 2 rows of 'boxes', and 2 of 'labels'"
        ):
            first(folder, chain)

    def with_labels(sample: Any) -> Any:
        rows = ("boxes", "labels", "area", "points", "points_visibility")
        return {**sample, **{name: sample[name][:1] for name in rows if name in sample}}

    assert first(folder, v2.Compose([v2.ToImage(), with_labels]))["boxes"].counts() == [1, 1, 1, 0]


def test_points_of_pairs_trade_places_in_python_as_in_the_core(folder: Path) -> None:
    for step in (FLIP, v2.RandomVerticalFlip(1.0), v2.RandomRotation((180, 180))):
        core = first(folder, v2.Compose([step]))["points"]
        python = first(folder, v2.Compose([still, step]))["points"]
        assert torch.equal(core.values[..., 2], python.values[..., 2])
        assert (
            core.values - python.values
        ).abs().max() <= 1  # torchvision flips a point's pixel, not its place
        assert not python.values[:, 2].any(), "what nobody has labelled stays 0, 0, 0"


def test_outlines_are_refused_or_drawn(tmp_path: Path) -> None:
    left, top, right, bottom = PLACE
    outlines = [[[left, top, right, top, right, bottom, left, bottom]]] * 2
    free = (Polygons(), outlines)
    dataset = write(tmp_path / "set", outlines=free)
    with pytest.raises(
        ValueError, match=r"RandomHorizontalFlip would leave 'outlines' behind.*masks='dense'"
    ):
        first(dataset, v2.Compose([still, FLIP]))
    batch = first(dataset, v2.Compose([still, FLIP]), fields=Fields(masks="dense"))
    assert extent(batch["outlines"][0][0].float()) == [WIDTH - right, top, WIDTH - left, bottom]
    colours = first(dataset, v2.Compose([still, v2.ColorJitter(0.1)]))
    assert np.asarray(colours["outlines"][0][0]).reshape(-1).tolist() == outlines[0][0]


REFUSED: dict[str, tuple[list[Any], str]] = {
    "v1": (
        [still, v1.RandomRotation(30)],
        "RandomRotation gets a picture alone, so 'mask'.*transforms.v2 has it",
    ),
    "functional": ([functools.partial(v1.functional.rotate, angle=30)], "gets a picture alone"),
    "in a container": (
        [still, v2.RandomApply([v1.RandomAffine(9)])],
        "RandomAffine in .*RandomApply gets a picture",
    ),
    "policy": ([still, v2.RandAugment()], "takes pictures without 'mask'"),
    "crops": ([still, v2.TenCrop(10)], "takes pictures without 'mask'"),
    "batches": ([v2.CutMix(num_classes=3)], "mixes the samples of a batch.*batch_transform="),
    "border": ([v2.Pad(3, padding_mode="edge")], "padding_mode.*'boxes'"),
    "border behind": ([still, v2.Pad(3, padding_mode="edge")], "padding_mode='edge'.*'boxes'"),
    "colour of masks": ([still, v2.Pad(3, fill=(1, 2, 3))], "fill of several numbers.*'mask'"),
    "masks' fills": ([v2.RandomRotation(3, fill=4), v2.RandomAffine(3, fill=1)], "fill masks with different"),
    "rotated boxes": ([still, v2.ConvertBoundingBoxFormat("CXCYWHR")], "makes rotated boxes"),
    "points alone": ([still, v2.SanitizeKeyPoints()], "drops keypoints alone"),
}


@pytest.mark.parametrize("name", list(REFUSED))
def test_what_would_be_left_behind_is_refused_when_the_loader_is_made(folder: Path, name: str) -> None:
    chain, words = REFUSED[name]
    with pytest.raises(ValueError, match=words):
        DataLoader(folder, 4, transform=v2.Compose(chain))
    if name in ("v1", "functional", "in a container", "policy", "crops"):
        plain = {"fields": ["image", "labels"], "collate": "ragged"}
        DataLoader(folder, 4, transform=v2.Compose(chain), **plain).close()


def test_a_picture_alone_where_the_user_says_so(folder: Path) -> None:
    got: list[Any] = []

    def look(image: Any) -> Any:
        got.append(image)
        return image

    batch = first(folder, v2.Compose([FLIP, T.ImageOnly(look)]))
    assert type(got[0]) is PIL.Image.Image
    assert extent(batch["image"][0])[0] == int(batch["boxes"][0][0][0])
    got.clear()
    first(folder, v2.Compose([v2.ToImage(), T.ImageOnly(look), FLIP]))
    assert type(got[0]) is tv_tensors.Image
    still_v1 = first(folder, v2.Compose([still, v1.ColorJitter(0.1), FLIP]))
    assert extent(still_v1["image"][0])[0] == int(still_v1["boxes"][0][0][0])
    with pytest.raises(ValueError, match=r"needs a field of that name. Fields of pictures .*: image"):
        DataLoader(folder, transform=T.ImageOnly(look, "left"))
    batch = first(folder, T.Views(a=v2.Compose([FLIP, T.ImageOnly(look)])))
    assert extent(batch["a"][0])[0] == int(batch["a_boxes"][0][0][0])


def test_a_view_drops_its_own_objects(folder: Path) -> None:
    drops = v2.Compose([v2.ElasticTransform(0.0), v2.SanitizeBoundingBoxes(min_size=5)])
    batch = first(folder, T.Views(a=drops, b=v2.Compose([FLIP])))
    assert (batch["a_labels"].counts(), batch["b_labels"].counts()) == ([1, 1, 1, 0], [2, 2, 2, 0])
    assert batch["a_boxes"].counts() == [1, 1, 1, 0]


def test_workers_hand_over_as_the_process_itself(folder: Path) -> None:
    chain = v2.Compose(
        [v2.RandomRotation(30, expand=True), v2.Resize((30, 40)), FLIP, v2.SanitizeBoundingBoxes()]
    )
    alone, there = (first(folder, chain, seed=3, num_workers=workers) for workers in (0, 2))
    assert alone.keys() == there.keys()
    for name, value in alone.items():
        other = there[name]
        assert torch.equal(value, other) if isinstance(value, torch.Tensor) else value == other


def test_what_hands_over_can_be_pickled(folder: Path) -> None:
    """As worker processes get it that are spawned."""
    dataset = fastload.PackedDataset(folder)
    plan = compile_plan(v2.Compose([v2.RandomRotation((90, 90), expand=True), FLIP]))
    layout = layout_of(dataset.schema.fields, "uint8", None, Sizes("list"))
    handed = HandOver(dataset.schema, layout, plan, None)
    generator = torch.Generator()
    found = []
    for one in (handed, pickle.loads(pickle.dumps(handed))):
        ((function, _),) = one.steps().functions
        found.append(function(dataset.sample(0), generator))
    assert torch.equal(found[0]["boxes"], found[1]["boxes"])
    assert found[0]["image"].shape == (3, WIDTH, HEIGHT)


def test_samples_without_boxes_do_not_wait_for_ever(folder: Path) -> None:
    crop = v2.RandomIoUCrop(sampler_options=[0.5])
    batch = first(folder, v2.Compose([still, crop, v2.Resize((30, 40))]))
    assert batch["image"].shape == (4, 3, 30, 40)


KEPT = v2.Compose([FLIP, v2.CenterCrop(30)])


class Preset:
    """A user's class that keeps a chain of v2's, as torchvision's references have them."""

    def __init__(self) -> None:
        self.parts = {"train": [v2.Compose([FLIP, v2.CenterCrop(30)])]}

    def __call__(self, sample: Any) -> Any:
        return self.parts["train"][0](sample)


class Network(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.steps = torch.nn.Sequential(FLIP, v2.CenterCrop(30))

    def forward(self, sample: Any) -> Any:
        return self.steps(sample)


class Helped:
    """Whose code reaches v2 by a static method, a property and a long list before it."""

    def __init__(self) -> None:
        self.numbers = list(range(100_000))

    @property
    def crop(self) -> Any:
        return v2.CenterCrop(30)

    @staticmethod
    def flipped(sample: Any) -> Any:
        return FLIP(sample)

    def __call__(self, sample: Any) -> Any:
        return self.crop(self.flipped(sample))


def by_name(sample: Any) -> Any:
    return KEPT(sample)


def by_function(sample: Any) -> Any:
    flipped = {
        key: v2.functional.horizontal_flip(value) if isinstance(value, tv_tensors.TVTensor) else value
        for key, value in sample.items()
    }
    return v2.CenterCrop(30)(flipped)


def imported_there(sample: Any) -> Any:
    from torchvision.transforms.v2 import CenterCrop, RandomHorizontalFlip

    return CenterCrop(30)(RandomHorizontalFlip(1.0)(sample))


def with_chain(sample: Any, chain: Any) -> Any:
    return chain(sample)


HIDDEN: dict[str, Any] = {
    "sequential": torch.nn.Sequential(FLIP, torch.nn.Sequential(v2.CenterCrop(30))),
    "preset": Preset(),
    "module": Network(),
    "helped": Helped(),
    "function": by_name,
    "functional": by_function,
    "imported where it runs": imported_there,
    "closure": (lambda chain: lambda sample: chain(sample))(KEPT),
    "partial": functools.partial(with_chain, chain=KEPT),
    "method": Network().forward,
    "v1's Lambda": v1.Lambda(lambda sample: by_name(sample)),
}


@pytest.mark.parametrize("name", list(HIDDEN))
def test_callables_that_hide_v2_get_what_v2_moves(folder: Path, name: str) -> None:
    wanted = first(folder, v2.Compose([still, *KEPT.transforms]))
    batch = first(folder, HIDDEN[name])
    assert batch["image"].shape == (4, 3, 30, 30)
    for field in ("image", "mask"):
        assert torch.equal(batch[field], wanted[field])
    for i in range(3):
        assert torch.equal(batch["boxes"][i], wanted["boxes"][i])


def test_callables_without_v2_get_plain_tensors_in_the_sets_own_units(tmp_path: Path) -> None:
    def plain(sample: Any) -> Any:
        assert type(sample["boxes"]) is type(sample["image"]) is torch.Tensor
        assert float(sample["boxes"].sum()) <= 8
        return sample

    assert len(first(write(tmp_path / "set", "cxcywh", True), plain)["image"]) == 4


def test_a_format_that_nothing_says_is_refused(folder: Path) -> None:
    converts = v2.ConvertBoundingBoxFormat("CXCYWH")
    with pytest.raises(SampleError, match="leave 'boxes' as CXCYWH, and batches have them as XYXY"):
        first(folder, lambda sample: converts(sample))
    said = first(folder, torch.nn.Sequential(FLIP, converts))
    assert said["boxes"][0].tolist() == first(folder, v2.Compose([FLIP, converts]))["boxes"][0].tolist()


@pytest.mark.parametrize("chain", [v2.Compose([v2.ToImage(), FLIP]), Preset()])
def test_an_index_into_a_dataset_leaves_nothing_behind(folder: Path, chain: Any) -> None:
    dataset: Any = fastload.PackedDataset(folder, transform=chain)
    for _ in range(2):
        with pytest.raises(ValueError, match=r"would move the picture and leave 'mask', 'boxes', 'points'"):
            dataset[0]
    dataset.transform = still
    assert dataset[0]["boxes"].tolist() == first(folder, None)["boxes"][0].tolist()
    dataset.transform = chain
    assert len(first(dataset, None)["image"]) == 4


@pytest.mark.parametrize("step", [v2.SanitizeBoundingBoxes(), v2.RandomIoUCrop()])
def test_views_have_boxes_of_several_pictures(folder: Path, step: Any) -> None:
    with pytest.raises(ValueError, match="stands behind Views, where samples have boxes of several pictures"):
        first(folder, T.Compose([T.Views(a=FLIP, b=None), step]))


def test_a_callable_of_two_arguments_is_told_what_it_gets(folder: Path) -> None:
    with pytest.raises(SampleError, match=r"gets one argument: .* the sample as a dict"):
        first(folder, lambda image, target: (image, target))


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize(
    "chain", [None, FLIP, v2.Compose([still, v2.ConvertBoundingBoxFormat("CXCYWH")]), v2.Pad(3)]
)
def test_a_collate_function_that_calls_v2_gets_what_it_moves(folder: Path, chain: Any, workers: int) -> None:
    def collate(samples: list[Any]) -> Any:
        return [KEPT(sample) for sample in samples]

    found = first(folder, chain, collate_fn=collate, num_workers=workers)
    steps = v2.Compose(
        [*([] if chain is None else getattr(chain, "transforms", [chain])), still, *KEPT.transforms]
    )
    wanted = first(folder, steps, collate="ragged")
    for i in range(4):
        for field in ("image", "mask", "boxes"):
            assert torch.equal(torch.as_tensor(found[i][field]), wanted[field][i])


def test_pictures_and_targets_for_a_collate_function_that_calls_v2(folder: Path) -> None:
    def collate(samples: list[Any]) -> Any:
        return tuple(zip(*[FLIP(*sample) for sample in samples], strict=True))

    dataset = fastload.PackedDataset(folder).as_detection()
    with pytest.raises(ValueError, match="v2, which would leave 'points' behind"):
        first(dataset, None, collate_fn=collate)
    images, targets = first(dataset, None, collate_fn=collate, fields=["image", "boxes", "labels"])
    left, top, right, bottom = extent(images[0])
    assert targets[0]["boxes"][0].tolist() == [left, top, right, bottom] == [50, 5, 70, 15]


@pytest.mark.parametrize("where", ["batch_transform", "collate"])
def test_whole_batches_are_not_moved_alone(folder: Path, where: str) -> None:
    for moving in (FLIP, v2.Compose([v2.CenterCrop(30)]), torch.nn.Sequential(v1.RandomRotation(3))):
        with pytest.raises(
            ValueError, match=f"(?s){where} gets whole batches, .*leave 'mask', 'boxes', 'points'"
        ):
            first(folder, None, **{where: moving})
    given: dict[str, Any] = {where: v2.ColorJitter(0.1), "fields": ["image", "boxes"]}
    assert len(first(folder, None, **given)["image"]) == 4


def test_pictures_that_are_arrays_move_with_the_rest(folder: Path) -> None:
    as_array = T.ImageOnly(np.asarray)
    for step in (FLIP, Preset()):
        found, wanted = (first(folder, v2.Compose([one, step])) for one in (as_array, still))
        assert torch.equal(found["image"], wanted["image"])
        assert found["boxes"][0].tolist() == wanted["boxes"][0].tolist()


@pytest.mark.parametrize("of", [v1, v2])
def test_numbers_that_are_certain_are_torchvisions(folder: Path, of: Any) -> None:
    """It draws float32 numbers, also between two ends that are one number."""
    dataset: Any = fastload.PackedDataset(folder)
    near = v1.InterpolationMode.NEAREST
    for made in (
        of.RandomAffine((0, 0), scale=(1.3, 1.3), center=(5, 6)),
        of.RandomAffine((0, 0), scale=(1.1, 1.1), interpolation=near, center=(0, 0)),
        of.RandomAffine((12.3, 12.3), shear=(0.7, 0.7), interpolation=v1.InterpolationMode.BILINEAR),
        of.RandomRotation((12.3, 12.3)),
        of.ColorJitter(hue=(0.39999999999999997, 0.39999999999999997)),
        of.ColorJitter(contrast=(1.7, 1.7)),
    ):
        found = first(dataset, made, fields=["image"])["image"]
        for i in range(4):
            picture = PIL.Image.fromarray(dataset.sample(i)["image"].permute(1, 2, 0).numpy())
            assert torch.equal(found[i], v2.functional.pil_to_tensor(made(picture))), made


def test_points_with_their_visibility_are_not_sanitized(tmp_path: Path) -> None:
    def samples() -> Any:
        for _ in range(4):
            yield {"image": np.zeros((20, 20, 3), np.uint8), "points": np.ones((2, 3, 3), np.float32)}

    fastload.pack(samples(), tmp_path / "set", {"image": Image(), "points": Keypoints(3)})
    with pytest.raises(ValueError, match="'points' says of each point whether it is visible, too"):
        first(tmp_path / "set", v2.SanitizeKeyPoints())


def test_boxes_without_a_picture_stay_tensors(folder: Path) -> None:
    def looked_at(sample: Any) -> Any:
        assert not any(isinstance(value, tv_tensors.TVTensor) for value in sample.values())
        return sample

    found = first(folder, looked_at, fields=["boxes", "labels", "points"])
    assert found["points"][0].shape == (2, 3, 3)


def test_samples_without_boxes_and_points_turn_with_the_others(folder: Path) -> None:
    chain = v2.Compose([v2.ToImage(), v2.RandomRotation((90, 90), expand=True), v2.RandomAffine(0)])
    batch = first(folder, chain)
    assert batch["image"].shape[-2:] == (WIDTH, HEIGHT)
    assert [len(batch["boxes"][i]) for i in range(4)] == [2, 2, 2, 0]


def test_boxes_that_rounding_puts_behind_the_border_are_kept(tmp_path: Path) -> None:
    """Centres and sides as torchvision's CenterCrop leaves them: their sum is 48.000002."""
    box = np.array([[19.7965088, 40.0986862, 16.1279068, 15.8026314], [30, 45, 10, 6.01]], np.float32)
    sample = {"image": np.zeros((48, 71, 3), np.uint8), "boxes": box}
    fastload.pack([sample], tmp_path / "set", {"image": Image(), "boxes": Boxes("cxcywh")})
    chain = v2.Compose([still, v2.SanitizeBoundingBoxes(labels_getter=None)])
    batch = first(tmp_path / "set", chain, batch_size=1)
    assert torch.equal(batch["boxes"][0], torch.from_numpy(box[:1]))


@pytest.mark.parametrize("where", ["batch_transform", "collate"])
def test_functions_of_whole_batches_that_call_v2_are_warned_of(folder: Path, where: str) -> None:
    def flip(batch: Any, *_: Any) -> Any:
        return {**batch, "image": v2.functional.horizontal_flip(batch["image"])}

    with pytest.warns(UserWarning, match=f"(?s){where} gets whole batches.*'mask', 'boxes', 'points' stay"):
        first(folder, None, **{where: flip})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        first(folder, None, fields=["image", "labels"], **{where: flip})
        first(folder, None, **{where: still})
