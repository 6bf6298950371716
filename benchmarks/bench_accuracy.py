"""Does a model train as well on fastload's augmentation as on torchvision's?

    python benchmarks/bench_accuracy.py --policy trivial_augment

A small network is trained on a few drawn digits for a few epochs, with a crop, a policy and a normalisation:
from torch's DataLoader with torchvision's objects on Pillow, and from fastload with the same objects. Each
seed has its own first weights and order, the same for both sides; their draws differ. It prints both
accuracies on other digits, and the difference of their means beside its standard error (Welch): more than
three standard errors are a defect. It needs torchvision.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import torch
from harness.command_line import pack_folder
from harness.measure import table
from loaders.candidates.torch_pil import Photos, open_pil, torchvision_or_none
from loaders.jobs import listing
from sets.digits import SIDE, draw_digits, write_folder
from starvation.training_step import SmallCNN, Trainer

from fastload import DataLoader

MEAN, STD = (0.13,) * 3, (0.31,) * 3
POLICIES = ("trivial_augment", "rand_augment", "auto_augment", "jitter")
LIMIT = 3.0  # standard errors
BATCH = 50


def transform_of(policy: str) -> Any:
    """Crop, policy and normalisation, in torchvision's objects."""
    import torchvision.transforms as t

    policies = {
        "trivial_augment": lambda: [t.TrivialAugmentWide()],
        "rand_augment": lambda: [t.RandAugment(2, 9)],
        "auto_augment": lambda: [t.AutoAugment()],
        "jitter": lambda: [t.ColorJitter(0.8, 0.8, 0.8, 0.2), t.RandomGrayscale(0.2), t.GaussianBlur(5)],
    }
    crop = t.RandomResizedCrop(SIDE, (0.6, 1.0))
    return t.Compose([crop, *policies[policy](), t.ToTensor(), t.Normalize(MEAN, STD)])


def plain() -> Any:
    """What the digits to test on go through."""
    import torchvision.transforms as t

    return t.Compose([t.ToTensor(), t.Normalize(MEAN, STD)])


def accuracy(loader: Iterable[Any], test: Sequence[Any], seed: int, epochs: int) -> float:
    """Percent of the digits to test on that a network gets right after ``epochs`` of a loader's."""
    trainer = Trainer(SmallCNN(3), "cpu", channels_last=False)
    torch.manual_seed(seed)
    for module in trainer.model.modules():
        if hasattr(module, "reset_parameters"):
            module.reset_parameters()
    for _ in range(epochs):
        for images, labels in loader:
            trainer.step(*trainer.place(images.contiguous(), labels))
    trainer.model.eval()
    with torch.no_grad():
        right = sum(int((trainer.model(images).argmax(1) == labels).sum()) for images, labels in test)
    return 100.0 * right / sum(len(labels) for _, labels in test)


def of_torch(folder: Path, policy: str, seed: int) -> Iterable[Any]:
    """torch's DataLoader over the files."""
    dataset: Any = Photos(listing(folder), open_pil, transform_of(policy))
    order = torch.Generator().manual_seed(seed)
    return torch.utils.data.DataLoader(dataset, BATCH, shuffle=True, num_workers=2, generator=order)


def of_fastload(packed: Path, policy: str, seed: int) -> Iterable[Any]:
    """fastload's, with the same objects. None of them may be left to Python."""
    loader: DataLoader[Any] = DataLoader(
        packed, BATCH, shuffle=True, num_workers=2, transform=transform_of(policy), seed=seed, cache="off"
    )
    if loader.explain().slow:
        raise SystemExit(f"{policy} does not run whole in the core:\n{loader.explain()}")
    return loader


def trained(options: argparse.Namespace, work: Path) -> dict[str, list[float]]:
    """Accuracies of both sides by seed, in turns."""
    write_folder(draw_digits(options.digits), work / "train")
    write_folder(draw_digits(2000, seed=1), work / "test")
    pack_folder(work / "train", work / "packed")
    pack_folder(work / "test", work / "packed_test")
    found: dict[str, list[float]] = {"torch and torchvision": [], "fastload": []}
    with DataLoader(work / "packed_test", 500, transform=plain()) as loader:
        test = [(images.contiguous(), labels) for images, labels in loader]
    for seed in range(options.seeds):
        sides = {
            "torch and torchvision": of_torch(work / "train", options.policy, seed),
            "fastload": of_fastload(work / "packed", options.policy, seed),
        }
        for name in list(sides) if seed % 2 else list(sides)[::-1]:
            began = time.perf_counter()
            found[name].append(accuracy(sides[name], test, seed, options.epochs))
            spent = time.perf_counter() - began
            print(f"seed {seed} {name}: {found[name][-1]:.2f}%, {spent:.1f} s", file=sys.stderr, flush=True)
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Train and print; the exit status is 1 where the sides differ."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--policy", choices=POLICIES, default=POLICIES[0])
    parser.add_argument("--digits", type=int, default=2000, help="number of digits to train on")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--seeds", type=int, default=8, help="number of seeds, at least 3")
    options = parser.parse_args(arguments)
    if options.seeds < 3:
        parser.error(f"--seeds must be at least 3. Found: {options.seeds}.")
    if torchvision_or_none() is None:
        parser.error("torchvision is not installed, whose transforms these are.")
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as work:
        found = trained(options, Path(work))
    rows = [
        (name, f"{statistics.mean(v):.2f}", f"{statistics.stdev(v):.2f}", f"{min(v):.2f}", f"{max(v):.2f}")
        for name, v in found.items()
    ]
    print(table((options.policy, "accuracy %", "deviation", "lowest", "highest"), rows))
    ours, theirs = found["fastload"], found["torch and torchvision"]
    difference = statistics.mean(ours) - statistics.mean(theirs)
    error = math.sqrt((statistics.variance(ours) + statistics.variance(theirs)) / options.seeds)
    print(f"difference of the means: {difference:+.2f}, {abs(difference) / error:.1f} standard errors")
    return int(abs(difference) > LIMIT * error)


if __name__ == "__main__":
    sys.exit(main())
