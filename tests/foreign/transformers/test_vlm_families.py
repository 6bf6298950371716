"""Which models of transformers keep the documents of a pack apart, by their logits: docs/guide/chat.md."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from local_conversations import conversation, grids_of, images, reference
from local_processors import made_processor

from fastload.vlm.chat import Chat
from fastload.vlm.packed import Placed, packed_batch

SMALL = {"hidden_size": 32, "intermediate_size": 48, "num_attention_heads": 4}
TEXT = {**SMALL, "num_hidden_layers": 2, "num_key_value_heads": 2, "vocab_size": 1000}
VISION = {**SMALL, "num_hidden_layers": 1, "num_attention_heads": 2, "image_size": 28}
SIGLIP = {**VISION, "model_type": "siglip_vision_model"}
#: What each family's configuration has: 4 tokens a tile, 16 for LLaVA-OneVision.
CONFIGS: dict[str, dict[str, Any]] = {
    "Idefics3": {
        "text_config": {**TEXT, "model_type": "llama"},
        "vision_config": {**VISION, "patch_size": 14},
        "scale_factor": 1,
    },
    "InternVL": {
        "text_config": {**TEXT, "model_type": "qwen2"},
        "vision_config": {**VISION, "patch_size": 7},
        "downsample_ratio": 0.5,
        "image_seq_length": 4,
    },
    "LlavaOnevision": {
        "text_config": {**TEXT, "model_type": "qwen2"},
        "vision_config": {**SIGLIP, "patch_size": 7},
        "vision_feature_layer": -1,
        "vision_feature_select_strategy": "full",
    },
    "Gemma3": {
        "text_config": {**TEXT, "head_dim": 8},
        "vision_config": {**SIGLIP, "patch_size": 14},
        "mm_tokens_per_image": 4,
    },
    "PaliGemma": {
        "text_config": {**TEXT, "head_dim": 8, "model_type": "gemma"},
        "vision_config": {**SIGLIP, "patch_size": 14, "vision_use_head": False},
        "projection_dim": 32,
    },
}
CONFIGS["SmolVLM"] = CONFIGS["Idefics3"]


def made(family: str) -> tuple[Any, Any]:
    """A processor, and a random model that takes its batches."""
    processor = made_processor(family, "merging")
    if hasattr(processor, "image_seq_len"):  # Idefics3, SmolVLM
        processor.image_seq_len = 4
    token = processor.tokenizer.convert_tokens_to_ids(Chat(processor).frames.image)
    more = {"image_token_id": token, "image_token_index": token}
    if family == "LlavaOnevision":
        more["image_grid_pinpoints"] = processor.image_processor.image_grid_pinpoints
    torch.manual_seed(0)
    config = getattr(transformers, f"{family}Config")(**CONFIGS[family], **more)
    return processor, getattr(transformers, f"{family}ForConditionalGeneration")(config).eval()


def drawn(family: str, processor: Any, draw: random.Random) -> tuple[Any, Any, dict[str, torch.Tensor]]:
    """A conversation, its grids, and what the processor makes of it."""
    pictures = images(draw, 1)
    if family == "PaliGemma":
        turn = {"user": "what is in this picture", "assistant": "a red house " * draw.randint(1, 5)}
        found = processor(text=["<image>" + turn["user"]], images=[pictures], suffix=[turn["assistant"]])
        value: Any = [turn]
    else:
        value = conversation(draw, 1, 2)
        found = reference(processor, value, pictures)
    inputs = {name: torch.as_tensor(np.asarray(found[name])) for name in found}
    return value, grids_of(processor, pictures), inputs


def joined(family: str, name: str, values: list[torch.Tensor]) -> torch.Tensor:
    """The pictures of several samples as one batch has them."""
    if family in ("Idefics3", "SmolVLM"):
        return torch.cat([value.flatten(0, 1) for value in values])[None]
    if family == "LlavaOnevision" and name == "pixel_values":
        most = max(value.shape[1] for value in values)
        pad = torch.nn.functional.pad
        return torch.cat([pad(value, (*[0] * 6, 0, most - value.shape[1])) for value in values])
    return torch.cat(values)


@pytest.mark.parametrize("family", CONFIGS)
@pytest.mark.parametrize("cache", [False, True])
def test_who_keeps_documents_apart(family: str, cache: bool) -> None:
    processor, model = made(family)
    chat, draw = Chat(processor, "messages"), random.Random(1)
    pack, alone, pictures = [], [], []
    for number in range(3):
        value, grids, inputs = drawn(family, processor, draw)
        with torch.no_grad():
            given = {name: one for name, one in inputs.items() if name != "labels"}
            alone.append(model(**given).logits[0])
        pictures.append(inputs)
        pack.append(Placed(number, chat.document(value, grids)))
    batch = packed_batch([pack], sum(map(len, pack)) + 5, chat.pad, types=chat.frames.types)
    names = [name for name in ("pixel_values", "pixel_attention_mask", "image_sizes") if name in pictures[0]]
    given = {name: joined(family, name, [one[name] for one in pictures]) for name in names}
    given |= {name: batch[name] for name in ("input_ids", "position_ids", chat.frames.types) if name}
    with torch.no_grad():
        found = model(**given, use_cache=cache).logits[0]
    ends = batch["cu_seqlens"].tolist()
    furthest = [
        float((found[begin : begin + len(wanted)] - wanted).abs().max())
        for begin, wanted in zip(ends, alone, strict=False)
    ]
    apart = not cache and family not in ("Gemma3", "PaliGemma")
    assert len(furthest) == 3
    assert (max(furthest) <= 1e-5) == apart, furthest
    assert (max(furthest[1:]) > 1e-3) == (not apart), furthest
