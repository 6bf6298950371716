"""Memory does not grow with COCO's annotations: the JSON is read in parts, what is known of each annotation
lies in a file, and so do the values of the shard that is being written.

What memory grows by is compared with what the data grow by, never with a number of bytes: Python keeps freed
tuples and dicts for later ones (2,000 tuples of each length), and when it lets them go depends on its version
and on what ran before. So outlines have many points, which is what would be kept if anything were."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from annotated_trees import write_photo

import fastload
from fastload.packing import json_stream
from fastload.packing import sample_rows as encode
from fastload.packing import shard_writer as part
from fastload.packing import shard_writer as shards
from fastload.packing.annotations import coco_file as coco_index
from fastload.packing.annotations.coco_file import CocoFile
from fastload.packing.unpack import unpack

EACH = 20
POINTS = 200  # of an outline: 800 bytes of a shard's values, and more as text and as Python's objects


def write(folder: Path, count: int) -> Path:
    """A set of images of one file, with this many annotations, 20 of each image."""
    write_photo(folder / "images" / "0.jpg", 0)
    (folder / "annotations").mkdir()
    images = [
        {"id": number, "file_name": "0.jpg", "width": 40, "height": 30} for number in range(count // EACH)
    ]
    one = {
        "category_id": 1,
        "bbox": [1, 2, 3, 4.5],
        "area": 9.5,
        "iscrowd": 0,
        "segmentation": [[number % 40 + 0.25 for number in range(2 * POINTS)]],
    }
    path = folder / "annotations" / "instances.json"
    with open(path, "w") as file:
        file.write(
            f'{{"images": {json.dumps(images)}, "categories": [{{"id": 1, "name": "a"}}], "annotations": ['
        )
        for number in range(count):
            annotation = one | {"id": number, "image_id": number * 7 % len(images)}
            file.write((", " if number else "") + json.dumps(annotation))
        file.write("]}")
    return path


def peak(work: Callable[[], object]) -> int:
    """The most bytes that Python and NumPy held at a time."""
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_stream, "_WINDOW", 1 << 16)
    monkeypatch.setattr(coco_index, "_AT_ONCE", 1 << 10)
    monkeypatch.setattr(encode, "MOST_SAMPLES", 8)
    monkeypatch.setattr(shards, "GROUP_RECORDS", 8)
    monkeypatch.setattr(part, "_AT_ONCE", 1 << 12)


def test_reading_the_json(tmp_path: Path) -> None:
    few, many = (write(tmp_path / str(count), count) for count in (500, 5_000))
    small, large = peak(lambda: CocoFile(few)), peak(lambda: CocoFile(many))
    assert large - small < (many.stat().st_size - few.stat().st_size) / 20
    file = CocoFile(many)
    orders = [[order for order, _ in file.annotations(number)] for number in range(len(file))]
    wanted = np.arange(5_000) * 7 % len(file)
    assert orders == [np.flatnonzero(wanted == number).tolist() for number in range(len(file))]


def test_annotations_of_any_images_are_sorted_in_bounded_parts(tmp_path: Path) -> None:
    """Images with none, with more than are sorted at a time, and annotations of no image, in any order."""
    rng = np.random.default_rng(5)
    for images, count in ((0, 3_000), (1, 3_000), (700, 5_000), (3, 9_000), (4, 0)):
        of = np.where(rng.random(count) < 0.3, rng.integers(0, 2, count), rng.integers(0, images + 40, count))
        # Their ids fall, so places in the list are not their order; those behind the last are of no image.
        path = tmp_path / f"{images}.json"
        listed = [{"id": 10 * (images - place), "file_name": "0.jpg"} for place in range(images)]
        annotations = [{"image_id": 10 * (images - int(place))} for place in of]
        path.write_text(json.dumps({"images": listed, "annotations": annotations}))
        file = CocoFile(path)
        orders = [[order for order, _ in file.annotations(place)] for place in range(images)]
        assert orders == [np.flatnonzero(of == place).tolist() for place in range(images)]
        strays = [file.stray(number)[0] for number in range(file.strays)]
        assert strays == np.flatnonzero(of >= images).tolist()


def test_packing_and_unpacking(tmp_path: Path) -> None:
    needs, values = [], []
    for number, count in enumerate((400, 400, 4_000)):  # what is imported counts for the first
        path = write(tmp_path / f"set-{number}", count)
        output, back = tmp_path / f"out-{number}", tmp_path / f"back-{number}"
        packing = peak(lambda: fastload.pack(path.parents[1], output))  # noqa: B023
        needs.append((packing, peak(lambda: unpack(output, back, as_="coco"))))  # noqa: B023
        found = json.loads((back / "annotations" / "instances.json").read_text())
        assert found == json.loads(path.read_text())
        values.append(sum(column.stat().st_size for column in output.glob("field-*")))
    more = values[2] - values[1]  # of what a pack that kept its shard's values would hold
    assert more > 3_600 * POINTS * 8
    grown = np.subtract(needs[2], needs[1])
    assert (grown < more / 10).all(), (grown, more)


def test_columns_of_many_batches_are_those_of_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = write(tmp_path / "set", 100).parents[1]
    fastload.pack(place, tmp_path / "a" / "out")
    monkeypatch.setattr(shards, "GROUP_RECORDS", 1)
    fastload.pack(place, tmp_path / "b" / "out")
    columns = sorted(path.name for path in (tmp_path / "a" / "out").glob("field-*"))
    assert columns
    for name in columns:
        assert (tmp_path / "a" / "out" / name).read_bytes() == (tmp_path / "b" / "out" / name).read_bytes()
