"""Profile a few steps of training with torch.profiler: a trace for Chrome and TensorBoard, and its picture.

    python tools/profile_training.py PACKED --output build/profile
    python tools/profile_training.py PACKED --output build/profile --picture build/profile/trace.svg

PACKED is a folder made by ``fastload pack``. It writes ``*.pt.trace.json`` (open it in chrome://tracing,
https://ui.perfetto.dev or TensorBoard with torch-tb-profiler) and, if tensorboard is installed, the scalars
images_per_second and data_wait_percent. The loader's ``next()`` is "enumerate(DataLoader)#...", as torch's.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from timeline import draw, read_events
from torch.nn import functional as F
from torch.profiler import ProfilerActivity, profile, record_function, schedule, tensorboard_trace_handler
from training.models import MODELS, build_model

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
WARMUP = 2  # steps with the profiler on whose events are thrown away


def parse(argv: list[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    add = parser.add_argument
    add("data", type=Path, metavar="PACKED", help="packed folder, with dataset.json in it")
    add("--output", type=Path, default=Path("build/profile"), metavar="FOLDER")
    add("--picture", type=Path, metavar="FILE", help="also draw the trace as .svg or .png (needs matplotlib)")
    add("--steps", type=int, default=4, help="steps to record (%(default)s)")
    add("--skip", type=int, default=2, help="steps before the profiler begins (%(default)s)")
    add("--model", choices=tuple(MODELS), default="resnet8")
    add("--size", type=int, default=96, help="side of the pictures in pixels (%(default)s)")
    add("--batch-size", type=int, default=32)
    add("--threads", type=int, default=2)
    add("--device", choices=("cuda", "cpu"), default="cuda" if torch.cuda.is_available() else "cpu")
    options = parser.parse_args(argv)
    if options.steps < 1 or options.skip < 0:
        parser.error(f"--steps must be at least 1, --skip 0. Found: {options.steps}, {options.skip}")
    return options


def batches(options: argparse.Namespace) -> Iterator[Any]:
    """Endless training batches."""
    from fastload import DataLoader
    from fastload import transforms as T

    loader = DataLoader(
        options.data,
        batch_size=options.batch_size,
        shuffle=True,
        drop_last=True,
        num_workers=options.threads,
        device=options.device,
        transform=T.Compose(
            [T.RandomResizedCrop(options.size), T.RandomHorizontalFlip(), T.Normalize(mean=MEAN, std=STD)]
        ),
    )
    if len(loader) == 0:
        raise SystemExit(f"{options.data} has fewer images than one batch of {options.batch_size}.")
    while True:
        yield from loader


class Scalars:
    """TensorBoard's curves, where the package is installed."""

    def __init__(self, folder: Path) -> None:
        self._writer: Any = None
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            return
        self._writer = SummaryWriter(str(folder))  # type: ignore[no-untyped-call]

    def add(self, step: int, images: int, seconds: float, waited: float) -> None:
        """One step's figures."""
        if self._writer is not None:
            self._writer.add_scalar("images_per_second", images / seconds, step)
            self._writer.add_scalar("data_wait_percent", 100 * waited / seconds, step)

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()


def train(options: argparse.Namespace) -> Path:
    """The profiled steps; the trace's path."""
    model = build_model(options.model, 1000).to(options.device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    kinds = [ProfilerActivity.CPU] + ([ProfilerActivity.CUDA] if options.device == "cuda" else [])
    options.output.mkdir(parents=True, exist_ok=True)
    old = set(options.output.glob("*.pt.trace.json"))
    scalars = Scalars(options.output)
    source = batches(options)
    with profile(
        activities=kinds,
        schedule=schedule(wait=options.skip, warmup=WARMUP, active=options.steps, repeat=1),
        on_trace_ready=tensorboard_trace_handler(str(options.output)),
    ) as profiler:
        for number in range(options.skip + WARMUP + options.steps):
            begin = time.perf_counter()
            images, labels = next(source)
            waited = time.perf_counter() - begin
            step(model, optimizer, images.to(options.device), labels.to(options.device))
            scalars.add(number, len(labels), time.perf_counter() - begin, waited)
            profiler.step()
    scalars.close()
    (trace,) = set(options.output.glob("*.pt.trace.json")) - old
    return Path(trace)


def step(
    model: torch.nn.Module, optimizer: torch.optim.Optimizer, images: torch.Tensor, labels: torch.Tensor
) -> None:
    """Forward, backward and update, each with its name in the trace."""
    with record_function("forward"):
        loss = F.cross_entropy(model(images), labels)
    with record_function("backward"):
        torch.autograd.backward(loss)
    with record_function("optimizer"):
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)


def main(argv: list[str] | None = None) -> None:
    """Profile and draw."""
    options = parse(argv)
    trace = train(options)
    print(f"{trace}: {trace.stat().st_size / 1e6:.1f} MB; open it in https://ui.perfetto.dev")
    if options.picture is not None:
        title = f"{options.model}, batches of {options.batch_size}, {options.device}"
        options.picture.parent.mkdir(parents=True, exist_ok=True)
        draw(read_events(trace), options.picture, title)
        print(f"{options.picture}: {options.picture.stat().st_size / 1e3:.0f} kB")


if __name__ == "__main__":
    main()
