"""Layouts of batches against lists of samples: what is written is what is read, whatever the fields are."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
import torch

from fastload.sample.layout import VALID, BatchLayout, FieldLayout, SampleLayout, sizes_name
from fastload.sample.mended import mended
from fastload.sample.ragged import Ragged

FIELDS = (
    FieldLayout("label", "fixed", torch.int64, blank=-100),
    FieldLayout("weight", "fixed", torch.float64, blank=float("nan")),
    FieldLayout("matrix", "fixed", torch.int16, (2, 3)),
    FieldLayout("flag", "fixed", torch.bool),
    FieldLayout("boxes", "rows", torch.float32, (4,)),
    FieldLayout("points", "rows", torch.float32, (5, 3)),
    FieldLayout("numbers", "rows", torch.uint8),
    FieldLayout("text", "objects", torch.uint8, decode=lambda data: data.decode()),
    FieldLayout("image", "picture", torch.uint8, (3, 7, 5)),
    FieldLayout("mask", "picture", torch.int32, (0, 0), 255, "pad", multiple=4),
    FieldLayout("gray", "picture", torch.float32, (1, 0, 0), 0, "pad", most=(16, 16)),
    FieldLayout("views", "picture", torch.uint8, (3, 0, 0), 0, "list"),
    FieldLayout("drawn", "masks", torch.uint8, (6, 7)),
    FieldLayout("parts", "masks", torch.uint8, (0, 0), 0, "list"),
    FieldLayout("objects", "masks", torch.uint8, (0, 0), 0, "pad", multiple=4),
    FieldLayout("within", "masks", torch.uint8, (0, 0), 0, "pad", most=(16, 18)),
)

Sample = dict[str, Any]


def a_sample(draw: random.Random) -> Sample:
    """Values of every field, as a batch of one has them."""
    torch.manual_seed(draw.getrandbits(32))
    size = draw.randrange(1, 17), draw.randrange(1, 17)
    return {
        "label": torch.tensor(draw.randrange(1000)),
        "weight": torch.rand((), dtype=torch.float64),
        "matrix": torch.randint(-9, 9, (2, 3), dtype=torch.int16),
        "flag": torch.tensor(bool(draw.randrange(2))),
        "boxes": torch.rand(draw.randrange(4), 4),
        "points": torch.rand(draw.randrange(3), 5, 3),
        "numbers": torch.randint(0, 255, (draw.randrange(9),), dtype=torch.uint8),
        "text": "".join(draw.choices("abcäß\U0001f600", k=draw.randrange(6))),
        "image": torch.randint(0, 255, (3, 7, 5), dtype=torch.uint8),
        "mask": torch.randint(0, 9, size, dtype=torch.int32),
        "gray": torch.rand(1, *size),
        "views": torch.randint(0, 255, (3, *size), dtype=torch.uint8),
        **{
            name: torch.randint(0, 2, (draw.randrange(4), *size), dtype=torch.uint8)
            for name in ("parts", "objects", "within")
        },
        "drawn": torch.randint(0, 2, (draw.randrange(4), 6, 7), dtype=torch.uint8),
    }


def blank_of(field: FieldLayout, instead_of: Any) -> Any:
    """What a position without a sample has."""
    if field.form == "objects":
        return ""
    if field.form == "rows":
        return torch.zeros(0, *field.shape, dtype=field.dtype)
    if field.form == "masks":
        return instead_of[:0]
    return torch.full_like(instead_of, field.blank)


def batch_of(samples: list[Sample], fields: tuple[FieldLayout, ...] = FIELDS) -> dict[str, Any]:
    """The raw batch, by lists and stacking alone."""
    raw: dict[str, Any] = {}
    for field in fields:
        values = [sample[field.name] for sample in samples]
        if field.form == "objects":
            parts = [
                torch.frombuffer(bytearray(v.encode()), dtype=torch.uint8)
                if v
                else torch.zeros(0, dtype=torch.uint8)
                for v in values
            ]
            raw[field.name] = Ragged.from_list(parts)
        elif field.has_offsets:
            raw[field.name] = Ragged.from_list(values)
        elif field.mode == "list":
            raw[field.name] = values
        elif field.mode == "pad":
            sizes = torch.tensor([value.shape[-2:] for value in values])
            height, width = field.most or (
                -(-int(side) // field.multiple) * field.multiple for side in sizes.max(0)[0]
            )
            room = [
                torch.full((*value.shape[:-2], height, width), field.blank, dtype=field.dtype)
                for value in values
            ]
            for padded, value in zip(room, values, strict=True):
                padded[..., : value.shape[-2], : value.shape[-1]] = value
            raw[field.name] = Ragged.from_list(room) if field.form == "masks" else torch.stack(room)
            raw[sizes_name(field.name)] = sizes
        else:
            raw[field.name] = torch.stack(values)
    return {**raw, VALID: torch.ones(len(samples), dtype=torch.bool)}


def same(found: Any, wanted: Any) -> bool:
    """Bit for bit; NaN is NaN."""
    if isinstance(wanted, Ragged):
        return bool(found == wanted)
    if isinstance(wanted, torch.Tensor):
        return found.dtype == wanted.dtype and np.array_equal(
            found.numpy(), wanted.numpy(), equal_nan=wanted.is_floating_point()
        )
    if isinstance(wanted, list) and any(isinstance(value, torch.Tensor) for value in wanted):
        return len(found) == len(wanted) and all(same(a, b) for a, b in zip(found, wanted, strict=True))
    return bool(found == wanted)


def assert_same(found: dict[str, Any], wanted: dict[str, Any]) -> None:
    assert found.keys() == wanted.keys()
    for name in wanted:
        assert same(found[name], wanted[name]), name


def views(layout: BatchLayout, memory: np.ndarray) -> dict[str, Any]:
    return layout.raw(lambda begin, end: torch.from_numpy(memory[begin:end]))


@pytest.mark.parametrize("seed", range(12))
def test_what_is_written_is_read(seed: int) -> None:
    draw = random.Random(seed)
    chosen = tuple(draw.sample(FIELDS, draw.randrange(1, len(FIELDS) + 1)))
    sample = SampleLayout(chosen)
    raw = batch_of([a_sample(draw) for _ in range(draw.randrange(1, 9))], chosen)
    layout = sample.of(len(raw[VALID]), sample.measured_of(raw))
    memory = np.full(layout.nbytes, 0xA5, np.uint8)
    layout.write(memory, raw)
    assert_same(views(layout, memory), raw)
    for known, found in zip(sample.measured_of(raw), sample.split(layout.size, layout.measured), strict=True):
        assert (known is None and found is None) or np.array_equal(known, found)
    used = [(p.begin, p.begin + p.nbytes) for p in layout.places if p.nbytes]
    assert all(a[1] <= b[0] for a, b in zip(sorted(used), sorted(used)[1:], strict=False))
    assert all(begin % 64 == 0 for begin, _ in used)
    for field, place in zip(chosen, layout.places, strict=True):
        behind = place.begin >= layout.device_bytes
        assert behind == (field.form == "objects") or not place.nbytes, field.name


def test_texts_are_text() -> None:
    draw = random.Random(5)
    samples = [a_sample(draw) for _ in range(6)]
    finished = SampleLayout(FIELDS).finished(batch_of(samples))
    assert finished["text"] == [sample["text"] for sample in samples]
    assert isinstance(finished["boxes"], Ragged)


def test_a_batch_of_no_samples() -> None:
    sample = SampleLayout(tuple(field for field in FIELDS if field.name != "views"))
    shapes = {"picture": (0, 2), "masks": (0, 3)}
    measured = [
        np.zeros((1,) if field.has_offsets else shapes[field.form], np.int64) if field.is_measured else None
        for field in sample.fields
    ]
    layout = sample.of(0, measured)
    batch = sample.finished(views(layout, np.zeros(layout.nbytes, np.uint8)))
    assert {name: len(value) for name, value in batch.items()} == dict.fromkeys(batch, 0)
    assert batch["text"] == []
    assert batch["mask"].shape == (0, 0, 0)
    assert batch["gray"].shape == (0, 1, 16, 16)


def test_a_picture_larger_than_its_room() -> None:
    draw = random.Random(1)
    samples = [a_sample(draw) for _ in range(3)]
    samples[1]["gray"] = torch.zeros(1, 17, 3)
    field = next(field for field in FIELDS if field.name == "gray")
    sizes = np.array([sample["gray"].shape[-2:] for sample in samples], np.int64)
    with pytest.raises(
        ValueError, match=r"'gray': the picture at position 1 .* has 17 x 3 pixels .* Pad\(16, 16\)"
    ):
        SampleLayout((field,)).of(3, [sizes])


@pytest.mark.parametrize("seed", range(12))
def test_mended_batches_are_those_of_the_other_samples(seed: int) -> None:
    draw = random.Random(seed)
    layout = SampleLayout(FIELDS)
    samples = [a_sample(draw) for _ in range(5)]
    raw = batch_of(samples)
    out, new = draw.sample(range(5), 2)
    substitute = a_sample(draw)
    found = mended(layout, raw, {out: None, new: batch_of([substitute])})
    blank = {field.name: blank_of(field, samples[out][field.name]) for field in FIELDS}
    wanted = batch_of([{out: blank, new: substitute}.get(at, sample) for at, sample in enumerate(samples)])
    wanted[VALID][out] = False
    assert_same(found, wanted)
