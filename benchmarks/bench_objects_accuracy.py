"""Do a detector and a segmenter train as well on fastload's batches as on torch's?

    python benchmarks/bench_objects_accuracy.py --seeds 3

On made sets (tests/reference/made_detection.py): 128x128 pictures of up to four shapes of six classes. A
small detector without anchors (five convolutions, a peak for each centre, as in CenterNet) and a U-Net of
three levels (examples/segmentation.py) train from scratch, with horizontal flips, from torch's
DataLoader over a plain Dataset and from fastload's. They are judged on other pictures by pycocotools' average
precision at an overlap of 0.5 and from 0.5 to 0.95, and by the mean IoU of the seven classes of pixels. The
difference between the loaders is printed beside the spread over seeds.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import itertools
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from harness.measure import table
from PIL import Image
from torch import nn
from torch.nn import functional

import fastload
from fastload import transforms as T

ROOT = Path(__file__).parents[1]
sys.path += [str(ROOT / "tests" / "reference"), str(ROOT / "examples")]

from made_detection import CATEGORY_IDS, CLASSES, MadeSet, made_set  # noqa: E402
from segmentation import UNet  # noqa: E402

SIDE, STRIDE, SHOWN = 128, 4, 30
BATCH, MASKS_BATCH = 16, 8
SIDES_WEIGHT = 4.0
SIDES = ("torch", "fastload")
Batches = Iterator[tuple[torch.Tensor, Any]]


# ---- sets and loaders -----------------------------------------------------------------------------


def make(folder: Path, count: int, seed: int) -> MadeSet:
    """A set of ``count`` pictures, packed as ``folder``/packed (objects) and ``folder``/pixels (masks)."""
    shapes: dict[str, Any] = {"share": (0.15, 0.23), "most": 4, "crowds": 0.0, "keypoints": False}
    made = made_set(folder / "made", count, seed, size=(SIDE, SIDE), **shapes)
    options: dict[str, Any] = {"num_proc": 1, "entries": None}
    fastload.pack(made.folder, folder / "packed", annotations=[made.json], as_="coco", **options)
    masks = made.folder / "masks"
    fastload.pack(made.images, folder / "pixels", masks=masks, as_="pairs", **options)
    return made


class Plain(torch.utils.data.Dataset[Any]):
    """What one would write for torch: Pillow, a flip of picture, boxes and mask."""

    def __init__(self, made: MadeSet) -> None:
        self.made = made

    def __len__(self) -> int:
        return len(self.made.names)

    def __getitem__(self, position: int) -> Any:
        name = self.made.names[position]
        with Image.open(self.made.images / name) as picture:
            image = torch.from_numpy(np.array(picture)).permute(2, 0, 1).float() / 255
        with Image.open(self.made.folder / "masks" / f"{name[:-4]}.png") as ids:
            mask = torch.from_numpy(np.array(ids))
        objects = self.made.objects_of(position)
        boxes = torch.tensor([one["bbox"] for one in objects]).reshape(-1, 4)
        boxes[:, 2:] += boxes[:, :2]
        labels = torch.tensor([one["category_id"] for one in objects], dtype=torch.int64)
        if torch.rand(()) < 0.5:
            image, mask = image.flip(2), mask.flip(1)
            boxes[:, [0, 2]] = SIDE - boxes[:, [2, 0]]
        return image, {"boxes": boxes, "labels": labels}, mask


def torch_batches(made: MadeSet, seed: int, masks: bool) -> Batches:
    """Pictures (n, 3, h, w), and masks (n, h, w) or a list of targets, from torch's DataLoader."""
    torch.manual_seed(seed)
    options: dict[str, Any] = {"shuffle": True, "drop_last": True, "collate_fn": list}
    loader = torch.utils.data.DataLoader(Plain(made), MASKS_BATCH if masks else BATCH, **options)
    while True:
        for batch in loader:
            images, targets, ids = zip(*batch, strict=True)
            yield torch.stack(images), torch.stack(ids) if masks else targets


def our_batches(folder: Path, seed: int, masks: bool) -> Batches:
    """The same from fastload's."""
    chain = T.Compose([T.RandomHorizontalFlip(), T.ToDtype("float32", scale=True)])
    options: dict[str, Any] = {"shuffle": True, "drop_last": True, "seed": seed, "transform": chain}
    path, collate = (folder / "pixels", None) if masks else (folder / "packed", "list")
    with fastload.DataLoader(path, MASKS_BATCH if masks else BATCH, collate=collate, **options) as loader:
        while True:
            for batch in loader:
                if masks:
                    yield batch["image"], batch["mask"]
                else:
                    yield torch.stack(batch[0]), batch[1]


# ---- the detector ---------------------------------------------------------------------------------


