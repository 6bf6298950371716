"""LeRobot sets of versions 2.1 and 3.0, made with PyAV and pyarrow; and what each row of them holds."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as parquet

import fastload
from fastload import PackedDataset

TOP, WRIST = "observation.images.top", "observation.images.wrist"
SIZES = {TOP: (64, 48), WRIST: (48, 32)}  # width, height
LENGTHS = (7, 12, 5)
FPS = 10
TASKS = ("pick the cube", "füll die Tasse")
EXTRA = ("action", "observation.state", "grid", "next.done", "note")


@dataclass
class Made:
    """What a set is made of.

    Args:
        version: "v2.1" or "v3.0".
        lengths: rows of each episode.
        fps: rows a second.
        times: by episode the rows' time stamps in seconds; others are regular.
        shown: by (camera, episode) the frames' times in seconds; others are the rows' own.
        per_file: episodes in each file of version 3.0.
        codec: of the videos, with options.
        gop: frames from one key frame to the next.
        pixels: FFmpeg's name of the videos' pixel format.
        bare: whether there are only the columns that every set has.
    """

    version: str = "v3.0"
    lengths: Sequence[int] = LENGTHS
    fps: int = FPS
    sizes: Mapping[str, tuple[int, int]] = field(default_factory=lambda: SIZES)
    times: Mapping[int, Sequence[float]] = field(default_factory=dict)
    shown: Mapping[tuple[str, int], Sequence[float]] = field(default_factory=dict)
    per_file: int = 2
    codec: str = "libx264"
    gop: int = 5
    pixels: str = "yuv420p"
    bare: bool = False

    def seconds(self, episode: int) -> list[float]:
        """The time stamps of an episode's rows, as float32 has them."""
        regular = [row / self.fps for row in range(self.lengths[episode])]
        return [float(np.float32(one)) for one in self.times.get(episode, regular)]


def frame(camera: str, episode: int, row: int, size: tuple[int, int]) -> npt.NDArray[np.uint8]:
    """A picture that differs from those of all other rows and cameras: slopes, and a square that moves."""
    width, height = size
    y, x = np.mgrid[:height, :width]
    turn = 40 * episode + 9 * row + (100 if camera == WRIST else 0)
    pixels = np.stack([(x * 2 + turn) % 256, (y * 3 + 2 * turn) % 256, np.full_like(x, turn * 5 % 256)], -1)
    left = (3 * row) % (width - 8)
    pixels[4:12, left : left + 8] = [250, 20 * episode % 256, 30]
    return pixels.astype(np.uint8)


def write_video(
    path: Path, frames: Sequence[npt.NDArray[np.uint8]], seconds: Sequence[float], made: Made
) -> None:
    """Write a video whose frames have these times."""
    path.parent.mkdir(parents=True, exist_ok=True)
    base = Fraction(1, 90000)
    with av.open(str(path), "w", options={"movflags": "faststart"}) as container:
        stream: Any = container.add_stream(made.codec, rate=made.fps)
        stream.height, stream.width = frames[0].shape[:2]
        stream.pix_fmt = made.pixels
        stream.time_base = stream.codec_context.time_base = base
        stream.codec_context.gop_size = made.gop
        stream.options = {"crf": "12", "preset": "ultrafast"} if made.codec == "libx264" else {}
        for pixels, at in zip(frames, seconds, strict=True):
            one = av.VideoFrame.from_ndarray(pixels, format="rgb24")
            one.pts, one.time_base = round(at / base), base
            container.mux(stream.encode(one))
        container.mux(stream.encode())


def _columns(made: Made, episodes: Sequence[int], first: int) -> dict[str, Any]:
    rows = [(episode, row) for episode in episodes for row in range(made.lengths[episode])]
    columns = {
        "action": pa.array([[e + row + k / 7 for k in range(3)] for e, row in rows],
                           pa.list_(pa.float32(), 3)),
        "observation.state": pa.array([[e - row + k / 3 for k in range(2)] for e, row in rows],
                                      pa.list_(pa.float64())),
        "grid": pa.array([[[e, row], [row, 7]] for e, row in rows], pa.list_(pa.list_(pa.int16()))),
        "next.done": pa.array([row == made.lengths[e] - 1 for e, row in rows], pa.bool_()),
        "note": pa.array([f"é {e} {row}" for e, row in rows], pa.string()),
        "timestamp": pa.array([made.seconds(e)[row] for e, row in rows], pa.float32()),
        "frame_index": pa.array([row for _, row in rows], pa.int64()),
        "episode_index": pa.array([e for e, _ in rows], pa.int64()),
        "index": pa.array([first + i for i in range(len(rows))], pa.int64()),
        "task_index": pa.array([e % len(TASKS) for e, _ in rows], pa.int64()),
    }  # fmt: skip
    return {name: column for name, column in columns.items() if not made.bare or name not in EXTRA}


