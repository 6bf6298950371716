"""A sample's conversation as tokens: the template's text with pictures' tokens, labels, and positions."""

from __future__ import annotations

import hashlib
import json
import os
import re
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from itertools import accumulate
from types import MappingProxyType
from typing import Any, ClassVar, TypeAlias

import numpy as np
import numpy.typing as npt

from fastload.dataset.views import open_dataset
from fastload.vlm.frames import Frame, Frames, PatchFrames, PrefixFrames, Tokens, compiled, frames_of
from fastload.vlm.grids import PictureGrids, check_fits, picture_field
from fastload.vlm.lengths import Counting, DocumentLengths, document_lengths
from fastload.vlm.positions import mrope_positions, plain_positions
from fastload.vlm.rules import Rule
from fastload.vlm.turns import Turn, read_turns

Ints: TypeAlias = npt.NDArray[np.int64]
Spans: TypeAlias = list[tuple[int, int]]

LAYOUTS = ("rows", "flat")
IGNORED = -100  # the label that torch's cross_entropy leaves out
_VERSION = 2  # of how lengths come about: part of digest()
_GENERATION = re.compile(r"\{%([-+]?)\s*(end)?generation\s*([-+]?)%\}")
_BEGIN, _END = "\ufdd0", "\ufdd1"  # no characters: no text has them
_MARKS = re.compile(f"([{_BEGIN}{_END}])")
_PROBE = "fastload"
_QUOTED = re.compile(f"['\"]{_PROBE}['\"]")


@dataclass(frozen=True, eq=False)
class Document:
    """A sample's tokens.

    Attributes:
        input_ids: (length,) int64.
        labels: (length,) int64: the ids to be learnt, -100 elsewhere. The first is never learnt: nothing
            comes before it.
        position_ids: (length,) int64, or (3, length) with rows and columns of pictures.
        types: (length,) int64 for models that want to know which tokens are a picture's; else None.
    """

    input_ids: Ints
    labels: Ints
    position_ids: Ints
    types: Ints | None = None

    def __len__(self) -> int:
        """Return the number of tokens."""
        return len(self.input_ids)


