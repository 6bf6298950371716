"""Pictures as a vision-language model takes them, from a DataLoader: equal to the slow reference picture by
picture, for lists of pictures and for single ones, on any ranks and in packs."""

from __future__ import annotations

import random
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from field_samples import photo
from simulated_gpu import SimulatedGpu
from vision_reference import all_rows

import fastload
from fastload import Device, Gemma3, Idefics3, InternVL, LlavaOneVision, PaliGemma, Qwen2VL, Ranks, SigLIP2
from fastload._native import _C
from fastload.dataset.decoding import thread_decoder
from fastload.errors import SampleError
from fastload.packing.pictures import png_file
from fastload.vlm.layouts import batch_of

RULES = {
    "qwen2_vl": Qwen2VL(4, min_pixels=64, max_pixels=2000),
    "siglip2": SigLIP2(8, 20),
    "idefics3": Idefics3(64, 32),
    "llava_onevision": LlavaOneVision(32, ((32, 64), (64, 32), (64, 64)), tile_tokens=4),
    "internvl": InternVL(16, True, max_tiles=4),
    "gemma3": Gemma3((24, 32), True, 8, 4, 1.2),
    "paligemma": PaliGemma((24, 32)),
}
COUNT = 26


def lists(seed: int = 3) -> list[list[bytes | None] | None]:
    """The pictures of each sample."""
    draws = random.Random(seed)
    found: list[list[bytes | None] | None] = [None, []]
    while len(found) < COUNT:
        found.append([draws.choice([photo(draws.randrange(50)), None]) for _ in range(draws.randrange(4))])
    return found


LISTS = lists()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rows = [{"images": images, "text": str(number)} for number, images in enumerate(LISTS)]
    path = tmp_path_factory.mktemp("vision") / "set"
    fastload.pack(rows, path, schema={"images": "images", "text": "text"}, num_proc=1)
    return path


def pixels_of(number: int) -> list[np.ndarray]:
    """The decoded pictures of a sample."""
    files = [one for one in LISTS[number] or () if one is not None]
    return [thread_decoder().decode_rgb(np.frombuffer(one, np.uint8)) for one in files]


def wanted(rule: Any, numbers: list[int]) -> dict[str, torch.Tensor]:
    """A batch of these samples, made picture by picture."""
    samples = [pixels_of(number) for number in numbers]
    if not any(samples):
        return {}
    return batch_of(rule, *all_rows(rule, samples))


def assert_is(batch: dict[str, Any], rule: Any) -> None:
    """The batch is that of its samples."""
    made = wanted(rule, [int(text) for text in batch["text"] if text])
    for name, value in made.items():
        assert batch[name].dtype == value.dtype, name
        assert torch.equal(batch[name].cpu(), value), name


@pytest.mark.parametrize("name", RULES)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "uint8"])
def test_batches_are_the_processor_s(name: str, dtype: str, folder: Path) -> None:
    rule = type(RULES[name])(**{**vars(RULES[name]), "dtype": dtype})
    loader = fastload.DataLoader(
        folder, 5, shuffle=True, seed=1, transform=fastload.Vision(rule), num_workers=2
    )
    seen = []
    for batch in loader:
        assert_is(batch, rule)
        assert {"images", "images_sizes"}.isdisjoint(batch)
        seen += batch["text"]
    assert sorted(map(int, seen)) == list(range(COUNT))


@pytest.mark.parametrize("name", RULES)
def test_a_first_resize_comes_before_every_rule(name: str, folder: Path) -> None:
    """LLaMA-Factory's, whatever the family."""
    rule = type(RULES[name])(**{**vars(RULES[name]), "first_max_pixels": 300})
    larger = 0
    for batch in fastload.DataLoader(folder, 5, transform=rule, num_workers=2):
        assert_is(batch, rule)
        pictures = [one.shape[:2] for text in batch["text"] for one in pixels_of(int(text))]
        larger += sum(rule.first(*size) != size for size in pictures)
    assert larger > 5


