"""Windows of a batch: each frame is what a batch of that sample alone has, seen as the anchor's view says."""

from __future__ import annotations

import os
import re
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from field_cuts import cut, view_of
from field_jobs import Job, Wanted
from field_sets import RICH, rich_samples, write_field_set
from geometry_uses import center, crop, exact, flip, given, shorter
from pictures import encoded, picture

from fastload._native import _C
from fastload.dataset.decoding import decode_with_pil
from fastload.sample.values import decode
from fastload.shard.dataset import PackedFiles
from fastload.shard.index import RECORD

COUNT = 24
SEED = 5
STILL = given(exact(30, 33), center(16, 20))
SHORT = given(shorter(24), center(16, 20))  # depends on the sides of what it is drawn of
CROP = given(crop(16, 20), flip(0.5))
IDS = {"format": (1, 8, True), "nearest": True, "fill": 255}
COLUMNS = ("pose", "attribute", "boxes")


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> PackedFiles:
    folder = tmp_path_factory.mktemp("sets") / "rich"
    return PackedFiles(write_field_set(folder, RICH, rich_samples(COUNT)))


def image(steps: list[int], **plan: Any) -> Wanted:
    return Wanted({"form": "picture", "steps": steps, **plan}, np.uint8, (3,))


def mask(steps: list[int], **plan: Any) -> Wanted:
    return Wanted({"form": "picture", "part": 1, **IDS, "steps": steps, **plan}, np.uint8, (1,))


def gray(steps: list[int], **plan: Any) -> Wanted:
    gray = {"form": "picture", "part": 2, "format": (1, 8, False), "steps": steps}
    return Wanted({**gray, **plan}, np.uint8, (1,))


def pose(steps: list[int]) -> Wanted:
    return Wanted({"form": "fixed", "width": 24, "part": 0, "steps": steps}, np.float32, (2, 3))


def label(steps: list[int]) -> Wanted:
    return Wanted({"form": "label", "part": _C.INDEX, "steps": steps}, np.int64)


def attribute(steps: list[int]) -> Wanted:
    return Wanted({"form": "label", "part": 1, "steps": steps}, np.int64)


def pad(steps: list[int]) -> Wanted:
    return Wanted({"form": "pad", "steps": steps}, np.uint8)


def job_of(
    files: PackedFiles, fields: dict[str, Wanted], spec: Any = STILL, views: int = 1, **more: Any
) -> Job:
    readers = [_C.Reader(files.reader, files.columns[name]) for name in ("mask", "second")]
    columns = [files.columns[name] for name in COLUMNS]
    threads = more.pop("threads", 2)
    return Job(files.sources, [(readers, columns)], [(spec, 20, 16)] * views, fields, SEED, threads, more)


NAMES = {"image": "image", "mask": "mask", "gray": "second"}
ALL = {
    "image": image([1, 0, 2]), "mask": mask([0, 2]), "gray": gray([3, 1, 0, 3]), "pose": pose([2, 0]),
    "label": label([0, 3, 1]), "attribute": attribute([1]), "pad": pad([0, 1, 2, 3]),
}  # fmt: skip


def frame_of(ids: Any, partners: Any, position: int, step: int) -> int:
    return int(ids[position] if step == 0 else partners[position][step - 1] & ~_C.PAD_BIT)


def value_of(files: PackedFiles, name: str, sample: int) -> Any:
    field = next(field for field in RICH if field.name == name)
    return decode(field.kind, files.value_bytes(name, sample))


def check(
    files: PackedFiles,
    fields: dict[str, Wanted],
    batch: Any,
    ids: Any,
    partners: Any,
    spec: Any,
    epoch: int = 0,
) -> None:
    """Every frame of every sample, one by one."""
    compared = 0
    for position, anchor in enumerate(ids):
        for name, wanted in fields.items():
            for at, step in enumerate(wanted.plan["steps"]):
                found = batch[name][position][at]
                sample = frame_of(ids, partners, position, step)
                if name in NAMES:
                    number = wanted.plan.get("view", 0) + (at if wanted.plan.get("each_step") else 0)
                    view = view_of(files, anchor, spec, number, SEED, epoch)
                    expected = cut(files, NAMES[name], wanted, sample, view, drawn=anchor)
                elif name == "pad":
                    expected = step > 0 and bool(partners[position][step - 1] & _C.PAD_BIT)
                else:
                    expected = value_of(files, name, sample)
                assert np.array_equal(found, expected), (name, position, at)
                compared += 1
    assert compared > 0


