"""One epoch of training, and exact evaluation.

A label of -100 marks padding or a skipped sample (fastload's mark, and the ``ignore_index`` of torch's
losses): such rows count for nothing, in the loss, in accuracy and in the number of images.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional as F

from training.progress import Progress
from training.world import World, sum_over_ranks

__all__ = ["IGNORED", "Batch", "EpochResult", "EvalResult", "Run", "evaluate", "train_epoch"]

IGNORED = -100
READ_EVERY = 10  # updates between two readings of the loss, which make the host wait for the device

Batch = tuple[torch.Tensor, torch.Tensor]


@dataclass
class Run:
    """What training an epoch needs."""

    model: nn.Module  # wrapped in DistributedDataParallel where there are several ranks
    optimizer: torch.optim.Optimizer
    scaler: torch.amp.GradScaler  # disabled unless --amp fp16
    world: World
    amp: torch.dtype | None
    layout: torch.memory_format
    accumulate: int  # batches an update
    smoothing: float
    rate: Callable[[int], float]  # updates done -> learning rate
    updates: int = 0  # done since the beginning

    def autocast(self) -> contextlib.AbstractContextManager[None]:
        """Mixed precision as chosen."""
        if self.amp is None:
            return contextlib.nullcontext()
        return torch.autocast(self.world.device.type, self.amp)

    def place(self, batch: Batch) -> Batch:
        """The batch on the device, in the model's memory layout."""
        images, labels = batch
        device = self.world.device
        images = images.to(device, non_blocking=True, memory_format=self.layout)
        return images, labels.to(device, non_blocking=True)


@dataclass(frozen=True)
class EpochResult:
    """Sums over all ranks; seconds are this rank's."""

    loss: float  # mean over images, NaN where there was none
    images: int
    seconds: float
    wait: float  # seconds of them in which the loop waited for the loader
    finished: bool  # False: asked to stop before the end

    @property
    def images_per_second(self) -> float:
        """Over all ranks, waiting included."""
        return self.images / self.seconds if self.seconds > 0 else 0.0

    @property
    def wait_share(self) -> float:
        """Share of the time in which the loop waited for the loader, 0 to 1."""
        return self.wait / self.seconds if self.seconds > 0 else 0.0


@dataclass(frozen=True)
class EvalResult:
    """Over every sample once, all ranks together; NaN where there was none."""

    loss: float
    top1: float
    top5: float  # NaN with fewer than 6 classes
    images: int


class Meter:
    """Clocks an epoch and sums its loss, on the device."""

    def __init__(self, world: World) -> None:
        self.begin = time.perf_counter()
        self.wait = 0.0
        self.sums = torch.zeros(2, dtype=torch.float64, device=world.device)  # loss, images

    def timed(self, batches: Iterable[Batch]) -> Iterator[Batch]:
        """The same batches; the time until each arrives is counted as waiting."""
        iterator = iter(batches)
        while True:
            before = time.perf_counter()
            batch = next(iterator, None)
            self.wait += time.perf_counter() - before
            if batch is None:
                return
            yield batch

    def add(self, loss_sum: torch.Tensor, valid: torch.Tensor) -> None:
        """Count a batch; nothing is read from the device."""
        self.sums += torch.stack([loss_sum.detach().double(), valid.double()])

    def text(self, world_size: int) -> str:
        """Loss, speed and waiting so far. Reads from the device, which makes the host wait."""
        loss, images = self.sums.tolist()
        seconds = time.perf_counter() - self.begin
        rate = images * world_size / seconds
        return f"loss {loss / max(images, 1):.3f}  {rate:.0f} images/s  data wait {self.wait / seconds:.1%}"

    def result(self, world: World, finished: bool) -> EpochResult:
        """The totals; all ranks must call it."""
        loss, images = sum_over_ranks(world, self.sums).tolist()
        seconds = time.perf_counter() - self.begin
        mean = loss / images if images else float("nan")
        return EpochResult(mean, int(images), seconds, self.wait, finished)


