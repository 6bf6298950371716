"""Conversion on the device equals the core's Store: all values, channels, dtypes and layouts."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from conversion_reference import IMAGENET, ODD, all_values, by_the_core, normalized_to

from fastload import transforms as T
from fastload.transfer.convert import Converter, crosses_as
from fastload.transforms.compiler import compile_plan
from fastload.transforms.plan import Plan

TRANSFORMS: list[Any] = [
    None,
    T.ToDtype("float16"),
    *(T.ToDtype(dtype, scale=True) for dtype in ("float16", "bfloat16", "float32")),
    *(T.Normalize(*numbers) for numbers in (IMAGENET, ODD)),
    *(normalized_to(dtype) for dtype in ("float16", "bfloat16")),
    T.Compose([T.ToDtype("float32"), T.Normalize((120.0, 110.0, 100.0), (60.0, 61.0, 62.0))]),
]


def unit(plan: Plan, values: torch.Tensor) -> torch.Tensor:
    """What a result may differ by: one unit of its dtype, or store.h's bound where that is more."""
    digits = {"uint8": 0, "float16": 10, "bfloat16": 7, "float32": 23}[plan.dtype]
    own = torch.exp2(values.double().abs().clamp(min=2.0**-14).log2().floor() - digits)
    terms = [(1.5 + abs(m)) / abs(s) for m, s in zip(plan.mean, plan.std, strict=True)]
    single = 2.0**-23 * torch.tensor(terms).double().view(1, 3, 1, 1)
    return torch.maximum(own, single)


@pytest.mark.parametrize("contiguous", [True, False])
@pytest.mark.parametrize("transform", TRANSFORMS, ids=str)
def test_equals_store_within_one_unit(transform: Any, contiguous: bool) -> None:
    plan, pixels = compile_plan(transform), all_values()
    wanted = by_the_core(pixels, plan)
    converter = Converter(plan, torch.device("cpu"))
    assert converter.dtype == wanted.dtype
    out = torch.empty_like(
        wanted, memory_format=torch.contiguous_format if contiguous else torch.channels_last
    )
    converter(pixels, out)
    if plan.dtype == "uint8" or not (plan.scale or plan.normalize):
        assert torch.equal(out, wanted)
    assert ((out.double() - wanted.double()).abs() <= unit(plan, wanted)).all()
    assert out.is_contiguous() == contiguous


@pytest.mark.parametrize("transform", TRANSFORMS[2:], ids=str)
def test_from_unit_is_the_same_line(transform: Any) -> None:
    """After a colour jitter pixels are float32 in [0, 1]; the product has one more rounding."""
    plan, pixels = compile_plan(transform), all_values()
    wanted = by_the_core(pixels, plan)
    out = torch.empty_like(wanted)
    Converter(plan, torch.device("cpu"), from_unit=True)(pixels.double().div(255).float(), out)
    assert ((out.double() - wanted.double()).abs() <= 2 * unit(plan, wanted)).all()


def test_what_crosses_the_bus_is_uint8() -> None:
    plan = crosses_as(compile_plan(T.Compose([T.RandomResizedCrop(8), T.Normalize(*IMAGENET)])))
    assert (plan.dtype, plan.scale, plan.normalize) == ("uint8", False, False)
    assert [use.name for use in plan.geometry] == ["random_resized_crop"]


def test_callables_get_the_dtype_they_were_promised() -> None:
    transform = T.Compose([T.RandomResizedCrop(8), T.Normalize(*IMAGENET), torch.abs])
    assert crosses_as(compile_plan(transform)).dtype == "float32"
