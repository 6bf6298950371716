"""Frames of video files by their time stamps, decoded forward by PyAV or torchcodec."""

from __future__ import annotations

import math
import re
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from fastload.errors import LibraryMissing
from fastload.extras import need, pip_line

WHAT = "packing videos"
#: Seconds by which a frame's time may differ from a row's: as LeRobot's loader, so that what it would refuse
#: is refused, and a set whose time stamps are shifted is not packed with other frames.
TOLERANCE = 1e-4
#: Seconds ahead from which seeking is cheaper than decoding on.
_FAR = 5.0
_DEEP = re.compile(r"gray(9|1\d|f)|ya16|y1\d")
#: The matrices of YUV that swscale knows, by FFmpeg's number of a colour space (AVColorSpace); of a video
#: that names none it is BT.601's, as in every version of FFmpeg.
_MATRICES = {1: 1, 2: 5, 4: 4, 5: 5, 6: 5, 7: 7, 9: 9}
_BT601, _LIMITED, _FULL = 5, 1, 2
_NAMES = (
    "bt709",
    "fcc",
    "bt470bg",
    "smpte170m",
    "smpte240m",
    "bt2020nc",
)  # of the same, as torchcodec has them

Pixels = npt.NDArray[np.uint8]


class VideoError(ValueError):
    """A video has no frame for a time stamp, or cannot be decoded; the message says why."""


@dataclass(frozen=True)
class Frame:
    """A frame of a video.

    Args:
        pixels: (height, width, 3) RGB.
        sampling: how finely the video has its colours, as JPEG's: 0 is 4:4:4, 1 is 4:2:2, 2 is 4:2:0.
    """

    pixels: Pixels
    sampling: int


class _Seen(Protocol):
    """A frame that was met, its time known, and maybe not its pixels."""

    @property
    def seconds(self) -> float:
        """Its time."""


class Video:
    """An open video.

    Subclasses find the frames near a time, forward if the times grow.
    """

    def frame_at(self, seconds: float, tolerance: float) -> Frame:
        """Return the one frame whose time is ``seconds``.

        Args:
            seconds: the time in the file.
            tolerance: by which its time may differ.

        Raises:
            VideoError: there is none or more than one, or it cannot be decoded.
        """
        near = self.near(seconds, tolerance)
        if not near:
            raise VideoError("it has no frames")
        fitting = [seen for seen in near if abs(seen.seconds - seconds) <= tolerance]
        if len(fitting) == 1:
            return self.frame_of(fitting[0])
        if fitting:
            times = " and ".join(f"{seen.seconds:.6f} s" for seen in fitting)
            raise VideoError(f"several frames have it: {times}")
        nearest = min((seen.seconds for seen in near), key=lambda time: abs(time - seconds))
        raise VideoError(f"no frame has it, the nearest is at {nearest:.6f} s")

    def near(self, seconds: float, tolerance: float) -> Sequence[Any]:
        """Return the frames around a time: those within the tolerance, and their neighbours."""
        raise NotImplementedError

    def frame_of(self, seen: Any) -> Frame:
        """Return one of the frames that :meth:`near` returned."""
        raise NotImplementedError

    def close(self) -> None:
        """Close the file."""


def sampling_of(pixel_format: str) -> int:
    """Return how finely colours are sampled, as JPEG's number, by FFmpeg's name of a pixel format.

    Raises:
        VideoError: gray of more than 8 bits, as of depth maps, which RGB of 8 bits would spoil.
    """
    if _DEEP.match(pixel_format):
        raise VideoError(
            f"its pixels are {pixel_format}, as of depth maps: as RGB of 8 bits they would mean nothing. "
            "Leave the camera out, with --field NAME=none"
        )
    if "444" in pixel_format or "rgb" in pixel_format or "gbr" in pixel_format or "bgr" in pixel_format:
        return 0
    return 1 if "422" in pixel_format else 2


def refuse_turned(degrees: float | None) -> None:
    """Raise VideoError for a video that says that it is to be turned: torchcodec does that, PyAV does not."""
    if degrees:
        raise VideoError(
            f"it says that it is to be turned by {degrees:g} degrees, which some decoders do and some do "
            "not. Write it anew, turned (ffmpeg -i IN OUT does that), or leave the camera out, with --field "
            "NAME=none"
        )


# ---- PyAV -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Decoded:
    seconds: float
    frame: Any


