"""LeRobot sets as rows: the columns of their Parquet files, and a picture of each camera at each row."""

from __future__ import annotations

import functools
import itertools
import json
import os
from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from fastload.errors import LibraryMissing, PackError
from fastload.machine.paths import exists, is_file
from fastload.machine.sizes import counted, human_bytes
from fastload.packing.annotations.find import schema_asked
from fastload.packing.files import raise_if_transient
from fastload.packing.lerobot_layout import (
    INFO,
    META,
    Layout,
    files_below,
    info_of,
    layout_of,
    sides_in,
    with_size,
)
from fastload.packing.listing import Listing, Row, Totals
from fastload.packing.options import PackOptions
from fastload.packing.pictures import picture_of
from fastload.packing.publish import KEPT_RUNS
from fastload.packing.recoding import frame_picture, scaled_size, threads_for
from fastload.packing.rows import CARRIED, FRAMES, Batch, Carried, FailedSample, Notes, Rows, StoredSample
from fastload.packing.sample_rows import SampleRows
from fastload.packing.stored import Source, StorePlace, TableFile
from fastload.packing.table_columns import value_of
from fastload.packing.videos import TOLERANCE, Decoder, Frame, Video, VideoError, chosen_decoder, sampling_of
from fastload.sample.fields import Array, Bytes, Image, Json, Kind, Text
from fastload.sample.schema import Field, Schema

if TYPE_CHECKING:
    from fastload.packing.arrow_rows import ArrowRows

#: The order of the rows, as ``--runs`` says it: episodes, rows in them, and seconds.
RUNS = "episode_index:frame_index:timestamp"
ORIGINAL = "info.source.json"  # what ``meta/info.json`` is called if only some rows were packed
_EPISODE, _FRAME, _TIME = "episode_index", "frame_index", "timestamp"
_LOOKED_AT = 32  # rows whose pictures tell how many bytes all take
_GUESSED = 10  # pixels' bytes to a picture's, where not one of those rows can be decoded

# ---- Opening ----------------------------------------------------------------------------------------


def open_lerobot(source: Source, options: PackOptions) -> Sequence[tuple[str, Rows]]:
    """Return the rows of a LeRobot set; nothing for anything else.

    Raises:
        PackError: the set is damaged, of another version or in a store, or options do not fit it.
        LibraryMissing: it has videos, and no decoder is installed.
    """
    if options.layout not in (None, "lerobot"):
        return []
    if isinstance(source, StorePlace):
        _refuse_store(source, options)
        return []
    place = Path(source).absolute()
    info = info_of(place)
    if info is None:
        if options.layout == "lerobot":
            what = f"has no {INFO} with a codebase_version, as a LeRobot set has"
            raise PackError(f"{place} {what if exists(place) else 'does not exist'}.")
        return []
    if options.layout is None and (options.says_what or options.root is not None):
        return []
    layout = layout_of(place, info)
    step = _step(layout.fps, options.fps)
    reader = _reader(layout)
    layout.check_rows(reader.counts())
    left_out = {name for name, kind in options.fields if kind.strip() == "none"}
    schema = schema_asked(_schema(layout, reader, left_out), options)
    _refuse_depth(layout, schema)
    _check_rows(layout, reader, schema, options)
    decoder = chosen_decoder() if any(name in layout.cameras for name in schema.names) else None
    return [("", LeRobotRows(layout, reader, schema, step, decoder, options))]


def _refuse_store(place: StorePlace, options: PackOptions) -> None:
    """Raise PackError for a set in a store, whose videos cannot be decoded there."""
    lists = place.location.scheme not in ("http", "https")  # a web server does not list what it has
    is_one = options.layout == "lerobot"
    if not is_one and options.layout is None and place.kind == "folder" and lists:
        names = {name for name, _ in place.names}
        is_one = INFO in names and any(name.startswith(f"{META}/episodes") for name in names)
    if is_one:
        raise PackError(
            f"{place} is a LeRobot set in a store. Videos are decoded from files: copy the set to this "
            "machine (hf download, aws s3 sync), and pack the copy. The output may be in a store."
        )


def _step(fps: float, wanted: float | None) -> int:
    """Return which rows are packed: 1 for all, k for every k-th of an episode.

    Raises:
        PackError: the wanted rate does not divide the set's.
    """
    if wanted is None:
        return 1
    step = round(fps / wanted)
    if step < 1 or abs(step * wanted - fps) > 1e-6 * fps:
        legal = ", ".join(f"{fps / k:g}" for k in range(1, int(fps) + 1) if (fps / k).is_integer())
        raise PackError(
            f"fps is {wanted:g}, and the set has {fps:g} rows a second, of which every k-th is packed: fps "
            f"must be {fps:g} divided by a whole number" + (f", as {legal}." if legal else ".")
        )
    return step


