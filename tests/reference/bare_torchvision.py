"""Makes torchvision importable beside a torch that its compiled operators do not fit; none of them is used.

torchvision's wheels are built for one build of torch. Where the library does not load, ``import torchvision``
fails at the first operator that it describes further; so these are declared here. Import this before it.
"""

from __future__ import annotations

import contextlib
import importlib.util
from pathlib import Path

import torch

_DECLARED = (
    "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
)


def _loads() -> bool:
    found = importlib.util.find_spec("torchvision")
    if found is None or found.origin is None:
        return True  # nothing to help
    for library in Path(found.origin).parent.glob("_C*.so"):
        with contextlib.suppress(OSError):
            torch.ops.load_library(str(library))
            return True
    return False


if not _loads():
    _library = torch.library.Library("torchvision", "DEF")
    for schema in _DECLARED:
        _library.define(schema)
