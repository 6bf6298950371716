"""examples/vision_language.py: a small Qwen2-VL learns answers about drawn pictures, in packs."""

from __future__ import annotations

import io
import random
import runpy
from pathlib import Path

import pytest
from example_programs import EXAMPLES, losses_in
from local_conversations import images, small_model
from local_processors import made_processor

import fastload

COUNT = 24


def test_it_learns(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    draw, rows = random.Random(0), []
    for _ in range(COUNT):
        pictures = []
        for image in images(draw, draw.choice([0, 1, 1, 2])):
            file = io.BytesIO()
            image.save(file, "PNG")
            pictures.append(file.getvalue())
        turn = {"user": "what is in this picture", "assistant": "a red house " * draw.randint(1, 5)}
        rows.append({"images": pictures, "texts": [turn]})
    fastload.pack(rows, tmp_path / "set", schema={"images": "images", "texts": "json"}, num_proc=1)
    example = runpy.run_path(str(EXAMPLES / "vision_language.py"))
    line = [str(tmp_path / "set"), "--tokens", "200", "--batch-size", "2", "--steps", "8", "--rate", "1e-2"]
    given = example["arguments"]().parse_args(line)
    processor, model = made_processor("Qwen2VL", "merging"), small_model("Qwen2VL")
    model.config.image_token_id = model.model.config.image_token_id = processor.image_token_id
    example["train"](given, processor, model)
    losses = losses_in(capsys.readouterr().out)
    assert list(losses) == list(range(1, 9))
    assert losses[8] < 0.85 * losses[1]
