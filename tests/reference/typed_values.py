"""Columns of every type that Parquet and Arrow files have, plain and extreme, and what their values are to
Arrow itself: the reference of what packing must give back."""

from __future__ import annotations

import math
import random
import struct
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as compute

__all__ = ["REFUSED", "TYPES", "array_of", "drawn_type", "drawn_value", "plain_of", "same"]


def _whole(bits: int, signed: bool) -> tuple[list[Any], list[Any]]:
    low, high = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if signed else (0, (1 << bits) - 1)
    return [1, 2, 3], [low, high, high - 1, 0]


_NUMBERS = {
    **{f"int{bits}": (pa.type_for_alias(f"int{bits}"), *_whole(bits, True)) for bits in (8, 16, 32, 64)},
    **{f"uint{bits}": (pa.type_for_alias(f"uint{bits}"), *_whole(bits, False)) for bits in (8, 16, 32, 64)},
    "bool": (pa.bool_(), [True, False, True], []),
    "float16": (pa.float16(), [1.0, 2.5, -0.0], [65504.0, float("nan"), float("-inf")]),
    "float32": (pa.float32(), [1.5, 0.25, -0.0], [3.4028234663852886e38, float("nan"), 1e-45]),
    "float64": (pa.float64(), [0.1, 2.0, -0.0], [1.7976931348623157e308, 5e-324, float("nan"), float("inf")]),
}
_TEXT = (["a", "b c", "ü"], ["", '\n"\\', "\0", "null", "x" * 1000, "007"])
_BYTES = ([b"a", b"\xff\x00", b"cc"], [b"", b"\xff", b"x" * 1000])
#: By name: the type, plain values, and extreme ones. Times and the like are given as their integers.
TYPES: dict[str, tuple[Any, list[Any], list[Any]]] = {
    **_NUMBERS,
    "string": (pa.string(), *_TEXT),
    "large_string": (pa.large_string(), *_TEXT),
    "dictionary": (pa.dictionary(pa.int8(), pa.string()), *_TEXT),
    "binary": (pa.binary(), *_BYTES),
    "large_binary": (pa.large_binary(), *_BYTES),
    "fixed_binary": (pa.binary(3), [b"abc", b"\0\0\0", b"xyz"], [b"\xff\xff\xff"]),
    "seconds": (pa.timestamp("s"), [0, 10**9, -5], [10**11]),
    "millis": (pa.timestamp("ms"), [0, 10**12, -5], [2**62, -(2**62)]),
    "micros_utc": (pa.timestamp("us", "UTC"), [0, 10**15, -5], [2**63 - 1, -(2**63) + 1]),
    "nanos_berlin": (pa.timestamp("ns", "Europe/Berlin"), [0, 10**18, -5], [2**63 - 1]),
    "date32": (pa.date32(), [0, 20000, -7], [2**31 - 1, -(2**31)]),
    "date64": (pa.date64(), [0, 86_400_000 * 3, 86_400_000], [86_400_000 * 10**6]),
    "time32": (pa.time32("ms"), [0, 86_399_000, 1], []),
    "time64": (pa.time64("ns"), [0, 86_399 * 10**9, 1], []),
    "duration": (pa.duration("us"), [0, -5, 7], [2**63 - 1, -(2**63)]),
    "decimal128": (pa.decimal128(10, 2), [Decimal("1.20"), Decimal("-3.00"), Decimal("0.00")],
                   [Decimal("99999999.99")]),
    "decimal256": (pa.decimal256(60, 5), [Decimal("1.00000")] * 3, [Decimal("1" * 55 + ".12345")]),
    "null": (pa.null(), [None, None, None], []),
    "list_int": (pa.list_(pa.int64()), [[1, 2], [3], [4]], [[], [2**63 - 1, -(2**63)]]),
    "list_uint": (pa.list_(pa.uint64()), [[1], [2], [3, 4]], [[2**64 - 1, 5], []]),
    "list_float": (pa.list_(pa.float32()), [[1.5], [2.5, -0.0], [3.0]], [[]]),
    "list_fixed": (pa.list_(pa.float64(), 2), [[1.0, 2.0], [3.0, 4.0], [0.1, 0.2]], []),
    "large_list": (pa.large_list(pa.bool_()), [[True], [False, True], [True]], [[]]),
    "list_text": (pa.list_(pa.string()), [["a"], ["b", "c"], []], [[""], [None]]),
    "list_holes": (pa.list_(pa.int16()), [[1], [None, 3], [2]], [[None]]),
    "nested": (pa.list_(pa.list_(pa.int32())), [[[1, 2], [3, 4]], [[5, 6]], [[7, 8]]],
               [[], [[]], [[1], [2, 3]]]),
    "struct": (pa.struct([("a", pa.int64()), ("b", pa.string())]),
               [{"a": 1, "b": "x"}, {"a": 2, "b": None}, {"a": 3, "b": ""}],
               [{"a": None, "b": '"'}, {"a": 2**63 - 1, "b": "ü"}]),
    "deep": (pa.struct([("a", pa.list_(pa.struct([("b", pa.uint64())])))]),
             [{"a": [{"b": 2**64 - 1}]}, {"a": []}, {"a": None}], [{"a": [{"b": None}]}]),
    "map": (pa.map_(pa.string(), pa.int64()), [[("a", 1)], [("b", 2), ("c", 3)], [("d", 4)]], [[]]),
}  # fmt: skip
#: Types whose values no field has, and what is said of them.
REFUSED: dict[str, tuple[Any, list[Any], str]] = {
    "interval": (pa.month_day_nano_interval(), [(1, 2, 3)], "of the type month_day_nano_interval"),
    "list_date": (pa.list_(pa.date32()), [[1]], "that fit no kind of field, also not json"),
    "list_bytes": (pa.list_(pa.binary()), [[b"a"]], "that fit no kind of field, also not json"),
    "struct_time": (pa.struct([("t", pa.timestamp("s"))]), [{"t": 5}], "fit no kind of field, also not json"),
    "struct_nan": (pa.struct([("a", pa.float64())]), [{"a": float("nan")}], "also not json"),
    "union": (None, [], "dense_union"),
    "tensor": (None, [], "fixed_shape_tensor"),
    "binary_null": (pa.binary(), [b"a", None], r"has bytes, and null in row 2"),
    "nan_and_null": (pa.list_(pa.float32()), [[float("nan")], None], "must have finite numbers"),
}


