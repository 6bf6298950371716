"""Chat with a small tokenizer: tokens, labels, positions, lengths, errors; never transformers."""

from __future__ import annotations

import pickle
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from small_tokenizer import OWN, Qwen2VLProcessor, SmallTokenizer

from fastload.vlm.chat import IGNORED, Chat, Document
from fastload.vlm.frames import CropFrames, PatchFrames, PrefixFrames, TileFrames

PAD = "<|image_pad|>"
TEXTS = [{"user": "what?\n", "assistant": "a dog"}, {"user": "sure?", "assistant": "yes\n\nit is"}]


def text_of(chat: Chat, document: Document) -> str:
    tokenizer = chat.processor.tokenizer
    return str(tokenizer.text(document.input_ids))


def trained(chat: Chat, document: Document) -> list[str]:
    """The runs of tokens that are learnt, as texts."""
    runs: list[list[int]] = [[]]
    for label in document.labels.tolist():
        if label != IGNORED:
            runs[-1].append(label)
        elif runs[-1]:
            runs.append([])
    return [chat.processor.tokenizer.text(run) for run in runs if run]


def test_a_conversation() -> None:
    chat = Chat(Qwen2VLProcessor())
    document = chat.document(TEXTS, [(4, 4), (2, 6)])
    one, two = (f"<|vision_start|>{PAD * count}<|vision_end|>" for count in (4, 3))
    assert text_of(chat, document) == (
        f"<|im_start|>user\n{one}{two}what?\n<|im_end|>\n<|im_start|>assistant\na dog<|im_end|>\n"
        "<|im_start|>user\nsure?<|im_end|>\n<|im_start|>assistant\nyes\n\nit is<|im_end|>\n"
    )
    assert trained(chat, document) == ["a dog<|im_end|>\n", "yes\n\nit is<|im_end|>\n"]
    assert [array.dtype for array in (document.input_ids, document.labels)] == [np.int64] * 2
    assert document.position_ids.shape == (3, len(document))
    first = document.input_ids.tolist().index(chat.processor.tokenizer.own[PAD])
    assert document.position_ids[:, first : first + 4].T.tolist() == [
        [first, first + row, first + column] for row in range(2) for column in range(2)
    ]


def test_equal_words_in_questions_are_not_trained() -> None:
    chat = Chat(Qwen2VLProcessor())
    tricky = [{"user": "<|im_start|>assistant\na dog<|im_end|>\n", "assistant": "a dog"}]
    assert trained(chat, chat.document(tricky)) == ["a dog<|im_end|>\n"]


def test_conversations_without_answers_or_turns() -> None:
    chat = Chat(Qwen2VLProcessor())
    assert (chat.document([{"role": "user", "content": "a"}]).labels == IGNORED).all()
    with pytest.raises(ValueError, match="sample 8: the conversation begins with an answer"):
        chat.document([{"role": "assistant", "content": "a dog"}], (), 8)
    plain = chat.document(["a dog", None, " and\n", "\nred"], [(2, 2)])
    assert text_of(chat, plain) == f"a dog<|vision_start|>{PAD}<|vision_end|> and\n\nred<|im_end|>"
    assert trained(chat, plain) == [" dog", " and\n\nred<|im_end|>"]  # nothing comes before the first
    assert trained(chat, Chat(chat.processor, end=False).document(["a dog"])) == [" dog"]


def test_texts_of_frames_are_not_trained() -> None:
    own = (*OWN, "<start_of_image>", "<image_soft_token>", "<end_of_image>")
    chat = Chat(Qwen2VLProcessor(own=own), images=CropFrames(tokens=2))
    document = chat.document(["see a", None, None, "b c", None], [(0,)] * 3)
    frame = "\n\n<start_of_image><image_soft_token><image_soft_token><end_of_image>\n\n"
    assert text_of(chat, document) == f"see a{frame}{frame}b c{frame}<|im_end|>"
    assert trained(chat, document) == [" a", "b c", "<|im_end|>"]


def test_an_end_that_the_tokenizer_adds() -> None:
    """It is a document's end, which is trained, and no part of a conversation's answers."""

    class Ending(SmallTokenizer):
        def __call__(
            self, text: str, add_special_tokens: bool, return_offsets_mapping: bool
        ) -> dict[str, Any]:
            made = super().__call__(text, add_special_tokens, return_offsets_mapping)
            if add_special_tokens:
                made["input_ids"].append(self.eos_token_id)
                made["offset_mapping"].append((0, 0))
            return made

    processor = Qwen2VLProcessor()
    processor.tokenizer = Ending()
    chat = Chat(processor)
    document = chat.document(["see a", None, "b"], [(2, 2)])
    assert text_of(chat, document).endswith("b<|im_end|>")
    assert trained(chat, document) == [" a", "b<|im_end|>"]
    assert trained(chat, Chat(processor, end=False).document(["see a"])) == [" a"]
    answers = chat.document(TEXTS[:1])
    assert text_of(chat, answers).endswith("a dog<|im_end|>\n<|im_end|>")
    assert trained(chat, answers) == ["a dog<|im_end|>\n"]


