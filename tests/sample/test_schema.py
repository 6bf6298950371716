"""Kinds of fields and schemas: what is legal, what they say of themselves, and how they are written."""

from __future__ import annotations

import pickle
import re
import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import fastload
from fastload._native import _C
from fastload.sample.fields import (
    DTYPES,
    STORED_KINDS,
    Array,
    Boxes,
    Bytes,
    Image,
    Images,
    Json,
    Keypoints,
    Kind,
    Label,
    Labels,
    Mask,
    Polygons,
    Scalar,
    Text,
    Texts,
    kind_of,
    words_of,
)
from fastload.sample.schema import MAX_FIELDS, Field, Schema

ROOT = Path(__file__).resolve().parents[2]
SAMPLES: list[Kind] = [
    Image(), Image(1, 16), Mask(), Mask(16, ("sky", "road"), 65535), Label(), Label(("a", "b")),
    *(Scalar(dtype) for dtype in DTYPES), Array("float32", (None, 5)), Array("uint8", (3, 4)),
    Boxes("cxcywh", True), Polygons(), Polygons("rle"), Keypoints(17), Keypoints(5, False),
    Text(), Bytes(), Json(), Labels(), Labels(("a", "b")), Labels(("a", "b"), (7, -3)), Texts(),
    Polygons("mixed"), Keypoints(4, True, ((0, 3), (1, 2))), Image(exif="turn"), Image(1, alpha="white"),
    Images(exif="turn", alpha="white"),
]  # fmt: skip


def test_the_table_of_kinds_is_the_cores() -> None:
    source = (ROOT / "csrc/core/sample/kinds.h").read_text()
    rows = re.findall(r'\{"(\w+)", FieldKind::k(\w+), Storage::k(\w+)\}', source)
    numbers = dict(re.findall(r"k(\w+) = (\d+),", source))
    assert {name: (int(numbers[kind]), storage.lower()) for name, kind, storage in rows} == _C.FIELD_KINDS
    assert list(STORED_KINDS) == sorted(_C.FIELD_KINDS, key=lambda name: _C.FIELD_KINDS[name][0])
    others = {name: cls.name for name, cls in STORED_KINDS.items() if cls.name != name}
    assert others == {"picture": "image", "pictures": "images"}


def test_the_formats_table_is_the_cores() -> None:
    text = (ROOT / "FORMAT.md").read_text(encoding="utf-8")
    rows = re.findall(
        r"^\| (\d+) \| `(\w+)` \|([^|]*)\| (record|records|fixed|ragged)[:.]", text, re.MULTILINE
    )
    assert {name: int(number) for number, name, _, _ in rows} == {
        name: number for name, (number, _) in _C.FIELD_KINDS.items()
    }
    for _, name, settings, storage in rows:
        assert storage == _C.FIELD_KINDS[name][1]
        for setting in fields(STORED_KINDS[name]):
            older = STORED_KINDS[name].name == name and setting.name in ("exif", "alpha")
            assert (f"`{setting.name}`" in settings) != older, name


@pytest.mark.parametrize("kind", SAMPLES, ids=str)
def test_kinds_are_values(kind: Kind) -> None:
    assert Kind.from_json(kind.to_json()) == kind
    assert Kind.from_json({**kind.to_json(), "file": "field-03.fli", "unknown": 1}) == kind
    assert pickle.loads(pickle.dumps(kind)) == kind
    assert hash(kind) == hash(Kind.from_json(kind.to_json()))
    if not getattr(kind, "classes", ()):
        assert kind_of(words_of(kind)) == kind
    for other in SAMPLES:
        assert (other == kind) == (other is kind)


