"""Values as bytes and back: every kind, legal values drawn by hypothesis, illegal ones refused in words."""

from __future__ import annotations

import json
import re
import struct
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from fastload.errors import FormatError
from fastload.sample.fields import (
    DTYPES,
    Array,
    Boxes,
    Bytes,
    Image,
    Json,
    Keypoints,
    Kind,
    Label,
    Mask,
    Polygons,
    Scalar,
    Text,
)
from fastload.sample.schema import Field
from fastload.sample.values import check_bytes, decode, encode

FINITE = st.floats(-1e6, 1e6, width=32)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)
quick = settings(max_examples=60, deadline=None)


def back(kind: Kind, value: Any) -> Any:
    data = encode(kind, value)
    check_bytes(kind, data)
    assert encode(kind, decode(kind, data)) == data
    return decode(kind, data)


@quick
@given(st.data(), st.sampled_from(DTYPES))
def test_numbers(data: st.DataObject, dtype: str) -> None:
    little = np.dtype(dtype).newbyteorder("<")
    array = data.draw(hnp.arrays(np.dtype(dtype), hnp.array_shapes(min_dims=1, max_dims=3, min_side=1)))
    fixed = Array(dtype, array.shape)
    assert encode(fixed, array) == array.astype(little).tobytes()  # the reference: C order, little-endian
    np.testing.assert_array_equal(back(fixed, array), array)
    rows = Array(dtype, (None, *array.shape[1:]))
    assert encode(rows, array) == encode(fixed, array)
    np.testing.assert_array_equal(back(rows, array), array)
    assert back(rows, array[:0]).shape == (0, *array.shape[1:])
    number = array.ravel()[0]
    np.testing.assert_array_equal(back(Scalar(dtype), number), number)
    np.testing.assert_array_equal(back(Scalar(dtype), number.item()), number)


def test_other_memory_gives_the_same_bytes() -> None:
    array = np.arange(24, dtype=np.int16).reshape(4, 6)
    wanted = encode(Array("int16", (4, 6)), array)
    for other in (array.astype(">i2"), np.asfortranarray(array), array.tolist(), torch.from_numpy(array)):
        assert encode(Array("int16", (4, 6)), other) == wanted
    assert encode(Array("int16", (4, 3)), array[:, ::2]) == encode(
        Array("int16", (4, 3)), array[:, ::2].copy()
    )


def test_decoded_arrays_own_their_memory() -> None:
    value = decode(Boxes(), bytes(16))
    value += 1
    assert value.flags.owndata or value.base is not None
    assert decode(Array("int8", (2,)), b"\1\2").flags.writeable


@quick
@given(st.lists(st.tuples(FINITE, FINITE, FINITE, FINITE), max_size=5))
def test_boxes(rows: list[tuple[float, ...]]) -> None:
    corners = [(min(a, c), min(b, d), max(a, c), max(b, d)) for a, b, c, d in rows]
    data = b"".join(struct.pack("<4f", *row) for row in corners)
    assert encode(Boxes(), corners) == data
    assert back(Boxes(), corners).tolist() == [list(row) for row in corners]
    sized = [(a, b, abs(c), abs(d)) for a, b, c, d in rows]
    for form in ("xywh", "cxcywh"):
        assert back(Boxes(form), sized).shape == (len(rows), 4)


@quick
@given(
    st.lists(
        st.lists(st.tuples(FINITE, FINITE, st.sampled_from([0.0, 1.0, 2.0])), min_size=3, max_size=3),
        max_size=3,
    )
)
def test_keypoints(objects: list[list[tuple[float, ...]]]) -> None:
    data = b"".join(struct.pack("<3f", *point) for points in objects for point in points)
    assert encode(Keypoints(3), objects) == data
    assert back(Keypoints(3), objects).shape == (len(objects), 3, 3)
    flat = [[number for point in points for number in point] for points in objects]
    assert encode(Keypoints(3), flat) == data  # COCO's


def words(*numbers: int) -> bytes:
    return struct.pack(f"<{len(numbers)}I", *numbers)


