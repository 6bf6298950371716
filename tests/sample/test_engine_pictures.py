"""Several pictures and several views of a sample: each is cut as the first picture's view says."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from field_cuts import cut, size_of, view_of
from field_jobs import Job, Wanted
from field_sets import RICH, rich_samples, write_field_set
from geometry_uses import crop, flip, given
from points_reference import boxes

from fastload._native import _C
from fastload.shard.dataset import PackedFiles
from fastload.shard.index import RECORD

COUNT = 24
SEED = 5
CROP = given(crop(16, 20), flip(0.5))
SMALL = given(crop(8, 8), flip(0.5))
IMAGE = Wanted({"form": "picture"}, np.uint8, (3,))
IDS = {"format": (1, 8, True), "nearest": True, "fill": 255}
MASK = Wanted({"form": "picture", "part": 1, **IDS}, np.uint8, (1,))
GRAY = Wanted({"form": "picture", "part": 2, "format": (1, 8, False)}, np.uint8, (1,))


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> PackedFiles:
    folder = tmp_path_factory.mktemp("sets") / "rich"
    return PackedFiles(write_field_set(folder, RICH, rich_samples(COUNT)))


def job_of(files: PackedFiles, fields: dict[str, Wanted], views: Any = ((CROP, 20, 16),), **more: Any) -> Job:
    """A job over the set's three streams of records, and its boxes."""
    readers = [_C.Reader(files.reader, files.columns[name]) for name in ("mask", "second")]
    return Job(files.sources, [(readers, [files.columns["boxes"]])], list(views), fields, SEED, more=more)


def test_image_mask_and_a_second_image_of_another_size(files: PackedFiles) -> None:
    fields = {"image": IMAGE, "mask": MASK, "second": GRAY}
    for ids in ([3, 0, 11, 23, 7], [5]):
        batch, faults = job_of(files, fields).batch(ids)
        assert faults == []
        for position, sample in enumerate(ids):
            view = view_of(files, sample, CROP)
            for name, wanted in fields.items():
                assert (batch[name][position] == cut(files, name, wanted, sample, view)).all(), name


def test_a_field_is_the_same_whichever_others_are_asked_for(files: PackedFiles) -> None:
    ids = list(range(COUNT))
    boxes_field = Wanted({"form": "points", "width": 16, "points": "xywh"}, np.float32, (4,))
    every = {"image": IMAGE, "mask": MASK, "second": GRAY, "boxes": boxes_field}
    whole, _ = job_of(files, every).batch(ids)
    for name, wanted in every.items():
        part, faults = job_of(files, {name: wanted}).batch(ids)
        assert faults == []
        for a, b in zip(part[name], whole[name], strict=True):
            assert a.tobytes() == b.tobytes(), name


def test_views_of_a_sample_are_drawn_apart(files: PackedFiles) -> None:
    def seen(wanted: Wanted, view: int) -> Wanted:
        return Wanted({**wanted.plan, "view": view}, wanted.dtype, wanted.shape)

    boxes_field = Wanted({"form": "points", "width": 16, "points": "xywh", "view": 1}, np.float32, (4,))
    fields = {
        "image": IMAGE, "mask.1": seen(MASK, 1), "image.1": seen(IMAGE, 1), "boxes.1": boxes_field,
        "image.2": seen(IMAGE, 2),
    }  # fmt: skip
    views = ((CROP, 20, 16), (CROP, 20, 16), (SMALL, 8, 8))
    ids = [4, 9, 22]
    batch, faults = job_of(files, fields, views).batch(ids)
    assert faults == []
    drawn = set()
    for position, sample in enumerate(ids):
        for number, (spec, _, _) in enumerate(views):
            view = view_of(files, sample, spec, number)
            drawn.add(view)
            name = f"image.{number}" if number else "image"
            assert (batch[name][position] == cut(files, "image", IMAGE, sample, view)).all()
        view = view_of(files, sample, CROP, 1)
        assert (batch["mask.1"][position] == cut(files, "mask", MASK, sample, view)).all()
        size = size_of(files, "image", sample)
        wanted = boxes(files.value("boxes", sample), view, size, "xywh", False)
        assert batch["boxes.1"][position].tobytes() == wanted.tobytes()
    assert len(drawn) == 9