def _reader(layout: Layout) -> ArrowRows:
    """Open the Parquet files."""
    from fastload.packing.arrow_rows import ArrowRows

    files = []
    for name in layout.data:
        path = layout.root / name
        if not is_file(path):
            number = layout.numbers[layout.data_of == layout.data.index(name)][0]
            unpacked = (
                ""
                if exists(layout.root / "data")
                else (
                    " If 'fastload unpack' wrote this folder, pack the samples.jsonl in it, as that has said."
                )
            )
            raise PackError(
                f"{path} is not there. {META}/ says that it has the rows of episode {number}.{unpacked}"
            )
        size, mtime_ns = layout.status(name)
        files.append(TableFile(str(path), size, str(path), mtime_ns=mtime_ns))
    return ArrowRows(files, str(layout.root), os.fsencode(layout.root))


def _schema(layout: Layout, reader: ArrowRows, left_out: Set[str]) -> Schema:
    """Return the fields: the features in their order, other columns, and texts beside their numbers.

    Args:
        layout: the set.
        reader: its Parquet files.
        left_out: columns that the user leaves out, whose types are no matter.

    Raises:
        PackError: a feature has no column, or a column's type fits no field.
    """
    columns, types, pictures = reader.names(), reader.types(left_out), set(reader.pictures())
    missing = [name for name in layout.features if name not in columns and name not in layout.cameras]
    if missing:
        raise PackError(
            f"{layout.root / INFO} has the feature {missing[0]!r}, and the Parquet files do not: their "
            f"columns are {', '.join(columns)}."
        )
    lost = next((name for name in (_EPISODE, _FRAME, _TIME) if name not in columns), None)
    if lost is not None:
        raise PackError(f"{reader.files[0].path} has no column {lost!r}, which every LeRobot set has.")
    fields: list[Field] = []
    for name in dict.fromkeys([*layout.features, *columns]):
        if name in left_out:
            continue
        is_picture = name in layout.cameras or name in pictures
        fields.append(_field(layout, name, None if is_picture else types[name]))
        text = layout.texts.get(name)
        if text is not None and text.field not in columns:
            if text.known is None and text.field not in left_out:
                raise PackError(
                    f"{text.path} is not there: it has the texts of {name}, which {INFO} lists. Download it, "
                    f"or leave the texts out: --field {text.field}=none."
                )
            fields.append(Field(text.field, Text()))
    try:
        return Schema(tuple(fields))
    except ValueError as error:
        raise PackError(f"{layout.root}: {error} Leave one out with --field NAME=none.") from None


def _field(layout: Layout, name: str, typed: Any) -> Field:
    """Return the field of a column of a type; None: of pictures.

    Raises:
        PackError: no field has that name or shape.
    """
    shape = layout.features.get(name, {}).get("shape")
    leave = f"Leave it out: --field {name}=none (in Python fields={{{name!r}: 'none'}})."
    try:
        kind = Image() if typed is None else _kind(typed, shape)
    except (TypeError, ValueError) as error:
        raise PackError(
            f"{layout.root / INFO}: the feature {name!r} has the shape {shape}: {error} {leave}"
        ) from None
    try:
        return Field(name, kind)
    except ValueError as error:
        raise PackError(f"{layout.root / INFO}: the column {name!r}: {error} {leave}") from None


def _kind(typed: Any, shape: Any) -> Kind:
    """Return the kind of a column: a list has the feature's shape, if it says one."""
    if typed.kind is not None:
        kind: Kind = typed.kind
        return kind
    if typed.dtype:
        known = shape is not None and all(isinstance(side, int) for side in shape)
        return Array(typed.dtype, tuple(shape)) if known else Json()
    if "string" in typed.name and "<" not in typed.name:
        return Text()
    return Bytes() if "binary" in typed.name and "<" not in typed.name else Json()


