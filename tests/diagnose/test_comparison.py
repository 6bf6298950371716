"""torch's DataLoader and fastload side by side: what is drawn, what is counted, what is printed."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import numpy as np
import pytest
import torch
from annotated_trees import write_yolo
from pack_trees import class_tree, command, encoded, environment, make_tree, snapshot
from pictures import encoded as jpeg
from pictures import picture
from PIL import Image
from process import left_over, settled, tasks

from fastload import PackedDataset
from fastload.cli import main
from fastload.diagnose import comparison
from fastload.diagnose.comparison import Comparison, PictureSample, Side, SideProcess, draw_sample
from fastload.diagnose.comparison_child import SIDE, Steps, random_crop, run
from fastload.errors import PackError, ScriptError
from fastload.machine.cpu import find_budget
from fastload.machine.sizes import counted
from fastload.packing import PackOptions, pack
from fastload.shard.codecs import file_of


def bytes_below(folder: Path) -> list[bytes]:
    return sorted(path.read_bytes() for path in folder.rglob("*") if path.is_file())


def packed_bytes(folder: Path, ids: tuple[int, ...]) -> list[bytes]:
    dataset: PackedDataset[object] = PackedDataset(folder)
    return sorted(file_of(int(dataset.record(sample)["codec"]), dataset.stored(sample)) for sample in ids)


# ---- The sample -------------------------------------------------------------------------------------


def test_a_folders_pictures_are_both_sides_pictures(tmp_path: Path) -> None:
    source = class_tree(tmp_path / "source")
    before = snapshot(source)
    sample = draw_sample(source, tmp_path)
    assert bytes_below(sample.files) == bytes_below(source)
    assert packed_bytes(sample.packed, sample.ids) == bytes_below(source)
    assert (sample.total, sample.left_out, sample.is_own) == (48, 0, False)
    assert sample.codecs == {"JPEG": 24, "PNG": 12, "WebP": 12}
    assert sorted(sample.sizes) == sorted(map(len, before.values()))
    assert snapshot(source) == before


def test_a_large_folder_is_drawn_from_all_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comparison, "_MOST", 32)
    source = make_tree(tmp_path / "source", {f"c/{i:04}.png": encoded(i, "PNG", 4, 4) for i in range(400)})
    sample = draw_sample(source, tmp_path)
    drawn = set(bytes_below(sample.files))
    places = [i for i in range(400) if encoded(i, "PNG", 4, 4) in drawn]
    assert len(places) == 32 == len(sample.ids)
    assert all(any(quarter <= place < quarter + 100 for place in places) for quarter in range(0, 400, 100))
    assert sample.total == 400


@pytest.mark.parametrize("options", [{}, {"coefficients": "fast"}, {"format": "lmdb"}])
def test_a_packed_set_is_read_as_it_is(tmp_path: Path, options: dict[str, str]) -> None:
    source = make_tree(tmp_path / "source", {f"c/{i}.jpg": jpeg(picture(i, 40, 30)) for i in range(12)})
    pack(source, tmp_path / "set", PackOptions(num_proc=1, **options))  # type: ignore[arg-type]
    sample = draw_sample(tmp_path / "set", tmp_path)
    assert (sample.packed, sample.is_own) == (tmp_path / "set", True)
    assert sorted(sample.ids) == list(range(12))
    assert bytes_below(sample.files) == bytes_below(source)


def test_of_an_annotated_set_the_pictures_are_taken(tmp_path: Path) -> None:
    sample = draw_sample(write_yolo(tmp_path / "source", 6), tmp_path)
    assert (sample.split, sample.total) == ("train", 6)
    assert bytes_below(sample.files) == bytes_below(tmp_path / "source" / "images" / "train")
    assert packed_bytes(sample.packed, sample.ids) == bytes_below(sample.files)


def test_the_training_split_is_taken(tmp_path: Path) -> None:
    files = {f"{split}/c/{i}.png": encoded(i, "PNG") for split in ("test", "train", "val") for i in range(3)}
    sample = draw_sample(make_tree(tmp_path / "source", files), tmp_path)
    assert (sample.split, sample.total) == ("train", 3)


def test_what_nobody_can_read_is_left_out(tmp_path: Path) -> None:
    files = {f"c/{i}.jpg": jpeg(picture(i, 40, 30)) for i in range(3)} | {"c/9.jpg": b"no picture"}
    sample = draw_sample(make_tree(tmp_path / "source", files), tmp_path)
    assert (len(sample.ids), sample.total) == (3, 4)
    assert packed_bytes(sample.packed, sample.ids) == bytes_below(sample.files)


def test_one_picture_is_enough(tmp_path: Path) -> None:
    sample = draw_sample(make_tree(tmp_path / "source", {"c/0.jpg": jpeg(picture(0, 40, 30))}), tmp_path)
    with SideProcess("fastload", 1, sample, sorted(os.sched_getaffinity(0))) as process:
        process.run(0.1)
    assert process.side.rates[0] > 0
    assert process.side.memory > 0


def test_pixels_have_no_files_for_torch(tmp_path: Path) -> None:
    pack(class_tree(tmp_path / "source", 1, 4), tmp_path / "set", PackOptions(raw=True, num_proc=1))
    with pytest.raises(PackError, match="decoded pixels.*Give the pictures that it was packed from"):
        draw_sample(tmp_path / "set", tmp_path)


def test_a_source_without_pictures_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(PackError, match="empty"):
        draw_sample(tmp_path / "empty", tmp_path)


# ---- What is counted --------------------------------------------------------------------------------


def test_whole_rounds_are_counted_after_what_was_ready() -> None:
    begun: list[int] = []
    sizes: Iterator[int] = count()  # each batch is as large as its number
    said = run(sizes, workers=3, seconds=0.0, begins=lambda: begun.append(next(sizes)))
    assert begun == [7]  # after two batches of each worker and one more
    assert said["images"] == sum(range(8, 8 + 2 * 3))
    assert said["seconds"] > 0


def test_a_crop_lies_in_its_picture_and_steps_normalise_it() -> None:
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    for width, height in rng.integers(1, 300, (200, 2)).tolist():
        left, top, w, h = random_crop(width, height)
        assert 0 <= left <= left + w <= width
        assert 0 <= top <= top + h <= height
        assert min(w, h) >= 1
    white = Steps()(Image.new("RGB", (50, 40), (255, 255, 255)))
    assert white.shape == (3, SIDE, SIDE)
    expected = [(1 - 0.485) / 0.229, (1 - 0.456) / 0.224, (1 - 0.406) / 0.225]
    assert white.amax((1, 2)).tolist() == pytest.approx(expected)
    assert white.amin((1, 2)).tolist() == pytest.approx(expected)


# ---- The sides --------------------------------------------------------------------------------------


def test_without_cpu_times_the_rates_count() -> None:
    assert Side("torch", 1, rates=[3.0, 4.0], cpu=[0.5, 0.25]).core_rates == [2.0, 4.0]
    assert Side("torch", 1, rates=[3.0, 4.0], cpu=[0.0, 0.25]).core_rates == [3.0, 4.0]


def test_a_picture_that_torch_cannot_decode_is_its_error(tmp_path: Path) -> None:
    files = {f"c/{i}.jpg": jpeg(picture(i, 40, 30))[:-200] for i in range(4)}
    sample = draw_sample(make_tree(tmp_path / "source", files), tmp_path)
    before = tasks()
    with pytest.raises(ScriptError, match="torch's DataLoader failed:(.|\n)*truncated"):
        SideProcess("torch", 1, sample, sorted(os.sched_getaffinity(0))).__enter__()
    assert not left_over(before)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return class_tree(tmp_path / "source", 2, 8)


@pytest.fixture
def place() -> Iterator[Path]:
    """For temporary files. Its path is short: that of a worker's socket may have 107 bytes."""
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


