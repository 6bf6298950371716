"""JSON read in parts, beside Python's json, which reads it whole."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any
from unittest import mock

from hypothesis import given, settings
from hypothesis import strategies as st

from fastload.packing.annotations import coco_file as json_stream
from fastload.packing.annotations.coco_file import elements, value_of

NUMBERS = st.integers() | st.floats(allow_nan=False, allow_infinity=False)
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)
TOP = st.fixed_dictionaries(
    {}, optional={"images": st.lists(VALUES, max_size=6), "annotations": st.lists(VALUES, max_size=6)}
)


@settings(max_examples=150, deadline=None)
@given(
    TOP, st.dictionaries(st.text(max_size=4), VALUES, max_size=3), st.booleans(),
    st.sampled_from([None, 0, 1, "\t"]), st.sampled_from([1, 2, 5, 17, 100, 4 << 20]), st.randoms(),
)  # fmt: skip
def test_parts_are_the_whole(
    lists: dict[str, Any], others: dict[str, Any], ascii_only: bool, indent: Any, window: int, draws: Any
) -> None:
    body = {**others, **lists}
    keys = list(body)
    draws.shuffle(keys)
    body = {key: body[key] for key in keys}
    data = json.dumps(body, ensure_ascii=ascii_only, indent=indent).encode("utf-8", "surrogatepass")
    found: dict[str, Any] = {}
    with tempfile.NamedTemporaryFile() as file, mock.patch.object(json_stream, "_WINDOW", window):
        file.write(data)
        file.flush()
        for element in elements(Path(file.name), ("images", "annotations")):
            if element.place < 0:
                found[element.key] = element.value
                continue
            assert element.raw == data[element.offset : element.offset + len(element.text)]
            assert element.place == len(found[element.key])
            found[element.key].append(value_of(element.raw))
    assert json.dumps(found) == json.dumps(body)