def array_of(name: str, kind: Any, values: list[Any]) -> Any:
    """A column of a type; times and the like from their integers."""
    if name == "union":
        parts = [pa.array([1], pa.int8())]
        return pa.UnionArray.from_dense(pa.array([0], pa.int8()), pa.array([0], pa.int32()), parts)
    if name == "tensor":
        kind = pa.fixed_shape_tensor(pa.int32(), (2, 3))
        return pa.ExtensionArray.from_storage(kind, pa.array([[1, 2, 3, 4, 5, 6]], kind.storage_type))
    if pa.types.is_temporal(kind) and not pa.types.is_interval(kind):
        narrow = pa.types.is_date32(kind) or pa.types.is_time32(kind)
        return pa.array(values, pa.int32() if narrow else pa.int64()).cast(kind)
    if pa.types.is_dictionary(kind):
        return pa.array(values, kind.value_type).dictionary_encode()
    return pa.array(values, kind)


def plain_of(column: Any) -> list[Any]:
    """The values of a column as Arrow has them, times as integers and decimals as text."""
    column = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    kind = column.type
    if pa.types.is_dictionary(kind):
        return plain_of(column.dictionary_decode())
    if pa.types.is_temporal(kind):
        narrow = pa.types.is_date32(kind) or pa.types.is_time32(kind)
        return list(compute.cast(column, pa.int32() if narrow else pa.int64()).to_pylist())
    values = column.to_pylist()
    return [f"{value:f}" if isinstance(value, Decimal) else value for value in values]


def same(wanted: Any, found: Any) -> bool:
    """Whether two values are the very same: a zero has its sign, a truth is no number, null is not NaN."""
    if isinstance(wanted, (list, tuple)) and isinstance(found, (list, tuple)):
        return len(wanted) == len(found) and all(map(same, wanted, found))
    if isinstance(wanted, dict) and isinstance(found, dict):
        return wanted.keys() == found.keys() and all(same(wanted[key], found[key]) for key in wanted)
    if type(wanted) is not type(found):
        return False
    if isinstance(wanted, float):
        if math.isnan(wanted):
            return math.isnan(found)
        return struct.pack("<d", wanted) == struct.pack("<d", found)
    return bool(wanted == found)


def drawn_type(rng: random.Random, deep: int = 0) -> Any:
    """A type, perhaps nested."""
    names = [name for name, (kind, _, _) in TYPES.items() if not pa.types.is_null(kind)]
    if deep == 0 and rng.random() < 0.6:
        return TYPES[rng.choice(names)][0]
    inner = [name for name in names if name in _NUMBERS or name in ("string", "large_string")]
    choice = rng.randrange(5) if deep < 2 else 0
    if choice == 0:
        return TYPES[rng.choice(inner)][0]
    if choice == 1:
        return pa.list_(drawn_type(rng, deep + 1))
    if choice == 2:
        return pa.list_(drawn_type(rng, deep + 1), rng.randint(1, 3))
    if choice == 3:
        return pa.map_(pa.string(), drawn_type(rng, deep + 1))
    return pa.struct([(f"part{number}", drawn_type(rng, deep + 1)) for number in range(rng.randint(1, 3))])


def drawn_value(rng: random.Random, kind: Any, nulls: float) -> Any:
    """A value of a type, or None with that probability."""
    if rng.random() < nulls:
        return None
    if pa.types.is_fixed_size_list(kind):
        return [drawn_value(rng, kind.value_type, nulls) for _ in range(kind.list_size)]
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return [drawn_value(rng, kind.value_type, nulls) for _ in range(rng.randrange(4))]
    if pa.types.is_map(kind):
        return [(f"k{number}", drawn_value(rng, kind.item_type, nulls)) for number in range(rng.randrange(3))]
    if pa.types.is_struct(kind):
        return {part.name: drawn_value(rng, part.type, nulls) for part in kind}
    known = next((one for one in TYPES.values() if one[0] == kind), None)
    assert known is not None
    return rng.choice([*known[1], *known[2]])
