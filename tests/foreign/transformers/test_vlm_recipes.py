"""The adapter for Qwen's finetuning script in docs/guide/vlm-recipes.md gives what its flat collator makes.

The script itself needs a GPU. Its collator lays documents end to end: ids (1, L), where documents begin as
attention_mask, positions (3, 1, L) by ``get_rope_index`` of each document, pictures one behind another.
"""

from __future__ import annotations

import io
import random
import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from local_conversations import conversation, images, reference, small_model
from local_processors import made_processor

import fastload

PAGE = Path(__file__).resolve().parents[3] / "docs" / "guide" / "vlm-recipes.md"


def as_qwen(batch: Any) -> Any:
    """As the page has it."""
    (code,) = re.findall(r"^```python\n(def as_qwen.*?)^```", PAGE.read_text(encoding="utf-8"), re.M | re.S)
    names: dict[str, Any] = {}
    exec(compile(code, str(PAGE), "exec"), names)
    return names["as_qwen"](batch)


def test_the_adapter_gives_what_the_collator_of_qwens_script_makes(tmp_path: Path) -> None:
    processor, draw, samples = made_processor("Qwen2_5_VL", "merging"), random.Random(4), []
    rope = small_model("Qwen2_5_VL").model.get_rope_index
    for _ in range(20):
        count = draw.choice([0, 1, 2])
        samples.append((conversation(draw, count, 2), images(draw, count)))
    rows = []
    for messages, pictures in samples:
        files = [io.BytesIO() for _ in pictures]
        for file, picture in zip(files, pictures, strict=True):
            picture.save(file, "PNG")
        rows.append({"images": [file.getvalue() for file in files], "messages": messages})
    fastload.pack(rows, tmp_path / "set", schema={"images": "images", "messages": "json"}, num_proc=1)
    chat = fastload.Chat(processor, "messages", layout="flat")
    vision = fastload.Vision(processor)
    lengths = chat.lengths(tmp_path / "set", vision)
    packs = fastload.PackingSampler(lengths.tokens, int(lengths.tokens.max()) + 50)
    compared = 0
    for batch in fastload.DataLoader(tmp_path / "set", 2, sampler=packs, transform=vision, text=chat, seed=0):
        found = as_qwen(batch)
        length = packs.tokens * len(batch["valid"])
        ends = found["attention_mask"]
        assert found["input_ids"].shape == found["labels"].shape == (1, length)
        assert found["position_ids"].shape == (3, 1, length)
        assert (ends.dtype, ends[0], ends[-1]) == (torch.int32, 0, length)
        documents = [int(one) for pack in batch["documents"].to_list() for one in pack]
        grids, spans = [], list(pairwise(ends.tolist()))
        for sample in documents:
            messages, pictures = samples[sample]
            made = {
                name: torch.as_tensor(value)
                for name, value in reference(processor, messages, pictures).items()
            }
            begin, end = next(
                span
                for span in spans
                if span[1] - span[0] == made["input_ids"].shape[1]
                and torch.equal(found["input_ids"][0, span[0] : span[1]], made["input_ids"][0])
            )
            kinds = (made["input_ids"] == processor.image_token_id).int()
            grid = made.get("image_grid_thw", torch.empty((0, 3), dtype=torch.int64))
            wanted, _ = rope(made["input_ids"], kinds, image_grid_thw=grid)
            assert torch.equal(found["position_ids"][:, :, begin:end], wanted)
            grids.append(grid)
            compared += 1
        if not len(torch.cat(grids)):
            assert found["pixel_values"] is found["image_grid_thw"] is None
            continue
        assert torch.equal(found["image_grid_thw"], torch.cat(grids))
        assert len(found["pixel_values"]) == int(found["image_grid_thw"].prod(1).sum())
    assert compared == len(samples)


def test_a_mark_with_its_newline_takes_the_newline_away() -> None:
    """As the script's ``_build_messages``, which strips texts around pictures."""
    processor = made_processor("Qwen2VL", "merging")
    turns = [{"from": "human", "value": "<image>\nwhat is it?"}, {"from": "gpt", "value": "a house"}]
    kept = fastload.Chat(processor).document(turns, [(4, 4)])
    stripped = fastload.Chat(processor, mark="<image>\n").document(turns, [(4, 4)])
    plain = fastload.Chat(processor).document(
        [{**turns[0], "value": "<image>what is it?"}, turns[1]], [(4, 4)]
    )
    assert stripped.input_ids.tolist() == plain.input_ids.tolist() != kept.input_ids.tolist()