@dataclass(frozen=True, eq=False)
class Chat:
    """Makes tokens, labels and positions of conversations, as a processor of transformers makes them.

    The template is applied with one placeholder for each picture; the text is tokenised once, without
    the pictures' tokens, and these are put in as ids. Nothing of transformers is imported: the processor that
    is given is asked. Objects can be pickled and used by several threads at once.

    Args:
        processor: of transformers, or a tokenizer, with ``images``.
        turns: the field that has the conversation; see :func:`fastload.vlm.turns.read_turns`.
        images: how pictures are written: one of :mod:`fastload.vlm.frames`, or an object that has it as
            ``frames``; None: as the processor's family does.
        shift: labels stand one to the left, where the model predicts them (nanoVLM); False: where the
            token is, as models of transformers want them, which shift by themselves.
        train: "answers": the assistant's answers; "all": everything but pictures.
        mark: what stands for a picture in texts.
        template: another chat template, or the name of one, than the processor's.
        arguments: further arguments of the template.
        end: whether a document without roles ends with the tokenizer's end of text, which is trained.
        layout: of packs in a loader's batches: "rows", (packs, tokens), or "flat", (1, packs * tokens).

    An answer reaches to where the template begins the next turn: the token that ends the turn is trained,
    and so is a newline that the template writes behind it, as in Qwen's and nanoVLM's own training. A
    template that marks answers with ``{% generation %}`` decides by itself.

    What begins a text is the tokenizer's to add, unless the template wrote it, as
    ``apply_chat_template(tokenize=True)`` of transformers has it.

    Raises:
        TypeError, ValueError: something else is given.
    """

    #: Whether it makes documents, as ``text=`` of a DataLoader.
    is_chat: ClassVar[bool] = True

    processor: Any
    turns: str = "texts"
    images: Any = None
    shift: bool = False
    train: str = "answers"
    mark: str = "<image>"
    template: str | None = None
    arguments: Mapping[str, Any] = field(default_factory=dict)
    end: bool = True
    layout: str = "rows"
    _tokens: Tokens = field(init=False, repr=False)
    _frames: Frames = field(init=False, repr=False)
    _made: dict[Any, Any] = field(init=False, repr=False)  # what is made once; safe to make twice

    def __post_init__(self) -> None:
        if self.train not in ("answers", "all"):
            raise ValueError(f"Chat.train must be 'answers' or 'all'. Found: {self.train!r}.")
        if self.layout not in LAYOUTS:
            raise ValueError(f"Chat.layout must be one of {', '.join(LAYOUTS)}. Found: {self.layout!r}.")
        if not isinstance(self.turns, str) or not self.turns:
            raise ValueError(f"Chat.turns must be the name of a field. Found: {self.turns!r}.")
        if not isinstance(self.mark, str) or not self.mark:
            raise ValueError(f"Chat.mark must be a text of at least one character. Found: {self.mark!r}.")
        if not isinstance(self.arguments, Mapping):
            raise TypeError(f"Chat.arguments must be a dict. Found: {type(self.arguments).__name__}.")
        given = getattr(self.images, "frames", self.images)
        if given is not None and not isinstance(given, Frames):
            raise TypeError(
                "Chat.images must be one of fastload.vlm.frames, or have it as .frames. Found: "
                f"{type(self.images).__name__}."
            )
        tokens = Tokens(getattr(self.processor, "tokenizer", self.processor))
        object.__setattr__(self, "_tokens", tokens)
        object.__setattr__(self, "_frames", frames_of(self.processor) if given is None else given)
        object.__setattr__(self, "_made", {})
        if self.template is not None and "{" not in self._template_text():
            raise ValueError(
                "Chat.template must be a chat template, or the name of one of the processor's. Found: "
                f"{self.template!r}."
            )
        compiled(self._frames.parts(self._frames.least(), 1), tokens)  # the tokens are the tokenizer's own

    def __repr__(self) -> str:
        """As it can be typed, but for the processor: that is named by its class."""
        given = [
            f"{item.name}={getattr(self, item.name)!r}"
            for item in fields(self)
            if item.init and item.name != "processor" and self._is_given(item)
        ]
        return f"Chat({', '.join([type(self.processor).__name__, *given])})"

    def _is_given(self, item: Any) -> bool:
        return bool(item.name == "turns" or getattr(self, item.name) not in (item.default, {}))

    def __reduce__(self) -> Any:
        return type(self), tuple(getattr(self, item.name) for item in fields(self) if item.init)

    @property
    def frames(self) -> Frames:
        """How pictures are written."""
        return self._frames

    @property
    def pad(self) -> int:
        """The id that fills batches up: the tokenizer's for padding, else its end of text, else 0."""
        for name in ("pad_token_id", "eos_token_id"):
            found = getattr(self._tokens.tokenizer, name, None)
            if found is not None:
                return int(found)
        return 0

    # ---- Samples ------------------------------------------------------------------------------

    def document(
        self, conversation: Any, grids: Sequence[Sequence[int]] = (), sample: object = "?"
    ) -> Document:
        """Return a sample's tokens, labels and positions.

        Args:
            conversation: as :func:`fastload.vlm.turns.read_turns` takes it.
            grids: of each of the sample's pictures, as the family counts it (:mod:`fastload.vlm.frames`).
            sample: its id, for messages.

        Raises:
            ValueError: the conversation is none, its places are not as many as the pictures, a grid is
                none, or the template does not show which tokens are answers.
        """
        where = self._where(sample)
        frames = self._frames_for(grids, where)
        texts = self._texts(read_turns(conversation, len(grids), where, self.mark), where)
        self._check_places(texts, len(frames), where)
        pieces = [self._piece(text, frames if not number else [], where) for number, text in enumerate(texts)]
        ids = np.concatenate([piece.ids for piece in pieces])
        labels = np.concatenate([piece.labels for piece in pieces])
        labels[:1] = IGNORED
        if self.shift:
            labels = np.append(labels[1:], IGNORED)
        return Document(
            ids, labels, self._positions(len(ids), pieces[0].begins, grids, where), self._types(pieces)
        )

    def _where(self, sample: object) -> str:
        return f"Chat: {self.turns!r} of sample {sample}"

    def _frames_for(self, grids: Sequence[Sequence[int]], where: str) -> list[Frame]:
        return [
            self._frame(self._frames.checked(grid, f"{where}, picture {number}"), len(grids))
            for number, grid in enumerate(grids)
        ]

    def _frame(self, grid: tuple[int, ...], pictures: int) -> Frame:
        parts = self._frames.parts(grid, pictures)
        if len(parts) == 1:  # one token over and over: as fast to make as to look up, and of any number
            return compiled(parts, self._tokens)
        key = ("frame", grid)
        if key not in self._made:
            self._made[key] = compiled(parts, self._tokens)
        made: Frame = self._made[key]
        return made

    def _check_places(self, texts: Sequence[_Text], pictures: int, where: str) -> None:
        places = [text.text.count(self._frames.placeholder) for text in texts]
        if places != [pictures, *([0] * (len(texts) - 1))]:
            raise ValueError(
                f"{where}: the text has {sum(places)} times {self._frames.placeholder!r}, and the sample "
                f"{pictures} pictures. Each picture must have one, where the template writes it. Look "
                "whether the template writes pictures at all, and whether the texts of the sample contain "
                "that word: take it out of them."
            )
        image = self._frames.image
        if image != self._frames.placeholder and any(image in text.text for text in texts):
            raise ValueError(
                f"{where}: the text has {image!r}, which stands for a picture's features and has none here. "
                "Take it out of the sample's texts."
            )

    def _positions(
        self, length: int, begins: Sequence[int], grids: Sequence[Sequence[int]], where: str
    ) -> Ints:
        if not isinstance(self._frames, PatchFrames):
            return plain_positions(length)
        merged = [self._frames.merged(self._frames.checked(grid, where)) for grid in grids]
        return mrope_positions(length, begins, merged)

    def _types(self, pieces: Sequence[_Piece]) -> Ints | None:
        if not self._frames.types:
            return None
        if isinstance(self._frames, PrefixFrames):  # there, what is told apart is the answer
            return np.repeat(np.arange(len(pieces), dtype=np.int64), [len(piece.ids) for piece in pieces])
        ids = np.concatenate([piece.ids for piece in pieces])
        types: Ints = (ids == self._tokens.own[self._frames.image]).astype(np.int64)
        return types

    # ---- Texts --------------------------------------------------------------------------------

    def _texts(self, turns: Sequence[Turn], where: str) -> list[_Text]:
        """Return what is tokenised, in pieces that are tokenised one by one.

        For lengths, too, it is found what is trained: a sample of which that cannot be said has no document.
        """
        if all(not turn.role for turn in turns):
            return [self._plain(turns)]
        if isinstance(self._frames, PrefixFrames):
            return self._question_and_answer(turns, where)
        messages = [self._message(turn) for turn in turns]
        text = self._rendered(messages, False, where)
        special = not (self._tokens.begin and text.startswith(self._tokens.begin))
        if self.train == "all":
            return [_Text(text, [(0, len(text))], special)]
        if not any(turn.role == "assistant" for turn in turns):
            return [_Text(text, [], special)]
        find = self._marked_answers if _GENERATION.search(self._template_text()) else self._answers
        return [_Text(text, find(messages, text, where), special)]

    def _plain(self, turns: Sequence[Turn]) -> _Text:
        """Return a document without roles: all of it is trained, but for pictures."""
        text, spans = "", []
        for part in (part for turn in turns for part in turn.parts):
            if part is not None:
                spans.append((len(text), len(text) + len(part)))
            text += self._frames.in_text if part is None else part
        special = not (self._tokens.begin and text.startswith(self._tokens.begin))
        ended = special and self._ends_by_itself()
        if self.end and self._tokens.end and not ended:
            spans.append((len(text), len(text) + len(self._tokens.end)))
            text += self._tokens.end
        return _Text(text, spans, special, self.end and ended)

    def _ends_by_itself(self) -> bool:
        """Return whether the tokenizer adds the end of the text to all texts."""
        if "ends" not in self._made:
            ids, _ = self._tokens.encode("a", True)
            self._made["ends"] = bool(ids[-1] == getattr(self._tokens.tokenizer, "eos_token_id", None))
        return bool(self._made["ends"])

    def _question_and_answer(self, turns: Sequence[Turn], where: str) -> list[_Text]:
        """Return PaliGemma's two texts: pictures, begin, question, newline; and the answer with its end."""
        roles = [turn.role for turn in turns]
        if roles != ["user", "assistant"] or turns[1].pictures:
            raise ValueError(
                f"{where}: PaliGemma takes one question of the user, with the pictures, and one answer. "
                f"Found: the roles {', '.join(roles)}, {turns[-1].pictures} pictures in the last. Split "
                "longer conversations into samples."
            )
        begin, end = self._tokens.begin or "", self._tokens.end or ""
        text = "".join(self._frames.in_text if part is None else part for part in turns[0].parts)
        place = text.rfind(self._frames.placeholder)
        place = 0 if place < 0 else place + len(self._frames.placeholder)
        answer = "".join(part or "" for part in turns[1].parts) + end
        question = f"{text[:place]}{begin}{text[place:]}\n"
        spans = [(0, len(question))] if self.train == "all" else []
        return [_Text(question, spans, False), _Text(answer, [(0, len(answer))], False)]

    # ---- The template -------------------------------------------------------------------------

    def _message(self, turn: Turn) -> dict[str, Any]:
        if self._takes_parts():
            parts = [
                {"type": "image"} if part is None else {"type": "text", "text": part} for part in turn.parts
            ]
            return {"role": turn.role, "content": parts, **turn.more}
        text = "".join(self._frames.in_text if part is None else part for part in turn.parts)
        return {"role": turn.role, "content": text, **turn.more}

    def _takes_parts(self) -> bool:
        """Return whether the template takes lists of parts: processors' do, others may want texts."""
        if "parts" not in self._made:
            try:
                probe = [{"role": "user", "content": [{"type": "text", "text": _PROBE}]}]
                text = self._rendered(probe, False, "Chat")
                quoted = bool(_QUOTED.search(text))  # a template for texts wrote the list as Python does
                self._made["parts"] = not quoted and (_PROBE in text or hasattr(self.processor, "tokenizer"))
            except ValueError:
                self._made["parts"] = hasattr(self.processor, "tokenizer")
        return bool(self._made["parts"])

    def _template_text(self) -> str:
        """Return the template that is used, as text."""
        templates = [
            getattr(owner, "chat_template", None) for owner in (self.processor, self._tokens.tokenizer)
        ]
        found = next((template for template in templates if template), None)
        if isinstance(found, Mapping):
            found = found.get(self.template or "default", self.template)
        elif self.template is not None:
            found = self.template
        return found if isinstance(found, str) else ""

    def _options(self) -> dict[str, Any]:
        given = {} if self.template is None else {"chat_template": self.template}
        return {**given, **self.arguments}

    def _rendered(
        self,
        messages: Sequence[Mapping[str, Any]],
        prompt: bool,
        where: str,
        more: Mapping[str, Any] = MappingProxyType({}),
    ) -> str:
        """Return the template's text for messages, with or without the begin of the next answer."""
        try:
            text = self.processor.apply_chat_template(
                list(messages), tokenize=False, add_generation_prompt=prompt, **{**self._options(), **more}
            )
        except Exception as error:  # what a template raises has no kind of its own
            roles = ", ".join(message["role"] for message in messages) or "none"
            raise ValueError(
                f"{where}: the chat template failed: {type(error).__name__}: {error}. It got messages of the "
                f"roles {roles}{', and was to begin an answer' if prompt else ''}. Mend the conversation, or "
                "pass another template=."
            ) from error
        return str(text)

    def _answers(self, messages: Sequence[Mapping[str, Any]], text: str, where: str) -> Spans:
        """Return where answers stand, by what the template writes for ever more messages.

        The text up to an answer is the template's for the messages before it, with the begin of an answer.
        """
        spans = []
        for number, message in enumerate(messages):
            if message["role"] != "assistant":
                continue
            if not number:
                raise ValueError(
                    f"{where}: the conversation begins with an answer, so the template does not show where "
                    "it begins. Put a question before it, or mark answers in the template by {% generation "
                    "%}."
                )
            last = number + 1 == len(messages)
            through = text if last else self._rendered(messages[: number + 1], False, where)
            begin = self._rendered(messages[:number], True, where)
            for shorter, longer, what in ((through, text, "up to it"), (begin, through, "before it")):
                if not longer.startswith(shorter):
                    raise ValueError(
                        f"{where}: the chat template does not show where the answer in message {number} "
                        f"stands: its text for the messages {what} is no beginning of its text with more. "
                        f"{_parting(shorter, longer)} Mark answers in the template by {{% generation %}}, or "
                        "pass another template=."
                    )
            self._check_begins(messages[: number + 1], begin, through, where)
            spans.append((len(begin), len(through)))
        return spans

    def _check_begins(
        self, messages: Sequence[Mapping[str, Any]], begin: str, through: str, where: str
    ) -> None:
        """Check that an answer's own words come next, if the template writes no begin of an answer.

        Else what the template writes before each answer would be trained, and no prompt would have it.
        """
        content = messages[-1]["content"]
        parts = [content] if isinstance(content, str) else [part.get("text") or "" for part in content]
        own = (parts[0] if parts else "").strip()
        if not own or through[len(begin) :].lstrip().startswith(own):
            return
        if begin == self._rendered(messages[:-1], False, where):
            raise ValueError(
                f"{where}: the chat template writes nothing with add_generation_prompt=True, so it does not "
                f"show where the answer in message {len(messages) - 1} begins. Found before its words: "
                f"{through[len(begin) : len(begin) + 30]!r}. Write the begin of an answer there, mark "
                "answers by {% generation %}, or pass another template=."
            )

    def _marked_answers(self, messages: Sequence[Mapping[str, Any]], text: str, where: str) -> Spans:
        """Return where answers stand, by the template's own marks.

        They are what ``return_assistant_tokens_mask`` of transformers goes by. That notes them in the one
        environment of a template, which two threads cannot use at once; so here they are written into the
        text, and taken out again.
        """
        if "marked" not in self._made:
            self._made["marked"] = _GENERATION.sub(_written_mark, self._template_text())
        marked = self._rendered(messages, False, where, {"chat_template": self._made["marked"]})
        spans, plain, begin = [], "", 0
        for piece in _MARKS.split(marked):
            if piece == _BEGIN:
                begin = len(plain)
            elif piece == _END:
                spans.append((begin, len(plain)))
            else:
                plain += piece
        if plain != text:
            raise ValueError(
                f"{where}: the chat template wrote another text when its marks of answers were written out. "
                f"{_parting(plain, text)} Mark whole answers by {{% generation %}}, outside of other blocks."
            )
        return spans

    # ---- Tokens -------------------------------------------------------------------------------

    def _piece(self, text: _Text, frames: Sequence[Frame], where: str) -> _Piece:
        """Tokenise a text, and put the pictures' tokens into it."""
        short = _shortened(text, self._frames.placeholder, frames)
        ids, places = self._tokens.encode(short.text, text.special)
        places = _untrimmed(places)
        # Tokens without a place, as a begin and an end that the tokenizer adds, belong to no text.
        begins, ends = np.maximum.accumulate(places, axis=0).T if len(places) else places.T
        trained = np.zeros(len(ids), dtype=bool)
        for begin, end in short.spans:
            trained[np.searchsorted(ends, begin, "right") : np.searchsorted(begins, end, "left")] = True
        trained &= places[:, 1] > places[:, 0]
        trained[-1:] |= text.ended
        labels = np.where(trained, ids, IGNORED)
        made, learnt, starts, done, total = [], [], [], 0, 0
        for frame, (first, last) in zip(frames, short.cuts, strict=True):
            low, high = np.searchsorted(ends, [first, last], "right").tolist()
            self._check_kept(frame, ids[low : high + 1], where)
            made += [ids[done:low], frame.ids]
            learnt += [labels[done:low], np.full(len(frame.ids), IGNORED, dtype=np.int64)]
            starts.append(total + low - done)
            total = starts[-1] + len(frame.ids)
            done = high + 1
        return _Piece(np.concatenate([*made, ids[done:]]), np.concatenate([*learnt, labels[done:]]), starts)

    def _check_kept(self, frame: Frame, found: Ints, where: str) -> None:
        kept = [self._tokens.own[token] for token in (frame.first, frame.last) if token]
        if found.tolist() != kept:
            raise ValueError(
                f"{where}: the tokenizer must keep a picture's tokens {frame.first!r} and {frame.last!r} "
                f"whole and next to each other. Found: the ids {found.tolist()}, not {kept}. Add them as "
                "special tokens, neither normalised nor single words."
            )

    # ---- Lengths ------------------------------------------------------------------------------

    def lengths(
        self,
        dataset: Any,
        vision: Any = None,
        *,
        field: str | None = None,
        folder: str | os.PathLike[str] | None = None,
        threads: int | None = None,
        bad: str = "raise",
    ) -> DocumentLengths:
        """Return how long the documents of a set are, for :class:`fastload.PackingSampler`.

        Texts are tokenised once: their lengths are kept in the folder ``.chat`` of the set, under a digest of
        the tokenizer, the template, the settings and the set. Pictures' tokens follow from the sizes in the
        index by arithmetic, so another resolution counts nothing again.

        Args:
            dataset: what the loader reads: a packed set or its path, a view of one, or several.
            vision: the loader's ``transform``, as :class:`fastload.Vision`; None: documents have no pictures.
            field: of the pictures; None: the only one.
            folder: where lengths are kept; None: in the set's.
            threads: that tokenise; None: as many as this process may use CPUs.
            bad: what becomes of samples of which no document can be made. "raise": a ValueError; "skip": they
                are longer than any pack, so ``PackingSampler(long="skip")`` leaves them out; a warning names
                the first.

        Raises:
            ValueError: a conversation of which no document can be made (:meth:`document`), or a picture
                without a size, named by the sample's id in its own set; not one field of pictures; or a rule
                of another family.
        """
        if bad not in ("raise", "skip"):
            raise ValueError(f"Chat.lengths: bad must be 'raise' or 'skip'. Found: {bad!r}.")
        opened = open_dataset(dataset)
        rule = getattr(vision, "rule", vision)
        if rule is not None and not isinstance(rule, Rule):
            raise TypeError(
                "Chat.lengths: vision must be the loader's transform, fastload.Vision(...) or a rule. Found: "
                f"{type(vision).__name__}."
            )
        if not hasattr(opened, "parts") or not hasattr(opened, "schema"):
            raise TypeError(
                "Chat.lengths: dataset must be a packed set or its path, a view of one, or several. Found: "
                f"{type(dataset).__name__}."
            )
        if rule is not None:
            check_fits(self._frames, rule)
        grids = None if rule is None else PictureGrids(picture_field(opened.schema, field), rule)
        threads = threads or len(os.sched_getaffinity(0))
        return document_lengths(Counting(self, grids, folder, threads), opened, bad)

    def text_lengths(
        self,
        conversations: Iterable[Any],
        pictures: Iterable[int | Sequence[Sequence[int]]],
        samples: Iterable[object] | None = None,
    ) -> npt.NDArray[np.int32]:
        """Return (samples,) the tokens of each sample's texts, without its pictures' own.

        With :meth:`picture_lengths` they give a document's length. They hold as long as :meth:`digest` does,
        and for pictures of all sizes.

        Args:
            conversations: of the samples.
            pictures: how many pictures each has; or their grids, which are needed where the texts around a
                picture depend on it (Gemma 3 with pan and scan).
            samples: their ids, for messages; None: 0, 1, ...

        Raises:
            ValueError: see :meth:`document`.
        """
        values = list(conversations)
        names = range(len(values)) if samples is None else samples
        found = [
            self._text_length(value, has, self._where(name))
            for value, has, name in zip(values, pictures, names, strict=True)
        ]
        return np.asarray(found, dtype=np.int32)

    def _text_length(self, conversation: Any, pictures: int | Sequence[Sequence[int]], where: str) -> int:
        if isinstance(pictures, (int, np.integer)):
            if not self._frames.fixed and pictures:
                raise ValueError(
                    f"{where}: the text around a picture depends on its crops. Found: {pictures} pictures, "
                    "without their grids. Pass the grids of each sample's pictures."
                )
            pictures = [self._frames.least()] * int(pictures)
        frames = self._frames_for(pictures, where)
        texts = self._texts(read_turns(conversation, len(frames), where, self.mark), where)
        self._check_places(texts, len(frames), where)
        pieces = [self._piece(text, frames if not number else [], where) for number, text in enumerate(texts)]
        return sum(len(piece.ids) for piece in pieces) - sum(len(frame.ids) for frame in frames)

    def picture_lengths(self, grids: Sequence[Sequence[int]]) -> list[int]:
        """Return how many tokens each picture of a sample has of its own, by their grids alone."""
        return [len(frame.ids) for frame in self._frames_for(grids, "Chat")]

    def digest(self) -> str:
        """Return a digest of all that decides lengths, or that there is one: tokenizer, template, settings.

        Raises:
            TypeError: the tokenizer cannot be written down.
        """
        if "digest" not in self._made:
            settings = {
                "version": _VERSION,
                "frames": repr(self._frames),
                "template": self._template_text(),
                "arguments": repr(sorted(self.arguments.items())),
                "mark": self.mark,
                "turns": self.turns,
                "train": self.train,
                "end": self.end,
                "ends": [self._tokens.begin, self._tokens.end],
            }
            words = json.dumps(settings, sort_keys=True, ensure_ascii=True)
            self._made["digest"] = hashlib.sha256(f"{words}\n{_written(self._tokens)}".encode()).hexdigest()
        return str(self._made["digest"])


