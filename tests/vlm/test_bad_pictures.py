"""A bad picture in a list: an error that names sample, field and place, a sample that is left out and
counted, or another sample in its place, exactly; on ranks and in packs, too."""

from __future__ import annotations

import io
import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from field_samples import photo
from PIL import Image as Pillow
from vision_reference import all_rows

import fastload
from fastload import Gemma3, Idefics3, LlavaOneVision, OnError, Qwen2VL, Ranks, SigLIP2
from fastload.dataset.decoding import thread_decoder
from fastload.errors import SampleError
from fastload.vlm.layouts import batch_of

RULES: dict[str, Any] = {
    "qwen2_vl": Qwen2VL(4, min_pixels=64, max_pixels=2000),
    "siglip2": SigLIP2(8, 20),
    "idefics3": Idefics3(64, 32),
    "llava_onevision": LlavaOneVision(32, ((32, 64), (64, 32), (64, 64)), tile_tokens=4),
    "gemma3": Gemma3((24, 32), True, 8, 4, 1.2),
}
COUNT = 20
BAD = {3: (0,), 7: (1, 3), 8: (0,), 15: (5,)}  # samples, and which places of their lists
TEXT = {"images": "images", "text": "text"}


def lists() -> list[list[bytes | None] | None]:
    """Good lists; those with bad places later are long enough."""
    draws = random.Random(1)
    found: list[list[bytes | None] | None] = []
    for number in range(COUNT):
        if number in BAD:
            found.append([photo(n) for n in range(number, number + 6)])
        elif number % 5 == 4:
            found.append([None, []][number % 2])  # type: ignore[arg-type]
        else:
            found.append(
                [draws.choice([photo(draws.randrange(50)), None]) for _ in range(draws.randrange(4))]
            )
    found[7][2] = None  # type: ignore[index]  # places without a picture count
    return found


LISTS = lists()


def narrow() -> bytes:
    """A picture that is too narrow for Qwen2-VL."""
    out = io.BytesIO()
    Pillow.new("RGB", (1, 300), (1, 2, 3)).save(out, "PNG")
    return out.getvalue()


def damage(folder: Path, number: int, place: int) -> None:
    """Change a byte of a picture."""
    dataset = fastload.PackedDataset(folder).parts[0]
    entries = dataset.list_records("images", number)
    assert entries is not None
    path = folder / dataset.manifest.shards[int(entries[place]["shard"])].file
    with open(path, "r+b") as file:
        file.seek(int(entries[place]["offset"]) + 30)
        byte = file.read(1)[0]
        file.seek(-1, io.SEEK_CUR)
        file.write(bytes([byte ^ 255]))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("bad") / "set"
    rows = [{"images": images, "text": str(number)} for number, images in enumerate(LISTS)]
    fastload.pack(rows, path, schema=TEXT, num_proc=1)
    for number, places in BAD.items():
        for place in places:
            damage(path, number, place)
    return path


def wanted(rule: Any, numbers: list[int]) -> dict[str, torch.Tensor]:
    """A batch of these samples, made picture by picture."""
    samples = [
        [
            thread_decoder().decode_rgb(np.frombuffer(one, np.uint8))
            for one in LISTS[n] or ()
            if one is not None
        ]
        for n in numbers
    ]
    return batch_of(rule, *all_rows(rule, samples)) if any(samples) else {}


def assert_is(batch: dict[str, Any], rule: Any, numbers: list[int]) -> None:
    """The batch is that of these samples, whether they come with the others' places or without."""
    made = wanted(rule, numbers)
    if isinstance(rule, Idefics3):
        batch = fastload.valid(batch)  # its first dimension is the samples'
    for name, value in made.items():
        assert torch.equal(batch[name], value), name


# ---- By default ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("number", "place"), [(3, 0), (7, 1), (15, 5)])
def test_it_is_named(number: int, place: int, folder: Path) -> None:
    data = torch.utils.data.Subset(fastload.PackedDataset(folder), [number])
    words = (
        rf"Sample {number} \(key '.*' in .*\): field 'images', picture {place}: .*CRC-32C.*on_error=\"skip\""
    )
    with pytest.raises(SampleError, match=words):
        list(fastload.DataLoader(data, 1, transform=RULES["siglip2"]))


@pytest.mark.parametrize("kind", ["images", "image"])
def test_what_does_not_decode_is_named(kind: str, tmp_path: Path) -> None:
    bad = photo(2)[:-200]
    rows: list[Any] = [{"pictures": [photo(1), bad] if kind == "images" else bad, "text": "0"}]
    fastload.pack(rows, tmp_path / "set", schema={"pictures": kind, "text": "text"}, num_proc=1, entries=None)
    place = 1 if kind == "images" else 0
    with pytest.raises(SampleError, match=rf"field 'pictures', picture {place}: "):
        list(fastload.DataLoader(tmp_path / "set", 1, transform=RULES["siglip2"]))