@quick
@given(
    st.lists(st.lists(st.lists(st.tuples(FINITE, FINITE), min_size=3, max_size=6), max_size=3), max_size=4)
)
def test_polygons(objects: list[list[list[tuple[float, float]]]]) -> None:
    counts = [len(polygons) for polygons in objects]
    lengths = [len(points) for polygons in objects for points in polygons]
    floats = [number for polygons in objects for points in polygons for point in points for number in point]
    data = words(len(objects), *counts, *lengths) + struct.pack(f"<{len(floats)}f", *floats)
    assert encode(Polygons(), objects) == (data if objects else b"")
    found = back(Polygons(), objects)
    assert [[points.tolist() for points in polygons] for polygons in found] == [
        [[list(point) for point in points] for points in polygons] for polygons in objects
    ]
    flat = [[[number for point in points for number in point] for points in polygons] for polygons in objects]
    assert encode(Polygons(), flat) == encode(Polygons(), objects)  # COCO's


def runs_of(area: np.ndarray) -> list[int]:
    """Run lengths of a 0/1 picture, column by column, zeros' first: one pixel at a time."""
    runs, last = [0], 0
    for pixel in area.ravel(order="F").tolist():
        if pixel != last:
            runs.append(0)
            last = pixel
        runs[-1] += 1
    return runs if area.size else []


def letters(runs: list[int]) -> str:
    """COCO's compressed letters (cocoapi's rleToString)."""
    text = ""
    for position, length in enumerate(runs):
        number = length - (runs[position - 2] if position > 2 else 0)
        more = True
        while more:
            code, number = number & 0x1F, number >> 5
            more = number != -1 if code & 0x10 else number != 0
            text += chr((code | 0x20 if more else code) + 48)
    return text


@quick
@given(
    st.lists(
        hnp.arrays(
            np.uint8,
            hnp.array_shapes(min_dims=2, max_dims=2, min_side=1, max_side=12),
            elements=st.integers(0, 1),
        ),
        max_size=3,
    )
)
def test_run_lengths(areas: list[np.ndarray]) -> None:
    kind = Polygons("rle")
    objects = [{"size": list(area.shape), "counts": runs_of(area)} for area in areas]
    heads = [number for one in objects for number in (*one["size"], len(one["counts"]))]
    data = words(len(objects), *heads, *(number for one in objects for number in one["counts"]))
    assert encode(kind, objects) == (data if objects else b"")
    assert back(kind, objects) == objects
    squeezed = [{**one, "counts": letters(one["counts"])} for one in objects]
    assert encode(kind, squeezed) == encode(kind, objects)
    assert encode(kind, [{**one, "counts": one["counts"].encode()} for one in squeezed]) == encode(
        kind, objects
    )


@pytest.mark.parametrize(
    ("counts", "canonical"),
    [
        ([3, 0, 1], [4]), ([0, 0, 4], [4]), ([0, 0, 0, 4], [0, 4]), ([1, 1, 0, 1, 1], [1, 2, 1]),
        ([0, 1, 0, 0, 3], [0, 1, 3]), ([4, 0], [4]), ([0, 4, 0, 0], [0, 4]), ([1, 0, 0, 3], [1, 3]),
    ],
)  # fmt: skip
def test_one_area_has_one_list_of_runs(counts: list[int], canonical: list[int]) -> None:
    assert decode(Polygons("rle"), encode(Polygons("rle"), [{"size": [2, 2], "counts": counts}])) == [
        {"size": [2, 2], "counts": canonical}
    ]


def test_no_pixels_have_no_runs() -> None:
    for counts in ([], [0], "0"):
        assert back(Polygons("rle"), [{"size": [0, 5], "counts": counts}]) == [{"size": [0, 5], "counts": []}]


@quick
@given(st.text())
def test_text(text: str) -> None:
    assert encode(Text(), text) == text.encode("utf-8")
    assert back(Text(), text) == text


@quick
@given(st.binary(), st.sampled_from([bytes, bytearray, memoryview]))
def test_bytes(data: bytes, form: Any) -> None:
    assert encode(Bytes(), form(data)) == data
    assert back(Bytes(), data) == data


@quick
@given(JSON)
def test_json(value: Any) -> None:
    data = encode(Json(), value)
    assert back(Json(), value) == value
    if value is not None:
        assert json.loads(data) == value
        assert data == json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":")).encode()


def test_the_order_of_keys_does_not_matter() -> None:
    assert (
        encode(Json(), {"b": 1, "a": (1, 2)}) == encode(Json(), {"a": [1, 2], "b": 1}) == b'{"a":[1,2],"b":1}'
    )


