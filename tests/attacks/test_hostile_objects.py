"""Fields of objects that lie: what goes with what, classes, and bytes that would be read past their end."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from attack_rules import Rule, breaks
from field_sets import republished, resealed, write_field_set
from pictures import encoded, picture

from fastload.errors import FormatError
from fastload.packing.verify import verify
from fastload.sample.fields import Array, Boxes, Image, Keypoints, Label, Labels, Polygons, Texts
from fastload.sample.schema import Of, Schema
from fastload.shard.columns import write_column
from fastload.shard.dataset import PackedFiles
from fastload.shard.manifest import Manifest

LEADER = Rule("FORMAT.md", "Fields", "The field is of one of these kinds, too, or an array of rows.")
LEGAL = Rule("FORMAT.md", "field-NN.fli", "It MUST NOT assume that the values are legal ones of their kind")

COUNT = 4
SCHEMA = Schema.of(
    {
        "image": Image(), "label": Label(("a",)), "boxes": Boxes(),
        "labels": Of("boxes", Labels(("cat", "dog"), (3, 4))), "area": Of("boxes", Array("float64", (None,))),
        "masks": Of("boxes", Polygons("mixed")), "points": Of("boxes", Keypoints(3, pairs=((0, 1),))),
        "captions": Texts(),
    }
)  # fmt: skip
SAMPLE = {
    "image": encoded(picture(seed=1, width=9, height=8)), "label": 0, "boxes": [[0, 0, 1, 1]], "labels": [1],
    "area": [1.0], "masks": [[[0, 0, 1, 0, 1, 1]]], "points": [[0] * 9], "captions": ["one"],
}  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_field_set(tmp_path / "set", SCHEMA, [SAMPLE] * COUNT)


LIES: dict[str, tuple[str, dict[str, Any]]] = {
    "of no field": ("labels", {"of": "box"}),
    "of a number": ("labels", {"of": 5}),
    "of a list": ("labels", {"of": ["boxes"]}),
    "of itself": ("boxes", {"of": "boxes"}),
    "of a field that is of another": ("area", {"of": "labels"}),
    "of a picture": ("area", {"of": "image"}),
    "a label of boxes": ("label", {"of": "boxes"}),
    "a label of a number": ("label", {"of": 7}),
    "a picture of boxes": ("image", {"of": "boxes"}),
    "ids of other classes": ("labels", {"ids": [3]}),
    "ids twice": ("labels", {"ids": [3, 3]}),
    "ids that are texts": ("labels", {"ids": ["3", "4"]}),
    "ids that are an object": ("labels", {"ids": {"3": 4}}),
    "ids of 2^63": ("labels", {"ids": [3, 2**63]}),
    "pairs beyond the points": ("points", {"pairs": [[0, 3]]}),
    "pairs that are no pairs": ("points", {"pairs": [[0, 1, 2]]}),
    "pairs that are a text": ("points", {"pairs": "01"}),
    "pairs of one point twice": ("points", {"pairs": [[0, 1], [0, 2]]}),
    "a source that is NaN": ("image", {"source": float("nan")}),
    "a format that there is not": ("masks", {"format": "mixed2"}),
}


@breaks(LEADER)
@pytest.mark.parametrize("lie", LIES)
def test_fields_that_lie_are_refused(folder: Path, lie: str) -> None:
    name, change = LIES[lie]
    entries = [dict(entry) for entry in Manifest.read(folder).fields]
    entries[SCHEMA.position(name)] |= change
    resealed(folder, entries)
    with pytest.raises(FormatError, match="'fields' is not valid"):
        PackedFiles(folder)


def words(*numbers: int) -> bytes:
    return struct.pack(f"<{len(numbers)}I", *numbers)


VALUES: dict[str, tuple[str, bytes]] = {
    "2^32 - 1 objects": ("masks", words(2**32 - 1)),
    "2^32 - 1 polygons": ("masks", words(1, 0, 2**32 - 1, 3)),
    "2^32 - 1 points": ("masks", words(1, 0, 1, 2**32 - 1)),
    "2^32 - 1 runs": ("masks", words(1, 1, 8, 9, 2**32 - 1)),
    "a form that there is not": ("masks", words(1, 7)),
    "runs beyond the picture": ("masks", words(1, 1, 1, 1, 2, 2**32 - 1, 2)),
    "points of 1e300": ("masks", words(1, 0, 1, 3) + struct.pack("<6d", 0, 0, 1, 0, 1e300, 1)),
    "points of NaN": ("masks", words(1, 0, 1, 3) + struct.pack("<6d", 0, 0, 1, 0, float("nan"), 1)),
    "two points": ("masks", words(1, 0, 1, 2) + struct.pack("<4d", 0, 0, 1, 0)),
    "2^32 - 1 texts": ("captions", words(2**32 - 1, 1)),
    "a text beyond the end": ("captions", words(1, 2**32 - 1) + b"abc"),
    "no UTF-8": ("captions", words(1, 1) + b"\xff"),
    "a class that there is not": ("labels", words(2)),
    "a row too many": ("labels", words(0, 0)),
}


@breaks(LEGAL)
@pytest.mark.parametrize("lie", VALUES)
def test_values_that_lie_are_found(folder: Path, lie: str) -> None:
    name, value = VALUES[lie]

    def write(path: Path, field: Any) -> Any:
        good = SCHEMA[name].encode(SAMPLE[name])
        lengths = np.array([len(good), len(value), len(good), len(good)])
        return write_column(path, field, COUNT, (), [lengths], [good + value + good * 2])

    republished(folder, name, write)
    problems = verify(folder)[0]
    assert {problem.sample for problem in problems} == {1}
    dataset = PackedFiles(folder)
    data = dataset.value_bytes(name, 1)
    assert data == value
    if name != "labels":
        with pytest.raises(FormatError):
            SCHEMA[name].check_bytes(data)