def test_the_command_compares_prints_a_table_and_leaves_nothing_behind(
    source: Path, place: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    before, running = snapshot(source), tasks()
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    monkeypatch.setenv("TMPDIR", str(place))  # of torch's workers
    monkeypatch.setattr(comparison, "ROUNDS", 2)
    assert main(["bench", str(source), "--seconds", "5", "--workers", "1"]) == 0
    out = capfd.readouterr().out.splitlines()
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in out if line.startswith("|")]
    assert [len(row) for row in rows] == [6] * 4
    threads = counted(find_budget(gpus=[]).threads, "thread")
    assert [row[0] for row in rows[2:]] == [
        "torch's DataLoader, Pillow, 1 worker",
        f"fastload, {threads}",
    ]
    for row in rows[2:]:
        rate, least, most = map(float, re.findall(r"[\d.]+", row[1].replace(",", "")))
        assert 0 < least <= rate <= most
        assert row[4].endswith("MB")
    text = "\n".join(out)
    for words in ("16 of 16 in", "8 JPEG", "Not compared:", "Pillow 1", f"`fastload bench {source} --sec"):
        assert words in text
    assert snapshot(source) == before
    assert not left_over(running)
    assert not list(place.iterdir())


def found(sample: PictureSample, *given: object) -> Comparison:
    torchs = Side("torch", 4, 3.0, {"torch": "2.9"}, [100.0, 80.0, 90.0], [0.01, 0.02, 0.03], 5 << 20)
    ours = Side("fastload", 2, 1.0, {"torch": "2.9"}, [300.0, 320.0, 90.0], [0.001, 0.002, 0.003], 0)
    return Comparison(sample, torchs, ours, {2: 70.0, 4: 90.0}, 2)


