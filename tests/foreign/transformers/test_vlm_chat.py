"""Chat against the processors of transformers, its positions against get_rope_index, packs against models."""

from __future__ import annotations

import pickle
import random
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from local_conversations import conversation, grids_of, images, reference, small_model, words
from local_processors import CHATML, FAMILIES, MARKED, TOKENIZERS, made_processor, made_tokenizer
from long_forms import SEED, as_drawn, how_many
from PIL import Image as PilImage

from fastload.vlm.chat import IGNORED, Chat
from fastload.vlm.frames import CropFrames, PatchFrames, TileFrames, frames_of
from fastload.vlm.packed import Placed, packed_batch, padded_batch

CASES = how_many(204, 1000)
TEMPLATES = [name for name, row in FAMILIES.items() if row[2] is not None]


@pytest.mark.parametrize("kind", TOKENIZERS)
@pytest.mark.parametrize("family", TEMPLATES)
def test_input_ids_are_those_of_the_processor(family: str, kind: str) -> None:
    processor = made_processor(family, kind)
    if family == "Gemma3Crops":  # its class turns pan and scan off, whatever its image processor says
        processor.images_kwargs = {**processor.images_kwargs, **_pan_and_scan(processor)}
    chat = Chat(processor, turns="messages")
    draw = random.Random(f"{SEED} {family} {kind}")
    several = 0
    for case in range(-(-CASES // (3 if family == "Gemma3Crops" else 1))):
        count = draw.choice([0, 1, 1, 1, 2, 3, 8])
        messages, pictures = conversation(draw, count, draw.randint(1, 3)), images(draw, count)
        grids = grids_of(processor, pictures)
        wanted = reference(processor, messages, pictures)
        found = chat.document(messages, grids, case)
        assert found.input_ids.tolist() == list(wanted["input_ids"][0]), as_drawn(case)
        length = int(chat.text_lengths([messages], [grids])[0]) + sum(chat.picture_lengths(grids))
        assert length == len(found)
        if chat.frames.fixed:
            assert chat.text_lengths([messages], [count]) == chat.text_lengths([messages], [grids])
        types = wanted.get("token_type_ids", wanted.get("mm_token_type_ids"))
        if chat.frames.types and count:
            assert found.types is not None
            assert found.types.tolist() == list(types[0])
        several += count > 1
    assert several > 20


def _pan_and_scan(processor: Any) -> dict[str, Any]:
    names = ("do_pan_and_scan", "min_crop_size", "max_num_crops", "min_ratio_to_activate")
    names = (names[0], *(f"pan_and_scan_{name}" for name in names[1:]))
    return {name: getattr(processor.image_processor, name) for name in names}


@pytest.mark.parametrize("kind", TOKENIZERS)
@pytest.mark.parametrize(("rows", "strips"), [(False, False), (True, True)])
def test_frames_of_tokenizers_with_other_tokens(kind: str, rows: bool, strips: bool) -> None:
    """Rows and columns that are no tokens of their own; picture tokens that take the spaces around them."""
    processor = made_processor("Idefics3", kind, rows=rows, strips=strips)
    chat, draw = Chat(processor, turns="messages"), random.Random(SEED)
    tiles = 0
    for case in range(how_many(60, 600)):
        count = draw.choice([0, 1, 2, 4])
        messages, pictures = conversation(draw, count, 2), images(draw, count)
        wanted = reference(processor, messages, pictures)
        grids = grids_of(processor, pictures)
        found = chat.document(messages, grids, case)
        assert found.input_ids.tolist() == list(wanted["input_ids"][0]), as_drawn(case)
        tiles += sum(rows * columns for rows, columns in grids)
    assert tiles > 200


@pytest.mark.parametrize("kind", TOKENIZERS)
def test_questions_and_answers_are_those_of_paligemma(kind: str) -> None:
    processor = made_processor("PaliGemma", kind)
    chat, draw = Chat(processor, turns="texts"), random.Random(f"{SEED} {kind}")
    for case in range(CASES):
        count, question, answer = draw.randint(1, 8), words(draw), words(draw)
        pictures = images(draw, count)
        wanted = processor(text=["<image>" * count + question], images=[pictures], suffix=[answer])
        found = chat.document([{"user": question, "assistant": answer}], grids_of(processor, pictures), case)
        assert found.input_ids.tolist() == list(wanted["input_ids"][0]), as_drawn(case)
        assert found.types is not None
        assert found.types.tolist() == list(wanted["token_type_ids"][0])
        assert found.labels.tolist() == list(np.asarray(wanted["labels"]).reshape(-1))
        length = int(chat.text_lengths([[{"user": question, "assistant": answer}]], [count])[0])
        assert length + 4 * count == len(found)


# ---- Labels -----------------------------------------------------------------------------------------


def with_pictures(messages: Any, pictures: list[PilImage.Image]) -> Any:
    """The messages as ``apply_chat_template(tokenize=True)`` wants them."""
    left = list(pictures)
    return [
        {
            **message,
            "content": [
                {"type": "image", "image": left.pop(0)} if part["type"] == "image" else part
                for part in message["content"]
            ],
        }
        for message in messages
    ]


#: The same template, laid out with spaces that its blocks take away or leave.
SPACED = [
    MARKED,
    MARKED.replace("{% generation %}", "\n  {% generation %}\n").replace("{% endgen", "  {% endgen"),
    MARKED.replace("{% generation %}", " \n {%- generation -%} \n ").replace(
        "{% endgeneration %}", "{%- endgeneration -%}\n"
    ),
    MARKED.replace("{% generation %}", "{%generation%}{% set x = 'a' %}{{ x }}").replace(
        "{{ '\n' }}", "{{ x }}\n\n"
    ),
]


@pytest.mark.parametrize("kind", TOKENIZERS)
@pytest.mark.parametrize("template", [None, *SPACED])
def test_marked_answers_are_those_of_transformers(template: str | None, kind: str) -> None:
    family = "Qwen2_5_VL" if template else "LlavaOnevision"
    processor = made_processor(family, kind)
    processor.chat_template = template or processor.chat_template
    chat, draw = Chat(processor, turns="messages"), random.Random(f"{SEED} {template} {kind}")
    learnt = 0
    for case in range(how_many(30, 300)):
        count = draw.choice([0, 1, 2])
        messages, pictures = conversation(draw, count, draw.randint(1, 3)), images(draw, count)
        wanted = processor.apply_chat_template(
            with_pictures(messages, pictures),
            tokenize=True,
            return_dict=True,
            return_assistant_tokens_mask=True,
        )
        found = chat.document(messages, grids_of(processor, pictures), case)
        assert found.input_ids.tolist() == list(wanted["input_ids"][0])
        mask = np.asarray(wanted["assistant_masks"][0], dtype=bool)
        assert np.array_equal(found.labels, np.where(mask, found.input_ids, IGNORED)), as_drawn(case)
        learnt += int(mask.sum())
    assert learnt > 200


def learnt_by_qwen(ids: list[int], begin: list[int], end: list[int]) -> list[bool]:
    """Answers as Qwen's finetune finds them: behind the header, as far as the turn's end and its newline."""
    found, at = [False] * len(ids), 0
    while at < len(ids):
        if ids[at : at + len(begin)] != begin:
            at += 1
            continue
        at += len(begin)
        while ids[at : at + len(end)] != end:
            found[at] = True
            at += 1
        found[at : at + len(end)] = [True] * len(end)
        at += len(end)
    return found


@pytest.mark.parametrize("family", ["Qwen2VL", "Qwen3VL"])
def test_answers_by_prefixes_are_those_of_qwens_finetune(family: str) -> None:
    """With a tokenizer that never merges the header's newline with the answer."""
    processor = made_processor(family, "plain")
    chat, draw = Chat(processor, turns="messages"), random.Random(f"{SEED} {family}")
    begin, end = (
        processor.tokenizer(text)["input_ids"] for text in ("<|im_start|>assistant\n", "<|im_end|>\n")
    )
    learnt = 0
    for case in range(CASES):
        count = draw.choice([0, 1, 2])
        messages = conversation(draw, count, draw.randint(1, 4))
        for message in messages:  # a newline would merge with the header's, and an end of ours follow
            message["content"] = [
                {**part, "text": "a" + part["text"].strip()} if "text" in part else part
                for part in message["content"]
            ]
        found = chat.document(messages, grids_of(processor, images(draw, count)), case)
        mask = np.asarray(learnt_by_qwen(found.input_ids.tolist(), begin, end))
        assert np.array_equal(found.labels, np.where(mask, found.input_ids, IGNORED)), as_drawn(case)
        learnt += int(mask.sum())
    assert learnt > 1000


def test_all_but_pictures_can_be_trained_and_labels_shifted() -> None:
    processor = made_processor("Qwen2VL", "merging")
    messages = [{"user": "what is this?", "assistant": "a house"}]
    plain = Chat(processor).document(messages, [(4, 4)])
    every = Chat(processor, train="all").document(messages, [(4, 4)])
    pad = processor.image_token_id
    wanted = np.where(every.input_ids == pad, IGNORED, every.input_ids)
    wanted[0] = IGNORED
    assert np.array_equal(every.labels, wanted)
    shifted = Chat(processor, shift=True).document(messages, [(4, 4)])
    assert shifted.labels.tolist() == [*plain.labels[1:], IGNORED]
    assert np.array_equal(shifted.input_ids, plain.input_ids)


def test_a_template_that_rewrites_its_past_is_refused() -> None:
    processor = made_processor("Qwen2VL", "plain")
    late = CHATML.replace("You help.", "{{ messages | length }} messages.")
    messages = [{"user": "a", "assistant": "b"}, {"user": "c", "assistant": "d"}]
    with pytest.raises(ValueError, match="sample 7: the chat template does not show.*message 1.*generation"):
        Chat(processor, template=late).document(messages, (), 7)


# ---- Positions and models ---------------------------------------------------------------------------


@pytest.mark.parametrize("family", ["Qwen2VL", "Qwen2_5_VL", "Qwen3VL"])
def test_positions_are_those_of_get_rope_index(family: str) -> None:
    processor, model = made_processor(family, "merging"), small_model(family).model
    chat, draw = Chat(processor, turns="messages"), random.Random(f"{SEED} {family}")
    for case in range(CASES):
        count = draw.randint(0, 8)
        grids = [(2 * draw.randint(1, 9), 2 * draw.randint(1, 9)) for _ in range(count)]
        found = chat.document(conversation(draw, count, draw.randint(1, 3)), grids, case)
        ids = torch.from_numpy(found.input_ids)[None]
        thw = torch.tensor([(1, *grid) for grid in grids]).view(-1, 3)
        kinds = (ids == processor.image_token_id).int()
        wanted, _ = model.get_rope_index(ids, kinds, image_grid_thw=thw)
        assert torch.equal(torch.from_numpy(found.position_ids), wanted[:, 0]), as_drawn(case)


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("family", ["Qwen2VL", "Qwen2_5_VL", "Qwen3VL"])
@pytest.mark.parametrize("layout", ["rows", "flat"])
def test_packed_documents_do_not_see_each_other(family: str, attention: str, layout: str) -> None:
    """The logits of a packed batch are those of each document alone, as the processor gives it."""
    processor, model = made_processor(family, "merging"), small_model(family, attention)
    model.config.image_token_id = model.model.config.image_token_id = processor.image_token_id
    chat, draw = Chat(processor, turns="messages"), random.Random(f"{SEED} {family}")
    packs, pixels, alone = [], [], []
    for row in range(2):
        pack = []
        for number in range(4 - row):
            count = draw.choice([0, 1, 2])
            messages, pictures = conversation(draw, count, 2), images(draw, count)
            made = reference(processor, messages, pictures)
            inputs = {key: torch.as_tensor(np.asarray(made[key])) for key in made}
            inputs = {key: value for key, value in inputs.items() if key != "mm_token_type_ids" or count}
            with torch.no_grad():
                alone.append(model(**inputs).logits[0])
            pixels += [inputs] if count else []
            document = chat.document(messages, grids_of(processor, pictures))
            pack.append(Placed(10 * row + number, document))
        packs.append(pack)
    tokens = max(sum(map(len, pack)) for pack in packs) + 5
    batch = packed_batch(packs, tokens, chat.pad, layout)
    inputs = {
        "input_ids": batch["input_ids"],
        "pixel_values": torch.cat([inputs["pixel_values"] for inputs in pixels]),
        "image_grid_thw": torch.cat([inputs["image_grid_thw"] for inputs in pixels]),
    }

    def logits(**more: Any) -> torch.Tensor:
        with torch.no_grad():
            found: torch.Tensor = model(**inputs, **more).logits.flatten(0, 1)
        return found

    apart = logits(position_ids=batch["position_ids"], use_cache=False)
    ends = batch["cu_seqlens"].tolist()
    lengths = [len(placed.document) for pack in packs for placed in pack]
    documents = [(begin, end) for begin, end in pairwise(ends) if end % tokens]  # others are padding
    assert [end - begin for begin, end in documents] == lengths
    for (begin, end), wanted in zip(documents, alone, strict=True):
        assert float((apart[begin:end] - wanted).abs().max()) <= 1e-5
    # Positions without the first row make one of all documents, and so does a cache, the models' default.
    together = logits(position_ids=batch["position_ids"][1:], use_cache=False)
    cached = logits(position_ids=batch["position_ids"], use_cache=True)
    begin, end = documents[1]
    for other in (together, cached):
        assert float((other[begin:end] - alone[1]).abs().max()) > 1e-4


@pytest.mark.parametrize("family", ["Qwen2VL", "Idefics3", "Gemma3"])
def test_unpacked_batches_are_the_processors_own(family: str) -> None:
    processor = made_processor(family, "merging")
    chat, draw = Chat(processor, turns="messages"), random.Random(SEED)
    texts, nested, placed = [], [], []
    for number in range(7):
        count = draw.choice([1, 1, 2, 5])
        messages, pictures = conversation(draw, count, 2), images(draw, count)
        texts.append(processor.apply_chat_template(messages, tokenize=False))
        nested.append(pictures)
        placed.append(Placed(number, chat.document(messages, grids_of(processor, pictures), number)))
    wanted = processor(
        text=texts, images=nested, padding=True, padding_side="right", return_tensors="pt",
        add_special_tokens=False,
    )  # fmt: skip
    batch = padded_batch(placed, chat.pad, chat.frames.types)
    for name in ("input_ids", "attention_mask", *([chat.frames.types] if chat.frames.types else [])):
        assert torch.equal(batch[name], wanted[name]), name
    if family == "Qwen2VL":
        kinds = wanted["mm_token_type_ids"].int()
        index, _ = small_model(family).model.get_rope_index(
            batch["input_ids"], kinds, wanted["image_grid_thw"], attention_mask=batch["attention_mask"]
        )
        assert torch.equal(batch["position_ids"], index)
    assert batch["documents"].counts() == [1] * 7


# ---- The object -------------------------------------------------------------------------------------


def test_a_tokenizer_and_frames_do() -> None:
    """With a template of parts, and one that takes texts alone."""
    processor = made_processor("Qwen2VL", "merging")
    wanted = Chat(processor).document([{"user": "what?", "assistant": "a dog"}], [(4, 6)])
    for template in (CHATML, CHATML.replace("message['content'] is string", "true"), MARKED):
        tokenizer = made_tokenizer("merging")
        tokenizer.chat_template = template
        found = Chat(tokenizer, images=PatchFrames()).document(
            [{"user": "what?", "assistant": "a dog"}], [(4, 6)]
        )
        assert np.array_equal(found.input_ids, wanted.input_ids)
        assert np.array_equal(found.position_ids, wanted.position_ids)
        newline = int(template is MARKED)
        assert (found.labels == wanted.labels).sum() == len(wanted) - newline


def test_a_document_of_texts_and_pictures() -> None:
    processor = made_processor("Qwen2VL", "merging")
    found = Chat(processor).document([None, "a house\n\n", None, "two dogs"], [(2, 2), (4, 2)])
    pad = "<|vision_start|><|image_pad|><|vision_end|>"
    text = f"{pad}a house\n\n{pad.replace('<|image_pad|>', '<|image_pad|><|image_pad|>')}two dogs<|im_end|>"
    assert found.input_ids.tolist() == processor.tokenizer(text)["input_ids"]
    special = processor.tokenizer.convert_tokens_to_ids(
        ["<|vision_start|>", "<|image_pad|>", "<|vision_end|>"]
    )
    assert np.array_equal(found.labels == IGNORED, np.isin(found.input_ids, special))


def test_it_can_be_pickled_and_knows_what_lengths_depend_on() -> None:
    processor = made_processor("Idefics3", "merging")
    processor.__class__ = type(processor).__mro__[1]  # a class that pickles
    chat = Chat(processor, turns="texts", shift=True)
    again = pickle.loads(pickle.dumps(chat))
    assert isinstance(again.processor, transformers.Idefics3Processor)
    texts = [{"user": "what?", "assistant": "a dog"}]
    assert np.array_equal(again.document(texts, [(2, 1)]).input_ids, chat.document(texts, [(2, 1)]).input_ids)
    assert again.shift
    assert again.digest() == chat.digest()
    others = [
        Chat(processor, template=FAMILIES["Idefics3"][2] + " "),
        Chat(processor, mark="<picture>"),
        Chat(processor, images=TileFrames(tokens=6)),
        Chat(processor, arguments={"x": 1}),
        Chat(made_processor("Idefics3", "plain")),
    ]
    assert len({chat.digest(), *(other.digest() for other in others)}) == 1 + len(others)
    processor.tokenizer.add_tokens(["house"])
    assert Chat(processor, turns="texts", shift=True).digest() != chat.digest()


@pytest.mark.parametrize("family", ["Qwen2VL", "Qwen2_5_VL"])
def test_threads_share_a_chat(family: str) -> None:
    """Those of transformers that mark answers keep notes in one place for all threads."""
    chat = Chat(made_processor(family, "merging"))
    values = [[{"user": f"what {'is ' * n}it", "assistant": f"a {'red ' * n}house"}] for n in range(40)]
    wanted = [chat.document(value, [(4, 4)]) for value in values]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda n: (n % 40, chat.document(values[n % 40], [(4, 4)])), range(400)))
    assert len(found) == 400
    for number, document in found:
        assert np.array_equal(document.input_ids, wanted[number].input_ids)
        assert np.array_equal(document.labels, wanted[number].labels)


def test_crops_need_grids_for_lengths() -> None:
    processor = made_processor("Gemma3", "merging")
    assert frames_of(processor) == CropFrames(tokens=4)
    chat = Chat(processor, images=CropFrames(tokens=4, crops=True))
    with pytest.raises(
        ValueError, match="sample 0: the text around a picture depends on its crops. Found: 1"
    ):
        chat.text_lengths([[{"user": "a", "assistant": "b"}]], [1])
    with pytest.raises(
        ValueError, match="sample 3, picture 0: a picture has 2 crops, and pan and scan is off"
    ):
        Chat(processor).document([{"user": "a", "assistant": "b"}], [(2,)], 3)
