"""A CUDA kernel that torch lacks: interleaved uint8 pixels to normalised floats, at memory speed.

``torch.addcmul`` broadcasts the six constants, so each of its threads reads a byte and stores a number. Here
a thread reads 4 bytes at once and stores 4 numbers at once. NVRTC, which comes with torch, compiles the
source when the first batch is converted; no compiler need be installed. torch.cuda has no interface for this,
so the driver is called directly, through the library that torch itself uses.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence
from functools import cache
from typing import Any

import torch

THREADS = 384  # per block: a multiple of 3, so that a thread always begins at the same channel
LOADS = 4  # per thread, all in flight before the first result is stored
_KINDS = {torch.float32: 0, torch.float16: 1, torch.bfloat16: 2}

# Product and sum are each rounded, as in the core's Store: the numbers are equal, bit for bit.
SOURCE = r"""
typedef unsigned long long Count;

#if KIND == 0
typedef float Number;
__device__ Number rounded(float value) { return value; }
#elif KIND == 1
typedef unsigned short Number;
__device__ Number rounded(float value) {
  Number bits;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
  return bits;
}
#else
typedef unsigned short Number;
__device__ Number rounded(float value) {  // to nearest even, as __float2bfloat16_rn; values are finite
  unsigned bits = __float_as_uint(value);
  return (Number)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}
#endif

struct alignas(4) Pixels { unsigned char at[4]; };
struct alignas(4 * sizeof(Number)) Numbers { Number at[4]; };

__device__ Number line(unsigned char pixel, float scale, float bias) {
  return rounded(__fadd_rn(__fmul_rn((float)pixel, scale), bias));
}

__device__ float of(unsigned channel, float first, float second, float third) {
  return channel == 0 ? first : channel == 1 ? second : third;
}

