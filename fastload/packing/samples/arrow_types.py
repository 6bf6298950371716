"""What the types of Parquet's and Arrow's columns say of fields, and their values as Python's."""

from __future__ import annotations

import base64
import io
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pyarrow as pa

from fastload.sample.fields import DTYPES, Json, Kind, Scalar, Text
from fastload.shard.arrow import dtype_of, type_named

__all__ = ["Typed", "is_binary", "is_kept", "is_list", "plain_column", "restored", "typed"]


_TRUTHS = "arrow.bool8"  # stored as numbers


@dataclass(frozen=True)
class Typed:
    """What a column's type says.

    Args:
        kind: of the field; None: its values tell (texts may be paths or classes, lists have shapes).
        dtype: of the numbers in a list; "": there are none, or it is no list.
        name: the type's.
        restored: whether :func:`type_named` gives the type back, so that unpacking can.
        converted: whether values become others: times integers, decimals text.
    """

    kind: Kind | None = None
    dtype: str = ""
    name: str = ""
    restored: bool = False
    converted: bool = False


def typed(kind: Any) -> Typed:
    """What a column of a type is.

    Raises:
        ValueError: no field can hold such values, in words.
    """
    kind = _unwrapped(kind)
    name, restored = str(kind), type_named(str(kind)) == kind
    if pa.types.is_null(kind):
        return Typed(Json(), name=name)
    if _is_number(kind):
        return Typed(Scalar(dtype_of(kind)), "", name, restored)
    if (integer := _integer_of(kind)) is not None:
        return Typed(Scalar(str(integer)), "", name, restored, converted=True)
    if pa.types.is_decimal(kind):
        return Typed(Text(), "", name, restored, converted=True)
    if is_list(kind):
        inner = kind
        while is_list(inner):
            inner = inner.value_type
        return Typed(None, dtype_of(inner) if _is_number(inner) else "", name, restored)
    if pa.types.is_union(kind) or pa.types.is_interval(kind) or isinstance(kind, pa.BaseExtensionType):
        raise ValueError(f"values of the type {kind}, which no field can hold")
    return Typed(None, "", name, restored)


def is_list(kind: Any) -> bool:
    """Whether values are lists of one type."""
    views = [getattr(pa.types, name, None) for name in ("is_list_view", "is_large_list_view")]
    return bool(
        pa.types.is_list(kind)
        or pa.types.is_large_list(kind)
        or pa.types.is_fixed_size_list(kind)
        or any(view is not None and view(kind) for view in views)
    )


def is_binary(kind: Any) -> bool:
    """Whether values are bytes of any number."""
    kind = _unwrapped(kind)
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind))


def plain_column(column: Any) -> Any:
    """A column whose ``to_pylist()`` gives what a field of its :func:`typed` kind takes."""
    kind = column.type
    if isinstance(kind, pa.BaseExtensionType) and _unwrapped(kind) is not kind:
        is_truth = kind.extension_name == _TRUTHS
        return column.storage.cast(pa.bool_()) if is_truth else plain_column(column.storage)
    if pa.types.is_dictionary(kind):
        return plain_column(column.dictionary_decode())
    if pa.types.is_run_end_encoded(kind):
        import pyarrow.compute as compute

        return plain_column(compute.run_end_decode(column))
    integer = _integer_of(kind)
    if integer is not None:
        return column.cast(integer)
    if pa.types.is_decimal(kind):
        # As many digits as its scale, and never an exponent.
        texts = [None if value is None else f"{value:f}" for value in column.to_pylist()]
        return pa.array(texts, pa.string())
    return column


def is_kept(kind: Any) -> bool:
    """Whether Parquet gives a type back: seconds become milliseconds there, and days of 64 bits of 32."""
    from pyarrow import parquet

    table = io.BytesIO()
    try:
        parquet.ParquetWriter(table, pa.schema([("x", kind)])).close()
    except (pa.ArrowException, OSError):
        return False
    found = parquet.read_schema(io.BytesIO(table.getvalue())).field("x").type
    return bool(found == kind)


def restored(values: list[Any], kind: Any) -> Any:
    """Values as :func:`plain_column` has made them, as the type that they came from; bytes are base64."""
    if pa.types.is_decimal(kind):
        return pa.array([None if value is None else Decimal(value) for value in values], kind)
    if pa.types.is_temporal(kind):
        return pa.array(values, _integer_of(kind)).cast(kind)
    if pa.types.is_fixed_size_binary(kind):
        values = [None if value is None else base64.b64decode(value) for value in values]
    return pa.array([_with_pairs(value, kind) for value in values], kind)


def _with_pairs(value: Any, kind: Any) -> Any:
    """A value of JSON whose maps are lists of tuples, as Arrow takes them."""
    if value is None or not pa.types.is_nested(kind):
        return value
    if pa.types.is_struct(kind):
        return {part.name: _with_pairs(value[part.name], part.type) for part in kind}
    if pa.types.is_map(kind):
        return [(key, _with_pairs(inner, kind.item_type)) for key, inner in value]
    return [_with_pairs(inner, kind.value_type) for inner in value]


def _unwrapped(kind: Any) -> Any:
    """The type of the values themselves: not their dictionary's, their runs', or an extension's."""
    if isinstance(kind, pa.BaseExtensionType):
        if kind.extension_name == _TRUTHS:
            return pa.bool_()
        # A tensor's storage has lost its shape.
        return kind if kind.extension_name == "arrow.fixed_shape_tensor" else _unwrapped(kind.storage_type)
    if pa.types.is_dictionary(kind) or pa.types.is_run_end_encoded(kind):
        return _unwrapped(kind.value_type)
    return kind


def _is_number(kind: Any) -> bool:
    number = pa.types.is_boolean(kind) or pa.types.is_integer(kind) or pa.types.is_floating(kind)
    return bool(number) and dtype_of(kind) in DTYPES


def _integer_of(kind: Any) -> Any:
    """The integers that a time, date or duration is stored as; None: it is none."""
    if pa.types.is_date32(kind) or pa.types.is_time32(kind):
        return pa.int32()
    if pa.types.is_temporal(kind) and not pa.types.is_interval(kind):
        return pa.int64()
    return None