def _refuse_depth(layout: Layout, schema: Schema) -> None:
    """Raise PackError for cameras whose videos are depth maps."""
    for name in layout.cameras:
        feature = layout.features[name]
        facts = {**(feature.get("video_info") or {}), **(feature.get("info") or {})}
        if name not in schema.names:
            continue
        try:
            sampling_of(str(facts.get("video.pix_fmt") or ""))
        except VideoError as error:
            raise PackError(f"{name!r}: {error}.") from None
        if facts.get("video.is_depth_map"):
            raise PackError(
                f"{name!r} is a video of depth maps, whose depths RGB of 8 bits would spoil. Leave it out: "
                f"--field {name}=none (in Python fields={{{name!r}: 'none'}})."
            )


def _check_rows(layout: Layout, reader: ArrowRows, schema: Schema, options: PackOptions) -> None:
    """Look for what would be met only after hours: rows out of order, wrong times, missing videos.

    Raises:
        PackError: there is some; a missing video only if it is not to be skipped.
    """
    cameras = [name for name in schema.names if name in layout.cameras]
    numbers, frames, times = _columns_of_all(layout, reader)
    starts = np.concatenate([[0], np.cumsum(layout.lengths)])[:-1]
    place = np.arange(len(numbers)) - np.repeat(starts, layout.lengths)
    wanted = np.repeat(layout.numbers, layout.lengths)

    def refuse(at: int, what: str) -> None:
        file = layout.data[int(layout.data_of[np.searchsorted(starts, at, "right") - 1])]
        raise PackError(f"{layout.root / file}: episode {wanted[at]}, row {place[at]} of it: {what}")

    for at in np.flatnonzero(numbers != wanted)[:1].tolist():
        refuse(at, f"the row says {_EPISODE} {numbers[at]:g}, and {META}/ that it is of {wanted[at]}.")
    for name, values in ((_FRAME, frames), (_TIME, times)) if options.runs is None else ():
        # A NaN or a missing value is not above the one before it, nor is anything above it.
        follows = np.append(True, (values[1:] > values[:-1]) | (place[1:] == 0))
        for at in np.flatnonzero(np.isnan(values) | ~follows)[:1].tolist():
            before = f" after {values[at - 1]:.7g}" if place[at] else ""
            refuse(at, f"{name} is {values[at]:.7g}{before}; it must increase from row to row of an episode. "
                       "Mend the Parquet files, or pack without the order of rows: --runs none.")  # fmt: skip
    if not cameras:
        return
    for at in np.flatnonzero(~np.isfinite(times))[:1].tolist():
        refuse(at, f"{_TIME} is {times[at]}, must be seconds: it says which frame is the row's.")
    lasts = np.maximum.reduceat(times, starts)
    for camera in cameras:
        layout.check_videos(camera, lasts)
    missing = layout.missing_videos(cameras)
    if missing and options.on_error == "raise":
        raise PackError(f"{missing} Download it again, or leave its rows out: --on-error skip.")


def _columns_of_all(layout: Layout, reader: ArrowRows) -> list[npt.NDArray[np.float64]]:
    """Return episode, frame and time of all rows; a missing value is NaN.

    Raises:
        PackError: a column's values are no numbers.
    """
    import pyarrow as pa

    names = (_EPISODE, _FRAME, _TIME)
    types = reader.schema()
    for name in (*names, *(name for name in layout.texts if name in types.names)):
        kind = types.field(name).type
        if not (pa.types.is_integer(kind) or (pa.types.is_floating(kind) and name in names)):
            legal = "integers" if name not in names else "numbers"
            raise PackError(
                f"{reader.files[0].path}: the column {name!r} is of type {kind}, must be one of {legal}."
            )
    tables = [*reader.columns(names)]
    return [np.concatenate([table[name] for table in tables]) for name in names]


# ---- Rows -------------------------------------------------------------------------------------------


def _is_size_of(feature: Mapping[str, Any], height: int, width: int) -> bool:
    """Return whether a camera's feature may have such frames; one without a shape may have any."""
    places = sides_in(feature)
    if places is None:
        return True
    *sides, channels = (feature["shape"][place] for place in places)
    return sides == [height, width] and channels in (1, 3)  # 1: of gray