def test_one_that_the_rule_has_no_answer_for_is_named(tmp_path: Path) -> None:
    rows = [{"images": [photo(0)], "text": "0"}, {"images": [None, photo(1), narrow()], "text": "1"}]
    fastload.pack(rows, tmp_path / "set", schema=TEXT, num_proc=1)
    rule = RULES["qwen2_vl"]
    with pytest.raises(SampleError, match=r"Sample 1 .*field 'images', picture 2: .*(ratio|200)"):
        list(fastload.DataLoader(tmp_path / "set", 2, transform=rule))
    (batch,) = fastload.DataLoader(tmp_path / "set", 2, transform=rule, on_error="skip")
    assert batch["valid"].tolist() == [True, False]
    pixels = thread_decoder().decode_rgb(np.frombuffer(photo(0), np.uint8))
    assert torch.equal(batch["pixel_values"], batch_of(rule, *all_rows(rule, [[pixels]]))["pixel_values"])


# ---- Skipped and replaced -----------------------------------------------------------------------------


@pytest.mark.parametrize("name", RULES)
def test_skipped_samples_have_no_rows_and_are_counted(name: str, folder: Path, tmp_path: Path) -> None:
    rule, log = RULES[name], tmp_path / "log"
    loader = fastload.DataLoader(
        folder, 5, shuffle=True, seed=3, transform=rule, num_workers=2, on_error=OnError("skip", log=log)
    )
    seen: list[int] = []
    for batch in loader:
        assert len(batch["text"]) == len(batch["valid"]) == 5
        assert [bool(text) for text in batch["text"]] == batch["valid"].tolist()
        numbers = [int(text) for text in fastload.valid(batch)["text"]]
        assert_is(batch, rule, numbers)
        seen += numbers
    assert sorted(seen) == sorted(set(range(COUNT)) - set(BAD))
    reports = {report.sample: report for report in loader.errors}
    assert reports.keys() == BAD.keys()
    for number, places in BAD.items():
        assert f"field 'images', picture {places[0]}: " in reports[number].message
        assert reports[number].substitute is None
    assert sorted(json.loads(line)["sample"] for line in log.read_text().splitlines()) == sorted(BAD)


@pytest.mark.parametrize("name", RULES)
def test_substitutes_are_delivered_exactly(name: str, folder: Path) -> None:
    rule = RULES[name]
    loader = fastload.DataLoader(
        folder, 5, shuffle=True, seed=4, transform=rule, num_workers=2, on_error="replace"
    )
    seen: list[int] = []
    for batch in loader:
        assert batch["valid"].all()
        numbers = [int(text) for text in batch["text"]]
        assert_is(batch, rule, numbers)
        seen += numbers
    substitutes = {report.sample: report.substitute for report in loader.errors}
    assert substitutes.keys() == BAD.keys()
    assert not set(substitutes.values()) & set(BAD)
    assert sorted(seen) == sorted([*(set(range(COUNT)) - set(BAD)), *map(int, substitutes.values())])  # type: ignore[arg-type]


def test_on_ranks(folder: Path) -> None:
    rule, seen = RULES["gemma3"], []
    for rank in range(3):
        loader = fastload.DataLoader(
            folder,
            3,
            shuffle=True,
            seed=5,
            transform=rule,
            ranks=Ranks(rank, 3),
            padding="mark",
            on_error="skip",
        )
        for batch in loader:
            numbers = [int(text) for text in fastload.valid(batch)["text"]]
            assert_is(fastload.valid(batch), rule, numbers)
            seen += numbers
    assert sorted(seen) == sorted(set(range(COUNT)) - set(BAD))


def test_in_packs(folder: Path) -> None:
    """A pack keeps the others in their places; another sample would have another length."""
    packs = fastload.PackingSampler([10] * COUNT, tokens=35)
    rule = RULES["qwen2_vl"]
    loader = fastload.DataLoader(folder, 2, sampler=packs, seed=1, transform=rule, on_error="skip")
    seen: list[int] = []
    for batch in loader:
        numbers = [int(text) for text in fastload.valid(batch)["text"]]
        assert int(batch["pack_offsets"][-1]) == len(batch["valid"])
        assert_is(batch, rule, numbers)
        seen += numbers
    assert sorted(seen) == sorted(set(range(COUNT)) - set(BAD))
    with pytest.raises(ValueError, match=r"on_error=.replace"):
        fastload.DataLoader(folder, 2, sampler=packs, transform=rule, on_error="replace")


def test_a_batch_of_bad_samples_alone(folder: Path) -> None:
    data = torch.utils.data.Subset(fastload.PackedDataset(folder), list(BAD))
    for name, rule in RULES.items():
        (batch,) = fastload.DataLoader(data, 4, transform=rule, on_error="skip")
        assert not batch["valid"].any()
        assert batch["pixel_values"] is None, name
        assert fastload.valid(batch)["text"] == []
