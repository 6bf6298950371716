"""Processors of transformers made here: tokenizers trained on a few words, small pictures, no Hub.

Templates are written as those of the families are. ``transformers`` and ``tokenizers`` are only in the
frameworks' environment (``tests/foreign/run.sh transformers``).
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import tokenizers
import transformers
from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers.models.gemma3.image_processing_pil_gemma3 import Gemma3ImageProcessorPil
from transformers.models.got_ocr2.image_processing_pil_got_ocr2 import GotOcr2ImageProcessorPil
from transformers.models.idefics3.image_processing_pil_idefics3 import Idefics3ImageProcessorPil
from transformers.models.llava_onevision.image_processing_pil_llava_onevision import (
    LlavaOnevisionImageProcessorPil,
)
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil
from transformers.models.siglip.image_processing_pil_siglip import SiglipImageProcessorPil

__all__ = ["CHATML", "FAMILIES", "MARKED", "TOKENIZERS", "WORDS", "made_processor", "made_tokenizer"]

_TEXT = "what is in this picture a red house and two dogs on the left of it Here are some crops . , ? : the"
WORDS = _TEXT.split()
_PLAIN = [" ".join(WORDS[at % 7 :]) for at in range(40)] + [
    "a\nb",
    "user\nwhat",
    "assistant\na red house",
] * 8
_LINES = ["what is it?\n\nHere", "\n\n\n", ".\n\n", "house\n\n", "?\n\n\n a", "\n\n \n\n", ":\n\n"] * 20

_BEGIN = "{% for message in messages %}"
_CONTENT = (
    "{%% if message['content'] is string %%}{{ message['content'] }}{%% else %%}"
    "{%% for part in message['content'] %%}{%% if part['type'] == 'image' %%}%s"
    "{%% else %%}{{ part['text'] }}{%% endif %%}{%% endfor %%}{%% endif %%}"
)
_PAD = "<|vision_start|><|image_pad|><|vision_end|>"
_PROMPT = "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
_SYSTEM = (
    "{% if loop.first and message['role'] != 'system' %}<|im_start|>system\nYou help.<|im_end|>\n{% endif %}"
)


def _chatml(image: str) -> str:
    head = _BEGIN + _SYSTEM + "<|im_start|>{{ message['role'] }}\n"
    return head + _CONTENT % image + "<|im_end|>\n" + _PROMPT


CHATML = _chatml(_PAD)
#: The same, and it marks answers, as far as the token that ends the turn.
MARKED = (
    _BEGIN
    + _SYSTEM
    + "<|im_start|>{{ message['role'] }}\n{% if message['role'] == 'assistant' %}{% generation %}"
    + _CONTENT % _PAD
    + "<|im_end|>{% endgeneration %}{% else %}"
    + _CONTENT % _PAD
    + "<|im_end|>{% endif %}{{ '\n' }}"
    + _PROMPT
)
_SMOL = (
    "<|im_start|>{% for message in messages %}{{ message['role'] | capitalize }}"
    "{% if message['content'][0]['type'] == 'image' %}:{% else %}{{ ': ' }}{% endif %}"
    + _CONTENT % "<image>"
    + "<end_of_utterance>\n{% endfor %}{% if add_generation_prompt %}Assistant:{% endif %}"
)
_GEMMA = (
    "{{ bos_token }}{% for message in messages %}"
    "{% set role = 'model' if message['role'] == 'assistant' else message['role'] %}"
    "<start_of_turn>{{ role }}\n"
    + _CONTENT % "<start_of_image>"
    + "<end_of_turn>\n{% endfor %}{% if add_generation_prompt %}<start_of_turn>model\n{% endif %}"
)
_LLAVA = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n"
    "{% for part in message['content'] | selectattr('type', 'equalto', 'image') %}<image>\n{% endfor %}"
    "{% for part in message['content'] | selectattr('type', 'equalto', 'text') %}"
    "{% if message['role'] == 'assistant' %}{% generation %}{{ part['text'] }}{% endgeneration %}"
    "{% else %}{{ part['text'] }}{% endif %}{% endfor %}<|im_end|>" + _PROMPT
)

# ---- Tokenizers -------------------------------------------------------------------------------------


def _byte_level(corpus: list[str], pattern: str | None = None) -> tokenizers.Tokenizer:
    made = tokenizers.Tokenizer(models.BPE())
    level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=pattern is None)
    split = [] if pattern is None else [pre_tokenizers.Split(tokenizers.Regex(pattern), "isolated")]
    made.pre_tokenizer = pre_tokenizers.Sequence([*split, level])
    made.decoder = decoders.ByteLevel()
    made.train_from_iterator(corpus, _trainer(pre_tokenizers.ByteLevel.alphabet()))
    return made


def _trainer(alphabet: list[str]) -> Any:
    return trainers.BpeTrainer(vocab_size=600, initial_alphabet=alphabet, show_progress=False)


def _plain() -> tokenizers.Tokenizer:
    """Byte-level; no newlines merge."""
    return _byte_level(_PLAIN)


def _merging() -> tokenizers.Tokenizer:
    """Byte-level with Qwen's way to cut texts: newlines merge, with what stands before them too."""
    pattern = r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    return _byte_level(_PLAIN + _LINES, pattern)


