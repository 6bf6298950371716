"""Conversations of all shapes, and the places of pictures in them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from fastload.vlm.turns import Turn, read_turns

ANSWER = Turn("assistant", ("a dog",))
SHAPES: dict[str, tuple[Any, int, list[Turn]]] = {
    "pairs": ([{"user": "what?", "assistant": "a dog"}], 2, [Turn("user", (None, None, "what?")), ANSWER]),
    "pairs with marks": (
        [{"user": "a <image> b", "assistant": "a dog", "source": "x"}],
        1,
        [Turn("user", ("a ", None, " b")), ANSWER],
    ),
    "pairs of two rounds": (
        [{"user": "what?", "assistant": "a dog"}, {"user": "sure?", "assistant": "a dog"}],
        1,
        [Turn("user", (None, "what?")), ANSWER, Turn("user", ("sure?",)), ANSWER],
    ),
    "pairs and a system": (
        [{"system": "be kind", "user": "what?", "assistant": "a dog"}],
        1,
        [Turn("system", ("be kind",)), Turn("user", (None, "what?")), ANSWER],
    ),
    "llava": (
        [{"from": "human", "value": "<image>\nwhat?"}, {"from": "gpt", "value": "a dog"}],
        1,
        [Turn("user", (None, "\nwhat?")), ANSWER],
    ),
    "messages of texts": (
        [
            {"role": "user", "content": "<image>what?<image>"},
            {"role": "assistant", "content": "a dog", "x": 1},
        ],
        2,
        [Turn("user", (None, "what?", None)), Turn("assistant", ("a dog",), {"x": 1})],
    ),
    "messages of parts": (
        [
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "see "},
                    {"type": "image_url", "image_url": {"url": "a"}},
                    {"type": "image"},
                ],
            },
            {"role": "assistant", "content": [{"type": "text", "text": "a dog"}], "tool_calls": None},
        ],
        2,
        [Turn("user", ("see ", None, None)), ANSWER],
    ),
    "a document": ([None, "a house", None, "<image>"], 2, [Turn("", (None, "a house", None, "<image>"))]),
    "a row": ({"id": 1, "conversations": [{"from": "gpt", "value": "a dog"}]}, 0, [ANSWER]),
    "a row of json": ({"messages": '[{"role": "assistant", "content": "a dog"}]'}, 0, [ANSWER]),
}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("form", ["objects", "text", "bytes"])
def test_shapes(shape: str, form: str) -> None:
    value, pictures, wanted = SHAPES[shape]
    if form != "objects":
        value = json.dumps(value)
    assert read_turns(value.encode() if form == "bytes" else value, pictures) == wanted


#: Pairs without marks take any number of pictures.
STRICT = [
    name for name, (_, count, _) in SHAPES.items() if count and ("pairs" not in name or "marks" in name)
]


@pytest.mark.parametrize("shape", STRICT)
@pytest.mark.parametrize(("more", "words"), [(1, "too few"), (-1, "too many")])
def test_places_and_pictures_must_be_as_many(shape: str, more: int, words: str) -> None:
    value, pictures, _ = SHAPES[shape]
    where = "'texts' of sample 9"
    with pytest.raises(
        ValueError, match=f"{where}: {pictures} places.*sample has {pictures + more}: {words}"
    ):
        read_turns(value, pictures + more, where)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ([{"question": "a", "answer": "b"}], "Found: a list with the keys 'question', 'answer'"),
        ({"id": 1, "text": "b"}, "Found: a mapping with the keys 'id', 'text'"),
        ({"messages": [], "texts": []}, "Found: a mapping with the keys 'messages', 'texts'"),
        ([], "Found: an empty list"),
        (7, "Found: int"),
        ([1, 2], "Found: a list with int"),
        ("a dog", "a text that is no JSON.*Found: 'a dog'"),
        (b"\xff\xfe\xfd", "a text that is no JSON.*Found: "),
        ("7", "Found: int"),
        ([{"from": "bot", "value": "a"}], "turn 0: 'from' must be one of human.*Found: 'bot'"),
        ([{"from": ["gpt"], "value": "a"}], r"turn 0: 'from' must be one of human.*Found: \['gpt'\]"),
        ([{"from": "gpt", "value": 7}], "turn 0, 'value' must be a text. Found: int"),
        (
            [{"role": "user", "content": [{"type": ["image"]}]}],
            "a part must be of the type 'text' or 'image'",
        ),
        ([{"role": "", "content": "a"}], "message 0: 'role' must be a text. Found: ''"),
        (
            [{"role": "user", "content": 5}],
            "message 0: 'content' must be a text or a list of parts. Found: int",
        ),
        ([{"role": "user", "content": [{"type": "video"}]}], "Found: the keys 'type', type 'video'"),
        ([{"role": "user", "content": [{"type": "text"}]}], "type 'text' must be a text. Found: NoneType"),
        ([{"user": ["a"], "assistant": "b"}], "turn 0, 'user' must be a text. Found: list"),
    ],
)
def test_other_shapes_are_refused(value: Any, message: str) -> None:
    with pytest.raises(ValueError, match=f"^sample 4.*{message}"):
        read_turns(value, 0, "sample 4")


def test_another_mark() -> None:
    turns = read_turns([{"user": "<image> or <picture>?", "assistant": "a dog"}], 1, mark="<picture>")
    assert turns[0].parts == ("<image> or ", None, "?")