class _PyAv(Video):
    """A video decoded by PyAV, from a key frame on."""

    def __init__(self, path: Path, threads: int) -> None:
        need("av", WHAT)
        import av

        self._path, self._threads = path, threads
        self._error: type[Exception] = av.FFmpegError
        self._container: Any = None
        self._frames: Iterator[_Decoded] | None = None
        self._seen: deque[_Decoded] = deque(maxlen=3)  # the last ones, of which the newest is past the time
        self._open()

    def _open(self) -> None:
        """Open the file anew: a decoder that has met damage may spoil sound frames behind it."""
        import av

        self.close()
        try:
            self._container = av.open(str(self._path))
        except self._error as error:
            raise VideoError(f"it cannot be opened ({error.__class__.__name__}: {_reason(error)})") from None
        if not self._container.streams.video:
            raise VideoError("it has no video stream")
        self._stream = self._container.streams.video[0]
        self._stream.codec_context.thread_count = self._threads
        self._stream.thread_type = "SLICE"  # frames in several threads hide damage from those that follow

    def near(self, seconds: float, tolerance: float) -> Sequence[_Decoded]:
        try:
            return self._guarded(seconds, tolerance, seconds - tolerance)
        except VideoError:
            # What is damaged may lie before the key frame that has this time.
            return self._guarded(seconds, tolerance, seconds + tolerance)

    def _guarded(self, seconds: float, tolerance: float, begin: float) -> Sequence[_Decoded]:
        try:
            return self._near(seconds, tolerance, begin)
        except (self._error, VideoError) as error:
            if self._seen and abs(self._seen[-1].seconds - seconds) <= tolerance:
                found = list(self._seen)  # only what follows is damaged
                self._open()
                return found
            self._open()
            if isinstance(error, VideoError):
                raise
            raise VideoError(f"it cannot be decoded ({error.__class__.__name__}: {_reason(error)})") from None

    def _near(self, seconds: float, tolerance: float, begin: float) -> Sequence[_Decoded]:
        seen = self._seen
        if self._frames is None or not seen or not self._is_ahead(seconds, tolerance):
            self._seek(begin)
            if not seen or seen[0].seconds > seconds + tolerance:  # no key frame before it was found
                self._seek(-math.inf)
        assert self._frames is not None
        while seen and seen[-1].seconds <= seconds + tolerance:
            following = next(self._frames, None)
            if following is None:
                break
            seen.append(following)
        return list(seen)

    def _is_ahead(self, seconds: float, tolerance: float) -> bool:
        return self._seen[0].seconds - tolerance <= seconds <= self._seen[-1].seconds + _FAR

    def _seek(self, seconds: float) -> None:
        """Begin anew with the key frame before a time."""
        start = self._stream.start_time or 0
        at = start if seconds == -math.inf else max(int(seconds / self._stream.time_base), start)
        self._seen.clear()
        self._container.seek(at, stream=self._stream, backward=True)
        self._frames = self._decoded()
        first = next(self._frames, None)
        if first is not None:
            self._seen.append(first)

    def _decoded(self) -> Iterator[_Decoded]:
        for frame in self._container.decode(self._stream):
            if frame.pts is None:
                raise VideoError("a frame has no time")
            seconds = float(frame.pts * frame.time_base)
            if frame.is_corrupt:
                raise VideoError(f"the frame at {seconds:.6f} s is damaged")
            yield _Decoded(seconds, frame)

    def frame_of(self, seen: _Decoded) -> Frame:
        sampling = sampling_of(seen.frame.format.name)
        refuse_turned(seen.frame.rotation)
        return Frame(_rgb_of(seen.frame), sampling)

    def close(self) -> None:
        self._frames = None
        self._seen.clear()
        if self._container is not None:
            self._container.close()


def _strange_space(space: str) -> VideoError:
    return VideoError(
        f"its colour space is {space}, must be one of {', '.join(_NAMES)} or not said: the colours would be "
        "wrong. Encode it anew, or leave the camera out, with --field NAME=none"
    )


def _rgb_of(frame: Any) -> Pixels:
    """Return a frame as RGB, by its own matrix and range: left to themselves, versions of PyAV before 17
    take BT.601's for every video.

    Raises:
        VideoError: swscale has no matrix for the frame's colour space.
    """
    layout, space = frame.format, int(frame.colorspace)
    matrix = _BT601 if layout.is_rgb else _MATRICES.get(space)
    if matrix is None:
        raise _strange_space(f"FFmpeg's number {space}")
    is_full = int(frame.color_range) == _FULL or layout.name.startswith("yuvj")
    converted = frame.reformat(
        format="rgb24", src_colorspace=matrix, src_color_range=_FULL if is_full else _LIMITED,
        # RGB has neither, but PyAV 15 and 16 take the source's into account only if these differ from them.
        # BT.601 and the limited range, which these are, are what swscale takes by itself.
        dst_colorspace=_BT601, dst_color_range=_LIMITED,
    )  # fmt: skip
    pixels: Pixels = converted.to_ndarray()
    return pixels


def _reason(error: BaseException) -> str:
    """Return what FFmpeg says, without the path, which the message has already."""
    words = getattr(error, "strerror", None) or str(error)
    return str(words)


# ---- torchcodec -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Played:
    seconds: float
    data: Any