# ---- Texts with places for pictures ---------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Text:
    """What is tokenised: with a placeholder for each picture, and the characters that are trained."""

    text: str
    spans: Spans
    special: bool  # whether the tokenizer adds what begins and ends a text
    ended: bool = False  # whether the last token is an end that the tokenizer adds, and is trained


@dataclass(frozen=True, eq=False)
class _Piece:
    """A text's tokens, with those of pictures, and where each picture's begin."""

    ids: Ints
    labels: Ints
    begins: list[int]


@dataclass(frozen=True, eq=False)
class _Short:
    """A text with the first and the last token of each picture alone, and their characters."""

    text: str
    spans: Spans
    cuts: list[tuple[int, int]]


def _untrimmed(places: Ints) -> Ints:
    """Return tokens' places, with one for those of spaces alone.

    A tokenizer that trims places (``trim_offsets``) has spaces begin where they end; they begin where the
    token before them ends. A token that it adds is at (0, 0).
    """
    begins, ends = places.T
    trimmed = np.flatnonzero((begins == ends) & (ends > 0))
    if not len(trimmed):
        return places
    made: Ints = places.copy()
    before = np.maximum.accumulate(np.append(0, ends[:-1]))
    made[trimmed, 0] = np.minimum(before, begins)[trimmed]
    return made


