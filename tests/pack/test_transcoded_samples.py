"""fastload.pack with ``max_side``, ``raw``, ``size``, ``baseline``: fields of a sample change together."""

from __future__ import annotations

import io
import os
import threading
from pathlib import Path
from typing import Any

import field_reference as reference
import numpy as np
import points_reference
import pytest
from pack_trees import run_cli
from PIL import Image
from process import in_child
from sized_samples import LIMIT, SCHEMA, Samples, sample

import fastload
from fastload.dataset import decoding
from fastload.dataset.decoding import decode_with_pil
from fastload.errors import PackError
from fastload.packing.verify import verify
from fastload.shard.codecs import CODECS, RAW
from fastload.shard.dataset import PackedFiles


def pack(samples: Any, output: Path, format_name: str = "arrow", **options: Any) -> Any:
    options = {"schema": SCHEMA, "entries": None, **options}
    return fastload.pack(samples, output, format=format_name, **options)


def target_of(size: tuple[int, int]) -> tuple[int, int]:
    width, height = size
    longer = max(size)
    return size if longer <= LIMIT else (round(width * LIMIT / longer), round(height * LIMIT / longer))


def whole(size: tuple[int, int], target: tuple[int, int]) -> Any:
    return (0, 0, *size), target, (0, 0, *target), False


def test_smaller_samples_are_those_that_a_view_would_show(tmp_path: Path, format_name: str) -> None:
    pack(Samples(), tmp_path / "set", format_name, max_side=LIMIT)
    dataset = PackedFiles(tmp_path / "set")
    assert verify(tmp_path / "set") == ([], 12)
    seen = set()
    for i in range(12):
        given = sample(i)
        size = Image.open(io.BytesIO(given["image"])).size
        target = target_of(size)
        view = whole(size, target)
        seen.add(target == size)
        if target == size:
            assert dataset.value_bytes("image", i) == given["image"]
        for name in ("image", "gray"):
            stored = Image.open(io.BytesIO(dataset.value_bytes(name, i)))
            assert (stored.size, stored.mode) == (target, "RGB" if name == "image" else "L")
            assert (stored.format == "JPEG") == (name == "image" or target != size)
        for name in ("mask", "ids"):
            stored = np.asarray(Image.open(io.BytesIO(dataset.value_bytes(name, i))))
            wanted = Image.fromarray(given[name]).resize(target, Image.Resampling.NEAREST)
            assert np.array_equal(stored, np.asarray(wanted)), (name, i)
        depth = np.asarray(Image.open(io.BytesIO(dataset.value_bytes("depth", i))))
        wanted = Image.fromarray(given["depth"].astype(np.float32)).resize(target, Image.Resampling.BILINEAR)
        assert np.abs(depth - np.asarray(wanted)).max() <= 1.5
        bands = np.frombuffer(dataset.value_bytes("bands", i), np.uint8).reshape(*target[::-1], 5)
        for k in range(5):
            alone = Image.fromarray(np.ascontiguousarray(given["bands"][..., k]))
            assert np.array_equal(bands[..., k], np.asarray(alone.resize(target, Image.Resampling.BILINEAR)))
        assert np.array_equal(
            dataset.value("boxes", i), points_reference.boxes(given["boxes"], view, size, "xyxy", False)
        )
        relative = points_reference.boxes(given["centres"], view, size, "cxcywh", True)
        assert np.abs(dataset.value("centres", i) - relative).max(initial=0) < 1e-6
        points = points_reference.points(given["points"], view, size)
        assert np.array_equal(dataset.value("points", i), points)
        for ours, theirs in zip(dataset.value("outlines", i), given["outlines"], strict=True):
            assert np.array_equal(ours[0], points_reference.points(theirs[0], view, size))
        areas = [reference.shown_area(area, view, size) for area in given["areas"]]
        assert dataset.value("areas", i) == areas
        assert dataset.value("n", i) == i
    assert seen == {True, False}


@pytest.mark.parametrize(
    "options", [{"max_side": LIMIT, "quality": 70}, {"raw": True}, {"raw": True, "size": (30, 20)},
                {"raw": True, "max_side": LIMIT}, {"baseline": True}, {"baseline": True, "max_side": 70}],
    ids=str,
)  # fmt: skip
def test_images_are_those_of_a_folder(tmp_path: Path, options: dict[str, Any], format_name: str) -> None:
    """The same records as ``fastload pack`` makes of the same files."""
    folder = tmp_path / "files" / "class"
    folder.mkdir(parents=True)
    for i in range(6):
        (folder / f"{i}.jpg").write_bytes(sample(i)["image"])
    theirs_at = tmp_path / "folder" / "set"
    fastload.pack(tmp_path / "files", theirs_at, format=format_name, entries=None, **options)
    rows = [{"image": folder / f"{i}.jpg", "n": i} for i in range(6)]
    schema = {"image": "image", "n": "int64"}
    pack(rows, tmp_path / "set", format_name, schema=schema, **options)
    theirs, ours = PackedFiles(theirs_at), PackedFiles(tmp_path / "set")
    assert [ours.read(i) for i in range(6)] == [theirs.read(i) for i in range(6)]
    names = ("codec", "width", "height", "channels", "flags")
    assert [ours.records[name].tolist() for name in names] == [
        theirs.records[name].tolist() for name in names
    ]
    assert verify(tmp_path / "set") == ([], 6)


