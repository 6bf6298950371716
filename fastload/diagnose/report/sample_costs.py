"""What single samples cost: records of a set read and decoded one by one."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from fastload import errors
from fastload.dataset.decoding import decode_field, decode_record
from fastload.shard.codecs import CODECS, NEEDS_FALLBACK, PROGRESSIVE

if TYPE_CHECKING:
    from fastload.dataset.mixture import Packed
    from fastload.shard.dataset import PackedFiles

__all__ = ["Costs", "SampleCost", "measure_costs"]


@dataclass(frozen=True)
class SampleCost:
    """One sample.

    Args:
        sample: its id.
        key: its path in the source.
        shard: where it lies.
        codec: of its picture, as "JPEG, progressive".
        width, height: in pixels; 0 where only Pillow knows.
        length: encoded bytes.
        read: seconds for its bytes, from wherever they were.
        decode: CPU seconds for the whole picture, its bytes being in memory: what else runs does not count.
    """

    sample: int
    key: str
    shard: str
    codec: str
    width: int
    height: int
    length: int
    read: float
    decode: float


@dataclass(frozen=True)
class Costs:
    """Samples one by one.

    Args:
        samples: those that could be decoded.
        bad: key and error of the others.
        of: samples of the whole set.
        field: the field whose pictures were decoded; "" where sets have one only.
    """

    samples: tuple[SampleCost, ...]
    bad: tuple[tuple[str, str], ...]
    of: int
    field: str = ""


def measure_costs(dataset: Packed, count: int = 384, seconds: float = 4.0, seed: int = 0) -> Costs:
    """Read and decode samples one by one, drawn without repetition, in this thread.

    Whole pictures are decoded, by the engine's decoders; its threads decode what a crop needs.

    Args:
        count: how many samples at most.
        seconds: after which no further one is begun.
    """
    field = _field(dataset)
    ids = np.random.Generator(np.random.Philox(seed)).permutation(len(dataset))[:count]
    found, bad, end = [], [], time.perf_counter() + seconds
    for sample in ids.tolist():
        part, own = dataset.locate(sample)
        try:
            found.append(_cost(part, own, sample, field))
        except (errors.DecodeError, errors.ChecksumError, errors.ShardError) as error:
            bad.append((part.key(own), str(error)))
        if time.perf_counter() > end:
            break
    return Costs(tuple(found), tuple(bad), len(dataset), field)


def _field(dataset: Packed) -> str:
    """The first field of pictures; "" for sets of an image and a label."""
    if dataset.is_plain:
        return ""
    from fastload.sample.fields import Image, Mask

    return next(field.name for field in dataset.schema if isinstance(field.kind, Image | Mask))


def _cost(part: PackedFiles, own: int, sample: int, field: str) -> SampleCost:
    record = part.record(own, field or None)
    began = time.perf_counter()
    data = part.stored(own, field or None)
    read, busy = time.perf_counter() - began, time.thread_time()
    if field:
        decode_field(part, field, own)
    else:
        decode_record(part, own)
    busy = time.thread_time() - busy
    return SampleCost(
        sample,
        part.key(own),
        str(part.reader.shard_path(own)),
        _codec(record),
        int(record["width"]),
        int(record["height"]),
        len(data),
        read,
        busy,
    )


def _codec(record: Any) -> str:
    flags, name = int(record["flags"]), CODECS[int(record["codec"])].title
    words = [
        name,
        *["progressive"] * bool(flags & PROGRESSIVE),
        *["by Pillow"] * bool(flags & NEEDS_FALLBACK),
    ]
    return ", ".join(words)
