"""The kernel's source as C++ on the CPU, thread after thread: the core's numbers, and nothing beside them."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conversion_reference import IMAGENET, ODD, all_values, by_the_core, normalized_to

from fastload.transfer.convert import Converter
from fastload.transfer.kernels import LOADS, SOURCE, THREADS, pixel_kernel
from fastload.transforms.compiler import compile_plan

# What CUDA has and C++ lacks. Halves are rounded by NumPy: g++ 11 knows none.
SHIM = """
#include <cstring>
#define __device__ static
#define __global__
#define __launch_bounds__(threads)
struct Index { unsigned x; };
static Index blockIdx, threadIdx;
static float __fmul_rn(float a, float b) { return a * b; }
static float __fadd_rn(float a, float b) { return a + b; }
static unsigned __float_as_uint(float value) { unsigned bits; std::memcpy(&bits, &value, 4); return bits; }
extern "C" { unsigned short (*half_of)(float); }
"""
RUN = """
extern "C" void run(unsigned blocks, const unsigned char* from, Number* to, Count count,
                    const float* numbers) {
  for (blockIdx.x = 0; blockIdx.x < blocks; ++blockIdx.x)
    for (threadIdx.x = 0; threadIdx.x < THREADS; ++threadIdx.x)
      convert(from, to, count, numbers[0], numbers[1], numbers[2], numbers[3], numbers[4], numbers[5]);
}
"""
KINDS = {"float32": 0, "float16": 1, "bfloat16": 2}
HALF_OF = ctypes.CFUNCTYPE(ctypes.c_ushort, ctypes.c_float)
GUARD = 64  # numbers behind the last one, which nobody may write


def half_of(value: float) -> int:
    return int(np.float32(value).astype(np.float16).view(np.uint16))


ROUNDED = HALF_OF(half_of)


@pytest.fixture(scope="module", params=list(KINDS))
def kernel(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Any]:
    """A dtype, and the kernel for it as a library."""
    compiler = shutil.which("g++") or shutil.which("c++")
    if compiler is None:
        pytest.skip("no C++ compiler")
    folder: Path = tmp_path_factory.mktemp("kernel")
    instruction = 'asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));'
    assert instruction in SOURCE
    source = SHIM + SOURCE.replace(instruction, "bits = half_of(value);") + RUN
    (folder / "kernel.cpp").write_text(source)
    macros = [f"-DKIND={KINDS[request.param]}", f"-DTHREADS={THREADS}", f"-DLOADS={LOADS}"]
    options = ["-O1", "-std=c++20", "-ffp-contract=off", "-fsanitize=alignment", "-fno-sanitize-recover"]
    command = [compiler, *options, *macros, "-shared", "-fPIC", "kernel.cpp", "-o", "kernel.so"]
    subprocess.run(command, cwd=folder, check=True)
    library = ctypes.CDLL(str(folder / "kernel.so"))
    ctypes.c_void_p.in_dll(library, "half_of").value = ctypes.cast(ROUNDED, ctypes.c_void_p).value
    return request.param, library


@pytest.mark.parametrize("numbers", [IMAGENET, ODD], ids=["imagenet", "odd"])
@pytest.mark.parametrize(("height", "width"), [(1, 1), (1, 3), (5, 7), (16, 16), (33, 47), (64, 64)])
def test_equals_store_bit_for_bit(kernel: tuple[str, Any], numbers: Any, height: int, width: int) -> None:
    dtype, library = kernel
    plan = compile_plan(normalized_to(dtype, numbers))
    generator = torch.Generator().manual_seed(height)
    pixels = torch.randint(256, (3, height, width, 3), generator=generator, dtype=torch.uint8)
    pixels = all_values() if (height, width) == (16, 16) else pixels.permute(0, 3, 1, 2)
    wanted = by_the_core(pixels, plan).permute(0, 2, 3, 1).contiguous().flatten()
    out = torch.full((wanted.numel() + GUARD,), 7.0, dtype=wanted.dtype)
    constants = torch.tensor(Converter(plan, torch.device("cpu"))._constants)
    flat = pixels.permute(0, 2, 3, 1).contiguous().flatten()
    blocks = -(-flat.numel() // (4 * THREADS * LOADS))
    pointers = (ctypes.c_void_p(tensor.data_ptr()) for tensor in (flat, out))
    library.run(blocks, *pointers, ctypes.c_ulonglong(flat.numel()), ctypes.c_void_p(constants.data_ptr()))
    assert torch.equal(out[: wanted.numel()], wanted)
    assert (out[wanted.numel() :] == 7.0).all()


def test_it_takes_more_than_one_block() -> None:
    """Else the largest size above would not try what blocks add."""
    assert 2 * 4 * THREADS * LOADS < 3 * 3 * 64 * 64
    assert THREADS % 3 == 0


def test_without_cuda_there_is_none() -> None:
    if torch.version.cuda:
        pytest.skip("this torch has CUDA")
    assert pixel_kernel(0, torch.float32) is None
