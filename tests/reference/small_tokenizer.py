"""A tokenizer and a processor of a few lines, which behave as those of transformers do towards Chat."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

__all__ = ["OWN", "Qwen2VLProcessor", "SmallTokenizer"]

OWN = (
    "<|image_pad|>", "<|vision_start|>", "<|vision_end|>", "<|im_start|>", "<|im_end|>", "<image>",
    "<fake_token_around_image>", "<global-img>",
)  # fmt: skip
_WORD = re.compile(r"\n\n| ?\w+|.", re.DOTALL)  # two newlines are one token
_FIRST = 100  # the id of the first word


class SmallTokenizer:
    """Words, and two newlines, are tokens; ids are given as words come, in one table for all."""

    bos_token, eos_token = None, "<|im_end|>"
    pad_token_id, eos_token_id = 0, 5
    _ids: Mapping[str, int] = {}

    def __init__(self, own: Sequence[str] = OWN, template: str = "chatml") -> None:
        self.own = {name: number for number, name in enumerate(own, 1)}
        self.words: dict[str, int] = {}
        self.chat_template = template
        self._split = re.compile("(" + "|".join(map(re.escape, own)) + ")")

    def get_added_vocab(self) -> dict[str, int]:
        return dict(self.own)

    def get_vocab(self) -> dict[str, int]:
        return {**self.own, "plain": _FIRST}

    def __call__(self, text: str, add_special_tokens: bool, return_offsets_mapping: bool) -> dict[str, Any]:
        ids, places, at = [], [], 0
        for piece in self._split.split(text):
            for word in [piece] if piece in self.own else _WORD.findall(piece):
                known = self.own.get(word)
                number = self.words.setdefault(word, _FIRST + len(self.words)) if known is None else known
                ids.append(number)
                places.append((at, at + len(word)))
                at += len(word)
        return {"input_ids": ids, "offset_mapping": places}

    def text(self, ids: Sequence[int]) -> str:
        """The text of ids."""
        names = {number: word for word, number in (*self.own.items(), *self.words.items())}
        return "".join(names[int(number)] for number in ids)

    def apply_chat_template(
        self, messages: Sequence[Mapping[str, Any]], tokenize: bool, add_generation_prompt: bool, **more: Any
    ) -> str:
        return rendered(messages, add_generation_prompt, self.chat_template, more)


def rendered(
    messages: Sequence[Mapping[str, Any]], prompt: bool, template: str, more: Mapping[str, Any]
) -> str:
    """Qwen's template; "texts" takes no parts, and "written" writes them as Python does; "count" writes how
    many messages there are; "no prompt" begins no answer."""
    made = f"{len(messages)}\n" if template == "count" else str(more.get("system", ""))
    for message in messages:
        content = message["content"]
        if not isinstance(content, str):
            if template == "texts":
                raise TypeError("can only concatenate str")
            if template == "written":
                content = [{"type": "text", "text": str(content)}]
            image = "<|vision_start|><|image_pad|><|vision_end|>"
            content = "".join(image if part["type"] == "image" else part["text"] for part in content)
        made += f"<|im_start|>{message['role']}\n{content}<|im_end|>\n"
    return made + ("<|im_start|>assistant\n" if prompt and template != "no prompt" else "")


class Qwen2VLProcessor:
    """With what Chat reads of the one of transformers that has this name."""

    image_token = "<|image_pad|>"

    def __init__(self, template: str = "chatml", own: Sequence[str] = OWN) -> None:
        self.tokenizer = SmallTokenizer(own, template)
        self.chat_template = template
        self.image_processor = SimpleNamespace(merge_size=2)

    def apply_chat_template(self, messages: Sequence[Mapping[str, Any]], **options: Any) -> str:
        return self.tokenizer.apply_chat_template(messages, **options)