class Detector(nn.Module):
    """(n, 3, h, w) to (n, classes + 4, h/4, w/4): how likely a centre is there, and how far its sides are."""

    def __init__(self, width: int = 48) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for inside, stride, step in ((3, 2, 1), (width, 2, 1), (width, 1, 1), (width, 1, 2), (width, 1, 4)):
            layers += [
                nn.Conv2d(inside, width, 3, stride, step, step, bias=False),
                nn.BatchNorm2d(width),
                nn.ReLU(),
            ]
        self.body = nn.Sequential(*layers, nn.Conv2d(width, len(CLASSES) + 4, 1))
        nn.init.constant_(self.body[-1].bias[: len(CLASSES)], -3.0)  # type: ignore[arg-type,index]

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.body(images - 0.5)
        return found


def detection_loss(found: torch.Tensor, targets: Sequence[Any]) -> torch.Tensor:
    """Focal loss of the centres with a Gaussian around each (Zhou et al. 2019), L1 of the sides, which each
    centre's neighbours learn, too."""
    count, _, high, wide = found.shape
    heat = torch.zeros(count, len(CLASSES), high, wide)
    y, x = torch.meshgrid(torch.arange(high), torch.arange(wide), indexing="ij")
    places, sides = [], []
    for number, target in enumerate(targets):
        for box, label in zip(target["boxes"], target["labels"], strict=True):
            centre = (box[:2] + box[2:]) / 2 / STRIDE
            column, row = (int(at) for at in centre.clamp(0, high - 1))
            spread = float((box[2:] - box[:2]).min()) / STRIDE / 6
            near = torch.exp(-((x - column) ** 2 + (y - row) ** 2) / (2 * max(spread, 0.5) ** 2))
            plane = heat[number, CATEGORY_IDS.index(int(label))]
            torch.maximum(plane, near, out=plane)
            for i, j in itertools.product(
                range(max(row - 1, 0), row + 2), range(max(column - 1, 0), column + 2)
            ):
                if i < high and j < wide:
                    places.append((number, i, j))
                    point = torch.tensor([j, i]) + 0.5
                    sides.append(torch.cat([point - box[:2] / STRIDE, box[2:] / STRIDE - point]))
    scores, at = found[:, : len(CLASSES)], torch.tensor(places)
    chance = scores.sigmoid().clamp(1e-4, 1 - 1e-4)
    hit, miss = (1 - chance) ** 2 * chance.log(), (1 - heat) ** 4 * chance**2 * (1 - chance).log()
    focal = -torch.where(heat == 1, hit, miss).sum() / sum(len(target["labels"]) for target in targets)
    drawn = found[at[:, 0], len(CLASSES) :, at[:, 1], at[:, 2]]
    return focal + SIDES_WEIGHT * functional.l1_loss(drawn, torch.stack(sides))


@torch.no_grad()
def precision(network: nn.Module, made: MadeSet) -> tuple[float, ...]:
    """Average precision at an overlap of 0.5, and the mean of those from 0.5 to 0.95, by pycocotools."""
    from pycocotools.coco import COCO
    from pycocotools.cocoeval import COCOeval

    found = []
    for picture, image in zip(made.instances["images"], pictures(made), strict=True):
        out = network(image[None])[0]
        scores = out[: len(CLASSES)].sigmoid()
        peaks = scores * (scores == functional.max_pool2d(scores[None], 3, 1, 1)[0])
        best, order = peaks.flatten().topk(SHOWN)
        for score, place in zip(best.tolist(), order.tolist(), strict=True):
            label, rest = divmod(place, out.shape[1] * out.shape[2])
            row, column = divmod(rest, out.shape[2])
            left, top, right, bottom = (out[len(CLASSES) :, row, column] * STRIDE).tolist()
            x, y = (column + 0.5) * STRIDE, (row + 0.5) * STRIDE
            box = [x - left, y - top, left + right, top + bottom]
            one = {"image_id": picture["id"], "category_id": CATEGORY_IDS[label], "score": score, "bbox": box}
            found.append(one)
    with contextlib.redirect_stdout(io.StringIO()):
        truth = COCO(str(made.json))
        judge = COCOeval(truth, truth.loadRes(found), "bbox")
        judge.evaluate()
        judge.accumulate()
        judge.summarize()
    return float(judge.stats[1]), float(judge.stats[0])


def pictures(made: MadeSet) -> Iterator[torch.Tensor]:
    """The pictures of a set, as the networks take them."""
    for name in made.names:
        with Image.open(made.images / name) as picture:
            yield torch.from_numpy(np.array(picture)).permute(2, 0, 1).float() / 255


# ---- the segmenter --------------------------------------------------------------------------------


