"""``--max-side`` and ``--raw``."""

from __future__ import annotations

import io
from pathlib import Path

import h5py
import numpy as np
import pyarrow as pa
import pytest
from pack_trees import encoded, make_tree, snapshot
from PIL import Image, JpegImagePlugin

from fastload import PackedDataset
from fastload._native import _C
from fastload.errors import PackError
from fastload.packing import PackOptions, pack
from fastload.packing.recoding import bounded
from fastload.packing.unpack import unpack
from fastload.packing.verify import verify


def photo(width: int, height: int, kind: str = "JPEG", mode: str = "RGB", **extra: object) -> bytes:
    """A smooth picture, so that JPEG changes it little."""
    y, x = np.mgrid[0:height, 0:width]
    pixels = np.stack([x * 255 // width, y * 255 // height, (x + y) * 127 // (width + height)], axis=2)
    out = io.BytesIO()
    Image.fromarray(pixels.astype(np.uint8)).convert(mode).save(out, kind, **extra)
    return out.getvalue()


EXIF = Image.Exif()
EXIF[0x0112] = 6
FILES = {
    "c/0.jpg": photo(300, 200, subsampling=0),
    "c/1.jpg": photo(200, 300, subsampling=2, exif=EXIF.tobytes()),
    "c/2.png": photo(128, 64, "PNG"),
    "c/3.jpg": photo(100, 40),
    "c/4.png": photo(400, 30, "PNG", "P"),
    "c/5.jpg": photo(129, 129, mode="L"),
    "c/6.webp": photo(260, 100, "WEBP"),
    "c/7.png": photo(260, 100, "GIF"),  # by its name a PNG
    "c/8.jpg": photo(150, 220, mode="CMYK"),
}


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return make_tree(tmp_path / "source", FILES)


def test_larger_images_are_reencoded(source: Path, tmp_path: Path, format_name: str) -> None:
    pack(source, tmp_path / "out", PackOptions(format=format_name, max_side=128, quality=95, num_proc=1))
    dataset = PackedDataset(tmp_path / "out")
    assert verify(tmp_path / "out", decode=True) == ([], len(FILES))
    for i, (name, before) in enumerate(FILES.items()):
        after = dataset.read(i)
        with Image.open(io.BytesIO(before)) as old, Image.open(io.BytesIO(after)) as new:
            record = dataset.records[i]
            assert (record["width"], record["height"]) == new.size
            if max(old.size) <= 128:
                assert after == before, name
                continue
            assert new.format == "JPEG"
            assert max(new.size) == 128
            assert new.size == bounded(*old.size, 128)
            expected = np.asarray(old.convert("RGB").resize(new.size, Image.Resampling.BICUBIC)).astype(int)
            assert np.abs(np.asarray(new.convert("RGB")) - expected).mean() < 6
    assert dataset.manifest.codecs == {"jpeg": 8, "png": 1}


def test_subsampling_orientation_and_gray_are_kept(source: Path, tmp_path: Path) -> None:
    pack(source, tmp_path / "out", PackOptions(max_side=100, num_proc=1))
    dataset = PackedDataset(tmp_path / "out")
    images = [Image.open(io.BytesIO(dataset.read(i))) for i in range(len(dataset))]
    assert [JpegImagePlugin.get_sampling(images[i]) for i in (0, 1)] == [0, 2]
    assert [image.getexif().get(0x0112) for image in images[:2]] == [None, 6]
    assert images[5].mode == "L"
    assert dataset.records["channels"][5] == 1


def test_quality_decides_the_size(source: Path, tmp_path: Path) -> None:
    sizes = []
    for quality in (30, 95):
        [result] = pack(
            source, tmp_path / str(quality), PackOptions(max_side=100, quality=quality, num_proc=1)
        )
        sizes.append(result.manifest.data_bytes)
        assert result.manifest.options["quality"] == quality
    assert sizes[0] < sizes[1]


def reference_pixels(data: bytes, size: tuple[int, int]) -> np.ndarray:
    """What the core's decoder gives, resized by Pillow."""
    decoder = _C.Decoder(fallback=lambda record: np.asarray(Image.open(io.BytesIO(record)).convert("RGB")))
    whole = Image.fromarray(decoder.decode_rgb(np.frombuffer(data, np.uint8)))
    return np.asarray(whole.resize(size, Image.Resampling.BILINEAR) if size != whole.size else whole)


@pytest.mark.parametrize("extra", [{}, {"size": (28, 20)}, {"max_side": 64}])
def test_raw(source: Path, tmp_path: Path, format_name: str, extra: dict[str, object]) -> None:
    pack(source, tmp_path / "out", PackOptions(format=format_name, raw=True, num_proc=1, **extra))  # type: ignore[arg-type]
    dataset = PackedDataset(tmp_path / "out")
    assert dataset.manifest.codecs == {"raw": len(FILES)}
    assert verify(tmp_path / "out", decode=True) == ([], len(FILES))
    for i, data in enumerate(FILES.values()):
        record = dataset.records[i]
        size = (int(record["width"]), int(record["height"]))
        with Image.open(io.BytesIO(data)) as image:
            assert size == extra.get("size", bounded(*image.size, extra.get("max_side", 65500)))  # type: ignore[arg-type]
        pixels = np.frombuffer(dataset.read(i), np.uint8).reshape(size[1], size[0], 3)
        expected = reference_pixels(data, size).astype(int)
        assert np.abs(pixels - expected).max() <= 1, i
    unpack(tmp_path / "out", tmp_path / "back")
    for i, name in enumerate(FILES):
        with Image.open(tmp_path / "back" / f"{name}.png") as image:
            assert image.tobytes() == dataset.read(i)


def test_raw_is_readable_by_others(source: Path, tmp_path: Path) -> None:
    options = {"raw": True, "num_proc": 1}
    pack(source, tmp_path / "fixed", PackOptions(format="hdf5", size=(28, 20), **options))  # type: ignore[arg-type]
    with h5py.File(tmp_path / "fixed" / "fixed-00000-of-00001.h5") as file:
        assert file["image"].shape == (9, 20, 28, 3)
        assert file["image"].chunks is None
        assert file["image"][4].tobytes() == PackedDataset(tmp_path / "fixed").read(4)
    pack(source, tmp_path / "free", PackOptions(format="hdf5", max_side=64, **options))  # type: ignore[arg-type]
    with h5py.File(tmp_path / "free" / "free-00000-of-00001.h5") as file:
        assert file["image"][4].reshape(file["height"][4], file["width"][4], 3).shape == (5, 64, 3)
    pack(source, tmp_path / "arrow", PackOptions(max_side=64, **options))  # type: ignore[arg-type]
    table = pa.ipc.open_stream(
        pa.memory_map(str(tmp_path / "arrow" / "arrow-00000-of-00001.arrow"))
    ).read_all()
    assert (table["height"][4].as_py(), table["width"][4].as_py()) == (5, 64)


@pytest.mark.parametrize("extra", [{"size": (9, 8)}, {"max_side": 64}, {}])
def test_undecodable_files_in_raw_packs(tmp_path: Path, format_name: str, extra: dict[str, object]) -> None:
    whole = encoded(7, "JPEG", 200, 200)
    source = make_tree(tmp_path / "source", {**FILES, "c/3b.jpg": whole[: len(whole) // 3]})
    options = PackOptions(format=format_name, raw=True, num_proc=1, on_error="skip", **extra)  # type: ignore[arg-type]
    with pytest.raises(PackError, match=r"c/3b\.jpg: does not decode"):
        pack(source, tmp_path / "no", PackOptions(format=format_name, raw=True, num_proc=1, **extra))  # type: ignore[arg-type]
    [result] = pack(source, tmp_path / "out", options)
    assert result.manifest.skipped == 1
    assert verify(tmp_path / "out", decode=True) == ([], len(FILES))
    pack(source, tmp_path / "again" / "out", options)
    assert snapshot(tmp_path / "again" / "out") == snapshot(tmp_path / "out")


@pytest.mark.parametrize(
    ("size", "expected"),
    [((300, 200), (100, 67)), ((200, 300), (67, 100)), ((100, 50), (100, 50)), ((5000, 1), (100, 1))],
)
def test_bounded(size: tuple[int, int], expected: tuple[int, int]) -> None:
    assert bounded(*size, 100) == expected


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"fps": 0.0}, "fps is 0.0, must be above 0"),
        ({"raw": True, "size": (9, 9), "max_side": 4}, "exclude each other"),
        ({"max_side": 0}, r"max_side is 0, must be in \[1, 65500\]"),
        ({"quality": 0}, r"quality is 0, must be in \[1, 100\]"),
        ({"format": "zip"}, "'zip' is not one of arrow, lmdb, hdf5"),
        ({"shard_size": 10}, "shard size 10 is below 4096"),
        ({"num_proc": 0}, "num_proc is 0, must be >= 1"),
        ({"limit": 0}, "limit is 0, must be >= 1"),
        ({"on_error": "ignore"}, "on_error is 'ignore'"),
    ],
)
def test_options_out_of_range(options: dict[str, object], message: str) -> None:
    with pytest.raises(PackError, match=message):
        PackOptions(**options)  # type: ignore[arg-type]


@pytest.mark.parametrize("extra", [{"max_side": 40}, {"raw": True}], ids=["max_side", "raw"])
def test_a_jpeg_without_its_last_rows_is_no_picture(tmp_path: Path, extra: dict[str, object]) -> None:
    """Re-encoded, its gray would look like a whole picture for ever."""
    data = bytearray(encoded(1, "JPEG", 64, 48))
    at = data.index(b"\xff\xc0")
    data[at + 5 : at + 7] = (400).to_bytes(2, "big")
    source = make_tree(tmp_path / "source", {"c/a.jpg": encoded(0), "c/tall.jpg": bytes(data)})
    options = PackOptions(num_proc=1, on_error="skip", **extra)  # type: ignore[arg-type]
    [result] = pack(source, tmp_path / "out", options)
    assert (result.manifest.num_records, result.manifest.skipped) == (1, 1)
    assert "the image data ends before row" in result.skip_reasons()[0][0]


@pytest.mark.parametrize(
    "extra", [{}, {"size": (31, 9)}, {"max_side": 1}], ids=["as it is", "size", "a pixel"]
)
def test_what_unpacking_makes_of_raw_pixels_can_be_packed(
    tmp_path: Path, format_name: str, extra: dict[str, object]
) -> None:
    source = make_tree(
        tmp_path / "source", {f"{c}/{i}.jpg": encoded(i + 7 * c) for i in range(3) for c in (0, 1)}
    )
    raw = PackOptions(format=format_name, num_proc=1, raw=True, **extra)  # type: ignore[arg-type]
    pack(source, tmp_path / "raw", raw)
    assert unpack(tmp_path / "raw", tmp_path / "back") == 6
    pack(tmp_path / "back", tmp_path / "files", PackOptions(format=format_name, num_proc=1))
    pack(tmp_path / "back", tmp_path / "again", PackOptions(format=format_name, num_proc=1, raw=True))
    first, files, again = (PackedDataset(tmp_path / name) for name in ("raw", "files", "again"))
    assert verify(tmp_path / "files", decode=True) == ([], 6)
    assert files.classes == first.classes == ["0", "1"]
    for i in range(6):
        assert again.read(i) == first.read(i)
        assert _C.decode_rgb(np.frombuffer(files.read(i), np.uint8)).tobytes() == first.read(i)
        with Image.open(io.BytesIO(files.read(i))) as image:
            assert image.tobytes() == first.read(i)
        assert files.label(i) == first.label(i)
