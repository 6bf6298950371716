"""Documents from a DataLoader: equal to a chat's own, in packs and padded, with their pictures."""

from __future__ import annotations

import errno
import json
import random
import warnings
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from field_samples import photo
from simulated_gpu import SimulatedGpu
from small_tokenizer import Qwen2VLProcessor
from torch.utils.data import Subset

import fastload
from fastload import Chat, Device, LlavaOneVision, PackedDataset, PackingSampler, Qwen2VL, Ranks, Tokenizers
from fastload.errors import SampleError
from fastload.vlm import lengths as kept
from fastload.vlm.frames import CropFrames, PatchFrames, TileFrames
from fastload.vlm.packed import Placed, packed_batch, padded_batch

RULE = Qwen2VL(4, min_pixels=64, max_pixels=1000)
COUNT = 40
TOKENS = 160


def samples(seed: int = 5) -> list[dict[str, Any]]:
    """Conversations about none to three pictures; one list is null."""
    draws = random.Random(seed)
    found: list[dict[str, Any]] = [{"images": None, "texts": [{"user": "null?", "assistant": "no list"}]}]
    while len(found) < COUNT:
        images = [photo(draws.randrange(40)) for _ in range(draws.choice([0, 1, 1, 2, 3]))]
        texts = [
            {
                "user": f"what is {number}?" + " word" * draws.randrange(9),
                "assistant": f"it is {draws.random()}",
            }
            for number in range(draws.randint(1, 3))
        ]
        found.append({"images": images, "texts": texts})
    return found


SAMPLES = samples()


def written(folder: Path, rows: list[dict[str, Any]], **schema: Any) -> Path:
    fastload.pack(rows, folder, schema={"images": "images", "texts": "json", **schema}, num_proc=1)
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rows = [{**row, "name": str(number)} for number, row in enumerate(SAMPLES)]
    return written(tmp_path_factory.mktemp("documents") / "set", rows, name="text")


@pytest.fixture
def chat() -> Chat:
    return Chat(Qwen2VLProcessor())


def grid_of(picture: Any) -> tuple[int, int]:
    """By a decoded picture's size."""
    grid = RULE.sizes(*picture.shape[-2:])
    return grid.rows, grid.columns


def grids_of(folder: Path, number: int) -> list[tuple[int, int]]:
    return [grid_of(picture) for picture in PackedDataset(folder)[number]["images"] or ()]


def placed(chat: Chat, folder: Path, number: int) -> Placed:
    """The slow way to a sample's document."""
    return Placed(number, chat.document(SAMPLES[number]["texts"], grids_of(folder, number), number))


def assert_same(batch: dict[str, Any], wanted: dict[str, Any]) -> None:
    for name, value in wanted.items():
        found = batch[name]
        if name == "documents":
            assert [row.tolist() for row in found.to_list()] == [row.tolist() for row in value.to_list()]
        elif isinstance(value, torch.Tensor):
            assert found.dtype == value.dtype, name
            assert torch.equal(found.cpu(), value), name
        else:
            assert found == value, name


def numbers_of(batch: dict[str, Any]) -> list[int]:
    return [int(name) for name in batch["name"] if name]


def assert_has_its_pictures(batch: dict[str, Any], chat: Chat) -> None:
    """As many rows of patches as tokens of pictures, picture by picture."""
    image = chat.processor.tokenizer.own[chat.frames.image]
    grids = batch["image_grid_thw"]
    assert int((batch["input_ids"] == image).sum()) * 4 == int(grids.prod(1).sum())
    assert len(batch["pixel_values"]) == int(grids.prod(1).sum())


def test_padded_batches(folder: Path, chat: Chat) -> None:
    loader = fastload.DataLoader(folder, 7, shuffle=True, seed=1, transform=RULE, text=chat)
    seen = []
    for batch in loader:
        numbers = numbers_of(batch)
        assert_same(batch, padded_batch([placed(chat, folder, number) for number in numbers], chat.pad))
        assert_has_its_pictures(batch, chat)
        assert "texts" not in batch
        seen += numbers
    assert sorted(seen) == list(range(COUNT))


