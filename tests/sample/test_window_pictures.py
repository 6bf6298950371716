"""Pictures of windows: which draws they share, what transforms and devices get, and what is refused."""

from __future__ import annotations

import os
import random
import statistics
import time
import warnings
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from cache_folder import memory_folder
from decode_png_writer import write_png
from simulated_gpu import SimulatedGpu

import fastload
from fastload import Fields, Windows
from fastload import transforms as T
from fastload.backends import choice
from fastload.errors import FormatError, SampleError

NIGHTLY = bool(os.environ.get("FASTLOAD_NIGHTLY"))
HEIGHT, WIDTH = 40, 56
SCHEMA = {
    "front": "image",
    "wrist": "image",
    "area": "mask",
    "kind": "label",
    "action": "array(int16, (2,))",
    "reach": "array(float32, (None, 2))",
    "note": "text",
    "episode": "text",
    "stamp": "int64",
}
RUNS = "episode:stamp:stamp@ms"


def ramp(number: int, height: int = HEIGHT, width: int = WIDTH) -> np.ndarray:
    """A picture whose colours say where each pixel was: 4 times its column, 4 times its row, and a number."""
    rows, columns = np.mgrid[:height, :width]
    return np.stack([columns * 4, rows * 4, np.full_like(rows, number)], -1).astype(np.uint8)


def rows_of(stamps: list[list[int]]) -> list[dict[str, Any]]:
    """Rows of runs with these times in milliseconds."""
    rows: list[dict[str, Any]] = []
    for episode, times in enumerate(stamps):
        for stamp in times:
            number = len(rows)
            rows.append(
                {
                    "front": ramp(number),
                    "wrist": ramp(100 + number),
                    "area": np.full((HEIGHT, WIDTH), number, np.uint8),
                    "kind": number % 5,
                    "action": np.array([number, -number], np.int16),
                    "reach": np.zeros((number % 3, 2), np.float32),
                    "note": f"{number}",
                    "episode": f"run {episode}",
                    "stamp": stamp,
                }
            )
    return rows


STEADY = [[100 * frame for frame in range(length)] for length in (6, 9, 4)]


