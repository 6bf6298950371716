"""examples/clip.py, and open_clip_train's own loop, on captions that the loader draws and open_clip's
tokeniser makes numbers of."""

from __future__ import annotations

import runpy
from collections import defaultdict
from pathlib import Path
from typing import Any

import bare_torchvision  # noqa: F401
import pytest
import torch
from example_programs import BATCH, COUNT, EXAMPLES, pack_objects, train
from open_clip.loss import ClipLoss
from open_clip_train.train import train_one_epoch

from fastload import Captions, DataLoader
from fastload.integrations.open_clip import data_info

EPOCHS = 2


def test_it_trains(tmp_path: Path) -> None:
    packed, _ = pack_objects(tmp_path)
    losses, printed = train("clip", packed)
    assert all(0 < loss < 100 for loss in losses)
    assert printed.count("Python, in") == 1, "nothing but the tokeniser"


def pairs(batch: dict[str, Any]) -> tuple[torch.Tensor, torch.Tensor]:
    """As open_clip_train's loaders give them."""
    return batch["image"], batch["captions"]


def test_open_clips_loop_gets_the_captions_of_its_pictures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second loader of the same seed says which captions were drawn, and of which pictures."""
    packed, made = pack_objects(tmp_path)
    told = defaultdict(set)
    for one in made.captions["annotations"]:
        told[one["image_id"]].add(one["caption"])
    monkeypatch.syspath_prepend(EXAMPLES)
    task = runpy.run_path(str(EXAMPLES / "clip.py"))
    arguments_of = runpy.run_path(str(Path(__file__).with_name("job.py")))["arguments_of"]
    network, seen, steps = task["model"](None), [], len(range(0, COUNT - BATCH + 1, BATCH))
    network.register_forward_pre_hook(lambda _, inputs: seen.append(inputs))
    options = {"batch_size": BATCH, "drop_last": True, "shuffle": True, "seed": 4}
    with DataLoader(packed, collate=pairs, **options, **task["options"](None)) as loader:
        data, optimizer = {"train": data_info(loader)}, torch.optim.SGD(network.parameters(), 0.01)
        place = arguments_of({"rank": 0, "world": 1})
        for epoch in range(EPOCHS):
            train_one_epoch(network, data, ClipLoss(), epoch, optimizer, None, None, None, place)
    assert len(seen) == EPOCHS * steps
    fields = {"fields": ["image_id", "captions"], "text": {"captions": Captions()}}
    drawn: list[dict[int, str]] = [{} for _ in range(EPOCHS)]
    with DataLoader(packed, **options, **fields) as loader:
        words = [(epoch, batch) for epoch in range(EPOCHS) for batch in loader]
    for (images, tokens), (epoch, batch) in zip(seen, words, strict=True):
        assert images.shape == (BATCH, 3, task["SIDE"], task["SIDE"])
        assert torch.equal(tokens, task["TOKENIZER"](batch["captions"]))
        drawn[epoch] |= zip(batch["image_id"].tolist(), batch["captions"], strict=True)
    assert all(text in told[number] for epoch in drawn for number, text in epoch.items())
    assert any(drawn[0][number] != drawn[1][number] for number in drawn[0].keys() & drawn[1].keys())
