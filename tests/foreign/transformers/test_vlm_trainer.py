"""Hugging Face's Trainer on packs of conversations (docs/guide/vlm-recipes.md), on one rank and on two."""

from __future__ import annotations

import io
import math
import random
from pathlib import Path
from typing import Any

import pytest
from framework_runs import run_program
from local_conversations import images

import fastload

PROGRAM = Path(__file__).with_name("vlm_trainer_program.py")
COUNT = 24

# One run of a program serves a module's tests, and is paid for by the first.
pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module", params=[1, 2], ids=["one rank", "two ranks"])
def ranks(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    """What each rank saw."""
    folder, draw, rows = tmp_path_factory.mktemp("trainer"), random.Random(0), []
    for _ in range(COUNT):
        pictures = []
        for image in images(draw, draw.choice([0, 1, 1, 2])):
            file = io.BytesIO()
            image.save(file, "PNG")
            pictures.append(file.getvalue())
        turn = {"user": "what is in this picture", "assistant": "a red house " * draw.randint(1, 5)}
        rows.append({"images": pictures, "texts": [turn]})
    fastload.pack(rows, folder / "set", schema={"images": "images", "texts": "json"}, num_proc=1)
    return run_program(PROGRAM, folder / "out", folder / "set", ranks=request.param)


def test_each_document_is_trained_once_an_epoch(ranks: list[Any]) -> None:
    steps = ranks[0]["steps"]
    assert steps >= 6
    for rank in ranks:
        assert rank["steps"] == len(rank["seen"]) == rank["batches"] == steps
    for epoch in (slice(0, steps // 2), slice(steps // 2, steps)):
        packs = [pack for rank in ranks for batch in rank["seen"][epoch] for pack in batch]
        assert sorted(sample for pack in packs for sample in pack) == list(range(COUNT))


def test_it_learns(ranks: list[Any]) -> None:
    losses = ranks[0]["losses"]
    assert all(math.isfinite(loss) for loss in losses)
    assert losses[-1] < 0.85 * losses[0]


def test_a_resumed_training_goes_on_as_if_it_had_not_stopped(ranks: list[Any]) -> None:
    assert ranks[0]["resumed losses"] == pytest.approx(ranks[0]["losses"], abs=1e-6)
    assert [rank["resumed"] for rank in ranks] == [rank["seen"][3:] for rank in ranks]