@pytest.mark.parametrize(
    ("kind", "storage", "dtype", "shape"),
    [
        (Image(3, 16), "record", "<u2", (3,)), (Mask(), "record", "u1", ()), (Label(), "fixed", "<i4", ()),
        (Scalar("bool"), "fixed", "?", ()), (Array("int64", (2, 3)), "fixed", "<i8", (2, 3)),
        (Array("int64", (None, 3)), "ragged", "<i8", (3,)), (Array("float16", (None,)), "ragged", "<f2", ()),
        (Boxes(), "ragged", "<f4", (4,)), (Keypoints(17), "ragged", "<f4", (17, 3)),
        (Keypoints(17, visibility=False), "ragged", "<f4", (17, 2)), (Polygons(), "ragged", "u1", ()),
        (Text(), "ragged", "u1", ()), (Bytes(), "ragged", "u1", ()), (Json(), "ragged", "u1", ()),
    ],
)  # fmt: skip
def test_storage(kind: Kind, storage: str, dtype: str, shape: tuple[int, ...]) -> None:
    assert (kind.storage, kind.item_dtype, kind.item_shape) == (storage, np.dtype(dtype), shape)
    assert kind.item_bytes == np.dtype(dtype).itemsize * int(np.prod(shape))
    assert kind.has_rows == (storage == "ragged" and kind.name in ("array", "boxes", "keypoints"))


@pytest.mark.parametrize(
    ("dtype", "name"),
    [(np.float32, "float32"), (torch.int16, "int16"), (float, "float64"), ("<u4", "uint32"), (bool, "bool")],
)
def test_dtypes_by_any_name(dtype: Any, name: str) -> None:
    assert Scalar(dtype) == Scalar(name)
    assert Array(dtype, 3) == Array(name, (3,))


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Image(0), "Image: channels must be an integer from 1 to 255. Found: 0."),
        (lambda: Image(True), "channels must be an integer"),
        (lambda: Image(bits=12), "Image: bits must be 8 or 16. Found: 12."),
        (lambda: Mask(ignore=256), "ignore must be an integer from 0 to 255. Found: 256."),
        (lambda: Mask(classes=tuple(map(str, range(257)))), "Found: 257 classes"),
        (lambda: Mask(classes="abc"), "classes must be a sequence of str"),
        (lambda: Label((1, 2)), "classes must be a sequence of str"),
        (lambda: Scalar("complex64"), "Scalar: dtype must be one of bool, int8"),
        (lambda: Scalar(None), "dtype must be one of"),
        (lambda: Scalar("i4,f4"), "dtype must be one of"),
        (lambda: Array("int8", ()), "for one number use Scalar"),
        (lambda: Array("int8", (3, None)), "of which the first may be None"),
        (lambda: Array("int8", (0, 3)), "sides of at least 1"),
        (lambda: Array("int8", (2**20, 2**20)), "at most 1073741824 bytes"),
        (lambda: Boxes("yxyx"), "'xyxy' or 'xywh' or 'cxcywh'. Found: 'yxyx'."),
        (lambda: Boxes(relative=1), "False or True. Found: 1."),
        (lambda: Polygons("mask"), "'polygons' or 'rle' or 'mixed'. Found: 'mask'."),
        (lambda: Keypoints(0), "points must be an integer from 1 to 65535"),
        (lambda: kind_of("boxes(xyxy, true, 3)"), "format, relative"),
        (lambda: kind_of("box"), "must be one of image, mask"),
        (lambda: kind_of("boxes(__import__('os'))"), "A kind is a name with settings"),
        (lambda: kind_of("boxes("), "A kind is a name with settings"),
        (lambda: kind_of("scalar"), "scalar has the settings dtype"),
        (lambda: Kind.from_json({"kind": "boxes"}), "needs 'format', 'relative'"),
        (lambda: Kind.from_json({"kind": ["boxes"]}), "'kind' must be one of"),
    ],
)
def test_illegal_settings(make: Any, words: str) -> None:
    with pytest.raises(ValueError, match=re.escape(words)):
        make()


def test_illegal_kinds() -> None:
    for wrong in (3, None, object, Kind):
        with pytest.raises(TypeError, match="A field's kind must be"):
            kind_of(wrong)