@torch.no_grad()
def overlap(network: nn.Module, made: MadeSet) -> tuple[float, ...]:
    """The mean IoU of background and classes over all pixels of the set."""
    classes = len(CLASSES) + 1
    counts = torch.zeros(classes, classes, dtype=torch.int64)
    for name, image in zip(made.names, pictures(made), strict=True):
        with Image.open(made.folder / "masks" / f"{name[:-4]}.png") as ids:
            truth = torch.from_numpy(np.array(ids)).long()
        told = network(image[None])[0].argmax(0)
        counts += torch.bincount((truth * classes + told).flatten(), minlength=classes**2).view_as(counts)
    both = counts.diag()
    return (float((both / (counts.sum(0) + counts.sum(1) - both)).mean()),)


def segmentation_loss(found: torch.Tensor, masks: torch.Tensor) -> torch.Tensor:
    """Cross-entropy; the background, which is most of the pixels, counts a fifth."""
    weights = torch.tensor([0.2] + [1.0] * len(CLASSES))
    return functional.cross_entropy(found, masks.long(), weights)


# ---- training and judging -------------------------------------------------------------------------


@dataclass(frozen=True)
class Task:
    """A network, its loss, what it is judged by, and after how many steps."""

    network: Callable[[], nn.Module]
    loss: Any
    judge: Callable[[nn.Module, MadeSet], tuple[float, ...]]
    measures: tuple[str, ...]
    steps: int


TASKS = {
    "detector": Task(Detector, detection_loss, precision, ("AP at 0.5", "AP, 0.5 to 0.95"), 600),
    "segmenter": Task(lambda: UNet(len(CLASSES) + 1), segmentation_loss, overlap, ("mean IoU",), 220),
}


def trained(task: str, batches: Batches, steps: int, seed: int) -> nn.Module:
    """A network after so many steps, in evaluation mode; the seed is that of its first weights."""
    torch.manual_seed(1000 + seed)
    network = TASKS[task].network().train()
    optimizer = torch.optim.AdamW(network.parameters(), 4e-3, weight_decay=1e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 4e-3, steps, pct_start=0.2)
    for _ in range(steps):
        images, targets = next(batches)
        found = TASKS[task].loss(network(images), targets)
        optimizer.zero_grad()
        found.backward()
        optimizer.step()
        schedule.step()
    return network.eval()


def score(
    task: str, side: str, folder: Path, sets: tuple[MadeSet, MadeSet], steps: int, seed: int
) -> tuple[float, ...]:
    """What a network reaches on the other pictures that was trained from one side's loader."""
    masks = task == "segmenter"
    if side == "torch":
        batches = torch_batches(sets[0], seed, masks)
    else:
        batches = our_batches(folder / "train", seed, masks)
    with contextlib.closing(batches):  # type: ignore[type-var]
        return TASKS[task].judge(trained(task, batches, steps, seed), sets[1])


def rows_of(task: str, found: dict[str, list[tuple[float, ...]]]) -> Iterator[tuple[str, ...]]:
    """A row for each measure: every seed's, the means, their difference, and how far seeds lie apart."""
    for at, measure in enumerate(TASKS[task].measures):
        values = [[one[at] for one in found[side]] for side in SIDES]
        told = [" ".join(f"{value:.3f}" for value in side) for side in values]
        means = [statistics.mean(side) for side in values]
        spread = max(max(side) - min(side) for side in values)
        numbers = [*(f"{mean:.3f}" for mean in means), f"{means[1] - means[0]:+.3f}", f"{spread:.3f}"]
        yield (f"{task}, {measure}", *told, *numbers)


def main(argv: Sequence[str] | None = None) -> int:
    """Train, judge and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=3)
    steps = {name: task.steps for name, task in TASKS.items()}
    parser.add_argument("--steps", type=int, help=f"steps per training (default: {steps})")
    parser.add_argument("--pictures", type=int, default=600)
    parser.add_argument("--tasks", default=",".join(TASKS))
    options = parser.parse_args(argv)
    rows = []
    with tempfile.TemporaryDirectory() as work:
        folder = Path(work)
        sets = make(folder / "train", options.pictures, 1), make(folder / "test", 150, 2)
        for task in options.tasks.split(","):
            found: dict[str, list[tuple[float, ...]]] = {side: [] for side in SIDES}
            for seed in range(options.seeds):
                for side in SIDES:
                    count = options.steps or TASKS[task].steps
                    found[side].append(score(task, side, folder, sets, count, seed))
                    told = " ".join(f"{value:.3f}" for value in found[side][-1])
                    print(f"{task}, seed {seed}, {side}: {told}", file=sys.stderr, flush=True)
            rows += rows_of(task, found)
    print(table(("", *SIDES, "mean, torch", "mean, fastload", "difference", "spread over seeds"), rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
