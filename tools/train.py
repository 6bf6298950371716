"""Train a ResNet, on CPU or CUDA, in one process or under torchrun.

    python tools/train.py DATA --model resnet50 --epochs 90 --batch-size 256 --amp bf16 --checkpoint runs/a
    torchrun --nproc-per-node 8 tools/train.py DATA ...

DATA holds ``train`` and usually ``val``, packed by ``fastload pack``, or, with ``--loader torch``, the image
folder itself; then torch's DataLoader with Pillow does the same work, for comparison. Ctrl-C finishes the
step, saves and exits; the same command with ``--resume`` continues with the next batch. With
``--global-batch`` it can do so on any number of ranks that divides it.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import json
import sys
import time
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import nn
from training.checkpoint import Position, read_checkpoint, write_checkpoint
from training.data import Data, open_data
from training.loop import Batch, EpochResult, EvalResult, Run, evaluate, train_epoch
from training.models import MODELS, build_model
from training.progress import Progress
from training.schedule import SCHEDULES
from training.stop import StopSignal
from training.trace import Trace
from training.world import World, close_world, open_world

from fastload.errors import StateError

INTERRUPTED = 130  # exit status after Ctrl-C or SIGTERM, as shells have it


def parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    add = parser.add_argument
    add("data", type=Path, metavar="DATA", help="folder with train/ and val/ in it")
    add("--loader", choices=("fastload", "torch"), default="fastload")
    add(
        "--threads",
        type=int,
        metavar="N",
        help="threads, or torch's workers (default: this rank's CPUs)",
    )
    add("--model", choices=tuple(MODELS), default="resnet50")
    add("--size", type=int, default=224, help="side of the crops in pixels (%(default)s)")
    add("--resize", type=int, help="shorter side before the central crop (default: size x 8/7)")
    add("--epochs", type=int, default=90)
    add("--batch-size", type=int, default=256, help="images per rank (%(default)s)")
    add("--global-batch", type=int, metavar="N", help="images over all ranks, instead of --batch-size")
    add(
        "--accumulate",
        type=int,
        default=1,
        metavar="N",
        help="batches per update (%(default)s)",
    )
    add("--lr", type=float, help="peak learning rate (default: 0.1 per 256 images of an update)")
    add("--schedule", choices=tuple(SCHEDULES), default="cosine")
    add("--warmup", type=float, default=0.05, help="share of training (%(default)s)")
    add("--momentum", type=float, default=0.9)
    add("--weight-decay", type=float, default=5e-5)
    add("--label-smoothing", type=float, default=0.1)
    add("--amp", choices=("off", "bf16", "fp16"), default="off", help="mixed precision (%(default)s)")
    add("--no-channels-last", action="store_true", help="NCHW memory for model and images")
    add("--device", choices=("auto", "cuda", "cpu"), default="auto")
    add("--seed", type=int, default=0)
    add("--checkpoint", type=Path, metavar="FOLDER", help="folder of the checkpoint")
    add("--save-every", type=int, metavar="N", help="also save after every N updates")
    add("--resume", action="store_true", help="resume from the checkpoint, if there is one")
    add("--trace", type=Path, metavar="FOLDER", help="folder for the labels of every batch of every rank")
    # Not "--log", which torchrun would take for one of its own.
    add("--log-file", type=Path, metavar="FILE", help="file to append a line of JSON per epoch to")
    return parser


def check(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    """Refuse what cannot work, before anything starts."""
    for name in ("size", "epochs", "batch_size", "accumulate"):
        if getattr(options, name) < 1:
            parser.error(f"--{name.replace('_', '-')} must be at least 1. Found: {getattr(options, name)}")
    if not 0 <= options.warmup < 1:
        parser.error(f"--warmup must be in [0, 1). Found: {options.warmup}")
    if options.save_every is not None and options.save_every < 1:
        parser.error(f"--save-every must be at least 1. Found: {options.save_every}")
    if (options.resume or options.save_every) and options.checkpoint is None:
        parser.error("--resume and --save-every need --checkpoint FOLDER")
    if options.global_batch is not None and options.global_batch < 1:
        parser.error(f"--global-batch must be at least 1. Found: {options.global_batch}")
    options.resize = options.resize or round(options.size * 8 / 7)


def share_batch(options: argparse.Namespace, world: World) -> None:
    """Make ``batch_size`` this rank's share of ``global_batch``, or ``global_batch`` the sum of all.

    Raises:
        ValueError: the ranks cannot have equal shares.
    """
    if options.global_batch is None:
        options.global_batch = options.batch_size * world.size
    elif options.global_batch % world.size:
        raise ValueError(f"--global-batch {options.global_batch} cannot be divided among {world.size} ranks.")
    options.batch_size = options.global_batch // world.size


def make_optimizer(model: nn.Module, options: argparse.Namespace) -> torch.optim.SGD:
    """SGD with Nesterov momentum; no weight decay on biases and BatchNorm, which have one dimension."""
    decayed = [p for p in model.parameters() if p.ndim > 1]
    others = [p for p in model.parameters() if p.ndim <= 1]
    groups = [
        {"params": decayed, "weight_decay": options.weight_decay},
        {"params": others, "weight_decay": 0.0},
    ]
    return torch.optim.SGD(groups, lr=0.1, momentum=options.momentum, nesterov=options.momentum > 0)


def learning_rate(options: argparse.Namespace, peak: float, total: int, updates: int) -> float:
    """The rate of the next update, when ``updates`` of ``total`` are done."""
    return peak * SCHEDULES[options.schedule](min(1.0, updates / total), options.warmup)


def make_run(options: argparse.Namespace, world: World, data: Data) -> Run:
    """Model, optimiser and schedule."""
    torch.manual_seed(options.seed)
    layout = torch.contiguous_format if options.no_channels_last else torch.channels_last
    model = build_model(options.model, data.classes).to(world.device)
    relayout: Any = model.to  # torch's annotations lack the keyword
    model = relayout(memory_format=layout)
    optimizer = make_optimizer(model, options)
    total = options.epochs * -(-len(data.train) // options.accumulate)
    peak = options.lr or 0.1 * options.global_batch * options.accumulate / 256
    if world.size > 1:
        ids = [world.device] if world.device.type == "cuda" else None
        model = nn.parallel.DistributedDataParallel(model, device_ids=ids)
    return Run(
        model=model,
        optimizer=optimizer,
        scaler=torch.amp.GradScaler(world.device.type, enabled=options.amp == "fp16"),
        world=world,
        amp={"off": None, "bf16": torch.bfloat16, "fp16": torch.float16}[options.amp],
        layout=layout,
        accumulate=options.accumulate,
        smoothing=options.label_smoothing,
        rate=functools.partial(learning_rate, options, peak, total),
    )


class Training:
    """A run from its first or resumed epoch to its last."""

    def __init__(self, options: argparse.Namespace, world: World, data: Data) -> None:
        self.options, self.world, self.data = options, world, data
        self.run = make_run(options, world, data)
        self.position = Position()
        self.stop = StopSignal(world)
        self.stopping = False
        if options.resume:
            self.restore()
        self.trace = Trace(options.trace, world) if options.trace is not None else None

    def plain_model(self) -> nn.Module:
        """The model without its DistributedDataParallel wrapper."""
        model = self.run.model
        return model.module if isinstance(model, nn.parallel.DistributedDataParallel) else model

    def save(self) -> None:
        """Write the checkpoint, if one is wanted (the first rank only; the others agree with it)."""
        if self.options.checkpoint is None or not self.world.is_first:
            return
        self.position.updates = self.run.updates
        body = {
            "loader_kind": self.options.loader,
            "global_batch": self.options.global_batch,
            "position": asdict(self.position),
            "loader": self.data.train.state_dict(),
            "model": self.plain_model().state_dict(),
            "optimizer": self.run.optimizer.state_dict(),
            "scaler": self.run.scaler.state_dict(),
        }
        write_checkpoint(self.options.checkpoint, body)

    def restore(self) -> None:
        """Go back to the checkpoint; every rank reads it."""
        body = read_checkpoint(self.options.checkpoint)
        if body is None:
            self.say(f"no checkpoint in {self.options.checkpoint} yet: starting from the beginning")
            return
        if body["loader_kind"] != self.options.loader:
            raise ValueError(
                f"The checkpoint in {self.options.checkpoint} was made with --loader {body['loader_kind']}."
            )
        batch, saved = self.options.global_batch, body["global_batch"]
        if batch != saved:
            raise ValueError(
                f"The checkpoint was made with batches of {saved} images over all ranks, here they have "
                f"{batch}: its steps are not these steps. Add --global-batch {saved}."
            )
        self.position = Position(**body["position"])
        self.run.updates = self.position.updates
        self.plain_model().load_state_dict(body["model"])
        self.run.optimizer.load_state_dict(body["optimizer"])
        self.run.scaler.load_state_dict(body["scaler"])
        if self.position.step > 0:  # in the middle of an epoch
            self.data.train.load_state_dict(body["loader"])
        self.say(f"resuming in epoch {self.position.epoch + 1} after {self.position.step} batches")

    def say(self, text: str) -> None:
        """Print on the first rank."""
        if self.world.is_first:
            print(text, flush=True)

    def after_update(self, step: int) -> bool:
        """Save when it is time; whether to stop."""
        self.position.step = step
        every = self.options.save_every
        if every is not None and self.run.updates % every == 0:
            self.save()
        self.stopping = self.stop.is_agreed(self.run.updates)
        return self.stopping

    def train_one(self) -> EpochResult:
        """What is left of the current epoch."""
        epoch, steps = self.position.epoch, len(self.data.train)
        self.data.train.set_epoch(epoch)
        title = f"epoch {epoch + 1}/{self.options.epochs}"
        span = range(self.position.step, steps)
        batches: Iterable[Batch] = self.data.train
        if self.trace is not None:
            batches = self.trace.batches(batches, epoch, span.start)
        with Progress(title, steps, span.start, self.world.is_first) as progress:
            return train_epoch(self.run, batches, span, progress, self.after_update)

    def go(self) -> bool:
        """Train until the last epoch; False where a signal ended it before.

        A signal at an epoch's last update leaves after its evaluation; the checkpoint is written before.
        """
        while self.position.epoch < self.options.epochs:
            if self.stopping:
                return False
            result = self.train_one()
            if not result.finished:
                self.save()
                return False
            self.position.epoch += 1
            self.position.step = 0
            self.save()
            self.report(result, evaluate(self.run, self.data.val) if self.data.val is not None else None)
        return True

    def report(self, train: EpochResult, val: EvalResult | None) -> None:
        """The epoch's line on the screen and in the log."""
        text = (
            f"epoch {self.position.epoch}/{self.options.epochs}  train loss {train.loss:.3f}  "
            f"{train.images_per_second:.0f} images/s  data wait {train.wait_share:.1%}"
        )
        if val is not None:
            text += f"  val loss {val.loss:.3f}  top-1 {val.top1:.1%}"
            text += f"  top-5 {val.top5:.1%}" if val.top5 == val.top5 else ""
        self.say(f"{text}  {train.seconds:.1f} s")
        if self.options.log_file is not None and self.world.is_first:
            append_line(self.options.log_file, self.facts(train, val))

    def facts(self, train: EpochResult, val: EvalResult | None) -> dict[str, Any]:
        """The epoch's numbers for the log."""
        return {
            "time": time.time(),
            "epoch": self.position.epoch,
            "loader": self.options.loader,
            "model": self.options.model,
            "world_size": self.world.size,
            "device": self.world.device.type,
            "train_loss": train.loss,
            "train_images": train.images,
            "seconds": train.seconds,
            "images_per_second": train.images_per_second,
            "data_wait": train.wait_share,
            **({f"val_{name}": value for name, value in asdict(val).items()} if val is not None else {}),
        }