def _features(made: Made) -> dict[str, Any]:
    features: dict[str, Any] = {
        "action": {"dtype": "float32", "shape": [3], "names": ["x", "y", "grip"]},
        "observation.state": {"dtype": "float64", "shape": [2], "names": None},
        "grid": {"dtype": "int16", "shape": [2, 2], "names": None},
        "next.done": {"dtype": "bool", "shape": [1], "names": None},
        "note": {"dtype": "string", "shape": [1], "names": None},
    }
    features = {} if made.bare else features
    for camera, (width, height) in made.sizes.items():
        features[camera] = {
            "dtype": "video", "shape": [height, width, 3], "names": ["height", "width", "channels"],
            "info": {"video.fps": made.fps, "video.pix_fmt": made.pixels, "video.is_depth_map": False},
        }  # fmt: skip
    whole = {"dtype": "int64", "shape": [1], "names": None}
    indices = dict.fromkeys(("frame_index", "episode_index", "index", "task_index"), whole)
    return {**features, "timestamp": {"dtype": "float32", "shape": [1], "names": None}, **indices}


def make_set(root: Path, made: Made | None = None) -> Path:
    """Write a set into a new folder, and return that."""
    made = made or Made()
    shutil.rmtree(root, ignore_errors=True)
    (root / "meta").mkdir(parents=True)
    is_21 = made.version == "v2.1"
    info = {
        "codebase_version": made.version, "robot_type": "made", "total_episodes": len(made.lengths),
        "total_frames": sum(made.lengths), "total_tasks": len(TASKS), "chunks_size": 1000, "fps": made.fps,
        "splits": {"train": f"0:{len(made.lengths)}"}, "features": _features(made),
        "data_path": "data/chunk-{episode_chunk:03d}/episode_{episode_index:06d}.parquet" if is_21
        else "data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet",
        "video_path": "videos/chunk-{episode_chunk:03d}/{video_key}/episode_{episode_index:06d}.mp4" if is_21
        else "videos/{video_key}/chunk-{chunk_index:03d}/file-{file_index:03d}.mp4",
    }  # fmt: skip
    if is_21:
        info |= {"total_chunks": 1, "total_videos": len(made.lengths) * len(made.sizes)}
    (root / "meta" / "info.json").write_text(json.dumps(info, indent=4))
    (_write_21 if is_21 else _write_30)(root, made)
    return root


def _tasks() -> list[dict[str, Any]]:
    return [{"task_index": number, "task": text} for number, text in enumerate(TASKS)]