def _spaces() -> tokenizers.Tokenizer:
    """As SentencePiece: a mark for spaces, before a text's first word too; newlines merge; a begin."""
    made = tokenizers.Tokenizer(models.BPE(byte_fallback=False, unk_token="<unk>"))
    made.normalizer = normalizers.Replace("\n\n", "⏎")
    made.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=True)
    letters = sorted({*"".join(_PLAIN + _LINES), "⏎", "▁", *map(chr, range(33, 127))})
    trainer = trainers.BpeTrainer(
        vocab_size=600, initial_alphabet=letters, special_tokens=["<unk>", "<bos>"], show_progress=False
    )
    made.train_from_iterator(_PLAIN + _LINES, trainer)
    made.post_processor = processors.TemplateProcessing(single="<bos> $A", special_tokens=[("<bos>", 1)])
    return made


TOKENIZERS = {"plain": _plain, "merging": _merging, "spaces": _spaces}
_MADE: dict[str, str] = {}

_SPECIAL = [
    *("<|im_start|>", "<|im_end|>", "<|endoftext|>", "<|image_pad|>", "<|video_pad|>", "<|vision_start|>"),
    *(
        "<|vision_end|>",
        "<image>",
        "<video>",
        "<fake_token_around_image>",
        "<end_of_utterance>",
        "<global-img>",
    ),
    *("<start_of_image>", "<end_of_image>", "<image_soft_token>", "<start_of_turn>", "<end_of_turn>"),
    *("<img>", "</img>", "<IMG_CONTEXT>", "<bos>"),
]
_NAMED = {
    "Gemma3": {
        "boi_token": "<start_of_image>", "eoi_token": "<end_of_image>", "image_token": "<image_soft_token>"
    },
    "InternVL": {
        "start_image_token": "<img>", "end_image_token": "</img>", "context_image_token": "<IMG_CONTEXT>",
        "video_token": "<video>",
    },
}  # fmt: skip


def made_tokenizer(kind: str, family: str = "", rows: bool = True, strips: bool = False) -> Any:
    """A fast tokenizer of transformers.

    ``rows``: whether it has Idefics3's tokens of rows and columns; ``strips``: whether the tokens of pictures
    take the spaces around them.
    """
    if kind not in _MADE:
        _MADE[kind] = TOKENIZERS[kind]().to_str()
    inner = tokenizers.Tokenizer.from_str(_MADE[kind])
    names = [*_SPECIAL, *([f"<row_{r}_col_{c}>" for r in range(1, 9) for c in range(1, 9)] if rows else [])]
    inner.add_special_tokens(
        [AddedToken(name, normalized=False, lstrip=strips, rstrip=strips) for name in names]
    )
    ends = "<end_of_turn>" if family == "Gemma3" else "<|im_end|>"
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=inner, bos_token="<bos>", eos_token=ends, pad_token="<|endoftext|>",
        extra_special_tokens=_NAMED.get(family, {}),
    )  # fmt: skip


