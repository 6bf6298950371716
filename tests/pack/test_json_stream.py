"""JSON read in parts, beside Python's json, which reads it whole."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastload.errors import PackError
from fastload.packing import json_stream
from fastload.packing.json_stream import array_elements, elements, value_of

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


@settings(max_examples=100, deadline=None)
@given(
    st.lists(VALUES, max_size=8), st.booleans(), st.sampled_from([None, 0, 1, "\t"]),
    st.sampled_from([1, 2, 5, 17, 100, 4 << 20]), st.booleans(),
)  # fmt: skip
def test_a_list_is_read_from_any_of_its_elements_on(
    values: list[Any], ascii_only: bool, indent: Any, window: int, mark: bool
) -> None:
    text = json.dumps(values, ensure_ascii=ascii_only, indent=indent)
    data = text.encode("utf-8-sig" if mark else "utf-8")
    with tempfile.NamedTemporaryFile() as file, mock.patch.object(json_stream, "_WINDOW", window):
        file.write(data)
        file.flush()
        found = [each for each in array_elements(Path(file.name)) if each.place >= 0]
        assert json.dumps([value_of(each.raw) for each in found]) == json.dumps(values)
        for place, each in enumerate(found):
            rest = [value_of(other.raw) for other in array_elements(Path(file.name), each.offset)]
            assert json.dumps(rest) == json.dumps(values[place:])


@pytest.mark.parametrize("text", ["", "{}", "[1", "[1,]", "[1 2]", "[1] 2", "[tru]", '["a]', "1"])
def test_what_is_no_list_is_refused(text: str, tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text(text)
    with pytest.raises(PackError, match="cannot be read as JSON, at byte"):
        list(array_elements(path))
