"""The tokens of a picture in a text, and the texts around them, for each family of models."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias

import numpy as np
import numpy.typing as npt

Ints: TypeAlias = npt.NDArray[np.int64]
#: Of a frame: a token of its own and how often it comes, or plain text.
Part: TypeAlias = "tuple[str, int] | str"
Grid: TypeAlias = tuple[int, ...]


# ---- Tokenisers -------------------------------------------------------------------------------------------


class Tokens:
    """What is asked of a tokenizer: tokens with their places in the text, and which are never taken apart.

    Raises:
        TypeError: it is none, or gives no places.
    """

    def __init__(self, tokenizer: Any) -> None:
        if not callable(tokenizer) or not hasattr(tokenizer, "get_added_vocab"):
            raise TypeError(
                "Chat needs a processor of transformers with its tokenizer, or a tokenizer. Found: "
                f"{type(tokenizer).__name__}. Pass AutoProcessor.from_pretrained(...), whole."
            )
        self.tokenizer = tokenizer
        self.own: dict[str, int] = dict(tokenizer.get_added_vocab())
        self.begin: str | None = getattr(tokenizer, "bos_token", None)
        self.end: str | None = getattr(tokenizer, "eos_token", None)
        try:
            self.encode("a", False)
        except Exception as error:
            raise TypeError(
                "Chat needs a tokenizer that tells where each token stands in the text "
                "(return_offsets_mapping), as transformers' fast ones do. Found: "
                f"{type(tokenizer).__name__}, which raised {type(error).__name__}: {error}."
            ) from error

    def encode(self, text: str, special: bool) -> tuple[Ints, Ints]:
        """Return (n,) ids and (n, 2) places: first character, and the one behind the last.

        Args:
            special: whether the tokenizer adds what begins and ends a text.
        """
        made = self.tokenizer(text, add_special_tokens=special, return_offsets_mapping=True)
        places = np.asarray(made["offset_mapping"], dtype=np.int64).reshape(-1, 2)
        return np.asarray(made["input_ids"], dtype=np.int64), places

    def between(self, before: str, text: str, after: str) -> Ints:
        """Return the ids of a text between two tokens of their own.

        Both are there when it is tokenised: they may take spaces from it, and a text that comes first in a
        document may be tokenised in another way.
        """
        ids, _ = self.encode(before + text + after, False)
        if len(ids) < 2 or ids[0] != self.own[before] or ids[-1] != self.own[after]:
            raise ValueError(
                f"The tokenizer must keep {before!r} and {after!r} whole around {text!r}. Found: the ids "
                f"{ids.tolist()}, with {self.own[before]} and {self.own[after]} for them. Add both as "
                "special tokens."
            )
        return ids[1:-1]


# ---- Frames -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Frame:
    """What stands in the text for one picture.

    Attributes:
        before: text that is tokenised together with the text before the picture.
        first: the token that the frame's own tokens begin with.
        last: the token that they end with; "" if there is one token in all.
        after: text that is tokenised together with the text behind the picture.
        ids: (n,) the frame's own tokens, from ``first`` to ``last``. No text changes them.
    """

    before: str
    first: str
    last: str
    after: str
    ids: Ints


def compiled(parts: Sequence[Part], tokens: Tokens) -> Frame:
    """Return the frame of these parts, with the ids of all that no text around it changes.

    A tokenizer takes texts apart at its own tokens first, so what lies between two of them is always
    tokenised alike. What lies outside is left as text: its newlines may merge with those of the text around.

    Raises:
        ValueError: the tokenizer has none of the tokens.
    """
    joined: list[Part] = []
    for part in parts:
        if isinstance(part, tuple) and part[0] not in tokens.own:
            part = part[0] * part[1]
        if isinstance(part, str) and joined and isinstance(joined[-1], str):
            joined[-1] += part
        elif part and (isinstance(part, str) or part[1]):
            joined.append(part)
    own = [number for number, part in enumerate(joined) if isinstance(part, tuple)]
    if not own:
        raise ValueError(
            "A picture's tokens must be tokens of the tokenizer's own (added tokens), so that no text is "
            "taken for them. Found: none of "
            f"{sorted({part[0] for part in parts if isinstance(part, tuple)})}. Add them to the tokenizer, "
            "or give the one that belongs to the model."
        )
    ids: list[Ints] = []
    between: dict[tuple[str, str, str], Ints] = {}
    for number in range(own[0], own[-1] + 1):
        part = joined[number]
        if isinstance(part, tuple):
            ids.append(np.full(part[1], tokens.own[part[0]], dtype=np.int64))
        else:
            key = joined[number - 1][0], part, joined[number + 1][0]
            if key not in between:
                between[key] = tokens.between(*key)
            ids.append(between[key])
    frame_ids = np.concatenate(ids)
    before = "".join(part for part in joined[: own[0]] if isinstance(part, str))
    after = "".join(part for part in joined[own[-1] + 1 :] if isinstance(part, str))
    last = joined[own[-1]][0] if len(frame_ids) > 1 else ""
    return Frame(before, joined[own[0]][0], last, after, frame_ids)


@dataclass(frozen=True)
class Frames:
    """How a family writes pictures: the base of those below.

    Args:
        image: the token that stands for a picture's features; also what templates write for a picture,
            unless a family says otherwise.
    """

    image: str

    #: The key of a batch under which the model wants to know which tokens are a picture's (or an answer's).
    types: ClassVar[str] = ""
    #: Whether positions have rows and columns.
    mrope: ClassVar[bool] = False
    #: Whether the family's models in transformers tell documents of a pack apart by their positions.
    apart: ClassVar[bool] = True

    @property
    def fixed(self) -> bool:
        """Whether the texts around a picture's own tokens are the same for all grids."""
        return True

    @property
    def placeholder(self) -> str:
        """What the template writes for a picture."""
        return self.image

    @property
    def in_text(self) -> str:
        """What stands for a picture in a text that no template writes."""
        return self.placeholder

    #: Numbers that a grid has, for messages.
    numbers: ClassVar[tuple[str, ...]] = ("rows", "columns")

    def checked(self, grid: Sequence[int], where: str) -> Grid:
        """Return a picture's grid.

        Raises:
            ValueError: it is none of this family.
        """
        found = tuple(int(number) for number in grid)
        if len(found) != len(self.numbers) or min(found) < 0:
            raise ValueError(
                f"{where}: the grid of a picture must be ({', '.join(self.numbers)}), none below 0. Found: "
                f"{found}."
            )
        return found

    def parts(self, grid: Grid, pictures: int) -> list[Part]:
        """Return what stands for a picture of this grid, in a sample of so many."""
        raise NotImplementedError

    def least(self) -> Grid:
        """Return a small grid, for counting the tokens of texts alone."""
        return (0,) * len(self.numbers)