def test_medians_ratios_and_numbers_of_workers_are_said(
    source: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(comparison, "compare", found)
    assert main(["bench", str(source)]) == 0
    out = capsys.readouterr().out
    for words in (
        "**fastload is 3.0 [1.0-4.0] times as fast as torch's DataLoader on these pictures.**",
        "| torch's DataLoader, Pillow, 4 workers | 90 [80-100] | 3.0 [1.0-4.0] ",
        "| 20.00 [10.00-30.00] | 5.2 MB | 3.0 s |",
        "| fastload, 2 threads | 300 [90-320] |  | 2.00 [1.00-3.00] | not known | 1.0 s |",
        "workers tried: 70 with 2, 90 with 4 (images/s)",
        "as it cannot be imported",
    ):
        assert words in out
    assert main(["bench", str(source), "--json", "--workers", "3"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["ratio"], said["ratios"]) == (3.0, [3.0, 4.0, 1.0])
    assert said["workers_tried"] == {"2": 70.0, "4": 90.0}
    assert said["pictures"]["count"] == 16
    assert said["command"].endswith("--seconds 30 --workers 3")


def test_wrong_usage_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", str(tmp_path), "--seconds", "1"]) == 2
    assert "--seconds must be at least 5. Found: 1." in capsys.readouterr().err
    assert main(["bench", "s3://bucket/set"]) == 2
    assert "Copy some hundred of its pictures here" in capsys.readouterr().err


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
def test_a_comparison_that_is_ended_leaves_no_folder(tmp_path: Path, place: Path, number: int) -> None:
    photos = class_tree(tmp_path / "photos")
    words = command("bench", photos, "--seconds", 60)
    bench = subprocess.Popen(
        words, env=environment(TMPDIR=str(place)), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        # torch's workers, which are killed, have sockets.
        assert settled(lambda: bool([*place.glob("**/listener-*")]), True)
    finally:
        bench.send_signal(number)
        bench.wait()
    assert settled(lambda: os.listdir(place), []) == []