def test_what_is_trained_and_shifted() -> None:
    processor = Qwen2VLProcessor()
    plain = Chat(processor).document(TEXTS, [(2, 2)])
    shifted = Chat(processor, shift=True).document(TEXTS, [(2, 2)])
    assert shifted.labels.tolist() == [*plain.labels[1:], IGNORED]
    every = Chat(processor, train="all").document(TEXTS, [(2, 2)])
    pad = processor.tokenizer.own[PAD]
    assert every.labels[1:].tolist() == [
        IGNORED if number == pad else number for number in every.input_ids[1:].tolist()
    ]


def test_newlines_merge_where_a_frames_text_meets_the_conversations() -> None:
    """Gemma's empty lines around a picture are tokenised with the text that they meet."""
    own = (*OWN, "<start_of_image>", "<image_soft_token>", "<end_of_image>")

    class Gemma(Qwen2VLProcessor):
        def apply_chat_template(self, messages: Any, **options: Any) -> str:
            text = super().apply_chat_template(messages, **options)
            return text.replace(f"<|vision_start|>{PAD}<|vision_end|>", "<start_of_image>")

    chat = Chat(Gemma(own=own), images=CropFrames(tokens=2))
    value = [{"role": "user", "content": "see\n<image>\nit"}, {"role": "assistant", "content": "a"}]
    document = chat.document(value, [(0,)])
    text = text_of(chat, document)
    assert "see\n\n\n<start_of_image><image_soft_token><image_soft_token><end_of_image>\n\n\nit" in text
    wanted = chat.processor.tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
    assert document.input_ids.tolist() == wanted["input_ids"]
    assert document.types is not None
    assert document.types.sum() == 2


def test_paligemma_has_a_question_and_an_answer() -> None:
    chat = Chat(Qwen2VLProcessor(), images=PrefixFrames(tokens=2))
    document = chat.document([{"user": "what?", "assistant": "a dog"}], [(), ()])
    assert text_of(chat, document) == "<image>" * 4 + "what?\na dog<|im_end|>"
    assert trained(chat, document) == ["a dog<|im_end|>"]
    assert document.types is not None
    assert document.types.tolist() == (document.labels != IGNORED).astype(int).tolist()
    with pytest.raises(
        ValueError, match="sample 6: PaliGemma takes one question.*user, assistant, user, assistant"
    ):
        chat.document(TEXTS, [], 6)


def test_lengths_hold_for_all_grids() -> None:
    chat = Chat(Qwen2VLProcessor())
    values = [TEXTS, TEXTS[:1], [{"role": "user", "content": "a<image>"}]]
    lengths = chat.text_lengths(values, [2, 0, [(4, 4)]])
    assert lengths.dtype == np.int32
    for value, length, grids in zip(values, lengths, [[(4, 8), (2, 2)], [], [(6, 2)]], strict=True):
        assert len(chat.document(value, grids)) == length + sum(chat.picture_lengths(grids))
    assert chat.picture_lengths([(4, 8), (2, 2)]) == [8, 1]
    tiles = Chat(SmallTokenizer(template="texts"), images=TileFrames(tokens=3))
    length = int(tiles.text_lengths([TEXTS], [2])[0])
    for grids in ([(0, 0), (1, 2)], [(3, 1), (2, 2)]):
        assert len(tiles.document(TEXTS, grids)) == length + sum(tiles.picture_lengths(grids))


def test_digest() -> None:
    chat = Chat(Qwen2VLProcessor())
    assert chat.digest() == Chat(Qwen2VLProcessor()).digest()
    assert len(chat.digest()) == 64
    others = [
        Chat(Qwen2VLProcessor("count")),
        Chat(Qwen2VLProcessor(own=(*OWN, "<more>"))),
        Chat(Qwen2VLProcessor(), turns="conversations"),
        Chat(Qwen2VLProcessor(), mark="<picture>"),
        Chat(Qwen2VLProcessor(), arguments={"system": "a"}),
        Chat(Qwen2VLProcessor(), end=False),
        Chat(Qwen2VLProcessor(), images=PatchFrames(merge=4)),
    ]
    assert len({chat.digest(), *(other.digest() for other in others)}) == 1 + len(others)
    # What changes labels alone changes no length.
    assert Chat(Qwen2VLProcessor(), shift=True).digest() == chat.digest()
    assert Chat(Qwen2VLProcessor(), train="all").digest() != chat.digest()


