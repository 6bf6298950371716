"""From pinned slots to tensors on the GPU: copies, conversion, and two ways to make tensors that can be kept.

    python benchmarks/bench_transfer.py

It needs a CUDA device, and prints three tables:

- the copy of one uint8 batch, from the ring (registered memory), from torch's pinned allocator, and from
  pageable memory;
- the conversion of a batch on the device to each dtype, by our own kernel and by ``torch.addcmul``, beside
  a copy; and how long the kernel takes to be compiled;
- a loop whose host runs ahead of the device, where a batch reaches the consumer in memory of the consumer's
  stream ("fresh", what the loader does) or in memory of the copy stream with ``record_stream``: milliseconds
  per step, and how much memory torch's allocator reserves.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any
from unittest import mock

import torch
from harness.machine import facts
from harness.measure import table

from fastload import transforms as T
from fastload.sample.delivery import image_and_label
from fastload.sample.layout import BatchLayout
from fastload.transfer import convert
from fastload.transfer.convert import Converter
from fastload.transfer.cuda import CudaGpu, find_gpu
from fastload.transfer.kernels import pixel_kernel
from fastload.transfer.pipeline import Ring, RingSlot
from fastload.transforms.compiler import compile_plan
from fastload.transforms.plan import Plan

NUMBERS = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
STEP_CYCLES = 5_000_000  # of the device's clock: some milliseconds
AHEAD_CYCLES = 500_000  # a quarter of a millisecond


def plan_for(dtype: str) -> Plan:
    """Normalisation to ``dtype``."""
    steps = [T.ToDtype("float32", scale=True), T.Normalize(*NUMBERS), T.ToDtype(dtype)]
    return compile_plan(T.Compose(steps))


def milliseconds(work: Callable[[], Any], repeats: int) -> list[float]:
    """Device time of ``work`` on the current stream, after two runs to warm up.

    It waits behind a kernel that does nothing: what the host takes to launch it is no time of the device's.
    """
    times = []
    for turn in range(repeats + 2):
        first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda._sleep(AHEAD_CYCLES)
        first.record()
        work()
        last.record()
        last.synchronize()
        if turn >= 2:
            times.append(first.elapsed_time(last))
    return times


def shown(times: list[float], nbytes: int) -> tuple[str, str]:
    """Median and range of milliseconds; GB/s by the median."""
    median = statistics.median(times)
    return f"{median:.3f} [{min(times):.3f}-{max(times):.3f}]", f"{nbytes / median / 1e6:.1f}"


def copies(slot: RingSlot, repeats: int) -> list[tuple[str, ...]]:
    """One row for each kind of host memory."""
    sources = {
        "ring (registered)": slot.bytes,
        "torch, pinned": torch.empty_like(slot.bytes, pin_memory=True),
        "pageable": torch.empty_like(slot.bytes),
    }
    to = torch.empty(len(slot.bytes), dtype=torch.uint8, device="cuda")
    rows = []
    for name, source in sources.items():
        source.fill_(1)
        times = milliseconds(lambda source=source: to.copy_(source, non_blocking=True), repeats)
        rows.append((name, *shown(times, to.nbytes)))
    return rows


def without_kernel(converter: Converter) -> Callable[..., None]:
    """The same conversion, by what serves where the kernel is not to be had."""

    def convert_by_torch(pixels: torch.Tensor, out: torch.Tensor) -> None:
        with mock.patch.object(convert, "pixel_kernel", return_value=None):
            converter(pixels, out)

    return convert_by_torch


def conversions(pixels: torch.Tensor, repeats: int) -> list[tuple[str, ...]]:
    """One row for each dtype and way; GB/s of reading and writing together.

    Several batches in turn, so that none is still in the device's cache.
    """
    batches = [pixels, *(torch.randint_like(pixels, 256) for _ in range(3))]
    rows = []
    for dtype in ("uint8", "float16", "bfloat16", "float32"):
        converter = Converter(compile_plan(None) if dtype == "uint8" else plan_for(dtype), pixels.device)
        outs = [torch.empty_like(pixels, dtype=converter.dtype) for _ in batches]
        pairs = itertools.cycle(zip(batches, outs, strict=True))
        nbytes = pixels.nbytes + outs[0].nbytes
        times = milliseconds(lambda c=converter, p=pairs: c(*next(p)), repeats)
        rows.append((dtype, *shown(times, nbytes)))
        if dtype != "uint8":
            torchs = without_kernel(converter)
            times = milliseconds(lambda c=torchs, p=pairs: c(*next(p)), repeats)
            rows.append((f"{dtype}, torch.addcmul", *shown(times, nbytes)))
    return rows


def seconds_to_compile(device: torch.device) -> float:
    """What the first batch waits for the kernel: wall time; NaN where there is no kernel."""
    assert device.index is not None
    begin = time.perf_counter()
    found = pixel_kernel(device.index, torch.float32)
    return time.perf_counter() - begin if found is not None else float("nan")


def images_in(memory: torch.Tensor, layout: BatchLayout) -> torch.Tensor:
    """The images of a batch in a slot's bytes."""
    images: torch.Tensor = layout.raw(lambda begin, end: memory[begin:end])["image"]
    return images


