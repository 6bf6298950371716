"""LeRobot sets of both layouts, packed: each row's values and pictures, its options, and what is refused."""

from __future__ import annotations

import io
import json
import os
import random
import re
import subprocess
import sys
import tracemalloc
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import av
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as parquet
import pytest
from lerobot_sets import FPS, LENGTHS, SIZES, TOP, WRIST, Made, changed, make_set, packed, rows_of
from long_forms import SEED, as_drawn, how_many
from pack_trees import encoded, environment, snapshot
from PIL import Image
from video_fakes import torchcodec as torchcodec

import fastload
from fastload import PackedDataset
from fastload.cli import main as command
from fastload.errors import ChecksumError, FormatError, LibraryMissing, PackError
from fastload.packing import videos
from fastload.packing.lerobot_rows import LeRobotRows, open_lerobot
from fastload.packing.options import PackOptions
from fastload.packing.unpack import unpack
from fastload.packing.verify import verify
from fastload.shard.codecs import COEFFICIENTS

VERSIONS = ("v2.1", "v3.0")
KINDS = {
    "action": "array(float32, (3,))", "observation.state": "array(float64, (2,))",
    "grid": "array(int16, (2, 2))", "next.done": "scalar(bool)", "note": "text", TOP: "image", WRIST: "image",
    "timestamp": "scalar(float32)", "frame_index": "scalar(int64)", "episode_index": "scalar(int64)",
    "index": "scalar(int64)", "task_index": "scalar(int64)", "task": "text",
}  # fmt: skip


@pytest.fixture(scope="module", params=VERSIONS)
def made(request: pytest.FixtureRequest) -> Made:
    return Made(version=request.param)