@pytest.mark.parametrize("layout", ["rows", "flat"])
def test_packs(folder: Path, layout: str) -> None:
    chat = Chat(Qwen2VLProcessor(), layout=layout)
    lengths = chat.lengths(PackedDataset(folder), RULE)
    packs = PackingSampler(lengths.tokens, TOKENS, limits={"pictures": (lengths.pictures, 5)}, long="skip")
    seen = []
    with fastload.DataLoader(folder, 3, sampler=packs, seed=3, transform=RULE, text=chat) as loader:
        for batch in loader:
            numbers, ends = numbers_of(batch), batch["pack_offsets"].tolist()
            rows = [[placed(chat, folder, one) for one in numbers[a:b]] for a, b in pairwise(ends)]
            assert_same(batch, packed_batch(rows, TOKENS, chat.pad, layout))
            assert_has_its_pictures(batch, chat)
            assert all(len(SAMPLES[one]["images"] or ()) <= 5 for one in numbers)
            seen += numbers
        assert loader.stats()["samples"] == len(seen)
    assert len(seen) == len(set(seen)) == COUNT - packs.skipped
    assert all(lengths.tokens[number] <= TOKENS for number in seen)


def test_lengths_are_those_of_the_documents(folder: Path, chat: Chat) -> None:
    found = chat.lengths(PackedDataset(folder), RULE)
    assert found.tokens.tolist() == [len(placed(chat, folder, number)) for number in range(COUNT)]
    assert found.pictures.tolist() == [len(row["images"] or ()) for row in SAMPLES]
    assert found.images.tolist() == [
        sum(chat.picture_lengths(grids_of(folder, number))) for number in range(COUNT)
    ]  # fmt: skip
    packs = [PackingSampler(lengths, TOKENS, long="skip") for lengths in (found, found.tokens)]
    assert packs[0].digest == packs[1].digest
    chosen = Subset(PackedDataset(folder), [5, 3, 3, 9])
    assert chat.lengths(chosen, RULE).tokens.tolist() == found.tokens[[5, 3, 3, 9]].tolist()


def test_lengths_are_counted_once(
    tmp_path: Path, chat: Chat, monkeypatch: pytest.MonkeyPatch, recwarn: pytest.WarningsRecorder
) -> None:
    data = PackedDataset(written(tmp_path / "set", SAMPLES))
    first = chat.lengths(data, RULE)
    counted = []
    monkeypatch.setattr(kept, "_counted", lambda *given: counted.append(given) or np.zeros(COUNT, np.int32))
    again = Chat(Qwen2VLProcessor()).lengths(data, RULE)
    assert again.tokens.tolist() == first.tokens.tolist()
    larger = Qwen2VL(4, min_pixels=64, max_pixels=9000)
    more = chat.lengths(data, larger)
    assert (more.tokens - more.images).tolist() == (first.tokens - first.images).tolist()
    assert more.images.sum() > first.images.sum()
    assert not counted
    for other in (
        Chat(Qwen2VLProcessor("count")),
        Chat(Qwen2VLProcessor(own=(*Qwen2VLProcessor().tokenizer.own, "new"))),
        Chat(Qwen2VLProcessor(), mark="<picture>"),
    ):
        other.lengths(data, RULE)
    assert len(counted) == 3
    assert not recwarn.list


