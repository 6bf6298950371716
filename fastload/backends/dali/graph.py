"""One DALI pipeline (records and windows in, pixels out), its memory budget, the native decoder's share."""

from __future__ import annotations

import importlib
import importlib.util
from collections import deque
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import torch
from torch.utils.dlpack import from_dlpack

from fastload._native import _C
from fastload.backends.options import Options
from fastload.errors import LibraryMissing
from fastload.extras import words
from fastload.sample.layout import SampleLayout
from fastload.transfer.convert import BUFFERS
from fastload.transforms.plan import Plan

# ---- Finding NVIDIA DALI ----------------------------------------------------------------------------


def find_dali() -> None:
    """Check that DALI is installed, without importing it.

    Raises:
        LibraryMissing: it is not installed; the message has the command that installs it.
    """
    try:
        spec = importlib.util.find_spec("nvidia.dali")
    except ModuleNotFoundError:  # not even the namespace "nvidia"
        spec = None
    if spec is None:
        missing = words("nvidia.dali", 'backend="dali"')
        more = "for CUDA 13: fastload[dali13]; it exists for 64-bit Linux"
        raise LibraryMissing(f'{missing} ({more}). Or use backend="native".', name="nvidia.dali")


def load_dali() -> tuple[ModuleType, ModuleType, Any]:
    """Import DALI's ``fn``, ``types`` and ``Pipeline``.

    Raises:
        LibraryMissing: it is not installed, or cannot be loaded.
    """
    find_dali()
    fn = importlib.import_module("nvidia.dali.fn")
    types = importlib.import_module("nvidia.dali.types")
    return fn, types, importlib.import_module("nvidia.dali.pipeline").Pipeline


def release_unused() -> None:
    """Let DALI's memory pools return unused memory to the system and the device."""
    importlib.import_module("nvidia.dali.backend").ReleaseUnusedMemory()


# ---- The pipeline -----------------------------------------------------------------------------------
# The graph is ``decoders.image_slice`` (the rectangle that the window needs, EXIF orientation ignored,
# fancy upsampling), then ``resize`` (antialiased, mirrored if the window is), then, for float pixels on
# the host, ``crop_mirror_normalize``. Batches may have any number of samples up to the pipeline's.

_INPUTS = ("start", "shape", "roi_start", "roi_end")
_PADDING = 16 << 20  # bytes of device memory that DALI's decoder reserves for each thread, its default


@dataclass(frozen=True)
class GraphSpec:
    """The settings that a pipeline is built for. Its pixels are (n, height, width, 3) of ``dtype``."""

    batch_size: int  # samples; larger batches cost another pipeline
    height: int
    width: int
    bicubic: bool
    threads: int
    device: int | None  # index of the GPU; None: DALI's CPU decoder
    dtype: str = "uint8"  # or "float16", "float32": (x - mean) / std, for pixels in [0, 255]
    mean: tuple[float, ...] = (0.0, 0.0, 0.0)
    std: tuple[float, ...] = (1.0, 1.0, 1.0)
    padding: int = _PADDING

    @classmethod
    def of(cls, plan: Plan, batch_size: int, size: tuple[int, int], threads: int) -> GraphSpec:
        """Return the settings for host batches in the plan's dtype; bfloat16, unknown to DALI, is float32."""
        span = 255.0 if plan.scale or plan.normalize else 1.0
        return cls(
            batch_size,
            *size,
            plan.filter == "bicubic",
            threads,
            None,
            "float32" if plan.dtype == "bfloat16" else plan.dtype,
            tuple(value * span for value in plan.mean) if plan.normalize else (0.0, 0.0, 0.0),
            tuple(value * span for value in plan.std) if plan.normalize else (span, span, span),
        )