extern "C" __global__ void __launch_bounds__(THREADS) convert(
    const unsigned char* from, Number* to, Count count, float scale0, float scale1, float scale2,
    float bias0, float bias1, float bias2) {
  const unsigned first = threadIdx.x % 3;  // 4 bytes further is one channel further
  float scale[3], bias[3];
#pragma unroll
  for (unsigned i = 0; i < 3; ++i) {
    scale[i] = of((first + i) % 3, scale0, scale1, scale2);
    bias[i] = of((first + i) % 3, bias0, bias1, bias2);
  }
  const Count whole = count / 4;
  const Count begin = (Count)blockIdx.x * (THREADS * LOADS) + threadIdx.x;
  Pixels pixels[LOADS];
#pragma unroll
  for (unsigned i = 0; i < LOADS; ++i) {
    const Count place = begin + i * THREADS;
    if (place < whole) pixels[i] = ((const Pixels*)from)[place];
  }
#pragma unroll
  for (unsigned i = 0; i < LOADS; ++i) {
    const Count place = begin + i * THREADS;
    if (place >= whole) break;
    Numbers numbers;
#pragma unroll
    for (unsigned j = 0; j < 4; ++j) numbers.at[j] = line(pixels[i].at[j], scale[j % 3], bias[j % 3]);
    ((Numbers*)to)[place] = numbers;
  }
  if (blockIdx.x == 0 && threadIdx.x < count % 4) {
    const Count place = whole * 4 + threadIdx.x;
    const unsigned channel = place % 3;
    to[place] = line(from[place], of(channel, scale0, scale1, scale2), of(channel, bias0, bias1, bias2));
  }
}
"""


class PixelKernel:
    """The kernel on one device for one dtype.

    Args:
        library: NVRTC and the driver.
        device: an index.
        dtype: float32, float16 or bfloat16.

    Raises:
        RuntimeError: it cannot be compiled or loaded.
    """

    def __init__(self, library: Any, device: int, dtype: torch.dtype) -> None:
        self._library = library
        self._device = torch.device("cuda", device)
        self._align = 4 * dtype.itemsize
        self._context = ctypes.c_void_p()
        self._function = ctypes.c_void_p()
        self._check(library.cuDevicePrimaryCtxRetain(ctypes.byref(self._context), device))
        code = _compiled(library, torch.cuda.get_device_capability(device), _KINDS[dtype])
        module = ctypes.c_void_p()
        self._check(library.cuCtxPushCurrent_v2(self._context))
        try:
            self._check(library.cuModuleLoadData(ctypes.byref(module), code))
            self._check(library.cuModuleGetFunction(ctypes.byref(self._function), module, b"convert"))
        finally:
            self._pop()

    @staticmethod
    def _check(status: int) -> None:
        if status != 0:
            raise RuntimeError(f"CUDA driver error {status}")

    def _pop(self) -> None:
        self._library.cuCtxPopCurrent_v2(ctypes.byref(ctypes.c_void_p()))

    def takes(self, pixels: torch.Tensor, out: torch.Tensor) -> bool:
        """Return whether both have the kernel's layout: RGB interleaved, without gaps, at even addresses."""
        return (
            pixels.dtype == torch.uint8
            and pixels.shape == out.shape
            and pixels.dim() == 4
            and pixels.shape[1] == 3
            and pixels.permute(0, 2, 3, 1).is_contiguous()
            and out.permute(0, 2, 3, 1).is_contiguous()
            and pixels.data_ptr() % 4 == 0
            and out.data_ptr() % self._align == 0
            and pixels.device == out.device == self._device
        )

    def __call__(self, pixels: torch.Tensor, out: torch.Tensor, constants: Sequence[float]) -> bool:
        """Write ``pixels`` into ``out`` on the current stream; return False if the driver refuses.

        Args:
            pixels: tensors that :meth:`takes` accepts.
            out: likewise.
            constants: three factors and three summands.
        """
        count = pixels.numel()
        if count == 0:
            return True
        values = [
            ctypes.c_void_p(pixels.data_ptr()),
            ctypes.c_void_p(out.data_ptr()),
            ctypes.c_ulonglong(count),
            *map(ctypes.c_float, constants),
        ]
        arguments = (ctypes.c_void_p * len(values))(*(ctypes.addressof(value) for value in values))
        blocks = -(-count // (4 * THREADS * LOADS))
        stream = ctypes.c_void_p(torch.cuda.current_stream(self._device).cuda_stream)
        if self._library.cuCtxPushCurrent_v2(self._context) != 0:
            return False
        try:
            launched = self._library.cuLaunchKernel(
                self._function, blocks, 1, 1, THREADS, 1, 1, 0, stream, arguments, None
            )
        finally:
            self._pop()
        return bool(launched == 0)


def _compiled(library: Any, capability: tuple[int, int], kind: int) -> Any:
    """Compile the source to machine code."""
    major, minor = capability
    options = [f"--gpu-architecture=sm_{major}{minor}", f"-DKIND={kind}"]
    options += [f"-DTHREADS={THREADS}", f"-DLOADS={LOADS}"]
    program = ctypes.c_void_p()
    PixelKernel._check(
        library.nvrtcCreateProgram(ctypes.byref(program), SOURCE.encode(), b"convert.cu", 0, None, None)
    )
    try:
        texts = (ctypes.c_char_p * len(options))(*(option.encode() for option in options))
        PixelKernel._check(library.nvrtcCompileProgram(program, len(options), texts))
        size = ctypes.c_size_t()
        PixelKernel._check(library.nvrtcGetCUBINSize(program, ctypes.byref(size)))
        code = ctypes.create_string_buffer(size.value)
        PixelKernel._check(library.nvrtcGetCUBIN(program, code))
        return code
    finally:
        library.nvrtcDestroyProgram(ctypes.byref(program))


@cache
def pixel_kernel(device: int, dtype: torch.dtype) -> PixelKernel | None:
    """Return the kernel for a device and a dtype; None if it is unavailable, which is no error."""
    if dtype not in _KINDS or not torch.version.cuda:
        return None
    try:
        # This library of torch's is linked to both, whatever their names and places.
        library = ctypes.CDLL(os.path.join(os.path.dirname(torch.__file__), "lib", "libcaffe2_nvrtc.so"))
        return PixelKernel(library, device, dtype)
    except (OSError, AttributeError, RuntimeError):
        return None