def test_single_pictures_are_lists_of_one(tmp_path: Path) -> None:
    rule = RULES["qwen2_vl"]
    files = [photo(number) for number in range(12)]
    rows = [{"image": data, "label": number} for number, data in enumerate(files)]
    fastload.pack(rows, tmp_path / "set", schema={"image": "image", "label": "label"}, num_proc=1)
    for batch in fastload.DataLoader(tmp_path / "set", 4, transform=rule, shuffle=True, seed=0):
        numbers = batch["label"].tolist()
        samples = [[thread_decoder().decode_rgb(np.frombuffer(files[n], np.uint8))] for n in numbers]
        assert torch.equal(batch["pixel_values"], all_rows(rule, samples)[0])
        grids = [rule.sizes(*sample[0].shape[:2]) for sample in samples]
        assert batch["image_grid_thw"].tolist() == [[1, grid.rows, grid.columns] for grid in grids]


def test_pixels_are_pictures_too(tmp_path: Path) -> None:
    rule = RULES["siglip2"]
    folder = tmp_path / "tree" / "class"
    folder.mkdir(parents=True)
    for number in range(5):
        (folder / f"{number}.jpg").write_bytes(photo(number))
    fastload.pack(tmp_path / "tree", tmp_path / "raw", raw=True, num_proc=1)
    fastload.pack(tmp_path / "tree", tmp_path / "files", num_proc=1)
    loaders = [fastload.DataLoader(tmp_path / name, 5, transform=rule) for name in ("raw", "files")]
    found, wanted = (next(iter(loader)) for loader in loaders)
    assert wanted["label"].tolist() == found["label"].tolist() == [0] * 5
    assert torch.equal(found["pixel_values"], wanted["pixel_values"])
    assert torch.equal(found["spatial_shapes"], wanted["spatial_shapes"])


def test_ranks_and_packs(folder: Path) -> None:
    rule = RULES["qwen2_vl"]
    lengths = [5 + sum(rule.sizes(*one.shape[:2], 1).tokens for one in pixels_of(n)) for n in range(COUNT)]
    packs = fastload.PackingSampler(lengths, tokens=max(lengths) + 40)
    seen = []
    for rank in range(2):
        loader = fastload.DataLoader(
            folder, 2, sampler=packs, seed=4, transform=rule, ranks=Ranks(rank, 2), padding="mark"
        )
        for batch in loader:
            batch = fastload.valid(batch)
            assert_is(batch, rule)
            ends = batch["pack_offsets"].tolist()
            numbers = [int(text) for text in batch["text"]]
            for begin, end in pairwise(ends):
                assert sum(lengths[number] for number in numbers[begin:end]) <= max(lengths) + 40
            seen += numbers
    assert sorted(seen) == list(range(COUNT))


@pytest.mark.parametrize("name", RULES)
def test_a_batch_without_pictures_has_none(name: str, folder: Path) -> None:
    loader = fastload.DataLoader(folder, 2, transform=RULES[name])  # the first two have none
    batch = next(iter(loader))
    keys = set(wanted(RULES[name], list(range(COUNT))))
    assert "pixel_values" in keys
    assert {key: batch[key] for key in keys} == dict.fromkeys(keys)
    assert batch["picture_offsets"].tolist() == [0, 0, 0]
    whole = fastload.valid(batch)
    assert whole["text"] == ["0", "1"]
    loader.close()