@pytest.fixture(scope="module")
def root(made: Made, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A set of each version; tests do not change it."""
    return make_set(tmp_path_factory.mktemp("lerobot") / made.version, made)


def jpeg(
    pixels: npt.NDArray[np.uint8], size: tuple[int, int] | None = None, quality: int = 90, chroma: int = 2
) -> bytes:
    """The JPEG that Pillow makes of a frame."""
    picture, out = Image.fromarray(pixels), io.BytesIO()
    picture = picture if size in (None, picture.size) else picture.resize(size, Image.Resampling.BICUBIC)
    picture.save(out, "JPEG", quality=quality, subsampling=chroma)
    return out.getvalue()


def decoded(data: bytes) -> npt.NDArray[np.int64]:
    return np.asarray(Image.open(io.BytesIO(data)).convert("RGB")).astype(np.int64)


def skipped(output: Path) -> dict[str, str]:
    lines = (output / "skipped.jsonl").read_text(encoding="utf-8").splitlines()
    return {entry["path"]: entry["reason"] for entry in map(json.loads, lines)}


def same_value(found: Any, wanted: Any) -> bool:
    return bool(np.array_equal(np.asarray(found), np.asarray(wanted, np.asarray(found).dtype)))


# ---- Rows -------------------------------------------------------------------------------------------


def test_each_row_has_its_values_and_the_frames_of_its_time(root: Path, made: Made, tmp_path: Path) -> None:
    """A picture is Pillow's JPEG of PyAV's frame, byte for byte."""
    dataset, rows = packed(root, tmp_path / "set"), rows_of(root, made)
    assert {field.name: str(field).partition("=")[2] for field in dataset.schema} == KINDS
    assert len(rows) == len(dataset) == sum(LENGTHS)
    for i, row in enumerate(rows):
        assert dataset.key(i) == row.key
        assert row.values.keys() | row.pictures.keys() == set(KINDS)
        for name, value in row.values.items():
            assert same_value(dataset.value(name, i), value), (name, i)
        for camera, pixels in row.pictures.items():
            assert dataset.value_bytes(camera, i) == jpeg(pixels), (camera, i)


def test_the_loss_is_that_of_jpeg(root: Path, made: Made, tmp_path: Path) -> None:
    """At quality 90 and 4:2:0, a channel differs by 8 levels on average at most, at 100 and 4:4:4 by 1."""
    for pixels, chroma, quality, bound in (("yuv420p", 2, 90, 8.0), ("yuv444p", 0, 100, 1.0)):
        source = Made(version=made.version, lengths=(3,), pixels=pixels)
        set_ = make_set(tmp_path / pixels, source)
        dataset = packed(set_, tmp_path / f"packed {pixels}", quality=quality)
        for i, row in enumerate(rows_of(set_, source)):
            for camera, frame in row.pictures.items():
                data = dataset.value_bytes(camera, i)
                assert data == jpeg(frame, quality=quality, chroma=chroma)
                assert np.abs(decoded(data) - frame).mean() <= bound


def test_meta_is_kept_and_given_back(root: Path, made: Made, tmp_path: Path) -> None:
    fastload.pack(root, tmp_path / "set")
    before = snapshot(root / "meta")
    assert len(before) >= 4
    assert snapshot(tmp_path / "set" / "meta") == before
    assert unpack(tmp_path / "set", tmp_path / "files") == sum(LENGTHS)
    assert snapshot(tmp_path / "files" / "meta") == before
    assert (tmp_path / "files" / "episode_000001" / "000003.jpg").exists()
    fastload.pack(tmp_path / "set", tmp_path / "again", coefficients="fast")
    assert snapshot(tmp_path / "again" / "meta") == before
    fastload.pack(root, tmp_path / "set", restart=True)
    assert snapshot(tmp_path / "set" / "meta") == before


@pytest.mark.parametrize("where", ["{}", "file://{}"])
def test_changed_files_of_meta_are_found(root: Path, tmp_path: Path, where: str) -> None:
    place, meta = where.format(tmp_path / "set"), tmp_path / "set" / "meta"
    fastload.pack(root, tmp_path / "set")
    assert verify(place) == ([], sum(LENGTHS))
    info, tasks = meta / "info.json", next(meta.glob("tasks.*"))
    whole = info.read_bytes()
    damage = {
        r"info\.json has 2 bytes with CRC-32C 0x\w{8}, and was packed with \d+ and 0x\w{8}": lambda: (
            info.write_bytes(b"{}")
        ),
        r"info\.json has \d+ bytes .*: it was changed\. Put the file": lambda: info.write_bytes(
            whole.replace(b'"fps": 10', b'"fps": 60')
        ),
        rf"{re.escape(tasks.name)} is not there\.": lambda: tasks.rename(meta / "other"),
    }
    for number, (words, change) in enumerate(damage.items()):
        change()
        reasons = [problem.reason for problem in verify(place)[0]]
        assert len(reasons) == 1
        assert re.match(f"meta/{words}", reasons[0])
        for again in (unpack, fastload.pack):
            with pytest.raises(ChecksumError, match=words):
                again(place, tmp_path / f"out {number}")
        assert not (tmp_path / f"out {number}" / "meta").exists()
        info.write_bytes(whole)


@pytest.mark.parametrize("name", ["../../evil", "/tmp/evil", ""])
def test_a_manifest_that_names_files_elsewhere(root: Path, tmp_path: Path, name: str) -> None:
    fastload.pack(root, tmp_path / "set")
    path = tmp_path / "set" / "dataset.json"
    body = json.loads(path.read_text())
    body["options"]["carried"] = {"meta": {name: 3}}
    path.write_text(json.dumps(body))
    with pytest.raises(FormatError, match="which is no file below it"):
        unpack(tmp_path / "set", tmp_path / "files")
    body["options"]["carried"] = {"meta": {"info.json": 3}}
    path.write_text(json.dumps(body))
    with pytest.raises(FormatError, match=r"has 3, which must be an object of bytes and crc32c\."):
        unpack(tmp_path / "set", tmp_path / "files")
    assert not (tmp_path / "files").exists()


def test_info_says_what_it_was(
    root: Path, made: Made, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fastload.pack(root, tmp_path / "set")
    capsys.readouterr()
    assert command(["info", str(tmp_path / "set")]) == 0
    said = capsys.readouterr().out
    assert f"LeRobot {made.version[1:]}, 3 episodes, 10 fps, decoded by PyAV {av.__version__}" in said
    assert re.search(rf"records +24, \S+ kB of {TOP}\n", said)


def test_unpack_says_how_it_is_packed_again(
    root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fastload.pack(root, tmp_path / "set")
    capsys.readouterr()
    assert command(["unpack", str(tmp_path / "set"), str(tmp_path / "files")]) == 0
    words = capsys.readouterr().out.partition("'fastload pack ")[2].partition("'")[0]
    source, _, *more = words.split()
    assert source == str(tmp_path / "files" / "samples.jsonl")
    assert command(["pack", source, str(tmp_path / "again"), *more]) == 0
    again = PackedDataset(tmp_path / "again")
    assert (len(again), again.runs is not None) == (sum(LENGTHS), True)
    with pytest.raises(PackError, match=r"is not there\. .* If 'fastload unpack' wrote this folder, pack"):
        fastload.pack(tmp_path / "files", tmp_path / "out")


@pytest.mark.usefixtures("torchcodec")
def test_a_complete_set_keeps_its_decoders_name(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(videos, "import_module", import_module)
        fastload.pack(root, tmp_path / "set")
    assert videos.chosen_decoder().name == "torchcodec"
    capsys.readouterr()
    assert command(["pack", str(root), str(tmp_path / "set")]) == 0
    output = "".join(capsys.readouterr())
    assert f"10 fps, decoded by PyAV {av.__version__}" in output
    assert "torchcodec" not in output
    [result] = fastload.pack(root, tmp_path / "set")
    assert (result.was_complete, result.notes) == (True, ())


def test_the_sizes_are_said_before_it_begins(root: Path, tmp_path: Path) -> None:
    class Heard(fastload.packing.Observer):
        def __init__(self) -> None:
            self.heard: list[str] = []

        def started(self, work: Any) -> None:
            self.heard.append(work.doing)

        def said(self, place: Any, text: str) -> None:
            self.heard.append(text)

    heard = Heard()
    dataset = packed(root, tmp_path / "set", quality=70, observer=heard)
    said, doing = heard.heard[:2]
    assert doing == "packing"
    assert said.startswith("videos ")
    assert " as JPEG of quality 70 about " in said
    assert said.endswith(" times)")
    # All rows are looked at here, so that nothing is left to guess.
    stored = sum(len(dataset.value_bytes(camera, i)) for camera in SIZES for i in range(len(dataset)))
    assert f"about {fastload.machine.sizes.human_bytes(stored)} " in said
    assert dataset.manifest.options["lerobot"]["decoder"].startswith("PyAV ")


def test_the_estimate_opens_each_video_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root, opened = changed(tmp_path, lengths=(20, 30, 25), per_file=2), []
    of_all = videos.Decoder.opened

    def spied(self: videos.Decoder, path: Path, threads: int) -> Any:
        opened.append(path.name)
        return of_all(self, path, threads)

    monkeypatch.setattr(videos.Decoder, "opened", spied)
    fastload.pack(root, tmp_path / "out", dry_run=True)
    assert opened == ["file-000.mp4", "file-001.mp4"]


def test_the_rows_of_an_episode_are_a_run(root: Path, tmp_path: Path) -> None:
    runs = packed(root, tmp_path / "set").runs
    assert runs is not None
    assert str(runs.spec) == "episode_index:frame_index:timestamp@s"
    assert runs.begins.tolist() == [0, *np.cumsum(LENGTHS)]
    times = runs.times_at(np.arange(sum(LENGTHS)))
    assert times is not None
    wanted = [np.float32(row / FPS) for length in LENGTHS for row in range(length)]
    assert times.tolist() == [float(one) for one in wanted]
    with pytest.raises(PackError, match="leave out none of their fields"):
        fastload.pack(root, tmp_path / "out", fields={"timestamp": "none"})
    dataset = packed(root, tmp_path / "out", fields={"timestamp": "none"}, runs="none")
    assert (dataset.runs, len(dataset)) == (None, sum(LENGTHS))


def test_cameras_and_columns_may_be_left_out(root: Path, tmp_path: Path) -> None:
    dataset = packed(root, tmp_path / "set", fields={WRIST: "none", "grid": "none", "task": "none"})
    assert set(dataset.schema.names) == set(KINDS) - {WRIST, "grid", "task"}
    assert len(dataset) == sum(LENGTHS)


def test_a_set_without_cameras(tmp_path: Path) -> None:
    root, made = changed(tmp_path, sizes={}), Made(sizes={}, lengths=(4, 6))
    dataset, rows = packed(root, tmp_path / "out"), rows_of(root, made)
    assert len(dataset) == len(rows) == 10
    for i, row in enumerate(rows):
        assert all(same_value(dataset.value(name, i), value) for name, value in row.values.items())
    assert dataset.runs is not None


def test_pictures_in_the_parquet_files_are_kept(tmp_path: Path) -> None:
    root = changed(tmp_path, sizes={})
    info = json.loads((root / "meta" / "info.json").read_text())
    info["features"][TOP] = {"dtype": "image", "shape": [3, 30, 40], "names": ["c", "h", "w"]}
    (root / "meta" / "info.json").write_text(json.dumps(info))
    [path] = (root / "data").glob("*/*.parquet")
    table = parquet.read_table(path)
    files = [encoded(i, "PNG" if i % 2 else "JPEG", 40, 30) for i in range(10)]
    cells = pa.array([{"bytes": data, "path": None} for data in files])
    parquet.write_table(table.append_column(TOP, cells), path)
    dataset = packed(root, tmp_path / "out")
    assert [dataset.value_bytes(TOP, i) for i in range(10)] == files
    assert dataset.manifest.options["lerobot"]["decoder"] is None
    smaller = packed(root, tmp_path / "small", size=(20, 10))
    assert {decoded(smaller.value_bytes(TOP, i)).shape for i in range(10)} == {(10, 20, 3)}


# ---- Options ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("fps", [5, 2.5, 2, 1])
def test_every_kth_row(root: Path, made: Made, tmp_path: Path, fps: float) -> None:
    step = round(FPS / fps)
    dataset = packed(root, tmp_path / "set", fps=fps)
    rows = [row for row in rows_of(root, made) if row.values["frame_index"] % step == 0]
    assert [dataset.key(i) for i in range(len(dataset))] == [row.key for row in rows]
    for i, row in enumerate(rows):
        assert dataset.value("timestamp", i) == np.float32(row.values["timestamp"])
        assert dataset.value_bytes(WRIST, i) == jpeg(row.pictures[WRIST])
    info = json.loads((tmp_path / "set" / "meta" / "info.json").read_text())
    assert (info["fps"], info["total_frames"]) == (fps, len(rows))
    original = (tmp_path / "set" / "meta" / "info.source.json").read_bytes()
    assert original == (root / "meta" / "info.json").read_bytes()
    assert info["features"] == json.loads(original)["features"]
    assert dataset.manifest.options["lerobot"]["packed_fps"] == fps


@pytest.mark.parametrize("fps", [3, 20, 7.5])
def test_another_rate_must_divide_the_sets(root: Path, tmp_path: Path, fps: float) -> None:
    with pytest.raises(PackError, match=rf"fps is {fps:g}, .* 10 rows a second.* as 10, 5, 2, 1\."):
        fastload.pack(root, tmp_path / "set", fps=fps)


def test_another_rate_needs_rows_without_gaps(tmp_path: Path) -> None:
    root = changed(tmp_path)
    [path] = (root / "data").glob("*/*.parquet")
    table = parquet.read_table(path)
    at = table.schema.get_field_index("frame_index")
    parquet.write_table(table.set_column(at, "frame_index", pa.array([0, 1, 2, 4, 0, 1, 2, 3, 4, 5])), path)
    fastload.pack(root, tmp_path / "all")
    with pytest.raises(PackError, match=r"episode 0, frame 4: frame_index is 4 at row 3 of the episode"):
        fastload.pack(root, tmp_path / "some", fps=10 / 3)


@pytest.mark.parametrize(
    ("options", "size_of"),
    [
        ({"size": (32, 40)}, lambda width, height: (32, 40)),
        ({"max_side": 50}, lambda width, height: (50, 38) if width == 64 else (width, height)),
    ],
)
def test_sizes(
    root: Path, made: Made, tmp_path: Path, options: Mapping[str, Any],
    size_of: Callable[[int, int], tuple[int, int]],
) -> None:  # fmt: skip
    dataset = packed(root, tmp_path / "set", quality=95, **options)
    raw = packed(root, tmp_path / "raw", raw=True, **options)
    for i, row in enumerate(rows_of(root, made)):
        for camera, pixels in row.pictures.items():
            width, height = size_of(*SIZES[camera])
            assert dataset.value_bytes(camera, i) == jpeg(pixels, (width, height), 95)
            stored = np.frombuffer(raw.value_bytes(camera, i), np.uint8).reshape(height, width, 3)
            scaled = np.asarray(Image.fromarray(pixels).resize((width, height), Image.Resampling.BILINEAR))
            if (width, height) == SIZES[camera]:
                assert (stored == pixels).all()
            else:
                assert np.abs(stored.astype(int) - scaled).mean() < 8  # as the engine resizes


@pytest.mark.parametrize(
    "names", [["height", "width", "channels"], ["c", "h", "w"], ["width", "height", "c"], ["w", "h", "c"]]
)
def test_info_has_the_size_and_the_count_of_what_is_packed(tmp_path: Path, names: list[str]) -> None:
    root = changed(tmp_path)
    sides = {"height": 48, "h": 48, "width": 64, "w": 64}
    path = root / "meta" / "info.json"
    info = json.loads(path.read_text())
    info["features"][TOP] |= {"shape": [sides.get(name, 3) for name in names], "names": names}
    path.write_text(json.dumps(info))

    def found(name: str, **options: Any) -> dict[str, Any]:
        fastload.pack(root, tmp_path / name, **options)
        assert (tmp_path / name / "meta" / "info.source.json").read_bytes() == path.read_bytes()
        assert verify(tmp_path / name)[0] == []
        result: dict[str, Any] = json.loads((tmp_path / name / "meta" / "info.json").read_text())
        return result

    for options, width, height in ({"size": (32, 40)}, 32, 40), ({"max_side": 50}, 50, 38):
        sides = {"height": height, "h": height, "width": width, "w": width}
        info["features"][TOP]["shape"] = [sides.get(name, 3) for name in names]
        assert found(f"of {width}", **options) == info
    info = json.loads(path.read_text())
    for limit, fps, episodes in (4, 10, 1), (5, 10, 2), (2, 5, 1), (3, 5, 2):
        wanted = info | {"total_frames": limit, "total_episodes": episodes, "fps": fps}
        assert found(f"{limit} at {fps}", limit=limit, fps=fps) == wanted
    fastload.pack(root, tmp_path / "whole", limit=10, max_side=64)
    assert snapshot(tmp_path / "whole" / "meta") == snapshot(root / "meta")


@pytest.mark.parametrize("form", ["fast", "small"])
def test_coefficient_records_are_of_the_same_jpegs(root: Path, tmp_path: Path, form: str) -> None:
    plain = packed(root, tmp_path / "plain")
    dataset = packed(root, tmp_path / "set", coefficients=form)
    assert dataset.manifest.codecs == {"coefficients": len(dataset)}
    for i in range(len(dataset)):
        for camera in SIZES:
            record = dataset.field_records(camera)[i] if camera == WRIST else dataset.record(i)
            assert int(record["codec"]) == COEFFICIENTS
            assert dataset.value_bytes(camera, i) == plain.value_bytes(camera, i)


def test_size_and_fps_are_for_these_sets(tmp_path: Path) -> None:
    (tmp_path / "images").mkdir()
    (tmp_path / "images" / "a.jpg").write_bytes(encoded(0, "JPEG", 40, 30))
    with pytest.raises(PackError, match=r"size needs raw, unless the source is a LeRobot set\."):
        fastload.pack(tmp_path / "images", tmp_path / "out", size=(9, 9))
    with pytest.raises(PackError, match=r"fps is of LeRobot sets, and the source is none\. Found: 5\."):
        fastload.pack(tmp_path / "images", tmp_path / "out", fps=5)
    with pytest.raises(PackError, match=r"fps is of LeRobot sets"):
        fastload.pack([{"image": encoded(0, "JPEG", 40, 30)}], tmp_path / "out", {"image": "image"}, fps=5)


# ---- Time stamps ------------------------------------------------------------------------------------

UNEVEN = (0.0, 0.07, 0.3, 0.31, 0.9, 1.0)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_variable_rate_is_no_matter(tmp_path: Path, version: str) -> None:
    made = Made(version=version, lengths=(4, 6, 3), times={1: UNEVEN}, gop=2)
    root = make_set(tmp_path / "set", made)
    dataset, rows = packed(root, tmp_path / "out"), rows_of(root, made)
    assert len(dataset) == len(rows) == 13
    for i, row in enumerate(rows):
        assert dataset.value_bytes(TOP, i) == jpeg(row.pictures[TOP])


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("times", "lost", "words"),
    [
        ([i / 10 + 0.03 for i in range(6)], [*range(6)], r"no frame has it, the nearest is at \d\.\d30000 s"),
        ([0.0, 0.1, 0.2, 0.4, 0.5], [3], r"no frame has it, the nearest is at \d\.\d00000 s"),
        ([0.0, 0.1, 0.2, 0.3], [4, 5], r"no frame has it, the nearest is at \d\.\d00000 s"),
        ([0.0, 0.1, 0.2, 0.2 + 5 / 90000, 0.3, 0.4, 0.5], [2], r"several frames have it: .* and "),
    ],
    ids=["shifted", "missing", "short", "twice"],
)
def test_rows_without_a_frame_of_their_own(
    tmp_path: Path, version: str, times: list[float], lost: list[int], words: str
) -> None:
    """The other rows are packed if bad ones are to be skipped; otherwise the message names the first."""
    root = changed(tmp_path, version=version, lengths=(4, 6), per_file=1, shown={(TOP, 1): times})
    seconds = lost[0] / 10
    text = (
        rf"episode 1, frame {lost[0]}: observation\.images\.top: videos/\S+\.mp4 has no picture for the "
        rf"row's time stamp {seconds:.6f} s, which is {seconds:.6f} s of the file: {words}"
    )
    with pytest.raises(PackError, match=text):
        fastload.pack(root, tmp_path / "out")
    fastload.pack(root, tmp_path / "out", on_error="skip", restart=True)
    assert list(skipped(tmp_path / "out")) == [f"episode_000001/{row:06d}" for row in lost]
    assert len(PackedDataset(tmp_path / "out")) == 10 - len(lost)


def test_rows_missing_inside_episodes_are_said(tmp_path: Path) -> None:
    """Those at its ends leave no gap."""
    regular = [i / 10 for i in range(9)]
    shown = {
        (TOP, 0): regular[2:],
        (TOP, 1): [*regular[1:3], *regular[4:6], *regular[7:8]],
        (TOP, 2): [*regular[:4], *regular[5:]],
    }
    root = changed(tmp_path, lengths=(9, 9, 9), per_file=1, shown=shown)
    [result] = fastload.pack(root, tmp_path / "out", on_error="skip")
    assert result.manifest.skipped == 2 + 4 + 1
    assert "3 rows are missing inside 2 episodes: windows counted in rows reach over them" in result.notes
    [result] = fastload.pack(root, tmp_path / "some", on_error="skip", fps=5)
    assert "1 row is missing inside 1 episode: windows counted in rows reach over them" in result.notes
    [result] = fastload.pack(root, tmp_path / "ends", on_error="skip", limit=9)
    assert not any("missing inside" in note for note in result.notes)


def test_the_tolerance_is_lerobots_own(tmp_path: Path) -> None:
    near, far = ([0.0, *(i / 10 + ticks / 90000 for i in range(1, 4))] for ticks in (8, 10))
    assert near[1] < 0.1 + videos.TOLERANCE < far[1]
    assert len(packed(changed(tmp_path, lengths=(4,), shown={(TOP, 0): near}), tmp_path / "near")) == 4
    with pytest.raises(PackError, match="3 rows cannot be packed"):
        fastload.pack(changed(tmp_path, lengths=(4,), shown={(TOP, 0): far}), tmp_path / "far")


def test_the_tolerance_of_late_rows_is_float32s_spacing(tmp_path: Path) -> None:
    """After 3000 seconds that is 0.244 ms: a row's time stamp has no more digits."""
    times = (0.0, 3000.5)
    for off, fits in ((2e-4, True), (3e-4, False)):
        shown = {(TOP, 0): [0.0, 3000.5 + off]}
        root = changed(tmp_path, lengths=(2,), times={0: times}, shown=shown)
        if fits:
            assert len(packed(root, tmp_path / "fits")) == 2
        else:
            with pytest.raises(PackError, match="1 row cannot be packed"):
                fastload.pack(root, tmp_path / "misfits")


def drawn(rng: random.Random) -> Made:
    """A set of episodes, files, rates and key frames of any length; often its frames do not fit its rows."""
    lengths = [rng.randint(1, 9) for _ in range(rng.randint(1, 4))]
    cameras = rng.sample([*SIZES], rng.randint(1, 2))
    made = Made(
        version=rng.choice(VERSIONS), lengths=lengths, fps=rng.choice((4, 10, 30)), gop=rng.randint(1, 6),
        per_file=rng.randint(1, 3), sizes={name: SIZES[name] for name in cameras}, bare=rng.random() < 0.5,
    )  # fmt: skip
    for episode, length in enumerate(lengths):
        if rng.random() < 0.3:
            made.times[episode] = sorted(rng.sample(range(100), length))  # type: ignore[index]
        for camera in cameras:
            if rng.random() < 0.5:
                times = [
                    max(0.0, at + rng.choice((0, 0, 0, 5e-5, -5e-5, 0.004))) for at in made.seconds(episode)
                ]
                times = [at for at in times if rng.random() < 0.9] or [0.0]
                times += [at + 5 / 90000 for at in times if rng.random() < 0.1]
                ticks = sorted({round(at * 90000) for at in times})
                made.shown[camera, episode] = [at / 90000 for at in ticks]  # type: ignore[index]
    return made


def test_any_set_is_packed_as_the_slow_way_finds_its_frames(tmp_path: Path) -> None:
    """The slow way decodes every video whole, and compares each row's time with all of its frames."""
    rng = random.Random(SEED)
    lost = kept = 0
    for case in range(how_many(12, 1500)):
        made = drawn(rng)
        root, output = make_set(tmp_path / "set", made), tmp_path / f"packed {case}"
        step = rng.choice((1, 2))
        rows = [row for row in rows_of(root, made) if row.values["frame_index"] % step == 0]
        good = [row for row in rows if all(pixels is not None for pixels in row.pictures.values())]
        bad = {row.key for row in rows} - {row.key for row in good}
        lost, kept = lost + len(bad), kept + len(good)
        options: dict[str, Any] = {"shard_size": rng.randint(4096, 20000), "fps": made.fps / step}
        words = as_drawn((case, made, step))
        if not good:
            with pytest.raises(PackError, match=f"none of {len(bad)} samples can be packed"):
                fastload.pack(root, output, on_error="skip", **options)
            continue
        dataset = packed(root, output, on_error="skip", **options)
        assert [dataset.key(i) for i in range(len(dataset))] == [row.key for row in good], words
        assert set(skipped(output) if bad else ()) == bad, words
        for i, row in enumerate(good):
            for camera, pixels in row.pictures.items():
                assert pixels is not None
                assert dataset.value_bytes(camera, i) == jpeg(pixels), words
    assert lost > 0
    assert kept > lost


# ---- Sizes ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shape", "names", "fits"),
    [
        ([48, 64, 3], ["height", "width", "channels"], True),
        ([48, 64, 1], ["height", "width", "channels"], True),
        ([3, 48, 64], ["channels", "height", "width"], True),
        ([64, 48, 3], ["width", "height", "channel"], True),
        ([3, 48, 64], None, True),
        ([48, 64, 3], None, True),
        ([64, 48, 3], ["height", "width", "channels"], False),
        ([48, 64, 3], ["width", "height", "channels"], False),
        ([3, 96, 128], ["c", "h", "w"], False),
        ([48, 64, 4], ["height", "width", "channels"], False),
        ([64, 48, 3], None, False),
    ],
)
def test_frames_of_another_size_are_refused(
    tmp_path: Path, shape: list[int], names: list[str] | None, fits: bool
) -> None:
    root = changed(tmp_path)
    path = root / "meta" / "info.json"
    info = json.loads(path.read_text())
    info["features"][TOP] |= {"shape": shape, "names": names}
    path.write_text(json.dumps(info))
    if fits:
        assert len(packed(root, tmp_path / "out")) == 10
        return
    shown = re.escape(str(shape) + (f" ({', '.join(names)})" if names else ""))
    words = r"episode 0, frame 0: .*\.mp4 has pictures of height 48, width 64 and 3 channels"
    with pytest.raises(PackError, match=rf"{words}, and meta/info\.json says shape {shown}\."):
        fastload.pack(root, tmp_path / "out")