def test_damaged_lengths_are_counted_again(tmp_path: Path, chat: Chat) -> None:
    data = PackedDataset(written(tmp_path / "set", SAMPLES))
    first = chat.lengths(data, RULE).tokens.tolist()
    (path,) = (tmp_path / "set" / ".chat").glob("*.npz")
    whole = path.read_bytes()
    flipped = bytearray(whole)
    flipped[len(whole) // 2] ^= 255
    for damaged in (whole[:40], whole[: len(whole) // 2], bytes(flipped), b""):
        path.write_bytes(damaged)
        with pytest.warns(UserWarning, match="is damaged .* counted again"):
            assert chat.lengths(data, RULE).tokens.tolist() == first
        assert path.read_bytes() == whole


def test_a_full_disk_loses_no_count(tmp_path: Path, chat: Chat, monkeypatch: pytest.MonkeyPatch) -> None:
    data = PackedDataset(written(tmp_path / "set", SAMPLES))
    first = chat.lengths(data, RULE, folder=tmp_path / "own").tokens.tolist()

    def full(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("numpy.savez", full)
    with pytest.warns(UserWarning, match="cannot be kept.*No space left.*counted again"):
        assert chat.lengths(data, RULE).tokens.tolist() == first
    assert [path.suffix for path in (tmp_path / "set" / ".chat").iterdir()] == [".lock"]


def test_a_set_that_cannot_be_written_says_so(
    tmp_path: Path, chat: Chat, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = PackedDataset(written(tmp_path / "set", SAMPLES))
    monkeypatch.setattr("os.access", lambda *_: False)
    with pytest.warns(UserWarning, match=r"cannot keep them beside the set.*Pass folder="):
        first = chat.lengths(data, RULE)
    monkeypatch.undo()
    assert chat.lengths(data, RULE, folder=tmp_path / "own").tokens.tolist() == first.tokens.tolist()
    assert len(list((tmp_path / "own").glob("*.npz"))) == 1


def test_texts_alone(tmp_path: Path, chat: Chat) -> None:
    rows = [{"texts": row["texts"]} for row in SAMPLES]
    fastload.pack(rows, tmp_path / "set", schema={"texts": "json"}, num_proc=1)
    lengths = chat.lengths(PackedDataset(tmp_path / "set"))
    assert lengths.images.sum() == 0
    for packs in (None, PackingSampler(lengths.tokens, 200)):
        loader = fastload.DataLoader(tmp_path / "set", 4, sampler=packs, text=chat, seed=0)
        seen: list[int] = []
        for batch in loader:
            assert "texts" not in batch
            rows_of = [row.tolist() for row in batch["documents"].to_list()]
            made = [[Placed(one, chat.document(SAMPLES[one]["texts"])) for one in row] for row in rows_of]
            if packs is None:
                assert_same(batch, padded_batch([one for row in made for one in row], chat.pad))
            else:
                assert_same(batch, packed_batch(made, 200, chat.pad))
            seen += [one for row in rows_of for one in row]
        assert sorted(seen) == list(range(COUNT))


def test_ranks_share_the_packs_and_go_on_on_others(folder: Path, chat: Chat) -> None:
    """Each step's documents and pixels over all ranks are the same for 1 to 8 ranks, also after a stop."""
    lengths = chat.lengths(PackedDataset(folder), RULE)

    def loader(rank: int, ranks: int) -> Any:
        packs = PackingSampler(lengths.tokens, 120, costs=lengths.images, long="skip")
        return fastload.DataLoader(
            folder, 8 // ranks, sampler=packs, seed=8, transform=RULE, text=chat, ranks=Ranks(rank, ranks)
        )

    def facts(batch: Any) -> list[tuple[list[int], bytes]]:
        rows = zip(batch["documents"].to_list(), batch["input_ids"], batch["labels"], strict=True)
        return [
            (ids.tolist(), one.numpy().tobytes() + two.numpy().tobytes())
            for ids, one, two in rows
            if len(ids)
        ]

    def step(batches: list[Any]) -> list[Any]:
        pixels = sorted(row.numpy().tobytes() for batch in batches for row in batch["pixel_values"])
        return [sorted(one for batch in batches for one in facts(batch)), pixels]

    whole = [step([batch]) for batch in loader(0, 1)]
    assert len(whole) > 2
    for ranks in (2, 4, 8):
        shared = zip(*(loader(rank, ranks) for rank in range(ranks)), strict=True)
        assert [step(list(batches)) for batches in shared] == whole
    for stop in range(1, len(whole)):
        first = loader(0, 2)
        reading = iter(first)
        for _ in range(stop):
            next(reading)
        state = first.state_dict()
        assert len(json.dumps(state)) < 1000
        for ranks in (1, 4, 8):
            resumed = [loader(rank, ranks) for rank in range(ranks)]
            for one in resumed:
                one.load_state_dict(state)
            assert [step(list(batches)) for batches in zip(*resumed, strict=True)] == whole[stop:]
    # Three ranks have six packs a step: other steps, of the same documents and pixels.
    state = {**state, "position": 8}
    three = [loader(rank, 3) for rank in range(3)]
    for one in three:
        one.load_state_dict(state)
    steps = [step(list(batches)) for batches in zip(*three, strict=True)]
    for part in (0, 1):
        gone_on = sorted(one for found in steps for one in found[part])
        assert gone_on == sorted(one for found in whole[1:] for one in found[part])


def test_padding_is_rows_without_documents(folder: Path, chat: Chat) -> None:
    lengths = chat.lengths(PackedDataset(folder), RULE)
    packs = PackingSampler(lengths.tokens, int(lengths.tokens.max()))
    padded = 0
    for rank in range(3):
        options = {"sampler": packs, "seed": 2, "ranks": Ranks(rank, 3)}
        for batch in fastload.DataLoader(folder, 2, transform=RULE, text=chat, **options):  # type: ignore[arg-type]
            for row in (~batch["valid"]).nonzero().flatten().tolist():
                padded += 1
                assert (batch["labels"][row] == -100).all()
                assert (batch["input_ids"][row] == chat.pad).all()
            assert batch["position_ids"].shape == (4, *batch["input_ids"].shape)
            assert_has_its_pictures(batch, chat)
    assert padded


@pytest.mark.parametrize("packed", [False, True])
def test_one_picture_a_sample_and_mixtures(tmp_path: Path, chat: Chat, packed: bool) -> None:
    """Sets with a picture for each sample, and mixes of sets: ids go on from one set to the next."""
    texts = [{"user": f"what is {number}?", "assistant": f"it is {number}"} for number in range(9)]
    for name, numbers in (("one", range(5)), ("two", range(5, 9))):
        rows = [{"image": photo(number), "texts": [texts[number]]} for number in numbers]
        fastload.pack(rows, tmp_path / name, schema={"image": "image", "texts": "json"}, num_proc=1)
    mixed = fastload.mix([tmp_path / "one", tmp_path / "two"])
    lengths = chat.lengths(mixed, RULE)
    assert lengths.pictures.tolist() == [1] * 9
    assert len(list(tmp_path.glob("*/.chat/*.npz"))) == 2
    packs = PackingSampler(lengths.tokens, 150) if packed else None
    loader = fastload.DataLoader(mixed, 3, sampler=packs, transform=RULE, text=chat, seed=3)
    seen = []
    for batch in loader:
        assert_has_its_pictures(batch, chat)
        begins = [0, *batch["cu_seqlens"].tolist()] if packed else None
        for row, ids in enumerate(batch["documents"].to_list()):
            for sample in ids.tolist():
                own = chat.document([texts[sample]], [grid_of(mixed[sample]["image"])])
                assert len(own) == lengths.tokens[sample]
                whole = batch["input_ids"][row].tolist()
                first = next(at for at in range(150) if whole[at : at + len(own)] == own.input_ids.tolist())
                assert begins is None or row * 150 + first in begins
                seen.append(sample)
    assert sorted(seen) == list(range(9))


def test_a_replaced_sample_brings_its_own_document(tmp_path: Path, chat: Chat) -> None:
    rows = [
        {"images": [photo(number)], "texts": [{"user": "what?", "assistant": f"it is {number}"}]}
        for number in range(6)
    ]
    data = PackedDataset(written(tmp_path / "set", rows))
    (shard,) = (tmp_path / "set").glob("*.arrow")
    damaged = bytearray(shard.read_bytes())
    damaged[int(data.parts[0].list_records("images", 2)[0]["offset"]) + 40] ^= 255
    shard.write_bytes(damaged)
    loader = fastload.DataLoader(
        tmp_path / "set", 6, transform=RULE, text=chat, on_error="replace", seed=1
    )  # fmt: skip
    (batch,) = loader
    found = [ids.tolist() for ids in batch["documents"].to_list()]
    other = loader.errors[0].substitute
    assert found == [[0], [1], [other], [3], [4], [5]]
    learnt = batch["labels"][2][batch["labels"][2] != -100].tolist()
    assert chat.processor.tokenizer.text(learnt) == f"it is {other}<|im_end|>\n"
    assert_has_its_pictures(batch, chat)


def test_on_a_device(folder: Path, chat: Chat, monkeypatch: pytest.MonkeyPatch) -> None:
    lengths = chat.lengths(PackedDataset(folder), RULE)
    packs = PackingSampler(lengths.tokens, TOKENS, long="skip")
    options: dict[str, Any] = {"sampler": packs, "seed": 2, "transform": RULE, "text": chat}
    wanted = list(fastload.DataLoader(folder, 2, **options))
    gpu = SimulatedGpu(0)
    for place in ("fastload.backends.choice", "fastload.transfer.cuda"):
        monkeypatch.setattr(f"{place}.find_gpu", lambda device: None if device is None else gpu)
    monkeypatch.setattr("fastload.backends.choice.goes_to_gpu", lambda device: device is not None)
    found = list(fastload.DataLoader(folder, 2, device=Device("cuda"), **options))
    assert len(found) > 1
    for batch, own in zip(found, wanted, strict=True):
        assert_same(batch, {name: value for name, value in own.items() if name != "name"})


def test_one_seed_one_order_with_several_threads(folder: Path, chat: Chat) -> None:
    threaded = Tokenizers(chat, threads=3)
    made = [
        list(fastload.DataLoader(folder, 6, shuffle=True, seed=4, transform=RULE, text=text))
        for text in (chat, threaded)
    ]
    assert len(made[0]) == -(-COUNT // 6)
    for one, other in zip(*made, strict=True):
        assert_same(one, {name: value for name, value in other.items() if name != "name"})


# ---- What does not fit is said, and names the sample --------------------------------------------------


def test_a_length_that_is_not_the_planned_one(folder: Path, chat: Chat) -> None:
    lengths = chat.lengths(PackedDataset(folder), RULE).tokens.copy()
    lengths[7] += 1
    loader = fastload.DataLoader(
        folder, 2, sampler=PackingSampler(lengths, 4000), seed=0, transform=RULE, text=chat
    )
    with pytest.raises(ValueError, match=rf"Sample 7 has {lengths[7] - 1} tokens, and {lengths[7]} were"):
        list(loader)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("<image><image> what?", r"'texts' of sample 1.*2.*1"),
        ("a <|image_pad|> in a text", r"'texts' of sample 1.*1 pictures"),
    ],
)
def test_places_that_are_not_as_many_as_pictures(tmp_path: Path, chat: Chat, words: str, says: str) -> None:
    rows = [
        {"images": [photo(1)], "texts": [{"user": "what?", "assistant": "that"}]},
        {"images": [photo(2)], "texts": [{"user": words, "assistant": "that"}]},
    ]
    data = PackedDataset(written(tmp_path / "set", rows))
    with pytest.raises(ValueError, match=says):
        chat.lengths(data, RULE)
    with pytest.raises(ValueError, match=says):
        list(fastload.DataLoader(tmp_path / "set", 1, transform=RULE, text=chat))


def test_a_picture_without_a_size_by_the_rule(tmp_path: Path, chat: Chat) -> None:
    thin = np.zeros((1, 900, 3), np.uint8)
    rows = [
        {"images": [], "texts": [{"user": "what?", "assistant": "that"}]},
        {"images": [photo(1), thin], "texts": [{"user": "what?", "assistant": "that"}]},
    ]
    data = PackedDataset(written(tmp_path / "set", rows))
    with pytest.raises(ValueError, match=r"Sample 1, field 'images', picture 1: .*200"):
        chat.lengths(data, RULE)
    with pytest.raises(SampleError, match=r"Sample 1 .*picture 1: .*200"):
        list(fastload.DataLoader(tmp_path / "set", 2, transform=RULE, text=chat))
    (batch,) = fastload.DataLoader(tmp_path / "set", 2, transform=RULE, text=chat, on_error="skip")
    assert batch["valid"].tolist() == [True, False]
    assert (batch["labels"][1] == -100).all()
    assert batch["attention_mask"][1].sum() == 0
    assert batch["pixel_values"] is None


def test_a_bad_picture_that_is_skipped_takes_its_document_along(tmp_path: Path, chat: Chat) -> None:
    rows = [
        {"images": [photo(1), photo(2)], "texts": [{"user": "what?", "assistant": "this"}]},
        {"images": [photo(3)], "texts": [{"user": "what?", "assistant": "that"}]},
    ]
    data = PackedDataset(written(tmp_path / "set", rows))
    entries = data.parts[0].list_records("images", 0)
    (shard,) = (tmp_path / "set").glob("*.arrow")
    damaged = bytearray(shard.read_bytes())
    damaged[int(entries[1]["offset"]) + 40] ^= 255
    lengths = chat.lengths(data, RULE)
    shard.write_bytes(damaged)
    packs = PackingSampler(lengths.tokens, int(lengths.tokens.sum()), shuffle=False)
    for sampler in (None, packs):
        loader = fastload.DataLoader(
            tmp_path / "set", 2, sampler=sampler, transform=RULE, text=chat, on_error="skip"
        )
        (batch,) = loader
        assert [row.tolist() for row in batch["documents"].to_list() if len(row)] == [[1]]
        assert_has_its_pictures(batch, chat)
        learnt = batch["labels"][batch["labels"] != -100].tolist()
        assert chat.processor.tokenizer.text(learnt) == "that<|im_end|>\n"
        assert len(loader.errors) == 1


def test_samples_without_a_document_are_left_out_if_wished(tmp_path: Path, chat: Chat) -> None:
    thin = np.zeros((1, 900, 3), np.uint8)
    good = {"images": [photo(1)], "texts": [{"user": "what?", "assistant": "that"}]}
    rows: list[dict[str, Any]] = [
        good,
        {**good, "images": [thin]},
        {**good, "texts": [{"user": "<image><image>", "assistant": "no"}]},
        {**good, "images": []},
    ]
    data = PackedDataset(written(tmp_path / "set", rows))
    for _ in range(2):  # counted, and kept
        with pytest.warns(UserWarning, match=r"No document can be made of 2 of 4 samples.*: 1, 2\..*200"):
            lengths = chat.lengths(data, RULE, bad="skip")
    known = lengths.tokens[[0, 3]]
    assert repr(lengths) == (
        f"DocumentLengths(4 samples, mean {int(known.mean())} tokens, longest {known.max()}, "
        "2 without a document)"
    )
    with pytest.raises(ValueError, match="sample 2: "):
        chat.lengths(Subset(data, [0, 2]), RULE)
    assert len(chat.lengths(Subset(data, [3, 0]), RULE)) == 2
    packs = PackingSampler(lengths.tokens, 200, long="skip")
    assert packs.skipped == 2
    loader = fastload.DataLoader(tmp_path / "set", 2, sampler=packs, transform=RULE, text=chat, seed=0)
    seen = [one for batch in loader for row in batch["documents"].to_list() for one in row.tolist()]
    assert sorted(seen) == [0, 3]


def test_a_sample_whose_answers_are_not_shown_has_no_length(tmp_path: Path, chat: Chat) -> None:
    """What fails as a document is left out by its length, and only there where it fails."""
    rows: list[dict[str, Any]] = [
        {"images": [photo(1)], "texts": [{"user": "what?", "assistant": "that"}]},
        {"images": [], "texts": [{"from": "gpt", "value": "hello"}, {"from": "human", "value": "what?"}]},
    ]
    data = PackedDataset(written(tmp_path / "set", rows))
    everything = Chat(Qwen2VLProcessor(), train="all").lengths(data, RULE)
    with pytest.raises(ValueError, match="sample 1: the conversation begins with an answer"):
        chat.lengths(data, RULE)
    with pytest.warns(UserWarning, match="begins with an answer"):
        lengths = chat.lengths(data, RULE, bad="skip")
    assert everything.tokens[0] == lengths.tokens[0]
    packs = PackingSampler(lengths.tokens, 200, long="skip")
    (batch,) = fastload.DataLoader(data, 2, sampler=packs, transform=RULE, text=chat, seed=0, padding="mark")
    assert batch["documents"].values.tolist() == [0]


def test_texts_are_kept_for_rules_that_take_the_pictures(tmp_path: Path, chat: Chat) -> None:
    """What is kept under a rule that refuses a picture holds under one that takes it."""
    rows = [{"images": [photo(1)], "texts": [{"user": "what?", "assistant": "that"}]}]
    data = PackedDataset(written(tmp_path / "set", rows))
    with pytest.warns(UserWarning, match=r"No document can be made of 1 of 1 samples.*sides"):
        refused = chat.lengths(
            data, Qwen2VL(4, min_pixels=64, max_pixels=1000, first_max_pixels=1), bad="skip"
        )
    assert refused.pictures.tolist() == [1]
    found = chat.lengths(data, RULE)
    assert found.tokens.tolist() == [len(chat.document(rows[0]["texts"], grids_of(tmp_path / "set", 0)))]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"text": Chat(Qwen2VLProcessor())}, "needs a rule by which each picture has tokens.*images"),
        ({"text": Chat(Qwen2VLProcessor(), "talk"), "transform": RULE}, "Found: 'talk', and the set has"),
        ({"text": Chat(Qwen2VLProcessor()), "transform": RULE, "collate_fn": list}, "collate_fn"),
        ({"text": Chat(Qwen2VLProcessor()), "transform": RULE, "batch_size": None}, "batch_size=None"),
    ],
)
def test_what_does_not_go_with_it(folder: Path, options: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        fastload.DataLoader(folder, **options)


@pytest.mark.parametrize(
    ("frames", "rule", "says"),
    [
        (TileFrames(tokens=3), RULE, r"TileFrames, whose rule is Idefics3\. Found: Qwen2VL"),
        (None, LlavaOneVision(28, ((28, 56), (56, 28))), "PatchFrames, whose rule is Qwen2VL"),
        (PatchFrames(merge=1), RULE, "merge must be the merge of the chat's PatchFrames, 1. Found: 2"),
    ],
)
def test_a_rule_of_another_family_is_refused(folder: Path, frames: Any, rule: Any, says: str) -> None:
    chat = Chat(Qwen2VLProcessor(), images=frames)
    with pytest.raises(ValueError, match=says):
        chat.lengths(folder, rule)
    with pytest.raises(ValueError, match=says):
        fastload.DataLoader(folder, 2, transform=rule, text=chat)


def test_packs_of_a_family_whose_models_mix_documents_are_warned_of(tmp_path: Path) -> None:
    rows = [{"texts": row["texts"]} for row in SAMPLES]
    fastload.pack(rows, tmp_path / "set", schema={"texts": "json"}, num_proc=1)
    own = ("<start_of_image>", "<end_of_image>", "<image_soft_token>")
    chat = Chat(Qwen2VLProcessor(own=(*Qwen2VLProcessor().tokenizer.own, *own)), images=CropFrames())
    packs = PackingSampler(chat.lengths(tmp_path / "set").tokens, 200)
    with pytest.warns(UserWarning, match="let documents see each other"):
        fastload.DataLoader(tmp_path / "set", 2, sampler=packs, text=chat)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fastload.DataLoader(tmp_path / "set", 2, text=chat)


@pytest.mark.parametrize("packed", [False, True])
def test_a_callable_collate_gets_the_whole_batch(folder: Path, chat: Chat, packed: bool) -> None:
    names = ("input_ids", "labels", "position_ids", "pixel_values", "image_grid_thw")

    def chosen(batch: dict[str, Any]) -> dict[str, Any]:
        assert not any(name.startswith(".") for name in batch)
        return {name: batch[name] for name in names}

    lengths = chat.lengths(PackedDataset(folder), RULE)
    options: dict[str, Any] = {"sampler": PackingSampler(lengths.tokens, 200)} if packed else {}
    options |= {"seed": 3, "transform": RULE, "text": chat}
    plain = list(fastload.DataLoader(folder, 3, **options))
    found = list(fastload.DataLoader(folder, 3, collate=chosen, **options))
    assert len(found) == len(plain) > 1
    for batch, whole in zip(found, plain, strict=True):
        assert tuple(batch) == names
        assert_same(batch, {name: whole[name] for name in names})


def test_the_class_is_no_chat(folder: Path) -> None:
    with pytest.raises(TypeError, match="or a fastload.Chat. Found: <class"):
        fastload.DataLoader(folder, 2, transform=RULE, text=Chat)  # type: ignore[arg-type]


def test_a_torch_dataset_is_refused() -> None:
    with pytest.raises(ValueError, match="is for packed datasets"):
        fastload.DataLoader([1, 2], text=Chat(Qwen2VLProcessor()))


def test_fields_of_the_same_names_are_refused(tmp_path: Path, chat: Chat) -> None:
    rows = [{"texts": SAMPLES[0]["texts"], "labels": 3, "images": []}]
    written(tmp_path / "set", rows, labels="label")
    with pytest.raises(ValueError, match="Under 'labels' a batch has what Chat makes"):
        fastload.DataLoader(tmp_path / "set", 1, transform=RULE, text=chat)
    loader = fastload.DataLoader(tmp_path / "set", 1, transform=RULE, text=chat, fields=["images"])
    (batch,) = loader
    assert batch["labels"].dtype == torch.int64


def test_explain_names_it(folder: Path, chat: Chat) -> None:
    words = str(fastload.DataLoader(folder, 2, transform=RULE, text=chat).explain())
    assert "texts: Chat(Qwen2VLProcessor, turns='texts')" in words
