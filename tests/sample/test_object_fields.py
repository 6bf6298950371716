"""Fields of objects: labels, texts, mixed outlines as bytes and back, and rows that go with other fields'."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastload.errors import FormatError
from fastload.sample.fields import (
    Array,
    Boxes,
    Image,
    Keypoints,
    Kind,
    Label,
    Labels,
    Polygons,
    Texts,
    leader_of,
)
from fastload.sample.plain import plain_value
from fastload.sample.schema import Field, Of, Schema
from fastload.sample.values import MOST_COORDINATE, check_bytes, decode, encode, row_count
from fastload.shard.manifest import entries_of, minor_of

NEAR = st.floats(-MOST_COORDINATE, MOST_COORDINATE)
OUTLINES = st.lists(st.lists(st.tuples(NEAR, NEAR), min_size=3, max_size=5), max_size=3)
SIDE = st.integers(0, 6)
MIXED = Polygons("mixed")
CLASSES = ("cat", "dog", "eel")
quick = settings(max_examples=80, deadline=None)


@st.composite
def areas(draw: st.DrawFn) -> dict[str, list[int]]:
    height, width = draw(SIDE), draw(SIDE)
    marks = draw(st.lists(st.integers(0, height * width), max_size=4).map(sorted))
    places = [0, *sorted(set(marks)), height * width]
    runs = np.diff(places).tolist()
    return {"size": [height, width], "counts": [runs[0], *(run for run in runs[1:] if run)] if runs else []}


def words(*numbers: int) -> bytes:
    return struct.pack(f"<{len(numbers)}I", *numbers)


def mixed_reference(objects: list[Any]) -> bytes:
    """FORMAT.md word for word."""
    if not objects:
        return b""
    data = words(len(objects)) + b"".join(words(isinstance(one, dict)) for one in objects)
    outlines = [one for one in objects if not isinstance(one, dict)]
    found = [one for one in objects if isinstance(one, dict)]
    data += b"".join(words(len(one)) for one in outlines)
    data += b"".join(words(len(polygon)) for one in outlines for polygon in one)
    data += b"".join(words(*one["size"], len(one["counts"])) for one in found)
    data += b"\0" * (-len(data) % 8)
    data += b"".join(struct.pack("<2d", *point) for one in outlines for polygon in one for point in polygon)
    return data + b"".join(words(*one["counts"]) for one in found)


def canonical(area: dict[str, list[int]]) -> dict[str, list[int]]:
    """Only the first run may be 0, and no pixels have no runs."""
    return area if any(area["counts"]) else {**area, "counts": []}


@quick
@given(st.lists(OUTLINES | areas(), max_size=5))
def test_mixed_outlines(objects: list[Any]) -> None:
    objects = [canonical(one) if isinstance(one, dict) else one for one in objects]
    data = encode(MIXED, objects)
    assert data == mixed_reference(objects)
    check_bytes(MIXED, data)
    assert row_count(MIXED, data) == len(objects)
    found = decode(MIXED, data)
    for one, wanted in zip(found, objects, strict=True):
        if isinstance(wanted, dict):
            assert one == wanted
        else:
            assert [polygon.tolist() for polygon in one] == [[list(point) for point in p] for p in wanted]
    plain = plain_value(Field("masks", MIXED), data)
    assert encode(MIXED, plain) == data


def test_mixed_coordinates_keep_all_their_bits() -> None:
    numbers = [number / 100 for number in range(0, 64000, 7)]
    polygon = np.array(numbers[: len(numbers) // 2 * 2]).reshape(-1, 2)
    ((found,),) = decode(MIXED, encode(MIXED, [[polygon]]))
    assert found.tolist() == polygon.tolist()


@pytest.mark.parametrize("far", [MOST_COORDINATE + 1, -1e300, float("nan"), float("inf")])
def test_coordinates_that_are_too_far(far: float) -> None:
    with pytest.raises(ValueError, match="coordinates must be"):
        encode(MIXED, [[[0, 0, 5, 5, far, 5]]])


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (words(1, 2), "form is 0 or 1"),
        (words(1, 0, 0, 7), "not 0"),
        (words(1, 0, 0)[:-1], "no multiple of 4"),
        (words(1, 0, 0), "are left"),
        (words(2**32 - 1), "words are to come"),
        (words(1, 0, 1, 2**32 - 1), "words are to come"),
        (words(1, 1, 2, 2, 1, 0, 5), "come to height x width"),
        (words(1, 0, 1, 3) + struct.pack("<6d", 0, 0, 1, 1, 2, 2**21), "coordinates"),
        (words(1, 0, 0, 0, 0), "left over"),
    ],
)  # fmt: skip
def test_bytes_that_are_no_mixed_outlines(data: bytes, message: str) -> None:
    with pytest.raises(FormatError, match=message):
        check_bytes(MIXED, data)


@quick
@given(st.lists(st.text(), max_size=5))
def test_texts(texts: list[str]) -> None:
    data = encode(Texts(), texts)
    said = [text.encode() for text in texts]
    assert data == (words(len(said), *map(len, said)) + b"".join(said) if said else b"")
    check_bytes(Texts(), data)
    assert decode(Texts(), data) == texts
    assert row_count(Texts(), data) == len(texts)


@pytest.mark.parametrize(
    "data",
    [
        words(1), words(0), words(1, 5) + b"four", words(1, 1) + b"\xff", words(1, 0) + b"x", b"\1",
        words(2**32 - 1, 1),
    ],
)  # fmt: skip
def test_bytes_that_are_no_texts(data: bytes) -> None:
    with pytest.raises(FormatError):
        check_bytes(Texts(), data)


@pytest.mark.parametrize("value", ["one", [1], [None], {"a": "b"}, [b"x"]])
def test_values_that_are_no_texts(value: Any) -> None:
    with pytest.raises(TypeError, match="must be"):
        encode(Texts(), value)


def test_labels() -> None:
    kind = Labels(CLASSES)
    assert encode(kind, ["dog", None, 2]) == struct.pack("<3i", 1, -1, 2)
    assert encode(kind, np.array([0, -1])) == struct.pack("<2i", 0, -1)
    assert encode(kind, []) == encode(kind, None) == b""
    assert decode(kind, struct.pack("<2i", 1, -1)).tolist() == [1, -1]
    assert plain_value(Field("labels", kind), struct.pack("<3i", 1, -1, 2)) == ["dog", None, "eel"]
    assert plain_value(Field("labels", Labels()), struct.pack("<2i", 7, -1)) == [7, None]
    for wrong, message in ((["cow"], "3 classes"), ([3], "from -1 to 2"), ([-2], "from -1 to 2")):
        with pytest.raises(ValueError, match=message):
            encode(kind, wrong)
    with pytest.raises(ValueError, match="no classes: name them, as Labels"):
        encode(Labels(), ["cat"])
    with pytest.raises(FormatError, match="from -1 to 2"):
        check_bytes(kind, struct.pack("<i", 3))


def test_two_classes_of_one_name_stay_two() -> None:
    kind = Labels(("cat", "cat"), (1, 2))
    data = encode(kind, [0, 1, "cat"])
    assert plain_value(Field("labels", kind), data) == ["cat", 1, "cat"]
    assert encode(kind, plain_value(Field("labels", kind), data)) == data


@pytest.mark.parametrize("ids", [(1,), (1, 1, 2), (1, 2, True), (1, 2, 2**63), (1.0, 2, 3), 5])
def test_ids_that_are_none(ids: Any) -> None:
    with pytest.raises(ValueError, match="ids must be"):
        Labels(CLASSES, ids)


@pytest.mark.parametrize(
    "pairs", [((0, 0),), ((1, 0),), ((0, 4),), ((0, 1), (1, 2)), ((0,),), 3, ((True, 2),)]
)
def test_pairs_that_are_none(pairs: Any) -> None:
    with pytest.raises(ValueError, match="pairs must be"):
        Keypoints(4, pairs=pairs)


def test_settings_that_came_later_are_written_where_they_differ() -> None:
    assert Keypoints(4).to_json() == {"kind": "keypoints", "points": 4, "visibility": True}
    assert Keypoints(4, pairs=((0, 1),)).to_json()["pairs"] == [[0, 1]]
    assert Labels(("a",)).to_json() == {"kind": "labels", "classes": ["a"]}
    assert Kind.from_json({"kind": "keypoints", "points": 4, "visibility": True}) == Keypoints(4)
    with pytest.raises(ValueError, match="'visibility'"):
        Kind.from_json({"kind": "keypoints", "points": 4})


DETECTION = Schema.of(
    {
        "image": Image(), "boxes": "boxes(xywh)", "labels": Of("boxes", Labels(CLASSES)),
        "area": "array(float64, (None,)) of boxes",
    }
)  # fmt: skip


def test_rows_of_another_field() -> None:
    assert (DETECTION["labels"].of, DETECTION["area"].of, DETECTION["boxes"].of) == ("boxes", "boxes", None)
    assert DETECTION["area"].kind == Array("float64", (None,))
    assert Schema.from_json(DETECTION.to_json()) == DETECTION
    assert "labels=labels of boxes" in str(DETECTION)
    assert Field("labels", Labels()) != Field("labels", Labels(), "boxes")
    boxes, labels = DETECTION["boxes"].encode([[0, 0, 2, 2]] * 2), DETECTION["labels"].encode(["cat", None])
    DETECTION.check_rows([None, boxes, labels, bytes(16)])
    with pytest.raises(ValueError, match=r"'area' is of 'boxes' and must have as many rows, 2\. Found: 3"):
        DETECTION.check_rows([None, boxes, labels, bytes(24)])


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"boxes": Of("box", Boxes())}, "no such field"),
        ({"boxes": Of("image", Boxes())}, "must be of kind boxes"),
        ({"boxes": Of("boxes", Boxes())}, "must be of kind boxes"),
        ({"boxes": Boxes(), "label": Of("boxes", Label())}, "must have rows"),
        ({"boxes": Boxes(), "pose": Of("boxes", Array("int8", (3,)))}, "must have rows"),
        ({"track": Array("int8", (None,)), "boxes": Of("track", Boxes())}, "must be of kind boxes"),
        ({"boxes": Boxes(), "a": Of("boxes", Labels()), "b": Of("a", Labels())}, "of no other field"),
    ],
)  # fmt: skip
def test_rows_of_fields_that_lead_none(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Schema.of({"image": Image(), **fields})


def test_words_with_a_leader() -> None:
    assert leader_of("labels of boxes") == ("labels", "boxes")
    assert leader_of("array(float64, (None,)) of my boxes") == ("array(float64, (None,))", "my boxes")
    assert leader_of("label(classes=['piece of cake'])") == ("label(classes=['piece of cake'])", None)
    assert leader_of("labels(classes=['piece of cake']) of boxes") == (
        "labels(classes=['piece of cake'])",
        "boxes",
    )
    assert leader_of("boxes") == ("boxes", None)


def test_sources_are_said_and_not_compared() -> None:
    field = Field("labels", Labels(CLASSES), None, {"info": {"year": 2017}})
    assert field.to_json()["source"] == {"info": {"year": 2017}}
    assert field == Field("labels", Labels(CLASSES))
    assert hash(field) == hash(Field("labels", Labels(CLASSES)))
    with pytest.raises(ValueError, match="source' must have finite numbers"):
        Field("labels", Labels(), None, {"a": float("nan")})
    plain = Schema((Field("image", Image(), None, {"folder": "val2017"}), Field("label", Label())))
    assert not plain.is_plain


@pytest.mark.parametrize(
    ("fields", "minor"),
    [
        ({"image": Image(), "label": Label()}, 0),
        ({"image": Image(), "boxes": Boxes(), "points": Keypoints(3)}, 1),
        ({"image": Image(), "labels": Labels()}, 2),
        ({"image": Image(), "captions": Texts()}, 2),
        ({"image": Image(), "masks": MIXED}, 2),
        ({"image": Image(), "points": Keypoints(3, pairs=((0, 1),))}, 2),
        ({"image": Image(), "boxes": Boxes(), "more": Of("boxes", Boxes())}, 2),
    ],
)
def test_versions(fields: dict[str, Any], minor: int) -> None:
    class Anywhere(dict[str, Any]):
        def __missing__(self, name: str) -> Any:
            from fastload.shard.manifest import ColumnFile

            return ColumnFile(name, 0, 0)

    assert minor_of(entries_of(Schema.of(fields), Anywhere())) == minor