def test_words_of_kinds() -> None:
    assert words_of(Boxes("xywh", relative=True)) == "boxes(xywh, relative=True)"
    assert words_of(Array("float32", (None, 5))) == "array(float32, (None, 5))"
    assert (
        kind_of("float32") == kind_of("scalar(float32)") == kind_of("scalar('float32')") == Scalar("float32")
    )
    assert kind_of("array(float32, [None, 5])") == Array("float32", (None, 5))
    assert kind_of(Text) == kind_of("text") == kind_of({"kind": "text"}) == Text()


FIELDS = {"left": Image(), "right": Image(), "sense": Label(("a", "b")), "other": Label(), "depth": Mask(16)}


def test_schemas_from_anything() -> None:
    schema = Schema.of(FIELDS)
    assert schema == Schema.of(list(FIELDS.items())) == Schema.of(list(schema)) == Schema.of(schema)
    assert schema == Schema.from_json(schema.to_json()) == Schema.of([field.to_json() for field in schema])
    assert schema != Schema.of(dict(reversed(FIELDS.items())))
    assert Schema.of({"image": "image", "x": "array(int8, (None,))"})["x"] == Field(
        "x", Array("int8", (None,))
    )
    assert pickle.loads(pickle.dumps(schema)) == schema
    assert fastload.Schema is Schema
    assert fastload.Boxes is Boxes


def test_what_lies_where() -> None:
    schema = Schema.of(FIELDS)
    assert schema.index_field.name == "left"
    assert schema.label_field is not None
    assert schema.label_field.name == "sense"
    assert [(number, field.name) for number, field in schema.columns] == [
        (1, "right"),
        (3, "other"),
        (4, "depth"),
    ]
    assert schema.position("depth") == 4
    with pytest.raises(KeyError, match=r"no field 'x'. Fields: left, right"):
        schema["x"]
    masks = Schema.of({"text": Text(), "a": Mask(), "b": Mask()})
    assert masks.index_field.name == "a"
    assert masks.label_field is None
    assert [number for number, _ in masks.columns] == [0, 2]


def test_plain() -> None:
    assert Schema.plain().is_plain
    assert Schema.of({"image": Image(), "label": Label(("a",))}).is_plain
    for other in (
        {"label": Label(), "image": Image()}, {"image": Image()}, {"picture": Image(), "label": Label()},
        {"image": Image(1), "label": Label()}, {"image": Image(), "label": Label(), "text": Text()},
        {"image": Mask(), "label": Label()}, {"image": Image(), "label": Scalar("int64")},
    ):  # fmt: skip
        assert not Schema.of(other).is_plain


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({}, "A schema has 1 to 100 fields. Found: 0."),
        ([("a", Image()), ("a", Text())], "Found twice: a."),
        ({"a": Image(), "a_sizes": Text()}, "sizes of the pictures of 'a'"),
        ({f"a{number}": Image() for number in range(MAX_FIELDS + 1)}, "has 1 to 100 fields. Found: 101."),
        *(
            ({name: Image()}, "A field's name must")
            for name in ("", ".", "..", ".a", "a/b", "a\0", "a\nb", "\ud800", "valid", "ü" * 65)
        ),
        ({3: Image()}, "A field's name must be a str. Found: 3."),
        ([{"kind": "image"}], "A field needs a 'name'"),
    ],
)
def test_illegal_schemas(fields: Any, words: str) -> None:
    with pytest.raises(ValueError, match=re.escape(words)):
        Schema.of(fields)


@pytest.mark.parametrize("wrong", ["image", b"image", 3, None, [3], [("a", Image(), 1)]])
def test_no_schemas(wrong: Any) -> None:
    with pytest.raises(TypeError, match=r"A schema is|A field is"):
        Schema.of(wrong)


def test_sizes_are_a_name_like_any_where_there_is_no_picture() -> None:
    assert Schema.of({"a": Image(), "b": Text(), "b_sizes": Text()}).names == ("a", "b", "b_sizes")


def test_schemas_need_no_torch() -> None:
    code = "import sys, fastload as f; f.Schema.of({'a': f.Image()}); print('torch' in sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "False"
