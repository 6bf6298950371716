"""A picture that a field cannot be opened as is refused when it is packed or indexed, with the sample and the
field; one that can be is packed, and its batches are its pixels."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from decode_images import encode, photo
from decode_png_writer import CHANNELS, KINDS, PALETTE, write_png
from PIL import Image as Pillow
from PIL import PngImagePlugin
from tar_reference import write_tar

import fastload
from fastload import Image, Mask, PackedDataset
from fastload.dataset.decoding import decode_field, decode_with_pil
from fastload.errors import DecodeError, PackError
from fastload.packing import PackOptions, pack
from fastload.packing.foreign import IndexOptions, index_files
from fastload.packing.unpack import unpack
from fastload.packing.verify import verify
from fastload.shard.dataset import PackedFiles

FIELDS: tuple[Image | Mask, ...] = (
    *(Image(channels, bits) for channels in (1, 2, 3, 4, 5) for bits in (8, 16)),
    Mask(8), Mask(16, ignore=65535),
)  # fmt: skip
PHOTO = photo(40, 30)


def png(colour: int, depth: int) -> bytes:
    """A PNG of a kind."""
    samples = np.random.default_rng([colour, depth]).integers(0, 2**depth, (9, 11, CHANNELS[colour]))
    palette = np.random.default_rng(1).integers(0, 256, (2**depth, 3)) if colour == PALETTE else None
    return write_png(samples, depth, colour, palette=palette)


FILES = {
    **{f"PNG of colour type {colour}, {depth} bits": png(colour, depth) for colour, depth in KINDS},
    "JPEG": encode(PHOTO, "JPEG"),
    "gray JPEG": encode(PHOTO, "JPEG", "L"),
    "CMYK JPEG": encode(PHOTO, "JPEG", "CMYK"),
    "WebP": encode(PHOTO, "WEBP"),
    "GIF": encode(PHOTO, "GIF", "P"),
    "BMP": encode(PHOTO, "BMP"),
    "TIFF": encode(PHOTO, "TIFF"),
}


def opens(data: bytes, kind: Image | Mask) -> bool:
    """Whether the decoder gives such a picture of a file: what loaders do in each epoch."""
    from fastload.dataset.decoding import thread_decoder, wanted_format

    try:
        thread_decoder().decode(np.frombuffer(data, np.uint8), wanted_format(kind))
    except DecodeError:
        return False
    return True


@pytest.mark.parametrize("name", list(FILES))
def test_what_is_packed_can_be_opened(tmp_path: Path, name: str) -> None:
    data, taken = FILES[name], 0
    for number, kind in enumerate(FIELDS):
        schema = {"image": Image(), "x": kind}
        samples = [{"image": FILES["JPEG"], "x": data}]
        if opens(data, kind):
            fastload.pack(samples, tmp_path / str(number), schema, entries=None)
            dataset = PackedFiles(tmp_path / str(number))
            wanted = (9, 11) if name.startswith("PNG") else PHOTO.shape[:2]
            assert decode_field(dataset, "x", 0).shape[:2] == wanted
            assert dataset.value("x", 0) == data
            taken += 1
            continue
        with pytest.raises(PackError, match="00000000.jpg|00000000") as caught:
            fastload.pack(samples, tmp_path / str(number), schema, entries=None)
        assert "field 'x'" in str(caught.value)
        assert not (tmp_path / str(number) / "dataset.json").exists()
    assert 2 <= taken <= 7


@pytest.mark.parametrize(("channels", "bits", "colour"), [(2, 8, 4), (4, 8, 6), (2, 16, 4), (4, 16, 6)])
def test_pngs_with_alpha(tmp_path: Path, channels: int, bits: int, colour: int, format_name: str) -> None:
    """Beside arrays of as many channels; their files come back."""
    rng = np.random.default_rng(bits)
    dtype = np.uint8 if bits == 8 else np.uint16
    pixels = [rng.integers(0, 1 << bits, (9, 11, channels)).astype(dtype) for _ in range(4)]
    files = [write_png(part, bits, colour) for part in pixels[:2]]
    samples = [{"image": value, "n": number} for number, value in enumerate([*files, *pixels[2:]])]
    schema = {"image": Image(channels, bits), "n": "int64"}
    fastload.pack(samples, tmp_path / "set", schema, entries=None, format=format_name)
    transform = fastload.transforms.Resize((9, 11))
    with fastload.DataLoader(tmp_path / "set", 4, transform=transform, cache="off", num_workers=0) as loader:
        batch = next(iter(loader))["image"]
    assert np.array_equal(batch.numpy(), np.stack(pixels).transpose(0, 3, 1, 2))
    assert verify(tmp_path / "set", decode=True) == ([], 4)
    unpack(tmp_path / "set", tmp_path / "files")
    assert sorted(path.name for path in (tmp_path / "files").iterdir())[:4] == [
        "00000000.png", "00000001.png", "00000002.npy", "00000003.npy",
    ]  # fmt: skip
    assert (tmp_path / "files" / "00000000.png").read_bytes() == files[0]
    options = PackOptions(entries=None, format=format_name)
    pack(tmp_path / "files" / "samples.jsonl", tmp_path / "again" / "set", options)
    assert PackedFiles(tmp_path / "again" / "set").id == PackedFiles(tmp_path / "set").id


def test_alpha_made_smaller(tmp_path: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (20, 40, 4), np.uint8)
    samples = [{"image": write_png(pixels, 8, 6)}, {"image": pixels}]
    fastload.pack(samples, tmp_path / "set", {"image": Image(4)}, entries=None, max_side=10)
    dataset = PackedFiles(tmp_path / "set")
    assert np.array_equal(decode_field(dataset, "image", 0), decode_field(dataset, "image", 1))
    assert decode_field(dataset, "image", 0).shape == (5, 10, 4)


def test_other_numbers_of_channels_say_what_they_take(tmp_path: Path) -> None:
    for kind, data, words in (
        (Image(4), FILES["JPEG"], r"no other image file has 4 channels: give a PNG with alpha, or an array"),
        (
            Image(5),
            FILES["JPEG"],
            r"no image file has 5 channels: give an array of \(height, width, 5\)",
        ),
        (Image(4), png(2, 8), r"an 8-bit RGB PNG cannot be opened as .*it has 3 channels"),
    ):
        with pytest.raises(PackError, match=words):
            fastload.pack([{"image": data}], tmp_path / words[:9], {"image": kind}, restart=True)


def test_masks_with_colours_are_refused_once(tmp_path: Path) -> None:
    """Not in each epoch."""
    bad, good = png(2, 8), png(0, 8)
    samples = [{"image": FILES["JPEG"], "mask": bad if number == 2 else good} for number in range(4)]
    schema = {"image": Image(), "mask": Mask()}
    words = (
        r"1 sample cannot be packed:\n  00000002: field 'mask': an 8-bit RGB PNG cannot be opened as .*ids"
    )
    with pytest.raises(PackError, match=words):
        fastload.pack(samples, tmp_path / "set", schema, entries=None)
    [line] = _skipped(samples, tmp_path / "skip", schema)
    assert line["path"] == "00000002"
    assert len(PackedFiles(tmp_path / "skip")) == 3


def _skipped(samples: list[dict[str, Any]], folder: Path, schema: Any) -> list[dict[str, str]]:
    fastload.pack(samples, folder, schema, entries=None, on_error="skip")
    return [json.loads(line) for line in (folder / "skipped.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("asked", [(), (("seg.png", "mask"),)])
def test_masks_in_tars(tmp_path: Path, asked: tuple[tuple[str, str], ...]) -> None:
    """Also where a name alone says that they are masks."""
    members = []
    for number in range(3):
        members += [(f"{number}.jpg", FILES["JPEG"]), (f"{number}.seg.png", png(6 if number == 1 else 3, 8))]
    tar = write_tar(tmp_path / "a.tar", members)
    with pytest.raises(
        PackError, match=r"1\.jpg\): field 'seg\.png': an 8-bit RGB PNG with alpha cannot be opened"
    ):
        index_files([tar], tmp_path / "set", IndexOptions(fields=asked))
    manifest = index_files([tar], tmp_path / "set", IndexOptions(fields=asked, on_error="skip"))
    assert manifest.num_records == 2
    assert verify(tmp_path / "set", decode=True) == ([], 2)


@pytest.mark.parametrize("colour", [0, 2, 4, 6])
def test_sixteen_bits_made_smaller_are_scaled(tmp_path: Path, colour: int) -> None:
    """Not cut off at 255, which leaves a picture that is nearly white."""
    ramp = np.linspace(0, 65535, 64 * 64).reshape(64, 64).astype(np.uint16)
    samples = ramp[:, :, None].repeat(CHANNELS[colour], 2)
    (tmp_path / "in" / "a").mkdir(parents=True)
    (tmp_path / "in" / "a" / "x.png").write_bytes(write_png(samples, 16, colour))
    pack(tmp_path / "in", tmp_path / "set", PackOptions(max_side=32, quality=95, num_proc=1))
    found = np.asarray(PackedDataset(tmp_path / "set")[0][0]).astype(int)
    wanted = np.rint(ramp / 257).reshape(32, 2, 32, 2).mean((1, 3))[:, :, None].repeat(3, 2)
    assert found.shape == (32, 32, 3)
    assert np.abs(found - wanted).mean() < 3


def test_what_pillow_does_not_open_is_made_smaller(tmp_path: Path) -> None:
    """The core reads a PNG whatever texts are in it."""
    info = PngImagePlugin.PngInfo()
    info.add_text("a", "x" * (1 << 21), zip=True)
    out = io.BytesIO()
    Pillow.fromarray(np.full((64, 48, 3), 77, np.uint8)).save(out, "PNG", pnginfo=info)
    (tmp_path / "in" / "a").mkdir(parents=True)
    (tmp_path / "in" / "a" / "x.png").write_bytes(out.getvalue())
    pack(tmp_path / "in", tmp_path / "set", PackOptions(max_side=32, num_proc=1))
    schema = {"image": Image(), "n": "int64"}
    fastload.pack([{"image": out.getvalue(), "n": 1}], tmp_path / "fields", schema, max_side=32)
    for folder in ("set", "fields"):
        pixels = decode_field(PackedFiles(tmp_path / folder), "image", 0)
        assert pixels.shape == (32, 24, 3)
        assert np.abs(pixels.astype(int) - 77).max() < 3


def test_what_pillow_cannot_open_is_said_without_addresses() -> None:
    """Else the words of one file would differ from run to run."""
    for data in (b"II*\0\xff\xff\xff\x7f", b"BM" + bytes(20), b"GIF89a"):
        with pytest.raises(DecodeError, match="^Pillow") as caught:
            decode_with_pil(data)
        assert "0x" not in str(caught.value)
