"""Batches of any fields: each field equals what the set has for it, seen through the sample's one view."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from field_jobs import Job, Wanted
from field_reference import shown_area
from field_sets import RICH, rich_samples, write_field_set
from geometry_uses import crop, flip, given, shorter
from plain_engine import PlainSlot, plain_engine
from points_reference import boxes, points

from fastload._native import _C
from fastload.sample.values import decode
from fastload.shard.dataset import PackedFiles

COUNT = 40
SEED = 5
CROP = given(crop(16, 20), flip(0.5))
VALUES = {
    "weight": Wanted({"form": "fixed", "width": 8}, np.float64),
    "kept": Wanted({"form": "fixed", "width": 1}, np.uint8),
    "pose": Wanted({"form": "fixed", "width": 24}, np.float32, (2, 3)),
    "attribute": Wanted({"form": "label"}, np.int64),
    "track": Wanted({"form": "ragged", "width": 4}, np.int16, (2,)),
    "boxes": Wanted({"form": "points", "width": 16, "points": "xywh"}, np.float32, (4,)),
    "points": Wanted({"form": "points", "width": 36, "points": "xyv"}, np.float32, (3, 3)),
    "outlines": Wanted({"form": "points", "width": 1, "points": "polygons"}),
    "areas": Wanted({"form": "points", "width": 1, "points": "rle"}),
    "caption": Wanted({"form": "ragged", "width": 1}),
    "blob": Wanted({"form": "ragged", "width": 1}),
    "notes": Wanted({"form": "ragged", "width": 1}),
}
IMAGE = {"form": "picture"}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> PackedFiles:
    folder = tmp_path_factory.mktemp("sets") / "rich"
    return PackedFiles(write_field_set(folder, RICH, rich_samples(COUNT)))


def job_of(files: PackedFiles, names: list[str], view: Any = (CROP, 20, 16), **more: Any) -> Job:
    """A job of an image, a label and the named fields."""
    wanted = {
        "image": Wanted(IMAGE, np.uint8, (3,), more.pop("mode", "stack")),
        "label": Wanted({"form": "label", "part": _C.INDEX}, np.int64),
    }
    for name in names:
        field = VALUES[name]
        wanted[name] = Wanted({**field.plan, "part": names.index(name)}, field.dtype, field.shape)
    columns = [files.columns[name] for name in names]
    return Job(files.sources, [([], columns)], [view], wanted, SEED, more=more)


def view_of(files: PackedFiles, sample: int, epoch: int, draw: int = 0, spec: Any = None) -> Any:
    record = files.record(sample)
    size = (int(record["width"]), int(record["height"]))
    geometry = _C.GeometrySpec(**(CROP if spec is None else spec))
    return size, _C.draw_view(geometry, *size, SEED, epoch, sample, draw)


def plain_batch(files: PackedFiles, ids: list[int], epoch: int) -> tuple[np.ndarray, np.ndarray]:
    geometry = _C.GeometrySpec(**CROP)
    engine = plain_engine(files.sources, 16, 20, geometry, seed=SEED, max_pixels=10**8)
    slot = PlainSlot(len(ids), 16 * 20 * 3)
    ticket = slot.submit(engine, ids, epoch)
    assert engine.wait(ticket, 60.0)
    assert engine.collect(ticket) == []
    return slot.images.reshape(-1, 16, 20, 3), slot.labels


def test_every_value_is_what_the_set_has(files: PackedFiles) -> None:
    job = job_of(files, list(VALUES))
    ids = [7, 3, 0, 39, 7, 12, 6]
    for epoch in (0, 4):
        batch, faults = job.batch(ids, epoch)
        assert faults == []
        images, labels = plain_batch(files, ids, epoch)
        assert (batch["image"] == images).all()
        assert (batch["label"] == labels).all()
        for name in ("weight", "kept", "pose", "attribute"):
            assert batch[name].tolist() == [np.asarray(files.value(name, i)).tolist() for i in ids], name
        for name in ("track", "caption", "blob", "notes"):
            assert [value.tobytes() for value in batch[name]] == [files.value_bytes(name, i) for i in ids]


def test_boxes_points_outlines_and_areas_are_seen_as_the_picture_is(files: PackedFiles) -> None:
    job = job_of(files, ["boxes", "points", "outlines", "areas"])
    ids, draws = list(range(COUNT)), np.arange(COUNT) % 3
    batch, faults = job.batch(ids, 2, draws)
    assert faults == []
    flips = set()
    for position, sample in enumerate(ids):
        size, view = view_of(files, sample, 2, int(draws[position]))
        flips.add(view[3])
        rows = files.value("boxes", sample)
        assert batch["boxes"][position].tobytes() == boxes(rows, view, size, "xywh", False).tobytes()
        rows = files.value("points", sample)
        assert batch["points"][position].tobytes() == points(rows, view, size).tobytes()
        found = decode(RICH["outlines"].kind, batch["outlines"][position].tobytes())
        for one, wanted in zip(found, files.value("outlines", sample), strict=True):
            for a, b in zip(one, wanted, strict=True):
                assert a.tobytes() == points(b, view, size).tobytes()
        areas = decode(RICH["areas"].kind, batch["areas"][position].tobytes())
        assert areas == [shown_area(area, view, size) for area in files.value("areas", sample)]
    assert flips == {False, True}


@pytest.mark.parametrize("mode", ["pad", "list"])
@pytest.mark.parametrize("spec", [given(), given(shorter(24), flip(0.5))])
def test_pictures_that_differ_in_size(files: PackedFiles, mode: str, spec: dict[str, Any]) -> None:
    job = job_of(files, ["boxes"], (spec, 0, 0), mode=mode)
    ids = [5, 1, -1, 17, 30]
    measured = job.engine.measure(np.array(ids), None, 0)[0].tolist()
    batch, faults = job.batch(ids)
    assert faults == []
    for position, sample in enumerate(ids):
        height, width = measured[position]
        found = batch["image"][position]
        if sample < 0:
            assert (height, width) == (0, 0)
            assert not found.any()
            continue
        _, view = view_of(files, sample, 0, spec=spec)
        assert (width, height) == view[2][2:]
        whole = _C.decode_rgb(np.frombuffer(files.read(sample), np.uint8))
        assert (found[:height, :width] == _C.resize(whole, view)).all()
        assert not found[height:].any()
        assert not found[:, width:].any()


def test_positions_without_a_sample_have_blanks(files: PackedFiles) -> None:
    job = job_of(files, ["weight", "boxes", "caption"])
    batch, faults = job.batch([3, -1, 4])
    assert faults == []
    assert not batch["image"][1].any()
    assert batch["label"].tolist() == [files.label(3), -100, files.label(4)]
    assert batch["weight"][1] == 0
    assert [len(rows) for rows in batch["boxes"]] == [len(files.value("boxes", i)) for i in (3,)] + [0] + [
        len(files.value("boxes", 4))
    ]
    blank = np.float64(-1.5).tobytes()
    job.fields["weight"].plan["blank"] = blank
    batch, _ = Job(job.sources, job.parts, job.views, job.fields).batch([-1, 3])
    assert batch["weight"].tolist() == [-1.5, files.value("weight", 3)]


def test_positions_of_others_are_left_alone(files: PackedFiles) -> None:
    job = job_of(files, ["weight"])
    batch, _ = job.batch([3, -2, 4], garbage=0x11)
    assert (batch["image"][1] == 0x11).all()
    assert batch["label"][1] == batch["weight"].view(np.int64)[1] == 0x1111111111111111


def test_only_values(files: PackedFiles) -> None:
    fields = {"boxes": Wanted({**VALUES["boxes"].plan, "part": 0}, np.float32, (4,))}
    job = Job(files.sources, [([], [files.columns["boxes"]])], [(CROP, 20, 16)], fields, SEED)
    batch, faults = job.batch([1, 2])
    assert faults == []
    for position, sample in enumerate((1, 2)):
        size, view = view_of(files, sample, 0)
        rows = files.value("boxes", sample)
        assert batch["boxes"][position].tobytes() == boxes(rows, view, size, "xywh", False).tobytes()


def test_a_damaged_value_is_a_fault_of_its_sample(tmp_path: Path) -> None:
    folder = write_field_set(tmp_path / "set", RICH, rich_samples(8))
    name = PackedFiles(folder).columns.path("weight")
    data = bytearray(Path(name).read_bytes())
    data[4096 + 8 * 3] ^= 1
    Path(name).write_bytes(data)
    files = PackedFiles(folder)
    job = job_of(files, ["weight", "boxes"])
    batch, faults = job.batch([3, 4])
    assert [(fault[0], fault[1]) for fault in faults] == [(0, 3), (1, 4)]  # one page has all values
    assert "CRC-32C" in faults[0][3]
    assert not batch["image"].any()
    assert batch["label"].tolist() == [-100, -100]


def test_places_are_checked(files: PackedFiles) -> None:
    job = job_of(files, ["weight", "boxes"])
    ids = np.array([1, 2])
    good = [(0, 960), (1920, 8), (1984, 8), (2048, np.array([0, 1, 2]))]
    memory = np.zeros(4096, np.uint8)

    def submit(places: list[Any], size: int = 4096) -> None:
        ticket = job.engine.submit(memory[:size], places, ids, None, 0)
        job.engine.wait(ticket, 60.0)
        job.engine.collect(ticket)

    submit(good)
    with pytest.raises(ValueError, match="does not fit field 0 of 2 samples of 960 bytes"):
        submit([(3000, 960), *good[1:]])
    with pytest.raises(ValueError, match="does not fit field 3"):
        submit([*good[:3], (4080, np.array([0, 1, 2]))])
    with pytest.raises(ValueError, match="does not fit field 3"):
        submit([*good[:3], (2048, np.array([0, 2, 1]))])
    with pytest.raises(ValueError, match="does not fit field 2"):
        submit([*good[:2], (1984, 4), good[3]])
    with pytest.raises(ValueError, match="places of 4 fields"):
        submit(good[:3])
    with pytest.raises(ValueError, match="must begin in the 4096 bytes"):
        submit([(5000, 960), *good[1:]])


def test_plans_are_checked(files: PackedFiles) -> None:
    def job(**plan: Any) -> None:
        view = (CROP, 20, 16)
        fields = {"x": Wanted({"form": "fixed", **plan})}
        Job(files.sources, [([], [files.columns["weight"]])], [view], fields)

    with pytest.raises(ValueError, match="part must be below 1.*columns. Found: 3"):
        job(part=3, width=8)
    with pytest.raises(ValueError, match="values or rows of 8 bytes, the field takes 4 of values"):
        job(width=4)
    with pytest.raises(ValueError, match="at least 1 byte"):
        job()
    with pytest.raises(ValueError, match="view must be below 1. Found: 2"):
        job(width=8, view=2)
    with pytest.raises(ValueError, match="blank value of 8 bytes.*Found: 3"):
        job(width=8, blank=b"abc")
    with pytest.raises(ValueError, match="record streams. Found: 1"):
        job(form="picture", part=1)