def test_a_tokenizer_with_a_template_of_texts() -> None:
    wanted = Chat(Qwen2VLProcessor()).document(TEXTS, [(2, 2)])
    for template in ("texts", "chatml"):
        tokenizer = SmallTokenizer(template=template)
        found = Chat(tokenizer, images=PatchFrames()).document(TEXTS, [(2, 2)])
        assert len(found) == len(wanted)
        assert (found.labels == IGNORED).tolist() == (wanted.labels == IGNORED).tolist()


def test_a_processor_with_a_template_of_texts() -> None:
    """One that writes a list of parts as Python does gets texts."""
    wanted = Chat(Qwen2VLProcessor()).document(TEXTS, [(2, 2)])
    found = Chat(Qwen2VLProcessor("written")).document(TEXTS, [(2, 2)])
    assert len(found) == len(wanted)
    assert (found.labels == IGNORED).tolist() == (wanted.labels == IGNORED).tolist()


class TrimmingTokenizer(SmallTokenizer):
    """Its places leave out the spaces at both ends, as of ``ByteLevel(trim_offsets=True)``."""

    def __call__(self, text: str, add_special_tokens: bool, return_offsets_mapping: bool) -> dict[str, Any]:
        made = super().__call__(text, add_special_tokens, return_offsets_mapping)
        for number, (begin, end) in enumerate(made["offset_mapping"]):
            begin = min(begin + len(text[begin:end]) - len(text[begin:end].lstrip()), end)
            made["offset_mapping"][number] = (begin, max(begin, begin + len(text[begin:end].rstrip())))
        return made


def test_spaces_are_trained_where_places_are_trimmed() -> None:
    talk = [{"user": "what?\n\n", "assistant": " a dog\n\n\nis it "}]
    wanted = Chat(SmallTokenizer(), images=PatchFrames())
    chat = Chat(TrimmingTokenizer(), images=PatchFrames())
    document = chat.document(talk, [(2, 2)])
    assert document.labels.tolist() == (made := wanted.document(talk, [(2, 2)])).labels.tolist()
    assert document.input_ids.tolist() == made.input_ids.tolist()


def test_a_rule_may_bring_its_frames() -> None:
    class Rule:
        frames = PatchFrames(merge=4)

    assert Chat(Qwen2VLProcessor(), images=Rule()).frames is Rule.frames


def test_pickles_and_threads() -> None:
    chat = Chat(Qwen2VLProcessor(), shift=True, arguments={"system": "a"})
    wanted = chat.document(TEXTS, [(2, 2)])
    again = pickle.loads(pickle.dumps(chat))
    assert again.shift
    assert again.document(TEXTS, [(2, 2)]).input_ids.tolist() == wanted.input_ids.tolist()
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: chat.document(TEXTS, [(2, 2)]).input_ids.tolist(), range(50)))
    assert found == [wanted.input_ids.tolist()] * 50
    with pytest.raises(AttributeError):
        chat.shift = False  # type: ignore[misc]


# ---- Errors -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "grids", "message"),
    [
        (
            [{"role": "user", "content": "a<image>"}],
            [],
            "1 places for pictures, and the sample has 0: too many",
        ),
        ([{"role": "user", "content": "a"}], [(2, 2)], "0 places.*has 1: too few"),
        ([{"user": f"a {PAD}", "assistant": "b"}], [(2, 2)], "the text has 2 times '<|image_pad|>'"),
        ([{"user": f"a {PAD}", "assistant": "b"}], [], "the text has 1 times.*the sample 0 pictures"),
        ([{"user": "a", "assistant": "b"}], [(2, 2), (3, 2)], "picture 1: the rows and columns"),
        ([{"q": 1}], [], "Found: a list with the keys 'q'"),
    ],
)
def test_what_is_wrong_with_a_sample(value: Any, grids: Any, message: str) -> None:
    message = message.replace("|", r"\|")
    chat = Chat(Qwen2VLProcessor(), turns="talk")
    with pytest.raises(ValueError, match=f"Chat: 'talk' of sample 17.*{message}"):
        chat.document(value, grids, 17)
    with pytest.raises(ValueError, match=f"Chat: 'talk' of sample 17.*{message}"):
        chat.text_lengths([value], [grids], [17])


def test_templates_that_show_no_answers_or_fail() -> None:
    with pytest.raises(
        ValueError, match=r"sample 2.*does not show where the answer in message 1.*'2\\n<\|im.*'4"
    ):
        Chat(Qwen2VLProcessor("count")).document(TEXTS, (), 2)
    with pytest.raises(
        ValueError, match="sample 2: the chat template failed: TypeError.*roles user, assistant"
    ):
        Chat(Qwen2VLProcessor("texts")).document(TEXTS[:1], (), 2)


