"""Chat and Vision in a DataLoader, against the processors of transformers and a model's logits."""

from __future__ import annotations

import io
import random
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from local_conversations import conversation, images, reference, small_model
from local_processors import FAMILIES, made_processor
from PIL import Image

import fastload

COUNT = 24
TEMPLATES = [name for name, row in FAMILIES.items() if row[2] is not None]


def drawn(seed: int) -> list[tuple[list[dict[str, Any]], list[Image.Image]]]:
    """Conversations about none to three pictures."""
    draw = random.Random(seed)
    found = []
    for _ in range(COUNT):
        count = draw.choice([0, 1, 1, 2, 3])
        found.append((conversation(draw, count, draw.randint(1, 2)), images(draw, count)))
    return found


def png(image: Image.Image) -> bytes:
    file = io.BytesIO()
    image.save(file, "PNG")
    return file.getvalue()


def packed(folder: Path, samples: Any) -> Path:
    rows = [
        {"images": [png(image) for image in pictures], "messages": messages} for messages, pictures in samples
    ]
    fastload.pack(rows, folder, schema={"images": "images", "messages": "json"}, num_proc=1)
    return folder


def processor_of(family: str) -> Any:
    processor = made_processor(family, "merging")
    if family == "Gemma3Crops":  # its class turns pan and scan off, whatever its image processor says
        names = [name for name in vars(processor.image_processor) if "pan_and_scan" in name]
        chosen = {name: getattr(processor.image_processor, name) for name in names}
        processor.images_kwargs = {**processor.images_kwargs, **chosen}
    return processor


@pytest.mark.parametrize("family", TEMPLATES)
def test_batches_have_the_processors_tokens_and_pixels(family: str, tmp_path: Path) -> None:
    processor, samples = processor_of(family), drawn(3)
    chat, vision = fastload.Chat(processor, "messages"), fastload.Vision(processor)
    folder = packed(tmp_path / "set", samples)
    lengths = chat.lengths(folder, vision)
    seen = 0
    for batch in fastload.DataLoader(folder, 5, shuffle=True, seed=1, transform=vision, text=chat):
        for row, ids in enumerate(batch["documents"].to_list()):
            messages, pictures = samples[int(ids)]
            made = reference(processor, messages, pictures)
            wanted = torch.as_tensor(made["input_ids"])[0]
            assert torch.equal(batch["input_ids"][row, : len(wanted)], wanted)
            assert (batch["input_ids"][row, len(wanted) :] == chat.pad).all()
            assert batch["attention_mask"][row].sum() == len(wanted) == lengths.tokens[int(ids)]
            assert lengths.pictures[int(ids)] == len(pictures)
            seen += 1
    assert seen == COUNT


@pytest.mark.parametrize("layout", ["rows", "flat"])
def test_a_model_sees_each_document_alone(layout: str, tmp_path: Path) -> None:
    """A packed batch of the loader gives the logits that each sample has alone."""
    processor, samples = processor_of("Qwen2VL"), drawn(5)
    model = small_model("Qwen2VL", "sdpa")
    model.config.image_token_id = model.model.config.image_token_id = processor.image_token_id
    chat, vision = fastload.Chat(processor, "messages", layout=layout), fastload.Vision(processor)
    folder = packed(tmp_path / "set", samples)
    lengths = chat.lengths(folder, vision)
    tokens = int(lengths.tokens.max()) + 100
    packs = fastload.PackingSampler(lengths.tokens, tokens, costs=lengths.images)
    compared = 0
    for batch in fastload.DataLoader(folder, 2, sampler=packs, seed=1, transform=vision, text=chat):
        names = ("input_ids", "position_ids", "pixel_values", "image_grid_thw")
        with torch.no_grad():
            found = model(**{name: batch[name] for name in names}, use_cache=False).logits.flatten(0, 1)
        places = []
        for row, ids in enumerate(batch["documents"].to_list()):
            ends = [row * tokens, *(row * tokens + lengths.tokens[ids].cumsum())]
            places += zip(ids.tolist(), pairwise(ends), strict=True)
        assert {end for _, place in places for end in place} <= {*batch["cu_seqlens"].tolist()}
        for sample, (begin, end) in places:
            messages, pictures = samples[sample]
            made = reference(processor, messages, pictures)
            inputs = {key: torch.as_tensor(made[key]) for key in made if pictures or "mm_" not in key}
            with torch.no_grad():
                alone = model(**inputs).logits[0]
            assert float((found[begin:end] - alone).abs().max()) <= 1e-5
            compared += 1
    assert compared == COUNT