def test_the_first_view_is_the_only_one_of_a_plain_job(files: PackedFiles) -> None:
    first = _C.draw_view(_C.GeometrySpec(**CROP), 100, 80, SEED, 1, 7, 3)
    assert first == _C.draw_view(_C.GeometrySpec(**CROP), 100, 80, SEED, 1, 7, 3, 0)
    assert first != _C.draw_view(_C.GeometrySpec(**CROP), 100, 80, SEED, 1, 7, 3, 1)


def test_padding_and_blanks_of_a_mask_are_its_ignored_id(files: PackedFiles) -> None:
    wide = Wanted(
        {**MASK.plan, "format": (1, 16, True), "fill": 300, "store": _C.StoreSpec(dtype="int32")},
        np.int32, (1,), "pad",
    )  # fmt: skip
    image = Wanted(IMAGE.plan, np.uint8, (3,), "pad")
    job = job_of(files, {"image": image, "mask": wide}, (({}, 0, 0),))
    ids = [2, -1, 6]
    batch, faults = job.batch(ids)
    assert faults == []
    for position, sample in enumerate(ids):
        found = batch["mask"][position]
        if sample < 0:
            assert (found == 300).all()
            assert not batch["image"][position].any()
            continue
        width, height = size_of(files, "image", sample)
        whole = cut(files, "mask", MASK, sample, view_of(files, sample, {}))
        assert (found[:height, :width] == whole).all()
        assert (found[height:] == 300).all()
        assert (found[:, width:] == 300).all()


def test_records_of_all_streams_are_read_ahead(files: PackedFiles) -> None:
    fields = {"mask": MASK, "second": GRAY, "image": IMAGE}
    alone, _ = job_of(files, fields).batch([1, -1, 8])
    job = job_of(files, fields, read_ahead=1 << 20)
    ids = np.array([1, -1, 8])
    announced = job.engine.announce(ids)
    deadline = time.monotonic() + 60
    while (counts := job.engine.read_ahead())["resident"] + counts["ahead"] < 6:  # two samples' three
        assert time.monotonic() < deadline
        time.sleep(0.01)
    memory = np.zeros(1 << 14, np.uint8)
    places = [(0, 320), (1024, 320), (2048, 960)]
    ticket = job.engine.submit(memory, places, ids, None, 0, announced)
    assert job.engine.wait(ticket, 60.0)
    assert job.engine.collect(ticket) == []
    assert memory[:960].tobytes() == alone["mask"].tobytes()
    assert memory[1024:1984].tobytes() == alone["second"].tobytes()
    assert memory[2048:4928].tobytes() == alone["image"].tobytes()
    counts = job.engine.read_ahead()
    assert counts["resident"] + counts["ahead"] == 6


def test_a_damaged_mask_is_a_fault_of_its_sample(tmp_path: Path) -> None:
    folder = write_field_set(tmp_path / "set", RICH, rich_samples(6))
    files = PackedFiles(folder)
    record = np.frombuffer(files.columns["mask"].record(2), RECORD)[0]
    shard = folder / "records.bin"
    data = bytearray(shard.read_bytes())
    data[int(record["offset"]) + int(record["length"]) // 2] ^= 0xFF
    shard.write_bytes(data)
    batch, faults = job_of(PackedFiles(folder), {"image": IMAGE, "mask": MASK}).batch([1, 2, 3])
    assert [(fault[0], fault[1]) for fault in faults] == [(1, 2)]
    assert not batch["image"][1].any()
    assert (batch["mask"][1] == 255).all()
    assert (batch["mask"][2] != 255).any()


def test_what_does_not_fit_together_is_refused(files: PackedFiles) -> None:
    with pytest.raises(ValueError, match="All fields of a stream of records have one format"):
        job_of(files, {"a": IMAGE, "b": Wanted({"form": "picture", "format": (1, 8, False)})})
    with pytest.raises(ValueError, match="Ids are cut by the nearest pixel"):
        job_of(files, {"a": Wanted({"form": "picture", "part": 1, "format": (1, 8, True)})})
    with pytest.raises(ValueError, match=r"kept of 3 channels of 8 bits only. Leave out Cache\(dec"):
        job_of(files, {"a": Wanted({"form": "picture", "format": (1, 8, False)})}, decoded_side=64)