@dataclass
class _Camera:
    """The open video of a camera; one at a time."""

    rows: LeRobotRows
    name: str
    threads: int
    _path: str = ""
    _video: Video | VideoError | None = field(default=None)

    def frame_at(self, episode: int, seconds: float) -> Frame:
        """Return the frame of an episode at a time of its rows.

        Raises:
            VideoError: there is none; the message names file and times.
        """
        files = self.rows.layout.cameras[self.name]
        path, begin = files.paths[int(files.files[episode])], float(files.begins[episode])
        at = begin + seconds
        # A row's time has float32's digits, which after half an hour are further apart than the tolerance.
        tolerance = max(TOLERANCE, float(np.spacing(np.float32(abs(seconds)))))
        try:
            frame = self._opened(path).frame_at(at, tolerance)
        except VideoError as error:
            raise VideoError(
                f"{self.name}: {path} has no picture for the row's time stamp {seconds:.6f} s, which is "
                f"{at:.6f} s of the file: {error}"
            ) from None
        self._check_size(path, frame)
        return frame

    def _check_size(self, path: str, frame: Frame) -> None:
        """Raise VideoError if a frame is of another size than ``info.json`` says."""
        height, width, _ = frame.pixels.shape
        feature = self.rows.layout.features[self.name]
        if not _is_size_of(feature, height, width):
            names = f" ({', '.join(map(str, feature['names']))})" if feature.get("names") else ""
            raise VideoError(
                f"{self.name}: {path} has pictures of height {height}, width {width} and 3 channels, and "
                f"{INFO} says shape {list(feature['shape'])}{names}. One of them is of another state of the "
                f"set: download both again, or leave the camera out, with --field {self.name}=none"
            )

    def _opened(self, path: str) -> Video:
        if path != self._path:
            self.close()
            self._path = path
            self._video = self._open(path)
        if isinstance(self._video, VideoError):
            raise self._video
        assert self._video is not None
        return self._video

    def _open(self, path: str) -> Video | VideoError:
        whole, decoder = self.rows.layout.root / path, self.rows.decoder
        assert decoder is not None
        try:
            open(whole, "rb").close()
        except OSError as error:
            raise_if_transient(whole, error)
            return VideoError(f"{error.strerror}")
        try:
            return decoder.opened(whole, self.threads)
        except VideoError as error:
            return error

    def close(self) -> None:
        """Close the video."""
        if isinstance(self._video, Video):
            self._video.close()
        self._path, self._video = "", None


