"""Conversations as data sets write them: read into turns, with a place for each picture."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

#: Who speaks in LLaVA's files; OpenAI's names are what templates know.
_SPEAKERS = {
    "human": "user",
    "user": "user",
    "gpt": "assistant",
    "assistant": "assistant",
    "system": "system",
}
#: Parts of a message that stand for a picture.
_PICTURES = {"image", "image_url", "input_image"}
_TEXTS = {"text", "input_text", "output_text"}
#: Keys under which whole rows keep their conversation.
_INSIDE = ("messages", "conversations", "texts")
_SHAPES = (
    "a list of {'user', 'assistant'}, of {'from', 'value'}, of {'role', 'content'}, or of texts with None "
    "for each picture"
)


@dataclass(frozen=True)
class Turn:
    """One message: who says it, and its texts, with None where a picture stands.

    Attributes:
        role: "user", "assistant", "system" or another name that the template knows; "" is a document,
            which nobody says and all of which is trained on.
        parts: texts, and None for each picture, in order.
        more: other keys of the message, for the template.
    """

    role: str
    parts: tuple[str | None, ...]
    more: Mapping[str, Any] = field(default_factory=dict)

    @property
    def pictures(self) -> int:
        """How many pictures stand in it."""
        return sum(part is None for part in self.parts)


def read_turns(
    value: Any, pictures: int, where: str = "the conversation", mark: str = "<image>"
) -> list[Turn]:
    """Return a conversation's turns, with a place for each of the sample's pictures.

    Args:
        value: JSON, as text or as Python objects, of one of these shapes:
            ``[{"user": ..., "assistant": ...}]`` (FineVision, The Cauldron); ``[{"from": "human", "value":
            ...}]`` (LLaVA) with ``mark`` where a picture stands; ``[{"role": ..., "content": ...}]`` (OpenAI,
            Hugging Face) with text or a list of parts; texts with None for each picture (OBELICS). A row
            that has one of them under "messages", "conversations" or "texts" is looked into.
        pictures: how many pictures the sample has.
        where: sample and field, for messages.
        mark: what stands for a picture in a text. Texts around it are kept to the last space.

    Pictures of pairs without marks come before the first question.

    Raises:
        ValueError: the shape is not known, or the places are not as many as the pictures.
    """
    turns = _turns(_parsed(value, where), pictures, where, mark)
    places = sum(turn.pictures for turn in turns)
    if places != pictures:
        many = "too many" if places > pictures else "too few"
        raise ValueError(
            f"{where}: {places} places for pictures, and the sample has {pictures}: {many}. Each picture "
            f"needs one place ({mark!r} in a text, a part of the type 'image', or None between texts). Mend "
            "the sample, or leave it out."
        )
    return turns


def _parsed(value: Any, where: str) -> Any:
    if not isinstance(value, (str, bytes, bytearray)):
        return value
    try:
        return json.loads(value)
    except ValueError as error:
        raise ValueError(
            f"{where}: the conversation is a text that is no JSON ({error}). Found: {_short(value)}. Give "
            f"JSON of {_SHAPES}."
        ) from None


def _turns(value: Any, pictures: int, where: str, mark: str) -> list[Turn]:
    if isinstance(value, Mapping):
        inside = [name for name in _INSIDE if name in value]
        if len(inside) != 1:
            raise _unknown(where, f"a mapping with the keys {_names(value)}")
        return _turns(_parsed(value[inside[0]], where), pictures, where, mark)
    if not isinstance(value, Sequence) or isinstance(value, (str, bytes)):
        raise _unknown(where, f"{type(value).__name__}")
    if not value:
        raise _unknown(where, "an empty list")
    if all(item is None or isinstance(item, str) for item in value):
        return [Turn("", tuple(value))]
    for keys, reader in _READERS:
        if all(isinstance(item, Mapping) and keys <= item.keys() for item in value):
            return reader(value, pictures, where, mark)
    odd = next((item for item in value if isinstance(item, Mapping)), value[0])
    keys_found = f"the keys {_names(odd)}" if isinstance(odd, Mapping) else type(odd).__name__
    raise _unknown(where, f"a list with {keys_found}")


def _pairs(value: Sequence[Any], pictures: int, where: str, mark: str) -> list[Turn]:
    """Read FineVision's pairs of question and answer."""
    turns = []
    for number, item in enumerate(value):
        for role in ("system", "user", "assistant"):
            if item.get(role) is not None:
                text = _text(item[role], f"{where}, turn {number}, {role!r}")
                turns.append(Turn(role, _split(text, mark)))
    if pictures and not any(turn.pictures for turn in turns):
        first = next((number for number, turn in enumerate(turns) if turn.role == "user"), None)
        if first is not None:
            turns[first] = Turn("user", (None,) * pictures + turns[first].parts)
    return turns