@pytest.mark.parametrize("name", RULES)
def test_on_a_device(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The numbers are the host's, bit for bit, of any dtype; what crosses is the pixels and their table."""
    crossed = {}
    for dtype in ("uint8", "float32", "bfloat16"):
        gpu = SimulatedGpu(0)
        for place in ("fastload.backends.choice", "fastload.transfer.cuda"):
            monkeypatch.setattr(f"{place}.find_gpu", lambda device, gpu=gpu: None if device is None else gpu)
        monkeypatch.setattr("fastload.backends.choice.goes_to_gpu", lambda device: device is not None)
        rule = fastload.Vision(RULES[name], dtype=dtype)  # type: ignore[arg-type]
        batches = list(fastload.DataLoader(folder, 5, transform=rule, seed=0, device=Device("cuda")))
        assert len(batches) == -(-COUNT // 5)
        gpu.synchronize()
        for batch in batches:
            assert_is(batch, rule.rule)
        crossed[dtype] = gpu.copied_bytes
    numbers = 3 * 256 * len(batches)
    assert crossed["float32"] - crossed["uint8"] == 4 * numbers
    assert crossed["bfloat16"] - crossed["uint8"] == 2 * numbers


@pytest.mark.parametrize("rescale", [1 / 255, 1 / 127.5, 0.3])
def test_the_table_is_the_core_s(rescale: float) -> None:
    """Of every value in every channel: a picture of them all, cut into one patch each."""
    pixels = np.stack([np.arange(256), np.arange(256)[::-1], np.roll(np.arange(256), 7)], -1).astype(np.uint8)
    picture = pixels.reshape(1, 256, 3).repeat(2, 0).reshape(16, 32, 3)
    rule = SigLIP2(16, 2, mean=(0.48, 0.45, 0.4), std=(0.27, 0.26, 0.28), rescale=rescale)
    family, numbers = rule.core()
    data = np.frombuffer(png_file(picture), np.uint8)
    core = _C.VisionRule(family, **numbers)
    wanted = _C.vision_rows(core, data).reshape(-1, 3)
    found = rule.table[np.arange(3), _C.vision_rows(core, data, dtype="uint8").reshape(-1, 3)]
    assert len(np.unique(wanted[:, 0])) == 256
    assert found.dtype == wanted.dtype
    assert np.array_equal(found, wanted)


def test_a_bad_picture_is_named(tmp_path: Path) -> None:
    rows = [{"images": [photo(1), photo(2)], "text": "0"}, {"images": [photo(3)], "text": "1"}]
    fastload.pack(rows, tmp_path / "set", schema={"images": "images", "text": "text"}, num_proc=1)
    dataset = fastload.PackedDataset(tmp_path / "set")
    entries = dataset.parts[0].list_records("images", 0)
    (shard,) = (tmp_path / "set").glob("*.arrow")
    data = bytearray(shard.read_bytes())
    data[int(entries[1]["offset"]) + 40] ^= 255
    shard.write_bytes(data)
    with pytest.raises(SampleError, match=r"Sample 0 .*picture 1: .*CRC-32C"):
        next(iter(fastload.DataLoader(tmp_path / "set", 2, transform=RULES["qwen2_vl"])))
    loader = fastload.DataLoader(tmp_path / "set", 2, transform=RULES["qwen2_vl"], on_error="skip")
    batch = next(iter(loader))
    assert batch["valid"].tolist() == [False, True]


def test_what_a_rule_does_not_go_with(folder: Path, tmp_path: Path) -> None:
    rule = RULES["qwen2_vl"]
    with pytest.raises(ValueError, match="which a collate_fn does not get"):
        next(iter(fastload.DataLoader(folder, 2, transform=rule, collate_fn=list)))
    for collate in ("pad", "ragged", fastload.Patches("siglip2")):
        with pytest.raises(ValueError, match=r"and collate=.* exclude each other: batches are made as the"):
            fastload.DataLoader(folder, 2, transform=rule, collate=collate)
    with pytest.raises(ValueError, match=r"Found: batch_size=None. Pass batch_size=1"):
        fastload.DataLoader(folder, None, transform=rule)
    with pytest.raises(ValueError, match="takes one field of pictures. Found: none"):
        next(iter(fastload.DataLoader(folder, 2, transform=rule, fields=["text"])))
    with pytest.raises(ValueError, match="which batches are made by transform=fastload.Vision"):
        next(iter(fastload.DataLoader(folder, 2)))
    rows = [{"a": [photo(1)], "b": [photo(2)], "boxes": [[0, 0, 1, 1]]}]
    schema = {"a": "images", "b": "images", "boxes": "boxes"}
    fastload.pack(rows, tmp_path / "set", schema=schema, num_proc=1)
    with pytest.raises(ValueError, match="takes one field of pictures. Found: a, b"):
        next(iter(fastload.DataLoader(tmp_path / "set", 1, transform=rule)))
    with pytest.raises(ValueError, match="'boxes' says where things are in them"):
        next(iter(fastload.DataLoader(tmp_path / "set", 1, transform=rule, fields=["a", "boxes"])))
