"""``_C.RecordFeed``: whose a record is, the window to cut, and that nothing is copied. Needs no DALI."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from odd_images import odd_images
from pictures import encoded, picture
from plain_pack import plain_pack

from fastload import PackedDataset
from fastload import transforms as T
from fastload._native import _C
from fastload.errors import StateError
from fastload.transforms.compiler import compile_plan

ALL = (1 << 64) - 1
TRAIN = T.Compose([T.RandomResizedCrop(48), T.RandomHorizontalFlip()])


def make_feed(dataset: PackedDataset, transform: Any = TRAIN, read_ahead: int = 0, **options: Any) -> Any:
    plan = compile_plan(transform)
    height, width = plan.output_size or (0, 0)
    return _C.RecordFeed(
        sources=dataset.sources,
        geometry=plan.geometry_spec(),
        out_height=height,
        out_width=width,
        read_ahead=read_ahead,
        **{"seed": 7, "max_pixels": 10**8, **options},
    )


def positions(feed: Any, ids: Any, epoch: int = 0, share: float = 0.0, most_bytes: int = ALL) -> list[int]:
    found = feed.fetch(np.array(ids, np.int64), None, epoch, share, most_bytes)
    assert len(found) == len(found.records) == len(found.start) == len(found.roi_end)
    return list(found.positions)


def test_records_are_the_bytes_and_views_of_the_mapping(photos: PackedDataset) -> None:
    feed = make_feed(photos)
    found = feed.fetch(np.array([5, -1, 3, 6], np.int64), None, 0, 0.0, ALL)
    assert found.positions.tolist() == [0, 2, 3]
    first = found.records[0]
    for record, sample in zip(found.records, (5, 3, 6), strict=True):
        assert record.tobytes() == photos.read(sample)
        offsets = photos.records["offset"]
        apart = int(offsets[sample]) - int(offsets[5])
        assert record.ctypes.data - first.ctypes.data == apart  # no copy
    del found, feed
    assert first.tobytes() == photos.read(5)  # the view keeps it


def test_a_closed_feed_reads_no_more_and_its_records_stay(tmp_path: Path) -> None:
    blobs = [encoded(picture(i, 64, 64)) for i in range(4)]
    dataset = plain_pack(tmp_path / "set", blobs)
    feed = make_feed(dataset)
    found = feed.fetch(np.arange(4), None, 0, 0.0, ALL)
    feed.close()
    del dataset
    assert [record.tobytes() for record in found.records] == blobs  # DALI may not have read them yet
    with pytest.raises(StateError, match="closed"):
        feed.fetch(np.arange(4), None, 0, 0.0, ALL)
    assert str(tmp_path) in Path("/proc/self/maps").read_text()
    del found
    assert str(tmp_path) not in Path("/proc/self/maps").read_text()


@pytest.mark.parametrize(
    "transform",
    [TRAIN, T.Compose([T.Resize(64), T.CenterCrop(56)]), T.CenterCrop(60), T.Resize((40, 30))],
    ids=lambda transform: repr(transform)[:40],
)
def test_windows_are_the_core_s(photos: PackedDataset, transform: Any) -> None:
    plan = compile_plan(transform)
    ids, draws, epoch = np.arange(40), np.arange(40, dtype=np.uint32) % 3, 4
    found = make_feed(photos, transform).fetch(ids, draws, epoch, 0.0, ALL)
    assert found.positions.tolist() == ids.tolist()
    flips = 0
    for i, record in enumerate(photos.records):
        width, height = int(record["width"]), int(record["height"])
        view = _C.draw_view(plan.geometry_spec(), width, height, 7, epoch, i, int(draws[i]))
        (crop_x, crop_y, crop_w, crop_h), (resized_w, resized_h), (x, y, w, h), flip = view
        left, top, columns, rows = _C.source_rect(view, plan.filter)
        assert found.start[i].tolist() == [top, left]
        assert found.shape[i].tolist() == [rows, columns]
        step_x, step_y = crop_w / resized_w, crop_h / resized_h
        begin = [crop_y - top + y * step_y, crop_x - left + x * step_x]
        end = [begin[0] + h * step_y, begin[1] + w * step_x]
        if flip:
            begin[1], end[1] = end[1], begin[1]
        np.testing.assert_allclose(found.roi_start[i], begin, atol=1e-4)
        np.testing.assert_allclose(found.roi_end[i], end, atol=1e-4)
        flips += flip
    assert (flips > 5) == (transform is TRAIN)


def test_only_whole_baseline_jpegs_are_given_away(tmp_path: Path) -> None:
    images = odd_images()
    dataset = plain_pack(tmp_path, list(images.values()), probe=False)
    feed = make_feed(dataset, T.Resize((48, 48)), max_pixels=10**7)
    found = {list(images)[i] for i in positions(feed, range(len(images)))}
    expected = {name for name in images if name.startswith("jpeg")}
    expected -= {"jpeg cmyk", "jpeg progressive", "jpeg and bytes behind it"}
    # What their headers do not show: DALI finds out, or decodes as libjpeg does.
    expected |= {
        f"bad: {what}"
        for what in (
            "header only",
            "zeros in the middle",
            "no quantisation tables",
            "no Huffman tables",
        )
    }
    assert found == expected


def test_unreadable_records_are_left_to_our_own_decoder(tmp_path: Path) -> None:
    dataset = plain_pack(tmp_path, [encoded(picture(i, 80, 80)) for i in range(6)])
    record = dataset.records[4]
    with open(tmp_path / "data.bin", "r+b") as file:
        file.seek(int(record["offset"]) + int(record["length"]) - 9)
        byte = file.read(1)[0]
        file.seek(-1, 1)
        file.write(bytes([byte ^ 4]))
    assert positions(make_feed(PackedDataset(tmp_path)), range(6)) == [0, 1, 2, 3, 5]
    assert positions(make_feed(dataset, max_pixels=80 * 79), range(6)) == []
    assert positions(make_feed(dataset), [99, 0]) == [1]


def test_share_is_drawn_by_sample(photos: PackedDataset) -> None:
    feed = make_feed(photos)
    half = positions(feed, range(40), share=0.5)
    assert 8 < len(half) < 32
    assert positions(feed, range(40), share=0.5) == half
    assert [40 - 1 - i for i in positions(feed, range(39, -1, -1), share=0.5)][::-1] == half
    assert positions(feed, range(40), epoch=1, share=0.5) != half
    assert set(half) < set(positions(feed, range(40), share=0.25))
    assert positions(feed, range(40), share=1.0) == []


def test_refused_and_accepted(photos: PackedDataset) -> None:
    feed = make_feed(photos)
    feed.refuse(np.array([3, 5]))
    assert positions(feed, [2, 3, 4, 5]) == [0, 2]
    feed.accept(np.array([-1, 4, 5, 9]))
    feed.require_accepted()
    assert positions(feed, [2, 3, 4, 5, 9]) == [2, 4]


def test_decoded_bytes_are_bounded(photos: PackedDataset) -> None:
    feed = make_feed(photos)
    sizes = [3 * int(r["width"]) * int(r["height"]) for r in photos.records]
    most = sum(sizes[:7]) + 5
    found = positions(feed, range(40), most_bytes=most)
    assert found[:7] == list(range(7))
    assert sum(sizes[i] for i in found) <= most
    assert positions(feed, range(40), most_bytes=0) == []


@pytest.mark.parametrize("share", [0.0, 0.5])
def test_announced_records_are_read_ahead(photos: PackedDataset, share: float) -> None:
    feed = make_feed(photos, read_ahead=1 << 20)
    plain = make_feed(photos)
    ids = np.arange(40)
    for epoch in range(3):
        announced = feed.announce(ids, None, epoch, share)
        found = feed.fetch(ids, None, epoch, share, ALL, announced)
        wanted = plain.fetch(ids, None, epoch, share, ALL)
        assert found.positions.tolist() == wanted.positions.tolist()
        for one, other in zip(found.records, wanted.records, strict=True):
            assert np.array_equal(one, other)
    forgotten = feed.announce(ids, None, 9, share)
    feed.forget(forgotten)
    assert feed.read_ahead()["threads"] >= 1
    feed.close()