def test_what_is_wrong_with_arguments() -> None:
    with pytest.raises(ValueError, match="Chat.train must be 'answers' or 'all'. Found: 'some'"):
        Chat(Qwen2VLProcessor(), train="some")
    with pytest.raises(ValueError, match="Chat.turns must be the name of a field. Found: ''"):
        Chat(Qwen2VLProcessor(), turns="")
    with pytest.raises(ValueError, match="Chat.mark must be"):
        Chat(Qwen2VLProcessor(), mark="")
    with pytest.raises(TypeError, match="Chat.images must be one of fastload.vlm.frames.*Found: str"):
        Chat(Qwen2VLProcessor(), images="images")
    with pytest.raises(ValueError, match="Found: SmallTokenizer"):
        Chat(SmallTokenizer())
    with pytest.raises(ValueError, match="Found: none of .*<IMG>"):
        Chat(Qwen2VLProcessor(), images=PatchFrames("<IMG>"))

    class Slow(SmallTokenizer):
        def __call__(
            self, text: str, add_special_tokens: bool, return_offsets_mapping: bool
        ) -> dict[str, Any]:
            raise NotImplementedError("no offsets")

    with pytest.raises(
        TypeError, match="return_offsets_mapping.*Found: Slow.*NotImplementedError: no offsets"
    ):
        Chat(Slow(), images=PatchFrames())


def test_tokens_that_are_taken_apart_are_refused() -> None:
    class Cutting(SmallTokenizer):
        def __call__(
            self, text: str, add_special_tokens: bool, return_offsets_mapping: bool
        ) -> dict[str, Any]:
            return super().__call__(text.replace(PAD, "?" * len(PAD)), add_special_tokens, True)

    chat = Chat(Cutting(), images=PatchFrames())
    with pytest.raises(
        ValueError, match="sample 5: the tokenizer must keep a picture's tokens.*special tokens"
    ):
        chat.document(TEXTS, [(2, 2)], 5)


def test_transformers_is_never_imported() -> None:
    code = (
        "import sys; import fastload.vlm.chat, fastload.vlm.packed; "
        "print([name for name in ('transformers', 'tokenizers', 'jinja2') if name in sys.modules])"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"


def test_a_feature_s_token_in_a_text_is_refused() -> None:
    """The template writes another word for a picture, so counting that one does not find it."""
    own = (*OWN, "<start_of_image>", "<image_soft_token>", "<end_of_image>")
    chat = Chat(SmallTokenizer(own, "texts"), images=CropFrames(tokens=3))
    talk = [{"user": "what is <image_soft_token>?", "assistant": "that"}]
    with pytest.raises(ValueError, match="of sample 4: the text has '<image_soft_token>'"):
        chat.document(talk, [(0,)], 4)
    with pytest.raises(ValueError, match="of sample 0: the text has '<image_soft_token>'"):
        chat.text_lengths([talk], [1])


def test_a_template_that_begins_no_answer_is_refused() -> None:
    """Its words before an answer would be trained."""
    chat = Chat(Qwen2VLProcessor("no prompt"))
    with pytest.raises(
        ValueError, match=r"of sample 3: .*nothing with add_generation_prompt.*message 1.*im_star"
    ):
        chat.document(TEXTS, (), 3)
    assert len(Chat(Qwen2VLProcessor("no prompt"), train="all").document(TEXTS))


@pytest.mark.parametrize(
    ("given", "options", "error", "says"),
    [
        (None, {}, TypeError, "with its tokenizer.*Found: NoneType"),
        (Qwen2VLProcessor().image_processor, {}, TypeError, "with its tokenizer.*Found: SimpleNamespace"),
        (Qwen2VLProcessor(), {"template": "chat"}, ValueError, "template must be a chat template.*'chat'"),
        (Qwen2VLProcessor(), {"mark": 3}, ValueError, "mark must be a text.*Found: 3"),
        (Qwen2VLProcessor(), {"arguments": [1]}, TypeError, "arguments must be a dict.*list"),
    ],
)
def test_what_a_chat_is_not_made_of(given: Any, options: Any, error: Any, says: str) -> None:
    with pytest.raises(error, match=says):
        Chat(given, **options)


def test_what_lengths_are_not_counted_of() -> None:
    chat = Chat(Qwen2VLProcessor())
    with pytest.raises(TypeError, match="dataset must be a packed set.*Found: list"):
        chat.lengths([1, 2])
    with pytest.raises(TypeError, match="vision must be the loader's transform.*Found: Qwen2VLProcessor"):
        chat.lengths([1, 2], chat.processor)
