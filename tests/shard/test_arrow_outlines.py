"""Arrow columns of mixed outlines, which are made of the values' bytes: as pyarrow makes them of lists."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from fastload.errors import FormatError
from fastload.sample.fields import Polygons
from fastload.sample.schema import Field
from fastload.shard.arrow import array_of, type_of
from fastload.shard.columns import Chunk

FIELD = Field("masks", Polygons("mixed"))


def written(array: pa.Array) -> bytes:
    """The column as a stream has it."""
    batch = pa.record_batch([array], schema=pa.schema([pa.field("masks", type_of(FIELD))]))
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as stream:
        stream.write_batch(batch)
    return bytes(sink.getvalue())


def outlines(rng: random.Random) -> list[list[float]]:
    """An object's polygons, or none."""
    return [[rng.uniform(-9, 50) for _ in range(2 * rng.randint(3, 6))] for _ in range(rng.randint(0, 3))]


def area(rng: random.Random) -> dict[str, list[int]]:
    """An object's run lengths, or those of no pixels."""
    first = rng.randint(0, 12)
    return {"size": [3, 4], "counts": [first, 12 - first]} if first else {"size": [0, 7], "counts": []}


def as_lists(value: list[Any]) -> list[dict[str, Any]]:
    """The slow way: what pyarrow is given of a value."""
    return [
        {"outlines": [], **one}
        if isinstance(one, dict)
        else {"outlines": [part.reshape(-1).tolist() for part in one], "size": [], "counts": []}
        for one in value
    ]


@pytest.mark.parametrize("makes", [[outlines], [area], [outlines, area]])
@pytest.mark.parametrize("seed", range(10))
def test_they_are_what_pyarrow_makes_of_lists(makes: list[Any], seed: int) -> None:
    rng = random.Random(seed)
    values = [[rng.choice(makes)(rng) for _ in range(rng.choice((0, 0, 1, 5)))] for _ in range(seed + 1)]
    encoded = [FIELD.encode(value) for value in values]
    made = array_of(FIELD, Chunk.of(encoded))
    made.validate(full=True)
    wanted = pa.array([as_lists(FIELD.decode(data)) for data in encoded], type_of(FIELD))
    assert made.equals(wanted)
    assert written(made) == written(wanted)


def test_of_nothing() -> None:
    made = array_of(FIELD, Chunk.of([b"", b""]))
    assert made.to_pylist() == [[], []]
    assert written(made) == written(pa.array([[], []], type_of(FIELD)))


def test_bytes_that_are_no_outlines() -> None:
    good = np.frombuffer(FIELD.encode([[[0, 0, 5, 0, 5, 5]]]), np.uint8)
    for bad in (good[:-8], good[:4], np.append(good, np.zeros(8, np.uint8))):
        with pytest.raises(FormatError, match="'masks'.* that are no value"):
            array_of(FIELD, Chunk.of([good.tobytes(), bad.tobytes()]))
