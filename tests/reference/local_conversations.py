"""Conversations about pictures, what a processor of transformers makes of them, and small models for them."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import torch
import transformers
from local_processors import WORDS
from pictures import picture
from PIL import Image as PilImage

__all__ = ["conversation", "grids_of", "images", "reference", "small_model", "words"]

#: What stands between words: newlines that may merge with those of frames, none, some.
GAPS = [" ", " ", " ", "\n", "\n\n", "\n\n\n", "", ". ", "?\n\n", "  "]


def words(draw: random.Random) -> str:
    """A text that may begin and end with newlines and spaces."""
    made = draw.choice(["", "", "\n", "\n\n", " "])
    for _ in range(draw.randint(1, 9)):
        made += draw.choice(WORDS) + draw.choice(GAPS)
    return made


def conversation(draw: random.Random, pictures: int, rounds: int) -> list[dict[str, Any]]:
    """Messages with parts: pictures anywhere in questions, texts of all kinds between them."""
    messages: list[dict[str, Any]] = []
    if draw.random() < 0.2:
        messages.append({"role": "system", "content": [{"type": "text", "text": "You see."}]})
    where = sorted(draw.randrange(rounds) for _ in range(pictures))
    for number in range(rounds):
        parts: list[dict[str, str]] = [{"type": "image"}] * where.count(number)
        parts += [{"type": "text", "text": words(draw)} for _ in range(draw.randint(1, 3))]
        draw.shuffle(parts)
        messages.append({"role": "user", "content": parts})
        messages.append({"role": "assistant", "content": [{"type": "text", "text": words(draw)}]})
    return messages


def images(draw: random.Random, count: int) -> list[PilImage.Image]:
    """Pictures of any shape."""
    sizes = [(draw.randint(20, 150), draw.randint(20, 150)) for _ in range(count)]
    return [picture(draw.randrange(1000), *size) for size in sizes]


def grids_of(processor: Any, pictures: Sequence[PilImage.Image]) -> list[tuple[int, ...]]:
    """What the family's image processor says about each picture."""
    if not pictures:
        return []
    name = type(processor).__name__
    if "Llava" in name:
        return [(image.height, image.width) for image in pictures]
    if "Pali" in name:
        return [()] * len(pictures)
    more = {"return_row_col_info": True} if name in ("Idefics3Processor", "SmolVLMProcessor") else {}
    made = processor.image_processor([list(pictures)] if more else list(pictures), **more)
    if more:
        return list(zip(made["rows"][0], made["cols"][0], strict=True))
    if "Qwen" in name:
        return [tuple(int(n) for n in grid) for grid in made["image_grid_thw"]]
    return [(int(n),) for n in made["num_crops" if "Gemma" in name else "num_patches"]]


def reference(processor: Any, messages: Any, pictures: list[PilImage.Image]) -> dict[str, Any]:
    """What the processor makes of the template's text and the pictures."""
    text = processor.apply_chat_template(messages, tokenize=False)
    begins = text.startswith(processor.tokenizer.bos_token)
    nested = [pictures] if pictures else None
    made: dict[str, Any] = processor(text=[text], images=nested, add_special_tokens=not begins)
    return made


# ---- Models -----------------------------------------------------------------------------------------

_TEXT = {
    "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "vocab_size": 1000, "max_position_embeddings": 4096,
}  # fmt: skip


def small_model(family: str, attention: str = "sdpa") -> Any:
    """A random model of the family, in float32."""
    torch.manual_seed(0)
    sections = {"type": "mrope", "rope_type": "default", "mrope_section": [1, 1, 2]}
    text = {**_TEXT, "rope_scaling": sections}
    if family == "Qwen2VL":
        vision = {"depth": 1, "embed_dim": 32, "hidden_size": 32, "num_heads": 2, "mlp_ratio": 2}
        config: Any = transformers.Qwen2VLConfig(text_config=text, vision_config=vision)
        made: Any = transformers.Qwen2VLForConditionalGeneration
    elif family == "Qwen2_5_VL":
        vision = {
            "depth": 1,
            "hidden_size": 32,
            "out_hidden_size": 32,
            "num_heads": 2,
            "intermediate_size": 32,
        }
        config = transformers.Qwen2_5_VLConfig(text_config=text, vision_config=vision)
        made = transformers.Qwen2_5_VLForConditionalGeneration
    else:
        vision = {
            "depth": 1,
            "hidden_size": 32,
            "out_hidden_size": 32,
            "num_heads": 2,
            "intermediate_size": 32,
        }
        vision |= {"deepstack_visual_indexes": [0], "num_position_embeddings": 64}
        text["head_dim"] = 8
        config = transformers.Qwen3VLConfig(text_config=text, vision_config=vision)
        made = transformers.Qwen3VLForConditionalGeneration
    config._attn_implementation = attention
    return made(config).eval()