# ---- Processors -------------------------------------------------------------------------------------


def _qwen(size: int, patch: int) -> Any:
    least, most = 4 * size * size, 64 * size * size
    return Qwen2VLImageProcessorPil(size={"shortest_edge": least, "longest_edge": most}, patch_size=patch)


def _paligemma() -> Any:
    made = SiglipImageProcessorPil(size={"height": 28, "width": 28})
    made.image_seq_length = 4
    return made


_CROPS = {
    "do_pan_and_scan": True, "pan_and_scan_min_crop_size": 16, "pan_and_scan_max_num_crops": 4,
    "pan_and_scan_min_ratio_to_activate": 1.2,
}  # fmt: skip
_TILE = 28
#: Class, its image processor, template, further arguments.
FAMILIES: dict[str, tuple[str, Any, str | None, dict[str, Any]]] = {
    "Qwen2VL": ("Qwen2VLProcessor", lambda: _qwen(28, 14), CHATML, {}),
    "Qwen2_5_VL": ("Qwen2_5_VLProcessor", lambda: _qwen(28, 14), MARKED, {}),
    "Qwen3VL": ("Qwen3VLProcessor", lambda: _qwen(32, 16), CHATML, {}),
    "Idefics3": (
        "Idefics3Processor",
        lambda: Idefics3ImageProcessorPil(size={"longest_edge": 112}, max_image_size={"longest_edge": _TILE}),
        _SMOL,
        {"image_seq_len": 5},
    ),
    "SmolVLM": (
        "SmolVLMProcessor",
        lambda: Idefics3ImageProcessorPil(size={"longest_edge": 84}, max_image_size={"longest_edge": _TILE}),
        _SMOL,
        {"image_seq_len": 3},
    ),
    "LlavaOnevision": (
        "LlavaOnevisionProcessor",
        lambda: LlavaOnevisionImageProcessorPil(
            size={"height": _TILE, "width": _TILE},
            image_grid_pinpoints=[[_TILE * r, _TILE * c] for r in range(1, 7) for c in range(1, 7)],
        ),
        _LLAVA,
        {"num_image_tokens": 16, "vision_feature_select_strategy": "full"},
    ),
    "InternVL": (
        "InternVLProcessor",
        lambda: GotOcr2ImageProcessorPil(size={"height": _TILE, "width": _TILE}, crop_to_patches=True),
        _chatml("<IMG_CONTEXT>\n"),
        {"image_seq_length": 4},
    ),
    "Gemma3": (
        "Gemma3Processor",
        lambda: Gemma3ImageProcessorPil(size={"height": _TILE, "width": _TILE}),
        _GEMMA,
        {"image_seq_length": 4},
    ),
    "Gemma3Crops": (
        "Gemma3Processor",
        lambda: Gemma3ImageProcessorPil(size={"height": _TILE, "width": _TILE}, **_CROPS),
        _GEMMA,
        {"image_seq_length": 4},
    ),
    "PaliGemma": ("PaliGemmaProcessor", _paligemma, None, {}),
}


def made_processor(family: str, kind: str, **tokenizer: Any) -> Any:
    """A processor of a family with a tokenizer of a kind. Videos are left out: they want torchvision."""
    name, images, template, more = FAMILIES[family]
    if name == "SmolVLMProcessor":
        from transformers.models.smolvlm import processing_smolvlm

        processing_smolvlm.num2words = str  # it is for videos, and the class refuses to be made without
    base = getattr(transformers, name)
    unchecked = {"check_argument_for_proper_class": lambda self, name, argument: None}
    local = type(name, (base,), unchecked)
    made = {
        "image_processor": images(),
        "tokenizer": made_tokenizer(kind, family.removesuffix("Crops"), **tokenizer),
    }
    if "video_processor" in base.get_attributes():
        made["video_processor"] = SimpleNamespace(num_frames=4, fps=1)
    return local(**made, chat_template=template, **more)
