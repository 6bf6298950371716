"""The registry of operations: a row for each, in the order of the core.

A file here has an operation's spec (a frozen dataclass with torchvision's name, arguments and defaults,
checked when made), how it is compiled, and how torchvision's object of that meaning is recognised. Specs
hold no pixel code: the core's side of it is in csrc/core/transform.
"""

from __future__ import annotations

from fastload.transforms.operations import (
    center_crop,
    grayscale,
    normalize,
    random_crop,
    random_grayscale,
    random_horizontal_flip,
    random_invert,
    random_resized_crop,
    random_solarize,
    resize,
    to_dtype,
)
from fastload.transforms.operations.operation import Operation

__all__ = ["OF_SPEC", "OPERATIONS", "SPECS"]

OPERATIONS: tuple[Operation, ...] = (
    random_resized_crop.OPERATION,
    resize.OPERATION,
    center_crop.OPERATION,
    random_crop.OPERATION,
    random_horizontal_flip.OPERATION,
    grayscale.OPERATION,
    random_grayscale.OPERATION,
    random_invert.OPERATION,
    random_solarize.OPERATION,
    to_dtype.OPERATION,
    normalize.OPERATION,
)
OF_SPEC = {operation.spec: operation for operation in OPERATIONS}
SPECS = tuple(OF_SPEC)