def _lines(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def _frames(made: Made, camera: str, episode: int) -> tuple[list[npt.NDArray[np.uint8]], list[float]]:
    times = [*made.shown.get((camera, episode), made.seconds(episode))]
    return [frame(camera, episode, row, made.sizes[camera]) for row in range(len(times))], times


def _write_21(root: Path, made: Made) -> None:
    meta, first = root / "meta", 0
    numbers = range(len(made.lengths))
    _lines(meta / "tasks.jsonl", _tasks())
    _lines(meta / "episodes.jsonl", [
        {"episode_index": e, "tasks": [TASKS[e % len(TASKS)]], "length": made.lengths[e]} for e in numbers
    ])  # fmt: skip
    _lines(meta / "episodes_stats.jsonl", [{"episode_index": e, "stats": {}} for e in numbers])
    for e in numbers:
        path = root / "data" / "chunk-000" / f"episode_{e:06d}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        parquet.write_table(pa.table(_columns(made, [e], first)), path)
        first += made.lengths[e]
        for camera in made.sizes:
            where = root / "videos" / "chunk-000" / camera / f"episode_{e:06d}.mp4"
            write_video(where, *_frames(made, camera, e), made)


def _write_30(root: Path, made: Made) -> None:
    meta, first, numbers = root / "meta", 0, range(len(made.lengths))
    (meta / "stats.json").write_text(json.dumps({"action": {"mean": [0.0, 1.0, 2.0]}}))
    tasks = pd.DataFrame({"task_index": [*range(len(TASKS))]}, index=[*TASKS])  # the index says the words
    tasks.to_parquet(meta / "tasks.parquet")
    rows: list[dict[str, Any]] = []
    for file, begin in enumerate(range(0, len(made.lengths), made.per_file)):
        held = [*numbers[begin : begin + made.per_file]]
        path = root / "data" / "chunk-000" / f"file-{file:03d}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        parquet.write_table(pa.table(_columns(made, held, first)), path, row_group_size=6)
        for e in held:
            rows.append({
                "episode_index": e, "tasks": [TASKS[e % len(TASKS)]], "length": made.lengths[e],
                "data/chunk_index": 0, "data/file_index": file,
                "dataset_from_index": first, "dataset_to_index": first + made.lengths[e],
            })  # fmt: skip
            first += made.lengths[e]
        for camera in made.sizes:
            frames: list[npt.NDArray[np.uint8]] = []
            times: list[float] = []
            start = 0.0
            for e in held:
                own, seconds = _frames(made, camera, e)
                end = start + max(seconds[-1], made.seconds(e)[-1]) + 1 / made.fps
                row = next(row for row in rows if row["episode_index"] == e)
                row |= {
                    f"videos/{camera}/chunk_index": 0, f"videos/{camera}/file_index": file,
                    f"videos/{camera}/from_timestamp": start,
                    f"videos/{camera}/to_timestamp": end,
                }  # fmt: skip
                frames += own
                times += [start + at for at in seconds]
                start = end
            where = root / "videos" / camera / "chunk-000" / f"file-{file:03d}.mp4"
            write_video(where, frames, times, made)
    path = meta / "episodes" / "chunk-000" / "file-000.parquet"
    path.parent.mkdir(parents=True)
    parquet.write_table(pa.Table.from_pylist(rows), path)


# ---- The slow reference -----------------------------------------------------------------------------


@dataclass(frozen=True)
class RowOf:
    """A row of a set: its key, values by column, and the cameras' pictures as PyAV decodes them; None: no
    frame has its time, or several have."""

    key: str
    values: Mapping[str, Any]
    pictures: Mapping[str, npt.NDArray[np.uint8] | None]


def rows_of(root: Path, made: Made) -> list[RowOf]:
    """All rows, by decoding every video whole and looking for each time stamp."""
    rows: list[RowOf] = []
    tables = [parquet.read_table(path).to_pylist() for path in sorted((root / "data").glob("*/*.parquet"))]
    begins = _begins(root, made)
    videos: dict[Path, list[tuple[float, npt.NDArray[np.uint8]]]] = {}
    for values in (row for table in tables for row in table):
        episode, pictures = values["episode_index"], {}
        for camera in made.sizes:
            path, begin = begins[camera, episode]
            if path not in videos:
                with av.open(str(path)) as container:
                    videos[path] = [
                        (float(one.pts * one.time_base), one.to_ndarray(format="rgb24"))
                        for one in container.decode(video=0)
                    ]
            at = begin + values["timestamp"]
            found = [pixels for seconds, pixels in videos[path] if abs(seconds - at) <= 1e-4]
            pictures[camera] = found[0] if len(found) == 1 else None
        values["task"] = TASKS[values["task_index"]]
        rows.append(RowOf(f"episode_{episode:06d}/{values['frame_index']:06d}", values, pictures))
    return rows


def _begins(root: Path, made: Made) -> dict[tuple[str, int], tuple[Path, float]]:
    if made.version == "v2.1":
        return {
            (camera, e): (root / "videos" / "chunk-000" / camera / f"episode_{e:06d}.mp4", 0.0)
            for camera in made.sizes
            for e in range(len(made.lengths))
        }
    listed = parquet.read_table(root / "meta" / "episodes" / "chunk-000" / "file-000.parquet").to_pylist()
    return {
        (camera, row["episode_index"]): (
            root / "videos" / camera / "chunk-000" / f"file-{row[f'videos/{camera}/file_index']:03d}.mp4",
            row[f"videos/{camera}/from_timestamp"],
        )
        for camera in made.sizes
        for row in listed
    }


def packed(root: Path, output: Path, **options: Any) -> PackedDataset:
    """The set, packed."""
    fastload.pack(root, output, **options)
    return PackedDataset(output)


def changed(tmp_path: Path, **made: Any) -> Path:
    """A small set with one camera."""
    sizes = {TOP: SIZES[TOP]}
    return make_set(tmp_path / "set", Made(**{"sizes": sizes, "lengths": (4, 6), **made}))
