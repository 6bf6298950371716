"""Pixels to the batch's dtype and layout on the device, and the device memory that ``next()`` returns."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np
import torch

from fastload.transfer.kernels import pixel_kernel
from fastload.transfer.streams import Gpu
from fastload.transforms.plan import Plan

# ---- Pixels to the batch's dtype and layout, in one pass over memory, as in the core ----


def crosses_as(plan: Plan) -> Plan:
    """Return the plan for the host: the same pixels, left in uint8; also of rows of patches or tiles.

    A plan with a tail of Python callables stays as it is: they were promised the plan's dtype. So does one
    that erases: its fill is in the plan's units.
    """
    if plan.tail or plan.erase is not None:
        return plan
    views = tuple((name, crosses_as(view)) for name, view in plan.views)
    vision = None if plan.vision is None else plan.vision.in_bytes()
    return replace(plan, dtype="uint8", scale=False, normalize=False, views=views, vision=vision)


class Converter:
    """``x * scale + bias`` for each channel in float32, rounded to the plan's dtype; see StoreSpec.

    On CUDA our own kernel does it (``kernels.py``), with the core's numbers bit for bit. The rest is done by
    ``torch.addcmul``, which is one kernel too, even with operands of several dtypes: TensorIterator casts
    each element in registers as it is loaded and stored, and broadcasts the six constants. Its sum may be
    fused with the product (as in torch 2.11: one rounding instead of the core's two), so float32 results
    differ by at most the bound in csrc/core/transform/store.h, and 16-bit ones by at most one unit.

    Args:
        plan: the images' plan.
        device: the device.
        from_unit: the input is float32 in [0, 1], not uint8.
    """

    def __init__(self, plan: Plan, device: torch.device, from_unit: bool = False) -> None:
        self.dtype: torch.dtype = getattr(torch, plan.dtype)
        finished = crosses_as(plan) is plan
        self.copies = finished or not (plan.scale or plan.normalize or from_unit)
        scale, bias = _constants(plan, from_unit)
        #: Whether 0 stays 0.
        self.keeps_zero = self.copies or not bias.any()
        self._device = device
        self._constants = [*scale.ravel().tolist(), *bias.ravel().tolist()]
        # Normal tensors even if the first batch is requested in inference mode.
        with torch.inference_mode(False):
            self._scale = torch.from_numpy(scale).to(device)
            self._bias = torch.from_numpy(bias).to(device)

    def __call__(self, pixels: torch.Tensor, out: torch.Tensor) -> None:
        """Write ``pixels`` (n, channels, h, w) into ``out`` of that shape and of ``dtype``, in any layout."""
        if self.copies:
            out.copy_(pixels)  # the same numbers, cast if requested
        elif not self._by_kernel(pixels, out):
            torch.addcmul(self._bias, pixels, self._scale, out=out)

    def _by_kernel(self, pixels: torch.Tensor, out: torch.Tensor) -> bool:
        """Run our own kernel; return whether it did."""
        if self._device.type != "cuda" or self._device.index is None:
            return False
        kernel = pixel_kernel(self._device.index, self.dtype)
        return kernel is not None and kernel.takes(pixels, out) and kernel(pixels, out, self._constants)


def _constants(plan: Plan, from_unit: bool) -> tuple[np.ndarray, np.ndarray]:  # type: ignore[type-arg]
    """Return scale and bias, (1, channels, 1, 1) float32, each rounded once from double, as in Store."""
    mean = np.array(plan.mean if plan.normalize else [0.0] * len(plan.mean))
    std = np.array(plan.std if plan.normalize else [1.0] * len(plan.std))
    span = 255.0 if plan.scale or plan.normalize else 1.0
    unit = 255.0 if from_unit else 1.0
    scale, bias = unit / (span * std), -mean / std
    return scale.astype(np.float32).reshape(1, -1, 1, 1), bias.astype(np.float32).reshape(1, -1, 1, 1)


# ---- The device memory that ``next()`` returns: fresh every time, or reused on request ----
# Fresh memory comes from torch's caching allocator on the consumer's own stream, and is written there. So
# it is an ordinary tensor: freed, its block goes to later work of that stream, in order; no
# ``record_stream`` is needed, and no block waits for an event of another stream before it can be used
# again. It costs no pass over memory, because the conversion from the device slot must write its result
# somewhere.

#: The buffers that are held for each ``Device.memory``.
BUFFERS = {"fresh": 0, "reuse": 1, "poison": 2}
#: Shape and dtype of a tensor.
Shape: TypeAlias = "tuple[tuple[int, ...], torch.dtype]"


def bytes_of(shapes: Iterable[Shape]) -> int:
    """Return the bytes of tensors."""
    return sum(math.prod(shape) * dtype.itemsize for shape, dtype in shapes)


class Outputs:
    """Device memory for the consumer's batches.

    * ``fresh``: safe for as long as the user keeps them.
    * ``reuse``: always the same memory, valid until the next ``next()``: its addresses can be a CUDA graph's
      inputs.
    * ``poison``: like ``reuse``, with two buffers in turn; what lay in the one that is no longer valid is
      filled with NaN, the largest unsigned or impossible signed numbers, or False, so that a program that
      keeps tensors fails in its tests.

    Args:
        gpu: the device.
        mode: one of the three.
        most: the tensors of a full batch.
    """

    def __init__(self, gpu: Gpu, mode: str, most: Sequence[Shape]) -> None:
        self._gpu = gpu
        self._turn = 0
        self._stream: Any = None  # that of the consumer's work on the last batch
        with torch.inference_mode(False):  # else they could not be written outside it
            self._buffers = [[gpu.empty(*shape) for shape in most] for _ in range(BUFFERS[mode])]
        self._lent: list[list[torch.Tensor]] = [[] for _ in self._buffers]

    def take(self, shapes: Iterable[Shape]) -> list[torch.Tensor]:
        """Return tensors to write on the current stream: of a full batch, or shorter ones."""
        if not self._buffers:
            return [self._gpu.empty(*shape) for shape in shapes]
        self._follow(self._gpu.current_stream())
        if len(self._buffers) > 1:
            self._poison(self._lent[self._turn])
            self._turn = 1 - self._turn
        return [
            whole[: shape[0]] for whole, (shape, _) in zip(self._buffers[self._turn], shapes, strict=True)
        ]

    def lend(self, values: Iterable[Any]) -> None:
        """Note a batch's values, which lie in the tensors of the last :meth:`take`."""
        if len(self._buffers) > 1:
            self._lent[self._turn] = [value for value in values if isinstance(value, torch.Tensor)]

    def _follow(self, stream: Any) -> None:
        """Follow the consumer to another stream: its work on the last batch precedes our writing here."""
        if self._stream is not None and self._stream != stream:
            event = self._gpu.new_event()
            self._gpu.record(event, self._stream)
            self._gpu.wait(stream, event)
        self._stream = stream

    def _poison(self, lent: Sequence[torch.Tensor]) -> None:
        def kernels() -> None:
            for tensor in lent:
                _poison(tensor)

        self._gpu.launch(kernels)


def _poison(tensor: torch.Tensor) -> None:
    """Fill with what no batch has."""
    dtype = tensor.dtype
    if dtype.is_floating_point or dtype.is_complex:
        tensor.fill_(math.nan)
    elif dtype is torch.bool:
        tensor.fill_(False)
    elif dtype.is_signed:
        tensor.fill_(torch.iinfo(dtype).min // 2)
    else:  # all ones; as signed numbers, because torch has few kernels for others of more than 8 bits
        tensor.view(getattr(torch, f"int{8 * dtype.itemsize}")).fill_(-1)
