"""Batches of rows against the same made picture by picture, for every family.

That these are transformers' batches is tests/foreign/transformers/test_vlm_rules.py.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from vision_reference import all_rows, rows_of

from fastload.vlm.layouts import batch_of, places_of
from fastload.vlm.rules import (
    Gemma3,
    Idefics3,
    InternVL,
    LlavaOneVision,
    PaliGemma,
    Qwen2VL,
    Rule,
    SigLIP2,
)

RULES: dict[str, Rule] = {
    "qwen2_vl": Qwen2VL(4, min_pixels=64, max_pixels=2000),
    "siglip2": SigLIP2(8, 20),
    "idefics3": Idefics3(64, 32),
    "llava_onevision": LlavaOneVision(32, ((32, 64), (64, 32), (64, 64)), tile_tokens=4),
    "internvl": InternVL(16, True, max_tiles=4),
    "gemma3": Gemma3((24, 32), True, 8, 4, 1.2),
    "paligemma": PaliGemma((24, 32)),
}
DTYPES = ["float32", "bfloat16", "uint8"]
COUNTS = [2, 0, 1, 3, 1]


def samples(counts: list[int] = COUNTS) -> list[list[np.ndarray]]:
    rng = np.random.default_rng(3)
    return [
        [rng.integers(0, 256, (*rng.integers(10, 80, 2), 3), dtype=np.uint8) for _ in range(count)]
        for count in counts
    ]


def with_dtype(name: str, dtype: str) -> Rule:
    rule = RULES[name]
    return type(rule)(**{**vars(rule), "dtype": dtype})


def slow_batch(rule: Rule, given: list[list[np.ndarray]]) -> dict[str, Any]:
    """The batch made picture by picture."""
    each = [[rows_of(rule, one, len(sample)) for one in sample] for sample in given]
    flat = [rows for sample in each for rows in sample]
    cells = [rule.sizes(*one.shape[:2], len(sample)) for sample in given for one in sample]
    if isinstance(rule, Qwen2VL):
        frames = [[1, cell.rows, cell.columns] for cell in cells]
        return {"pixel_values": torch.cat(flat), "image_grid_thw": torch.tensor(frames)}
    if isinstance(rule, SigLIP2):
        return {
            "pixel_values": torch.stack([behind(rows, rule.max_patches) for rows in flat]),
            "pixel_attention_mask": torch.tensor(
                [[1] * len(rows) + [0] * (rule.max_patches - len(rows)) for rows in flat], dtype=torch.int32
            ),
            "spatial_shapes": torch.tensor([[cell.rows, cell.columns] for cell in cells]),
        }
    if isinstance(rule, Idefics3):
        most = max(sum(map(len, sample)) for sample in each)
        empty = flat[0][:0]
        tiles = [torch.cat([empty, *sample]) for sample in each]
        ones = torch.ones(most, rule.tile, rule.tile, dtype=torch.int64)
        return {
            "pixel_values": torch.stack([behind(rows, most) for rows in tiles]),
            "pixel_attention_mask": torch.stack([behind(ones[: len(rows)], most) for rows in tiles]),
        }
    if isinstance(rule, LlavaOneVision):
        most = max(map(len, flat))
        return {
            "pixel_values": torch.stack([behind(rows, most) for rows in flat]),
            "image_sizes": torch.tensor([one.shape[:2] for sample in given for one in sample]),
            "batch_num_images": torch.tensor([len(sample) for sample in given if sample]),
        }
    more = {
        InternVL: {"num_patches": torch.tensor([len(rows) for rows in flat])},
        Gemma3: {"num_crops": torch.tensor([len(rows) - 1 for rows in flat])},
        PaliGemma: {},
    }
    return {"pixel_values": torch.cat(flat), **more[type(rule)]}


def behind(rows: torch.Tensor, length: int) -> torch.Tensor:
    """``rows`` with zeros behind."""
    return torch.cat([rows, rows.new_zeros(length - len(rows), *rows.shape[1:])])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("counts", [COUNTS, [1, 1], [3]], ids=str)
@pytest.mark.parametrize("name", RULES)
def test_a_batch_is_its_pictures(name: str, counts: list[int], dtype: str) -> None:
    rule = with_dtype(name, dtype)
    given = samples(counts)
    wanted = slow_batch(rule, given)
    found = batch_of(rule, *all_rows(rule, given))
    assert found.keys() == wanted.keys()
    for key, value in wanted.items():
        assert found[key].dtype == value.dtype, key
        assert torch.equal(found[key], value), key


@pytest.mark.parametrize("name", RULES)
def test_rows_may_be_flat(name: str) -> None:
    rule = RULES[name]
    rows, *rest = all_rows(rule, samples())
    found, wanted = batch_of(rule, rows.flatten(1), *rest), batch_of(rule, rows, *rest)
    assert all(torch.equal(found[key], value) for key, value in wanted.items())


@pytest.mark.parametrize("name", RULES)
def test_nothing_is_copied_where_nothing_is_padded(name: str) -> None:
    rule = RULES[name] if name != "siglip2" else SigLIP2(8, 16)
    rng = np.random.default_rng(3)
    same = rng.integers(0, 256, (32, 32, 3), dtype=np.uint8)
    rows, *rest = all_rows(rule, [[same], [same]])
    assert batch_of(rule, rows, *rest)["pixel_values"].data_ptr() == rows.data_ptr()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", RULES)
def test_rows_that_lie_in_their_places_are_not_copied(name: str, dtype: str) -> None:
    rule = with_dtype(name, dtype)
    given = samples()
    rows, grids, counts, sizes = all_rows(rule, given)
    places, total = places_of(rule, grids, counts)
    assert places.dtype == torch.int64
    memory = rows.new_zeros((total, *rows.shape[1:]))
    pictures = [(one, len(sample)) for sample in given for one in sample]
    for place, (one, among) in zip(places.tolist(), pictures, strict=True):
        made = rows_of(rule, one, among)
        memory[place : place + len(made)] = made
    found = batch_of(rule, memory, grids, counts, sizes, placed=True)
    wanted = batch_of(rule, rows, grids, counts, sizes)
    assert found["pixel_values"].data_ptr() == memory.data_ptr()
    assert all(torch.equal(found[key], value) for key, value in wanted.items())


@pytest.mark.parametrize("name", RULES)
def test_a_batch_without_a_picture_is_empty(name: str) -> None:
    rule = RULES[name]
    rows = all_rows(rule, samples())[0]
    pairs = torch.zeros((0, 2), dtype=torch.int64)
    found = batch_of(rule, rows[:0], pairs, torch.tensor([0, 0]), pairs)
    assert {key: value.dtype for key, value in found.items()} == {
        key: value.dtype for key, value in batch_of(rule, *all_rows(rule, samples())).items()
    }
    assert not any(value.numel() for value in found.values())
    places, total = places_of(rule, pairs, torch.tensor([0, 0]))
    assert places.shape == (0,)
    assert total == 0


def test_sizes_are_those_after_the_first_resize() -> None:
    """The processor is given what that made."""
    rule = LlavaOneVision(32, ((32, 64), (64, 64)), tile_tokens=4, first_max_pixels=600)
    given = samples([1, 2])
    sizes = batch_of(rule, *all_rows(rule, given))["image_sizes"]
    assert sizes.tolist() == [[*rule.first(*one.shape[:2])] for sample in given for one in sample]
    assert int(sizes.prod(dim=1).max()) <= 600


def test_numbers_that_do_not_fit() -> None:
    rule = RULES["llava_onevision"]
    rows, grids, counts, sizes = all_rows(rule, samples())
    with pytest.raises(
        ValueError, match=r"rows must have a row for each patch or tile that grids says, \d+. Found: 3"
    ):
        batch_of(rule, rows[:3], grids, counts, sizes)
    with pytest.raises(
        ValueError, match=r"grids must be \(pictures, 2\), .* counts says, 7. Found: \(6, 2\)."
    ):
        batch_of(rule, rows, grids[:6], counts, sizes)
    with pytest.raises(ValueError, match=r"need sizes, \(7, 2\): height and width .* Found: None."):
        batch_of(rule, rows, grids, counts)
    with pytest.raises(
        ValueError, match=r"SigLIP2\(patch=8, max_patches=20\) gives at most 20 .* Found: 30 in grids."
    ):
        batch_of(RULES["siglip2"], torch.zeros(30, 192), torch.tensor([[5, 6]]), torch.tensor([1]))