class _TorchCodec(Video):
    """A video decoded by torchcodec."""

    def __init__(self, path: Path, threads: int) -> None:
        need("torchcodec.decoders", WHAT)
        from torchcodec.decoders import VideoDecoder

        try:
            self._decoder: Any = VideoDecoder(str(path), dimension_order="NHWC", num_ffmpeg_threads=threads)
        except (RuntimeError, ValueError, OSError) as error:
            raise VideoError(f"it cannot be opened ({error})") from None
        refuse_turned(self._decoder.metadata.rotation)
        layout = str(self._decoder.metadata.pixel_format or "")
        self._sampling = sampling_of(layout)
        if re.fullmatch(r"(yuv|p0).*(le|be)", layout):
            raise VideoError(
                f"its pixels are {layout}, and torchcodec takes the range of such for the limited one, even "
                f"where it is not: its colours might be wrong. PyAV decodes it: {pip_line('av')}"
            )
        space = self._decoder.metadata.color_space
        if space not in (None, *_NAMES) and not re.search(r"rgb|bgr|gbr", layout):
            raise _strange_space(repr(space))
        self._seen: dict[int, _Played] = {}  # the last ones, by number

    def near(self, seconds: float, tolerance: float) -> Sequence[_Played]:
        last = self._last_until(seconds, tolerance)
        return [self._frame(at) for at in (last - 1, last, last + 1) if 0 <= at < len(self._decoder)]

    def _last_until(self, seconds: float, tolerance: float) -> int:
        """Return the number of the last frame whose time is not later, -1 for none.

        It is sought by numbers, as what lasts 0 seconds is shown at no time: torchcodec would skip it.
        """
        low, high = -1, len(self._decoder)
        reach, next_reach = 1, 1
        at = self._guess(seconds)
        while high - low > 1:
            at = min(max(at, low + 1), high - 1)
            if self._frame(at).seconds <= seconds + tolerance:
                low = at
            else:
                high = at
            is_between = low >= 0 and high < len(self._decoder)
            at = (low + high) // 2 if is_between else low + reach if low >= 0 else high - reach
            reach, next_reach = next_reach, reach + next_reach
        return low

    def _guess(self, seconds: float) -> int:
        """Return about the number before a time's: of a regular rate the frame, its neighbours, and no other
        are decoded then, forward."""
        at, begin = 0, float(self._decoder.metadata.begin_stream_seconds or 0)
        if self._seen:
            at, seen = next(reversed(self._seen.items()))
            begin = seen.seconds
        return at + round((seconds - begin) * float(self._decoder.metadata.average_fps or 0)) - 1

    def _frame(self, at: int) -> _Played:
        if at not in self._seen:
            try:
                frame = self._decoder.get_frame_at(at)
            except (RuntimeError, ValueError, IndexError) as error:
                raise VideoError(f"it cannot be decoded ({error})") from None
            self._seen[at] = _Played(frame.pts_seconds, frame.data)
            if len(self._seen) > 4:
                del self._seen[next(iter(self._seen))]
        return self._seen[at]

    def frame_of(self, seen: _Played) -> Frame:
        pixels: Pixels = seen.data.numpy()
        return Frame(pixels, self._sampling)


# ---- Which of them ----------------------------------------------------------------------------------

#: By name: what opens a file with a number of threads. The first that works is taken.
DECODERS: dict[str, Callable[[Path, int], Video]] = {"PyAV": _PyAv, "torchcodec": _TorchCodec}
_MODULES = {"PyAV": "av", "torchcodec": "torchcodec.decoders"}
#: The first versions that say whether a video is to be turned, and let colours be what the video says.
_OLDEST = {"PyAV": (15, 0), "torchcodec": (0, 11)}


@dataclass(frozen=True)
class Decoder:
    """The decoder of all videos of a pack.

    Args:
        name: one of :data:`DECODERS`.
        version: its library's.
        why: why it is not the other one, and what that means; "": it is the first choice.
    """

    name: str
    version: str
    why: str = ""

    def __str__(self) -> str:
        return f"{self.name} {self.version}"

    def opened(self, path: Path, threads: int) -> Video:
        """Open a video.

        Raises:
            VideoError: it cannot be opened.
            LibraryMissing: the decoder is not installed here.
        """
        return DECODERS[self.name](path, threads)


def chosen_decoder() -> Decoder:
    """Return PyAV if it is installed and works, since it notices damage inside a video, else torchcodec.

    Raises:
        LibraryMissing: neither can be used.
    """
    reasons: list[str] = []
    for name in DECODERS:
        try:
            version = _version(name)
        except _Unusable as error:
            reasons.append(str(error))
        else:
            why = f"{'; '.join(reasons)}: damage inside a video is not noticed" if reasons else ""
            return Decoder(name, version, why)
    raise LibraryMissing(f"{WHAT} needs PyAV. {'; '.join(reasons)}: {pip_line('av')}.", name="av")


class _Unusable(Exception):
    """A decoder cannot be used; the message names it, and says why."""


def _version(name: str) -> str:
    module, oldest = _MODULES[name], _OLDEST[name]
    try:
        import_module(module)
        version = str(getattr(import_module(module.partition(".")[0]), "__version__", "0"))
    except ModuleNotFoundError:
        raise _Unusable(f"{name} is not installed") from None
    except Exception as error:  # what loading FFmpeg's libraries raises
        words = str(error).strip() or error.__class__.__name__
        raise _Unusable(f"{name} cannot be used ({words.splitlines()[0]})") from None
    if tuple(map(int, re.findall(r"\d+", version)[:2])) < oldest:
        raise _Unusable(f"{name} is {version}, must be {'.'.join(map(str, oldest))} or newer")
    return version
