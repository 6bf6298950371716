"""A perfect model, measured by torchmetrics: padding_program.py PACKED OUT."""

from __future__ import annotations

import os
import sys
from typing import Any

import torch
import torchmetrics
from numbered_set import ROWS, SIDE, write_result

import fastload
from fastload import transforms as T

PACKED, OUT = sys.argv[1], sys.argv[2]
VALID = T.Compose([T.Resize(SIDE), T.CenterCrop(SIDE), T.ToDtype("float32", scale=True)])


def evaluate(way: str) -> dict[str, Any]:
    """Accuracy, mean label and confusion matrix over all ranks, with one way to leave out the padding."""
    ignore = -100 if way == "ignore_index" else None
    options: dict[str, Any] = {"task": "multiclass", "num_classes": ROWS, "ignore_index": ignore}
    accuracy = torchmetrics.Accuracy(average="micro", **options)
    matrix = torchmetrics.ConfusionMatrix(**options)
    mean = torchmetrics.MeanMetric()
    dropped = {"padding": "drop"} if way == "padding" else {}
    loader = fastload.DataLoader(PACKED, 4, transform=VALID, seed=0, num_workers=2, **dropped)
    seen = 0
    for batch in loader:
        images, labels = fastload.valid(batch) if way == "valid" else batch
        seen += 1
        assert len(images) == len(labels)
        predicted = labels.clamp(min=0)
        accuracy.update(predicted, labels)
        matrix.update(predicted, labels)
        mean.update(labels[labels >= 0].double())
    counted = matrix.compute()
    return {
        "accuracy": float(accuracy.compute()),
        "mean": float(mean.compute()),
        "trace": int(counted.trace()),
        "counted": int(counted.sum()),
        "batches": loader.stats()["data_wait"]["count"],
        "seen": seen,
    }


if __name__ == "__main__":
    torch.set_num_threads(1)
    rank = int(os.environ.get("RANK", "0"))
    if "RANK" in os.environ:
        torch.distributed.init_process_group("gloo")
    write_result(OUT, rank, {way: evaluate(way) for way in ("ignore_index", "padding", "valid")})
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()