@dataclass(frozen=True)
class PatchFrames(Frames):
    """Qwen2-VL, 2.5, 3: a token for each ``merge`` x ``merge`` patches; grids are (rows, columns) of patches.

    The template writes the tokens at a picture's begin and end.
    """

    image: str = "<|image_pad|>"
    merge: int = 2
    begin: str = "<|vision_start|>"
    end: str = "<|vision_end|>"

    mrope: ClassVar[bool] = True

    @property
    def in_text(self) -> str:
        """What stands for a picture in a text that no template writes."""
        return f"{self.begin}{self.image}{self.end}"

    def checked(self, grid: Sequence[int], where: str) -> Grid:
        """Return a picture's grid; of (1, rows, columns), as in image_grid_thw, the last two."""
        grid = tuple(grid)
        if len(grid) == 3 and grid[0] == 1:
            grid = grid[1:]
        found = super().checked(grid, where)
        if min(found) < self.merge or found[0] % self.merge or found[1] % self.merge:
            raise ValueError(
                f"{where}: the rows and columns of a picture's patches must be multiples of {self.merge}, at "
                f"least {self.merge}. Found: {found}. Resize by the model's rule."
            )
        return found

    def merged(self, grid: Grid) -> tuple[int, int]:
        """Return rows and columns of the picture's tokens."""
        return grid[0] // self.merge, grid[1] // self.merge

    def parts(self, grid: Grid, pictures: int) -> list[Part]:
        """Return the picture's tokens."""
        rows, columns = self.merged(grid)
        return [(self.image, rows * columns)]

    def least(self) -> Grid:
        """Return the grid of one token."""
        return self.merge, self.merge


@dataclass(frozen=True)
class TileFrames(Frames):
    """Idefics3, SmolVLM: each tile behind its row and column, then the whole.

    Grids are (rows, columns) of tiles; (0, 0) is a picture that is not cut.
    """

    image: str = "<image>"
    tokens: int = 169
    around: str = "<fake_token_around_image>"
    whole: str = "<global-img>"

    def parts(self, grid: Grid, pictures: int) -> list[Part]:
        """Return the tiles row by row with a newline behind each row, then the whole."""
        rows, columns = grid
        made: list[Part] = []
        for row in range(1, rows + 1):
            for column in range(1, columns + 1):
                made += [(self.around, 1), (f"<row_{row}_col_{column}>", 1), (self.image, self.tokens)]
            made.append("\n")
        if rows or columns:
            made.append("\n")
        return [*made, (self.around, 1), (self.whole, 1), (self.image, self.tokens), (self.around, 1)]


