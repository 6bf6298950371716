"""Ultralytics' side of bench_detection.py: its YOLODataset in its InfiniteDataLoader, cache=False.

Colours (hsv) are off on both sides; otherwise the arguments are its defaults. The variant says what OpenCV
may do in the workers: "alone" is one thread, which Ultralytics sets itself; "threads" is OpenCV's own choice.
Its code is run and not taken over: it has a licence of its own (AGPL-3.0).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from detection.jobs import Job, endless

sys.path.append(str(Path(__file__).parents[2] / "tests" / "reference"))

__all__ = ["batches"]


def batches(job: Job, variant: str, workers: int, work: Path) -> Iterator[int]:
    """Endless: an item a batch."""
    os.environ.setdefault("YOLO_CONFIG_DIR", str(work / "settings"))
    os.environ["YOLO_OFFLINE"] = "1"
    import bare_torchvision  # noqa: F401
    import cv2
    from ultralytics.cfg import get_cfg
    from ultralytics.data import build_dataloader
    from ultralytics.data.dataset import YOLODataset
    from ultralytics.data.utils import check_det_dataset

    cv2.setNumThreads(0 if variant == "alone" else -1)
    settings: dict[str, Any] = {"hsv_h": 0.0, "hsv_s": 0.0, "hsv_v": 0.0, "imgsz": 640, "task": "detect"}
    hyp = get_cfg(overrides=settings)
    train = job.name == "mosaic"
    dataset = YOLODataset(
        img_path=str(work / "made" / "images"),
        imgsz=640,
        batch_size=job.batch,
        augment=train,
        hyp=hyp,
        rect=False,
        cache=False,
        stride=32,
        pad=0.0,
        task="detect",
        data=check_det_dataset(str(work / "made" / "data.yaml"), autodownload=False),
    )
    return endless(build_dataloader(dataset, job.batch, workers, shuffle=True, drop_last=True))
