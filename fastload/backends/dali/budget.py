"""``gpu_memory_limit``: how much of a batch DALI may decode at a time, by arithmetic.

DALI has no limit of its own. What grows with the pictures is bounded by giving it fewer of them: samples that
would exceed the budget are decoded by our own decoder.
"""

from __future__ import annotations

from fastload.backends.options import Options
from fastload.prefetch.slots import SlotShape

__all__ = ["decoded_bytes", "decoder_padding", "device_plan"]

_PADDING = 16 << 20  # bytes that DALI's decoder reserves on the device for each thread, its default
_PADDING_SHARE = 8  # of the limit, at most 1 / this, for all threads


def decoder_padding(options: Options, threads: int) -> int:
    """Bytes that DALI's decoder reserves on the device for each thread."""
    if options.gpu_memory_limit is None:
        return _PADDING
    return min(_PADDING, options.gpu_memory_limit // (_PADDING_SHARE * threads))


def resized_bytes(shape: SlotShape, options: Options) -> int:
    """Of uint8 batches on the device: in work, and one that is being converted."""
    return (options.prefetch_factor + 2) * 3 * shape.height * shape.width * options.batch_size


def device_plan(shape: SlotShape, options: Options, outputs: int) -> dict[str, int]:
    """What a loader that decodes on the device allocates; see :meth:`fastload.DataLoader.memory_plan`.

    ``device_bytes`` is ``gpu_memory_limit``; without one it is what does not depend on the pictures.

    Args:
        shape: of the delivered batches.
        options: the loader's.
        outputs: bytes of the memory that batches are delivered in, where it is reused.
    """
    slots = options.prefetch_factor + 2  # of our own decoder, in torch's pinned memory
    slot = 3 * shape.height * shape.width * options.batch_size
    pinned = slots * (1 << (slot - 1).bit_length())  # torch's allocator rounds to powers of two
    device = options.gpu_memory_limit or resized_bytes(shape, options)
    return {
        "slots": slots,
        "slot_bytes": slot,
        "total": pinned,
        "pinned_bytes": pinned,
        "device_slots": slots,
        "device_bytes": device + outputs,
        "batch_bytes": shape.nbytes + 8 * shape.batch_size,
    }


def decoded_bytes(shape: SlotShape, options: Options, threads: int) -> int:
    """Bytes of decoded pictures that DALI may have of one batch.

    The rest of the limit is for resized batches (uint8), one in each of ``prefetch_factor`` + 2 places, and
    the decoder's own memory.

    Raises:
        ValueError: the limit leaves nothing for pictures.
    """
    if options.gpu_memory_limit is None:
        return 1 << 62
    fixed = resized_bytes(shape, options) + threads * decoder_padding(options, threads)
    left = (options.gpu_memory_limit - fixed) // (options.prefetch_factor + 1)
    if left <= 0:
        raise ValueError(
            f"gpu_memory_limit must be more than {fixed} bytes for batches of {options.batch_size} and a "
            f"prefetch_factor of {options.prefetch_factor}. Found: {options.gpu_memory_limit}. Raise it, or "
            f"lower one of these."
        )
    return left