def test_raw_pixels_of_all_images(tmp_path: Path, format_name: str) -> None:
    pack(Samples(), tmp_path / "set", format_name, raw=True)
    dataset = PackedFiles(tmp_path / "set")
    assert verify(tmp_path / "set") == ([], 12)
    for i in range(12):
        given = sample(i)
        assert CODECS[int(dataset.record(i)["codec"])] == CODECS[RAW]
        assert dataset.value_bytes("gray", i) == given["gray"].tobytes()
        assert dataset.value_bytes("depth", i) == given["depth"].tobytes()
        assert dataset.value_bytes("bands", i) == given["bands"].tobytes()
        decoded = np.asarray(Image.open(io.BytesIO(given["image"])))
        assert dataset.value_bytes("image", i) == decoded.tobytes()
        mask = Image.open(io.BytesIO(dataset.value_bytes("mask", i)))  # masks stay files
        assert np.array_equal(np.asarray(mask), given["mask"])
    with fastload.DataLoader(dataset.folder, batch_size=3, collate="ragged") as loader:
        batch = next(iter(loader))
        assert np.array_equal(batch["depth"][1].numpy()[0], sample(1)["depth"])
    done = run_cli("unpack", tmp_path / "set", tmp_path / "files")
    assert done.returncode == 0, done.stderr
    again = Image.open(next((tmp_path / "files").rglob("00000001.png")))
    assert np.array_equal(np.asarray(again), np.asarray(Image.open(io.BytesIO(sample(1)["image"]))))


def test_tables_from_the_command_line(tmp_path: Path) -> None:
    for i in range(4):
        (tmp_path / f"{i}.jpg").write_bytes(sample(i)["image"])
    rows = "".join(f'{i}.jpg,"[[0, 0, {10 * i}, 20]]"\n' for i in range(4))
    (tmp_path / "table.csv").write_text("path,boxes\n" + rows)
    done = run_cli("pack", tmp_path / "table.csv", tmp_path / "set", "--quiet", "--max-side", LIMIT)
    assert done.returncode == 0, done.stderr
    dataset = PackedFiles(tmp_path / "set")
    assert dataset.records["width"].tolist() == [40, 40, 38, 40]
    assert dataset.value("boxes", 1)[0].tolist() == pytest.approx([0, 0, 10 * 40 / 63, 20 * 32 / 51])
    assert dataset.value("boxes", 2)[0].tolist() == [0, 0, 20, 20]


def test_pictures_that_do_not_decode_are_bad_samples(tmp_path: Path) -> None:
    samples = [sample(i) for i in range(3)]
    samples[1]["image"] = samples[1]["image"][:700]
    with pytest.raises(PackError, match=r"00000001.*field 'image': cannot be re-encoded: "):
        pack(samples, tmp_path / "set", max_side=LIMIT)
    result = pack(samples, tmp_path / "set", max_side=LIMIT, on_error="skip")
    assert (result.manifest.num_records, result.manifest.skipped) == (2, 1)


def test_sixteen_bits_in_a_field_of_eight_are_not_clipped(tmp_path: Path) -> None:
    bright = np.full((60, 80), 40_000, np.uint16)
    pack([{"image": bright}], tmp_path / "set", schema={"image": "image"}, max_side=LIMIT)
    stored = np.asarray(Image.open(io.BytesIO(PackedFiles(tmp_path / "set").read(0))))
    assert np.array_equal(stored, np.full((30, 40, 3), round(40_000 / 257), np.uint8))


def test_a_process_forked_while_a_thread_packs_packs_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread is inside Pillow, for a picture that only Pillow reads: in the child it never comes out."""
    inside, go_on, packer = threading.Event(), threading.Event(), os.getpid()

    def slowly(data: bytes, max_pixels: int | None = None) -> Any:
        if os.getpid() == packer:
            inside.set()
            go_on.wait(60)
        return decode_with_pil(data, max_pixels)

    monkeypatch.setattr(decoding, "decode_with_pil", slowly)
    out = io.BytesIO()
    Image.fromarray(np.zeros((50, 60, 3), np.uint8)).save(out, "TIFF")

    def packs(name: str) -> None:
        pack([{"image": out.getvalue()}], tmp_path / name, schema={"image": "image"}, raw=True)

    thread = threading.Thread(target=packs, args=("thread",))
    thread.start()
    try:
        assert inside.wait(60)
        assert in_child(lambda: packs("child"), 60) == 0
    finally:
        go_on.set()
        thread.join()
    assert PackedFiles(tmp_path / "child").read(0) == PackedFiles(tmp_path / "thread").read(0) == bytes(9000)