def test_labels() -> None:
    kind = Label(("cat", "dog"))
    assert [encode(kind, value) for value in ("dog", 1, np.int64(1), torch.tensor(1))] == [words(1)] * 4
    assert [back(kind, value) for value in (None, -1, "cat")] == [-1, -1, 0]
    assert back(Label(), 2**31 - 2) == 2**31 - 2


@pytest.mark.parametrize("kind", [Boxes(), Keypoints(3), Array("int8", (None,)), Polygons(), Polygons("rle")])
def test_nothing_is_no_bytes(kind: Kind) -> None:
    assert encode(kind, None) == encode(kind, []) == b""
    assert len(decode(kind, b"")) == 0


def test_nothing_of_objects() -> None:
    assert (encode(Text(), ""), encode(Bytes(), b""), encode(Json(), None)) == (b"", b"", b"")
    assert (decode(Text(), b""), decode(Bytes(), b""), decode(Json(), b"")) == ("", b"", None)


@pytest.mark.parametrize(
    ("kind", "value", "error", "message"),
    [
        (Scalar("uint8"), 256, ValueError, "Field 'f' must be from 0 to 255 (uint8). Found: 256."),
        (Scalar("int8"), -129, ValueError, "must be from -128 to 127"),
        (Scalar("uint64"), 2**64, ValueError, "at most 64 bits. Found: 18446744073709551616."),
        (Scalar("int32"), 1.0, TypeError, "must be integers (int32). Found: 1.0 (float64)."),
        (Scalar("bool"), 2, ValueError, "must be from 0 to 1 (bool)"),
        (Scalar("float16"), 1e6, ValueError, "(float16). Found: 1000000.0."),
        (Scalar("float32"), "1", TypeError, "must be numbers (float32). Found: '1'"),
        (Scalar("float32"), None, TypeError, "must be numbers. Found: None"),
        (Scalar("float32"), [1.0], ValueError, "must have the shape (). Found: (1,)."),
        (Scalar("float32"), 1j, TypeError, "must be numbers"),
        (Array("int8", (2,)), [[1], [2, 3]], ValueError, "regular shape"),
        (Array("int8", (2,)), [1, 2, 3], ValueError, "must have the shape (2,). Found: (3,)."),
        (Array("int8", (None, 2)), [[1, 2, 3]], ValueError, "must have the shape (n, 2). Found: (1, 3)."),
        (Array("int8", (None, 2)), np.zeros((0, 3)), ValueError, "Found: (0, 3)."),
        (Boxes(), [1, 2, 3, 4], ValueError, "must have the shape (n, 4). Found: (4,)."),
        (
            Boxes(),
            [[0, 0, 1, 1], [3, 0, 2, 1]],
            ValueError,
            "x1 <= x2 and y1 <= y2. Found: [3.0, 0.0, 2.0, 1.0] in row 1.",
        ),
        (Boxes("xywh"), [[0, 0, -1, 1]], ValueError, "widths and heights of at least 0"),
        (Boxes(), [[0, 0, 1, float("nan")]], ValueError, "must be finite"),
        (Keypoints(2), [[[0, 0, -1], [0, 0, 0]]], ValueError, "visibilities of at least 0"),
        (Keypoints(2, False), [[[0, 0, 1], [0, 0, 0]]], ValueError, "must have the shape (n, 2, 2)"),
        (Label(("a",)), 1, ValueError, "must be from -1 to 0, a class index or none. Found: 1."),
        (Label(("a",)), "b", ValueError, "one of its 1 classes. Found: 'b'."),
        (Label(), "b", ValueError, "no classes: name them, as Label(classes=...). Found: 'b'."),
        (Label(), -2, ValueError, "must be from -1 to 2147483646"),
        (Label(), 2**31 - 1, ValueError, "must be from -1 to 2147483646"),
        (Polygons(), [[[0, 0, 1, 1]]], ValueError, "at least three points"),
        (Polygons(), [[[0, 0, 1, 1, 2]]], ValueError, "at least three points"),
        (Polygons(), [[[0, 0, 1, 1, 2, float("inf")]]], ValueError, "must be finite"),
        (Polygons(), {"a": 1}, TypeError, "must be a list of objects. Found: dict."),
        (
            Polygons("rle"),
            [{"size": [2, 2], "counts": [3]}],
            ValueError,
            "must come to height x width, 4. Found: 3.",
        ),
        (Polygons("rle"), [{"size": [2, -2], "counts": [3]}], ValueError, "size must be height and width"),
        (Polygons("rle"), [{"size": [2, 2], "counts": "~"}], ValueError, "not COCO's letters"),
        (Polygons("rle"), [{"size": [2, 2], "counts": "P"}], ValueError, "end within a number"),
        (Polygons("rle"), [[1, 2]], TypeError, "an area is"),
        (Text(), b"a", TypeError, "must be a str. Found: b'a' (bytes)."),
        (Text(), "\ud800", ValueError, "that UTF-8 can say"),
        (Bytes(), "a", TypeError, "must be bytes. Found: 'a' (str)."),
        (Json(), {1: 2}, TypeError, "dicts with str keys. Found: 1"),
        (Json(), [float("nan")], ValueError, "finite numbers"),
        (Json(), np.zeros(2), TypeError, "arrays have .tolist()"),
        (Json(), "\ud800", ValueError, "what JSON can say"),
        (Image(), b"", ValueError, "the bytes of a picture. Found: none."),
        (Mask(), "path.png", TypeError, "must be bytes"),
    ],
)
def test_illegal_values(kind: Kind, value: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=re.escape(message)):
        Field("f", kind).check(value)


