"""Pixels to the batch's dtype and layout on the device: one pass over memory, the same line as the core's."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch

from fastload.transfer.kernels import pixel_kernel
from fastload.transforms.plan import Plan

__all__ = ["Converter", "crosses_as"]


def crosses_as(plan: Plan) -> Plan:
    """The plan for the host: the same pixels, left in uint8.

    A plan with a tail of Python callables stays as it is: they were promised the plan's dtype. So does one
    that erases: what it fills in is in the plan's units.
    """
    if plan.tail or plan.erase is not None:
        return plan
    views = tuple((name, crosses_as(view)) for name, view in plan.views)
    return replace(plan, dtype="uint8", scale=False, normalize=False, views=views)


class Converter:
    """``x * scale + bias`` for each channel in float32, rounded to the plan's dtype; see StoreSpec.

    On CUDA a kernel of our own does it (``kernels.py``), with the core's numbers bit for bit. What that does
    not take, ``torch.addcmul`` does, which with operands of several dtypes is one kernel, too: TensorIterator
    casts each element in registers as it is loaded and stored, and broadcasts the six constants. Its sum may
    be fused with the product (torch 2.11's is: one rounding instead of the core's two), so float32 results
    differ by at most the bound that csrc/core/transform/store.h states, and 16-bit ones by at most one unit.

    Args:
        plan: what the images become.
        device: where.
        from_unit: the input is float32 in [0, 1], not uint8.
    """

    def __init__(self, plan: Plan, device: torch.device, from_unit: bool = False) -> None:
        self.dtype: torch.dtype = getattr(torch, plan.dtype)
        finished = crosses_as(plan) is plan
        self.copies = finished or not (plan.scale or plan.normalize or from_unit)
        scale, bias = _constants(plan, from_unit)
        #: Whether what was 0 is 0 afterwards.
        self.keeps_zero = self.copies or not bias.any()
        self._device = device
        self._constants = [*scale.ravel().tolist(), *bias.ravel().tolist()]
        # Normal tensors also when the first batch is asked for in inference mode.
        with torch.inference_mode(False):
            self._scale = torch.from_numpy(scale).to(device)
            self._bias = torch.from_numpy(bias).to(device)

    def __call__(self, pixels: torch.Tensor, out: torch.Tensor) -> None:
        """Write ``pixels`` (n, channels, h, w) into ``out`` of that shape and of ``dtype``, in any layout."""
        if self.copies:
            out.copy_(pixels)  # the same numbers, cast if asked for
        elif not self._by_kernel(pixels, out):
            torch.addcmul(self._bias, pixels, self._scale, out=out)

    def _by_kernel(self, pixels: torch.Tensor, out: torch.Tensor) -> bool:
        """Whether our own kernel has done it."""
        if self._device.type != "cuda" or self._device.index is None:
            return False
        kernel = pixel_kernel(self._device.index, self.dtype)
        return kernel is not None and kernel.takes(pixels, out) and kernel(pixels, out, self._constants)


def _constants(plan: Plan, from_unit: bool) -> tuple[np.ndarray, np.ndarray]:  # type: ignore[type-arg]
    """scale and bias, (1, channels, 1, 1) float32, each rounded once from double, as Store does."""
    mean = np.array(plan.mean if plan.normalize else (0.0, 0.0, 0.0))
    std = np.array(plan.std if plan.normalize else (1.0, 1.0, 1.0))
    span = 255.0 if plan.scale or plan.normalize else 1.0
    unit = 255.0 if from_unit else 1.0
    scale, bias = unit / (span * std), -mean / std
    return scale.astype(np.float32).reshape(1, -1, 1, 1), bias.astype(np.float32).reshape(1, -1, 1, 1)
