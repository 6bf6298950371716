"""Frames of videos by their times: colours, what is refused, and which decoder it is."""

from __future__ import annotations

import random
import re
from importlib import import_module
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
from lerobot_sets import Made, write_video
from long_forms import SEED, as_drawn, how_many
from video_fakes import PATCHES, SPACES, WEIGHTS, turned, without, write_patches
from video_fakes import torchcodec as torchcodec

from fastload.errors import LibraryMissing
from fastload.packing import videos


@pytest.mark.parametrize("pixels", ["yuv420p", "yuv444p", "yuv420p10le"])
@pytest.mark.parametrize("is_full", [False, True])
@pytest.mark.parametrize("space", WEIGHTS)
def test_colours_are_those_of_the_videos_own_space(
    tmp_path: Path, space: int, is_full: bool, pixels: str
) -> None:
    """Even of a PyAV that would take every video for BT.601 of limited range, where nothing is said."""
    path = write_patches(tmp_path / "one.mp4", space, is_full, pixels)
    found = videos.Decoder("PyAV", "").opened(path, 1).frame_at(0, videos.TOLERANCE).pixels
    assert np.abs(found[24, 8::16].astype(int) - PATCHES).max() <= 4


def test_the_space_and_range_are_said(tmp_path: Path) -> None:
    """They are given to every PyAV: what one takes by itself is no matter."""
    given: list[dict[str, Any]] = []

    class Spied:
        def __init__(self, frame: Any) -> None:
            self.frame = frame

        def __getattr__(self, name: str) -> Any:
            return getattr(self.frame, name)

        def reformat(self, **options: Any) -> Any:
            given.append(options)
            return self.frame.reformat(**options)

    for space, is_full in ((1, False), (9, True)):
        with av.open(str(write_patches(tmp_path / "one.mp4", space, is_full))) as container:
            videos._rgb_of(Spied(next(container.decode(video=0))))
    assert [(each["src_colorspace"], each["src_color_range"]) for each in given] == [(1, 1), (9, 2)]


@pytest.mark.parametrize("space", [8, 10, 14])
@pytest.mark.parametrize("decoder", ["PyAV", "torchcodec"])
@pytest.mark.usefixtures("torchcodec")
def test_a_space_without_a_matrix_is_refused(tmp_path: Path, decoder: str, space: int) -> None:
    path = write_patches(tmp_path / "one.mp4", space, False)
    name = f"FFmpeg's number {space}" if decoder == "PyAV" else repr(SPACES[space])
    with pytest.raises(videos.VideoError, match=f"its colour space is {name}, must be one of bt709, fcc, "):
        videos.Decoder(decoder, "").opened(path, 1).frame_at(0, videos.TOLERANCE)


@pytest.mark.parametrize("degrees", [90, 180])
@pytest.mark.parametrize("decoder", ["PyAV", "torchcodec"])
@pytest.mark.usefixtures("torchcodec")
def test_a_video_to_be_turned_is_refused(tmp_path: Path, decoder: str, degrees: int) -> None:
    path = tmp_path / "one.mp4"
    write_video(path, [np.zeros((48, 64, 3), np.uint8)], [0.0], Made())
    assert videos.Decoder(decoder, "").opened(path, 1).frame_at(0, videos.TOLERANCE).pixels.shape == (
        48,
        64,
        3,
    )
    turned(path, degrees)
    with pytest.raises(videos.VideoError, match=rf"it says that it is to be turned by -?{degrees} degrees"):
        videos.Decoder(decoder, "").opened(path, 1).frame_at(0, videos.TOLERANCE)


@pytest.mark.usefixtures("torchcodec")
def test_torchcodec_with_more_than_8_bits(tmp_path: Path) -> None:
    """torchcodec 0.13 takes the full range of these for the limited one, and does not say which it is."""
    path = write_patches(tmp_path / "one.mp4", 1, True, "yuv420p10le")
    with pytest.raises(
        videos.VideoError, match=r"its pixels are yuv420p10le, .* PyAV decodes it: pip install"
    ):
        videos.Decoder("torchcodec", "").opened(path, 1)


@pytest.mark.usefixtures("torchcodec")
def test_torchcodec_finds_frames_by_number(tmp_path: Path) -> None:
    """Those that last no time are found, too; any order is right, and forward each is decoded once."""
    rng = random.Random(SEED)
    for _ in range(how_many(8, 300)):
        ticks = sorted(rng.sample(range(rng.choice((60, 3000))), rng.randint(1, 40)))
        made = Made(fps=30, gop=rng.randint(1, 9))
        pictures = [np.full((16, 16, 3), (i * 6, 90, 255 - i * 6), np.uint8) for i in range(len(ticks))]
        write_video(tmp_path / "one.mp4", pictures, [tick / 1000 for tick in ticks], made)
        with av.open(str(tmp_path / "one.mp4")) as container:
            times = [float(one.pts * one.time_base) for one in container.decode(video=0)]
        video = videos.Decoder("torchcodec", "").opened(tmp_path / "one.mp4", 1)
        wanted = [*times, *(rng.uniform(-1, times[-1] + 1) for _ in range(9))]
        rng.shuffle(wanted)
        for at in wanted:
            fitting = [time for time in times if abs(time - at) <= videos.TOLERANCE]
            found = [seen.seconds for seen in video.near(at, videos.TOLERANCE)]
            assert [time for time in found if abs(time - at) <= videos.TOLERANCE] == fitting, as_drawn(ticks)
            assert min(times, key=lambda time: abs(time - at)) in found, as_drawn(ticks)
    seconds = [i / 30 for i in range(200)]
    write_video(tmp_path / "one.mp4", [pictures[0]] * 200, seconds, Made(fps=30))
    for step in (1, 3):
        one = videos.DECODERS["torchcodec"](tmp_path / "one.mp4", 1)
        for at in seconds[5::step]:
            assert len(one.near(at, videos.TOLERANCE)) >= 2
        decoded = one._decoder.decoded  # type: ignore[attr-defined]
        assert decoded == sorted(set(decoded))


@pytest.mark.usefixtures("torchcodec")
def test_pyav_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """It notices damage, and torchcodec does not."""
    monkeypatch.setattr(videos, "import_module", import_module)
    assert (videos.chosen_decoder().name, videos.chosen_decoder().why) == ("PyAV", "")
    monkeypatch.setattr(av, "__version__", "14.4.0")
    decoder = videos.chosen_decoder()
    assert str(decoder) == "torchcodec 9.0"
    assert decoder.why == "PyAV is 14.4.0, must be 15.0 or newer: damage inside a video is not noticed"


def test_decoders_that_cannot_be_used_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def loaded(name: str) -> Any:
        if name == "torchcodec.decoders":
            raise RuntimeError("Could not load libtorchcodec.\nFFmpeg is not installed")
        return import_module(name)

    monkeypatch.setattr(av, "__version__", "14.4.0")
    monkeypatch.setattr(videos, "import_module", loaded)
    words = (
        "packing videos needs PyAV. PyAV is 14.4.0, must be 15.0 or newer; torchcodec cannot be used (Could "
        'not load libtorchcodec.): pip install "fastload[video]".'
    )
    with pytest.raises(LibraryMissing, match=f"^{re.escape(words)}$"):
        videos.chosen_decoder()
    without(monkeypatch, "av", "torchcodec.decoders")
    with pytest.raises(LibraryMissing, match=r"PyAV is not installed; torchcodec is not installed: pip"):
        videos.chosen_decoder()
