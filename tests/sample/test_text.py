"""Texts of batches: which of several is drawn, and tokenised in threads of its own, in order."""

from __future__ import annotations

import threading
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from field_sets import write_field_set
from pictures import encoded, picture
from simulated_gpu import SimulatedGpu
from transform_reference import Draws

import fastload
from fastload import Captions, DataLoader, Ragged, Ranks, Tokenizers
from fastload import transforms as T

COUNT = 17
CROP = T.CenterCrop(8)


def captions_of(number: int) -> list[str]:
    """0 to 4 texts of a sample."""
    return [f"picture {number}, text {one} \u00fc" for one in range(number % 5)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    schema = {"image": fastload.Image(), "captions": fastload.Texts(), "title": fastload.Text()}
    samples = [
        {
            "image": encoded(picture(seed=number, width=20, height=16)),
            "captions": captions_of(number),
            "title": f"title {number}",
        }
        for number in range(COUNT)
    ]
    return write_field_set(tmp_path_factory.mktemp("text") / "set", schema, samples)


def lengths(texts: list[str]) -> torch.Tensor:
    """A tokeniser: of each text its length and its number of spaces."""
    return torch.tensor([[len(text), text.count(" ")] for text in texts], dtype=torch.int64).view(-1, 2)


def drawn(seed: int, epoch: int, sample: int) -> str:
    """The rule, slowly: one of the sample's texts, by 64 bits of its own draw."""
    texts = captions_of(sample)
    high, low = Draws(seed, epoch, sample).words(18, 0)[:2]
    return texts[(((high << 32) | low) * len(texts)) >> 64] if texts else ""


@pytest.mark.parametrize("threads", [1, 3])
def test_one_of_several_is_drawn_and_tokenised_in_order(folder: Path, threads: int) -> None:
    text = Tokenizers({"captions": lengths, "title": Captions()}, threads=threads)
    options: dict[str, Any] = {"batch_size": 5, "shuffle": True, "seed": 11, "transform": CROP}
    with DataLoader(folder, text=text, **options) as loader, DataLoader(folder, **options) as plain:
        for epoch in range(3):
            seen = []
            for found, wanted in zip(loader, plain, strict=True):
                samples = [int(title.removeprefix("title ")) for title in found["title"]]
                seen += samples
                assert torch.equal(found["image"], wanted["image"])
                assert found["title"] == wanted["title"]
                rule = lengths([drawn(11, epoch, sample) for sample in samples])
                assert torch.equal(found["captions"], rule)
            assert sorted(seen) == list(range(COUNT))


def test_each_text_is_drawn_as_often() -> None:
    """Chi-square of 3,000 epochs with three degrees of freedom, below its 99.9% point for these draws."""
    counted = Counter(drawn(3, epoch, 4) for epoch in range(3000))
    assert set(counted) == set(captions_of(4))
    assert sum((count - 750) ** 2 / 750 for count in counted.values()) < 16.27


def test_first_and_all(folder: Path) -> None:
    def batch(**text: Any) -> dict[str, Any]:
        with DataLoader(folder, batch_size=COUNT, transform=CROP, text=text) as loader:
            return next(iter(loader))

    every = [captions_of(number) for number in range(COUNT)]
    flat = [text for texts in every for text in texts]
    assert batch(captions=Captions(pick="all"))["captions"] == every
    assert batch(captions=Captions(pick="first"))["captions"] == [(texts or [""])[0] for texts in every]
    found = batch(captions=Captions(lengths, pick="all"))["captions"]
    assert found == Ragged.from_list([lengths(texts) for texts in every])
    found = batch(captions=Captions(lambda texts: {"n": lengths(texts), "words": texts}, "all"))["captions"]
    assert torch.equal(found["n"].values, lengths(flat))
    assert found["words"] == every


def test_a_batchs_texts_wait_for_those_before_them(folder: Path) -> None:
    """The first batch's are tokenised behind the second's."""
    second = threading.Event()

    def late(texts: list[str]) -> list[str]:
        if "title 0" in texts:
            assert second.wait(60)
        else:
            second.set()
        assert threading.current_thread() is not threading.main_thread()
        return texts

    options: dict[str, Any] = {"batch_size": 5, "transform": CROP, "prefetch_factor": 2}
    with DataLoader(folder, text=Tokenizers({"title": late}, threads=2), **options) as loader:
        found = [title for batch in loader for title in batch["title"]]
    assert found == [f"title {number}" for number in range(COUNT)]


def test_a_run_goes_on_in_the_middle_with_the_same_draws(folder: Path) -> None:
    options: dict[str, Any] = {"batch_size": 4, "shuffle": True, "seed": 2, "transform": CROP}
    with DataLoader(folder, text={"captions": Captions()}, **options) as loader:
        wanted = [batch["captions"] for batch in loader]
    with DataLoader(folder, text={"captions": Captions()}, **options) as loader:
        iterator = iter(loader)
        found = [next(iterator)["captions"] for _ in range(2)]
        state = loader.state_dict()
    with DataLoader(folder, text={"captions": Captions()}, **options) as loader:
        loader.load_state_dict(state)
        found += [batch["captions"] for batch in loader]
    assert found == wanted


def test_an_error_comes_with_its_batch_and_the_next_one_follows(folder: Path) -> None:
    def fails(texts: list[str]) -> list[str]:
        if "title 6" in texts:
            raise KeyError("no such word")
        return texts

    with DataLoader(folder, batch_size=5, transform=CROP, text={"title": fails}) as loader:
        iterator = iter(loader)
        assert next(iterator)["title"][0] == "title 0"
        message = (
            "'title' raised KeyError: 'no such word'. It had the texts of batch 1 of epoch 0, samples 5, 6,"
        )
        with pytest.raises(RuntimeError, match=message):
            next(iterator)
        assert next(iterator)["title"][0] == "title 10"


@pytest.mark.parametrize("made", [lambda texts: texts[1:], lambda texts: {"ids": torch.zeros(3, 2)}])
def test_as_many_rows_as_texts(folder: Path, made: Any) -> None:
    with (
        DataLoader(folder, batch_size=5, transform=CROP, text={"title": made}) as loader,
        pytest.raises(ValueError, match=r"returned \d rows.* for 5 texts"),
    ):
        next(iter(loader))


def test_padding_has_no_text(folder: Path) -> None:
    options: dict[str, Any] = {"batch_size": 9, "transform": CROP, "ranks": Ranks(0, 2)}
    with DataLoader(folder, text={"title": Captions()}, **options) as loader:
        batch = next(iter(loader))
    assert batch["valid"].tolist() == [True] * 8 + [False]
    assert batch["title"][-1] == ""


def test_on_a_device(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = SimulatedGpu(0, 0.3)
    for where in ("backends.choice", "transfer.cuda"):
        monkeypatch.setattr(f"fastload.{where}.find_gpu", lambda _: gpu)
    with DataLoader(folder, batch_size=5, transform=CROP, text={"title": lengths}, device="cuda") as loader:
        found = [batch["title"] for batch in loader]
        gpu.synchronize()
    assert torch.equal(torch.cat(found), lengths([f"title {number}" for number in range(COUNT)]))


def test_a_collate_has_them(folder: Path) -> None:
    text = {"title": Captions()}
    options: dict[str, Any] = {"fields": ["image"], "collate": lambda batch: (batch["image"], batch["title"])}
    with DataLoader(folder, batch_size=2, transform=CROP, text=text, **options) as loader:
        images, titles = next(iter(loader))
        assert "title: Captions(" in str(loader.explain())
    assert images.shape == (2, 3, 8, 8)
    assert titles == ["title 0", "title 1"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"text": {"image": lengths}}, "text is for fields of texts. Found: image"),
        ({"text": {"caption": lengths}}, "no field 'caption'"),
        ({"text": {"title": lengths}, "fields": ["title"]}, "decodes a field besides the texts"),
        ({"text": {"title": lengths}, "collate": "list"}, "Leave one of them out"),
    ],
)
def test_what_does_not_go_is_refused(folder: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        DataLoader(folder, transform=CROP, **options)


def test_settings_of_captions() -> None:
    with pytest.raises(ValueError, match="pick must be one of one, first, all"):
        Captions(pick="any")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="tokenize must be callable"):
        Captions(5)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="text is for packed datasets"):
        DataLoader(np.arange(3), text={"title": lengths})
