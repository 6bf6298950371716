"""What a LeRobot set of version 2.1 or 3.0 says of itself: its features, episodes, tasks and files."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fastload.errors import PackError
from fastload.machine.paths import exists, is_file
from fastload.machine.sizes import counted
from fastload.packing.files import walk

META = "meta"
INFO = f"{META}/info.json"
#: What ``codebase_version`` may be, and the version's own name.
VERSIONS = {"v2.1": "2.1", "v3.0": "3.0"}
#: Columns whose numbers stand for texts: the texts' field, and the files of ``meta/`` that have them.
_TEXTS = {
    "task_index": ("task", {"2.1": "tasks.jsonl", "3.0": "tasks.parquet"}),
    "subtask_index": ("subtask", {"2.1": "subtasks.parquet", "3.0": "subtasks.parquet"}),
}
_AT_ONCE = 1 << 20  # bytes hashed at a time
_SHOWN = 3  # episodes named in a message


@dataclass(frozen=True)
class CameraFiles:
    """The video files of a camera, and where in them each episode is.

    Args:
        paths: the files, below the set's folder.
        files: (episodes,) each episode's place in ``paths``.
        begins: (episodes,) the time in the file at which it begins, in seconds.
        ends: (episodes,) that at which it ends; NaN: ``meta/`` does not say.
    """

    paths: tuple[str, ...]
    files: npt.NDArray[np.int64]
    begins: npt.NDArray[np.float64]
    ends: npt.NDArray[np.float64]


@dataclass(frozen=True)
class Texts:
    """The texts that a column's numbers stand for.

    Args:
        column: the column.
        field: the field that they become.
        path: the file that has them.
        known: they, by number; None: the file is not there.
    """

    column: str
    field: str
    path: Path
    known: Mapping[int, str] | None

    def of(self, number: Any) -> str:
        """Return the text of a number.

        Raises:
            ValueError: there is none.
        """
        known = self.known or {}
        if not isinstance(number, int) or number not in known:
            listed = f"{min(known)} to {max(known)}" if known else "none"
            raise ValueError(
                f"{self.column} is {number}, and the numbers that {self.path} has texts for are {listed}. "
                f"Complete that file, or leave the texts out: --field {self.field}=none"
            )
        return known[number]


@dataclass(frozen=True)
class Layout:
    """A LeRobot set on this machine.

    Args:
        root: its folder.
        version: "2.1" or "3.0".
        fps: rows a second, as ``info.json`` says.
        features: its features, by name.
        numbers: (episodes,) ``episode_index``, in the order of their rows.
        lengths: (episodes,) rows.
        data: the Parquet files, below the folder, in the order of their rows.
        data_of: (episodes,) each episode's place in ``data``.
        cameras: features that are videos.
        texts: by column of numbers what those stand for.
    """

    root: Path
    version: str
    fps: float
    features: Mapping[str, Mapping[str, Any]]
    numbers: npt.NDArray[np.int64]
    lengths: npt.NDArray[np.int64]
    data: tuple[str, ...]
    data_of: npt.NDArray[np.int64]
    cameras: Mapping[str, CameraFiles]
    texts: Mapping[str, Texts]

    def check_rows(self, counts: Sequence[int]) -> None:
        """Compare the rows of the Parquet files with what ``meta/`` says.

        Args:
            counts: rows of each of ``data``.

        Raises:
            PackError: they differ.
        """
        expected = np.bincount(self.data_of, self.lengths, len(self.data)).astype(np.int64)
        for name, file, count, wanted in zip(self.data, range(len(counts)), counts, expected, strict=True):
            if count != wanted:
                episodes = self.numbers[self.data_of == file]
                raise PackError(
                    f"{self.root / name} has {counted(count, 'row')}, and {META}/ says that "
                    f"{episodes_named(episodes)} in it {'has' if len(episodes) == 1 else 'have'} {wanted}. "
                    "One of them is of another state of the set: download both again."
                )

    def check_videos(self, camera: str, times: npt.NDArray[np.float64]) -> None:
        """Find episodes that lie over each other in a video file, or whose part of it is too short.

        Frames of another episode would be taken for their own. Writers round, so a frame is allowed. A part
        that is too long is no matter.

        Args:
            camera: the feature.
            times: (episodes,) the last row's time in the episode, in seconds.

        Raises:
            PackError: there are some.
        """
        found, frame = self.cameras[camera], 1 / self.fps + 1e-6
        short = np.flatnonzero(found.ends - found.begins < times + 1 / self.fps - frame)
        where = f"{self.root / META}: of {camera!r}"
        for at in short[:1].tolist():
            raise PackError(
                f"{where}, episode {self.numbers[at]} is from {found.begins[at]:.6f} to {found.ends[at]:.6f} "
                f"s in {found.paths[found.files[at]]}, and its last row's time stamp is {times[at]:.6f} s. "
                "to_timestamp and from_timestamp must be as far apart as its rows, to one frame."
            )
        ends = np.fmax(found.ends, found.begins + times + 1 / self.fps)
        order = np.lexsort((found.begins, found.files))
        first, second = order[:-1], order[1:]
        over = (found.files[first] == found.files[second]) & (found.begins[second] < ends[first] - frame)
        for one, two in list(zip(first[over].tolist(), second[over].tolist(), strict=True))[:1]:
            raise PackError(
                f"{where}, episode {self.numbers[one]} is from {found.begins[one]:.6f} to {ends[one]:.6f} s "
                f"in {found.paths[found.files[one]]}, and episode {self.numbers[two]} begins there at "
                f"{found.begins[two]:.6f} s, before that ends: from_timestamp of one of them is wrong."
            )

    def missing_videos(self, cameras: Iterable[str]) -> str:
        """Return which video files are not there, in words; "": none."""
        lost = [
            (camera, path, self.numbers[self.cameras[camera].files == number])
            for camera in cameras
            for number, path in enumerate(self.cameras[camera].paths)
            if not is_file(self.root / path)
        ]
        if not lost:
            return ""
        camera, path, episodes = lost[0]
        more = f" {counted(len(lost) - 1, 'other video')} of the set as well." if len(lost) > 1 else ""
        return f"{self.root / path} is not there. It has {camera!r} of {episodes_named(episodes)}.{more}"

    def digest(self) -> str:
        """Return what tells the set from others: the contents of ``meta/``, names and sizes of the rest."""
        hashed = hashlib.blake2b(digest_size=16)
        for name in files_below(self.root / META):
            hashed.update(name.encode() + b"\0")
            with open(self.root / META / name, "rb") as file:
                while part := file.read(_AT_ONCE):
                    hashed.update(part)
        for name in self.files():
            hashed.update(repr((name, self.status(name)[0])).encode())
        return hashed.hexdigest()

    def files(self) -> Iterator[str]:
        """Yield the data files and the videos."""
        yield from self.data
        for camera in self.cameras.values():
            yield from camera.paths

    def status(self, name: str) -> tuple[int, int]:
        """Return the size of a file and when it was modified; zeros if it is not there."""
        try:
            found = os.stat(self.root / name)
        except (FileNotFoundError, NotADirectoryError):
            return 0, 0
        return found.st_size, found.st_mtime_ns


def episodes_named(numbers: Iterable[int]) -> str:
    """Return episodes in words: ``episodes 0, 1, 2 and 7 more``."""
    known = list(numbers)
    shown, more = ", ".join(map(str, known[:_SHOWN])), len(known) - _SHOWN
    return f"episode{'s' * (len(known) != 1)} {shown}" + (f" and {more} more" if more > 0 else "")


def files_below(folder: Path) -> list[str]:
    """Return all files below a folder, by their paths below it, in order."""
    found = ((Path(parent), name) for parent, _, names in walk(str(folder)) for name in names)
    return sorted((parent / name).relative_to(folder).as_posix() for parent, name in found)


def info_of(place: Path) -> dict[str, Any] | None:
    """Return ``meta/info.json`` of a folder; None: it is no LeRobot set's.

    Raises:
        PackError: it cannot be read.
    """
    if not is_file(place / INFO):
        return None
    try:
        info = json.loads((place / INFO).read_text(encoding="utf-8"))
    except ValueError as error:
        raise PackError(f"{place / INFO} is no JSON: {error}.") from None
    return info if isinstance(info, dict) and "codebase_version" in info else None


def layout_of(place: Path, info: Mapping[str, Any]) -> Layout:
    """Read what a set says of itself.

    Args:
        place: its folder.
        info: what :func:`info_of` returned.

    Raises:
        PackError: another version, or something is missing, damaged or contradicts itself.
    """
    version = VERSIONS.get(str(info["codebase_version"]))
    if version is None:
        raise PackError(
            f"{place / INFO} says version {info['codebase_version']!r} of LeRobot's layout, must be "
            f"{' or '.join(VERSIONS)}. LeRobot's own converters make one of them."
        )
    fps, chunk = info.get("fps"), info.get("chunks_size") or 1000
    if not isinstance(fps, (int, float)) or not 0 < fps < float("inf"):
        raise PackError(f"{place / INFO}: fps is {fps!r}, must be a number above 0, the rows a second.")
    if not isinstance(chunk, int) or chunk < 1:
        raise PackError(f"{place / INFO}: chunks_size is {chunk!r}, must be an integer of 1 or more.")
    try:
        features = {str(name): dict(feature) for name, feature in info["features"].items()}
        cameras = [name for name, feature in features.items() if feature["dtype"] == "video"]
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise PackError(f"{place / INFO} cannot be used ({type(error).__name__}: {error}).") from None
    rows = list(_episodes_21(place, chunk) if version == "2.1" else _episodes_30(place, cameras))
    if not rows:
        raise PackError(f"{place} has no episodes: {META}/ lists none.")
    _check_totals(place, info, rows)
    data_path, video_path = info.get("data_path"), info.get("video_path")
    for name, path in ("data_path", data_path), *([("video_path", video_path)] if cameras else []):
        if not isinstance(path, str):
            raise PackError(f"{place / INFO}: {name} is {path!r}, must be a text that names the files.")
    assert isinstance(data_path, str)
    try:
        named = [(_inside(place, data_path.format(**row["data"])), row) for row in rows]
        # The rows' order is that of the files, as LeRobot reads them, and in one file that of the episodes.
        named.sort(key=lambda pair: (pair[0], pair[1]["begin"]))
        rows = [row for _, row in named]
        data, data_of = _numbered([name for name, _ in named])
        found = {
            camera: _camera_files(place, str(video_path), camera, [row["videos"][camera] for row in rows])
            for camera in cameras
        }
    except (KeyError, IndexError, ValueError, TypeError, AttributeError) as error:
        raise PackError(
            f"{place / INFO}: data_path or video_path cannot be used ({type(error).__name__}: {error})."
        ) from None
    numbers, lengths = (np.array([row[name] for row in rows], np.int64) for name in ("number", "length"))
    texts = {
        column: _texts(column, field, place / META / files[version])
        for column, (field, files) in _TEXTS.items()
        if column in features
    }
    return Layout(place, version, float(fps), features, numbers, lengths, data, data_of, found, texts)


def with_size(
    feature: Mapping[str, Any], size_of: Callable[[tuple[int, int]], tuple[int, int]]
) -> dict[str, Any]:
    """Return a feature of pictures with another size in its shape.

    Args:
        feature: as ``info.json`` has it; without a shape of three sides it stays as it is.
        size_of: the new (width, height) of one.
    """
    places = sides_in(feature)
    if places is None:
        return dict(feature)
    (height, width, _), sides = places, [*feature["shape"]]
    sides[width], sides[height] = size_of((sides[width], sides[height]))
    return {**feature, "shape": sides}


def sides_in(feature: Mapping[str, Any]) -> tuple[int, int, int] | None:
    """Return where height, width and channels are in the shape of a feature of pictures, by the initials of
    its ``names``, else by which side can be channels; None: it has no shape of three sides."""
    shape, names = feature.get("shape"), feature.get("names")
    if not isinstance(shape, list) or len(shape) != 3 or not all(isinstance(side, int) for side in shape):
        return None
    initials = "".join(str(name)[:1].lower() for name in names) if isinstance(names, list) else ""
    if sorted(initials) == ["c", "h", "w"]:
        return initials.index("h"), initials.index("w"), initials.index("c")
    return (1, 2, 0) if shape[0] in (1, 3) and shape[2] not in (1, 3) else (0, 1, 2)


def _check_totals(place: Path, info: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> None:
    """Raise PackError if ``info.json`` counts other episodes or rows than are listed, or one twice."""
    numbers = [row["number"] for row in rows]
    if len(set(numbers)) != len(numbers):
        twice = next(number for number in numbers if numbers.count(number) > 1)
        raise PackError(f"{place / META} lists episode {twice} twice.")
    wrong = next((row for row in rows if row["length"] < 1), None)
    if wrong is not None:
        raise PackError(f"{place / META} says that episode {wrong['number']} has {wrong['length']} rows.")
    for name, found in ("total_episodes", len(rows)), ("total_frames", sum(row["length"] for row in rows)):
        if info.get(name, found) != found:
            raise PackError(
                f"{place / INFO} says {name} {info[name]}, and the episodes that {META}/ lists make {found}. "
                "One of them is of another state of the set: download both again."
            )


def _episodes_21(place: Path, chunk: int) -> Iterator[dict[str, Any]]:
    """Yield number and length of each episode, and what its files' names are made of."""
    for line in _lines(place / META / "episodes.jsonl"):
        where, row = place / META / "episodes.jsonl", line if isinstance(line, dict) else {}
        number = _whole(row.get("episode_index"), "episode_index", where)
        length = _whole(row.get("length"), "length", f"{where}, episode {number}")
        names = {"episode_chunk": number // chunk, "episode_index": number}
        yield {
            "number": number,
            "length": length,
            "begin": number,
            "data": names,
            "videos": _Same((names, 0.0, float("nan"))),
        }


class _Same(dict[str, Any]):
    """A dict that has the same for every key."""

    def __init__(self, value: Any) -> None:
        super().__init__()
        self._value = value

    def __missing__(self, key: str) -> Any:
        return self._value


def _episodes_30(place: Path, cameras: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Yield the same for version 3.0, whose files hold many episodes."""
    folder = place / META / "episodes"
    if not exists(folder):
        raise PackError(f"{folder} is not there: it lists the episodes of a set of version 3.0.")
    files = [name for name in files_below(folder) if name.endswith(".parquet")]
    wanted = ["episode_index", "length", "data/chunk_index", "data/file_index"]
    parts = ("chunk_index", "file_index", "from_timestamp")
    wanted += [f"videos/{camera}/{part}" for camera in cameras for part in parts]
    ends = [f"videos/{camera}/to_timestamp" for camera in cameras]
    for name in files:
        for row in _table(folder / name, wanted, ["dataset_from_index", *ends]):
            number = _whole(row["episode_index"], "episode_index", folder / name)
            where = f"{folder / name}, episode {number}"
            videos = {
                camera: (
                    {part: row[f"videos/{camera}/{part}"] for part in parts[:2]},
                    _seconds(row[f"videos/{camera}/from_timestamp"], f"{parts[2]} of {camera!r}", where),
                    _seconds(row[end], f"to_timestamp of {camera!r}", where) if end in row else float("nan"),
                )
                for camera, end in zip(cameras, ends, strict=True)
            }
            yield {
                "number": number,
                "length": _whole(row["length"], "length", where),
                "begin": row.get("dataset_from_index", number),
                "data": {"chunk_index": row["data/chunk_index"], "file_index": row["data/file_index"]},
                "videos": videos,
            }


def _whole(value: Any, name: str, where: Any) -> int:
    """Return a count or number of ``meta/``.

    Raises:
        PackError: it is none.
    """
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise PackError(f"{where}: {name} is {value!r}, must be an integer of 0 or more.")
    return value


def _seconds(value: Any, name: str, where: str) -> float:
    """Return a time of ``meta/``.

    Raises:
        PackError: it is none.
    """
    if not isinstance(value, (int, float)) or not 0 <= value < float("inf"):
        raise PackError(f"{where}: {name} is {value!r}, must be seconds, 0 or more.")
    return float(value)


def _table(path: Path, wanted: Sequence[str], optional: Sequence[str] = ()) -> list[dict[str, Any]]:
    """Return columns of a Parquet file of ``meta/``, row by row.

    Raises:
        PackError: it cannot be read, or lacks a column or a value.
    """
    import pyarrow as pa
    from pyarrow import parquet

    names = _columns_of(path)
    try:
        missing = [name for name in wanted if name not in names]
        if missing:
            raise PackError(f"{path} has no column {missing[0]!r}; its columns: {', '.join(names)}.")
        taken = [*wanted, *(name for name in optional if name in names)]
        table = parquet.ParquetFile(path).read(taken, use_pandas_metadata=False)
    except (pa.ArrowException, OSError) as error:
        raise PackError(f"{path} cannot be read ({error}).") from None
    empty = next((name for name in taken if table.column(name).null_count), None)
    if empty is not None:
        raise PackError(f"{path}: the column {empty!r} has rows without a value.")
    rows: list[dict[str, Any]] = table.to_pylist()
    return rows


def _columns_of(path: Path) -> list[str]:
    """Return the names of a Parquet file's columns.

    Raises:
        PackError: it cannot be read.
    """
    import pyarrow as pa
    from pyarrow import parquet

    try:
        names: list[str] = parquet.read_schema(path).names
    except (pa.ArrowException, OSError) as error:
        raise PackError(f"{path} cannot be read ({error}). Download it again.") from None
    return names


def _camera_files(
    place: Path, video_path: str, camera: str, rows: Sequence[tuple[Mapping[str, Any], float, float]]
) -> CameraFiles:
    names = [_inside(place, video_path.format(**parts, video_key=camera)) for parts, *_ in rows]
    paths, files = _numbered(names)
    begins, ends = (np.array([row[at] for row in rows], np.float64) for at in (1, 2))
    return CameraFiles(paths, files, begins, ends)


def _numbered(names: Sequence[str]) -> tuple[tuple[str, ...], npt.NDArray[np.int64]]:
    """Return the names that differ, in order, and the place of each name among them."""
    known = {name: number for number, name in enumerate(dict.fromkeys(names))}
    return tuple(known), np.array([known[name] for name in names], np.int64)


def _inside(place: Path, name: str) -> str:
    """Return the path of a file below the set's folder.

    Raises:
        PackError: it leads out of the folder.
    """
    if os.path.isabs(name) or ".." in Path(name).parts:
        raise PackError(f"{place / INFO} names the file {name!r}, which leads out of the set's folder.")
    return name


def _lines(path: Path) -> Iterator[Any]:
    """Yield the values of a JSONL file.

    Raises:
        PackError: it cannot be read.
    """
    try:
        with open(path, encoding="utf-8") as file:
            for number, line in enumerate(file, 1):
                if line.strip():
                    try:
                        yield json.loads(line)
                    except ValueError as error:
                        raise PackError(f"{path}, line {number}: {error}.") from None
    except OSError as error:
        raise PackError(f"{path} cannot be read: {error.strerror}.") from None


def _texts(column: str, field: str, path: Path) -> Texts:
    """Return the texts of a column's numbers.

    Raises:
        PackError: the file that has them cannot be used.
    """
    if not is_file(path):
        return Texts(column, field, path, None)
    rows: list[tuple[Any, Any]]
    if path.suffix == ".jsonl":
        lines = [line if isinstance(line, dict) else {} for line in _lines(path)]
        rows = [(line.get(column), line.get(field)) for line in lines]
    else:
        # pandas keeps its index, here the texts, as a column of that name.
        index = field if field in _columns_of(path) else "__index_level_0__"
        rows = [(row[column], row[index]) for row in _table(path, [column, index])]
    wrong = next((row for row in rows if [*map(type, row)] != [int, str]), None)
    if wrong is not None:
        raise PackError(
            f"{path} must have {column}, an integer, and {field}, a text, in each row. Found: {wrong}."
        )
    return Texts(column, field, path, dict(rows))