def test_deep_json_is_refused_in_words() -> None:
    deep: Any = []
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(ValueError, match="what JSON can say"):
        encode(Json(), deep)
    with pytest.raises(FormatError, match="no value"):
        decode(Json(), b"[" * 100_000)


@pytest.mark.parametrize(
    ("kind", "data", "message"),
    [
        (Scalar("int32"), b"123", "a value has 4 bytes"),
        (Scalar("int32"), b"", "a value has 4 bytes"),
        (Scalar("bool"), b"\2", "a bool is a byte of 0 or 1"),
        (Boxes(), bytes(15), "a row has 16 bytes"),
        (Boxes(), struct.pack("<4f", 0, 0, float("nan"), 0), "must be finite"),
        (Boxes(), struct.pack("<4f", 2, 0, 1, 0), "x1 <= x2"),
        (Label(("a",)), words(1), "from -1 to 0"),
        (Polygons(), b"123", "no multiple of 4"),
        (Polygons(), words(2, 1), "2 words are to come, and 1 are left"),
        (Polygons(), words(2**32 - 1), "words are to come"),
        (Polygons(), words(1, 2**32 - 1), "words are to come"),
        (Polygons(), words(1, 1, 2**32 - 1), "words are to come"),
        (Polygons(), words(1, 0, 7), "1 words are left over"),
        (Polygons(), words(0), "not the canonical"),
        (Polygons(), words(1, 1, 1, 0, 0), "at least three points"),
        (Polygons("rle"), words(2**32 - 1), "words are to come"),
        (Polygons("rle"), words(1, 2, 2, 1, 3), "come to"),
        (Polygons("rle"), words(1, 2, 2, 3, 1, 0, 3), "not the canonical"),
        (Polygons("rle"), words(1, 2**32 - 1, 2**32 - 1, 1, 3), "size must be"),
        (Text(), b"\xff", "no value"),
        (Text(), b"\xed\xa0\x80", "no value"),
        (Json(), b"{", "no value"),
        (Json(), b"null", "not the canonical"),
        (Json(), b'{"b":1,"a":1}', "not the canonical"),
        (Json(), b'{"a":1,"a":1}', "not the canonical"),
        (Json(), b"NaN", "finite"),
        (Json(), b"1.50", "canonical"),
    ],
)
def test_bytes_that_are_no_value(kind: Kind, data: bytes, message: str) -> None:
    with pytest.raises(FormatError, match=re.escape(message)):
        Field("f", kind).check_bytes(data)


@quick
@given(
    st.binary(max_size=64),
    st.sampled_from([Polygons(), Polygons("rle"), Json(), Text(), Boxes(), Scalar("bool")]),
)
def test_any_bytes_are_a_value_or_refused(data: bytes, kind: Kind) -> None:
    try:
        check_bytes(kind, data)
    except FormatError:
        return
    assert encode(kind, decode(kind, data)) == data