def _spoken(value: Sequence[Any], pictures: int, where: str, mark: str) -> list[Turn]:
    """Read LLaVA's conversations."""
    turns = []
    for number, item in enumerate(value):
        speaker = item["from"]
        role = _SPEAKERS.get(speaker) if isinstance(speaker, str) else None
        if role is None:
            raise ValueError(
                f"{where}, turn {number}: 'from' must be one of {', '.join(_SPEAKERS)}. Found: {speaker!r}."
            )
        turns.append(Turn(role, _split(_text(item["value"], f"{where}, turn {number}, 'value'"), mark)))
    return turns


def _messages(value: Sequence[Any], pictures: int, where: str, mark: str) -> list[Turn]:
    """Read messages as chat templates take them."""
    turns = []
    for number, item in enumerate(value):
        at = f"{where}, message {number}"
        role, content = item["role"], item["content"]
        if not isinstance(role, str) or not role:
            raise ValueError(f"{at}: 'role' must be a text. Found: {role!r}.")
        more = {
            key: kept for key, kept in item.items() if key not in ("role", "content") and kept is not None
        }
        if content is None or isinstance(content, str):
            parts = _split(content or "", mark)
        elif isinstance(content, Sequence):
            parts = tuple(_part(part, at) for part in content)
        else:
            raise ValueError(
                f"{at}: 'content' must be a text or a list of parts. Found: {type(content).__name__}."
            )
        turns.append(Turn(role, parts, more))
    return turns


_READERS: tuple[tuple[set[str], Callable[[Sequence[Any], int, str, str], list[Turn]]], ...] = (
    ({"user", "assistant"}, _pairs),
    ({"from", "value"}, _spoken),
    ({"role", "content"}, _messages),
)


def _part(part: Any, at: str) -> str | None:
    if isinstance(part, str):
        return part
    kind = part.get("type") if isinstance(part, Mapping) else None
    if isinstance(kind, str) and kind in _PICTURES:
        return None
    if isinstance(kind, str) and kind in _TEXTS:
        return _text(part.get("text"), f"{at}, a part of the type {kind!r}")
    found = f"the keys {_names(part)}, type {kind!r}" if isinstance(part, Mapping) else type(part).__name__
    raise ValueError(
        f"{at}: a part must be of the type 'text' or 'image'. Found: {found}. Videos and sounds are not read."
    )


def _split(text: str, mark: str) -> tuple[str | None, ...]:
    parts: list[str | None] = []
    for number, piece in enumerate(text.split(mark)):
        if number:
            parts.append(None)
        if piece:
            parts.append(piece)
    return tuple(parts)


def _text(value: Any, at: str) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{at} must be a text. Found: {type(value).__name__}.")
    return value


def _unknown(where: str, found: str) -> ValueError:
    return ValueError(
        f"{where}: a conversation must be {_SHAPES}. Found: {found}. Name the field that has it (turns=...), "
        "or write it in one of these shapes."
    )


def _names(value: Mapping[Any, Any]) -> str:
    return ", ".join(map(repr, value)) or "(none)"


def _short(text: str | bytes | bytearray) -> str:
    text = text if isinstance(text, str) else bytes(text).decode(errors="replace")
    return repr(text if len(text) <= 60 else f"{text[:57]}...")