def _shortened(text: _Text, placeholder: str, frames: Sequence[Frame]) -> _Short:
    if not frames:
        return _Short(text.text, text.spans, [])
    between = text.text.split(placeholder)
    made, cuts, length = [between[0]], [], len(between[0])
    ends, gained, end = [], [], len(between[0])
    for frame, behind in zip(frames, between[1:], strict=True):
        own = frame.before + frame.first + frame.last + frame.after
        first = length + len(frame.before)
        cuts.append((first, first + len(frame.first) if frame.last else first))
        end += len(placeholder)
        ends.append(end)
        gained.append(len(own) - len(placeholder))
        made += [own, behind]
        length += len(own) + len(behind)
        end += len(behind)
    more = [0, *accumulate(gained)]
    spans = [
        (begin + more[bisect_right(ends, begin)], end + more[bisect_right(ends, end)])
        for begin, end in text.spans
    ]
    return _Short("".join(made), spans, cuts)


def _written_mark(tag: re.Match[str]) -> str:
    """Return what writes a mark where a template has a generation tag.

    Two blocks around it keep what the tag did to the spaces at both sides, and to the names set inside.
    """
    left, end, right = tag.groups(default="")
    mark = _END if end else _BEGIN
    return f"{{%{left} {end}with %}}{{{{ '{mark}' }}}}{{% {end}with {right}%}}"


def _parting(shorter: str, longer: str) -> str:
    """Say where a text stops to be another one's beginning."""
    at = next((at for at, (a, b) in enumerate(zip(shorter, longer, strict=False)) if a != b), len(longer))
    return f"They part at character {at}: {shorter[at : at + 30]!r} and {longer[at : at + 30]!r}."


def _written(tokens: Tokens) -> str:
    """Return all of a tokenizer as text."""
    inner = getattr(tokens.tokenizer, "backend_tokenizer", None)
    if inner is not None and hasattr(inner, "to_str"):
        return str(inner.to_str())
    if hasattr(tokens.tokenizer, "get_vocab"):
        return json.dumps([type(tokens.tokenizer).__qualname__, sorted(tokens.tokenizer.get_vocab().items())])
    raise TypeError(
        "Chat.digest needs a tokenizer that can be written down: with backend_tokenizer.to_str() or "
        f"get_vocab(). Found: {type(tokens.tokenizer).__name__}."
    )
