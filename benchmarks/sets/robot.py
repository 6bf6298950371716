"""A LeRobot set (version 3.0) of photographs that move as a robot's cameras would see them.

The first camera stands still over a photograph, and another one moves through its picture; the second camera
moves over them. Both have a sensor's noise. Videos are encoded as LeRobot 0.4.4 does by default: AV1, a key
frame every second frame, crf 30.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import av
import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as parquet
from PIL import Image, ImageOps

__all__ = ["CAMERAS", "FPS", "HEIGHT", "WIDTH", "make_robot_set"]

CAMERAS = ("observation.images.top", "observation.images.wrist")
FPS, WIDTH, HEIGHT, JOINTS = 30, 640, 480, 14
CODEC = {"codec": "libsvtav1", "g": "2", "crf": "30", "preset": "12"}
_SCENE = (1040, 800)
_THING = (200, 150)
_NOISE = 2.0  # of the sensor, in 1/255

Pixels = npt.NDArray[np.uint8]


def make_robot_set(folder: Path, photos: Sequence[Path], episodes: int, length: int) -> Path:
    """Write ``episodes`` of ``length`` rows each into a new folder; return it."""
    rows = [_episode(folder, photos, number, length) for number in range(episodes)]
    columns = {
        name: pa.concat_tables([pa.table({name: one[name]}) for one, _ in rows])[name] for name in rows[0][0]
    }
    columns["index"] = pa.array(np.arange(episodes * length))
    _write(folder / "data" / "chunk-000" / "file-000.parquet", pa.table(columns))
    meta = folder / "meta"
    _write(meta / "episodes" / "chunk-000" / "file-000.parquet", pa.Table.from_pylist([of for _, of in rows]))
    tasks = pd.DataFrame({"task_index": [0]}, index=["put it into the box"])
    tasks.to_parquet(meta / "tasks.parquet")
    (meta / "stats.json").write_text("{}")
    (meta / "info.json").write_text(json.dumps(_info(episodes, length), indent=4))
    return folder


def _write(path: Path, table: pa.Table) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    parquet.write_table(table, path)


def _info(episodes: int, length: int) -> dict[str, Any]:
    joints = {"dtype": "float32", "shape": [JOINTS], "names": None}
    picture = {
        "dtype": "video", "shape": [HEIGHT, WIDTH, 3], "names": ["height", "width", "channels"],
        "info": {"video.fps": FPS, "video.codec": "av1", "video.pix_fmt": "yuv420p",
                 "video.is_depth_map": False},
    }  # fmt: skip
    whole = {"dtype": "int64", "shape": [1], "names": None}
    features = {
        **dict.fromkeys(CAMERAS, picture), "observation.state": joints, "action": joints,
        "timestamp": {"dtype": "float32", "shape": [1], "names": None},
        **dict.fromkeys(("frame_index", "episode_index", "index", "task_index"), whole),
    }  # fmt: skip
    return {
        "codebase_version": "v3.0", "robot_type": "made", "fps": FPS, "features": features,
        "total_episodes": episodes, "total_frames": episodes * length, "total_tasks": 1, "chunks_size": 1000,
        "data_files_size_in_mb": 100, "video_files_size_in_mb": 200, "splits": {"train": f"0:{episodes}"},
        "data_path": "data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet",
        "video_path": "videos/{video_key}/chunk-{chunk_index:03d}/file-{file_index:03d}.mp4",
    }  # fmt: skip


def _episode(
    folder: Path, photos: Sequence[Path], number: int, length: int
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Write an episode's videos; return its columns and its row of the table of episodes."""
    random = np.random.default_rng(number)
    steps = np.cumsum(random.normal(0, 0.05, (length, JOINTS)), 0).astype(np.float32)
    values = pa.FixedSizeListArray.from_arrays(steps.ravel(), JOINTS)
    numbers = np.arange(length)
    columns = {
        "observation.state": values, "action": values,
        "timestamp": pa.array((numbers / FPS).astype(np.float32)), "frame_index": pa.array(numbers),
        "episode_index": pa.array(np.full(length, number)),
        "task_index": pa.array(np.zeros(length, np.int64)),
    }  # fmt: skip
    row = {
        "episode_index": number, "tasks": ["put it into the box"], "length": length, "data/chunk_index": 0,
        "data/file_index": 0, "dataset_from_index": number * length,
        "dataset_to_index": (number + 1) * length,
    }  # fmt: skip
    scene, thing = _scene(photos, random)
    for camera in CAMERAS:
        row |= {
            f"videos/{camera}/chunk_index": 0, f"videos/{camera}/file_index": number,
            f"videos/{camera}/from_timestamp": 0.0, f"videos/{camera}/to_timestamp": length / FPS,
        }  # fmt: skip
        path = folder / "videos" / camera / "chunk-000" / f"file-{number:03d}.mp4"
        frames = _top(scene, thing, length) if camera == CAMERAS[0] else _wrist(scene, length)
        _encode(path, _noisy(frames, random))
    return columns, row


def _scene(photos: Sequence[Path], random: np.random.Generator) -> tuple[Pixels, Pixels]:
    def part(size: tuple[int, int]) -> Pixels:
        with Image.open(photos[int(random.integers(len(photos)))]) as photo:
            return np.asarray(ImageOps.fit(photo.convert("RGB"), size, Image.Resampling.BICUBIC))

    return part(_SCENE), part(_THING)


def _top(scene: Pixels, thing: Pixels, length: int) -> Iterator[Pixels]:
    y, x = (scene.shape[0] - HEIGHT) // 2, (scene.shape[1] - WIDTH) // 2
    high, wide = thing.shape[:2]
    for t in np.arange(length) / FPS:
        frame = scene[y : y + HEIGHT, x : x + WIDTH].copy()
        top = round((HEIGHT - high) * (0.5 + 0.5 * np.sin(1.1 * t)))
        left = round((WIDTH - wide) * (0.5 + 0.5 * np.cos(0.7 * t)))
        frame[top : top + high, left : left + wide] = thing
        yield frame


def _wrist(scene: Pixels, length: int) -> Iterator[Pixels]:
    high, wide = scene.shape[0] - HEIGHT, scene.shape[1] - WIDTH
    for t in np.arange(length) / FPS:
        top, left = round(high * (0.5 + 0.5 * np.sin(0.6 * t))), round(wide * (0.5 + 0.5 * np.cos(0.4 * t)))
        yield scene[top : top + HEIGHT, left : left + WIDTH]


def _noisy(frames: Iterator[Pixels], random: np.random.Generator) -> Iterator[Pixels]:
    noise = random.normal(0, _NOISE, (HEIGHT, WIDTH, 3)).astype(np.float32)
    for frame in frames:
        moved = np.roll(noise, tuple(random.integers(0, HEIGHT, 2)), (0, 1))
        yield np.clip(frame + moved + 0.5, 0, 255).astype(np.uint8)


def _encode(path: Path, frames: Iterator[Pixels]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    codec, options = CODEC["codec"], {name: value for name, value in CODEC.items() if name != "codec"}
    with av.open(str(path), "w") as out:
        stream: Any = out.add_stream(codec, FPS, options=options)
        stream.width, stream.height, stream.pix_fmt = WIDTH, HEIGHT, "yuv420p"
        for frame in frames:
            out.mux(stream.encode(av.VideoFrame.from_ndarray(frame, format="rgb24")))
        out.mux(stream.encode(None))
