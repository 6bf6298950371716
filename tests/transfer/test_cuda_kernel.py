"""The conversion kernel on a real GPU. Skipped without one (see conftest.py)."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import torch
from conversion_reference import IMAGENET, ODD, all_values, by_the_core, normalized_to

from fastload.transfer import convert
from fastload.transfer.convert import Converter
from fastload.transfer.kernels import PixelKernel, pixel_kernel
from fastload.transforms.compiler import compile_plan

pytestmark = [pytest.mark.cuda, pytest.mark.timeout(300)]

DTYPES = ["float32", "float16", "bfloat16"]
UNITS = {"float32": 2.0**-21, "float16": 2.0**-8, "bfloat16": 2.0**-5}  # of values up to 4
GUARD = 64  # numbers around the batch that nobody may write


def kernel_for(dtype: str) -> PixelKernel:
    kernel = pixel_kernel(torch.cuda.current_device(), getattr(torch, dtype))
    assert kernel is not None
    return kernel


def converter_to(dtype: str, numbers: Any = IMAGENET) -> Converter:
    return Converter(compile_plan(normalized_to(dtype, numbers)), torch.device("cuda", 0))


def placed(pixels: torch.Tensor, offset: int) -> torch.Tensor:
    """The same on the device, interleaved, so many bytes behind an aligned address."""
    flat = pixels.permute(0, 2, 3, 1).contiguous()
    memory = torch.empty(offset + flat.numel(), dtype=torch.uint8, device="cuda")
    memory[offset:].copy_(flat.flatten())
    return memory[offset:].view(flat.shape).permute(0, 3, 1, 2)


def guarded(shape: torch.Size, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """Memory that is 7 everywhere, and a channels_last batch within it."""
    count = shape.numel()
    memory = torch.full((2 * GUARD + count,), 7.0, dtype=dtype, device="cuda")
    n, c, h, w = shape
    return memory, memory[GUARD : GUARD + count].view(n, h, w, c).permute(0, 3, 1, 2)


@pytest.mark.parametrize("numbers", [IMAGENET, ODD], ids=["imagenet", "odd"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_every_value_is_the_cores_bit_for_bit(dtype: str, numbers: Any) -> None:
    pixels, converter = all_values(), converter_to(dtype, numbers)
    on_device = placed(pixels, 0)
    out = torch.empty_like(on_device, dtype=converter.dtype)
    assert kernel_for(dtype).takes(on_device, out)
    converter(on_device, out)
    assert torch.equal(out.cpu(), by_the_core(pixels, compile_plan(normalized_to(dtype, numbers))))


@pytest.mark.parametrize("offset", [0, 1, 2, 3, 4, 8, 12])
@pytest.mark.parametrize(
    "shape", [(1, 1, 1), (1, 1, 3), (2, 5, 7), (3, 33, 47), (5, 224, 224), (256, 64, 64)]
)
@pytest.mark.parametrize("dtype", DTYPES)
def test_odd_sizes_and_places(dtype: str, shape: tuple[int, int, int], offset: int) -> None:
    """What the kernel does not take is torch's, within a unit; nothing beside the batch is written."""
    n, h, w = shape
    pixels = torch.randint(256, (n, h, w, 3), dtype=torch.uint8).permute(0, 3, 1, 2)
    converter, on_device = converter_to(dtype), placed(pixels, offset)
    memory, out = guarded(pixels.shape, converter.dtype)
    assert kernel_for(dtype).takes(on_device, out) == (offset % 4 == 0)
    converter(on_device, out)
    wanted = by_the_core(pixels, compile_plan(normalized_to(dtype)))
    if offset % 4 == 0:
        assert torch.equal(out.cpu(), wanted)
    assert (out.cpu().double() - wanted.double()).abs().max() <= UNITS[dtype]
    assert (memory[:GUARD] == 7).all()
    assert (memory[GUARD + pixels.numel() :] == 7).all()


@pytest.mark.parametrize("dtype", DTYPES)
def test_torch_serves_where_there_is_no_kernel(dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    on_device, converter = placed(all_values(), 0), converter_to(dtype)
    ours, torchs = (torch.empty_like(on_device, dtype=converter.dtype) for _ in range(2))
    converter(on_device, ours)
    monkeypatch.setattr(convert, "pixel_kernel", lambda *_: None)
    converter(on_device, torchs)
    assert (ours.double() - torchs.double()).abs().max() <= UNITS[dtype]


def test_other_layouts_are_not_taken() -> None:
    pixels, kernel = placed(all_values(), 0), kernel_for("float32")
    whole = torch.empty_like(pixels, dtype=torch.float32)
    assert kernel.takes(pixels, whole)
    assert not kernel.takes(pixels.contiguous(), whole)
    assert not kernel.takes(pixels, whole.contiguous())
    assert not kernel.takes(pixels[..., 1:], whole[..., 1:])
    assert not kernel.takes(pixels.float(), whole)


def test_it_runs_on_the_current_stream_in_order() -> None:
    """Behind slow work of a stream of its own, whose result it reads."""
    pixels, converter = placed(all_values(), 0), converter_to("float32")
    wanted = torch.empty_like(pixels, dtype=torch.float32)
    converter(pixels, wanted)
    late, out = torch.zeros_like(pixels), torch.zeros_like(wanted)
    torch.cuda.synchronize()
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(50_000_000)
        late.copy_(pixels)
        converter(late, out)
    assert not stream.query()
    stream.synchronize()
    assert torch.equal(out, wanted)


def test_a_thread_that_has_not_called_cuda_may_call_it() -> None:
    pixels, converter = placed(all_values(), 0), converter_to("float32")
    wanted, out = (torch.empty_like(pixels, dtype=torch.float32) for _ in range(2))
    converter(pixels, wanted)
    assert kernel_for("float32").takes(pixels, out)
    thread = threading.Thread(target=converter, args=(pixels, out))
    thread.start()
    thread.join()
    torch.cuda.synchronize()
    assert torch.equal(out, wanted)


def test_a_graph_has_it() -> None:
    pixels, converter = placed(all_values(), 0), converter_to("float16")
    wanted, out = (torch.empty_like(pixels, dtype=torch.float16) for _ in range(2))
    converter(pixels, wanted)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        converter(pixels, out)
    out.zero_()
    graph.replay()
    assert torch.equal(out, wanted)
    assert torch.cuda.is_current_stream_capturing() is False


def test_an_empty_batch() -> None:
    pixels = torch.empty((0, 3, 8, 8), dtype=torch.uint8, device="cuda")
    pixels = pixels.contiguous(memory_format=torch.channels_last)
    out = torch.empty_like(pixels, dtype=torch.float32)
    assert kernel_for("float32").takes(pixels, out)
    assert kernel_for("float32")(pixels, out, [0.0] * 6)
    torch.cuda.synchronize()