# ---- Damage -----------------------------------------------------------------------------------------


def gone(path: Path) -> None:
    path.unlink()


def emptied(path: Path) -> None:
    path.write_bytes(b"")


def foreign(path: Path) -> None:
    path.write_bytes(b"no video" * 999)


def cut_in_the_middle(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: len(data) * 3 // 4])


def scribbled(path: Path) -> None:
    """Damage that H.264 notices. MP4 has no checksums: other bytes are other pixels."""
    data = bytearray(path.read_bytes())
    at = data.index(b"mdat") + (len(data) - data.index(b"mdat")) * 4 // 10
    data[at : at + 20] = b"\xff" * 20
    path.write_bytes(data)


@pytest.mark.parametrize("damage", [gone, emptied, foreign, cut_in_the_middle, scribbled])
@pytest.mark.parametrize("version", VERSIONS)
def test_damaged_videos(tmp_path: Path, version: str, damage: Callable[[Path], None]) -> None:
    """Rows of other episodes, and those whose frames decode, are packed as of a whole set."""
    root = changed(tmp_path, version=version, lengths=(4, 12, 3), per_file=1, gop=4)
    whole = packed(root, tmp_path / "whole")
    pictures = {whole.key(i): whole.value_bytes(TOP, i) for i in range(len(whole))}
    damage(sorted((root / "videos").rglob("*.mp4"))[1])
    words = r"episode 1, frame \d+: observation\.images\.top: videos/\S+ has no"
    words = (
        r"mp4 is not there\. It has 'observation\.images\.top' of episode 1\." if damage is gone else words
    )
    with pytest.raises(PackError, match=words):
        fastload.pack(root, tmp_path / "out")
    dataset = packed(root, tmp_path / "out", on_error="skip", restart=True)
    lost = set(skipped(tmp_path / "out"))
    assert {key.split("/")[0] for key in lost} == {"episode_000001"}
    assert {dataset.key(i) for i in range(len(dataset))} == pictures.keys() - lost
    for i in range(len(dataset)):
        assert dataset.value_bytes(TOP, i) == pictures[dataset.key(i)]
    if damage in (cut_in_the_middle, scribbled):
        assert len(lost) < 12


def test_depth_maps_are_refused(tmp_path: Path) -> None:
    root = make_set(tmp_path / "set", Made(lengths=(3,)))
    path = root / "meta" / "info.json"
    info = json.loads(path.read_text())
    info["features"][WRIST]["info"]["video.is_depth_map"] = True
    path.write_text(json.dumps(info))
    with pytest.raises(PackError, match=rf"'{WRIST}' is a video of depth maps, .*--field {WRIST}=none"):
        fastload.pack(root, tmp_path / "out")
    assert WRIST not in packed(root, tmp_path / "out", fields={WRIST: "none"}).schema.names


def test_deep_gray_is_refused_and_plain_gray_is_gray(tmp_path: Path) -> None:
    deep = changed(tmp_path, lengths=(3,), codec="ffv1", pixels="gray16le")
    with pytest.raises(PackError, match=r"its pixels are gray16le, as of depth maps"):
        fastload.pack(deep, tmp_path / "deep")
    info = deep / "meta" / "info.json"
    info.write_text(info.read_text().replace("gray16le", "yuv420p"))
    with pytest.raises(PackError, match=r"episode 0, frame 0: .*: its pixels are gray16le, as of depth maps"):
        fastload.pack(deep, tmp_path / "deep")
    dataset = packed(changed(tmp_path, lengths=(3,), codec="ffv1", pixels="gray"), tmp_path / "gray")
    for i in range(3):
        pixels = decoded(dataset.value_bytes(TOP, i))
        assert (pixels.max(2) - pixels.min(2)).max() <= 1


# ---- Where from and where to ------------------------------------------------------------------------


def test_detection(root: Path, tmp_path: Path) -> None:
    assert packed(root, tmp_path / "found").id == packed(root, tmp_path / "said", as_="lerobot").id
    (tmp_path / "other").mkdir()
    with pytest.raises(
        PackError, match=r"has no meta/info\.json with a codebase_version, as a LeRobot set has"
    ):
        fastload.pack(tmp_path / "other", tmp_path / "out", as_="lerobot")
    with pytest.raises(PackError, match=r"nowhere does not exist\."):
        fastload.pack(tmp_path / "nowhere", tmp_path / "out", as_="lerobot")


def test_into_a_store(root: Path, made: Made, tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    url = f"file://{tmp_path}/store/set"
    fastload.pack(root, url)
    assert snapshot(tmp_path / "store" / "set" / "meta") == snapshot(root / "meta")
    unpack(url, tmp_path / "files")
    assert snapshot(tmp_path / "files" / "meta") == snapshot(root / "meta")
    assert len(PackedDataset(url)) == sum(LENGTHS)
    fastload.pack(root, url, restart=True, fps=5)
    assert (tmp_path / "store" / "set" / "meta" / "info.source.json").exists()


@pytest.mark.parametrize("how", [None, "lerobot"])
def test_a_set_in_a_store_is_refused(root: Path, tmp_path: Path, how: str | None) -> None:
    with pytest.raises(PackError, match=r"is a LeRobot set in a store\. .*copy the set to this machine"):
        fastload.pack(f"file://{root}", tmp_path / "out", as_=how)


def test_nothing_is_appended(root: Path, tmp_path: Path) -> None:
    fastload.pack(root, tmp_path / "set")
    with pytest.raises(PackError, match=r"is a LeRobot set, whose meta/ counts its episodes and rows"):
        fastload.pack(root, tmp_path / "set", append=True)
    rows = [{"image": encoded(0, "JPEG", 40, 30)}]
    fastload.pack(rows, tmp_path / "other", {"image": "image"})
    with pytest.raises(PackError, match="is a LeRobot set"):
        fastload.pack(root, tmp_path / "other", append=True)


def test_a_dry_run_says_what_it_would_be(root: Path, tmp_path: Path) -> None:
    [run] = fastload.pack(root, tmp_path / "set", dry_run=True)
    assert run.records == sum(LENGTHS)
    assert any(note.startswith("videos ") for note in run.notes)
    assert not (tmp_path / "set").exists()


# ---- Going on ---------------------------------------------------------------------------------------


def test_processes_and_shares_give_the_same_bytes(root: Path, tmp_path: Path) -> None:
    options: dict[str, Any] = {"shard_size": 8000}
    fastload.pack(root, tmp_path / "one" / "set", **options)
    expected = snapshot(tmp_path / "one" / "set")
    assert sum(name.endswith(".arrow") for name in expected) >= 4
    fastload.pack(root, tmp_path / "two" / "set", num_proc=2, **options)
    assert snapshot(tmp_path / "two" / "set") == expected
    output = tmp_path / "shared" / "set"
    plan = fastload.pack(root, output, plan_only=True, **options)
    assert plan.files == sum(LENGTHS)
    for share in ("1/2", "0/2"):
        fastload.pack(root, output, shards=share, **options)
    fastload.pack(root, output, publish=True, **options)
    assert snapshot(output) == expected


def stopped_after(shards: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the next packs fail after some shards."""
    made = LeRobotRows.batches
    count = 0

    def batches(self: LeRobotRows, start: int, stop: int | None, *more: Any) -> Any:
        nonlocal count
        if stop is not None:
            count += 1
            if count > shards:
                raise PackError("stopped")
        return made(self, start, stop, *more)

    monkeypatch.setattr(LeRobotRows, "batches", batches)


def test_a_pack_goes_on_only_as_it_began(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options: dict[str, Any] = {"shard_size": 8000}
    whole = packed(root, tmp_path / "whole" / "set", **options)
    output = tmp_path / "out" / "set"
    with monkeypatch.context() as patch:
        stopped_after(2, patch)
        with pytest.raises(PackError, match="stopped"):
            fastload.pack(root, output, **options)
    assert not (output / "dataset.json").exists()
    with pytest.raises(PackError, match=r"other options or another decoder: quality was 90, now 80\."):
        fastload.pack(root, output, quality=80, **options)
    with monkeypatch.context() as patch:
        patch.setattr("fastload.packing.lerobot_rows.chosen_decoder", lambda: videos.Decoder("PyAV", "1.0"))
        with pytest.raises(PackError, match=r"another decoder: decoder was PyAV \S+, now PyAV 1\.0\."):
            fastload.pack(root, output, **options)
    fastload.pack(root, output, **options)
    assert snapshot(output) == snapshot(Path(whole.where))
    with monkeypatch.context() as patch:  # of a complete set another decoder is no matter, another rate is
        patch.setattr("fastload.packing.lerobot_rows.chosen_decoder", lambda: videos.Decoder("PyAV", "1.0"))
        [result] = fastload.pack(root, output, **options)
        assert result.was_complete
    with pytest.raises(PackError, match=r"packed_fps was 10\.0, now 5\.0"):
        fastload.pack(root, output, fps=5, **options)


def test_a_video_that_changes_between_two_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also one that keeps its size, and is older than the other files then."""
    root = changed(tmp_path, lengths=(6, 6), per_file=1)
    for name, moved in ("old", -(10**10)), ("new", 10**10):
        with monkeypatch.context() as patch:
            stopped_after(1, patch)
            with pytest.raises(PackError, match="stopped"):
                fastload.pack(root, tmp_path / name, shard_size=4096)
        video = sorted((root / "videos").rglob("*.mp4"))[1]
        video.write_bytes(bytes(len(video.read_bytes())))
        status = video.stat()
        os.utime(video, ns=(status.st_atime_ns, status.st_mtime_ns + moved))
        with pytest.raises(
            PackError, match=r"the first difference is at videos/\S+/file-001\.mp4 \(\d+ bytes, mod"
        ):
            fastload.pack(root, tmp_path / name, shard_size=4096)
        root = changed(tmp_path, lengths=(6, 6), per_file=1)


def test_killed_around_every_change_on_disk(tmp_path: Path) -> None:
    """Each time the same pack goes on, and gives the same bytes, with ``meta/``."""
    root = make_set(tmp_path / "set", Made(sizes={TOP: (160, 120)}, lengths=(3, 5), bare=True))
    driver = Path(__file__).with_name("kill_driver.py")
    done = subprocess.run(
        [sys.executable, driver, root, tmp_path, "arrow"],
        env=environment(), capture_output=True, text=True, check=True,
    )  # fmt: skip
    result = json.loads(done.stdout)
    assert result["points"] > 30
    assert (result["early"], result["failures"]) == (0, [])


def test_memory_does_not_grow_with_the_set(tmp_path: Path) -> None:
    """What is in memory at a time is a batch, of 16 MB at most, and a few frames."""

    def peak(length: int) -> int:
        size = {TOP: (320, 240)}
        root = make_set(tmp_path / "set", Made(sizes=size, lengths=(length,), version="v2.1"))
        [(_, rows)] = open_lerobot(root, PackOptions(raw=True))
        tracemalloc.start()
        try:
            count = sum(len(batch.keys) for batch in rows.batches(0, None, PackOptions(raw=True), None))
            assert count == length
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    most = peak(320)
    assert 320 * 320 * 240 * 3 > 70_000_000  # all rows
    assert most < 3 * 16_000_000 + 8_000_000  # the values, their chunk, and the next one


# ---- Decoders ---------------------------------------------------------------------------------------


@pytest.mark.usefixtures("torchcodec")
def test_torchcodec_where_there_is_no_pyav(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = Made(lengths=(4, 6, 3), times={1: UNEVEN}, gop=2)
    root = make_set(tmp_path / "set", made)
    dataset, rows = packed(root, tmp_path / "out"), rows_of(root, made)
    assert dataset.manifest.options["lerobot"]["decoder"] == "torchcodec 9.0"
    words = "(PyAV is not installed: damage inside a video is not noticed)"
    assert capsys.readouterr().err.count(f"videos decoded by torchcodec 9.0 {words}") == 1
    assert len(dataset) == len(rows) == 13
    for i, row in enumerate(rows):
        assert dataset.value_bytes(TOP, i) == jpeg(row.pictures[TOP])


@pytest.mark.usefixtures("torchcodec")
@pytest.mark.parametrize(
    ("times", "lost"), [([i / 10 + 0.03 for i in range(6)], [*range(6)]), ([0.0, 0.1, 0.2, 0.4, 0.5], [3])]
)
def test_torchcodec_finds_no_other_frames(tmp_path: Path, times: list[float], lost: list[int]) -> None:
    root = changed(tmp_path, lengths=(4, 6), per_file=1, shown={(TOP, 1): times})
    fastload.pack(root, tmp_path / "out", on_error="skip")
    found = skipped(tmp_path / "out")
    assert list(found) == [f"episode_000001/{row:06d}" for row in lost]
    assert all("no frame has it, the nearest is at " in reason for reason in found.values())


def test_a_decoder_that_is_gone_stops_the_pack(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even where bad rows are to be skipped: they are not bad."""
    monkeypatch.setattr(
        "fastload.packing.lerobot_rows.chosen_decoder", lambda: videos.Decoder("torchcodec", "1.0")
    )
    with pytest.raises(LibraryMissing, match="packing videos needs torchcodec, which cannot be imported"):
        fastload.pack(root, tmp_path / "out", on_error="skip")