class LeRobotRows(SampleRows):
    """The rows of a LeRobot set, or every k-th row of each episode.

    How many bytes a picture will take is not known before it is made, so the plan's cuts follow the average
    of some rows, spread over the set.

    Args:
        layout: what the set says of itself.
        reader: its Parquet files.
        schema: the fields.
        step: k.
        decoder: of the videos; None: there are none.
        options: those of the pack.
    """

    process_bytes = 8 << 20  # videos are decoded
    walks = False
    lists_paths = False
    unit = "row"

    def __init__(
        self, layout: Layout, reader: ArrowRows, schema: Schema, step: int, decoder: Decoder | None,
        options: PackOptions,
    ) -> None:  # fmt: skip
        super().__init__(os.fsencode(layout.root), schema)
        self.layout, self.reader, self.step, self.decoder = layout, reader, step, decoder
        self._options = options
        kept = -(-layout.lengths // step)
        self._starts = np.concatenate([[0], np.cumsum(kept)])  # of episodes among the rows packed
        self._sources = np.concatenate([[0], np.cumsum(layout.lengths)])  # and among all
        self.containers = tuple(path for name in layout.files() if exists(path := layout.root / name))
        self._columns = [name for name in reader.names() if self._is_read(name)]
        if decoder is not None and decoder.why:
            self.notes = (f"videos decoded by {decoder} ({decoder.why})",)

    def _is_read(self, column: str) -> bool:
        return column in self.schema.names or column in (_EPISODE, _FRAME, _TIME, *self.layout.texts)

    @property
    def cameras(self) -> list[str]:
        """The fields that come from videos."""
        return [name for name in self.schema.names if name in self.layout.cameras]

    def __len__(self) -> int:
        return int(self._starts[-1])

    def show(self, options: PackOptions) -> LeRobotRows:
        super().show(options)
        return self

    def settings(self) -> dict[str, Any]:
        return {"lerobot": self.layout.digest()}

    def identity(self, options: PackOptions, totals: Totals | None) -> dict[str, Any] | None:
        layout = self.layout
        facts: dict[str, Any] = {
            "version": layout.version,
            "episodes": len(layout.numbers),
            "fps": layout.fps,
            "packed_fps": layout.fps / self.step,
            "quality": None if options.raw else options.quality,
            "decoder": None if self.decoder is None else str(self.decoder),
        }
        # Bytes are guessed, so the totals do not tell sets apart.
        given = {"samples": None if totals is None else totals.files, **self.settings()}
        return {
            "given": given,
            "schema": json.loads(self.schema.to_json()),
            FRAMES: facts,
            KEPT_RUNS: RUNS,
            CARRIED: {META: self.carried.facts()},
        }

    @functools.cached_property
    def carried(self) -> Carried:  # type: ignore[override]
        """``meta/``; with an ``info.json`` of what is packed, and the original beside it if it differs."""
        folder = self.layout.root / META
        files: dict[str, Any] = {
            name: functools.partial(Path.read_bytes, folder / name) for name in files_below(folder)
        }
        source = json.loads((folder / Path(INFO).name).read_bytes())
        info = self._packed_info(source)
        if info != source:
            files[ORIGINAL] = files[Path(INFO).name]
            changed = json.dumps(info, indent=4, ensure_ascii=False).encode()
            files[Path(INFO).name] = functools.partial(bytes, changed)
        return Carried(META, files)

    def _packed_info(self, source: Mapping[str, Any]) -> dict[str, Any]:
        """Return ``info.json`` of the rows that are packed and of the size of their pictures."""
        info, options = {**source}, self._options
        if self.step > 1:
            fps = self.layout.fps / self.step
            info |= {"fps": int(fps) if fps.is_integer() else fps, "total_frames": len(self)}
        if options.limit is not None and options.limit < len(self):
            episodes = int(np.searchsorted(self._starts, options.limit))
            info |= {"total_frames": options.limit, "total_episodes": episodes}
        features = dict(source["features"])
        for each in self.schema:
            if isinstance(each.kind, Image) and each.name in features:
                size_of = functools.partial(scaled_size, options=options)
                features[each.name] = with_size(features[each.name], size_of)
        return info | {"features": features}

    # What the rows take

    def listed(self, notes: Notes) -> Iterator[Row]:
        """Yield each row with about the bytes that it will take, and when its newest file was modified."""
        size = max(1, round(sum(self._bytes.values())))
        known = {name: self.layout.status(name) for name in self.layout.files()}
        for episode in range(len(self.layout.numbers)):
            files = [self.layout.data[int(self.layout.data_of[episode])]]
            for camera in map(self.layout.cameras.__getitem__, self.cameras):
                files.append(camera.paths[int(camera.files[episode])])
            # One of them may change and still be older than another, so the first row of each episode tells
            # all of them; all rows would be long lists.
            told = b"\0".join("{} ({} bytes, modified at {} ns)".format(n, *known[n]).encode() for n in files)
            newest = max(known[name][1] for name in files)
            for place in range(int(self._starts[episode + 1] - self._starts[episode])):
                yield Row(b"" if place else told, size, newest)

    @functools.cached_property
    def _bytes(self) -> dict[str, float]:
        """About the bytes that a row takes in each field."""
        positions = sorted({int(at) for at in np.linspace(0, len(self) - 1, min(_LOOKED_AT, len(self)))})
        found: dict[str, list[int]] = {name: [] for name in self.schema.names}
        encoder = self.encoder(self._options)
        with self._cameras(self._options) as cameras:  # a file is opened once for all of its rows
            for position in positions:
                made = self._made(position, position + 1, cameras, self._options)
                for batch in encoder.encode(position, made):
                    for name, chunk in zip(self.schema.names, batch.fields, strict=True):
                        found[name] += chunk.lengths.tolist()
        return {name: float(np.mean(some)) if some else self._guess(name) for name, some in found.items()}

    def _guess(self, name: str) -> float:
        """Return the bytes of a field where not one of the rows looked at can be packed."""
        if name not in self.cameras:
            return 0.0
        sides = [side for side in self.layout.features[name].get("shape") or () if isinstance(side, int)]
        return float(np.prod(sides)) / _GUESSED

    def announced(self) -> list[str]:
        if not self.cameras:
            return []
        layout, options = self.layout, self._options
        count = min(len(self), options.limit or len(self))
        stored = sum(self._bytes[name] for name in self.cameras) * count
        paths = {path for name in self.cameras for path in layout.cameras[name].paths}
        videos = sum(layout.status(path)[0] for path in paths)
        what = f"JPEG of quality {options.quality}"
        what = f"coefficient records ({options.coefficients}) of {what}" if options.coefficients else what
        what = "raw pixels" if options.raw else what
        rows = (
            "" if count == int(self._sources[-1]) else f" for {counted(count, 'row')} of {self._sources[-1]}"
        )
        times = f" ({stored / videos:.1f} times)" if videos else ""
        return [f"videos {human_bytes(videos)}; as {what} about {human_bytes(stored)}{rows}{times}"]

    def lost(self, skipped: Sequence[str]) -> list[str]:
        """Say how many rows are missing between others of their episode, which no window's reader sees."""
        of: dict[int, set[int]] = {}
        for name in skipped:
            episode, _, frame = name.removeprefix("episode_").partition("/")
            of.setdefault(int(episode), set()).add(int(frame))
        inside = []
        for number, frames in of.items():
            length = int(self.layout.lengths[self.layout.numbers == number][0])
            for ends in (range(0, length, self.step), reversed(range(0, length, self.step))):
                for place in itertools.takewhile(frames.__contains__, ends):
                    frames.remove(place)
            inside += [len(frames)] if frames else []
        if not inside:
            return []
        count, episodes = sum(inside), counted(len(inside), "episode")
        are = "row is" if count == 1 else "rows are"
        return [f"{count} {are} missing inside {episodes}: windows counted in rows reach over them"]

    # Samples

    def batches(
        self, start: int, stop: int | None, options: PackOptions, listing: Listing | None
    ) -> Iterator[Batch]:
        with self._cameras(options) as cameras:
            yield from self.encoder(options).encode(start, self._made(start, stop, cameras, options))

    @contextmanager
    def _cameras(self, options: PackOptions) -> Iterator[Mapping[str, _Camera]]:
        """Yield the cameras, and close their files afterwards."""
        threads = threads_for(options)
        with ExitStack() as stack:
            cameras = {name: _Camera(self, name, threads) for name in self.cameras}
            for camera in cameras.values():
                stack.callback(camera.close)
            yield cameras

    def _made(
        self, start: int, stop: int | None, cameras: Mapping[str, _Camera], options: PackOptions
    ) -> Iterator[StoredSample | FailedSample]:
        stop = len(self) if stop is None else min(stop, len(self))
        episode = int(np.searchsorted(self._starts, start, "right")) - 1
        place = (
            start - int(self._starts[episode])
        ) * self.step  # in the episode, of the next row that is read
        rows = self.reader.walk(int(self._sources[episode]) + place, self._columns)
        for row in rows:
            if start >= stop:
                return
            if place % self.step == 0:
                yield self._sample(episode, place, row, cameras, options)
                start += 1
            place += 1
            if place == self.layout.lengths[episode]:
                episode, place = episode + 1, 0

    def _sample(
        self, episode: int, place: int, row: Mapping[str, Any], cameras: Mapping[str, _Camera],
        options: PackOptions,
    ) -> StoredSample | FailedSample:  # fmt: skip
        number = int(self.layout.numbers[episode])
        frame = row[_FRAME] if isinstance(row[_FRAME], int) else place
        path = f"episode_{number:06d}/{frame:06d}".encode()
        try:
            self._check(place, row)
            values = []
            for each in self.schema:
                try:
                    values.append(self._value(each, episode, row, cameras, options))
                except (VideoError, LibraryMissing, PackError):
                    raise
                except Exception as error:  # Pillow raises anything
                    raise ValueError(f"field {each.name!r}: {error}") from error
        except (LibraryMissing, PackError):  # not the row's fault
            raise
        except Exception as error:
            return FailedSample(ValueError(f"episode {number}, frame {frame}: {error}"), path)
        return StoredSample(path, values)

    def _check(self, place: int, row: Mapping[str, Any]) -> None:
        """Raise ValueError if a row is not the one of its time."""
        if self.step > 1 and row[_FRAME] != place:
            raise ValueError(
                f"{_FRAME} is {row[_FRAME]} at row {place} of the episode, so that every {self.step}th is "
                "not every such time: fps needs episodes without gaps"
            )

    def _value(
        self, named: Field, episode: int, row: Mapping[str, Any], cameras: Mapping[str, _Camera],
        options: PackOptions,
    ) -> Any:  # fmt: skip
        if named.name in cameras:
            assert isinstance(named.kind, Image)
            frame = cameras[named.name].frame_at(episode, float(row[_TIME]))
            return frame_picture(named.kind, frame.pixels, frame.sampling, options)
        if isinstance(named.kind, Image):
            return picture_of(named.kind, row[named.name], self.root)
        for column, texts in self.layout.texts.items():
            if texts.field == named.name and named.name not in row:
                return named.encode(texts.of(row[column]))
        return named.encode(value_of(named.kind, row[named.name], False, True))
