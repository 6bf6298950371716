"""Examinations whose numbers are given."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from fastload.diagnose.examination import Examination
from fastload.diagnose.facts import Loop, Stage
from fastload.diagnose.storage import Storage
from fastload.diagnose.trial import Budget, Trial

__all__ = ["BASE", "STEP", "STORAGE", "case", "loop"]

BASE = Trial(200.0, 0.01, 1.0, 2, {"shard": 0.0, "decode": 0.008, "transform": 0.002})
STORAGE = Storage(80.0, 400.0, 1e4, 0.01, 8e6, False, "32 threads read")
STEP = Stage("step", 400.0, 0.0, "Given.")


def case(**changes: Any) -> Examination:
    subject: Any = SimpleNamespace(threads=2, batch_size=1, arguments=SimpleNamespace(shuffle=True))
    made = Examination(Budget(60), Path(), 2.0, 2, 2.0, BASE, None, STEP, subject, Path(), (), None, 0.0)
    return replace(made, **changes)


def loop(wait: float, step: float, **notes: object) -> Loop:
    return Loop("a loader", 10, np.full(20, wait), np.full(20, step), 2, 2.0, 0.1, 0.1, notes=notes)