class Graph:
    """A runner of batches, in order; it builds the pipeline for the first, and again after :meth:`drop`."""

    def __init__(self, spec: GraphSpec) -> None:
        self._spec = spec
        self._fn, self._types, self._make = load_dali()
        self._pipeline: Any = None
        self._most = spec.batch_size  # samples of a batch that the pipeline takes
        self._waiting: deque[_C.RecordBatch] = deque()
        self._running = 0
        self._ready: deque[torch.Tensor | RuntimeError] = deque()  # of a pipeline that became too small
        self.built = 0

    def add(self, records: _C.RecordBatch) -> None:
        """Add a batch to run after those before; it begins with :meth:`start`."""
        self._waiting.append(records)

    def start(self) -> None:
        """Run the batches that were added; return at once.

        DALI's first call runs as many batches as its queue is deep: the number that was added now.
        """
        if not self._waiting:
            return
        self._make_room(max(len(records) for records in self._waiting))
        if self._pipeline is None:
            self._pipeline = self._build(len(self._waiting))
            while self._waiting:
                self._feed(self._waiting.popleft())
            self._pipeline.schedule_run()
        while self._waiting:
            self._feed(self._waiting.popleft())
            self._pipeline.schedule_run()

    def outputs(self) -> torch.Tensor:
        """Return the pixels of the oldest running batch, in the tensor's own memory; blocks.

        Raises:
            RuntimeError: DALI failed, and all its batches are lost: call :meth:`drop`.
        """
        outcome = self._ready.popleft() if self._ready else self._outcome()
        if isinstance(outcome, RuntimeError):
            raise outcome
        return outcome

    def _outcome(self) -> torch.Tensor | RuntimeError:
        self._running -= 1
        try:
            outputs = self._pipeline.share_outputs()
            pixels: torch.Tensor = from_dlpack(outputs[0].as_tensor())
            self._pipeline.release_outputs()
        except RuntimeError as error:
            return error
        return pixels

    def _make_room(self, samples: int) -> None:
        """Replace the pipeline if a batch is larger than any before, as a user's batch_sampler allows."""
        if samples <= self._most:
            return
        self._ready.extend([self._outcome() for _ in range(self._running)])
        self._pipeline = None
        self._most = samples

    def drop(self) -> None:
        """Forget the pipeline and all its batches."""
        self._waiting.clear()
        self._ready.clear()
        self._running = 0
        self._pipeline = None

    def close(self) -> None:
        """Free what DALI holds. Idempotent."""
        if self._pipeline is not None:
            self.drop()
            release_unused()

    def _feed(self, records: _C.RecordBatch) -> None:
        self._pipeline.feed_input("records", records.records)
        for name in _INPUTS:
            self._pipeline.feed_input(name, getattr(records, name))
        self._running += 1

    def _build(self, depth: int) -> Any:
        spec = self._spec
        pipeline = self._make(
            batch_size=self._most,
            num_threads=spec.threads,
            device_id=spec.device,
            prefetch_queue_depth=depth,
            exec_dynamic=True,  # each output has its own memory, which tensors may keep
        )
        with pipeline:
            pipeline.set_outputs(self._pixels())
        pipeline.build()
        self.built += 1
        return pipeline

    def _pixels(self) -> Any:
        fn, types, spec = self._fn, self._types, self._spec
        kinds = dict.fromkeys(_INPUTS, types.FLOAT) | {"start": types.INT32, "shape": types.INT32}
        windows = {
            name: fn.external_source(name=name, device="cpu", dtype=kind, ndim=1, batch=True)
            for name, kind in kinds.items()
        }
        # The records are views: the back end keeps them until the batch has come.
        encoded = fn.external_source(
            name="records", device="cpu", dtype=types.UINT8, ndim=1, batch=True, no_copy=True
        )
        # affine: DALI would tie its threads to cores of its choice, the same for every rank.
        on_gpu = {} if spec.device is None else {"device_memory_padding": spec.padding, "affine": False}
        pictures = fn.decoders.image_slice(
            encoded,
            device="cpu" if spec.device is None else "mixed",
            output_type=types.RGB,
            start=windows["start"],
            shape=windows["shape"],
            axes=[0, 1],
            adjust_orientation=False,
            jpeg_fancy_upsampling=True,
            **on_gpu,
        )
        pixels = fn.resize(
            pictures,
            size=(spec.height, spec.width),
            roi_start=windows["roi_start"],
            roi_end=windows["roi_end"],
            interp_type=types.INTERP_CUBIC if spec.bicubic else types.INTERP_LINEAR,
            antialias=True,
        )
        if spec.dtype == "uint8":
            return pixels
        return fn.crop_mirror_normalize(
            pixels,
            dtype=types.FLOAT16 if spec.dtype == "float16" else types.FLOAT,
            output_layout="HWC",
            mean=list(spec.mean),
            std=list(spec.std),
        )


# ---- The limit ``Dali.memory_limit`` -----------------------------------------------------------------
# DALI itself has no limit. What grows with the pictures is bounded by giving it fewer of them: the native
# decoder takes samples that would exceed the budget.

