"""MNIST for five epochs: torch's DataLoader with 0 workers, 8, 8 and pinned memory, and fastload.

With 28x28 records the overhead of each sample and batch is everything there is. torch's dataset holds all
pixels in memory, as torchvision.datasets.MNIST does, and makes a Pillow image, a tensor and its normalisation
for each sample. fastload reads PNG files that `fastload pack` packed, or raw pixels (`pack --raw`). A round
is an epoch. On CUDA each batch goes to the device and trains PyTorch's example network; on the CPU it is only
taken.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from harness.command_line import pack_folder
from harness.measure import Run, table
from harness.rounds import Clock, skip
from PIL import Image
from sets.digits import draw_digits, read_idx, write_folder

from articles.setting import Chart, Measure, Setting, done, summary

BATCH = 64
MEAN, STD = 0.1307, 0.3081
TORCH = {
    "torch, 0 workers": (0, False),
    "torch, 8 workers": (8, False),
    "torch, 8 workers, pinned": (8, True),
}
FASTLOAD = {"fastload, PNG": "packed", "fastload, raw pixels": "raw"}
BASELINE = "torch, 8 workers"


class Digits(torch.utils.data.Dataset[tuple[torch.Tensor, int]]):
    """What torchvision.datasets.MNIST with ToTensor and Normalize does, from arrays in memory."""

    def __init__(self, pixels: torch.Tensor, labels: torch.Tensor) -> None:
        self.pixels, self.labels = pixels, labels

    def __len__(self) -> int:
        return len(self.pixels)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        image = Image.fromarray(self.pixels[index].numpy())
        tensor = torch.from_numpy(np.array(image, np.uint8, copy=True)).view(1, *image.size[::-1])
        return tensor.float().div(255).sub_(MEAN).div_(STD), int(self.labels[index])


def prepare(setting: Setting) -> None:
    """The digits as PNG files, packed twice, and as arrays."""
    folder = setting.folder / "mnist"
    samples = list(read_idx(Path(setting.mnist)) if setting.mnist else draw_digits(setting.digits))
    write_folder(iter(samples[: setting.digits]), folder / "png")
    pixels, labels = zip(*samples[: setting.digits], strict=True)
    np.savez(folder / "arrays.npz", pixels=np.stack(pixels), labels=np.array(labels))
    pack_folder(folder / "png", folder / "packed")
    pack_folder(folder / "png", folder / "raw", "--raw")


def cases(setting: Setting) -> Sequence[str]:
    return [*TORCH, *FASTLOAD]


def start(case: str, setting: Setting) -> Measure:
    if case in TORCH:
        loader = torch_loader(setting, *TORCH[case])
    else:
        loader = fastload_loader(setting, FASTLOAD[case])
    consume = consumer(setting, 1 if case in TORCH else 3)

    def measure() -> dict[str, float]:
        clock = Clock()
        images = consume(iter(loader))
        values = clock.read()
        if images != setting.digits:
            raise RuntimeError(f"{case}: {images} of {setting.digits} samples came.")
        return {**values, "rate": images / values["seconds"]}

    return measure


def torch_loader(setting: Setting, workers: int, pinned: bool) -> Any:
    """torch's, as in its MNIST example; workers live for an epoch, the default."""
    if pinned and setting.device == "cpu":
        skip("pinned memory needs a GPU")
    warnings.filterwarnings("ignore", message="This DataLoader will create")
    arrays = np.load(setting.folder / "mnist" / "arrays.npz")
    dataset = Digits(torch.from_numpy(arrays["pixels"]), torch.from_numpy(arrays["labels"]))
    return torch.utils.data.DataLoader(
        dataset, batch_size=BATCH, shuffle=True, num_workers=workers, pin_memory=pinned
    )


def fastload_loader(setting: Setting, name: str) -> Any:
    from fastload import DataLoader
    from fastload import transforms as T

    return DataLoader(
        setting.folder / "mnist" / name,
        batch_size=BATCH,
        shuffle=True,
        num_workers=min(8, setting.threads),
        pin_memory=setting.device != "cpu",
        transform=T.Normalize((MEAN,) * 3, (STD,) * 3),
    )


def consumer(setting: Setting, channels: int) -> Any:
    """Takes an epoch's batches and counts their samples; on CUDA it trains."""
    if setting.device == "cpu":
        return lambda batches: sum(len(labels) for _, labels in batches)
    from starvation.training_step import SmallCNN, Trainer, synchronize

    trainer = Trainer(SmallCNN(channels), setting.device)

    def train(batches: Iterator[Any]) -> int:
        count = 0
        for batch in batches:
            trainer.step(*trainer.place(*batch))
            count += len(batch[1])
        synchronize(trainer.device)
        return count

    return train


def report(runs: Sequence[Run], setting: Setting) -> str:
    names = done(runs)
    base = summary(runs, BASELINE, "seconds").median if BASELINE in names else None
    rows = []
    for name in names:
        seconds = summary(runs, name, "seconds")
        rows.append([
            name,
            seconds.text(2),
            f"{sum(float(run.values['seconds']) for run in runs if run.name == name):.1f}",
            summary(runs, name, "rate").text(),
            summary(runs, name, "cores").text(1),
            f"{base / seconds.median:.1f}x" if base else "-",
            f"{max(run.outside_cores for run in runs if run.name == name):.2f}",
        ])  # fmt: skip
    source = "MNIST" if setting.mnist else "drawn digits in MNIST's place"
    what = "copied to the device and trained on" if setting.device == "cuda" else "only taken"
    header = [
        "loader",
        "epoch, s",
        "all epochs, s",
        "images/s",
        "CPU cores",
        f"speed / {BASELINE}",
        "outside cores",
    ]
    note = (
        f"{setting.digits} gray pictures of 28x28 ({source}), batches of {BATCH}, {what}; fastload gives RGB."
    )
    return f"{note}\n\n{table(header, rows)}"


def chart(runs: Sequence[Run], setting: Setting) -> Chart:
    series = {"epoch": {name: summary(runs, name, "seconds") for name in done(runs)}}
    return Chart("An epoch of 28x28 digits", "seconds", "bars", series)