@dataclass(frozen=True)
class WrappedFrames(Frames):
    """InternVL: the tokens of all tiles between a begin and an end.

    Grids are (tiles,), the whole counted too.
    """

    image: str = "<IMG_CONTEXT>"
    tokens: int = 256
    begin: str = "<img>"
    end: str = "</img>"

    numbers: ClassVar[tuple[str, ...]] = ("tiles",)

    def parts(self, grid: Grid, pictures: int) -> list[Part]:
        """Return begin, tokens, end."""
        return [(self.begin, 1), (self.image, self.tokens * grid[0]), (self.end, 1)]


@dataclass(frozen=True)
class CropFrames(Frames):
    """Gemma 3: begin, tokens, end between empty lines, for the whole and for crops; grids are (crops,).

    Args:
        crops: whether pan and scan is on. The texts around a picture then depend on its crops.
    """

    image: str = "<image_soft_token>"
    tokens: int = 256
    begin: str = "<start_of_image>"
    end: str = "<end_of_image>"
    crops: bool = False

    types: ClassVar[str] = "token_type_ids"
    apart: ClassVar[bool] = False
    numbers: ClassVar[tuple[str, ...]] = ("crops",)

    @property
    def placeholder(self) -> str:
        """What the template writes for a picture."""
        return self.begin

    @property
    def fixed(self) -> bool:
        """Whether the texts around a picture's own tokens are the same for all grids."""
        return not self.crops

    def checked(self, grid: Sequence[int], where: str) -> Grid:
        """Return a picture's grid."""
        found = super().checked(grid, where)
        if found[0] and not self.crops:
            raise ValueError(
                f"{where}: a picture has {found[0]} crops, and pan and scan is off (crops=False), so lengths "
                "counted no text for them. Pass CropFrames(crops=True, ...) as images=."
            )
        return found

    def parts(self, grid: Grid, pictures: int) -> list[Part]:
        """Return the whole, and what Gemma's processor says about the crops."""
        one: list[Part] = ["\n\n", (self.begin, 1), (self.image, self.tokens), (self.end, 1), "\n\n"]
        if not grid[0]:
            return one
        made = ["Here is the original image ", *one, " and here are some crops to help you see better "]
        for number in range(grid[0]):
            made += [*([" "] if number else []), *one]
        return made


@dataclass(frozen=True)
class PrefixFrames(Frames):
    """PaliGemma: a picture's tokens, the begin of the text, the question and a newline; then the answer.

    There is no template. Grids are ().
    """

    image: str = "<image>"
    tokens: int = 256

    types: ClassVar[str] = "token_type_ids"
    apart: ClassVar[bool] = False
    numbers: ClassVar[tuple[str, ...]] = ()

    def checked(self, grid: Sequence[int], where: str) -> Grid:
        """Return (): all pictures have as many tokens."""
        return ()

    def parts(self, grid: Grid, pictures: int) -> list[Part]:
        """Return the picture's tokens."""
        return [(self.image, self.tokens)]