def drawn_windows(seed: int, count: int, partners: int = 3) -> tuple[list[int], list[list[int]]]:
    """Anchors and their partners: many of both are there several times, some are padding."""
    rng = np.random.default_rng(seed)
    others = rng.integers(0, COUNT // 2, (count, partners))
    padded = rng.random((count, partners)) < 0.3
    return rng.integers(0, COUNT // 2, count).tolist(), (others + padded * _C.PAD_BIT).tolist()


@pytest.mark.parametrize("threads", [1, 8])
@pytest.mark.parametrize("spec", [STILL, SHORT, CROP], ids=["still", "short", "drawn"])
def test_each_frame_is_its_samples_under_the_anchors_view(
    files: PackedFiles, spec: dict[str, Any], threads: int
) -> None:
    job = job_of(files, ALL, spec, threads=threads)
    for seed in range(4):
        ids, partners = drawn_windows(seed, 13)
        batch, faults = job.batch(ids, seed, partners=partners)
        assert faults == []
        check(files, ALL, batch, ids, partners, spec, seed)


def test_views_are_drawn_by_the_anchor_where_its_own_picture_is_not_read(files: PackedFiles) -> None:
    for fields in ({"image": image([2, 1])}, {"gray": gray([1])}, {"mask": mask([0]), "image": image([1])}):
        ids, partners = [3, 7, 3], [[4, 5], [7, 2], [3, 5]]
        batch, faults = job_of(files, fields, CROP).batch(ids, partners=partners)
        assert faults == []
        check(files, fields, batch, ids, partners, CROP)


def test_a_frame_is_the_picture_of_a_batch_of_that_sample(files: PackedFiles) -> None:
    """Where nothing is drawn, and the pictures are of one size."""
    plain = Wanted({"form": "picture", "part": 2, "format": (1, 8, False)}, np.uint8, (1,))
    alone, _ = job_of(files, {"gray": plain}).batch(list(range(COUNT)))
    ids, partners = drawn_windows(9, 8)
    batch, _ = job_of(files, {"gray": gray([0, 3, 1])}).batch(ids, partners=partners)
    for position in range(8):
        for at, step in enumerate((0, 3, 1)):
            assert (
                batch["gray"][position][at] == alone["gray"][frame_of(ids, partners, position, step)]
            ).all()


def test_a_view_for_each_step(files: PackedFiles) -> None:
    fields = {"image": image([0, 1, 1], each_step=True), "gray": gray([1, 0], view=1, each_step=True)}
    ids, partners = [3, 9, 3], [[4], [9], [4]]
    for share in ("auto", "never"):
        batch, faults = job_of(files, fields, CROP, views=3, share=share).batch(ids, partners=partners)
        assert faults == []
        check(files, fields, batch, ids, partners, CROP)
        assert not np.array_equal(batch["image"][0][1], batch["image"][0][2])


def test_positions_without_a_sample_are_blank_at_each_step(files: PackedFiles) -> None:
    fields = {**ALL, "pad": Wanted({**ALL["pad"].plan, "blank": b"\1"}, np.uint8)}
    batch, faults = job_of(files, fields).batch([2, -1], partners=[[1, 2, 3], [-1, 5, -7]])
    assert faults == []
    assert not batch["image"][1].any()
    assert batch["image"][0].any()
    assert (batch["mask"][1] == 255).all()
    assert not batch["pose"][1].any()
    assert (batch["label"][1] == _C.IGNORE_LABEL).all()
    assert (batch["pad"][1] == 1).all()
    assert (batch["pad"][0] == 0).all()


def damaged(folder: Path, field: str, sample: int) -> PackedFiles:
    """A set of which that picture has a byte changed."""
    files = PackedFiles(write_field_set(folder, RICH, rich_samples(COUNT)))
    record = np.frombuffer(files.columns[field].record(sample), RECORD)[0]
    shard = folder / "records.bin"
    data = bytearray(shard.read_bytes())
    data[int(record["offset"]) + int(record["length"]) // 2] ^= 0xFF
    shard.write_bytes(data)
    return PackedFiles(folder)


@pytest.mark.parametrize("threads", [1, 8])
@pytest.mark.parametrize("spec", [STILL, CROP], ids=["still", "drawn"])
def test_a_damaged_frame_is_a_fault_of_each_anchor_that_has_it(
    tmp_path: Path, spec: dict[str, Any], threads: int
) -> None:
    files = damaged(tmp_path / "set", "second", 5)
    fields = {"image": image([1, 0]), "gray": gray([0, 1, 2])}
    ids, partners = [4, 5, 6, 7, 5, 1], [[5, 3], [4, 4], [7, 5], [6, 4], [1, 2], [7, 6 | _C.PAD_BIT]]
    for share in ("auto", "never"):
        batch, faults = job_of(files, fields, spec, threads=threads, share=share).batch(
            ids, partners=partners
        )
        assert [fault[:2] for fault in faults] == [(0, 4), (1, 5), (2, 6), (4, 5)]
        assert re.match(r"its frame of sample 5 \(step 1\): .*CRC-32C", faults[0][3])
        assert "its frame" not in faults[1][3]
        assert re.match(r"its frame of sample 5 \(step 2\): ", faults[2][3])
        assert not batch["image"][[0, 1, 2, 4]].any()
        kept = [3, 5]
        some = {name: found[kept] for name, found in batch.items()}
        check(files, fields, some, [ids[i] for i in kept], [partners[i] for i in kept], spec)


def test_what_is_no_window_is_refused(files: PackedFiles) -> None:
    def refused(match: str, fields: dict[str, Wanted], **more: Any) -> None:
        with pytest.raises(ValueError, match=match):
            job_of(files, fields, **more)

    boxes = Wanted(
        {"form": "points", "width": 16, "points": "xywh", "part": 2, "steps": [0]}, np.float32, (4,)
    )
    refused("has steps: that is for pictures, values of one size, labels and padding", {"boxes": boxes})
    refused("which steps are padding, and has no steps", {"pad": pad([])})
    refused("has a view for each of its 2 steps. Found: views up to 0", {"a": image([0, 1], each_step=True)})
    refused("a view for each step, and no steps", {"a": image([], each_step=True)})
    refused("All fields of a stream of records have one format", {"a": image([0]), "b": gray([1], part=0)})
    mosaic = (32, 4, (0.0, 0.1, 0.1, 0.0, 0.0), (1, 2, 3), 0.0)
    refused("a mosaic has no windows of frames", {"a": image([0])}, mosaic=mosaic)
    free = [({}, 0, 0)]
    with pytest.raises(ValueError, match="pictures that differ in size: a window's have one size"):
        Job(files.sources, [([], [])], free, {"a": image([0, 1])}, SEED)
    job = job_of(files, {"image": image([0, 2])})
    with pytest.raises(ValueError, match="of 2 partners of each sample. Found: 1"):
        job.batch([1, 2], partners=[[1], [2]])
    with pytest.raises(ValueError, match="Found: partner 1 of sample 2 is -1"):
        job.batch([1, 2], partners=[[1, 1], [2, -1]])
    with pytest.raises(ValueError, match="of 2 partners of each sample. Found: 0"):
        job.batch([1, 2])


def decodes(job: Job) -> int:
    return sum(sum(thread["decoded"].values()) for thread in job.engine.stats())


@pytest.mark.parametrize("threads", [1, 8])
@pytest.mark.parametrize("spec", [STILL, CROP], ids=["still", "drawn"])
def test_a_record_of_several_frames_is_read_and_decoded_once(
    files: PackedFiles, spec: dict[str, Any], threads: int
) -> None:
    fields = {"image": image([1, 0, 2]), "second": image([3, 1], part=2)}
    ids, partners = drawn_windows(5, 16)
    frames = [
        (wanted.plan.get("part", 0), frame_of(ids, partners, position, step))
        for wanted in fields.values()
        for step in wanted.plan["steps"]
        for position in range(len(ids))
    ]
    bytes_of = {
        (part, sample): len(files.value_bytes("second" if part else "image", sample))
        for part, sample in frames
    }
    found = {}
    for share in ("auto", "never"):
        job = job_of(files, fields, spec, threads=threads, share=share)
        found[share], faults = job.batch(ids, partners=partners)
        assert faults == []
        once = share == "auto"
        assert decodes(job) == len(set(frames) if once else frames)
        assert job.engine.kept()["used_again"] == (len(frames) - len(bytes_of) if once else 0)
        read = sum(thread["bytes"] for thread in job.engine.stats())
        assert read == sum(bytes_of[frame] for frame in (bytes_of if once else frames))
    for name in fields:
        assert np.array_equal(found["auto"][name], found["never"][name])


@pytest.mark.parametrize("side", [0, 30, _C.UNBOUNDED])
@pytest.mark.parametrize("spec", [STILL, SHORT, CROP], ids=["still", "short", "drawn"])
def test_sharing_makes_no_difference_to_pixels(
    files: PackedFiles, monkeypatch: pytest.MonkeyPatch, spec: dict[str, Any], side: int
) -> None:
    """With operations that draw, erasing, and pictures of several sizes, of which crops are cut."""
    made = _C.ViewPlan
    blur = _C.PixelSpec([("gaussian_blur", 0.5, [5.0, 5.0, ("uniform", [0.1, 2.0])])])
    erase = (0.5, (0.02, 0.33), (0.3, 3.3), (1, 1), "noise", (0.0, 0.0, 0.0))
    for operations, erased in ((_C.PixelSpec([]), None), (blur, None), (blur, erase)):
        monkeypatch.setattr(_C, "ViewPlan", partial(made, operations=operations))
        store = _C.StoreSpec(dtype="float32", erase=erased)
        fields = {
            "image": Wanted({"form": "picture", "steps": [2, 0, 1], "store": store}, np.float32, (3,)),
            "more": Wanted({"form": "picture", "steps": [1], "store": store}, np.float32, (3,)),
        }
        ids, partners = drawn_windows(side % 7, 20)
        batches = {}
        for share, threads in (("never", 1), ("auto", 1), ("auto", 8)):
            job = job_of(files, fields, spec, threads=threads, share=share, decoded_side=side)
            batches[share, threads], faults = job.batch(ids, partners=partners)
            assert faults == []
            assert (job.engine.kept()["used_again"] > 20) == (share == "auto")
        for name in fields:
            wanted = batches["never", 1][name].tobytes()
            assert batches["auto", 1][name].tobytes() == wanted
            assert batches["auto", 8][name].tobytes() == wanted


def test_records_of_windows_are_read_ahead_once(files: PackedFiles) -> None:
    job = job_of(files, {"image": image([0, 1]), "mask": mask([1])}, read_ahead=1 << 20)
    ids, partners = np.array([1, -1, 8, 1]), np.array([[2], [-1], [1], [8 | _C.PAD_BIT]])
    job.engine.announce(ids, None, 0, partners)
    wanted = 3 + 3  # images 1, 2, 8; masks 2, 1, 8
    deadline = time.monotonic() + 60
    while (counts := job.engine.read_ahead())["resident"] + counts["ahead"] < wanted:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert counts["resident"] + counts["ahead"] == wanted


def test_a_sample_that_there_is_not_is_a_fault_of_its_anchor(files: PackedFiles) -> None:
    """Also where its number is that of another stream's record."""
    fields = {"image": image([0, 1]), "mask": mask([0])}
    ids, partners = [3, 1, 4, 3], [[2], [3], [COUNT + 3], [COUNT + 1]]
    batch, faults = job_of(files, fields, CROP).batch(ids, partners=partners)
    assert [fault[:2] for fault in faults] == [(2, 4), (3, 3)]
    assert re.match(rf"its frame of sample {COUNT + 3} \(step 1\): .*below {COUNT}", faults[0][3])
    some = {name: found[:2] for name, found in batch.items()}
    check(files, fields, some, ids[:2], partners[:2], CROP)


@pytest.mark.parametrize("spec", [STILL, CROP], ids=["still", "drawn"])
def test_who_shares_a_record_waits_for_it(tmp_path: Path, spec: dict[str, Any]) -> None:
    """A slow decoder is asked once, whichever thread comes second."""
    samples = rich_samples(COUNT)
    samples[3]["image"] = encoded(picture(seed=3, width=43, height=39), "GIF")
    files = PackedFiles(write_field_set(tmp_path / "set", RICH, samples))
    asked = []

    def slow(*given: Any) -> Any:
        asked.append(given)
        time.sleep(0.2)
        return decode_with_pil(*given, max_pixels=10**8)

    job = job_of(files, {"image": image([1])}, spec, threads=4, fallback=slow)
    batch, faults = job.batch([1, 10, 1, 19], partners=[[3]] * 4)
    assert faults == []
    assert len(asked) == 1
    assert job.engine.kept()["used_again"] == 3
    assert np.array_equal(batch["image"][0], batch["image"][2])


@pytest.mark.parametrize("spec", [STILL, CROP], ids=["still", "drawn"])
def test_frames_of_a_shard_that_was_cut(tmp_path: Path, spec: dict[str, Any]) -> None:
    """Pages that are lost: what was made of them is made again, or is a fault of each that has it."""
    folder = write_field_set(tmp_path / "set", RICH, rich_samples(COUNT))
    fields = {"image": image([1, 0, 2])}
    ids, partners = drawn_windows(3, 40, 2)
    batch, faults = job_of(PackedFiles(folder), fields, spec).batch(ids, partners=partners)
    assert faults == []
    files = PackedFiles(folder)
    job = job_of(files, fields, spec, threads=8)
    job.batch(list(range(COUNT)), partners=[[0, 0]] * COUNT)  # checked, and mapped
    ends = files.records["offset"] + files.records["length"]
    left = int(ends[COUNT // 2]) // 4096 * 4096
    os.truncate(folder / "records.bin", left)
    lost = {int(number) for number in np.flatnonzero(ends > left)}
    found, faults = job.batch(ids, partners=partners)
    bad = {
        position
        for position in range(len(ids))
        if any(frame_of(ids, partners, position, step) in lost for step in range(3))
    }
    assert 0 < len(bad) < len(ids)
    assert {fault[0] for fault in faults} == bad
    for position in range(len(ids)):
        expected = 0 if position in bad else batch["image"][position]
        assert (found["image"][position] == expected).all()