def forward_backward(run: Run, batch: Batch, share: float) -> tuple[torch.Tensor, torch.Tensor]:
    """Add this batch's gradients, weighted by ``share`` of an update; (summed loss, counted images)."""
    images, labels = run.place(batch)
    with run.autocast():
        logits = run.model(images)
        loss_sum = F.cross_entropy(
            logits, labels, ignore_index=IGNORED, reduction="sum", label_smoothing=run.smoothing
        )
    valid = (labels != IGNORED).sum()
    torch.autograd.backward(run.scaler.scale(loss_sum / valid.clamp(min=1) * share))
    return loss_sum, valid


def update(run: Run) -> None:
    """One step of the optimiser, at the schedule's learning rate."""
    for group in run.optimizer.param_groups:
        group["lr"] = run.rate(run.updates)
    run.scaler.step(run.optimizer)
    run.scaler.update()
    run.optimizer.zero_grad(set_to_none=True)
    run.updates += 1


def accumulating(run: Run, is_last: bool) -> contextlib.AbstractContextManager[None]:
    """Ranks exchange gradients with the last batch of an update only."""
    if is_last or not isinstance(run.model, nn.parallel.DistributedDataParallel):
        return contextlib.nullcontext()
    context: contextlib.AbstractContextManager[None] = run.model.no_sync()
    return context


def train_epoch(
    run: Run,
    loader: Iterable[Batch],
    span: range,
    progress: Progress,
    after_update: Callable[[int], bool],
) -> EpochResult:
    """Train on the rest of an epoch.

    Args:
        run: model, optimiser and settings.
        loader: gives the batches of ``span``, in order.
        span: the steps to do, from the first one not done yet to the epoch's number of batches.
        progress: told about every tenth update.
        after_update: called with the steps done after each update; True asks to stop.
    """
    run.model.train()
    meter = Meter(run.world)
    for step, batch in zip(span, meter.timed(loader), strict=True):
        first = step - step % run.accumulate  # the last group of an epoch may be smaller
        group = min(run.accumulate, span.stop - first)
        is_last = step + 1 == first + group
        with accumulating(run, is_last):
            meter.add(*forward_backward(run, batch, 1 / group))
        if not is_last:
            continue
        update(run)
        stop = after_update(step + 1)
        if run.updates % READ_EVERY == 0:
            progress.update(step + 1, meter.text(run.world.size))
        if stop:
            return meter.result(run.world, step + 1 == span.stop)
    return meter.result(run.world, True)


@torch.inference_mode()
def evaluate(run: Run, loader: Iterable[Batch]) -> EvalResult:
    """Loss and accuracy over every sample of ``loader``, without label smoothing."""
    model = run.model
    if isinstance(model, nn.parallel.DistributedDataParallel):
        model = model.module  # ranks may have different numbers of batches
    model.eval()
    sums = torch.zeros(4, dtype=torch.float64, device=run.world.device)  # loss, top-1, top-5, images
    classes = 0
    for batch in loader:
        images, labels = run.place(batch)
        with run.autocast():
            logits = model(images)
        classes = logits.shape[1]
        loss = F.cross_entropy(logits.float(), labels, ignore_index=IGNORED, reduction="sum")
        hits = logits.topk(min(5, classes), dim=1).indices == labels[:, None]  # never true for IGNORED
        valid = (labels != IGNORED).sum()
        sums += torch.stack([loss.double(), hits[:, 0].sum().double(), hits.sum().double(), valid.double()])
    loss_sum, top1, top5, images_seen = sum_over_ranks(run.world, sums).tolist()
    if not images_seen:
        return EvalResult(float("nan"), float("nan"), float("nan"), 0)
    share5 = top5 / images_seen if classes > 5 else float("nan")
    return EvalResult(loss_sum / images_seen, top1 / images_seen, share5, int(images_seen))