@pytest.fixture(scope="module")
def steady(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("steady") / "set"
    fastload.pack(rows_of(STEADY), folder, schema=SCHEMA, runs=RUNS)
    return folder


def batches(folder: Any, windows: Any, transform: Any, size: int = 5, **more: Any) -> list[Any]:
    options: dict[str, Any] = {"names": ["front", "wrist"], **more.pop("of_fields", {})}
    fields = Fields(windows=windows, **options)
    with fastload.DataLoader(folder, size, transform=transform, fields=fields, seed=4, **more) as loader:
        return list(loader)


# ---- Draws ------------------------------------------------------------------------------------------

WINDOW = {"front": [-1, 0, 1], "wrist": [-2, 0]}
CROP = T.Compose([T.RandomCrop((16, 20)), T.RandomHorizontalFlip()])
COLOURS = T.Compose([T.Resize((16, 20)), T.ColorJitter(0.9, 0.9)])


def places(batch: Any, sample: int) -> list[torch.Tensor]:
    """What says where the pixels of a sample's pictures were: front at each step, then wrist."""
    return [*batch["front"][sample][:, :2], *batch["wrist"][sample][:, :2]]


def test_all_pictures_of_a_sample_have_one_geometry(steady: Path) -> None:
    firsts = []
    for batch in batches(steady, WINDOW, CROP):
        for sample in range(len(batch["front"])):
            first, *others = places(batch, sample)
            assert all(torch.equal(first, other) for other in others)
            firsts.append(tuple(first[:, 0, 0].tolist()))
    assert len(set(firsts)) > 10


def test_the_draws_are_those_of_the_sample_without_windows(steady: Path) -> None:
    windows = {"front": [-1, 0], "wrist": [0]}
    plain = list(fastload.DataLoader(steady, 5, transform=CROP, fields=["front", "wrist"], seed=4))
    assert len(plain) == 4
    for batch, alone in zip(batches(steady, windows, CROP), plain, strict=True):
        assert torch.equal(batch["front"][:, 1], alone["front"])
        assert torch.equal(batch["wrist"][:, 0], alone["wrist"])


@pytest.mark.parametrize("each", ["camera", "frame"])
def test_draws_for_each_camera_or_frame(steady: Path, each: Any) -> None:
    same_frames, same_cameras = [], []
    for batch in batches(steady, WINDOW, T.DrawEach(each, CROP)):
        for sample in range(len(batch["front"])):
            front = batch["front"][sample][:, :2]
            wrist = batch["wrist"][sample][:, :2]
            same_frames.append(all(torch.equal(front[0], one) for one in front))
            same_cameras.append(torch.equal(front[0], wrist[0]))
    assert not all(same_cameras)
    assert all(same_frames) is (each == "camera")
    assert any(not same for same in same_frames) is (each == "frame")


def test_colours_are_drawn_once_a_sample_or_for_each_camera(steady: Path) -> None:
    def changes(transform: Any) -> list[bool]:
        """Whether front and wrist of a sample changed alike, by the channels that are the same in both."""
        found = []
        for batch in batches(steady, {"front": [0, 1], "wrist": [0]}, transform):
            for sample in range(len(batch["front"])):
                one, other = batch["front"][sample], batch["wrist"][sample]
                found.append(abs(float(one[0, :2].float().mean() - other[0, :2].float().mean())) < 40)
        return found

    assert all(changes(COLOURS))
    assert not all(changes(T.DrawEach("camera", COLOURS)))


def test_draws_without_windows_are_for_each_camera(steady: Path) -> None:
    (batch, *_) = batches(steady, None, T.DrawEach("camera", CROP), size=19)
    equal = [
        torch.equal(one[:2], other[:2]) for one, other in zip(batch["front"], batch["wrist"], strict=True)
    ]
    assert not all(equal)


def test_pictures_of_another_shape_are_told_of(tmp_path: Path) -> None:
    rows = [{"front": ramp(0), "wrist": ramp(1, 40, 40), "near": ramp(2, 20, 28)}]
    fastload.pack(rows, tmp_path / "set", schema=dict.fromkeys(rows[0], "image"))
    windows = Windows({"wrist": [0]}, runs="/")
    said = r"'wrist' are stretched.*40 x 40 pixels .*, and 56 x 40 there"
    for transform in (None, T.CenterCrop(16)):
        with pytest.warns(UserWarning, match=said):
            fastload.DataLoader(tmp_path / "set", 1, transform=transform, fields=Fields(windows=windows))
    with pytest.warns(UserWarning, match=said):
        fastload.DataLoader(tmp_path / "set", 1, transform=T.DrawEach("camera", T.RandomCrop(16)))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        whole = T.Compose([T.Resize((16, 16)), T.RandomHorizontalFlip()])
        fastload.DataLoader(tmp_path / "set", 1, transform=whole, fields=Fields(windows=windows))
        near = Fields(["front", "near"], windows=replace(windows, offsets={"near": [0]}))
        fastload.DataLoader(tmp_path / "set", 1, fields=near)


# ---- Sharing ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("transform", [T.Resize((16, 20)), CROP], ids=["fixed", "drawn"])
def test_a_shared_record_is_decoded_once(steady: Path, transform: Any) -> None:
    fields = Fields(names=["front"], windows={"front": [-1, 0, 1, 2]})
    with fastload.DataLoader(steady, 19, transform=transform, fields=fields, seed=4) as loader:
        batch = next(iter(loader))
        assert batch["front"].shape[:2] == (19, 4)
        # 19 samples with four pictures each, from 19 records. Batches are in work ahead: they end soon.
        for _ in range(200):
            stats = loader.stats()
            decoded, again = sum(stats["decoded"].values()), stats["kept"]["used_again"]
            if decoded % 19 == 0 and again == 3 * decoded:
                break
            time.sleep(0.05)
    assert decoded >= 19
    assert (decoded % 19, again) == (0, 3 * decoded)


# ---- Other kinds of fields --------------------------------------------------------------------------


def test_masks_labels_and_integers_have_windows(steady: Path) -> None:
    windows = {"area": [-1, 0], "kind": [0, 1], "action": [2, -2]}
    names = ["front", "area", "kind", "action", "reach", "note"]
    seen = 0
    for batch in batches(steady, windows, T.Resize((16, 20)), of_fields={"names": names}):
        numbers = [int(note) for note in batch["note"]]
        for at, number in enumerate(numbers):
            run = next(one for one in (range(6), range(6, 15), range(15, 19)) if number in one)

            def there(offset: int, number: int = number, run: range = run) -> int:
                return min(max(number + offset, run[0]), run[-1])

            assert batch["area"][at].flatten(1).unique(dim=1).flatten().tolist() == [there(-1), number]
            assert batch["kind"][at].tolist() == [number % 5, there(1) % 5]
            assert batch["action"][at].tolist() == [[there(2), -there(2)], [there(-2), -there(-2)]]
            assert len(batch["reach"][at]) == number % 3
            seen += 1
    assert seen == 19


# ---- Time -------------------------------------------------------------------------------------------


def row_at(
    run: list[float], own: int, offset: float, tolerance: float, beyond: float
) -> tuple[int, bool, bool]:
    """The row nearest to a time (of two, the earlier), whether it stands for one behind the ends of the run,
    and whether none fits."""
    wanted = run[own] + offset
    nearest = min(range(len(run)), key=lambda at: (round(abs(run[at] - wanted), 9), at))
    pad = wanted < run[0] - beyond - 2e-9 or wanted > run[-1] + beyond + 2e-9
    return nearest, pad, not pad and abs(run[nearest] - wanted) > tolerance + 1e-9


def drawn_runs(draw: random.Random) -> list[list[int]]:
    """Times of runs in milliseconds: steady, drifting, with gaps, or without any rule."""
    runs = []
    for _ in range(draw.randint(1, 4)):
        step, kind = draw.choice([33, 40, 100]), draw.choice(["steady", "drift", "gaps", "free"])
        at, times = draw.randint(0, 10**6), []
        for _ in range(draw.randint(1, 25)):
            times.append(at)
            at += step
            if kind == "drift":
                at += draw.choice([0, 0, 1])
            elif kind == "gaps" and draw.random() < 0.2:
                at += step * draw.randint(1, 5)
            elif kind == "free":
                at += draw.randint(-step // 2, 3 * step)
        runs.append(times)
    return runs


@pytest.mark.parametrize("seed", range(200 if NIGHTLY else 15))
def test_rows_are_found_by_their_time(tmp_path: Path, seed: int) -> None:
    draw = random.Random(seed)
    stamps = drawn_runs(draw)
    rows = [
        {"number": float(number), "episode": episode, "stamp": stamp}
        for number, (episode, stamp) in enumerate((at, one) for at, run in enumerate(stamps) for one in run)
    ]
    schema = {"number": "float32", "episode": "int64", "stamp": "int64"}
    fastload.pack(rows, tmp_path / "set", schema=schema, runs=RUNS)
    offsets = [draw.choice([-1.0, -0.1, -0.033, 0.0, 0.04, 0.066, 0.1, 0.4]) for _ in range(4)]
    tolerance = draw.choice([1e-4, 0.004, 0.02, 0.06, 10.0])
    steps = [(after - before) / 1000 for run in stamps for before, after in pairwise(run)]
    beyond = min(tolerance, statistics.median(steps) / 2) if steps else tolerance
    wanted: dict[int, list[tuple[int, bool, bool]]] = {}
    for run in stamps:
        seconds, base = [stamp / 1000 for stamp in run], len(wanted)
        for own in range(len(run)):
            found = [row_at(seconds, own, offset, tolerance, beyond) for offset in offsets]
            wanted[len(wanted)] = [(base + row, pad, missing) for row, pad, missing in found]
    refused = any(missing for one in wanted.values() for _, _, missing in one)
    windows = Windows({"number": offsets}, tolerance=tolerance)
    if refused:
        with pytest.raises((FormatError, ValueError), match="no row"):
            fastload.DataLoader(tmp_path / "set", 7, fields=Fields(windows=windows))
        # A steady rate is refused for all; without one, windows that are not whole may be left out.
        windows = replace(windows, drop_short=True)
        wanted = {own: one for own, one in wanted.items() if not any(pad or miss for _, pad, miss in one)}
    try:
        loader = fastload.DataLoader(tmp_path / "set", 7, fields=Fields(windows=windows))
    except ValueError as error:
        if "no row of" not in str(error) and (wanted or "whole window" not in str(error)):
            raise
        return
    seen = 0
    for batch in loader:
        for number, pads in zip(batch["number"].tolist(), batch["number_is_pad"].tolist(), strict=True):
            own = sorted(wanted)[seen]
            assert list(zip(number, pads, strict=True)) == [(row, pad) for row, pad, _ in wanted[own]]
            seen += 1
    assert seen == len(wanted)


def test_errors_do_not_add_up_over_rows(tmp_path: Path) -> None:
    """A clock that is off by less than the tolerance from row to row is off by seconds in the end."""
    rows = [
        {"number": float(row), "episode": 0, "stamp": row / 30 + (9e-5 * row if row < 1500 else 0.135)}
        for row in range(3000)
    ]
    schema = {"number": "float32", "episode": "int64", "stamp": "float64"}
    fastload.pack(rows, tmp_path / "set", schema=schema, runs="episode:stamp:stamp")
    with pytest.raises(FormatError, match="has no row at 10.0 s"):
        fastload.DataLoader(tmp_path / "set", 7, fields=Fields(windows={"number": [10.0]}))


def test_a_missing_frame_is_an_error_that_names_it(tmp_path: Path) -> None:
    fastload.pack(rows_of([[0, 100, 205, 290, 400]]), tmp_path / "set", schema=SCHEMA, runs=RUNS)
    windows = Windows({"action": [0.1]}, tolerance=0.012)
    with pytest.raises(FormatError, match=r"episode 'run 0', stamp 205 \(0.205 s\) has no row at 0.1 s"):
        batches(tmp_path / "set", windows, None, of_fields={"names": ["action"]})


def test_padding_by_time(tmp_path: Path) -> None:
    stamps = [[0, 90, 200, 310]]  # not steady to a tenth of a millisecond
    fastload.pack(rows_of(stamps), tmp_path / "set", schema=SCHEMA, runs=RUNS)
    windows = Windows({"action": [-0.1, 0.0, 0.1]}, tolerance=0.02)
    (batch,) = batches(tmp_path / "set", windows, None, of_fields={"names": ["action"]})
    assert batch["action"][..., 0].tolist() == [[0, 0, 1], [0, 1, 2], [1, 2, 3], [2, 3, 3]]
    assert batch["action_is_pad"].tolist() == [
        [True, False, False],
        [False, False, False],
        [False, False, False],
        [False, False, True],
    ]


def test_an_offset_between_two_rows_is_an_error(steady: Path) -> None:
    with pytest.raises(ValueError, match=r"no row of .* lies 0.15 s from another.*0.1 and 0.2"):
        batches(steady, {"front": [0.15]}, T.Resize((8, 8)))
    assert batches(steady, Windows({"front": [0.15]}, tolerance=0.06), T.Resize((8, 8)))


def test_seconds_need_a_time(tmp_path: Path) -> None:
    fastload.pack(rows_of(STEADY), tmp_path / "set", schema=SCHEMA, runs="episode:stamp")
    with pytest.raises(ValueError, match="offsets in seconds, and the runs of .* have no time"):
        batches(tmp_path / "set", {"front": [0.1]}, T.Resize((8, 8)))
    assert batches(tmp_path / "set", {"front": [1]}, T.Resize((8, 8)))
    named = Windows({"front": [0.1]}, runs=RUNS)
    assert batches(tmp_path / "set", named, T.Resize((8, 8)))


def test_a_set_without_runs_is_an_error_that_says_how(tmp_path: Path) -> None:
    fastload.pack(rows_of(STEADY), tmp_path / "set", schema=SCHEMA)
    with pytest.raises(ValueError, match="--runs"):
        batches(tmp_path / "set", {"front": [0]}, T.Resize((8, 8)))


# ---- Bad samples ------------------------------------------------------------------------------------


def png_of(pixels: np.ndarray) -> bytes:
    height, width, _ = pixels.shape
    return write_png(pixels.reshape(height, width, 3), 8, 2)


@pytest.fixture
def damaged(tmp_path: Path) -> Path:
    """A set whose sample 8 has a picture that cannot be decoded, of the camera at the wrist."""
    rows = rows_of(STEADY)
    file = bytearray(png_of(rows[8]["wrist"]))
    file[60:100] = bytes(40)
    rows[8]["wrist"] = bytes(file)
    folder = tmp_path / "set"
    fastload.pack(rows, folder, schema=SCHEMA, runs=RUNS)
    return folder


def test_a_bad_frame_makes_the_samples_bad_that_have_it(damaged: Path) -> None:
    windows = {"wrist": [-1, 0]}
    with pytest.raises(SampleError, match="Sample 8"):
        batches(damaged, windows, T.Resize((16, 20)), 4)
    fields = Fields(["wrist"], windows=windows)
    loader = fastload.DataLoader(damaged, 4, transform=T.Resize((16, 20)), fields=fields, on_error="skip")
    valid = torch.cat([batch["valid"] for batch in loader])
    assert (~valid).nonzero().flatten().tolist() == [8, 9]
    assert "its frame of sample 8 (step 0)" in str(loader.errors[-1])
    for batch in batches(damaged, windows, T.Resize((16, 20)), 4, on_error="replace"):
        assert batch["valid"].all()
        assert (batch["wrist"][:, 1, 2] >= 100).all()


# ---- Devices, callables, caches ---------------------------------------------------------------------


@pytest.mark.parametrize("transform", [T.Normalize((0.4, 0.5, 0.6), (0.2, 0.3, 0.25)), None], ids=str)
@pytest.mark.parametrize("memory", ["fresh", "reuse"])
def test_batches_on_a_device_are_those_of_the_host(
    steady: Path, monkeypatch: pytest.MonkeyPatch, transform: Any, memory: Any
) -> None:
    gpu = SimulatedGpu(2, 0.2)
    chain = T.Compose([T.RandomCrop((16, 20)), *([transform] if transform else [])])
    host = batches(steady, WINDOW, chain, shuffle=True)
    assert len(host) == 4
    monkeypatch.setattr(choice, "find_gpu", lambda device: None if device is None else gpu)
    monkeypatch.setattr(choice, "goes_to_gpu", lambda device: device is not None)
    fields = Fields(names=["front", "wrist"], windows=WINDOW)
    loader = fastload.DataLoader(
        steady, 5, transform=chain, fields=fields, seed=4, shuffle=True,
        device=fastload.Device("cuda", memory=memory),
    )  # fmt: skip
    with loader:
        for batch, alone in zip(loader, host, strict=True):
            gpu.finish(gpu.current)
            assert set(batch) == set(alone)
            for name, value in alone.items():
                assert torch.allclose(batch[name], value, atol=1e-6), name
                assert batch[name].shape == value.shape


def whole_sample(sample: dict[str, Any]) -> dict[str, Any]:
    return {**sample, "front": sample["front"].float().mean((-2, -1))}


def first_of(samples: list[dict[str, Any]]) -> Any:
    return torch.stack([sample["wrist"][-1] for sample in samples]), [sample["valid"] for sample in samples]


def test_callables_get_tensors_with_the_steps(steady: Path) -> None:
    chain = T.Compose([T.Resize((16, 20)), whole_sample])
    plain = batches(steady, WINDOW, T.Resize((16, 20)))
    assert len(plain) == 4
    for batch, alone in zip(batches(steady, WINDOW, chain), plain, strict=True):
        assert torch.equal(batch["front"], alone["front"].float().mean((-2, -1)))
        assert torch.equal(batch["wrist"], alone["wrist"])
        assert torch.equal(batch["front_is_pad"], alone["front_is_pad"])
    collated = batches(steady, WINDOW, T.Resize((16, 20)), collate_fn=first_of)
    for (wrist, valid), alone in zip(collated, plain, strict=True):
        assert torch.equal(wrist, alone["wrist"][:, -1])
        assert all(valid)


@pytest.mark.parametrize("decoded", [None, 24])
def test_caches_give_the_same_windows(steady: Path, tmp_path: Path, decoded: int | None) -> None:
    chain = T.Resize((16, 20))
    with memory_folder(tmp_path) as opened:
        cache = fastload.Cache("20MB", folder=opened.path, decoded=decoded)
        first, again = (batches(steady, WINDOW, chain, cache=cache) for _ in range(2))
        plain = list(fastload.DataLoader(steady, 5, transform=chain, fields=["front", "wrist"], cache=cache))
    for one, other, alone in zip(first, again, plain, strict=True):
        for name in ("front", "wrist", "front_is_pad"):
            assert torch.equal(one[name], other[name])
        assert torch.equal(one["front"][:, 1], alone["front"])
        assert torch.equal(one["wrist"][:, 1], alone["wrist"])


# ---- What is refused --------------------------------------------------------------------------------

Refused = tuple[dict[str, Any], Any, dict[str, Any], str]
REFUSED: dict[str, Refused] = {
    "no such field": ({"nobody": [0]}, None, {}, "windows are of fields that are read"),
    "a field that is not read": (
        {"wrist": [0]}, None, {"of_fields": {"names": ["front"]}}, "windows are of fields that are read",
    ),
    "text": ({"note": [0]}, None, {"of_fields": {"names": None}}, "arrays of a fixed shape"),
    "rows": ({"reach": [0]}, None, {"of_fields": {"names": None}}, "arrays of a fixed shape"),
    "sizes that differ": ({"front": [0]}, T.RandomResize(10, 30), {}, "cannot be stacked"),
    "sizes in a list": ({"front": [0]}, T.Resize(12), {"collate": "pad"}, "of pictures need one size"),
    "mosaic": ({"front": [0]}, T.Mosaic(32), {"of_fields": {"names": ["front"]}}, "Mosaic exclude"),
    "targets": (
        {"front": [0]}, None, {"collate": fastload.Patches("naflex"), "of_fields": {"names": ["front"]}},
        "windows and collate=",
    ),
    "mixup": (
        {"front": [0]}, None,
        {"batch_transform": T.batch.CutMix(9), "of_fields": {"names": ["front", "kind"]}},
        "windows and batch_transform exclude",
    ),
    "blocks of per_run": (
        Windows({"front": [0]}, per_run=2), None, {"shuffle": "block"}, "both give the order",
    ),
    "masks with draws": (
        {"front": [0]}, T.DrawEach("frame", CROP), {"of_fields": {"names": ["front", "area"]}},
        "DrawEach gives each picture",
    ),
    "too many draws": (
        {"front": range(300)}, T.DrawEach("frame", CROP), {}, "at most 256 pictures",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_does_not_go_with_windows_is_an_error(steady: Path, name: str) -> None:
    windows, transform, more, words = REFUSED[name]
    chain = transform if transform is not None else T.Resize((16, 20))
    with pytest.raises((ValueError, TypeError), match=words):
        batches(steady, windows, chain, **more)


@pytest.mark.parametrize(
    ("offsets", "words"),
    [
        ({}, "must be a dict of offsets"),
        ([0, 1], "must be a dict of offsets"),
        ({"a": []}, "0 of them"),
        ({"a": 3}, "a list of offsets"),
        ({"a": "012"}, "a list of offsets"),
        ({"a": [True]}, "Found: True"),
        ({"a": [float("nan")]}, "Found: nan"),
        ({"a": [2**70]}, "legal are"),
        ({"a": [-1e300]}, "legal are"),
        ({"a": {3, -1}}, "a list of offsets"),
        ({"a": np.array(1)}, "a list of offsets"),
        ({"a": range(5000)}, "5000 of them"),
        ({1: [0]}, "by the names of fields"),
    ],
)
def test_offsets_are_checked(offsets: Any, words: str) -> None:
    with pytest.raises((ValueError, TypeError), match=words):
        Fields(windows=offsets)


@pytest.mark.parametrize(
    "more",
    [
        {"stride": 0},
        {"stride": 1.5},
        {"per_run": 0},
        {"tolerance": -1},
        {"tolerance": True},
        {"drop_short": 2},
        {"runs": 3},
    ],
)
def test_settings_are_checked(more: dict[str, Any]) -> None:
    with pytest.raises((ValueError, TypeError), match=f"Windows.{next(iter(more))}"):
        Windows({"a": [0]}, **more)


def test_windows_print_as_they_are_typed() -> None:
    windows = Windows({"a": range(-2, 9, 2), "b": [0.5, -0.1]}, stride=3, runs="x:y")
    assert eval(repr(windows), {"Windows": Windows, "range": range}) == windows
    assert hash(windows) == hash(Windows.of(windows))
    assert Windows({"a": [1]}) != Windows({"a": [1.0]})
    assert windows.steps("a") == (1, 0, 2, 3, 4, 5)
    assert windows.steps("b") == (7, 6)
    assert windows.distinct == (-2, 2, 4, 6, 8, -0.1, 0.5)