class Loop:
    """Steps that take longer on the device than on the host, on batches that come through a copy stream."""

    def __init__(self, layout: BatchLayout, slot: RingSlot, records_stream: bool) -> None:
        self._layout = layout
        self._slot = slot
        self._records = records_stream
        self._stream = torch.cuda.Stream()
        with torch.cuda.stream(self._stream):
            self._staging = torch.empty(len(slot.bytes), dtype=torch.uint8, device="cuda")
        self._converter = Converter(plan_for("float16"), self._staging.device)
        self._released = torch.cuda.Event()
        self._sums = torch.zeros((), device="cuda")

    def _converted(self) -> torch.Tensor:
        pixels = images_in(self._staging, self._layout)
        out = torch.empty_like(pixels, dtype=torch.float16)
        self._converter(pixels, out)
        return out

    def step(self) -> None:
        """A batch, and a step that reads it at its end."""
        consumer, copied = torch.cuda.current_stream(), torch.cuda.Event()
        with torch.cuda.stream(self._stream):
            self._stream.wait_event(self._released)
            self._staging.copy_(self._slot.bytes, non_blocking=True)
            images = self._converted() if self._records else None
            copied.record(self._stream)
        consumer.wait_event(copied)
        if images is None:
            images = self._converted()
            self._released.record(consumer)
        else:
            images.record_stream(consumer)
            self._released.record(self._stream)
        torch.cuda._sleep(STEP_CYCLES)
        self._sums += images[0, 0, 0, 0]

    def run(self, steps: int) -> tuple[float, float]:
        """Milliseconds a step, and MB that the allocator reserved for the loop."""
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        before = torch.cuda.memory_reserved()

        def work() -> None:
            for _ in range(steps):
                self.step()

        times = milliseconds(work, 1)
        torch.cuda.synchronize()
        return times[0] / steps, (torch.cuda.memory_reserved() - before) / 1e6


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--side", type=int, default=224)
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--steps", type=int, default=200)
    options = parser.parse_args(arguments)
    if not torch.cuda.is_available():
        raise SystemExit("This benchmark needs a CUDA device; there is none here.")
    gpu = find_gpu("cuda")
    assert isinstance(gpu, CudaGpu)
    sample = image_and_label(torch.uint8, (options.side, options.side))
    layout = sample.of(options.batch_size, [None, None])
    ring = Ring(gpu, layout, 1)
    slot = ring.lease(layout)
    assert slot is not None
    print(f"{torch.cuda.get_device_name()}; torch {torch.__version__}; {facts()['cpu']}")
    print(f"{options.batch_size} pictures of {options.side}x{options.side}, {len(slot.bytes) / 1e6:.1f} MB")
    print(table(("host memory", "copy, ms", "GB/s"), copies(slot, options.repeats)))
    pixels = images_in(slot.bytes.cuda(), layout)
    print(f"our own kernel: {seconds_to_compile(pixels.device):.3f} s to load and compile")
    print(table(("to", "conversion, ms", "GB/s"), conversions(pixels, options.repeats)))
    rows = []
    for name, records in (("consumer's stream (fresh)", False), ("copy stream, record_stream", True)):
        spent, reserved = Loop(layout, slot, records).run(options.steps)
        rows.append((name, f"{spent:.3f}", f"{reserved:.0f}"))
    print(table(("memory of the", "a step, ms", "reserved, MB"), rows))
    ring.close()


if __name__ == "__main__":
    sys.exit(main())