@dataclass(frozen=True)
class OneVisionFrames(Frames):
    """LLaVA-OneVision: a token for each feature that is left without the padding.

    Grids are (height, width) of the picture in pixels.

    Args:
        tokens: of a square tile.
        tile: its side in pixels.
        canvases: heights and widths that a picture may be put onto, in the processor's order.
        most: tiles above which the features are made fewer.
        less: 1 if the model leaves out a feature (``vision_feature_select_strategy="default"``).
    """

    image: str = "<image>"
    tokens: int = 729
    tile: int = 384
    canvases: tuple[tuple[int, int], ...] = tuple(
        (384 * rows, 384 * columns) for rows in range(1, 7) for columns in range(1, 7)
    )
    most: int = 9
    less: int = 0

    numbers: ClassVar[tuple[str, ...]] = ("height", "width")

    def checked(self, grid: Sequence[int], where: str) -> Grid:
        """Return a picture's height and width."""
        found = super().checked(grid, where)
        if min(found) < 1:
            raise ValueError(f"{where}: a picture's height and width must be at least 1. Found: {found}.")
        return found

    def parts(self, grid: Grid, pictures: int) -> list[Part]:
        """Return the picture's tokens. Several pictures of a sample are not cut into tiles."""
        count = self.tokens + 1 if pictures != 1 else self._anyres(*grid)
        return [(self.image, count - self.less)]

    def least(self) -> Grid:
        """Return the grid of a picture of one tile."""
        return self.tile, self.tile

    def _canvas(self, height: int, width: int) -> tuple[int, int]:
        """Return the canvas on which most of the picture is seen, and of those the one with least waste."""
        best, most, waste = self.canvases[0], 0, math.inf
        for rows, columns in self.canvases:
            scale = min(columns / width, rows / height)
            seen = min(int(width * scale) * int(height * scale), width * height)
            left = rows * columns - seen
            if seen > most or (seen == most and left < waste):
                best, most, waste = (rows, columns), seen, left
        return best

    def _anyres(self, height: int, width: int) -> int:
        """Count as ``_get_number_of_features`` in transformers' processing_llava_onevision.py, in doubles."""
        canvas = self._canvas(height, width)
        side = int(math.sqrt(self.tokens))
        rows, columns = side * (canvas[0] // self.tile), side * (canvas[1] // self.tile)
        if width / height > columns / rows:
            kept = int(round(height * (columns / width), 7))
            rows -= (rows - kept) // 2 * 2
        else:
            kept = int(round(width * (rows / height), 7))
            columns -= (columns - kept) // 2 * 2
        features, newlines = rows * columns, rows
        ratio = math.sqrt(rows * columns / (self.most * side**2))
        if ratio > 1.1:
            features = int(rows // ratio) * int(columns // ratio)
            newlines = int(rows // ratio)
        return features + newlines + self.tokens


# ---- The frames of a processor ----------------------------------------------------------------------------


def _patch_frames(processor: Any) -> Frames:
    return PatchFrames(processor.image_token, int(processor.image_processor.merge_size))


def _tile_frames(processor: Any) -> Frames:
    whole = getattr(processor, "global_image_tag", None) or processor.global_image_token
    return TileFrames(
        str(processor.image_token), int(processor.image_seq_len), str(processor.fake_image_token), str(whole)
    )


def _onevision_frames(processor: Any) -> Frames:
    size = processor.image_processor.size
    edges = [size[key] for key in ("shortest_edge", "height", "width") if size.get(key)]
    return OneVisionFrames(
        processor.image_token,
        int(processor.num_image_tokens),
        int(min(edges)),
        tuple((int(rows), int(columns)) for rows, columns in processor.image_processor.image_grid_pinpoints),
        int(processor.vision_aspect_ratio.removeprefix("anyres_max_")),
        int(processor.vision_feature_select_strategy == "default"),
    )


def _wrapped_frames(processor: Any) -> Frames:
    return WrappedFrames(
        processor.image_token,
        int(processor.image_seq_length),
        processor.start_image_token,
        processor.end_image_token,
    )


def _crop_frames(processor: Any) -> Frames:
    tokenizer = processor.tokenizer
    return CropFrames(
        tokenizer.image_token,
        int(processor.image_seq_length),
        tokenizer.boi_token,
        tokenizer.eoi_token,
        bool(getattr(processor.image_processor, "do_pan_and_scan", False)),
    )


def _prefix_frames(processor: Any) -> Frames:
    return PrefixFrames(processor.image_token, int(processor.image_seq_length))


_FAMILIES: Mapping[str, Any] = {
    "Qwen2VLProcessor": _patch_frames,
    "Qwen2_5_VLProcessor": _patch_frames,
    "Qwen3VLProcessor": _patch_frames,
    "Idefics3Processor": _tile_frames,
    "SmolVLMProcessor": _tile_frames,
    "LlavaOnevisionProcessor": _onevision_frames,
    "InternVLProcessor": _wrapped_frames,
    "Gemma3Processor": _crop_frames,
    "PaliGemmaProcessor": _prefix_frames,
}


def frames_of(processor: Any) -> Frames:
    """Return how a processor of transformers writes pictures, from its own settings.

    Raises:
        ValueError: its class is not known.
    """
    for known in type(processor).__mro__:
        if known.__name__ in _FAMILIES:
            made: Frames = _FAMILIES[known.__name__](processor)
            return made
    raise ValueError(
        f"Chat knows the pictures of {', '.join(_FAMILIES)}. Found: {type(processor).__name__}. Say how "
        "pictures are written: Chat(..., images=frames), with one of fastload.vlm.frames."
    )
