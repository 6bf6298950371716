"""What stands for a picture, in each family's words; its counts; what is refused."""

from __future__ import annotations

import math

import numpy as np
import pytest
from small_tokenizer import Qwen2VLProcessor, SmallTokenizer

from fastload.vlm.frames import (
    CropFrames,
    Frames,
    OneVisionFrames,
    PatchFrames,
    PrefixFrames,
    TileFrames,
    Tokens,
    WrappedFrames,
    compiled,
    frames_of,
)


def written(frames: Frames, grid: tuple[int, ...], pictures: int = 1) -> str:
    parts = frames.parts(grid, pictures)
    return "".join(part if isinstance(part, str) else part[0] * part[1] for part in parts)


def test_texts_of_families() -> None:
    assert written(PatchFrames(), (4, 6)) == "<|image_pad|>" * 6
    one = "<f><global><image><image><f>"
    tiles = TileFrames(tokens=2, around="<f>", whole="<global>")
    assert written(tiles, (0, 0)) == one
    row = "<f><row_{0}_col_1><image><image><f><row_{0}_col_2><image><image>\n"
    assert written(tiles, (2, 2)) == row.format(1) + row.format(2) + "\n" + one
    assert written(WrappedFrames(tokens=2), (3,)) == "<img>" + "<IMG_CONTEXT>" * 6 + "</img>"
    whole = "\n\n<start_of_image><image_soft_token><end_of_image>\n\n"
    crops = CropFrames(tokens=1, crops=True)
    assert written(crops, (0,)) == whole
    assert written(crops, (2,)) == (
        f"Here is the original image {whole} and here are some crops to help you see better {whole} {whole}"
    )
    assert written(PrefixFrames(tokens=3), ()) == "<image>" * 3


def test_a_frame_keeps_what_no_text_changes() -> None:
    tokenizer = SmallTokenizer()
    tokens = Tokens(tokenizer)
    frame = compiled(["\n\n", ("<image>", 3), "\n", "\n", ("<image>", 2), " end\n"], tokens)
    assert (frame.before, frame.first, frame.last, frame.after) == ("\n\n", "<image>", "<image>", " end\n")
    image, lines = tokenizer.own["<image>"], tokenizer.words["\n\n"]
    assert frame.ids.tolist() == [image] * 3 + [lines] + [image] * 2
    assert compiled([("<image>", 1)], tokens).last == ""


def test_tokens_that_the_tokenizer_does_not_know_are_text() -> None:
    tokenizer = SmallTokenizer()
    frame = compiled(TileFrames(tokens=1).parts((1, 1), 1), Tokens(tokenizer))
    ids = tokenizer("<row_1_col_1>", add_special_tokens=False, return_offsets_mapping=True)["input_ids"]
    assert frame.ids[1 : 1 + len(ids)].tolist() == ids
    with pytest.raises(
        ValueError, match=r"must be tokens of the tokenizer's own.*Found: none of \['<nothing>'\]"
    ):
        compiled([("<nothing>", 2)], Tokens(tokenizer))


def test_counts_of_onevision() -> None:
    frames = OneVisionFrames()
    assert written(frames, (384, 384), 2) == "<image>" * 730
    # 384 x 384 fits one tile: 27 x 27 features, 27 newlines, and the whole again.
    assert written(frames, (384, 384)) == "<image>" * (729 + 27 + 729)
    # 384 x 768: two tiles side by side.
    assert written(frames, (384, 768)) == "<image>" * (27 * 54 + 27 + 729)
    # 2304 x 2304: 36 tiles, more than 9, so features are made fewer.
    rows = int(162 // math.sqrt(162 * 162 / (9 * 729)))
    assert written(frames, (2304, 2304)) == "<image>" * (rows * rows + rows + 729)
    assert written(OneVisionFrames(less=1), (384, 384), 3) == "<image>" * 729


@pytest.mark.parametrize(
    ("frames", "grid", "message"),
    [
        (PatchFrames(), (3, 4), r"must be multiples of 2, at least 2. Found: \(3, 4\)"),
        (PatchFrames(), (0, 4), "at least 2"),
        (PatchFrames(), (2, 4, 4), r"must be \(rows, columns\).*Found: \(2, 4, 4\)"),
        (TileFrames(), (1,), r"must be \(rows, columns\)"),
        (TileFrames(), (-1, 2), "none below 0"),
        (CropFrames(), (2,), r"has 2 crops, and pan and scan is off.*CropFrames\(crops=True"),
        (OneVisionFrames(), (0, 5), r"must be at least 1. Found: \(0, 5\)"),
    ],
)
def test_grids_that_are_none(frames: Frames, grid: tuple[int, ...], message: str) -> None:
    with pytest.raises(ValueError, match=f"^sample 3.*{message}"):
        frames.checked(grid, "sample 3")


def test_grids() -> None:
    assert PatchFrames().checked([1, 4, 6], "") == (4, 6)
    assert PatchFrames().checked(np.array([4, 6]).tolist(), "") == (4, 6)
    assert PrefixFrames().checked((1, 2, 3), "") == ()


def test_frames_of_processors() -> None:
    class Mine(Qwen2VLProcessor):
        pass

    assert frames_of(Mine()) == PatchFrames(merge=2)
    with pytest.raises(
        ValueError, match="knows the pictures of Qwen2VLProcessor.*Found: SmallTokenizer.*images="
    ):
        frames_of(SmallTokenizer())