_BUDGET_PADDING = 16 << 20  # bytes that DALI's decoder reserves on the device for each thread, its default
_PADDING_SHARE = 8  # all threads together reserve at most the limit divided by this


def _limit(options: Options) -> int | None:
    """Return the bytes that DALI may use on a GPU; None: no limit."""
    return None if options.dali is None else options.dali.memory_limit


def decoder_padding(options: Options, threads: int) -> int:
    """Return the bytes that DALI's decoder reserves on the device for each thread."""
    limit = _limit(options)
    return _BUDGET_PADDING if limit is None else min(_BUDGET_PADDING, limit // (_PADDING_SHARE * threads))


@dataclass(frozen=True)
class BatchShape:
    """Batches of one image and one label per sample, all images of one size.

    Args:
        batch_size: samples in a full batch.
        height, width, dtype: of the images.
    """

    batch_size: int
    height: int
    width: int
    dtype: torch.dtype

    @property
    def nbytes(self) -> int:
        """Bytes of a batch's images."""
        return self.batch_size * 3 * self.height * self.width * self.dtype.itemsize

    @classmethod
    def of(cls, layout: SampleLayout, batch_size: int) -> BatchShape:
        """Return the shape of batches of a layout from :func:`fastload.sample.delivery.image_and_label`."""
        image = layout.fields[0]
        return cls(batch_size, image.shape[1], image.shape[2], image.dtype)


def resized_bytes(shape: BatchShape, options: Options) -> int:
    """Return the bytes of uint8 batches on the device: in work, and one that is being converted."""
    return (options.prefetch_factor + 2) * 3 * shape.height * shape.width * options.batch_size


def device_plan(shape: BatchShape, options: Options) -> dict[str, int]:
    """Plan the memory of a loader that decodes on the device (:meth:`fastload.DataLoader.memory_plan`).

    ``device_bytes`` is ``Dali.memory_limit``; without one it is what does not depend on the pictures.

    Args:
        shape: of the delivered batches.
        options: the loader's.
    """
    batch = shape.nbytes + 8 * shape.batch_size
    slots = options.prefetch_factor + 2  # the native decoder's, in torch's pinned memory
    slot = 3 * shape.height * shape.width * options.batch_size
    pinned = slots * (1 << (slot - 1).bit_length())  # torch's allocator rounds to powers of two
    device = _limit(options) or resized_bytes(shape, options)
    return {
        "slots": slots,
        "slot_bytes": slot,
        "total": pinned,
        "pinned_bytes": pinned,
        "device_slots": slots,
        "device_bytes": device + BUFFERS[options.device.memory] * batch,
        "batch_bytes": batch,
    }


def decoded_bytes(shape: BatchShape, options: Options, threads: int) -> int:
    """Return the bytes of decoded pictures that DALI may have of one batch.

    The rest of the limit is for resized batches (uint8), one in each of ``prefetch_factor`` + 2 places, and
    the decoder's own memory.

    Raises:
        ValueError: the limit leaves nothing for pictures.
    """
    limit = _limit(options)
    if limit is None:
        return 1 << 62
    fixed = resized_bytes(shape, options) + threads * decoder_padding(options, threads)
    left = (limit - fixed) // (options.prefetch_factor + 1)
    if left <= 0:
        raise ValueError(
            f"Dali.memory_limit must be more than {fixed} bytes for batches of {options.batch_size} and a "
            f"prefetch_factor of {options.prefetch_factor}. Found: {limit}. Raise it, or "
            f"lower one of these."
        )
    return left


# ---- The native decoder's share ---------------------------------------------------------------------

_FIRST = 0.25
_STEP = 0.02


class DecodeShare:
    """The native decoder's share of each batch, ``value``, in [0, 1].

    With "auto" it moves by 0.02 per batch: up if only DALI's part had to be waited for, down if only the
    native part. Share, seed, epoch and sample id determine which decoder gets a sample.
    """

    def __init__(self, given: float | str) -> None:
        self.moves = given == "auto"
        self.value = _FIRST if isinstance(given, str) else float(given)

    def observe(self, native_late: bool, dali_late: bool) -> None:
        """Adjust the share by which decoders a batch had to wait for."""
        if self.moves and native_late != dali_late:
            step = _STEP if dali_late else -_STEP
            self.value = min(1.0, max(0.0, round(self.value + step, 6)))

    def take_all(self) -> None:
        """Give the native decoder every sample from here on."""
        self.moves, self.value = False, 1.0
