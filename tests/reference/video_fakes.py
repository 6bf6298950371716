"""Videos of known colours, videos to be turned, and a torchcodec that is made of PyAV."""

from __future__ import annotations

import struct
import sys
import types
from fractions import Fraction
from importlib import import_module
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
import torch

from fastload.packing import videos

PATCHES = np.array(
    [(250, 20, 30), (20, 200, 60), (40, 50, 230), (128, 128, 128), (230, 220, 20), (10, 200, 210)]
)


#: By FFmpeg's number of a colour space: what red and blue weigh in its luma.
WEIGHTS = {1: (0.2126, 0.0722), 2: (0.299, 0.114), 5: (0.299, 0.114), 6: (0.299, 0.114), 7: (0.212, 0.087),
           9: (0.2627, 0.0593)}  # fmt: skip


def write_patches(path: Path, space: int, is_full: bool, pixels: str = "yuv420p") -> Path:
    """A lossless video of one frame of six patches, whose YUV is computed here by the standards' formulas."""
    red, blue = WEIGHTS.get(space, WEIGHTS[1])
    rgb = PATCHES / 255
    luma = rgb @ [red, 1 - red - blue, blue]
    parts = [luma, (rgb[:, 2] - luma) / 2 / (1 - blue), (rgb[:, 0] - luma) / 2 / (1 - red)]
    spans = [(255, 0), (255, 128), (255, 128)] if is_full else [(219, 16), (224, 128), (224, 128)]
    depth, kind = (4, np.dtype("<u2")) if "10" in pixels else (1, np.dtype("u1"))
    frame = av.VideoFrame(96, 48, pixels)
    for plane, part, (span, zero) in zip(frame.planes, parts, spans, strict=True):
        row = np.repeat(np.round(depth * (span * part + zero)), plane.width // 6)
        padded = np.zeros((plane.height, plane.line_size // kind.itemsize), kind)
        padded[:, : plane.width] = row
        plane.update(padded.tobytes())
    with av.open(str(path), "w") as container:
        stream: Any = container.add_stream("libx264", rate=10)
        stream.width, stream.height, stream.pix_fmt = 96, 48, pixels
        stream.options = {"qp": "0", "preset": "ultrafast"}
        for one in (stream.codec_context, frame):
            one.colorspace, one.color_range = space, 2 if is_full else 1
        frame.pts, frame.time_base = 0, Fraction(1, 10)
        container.mux(stream.encode(frame))
        container.mux(stream.encode())
    return path


IDENTITY = struct.pack(">9i", 1 << 16, 0, 0, 0, 1 << 16, 0, 0, 0, 1 << 30)


TURNS = {
    0: IDENTITY,
    90: struct.pack(">9i", 0, -1 << 16, 0, 1 << 16, 0, 0, 0, 0, 1 << 30),
    180: struct.pack(">9i", -1 << 16, 0, 0, 0, -1 << 16, 0, 0, 0, 1 << 30),
}


def turned(path: Path, degrees: int) -> None:
    """Let the track's header of an MP4 file say that its pictures are to be turned."""
    data = path.read_bytes()
    at = data.index(b"tkhd")
    path.write_bytes(data[:at] + data[at:].replace(IDENTITY, TURNS[degrees], 1))


def turn_of(path: Path) -> int:
    header = path.read_bytes().partition(b"tkhd")[2][:84]
    return next((degrees for degrees, matrix in TURNS.items() if matrix in header), 0)


#: FFmpeg's names of colour spaces.
SPACES = {1: "bt709", 5: "bt470bg", 6: "smpte170m", 8: "ycgco", 9: "bt2020nc", 10: "bt2020c", 14: "ictcp"}


class LikeTorchCodec:
    """torchcodec's ``VideoDecoder`` as far as it is used, made of PyAV."""

    def __init__(self, path: str, *, dimension_order: str, num_ffmpeg_threads: int) -> None:
        assert dimension_order == "NHWC"
        with av.open(path) as container:
            pixels = container.streams.video[0].format.name
            space = SPACES.get(int(container.streams.video[0].codec_context.colorspace))
            frames = [(float(f.pts * f.time_base), f) for f in container.decode(video=0)]
        self._frames = frames
        self.decoded: list[int] = []
        self.metadata = types.SimpleNamespace(
            begin_stream_seconds=frames[0][0], pixel_format=pixels, color_space=space,
            rotation=turn_of(Path(path)),
            average_fps=len(frames) / max(frames[-1][0] - frames[0][0], 0.1),
        )  # fmt: skip

    def __len__(self) -> int:
        return len(self._frames)

    def get_frame_at(self, index: int) -> Any:
        assert 0 <= index < len(self)
        self.decoded.append(index)
        seconds, frame = self._frames[index]
        pixels = torch.from_numpy(frame.to_ndarray(format="rgb24"))
        return types.SimpleNamespace(pts_seconds=seconds, data=pixels)


def without(monkeypatch: pytest.MonkeyPatch, *modules: str) -> None:
    """Let some modules not be installed."""

    def loaded(name: str) -> Any:
        if name in modules:
            raise ModuleNotFoundError(name)
        return import_module(name)

    monkeypatch.setattr(videos, "import_module", loaded)


@pytest.fixture
def torchcodec(monkeypatch: pytest.MonkeyPatch) -> None:
    """A torchcodec, and no PyAV."""
    package, decoders = types.ModuleType("torchcodec"), types.ModuleType("torchcodec.decoders")
    package.__version__ = "9.0"  # type: ignore[attr-defined]
    package.decoders = decoders  # type: ignore[attr-defined]
    decoders.VideoDecoder = LikeTorchCodec  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torchcodec", package)
    monkeypatch.setitem(sys.modules, "torchcodec.decoders", decoders)
    without(monkeypatch, "av")