def append_line(path: Path, facts: dict[str, Any]) -> None:
    """Append ``facts`` to a JSON Lines file; what is not a number becomes null."""
    clean = {name: None if value != value else value for name, value in facts.items()}
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "a", encoding="utf-8") as file:
        file.write(json.dumps(clean) + "\n")


def train(options: argparse.Namespace, world: World) -> int:
    """One run in an open world; the exit status."""
    with contextlib.ExitStack() as stack:
        try:
            share_batch(options, world)
            data = open_data(options, world)
            stack.callback(data.close)
            training = Training(options, world, data)
        except (OSError, ValueError, StateError) as error:  # fastload's errors about data are among these
            print(f"train.py: {error}", file=sys.stderr)
            return 1
        if training.go():
            return 0
        where = options.checkpoint or "nowhere: there was no --checkpoint"
        training.say(f"stopped; saved to {where}. The same command with --resume goes on.")
        return INTERRUPTED


def main(argv: list[str] | None = None) -> int:
    """Run; the exit status."""
    reader = parser()
    options = reader.parse_args(argv)
    check(reader, options)
    world = open_world(options.device)
    try:
        return train(options, world)
    finally:
        # The model's gradient buckets are gone by now: they must not outlive the process group.
        close_world()


if __name__ == "__main__":
    sys.exit(main())
