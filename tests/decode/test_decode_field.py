"""decode_field: one picture of a dataset, as its field says."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from decode_images import encode, photo, pillow_rgb
from decode_png_writer import random_png, write_png
from field_sets import write_field_set
from PIL import Image as PilImage

from fastload import errors
from fastload._native import _C
from fastload.dataset.decoding import decode_field, decode_record
from fastload.sample.fields import Image, Label, Mask
from fastload.sample.schema import Schema
from fastload.shard.codecs import RAW
from fastload.shard.dataset import PackedFiles
from fastload.shard.index import RECORD

FIELDS = {
    "image": Image(),
    "gray": Image(1),
    "depth": Image(1, 16),
    "alpha": Image(4),
    "mask": Mask(),
    "instances": Mask(16),
    "label": Label(),
}


def test_every_field_of_a_dataset(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    wanted, samples = [], []
    for number in range(3):
        pixels = photo(30 + number, 20)
        depth, instances = (rng.integers(0, 65536, (20, 30, 1)) for _ in range(2))
        alpha, mask = rng.integers(0, 256, (8, 9, 4)), rng.integers(0, 4, (20, 30 + number, 1))
        jpeg = encode(pixels, "JPEG")
        samples.append(
            {
                "image": jpeg,
                "gray": encode(pixels, "WEBP", lossless=True),
                "depth": write_png(depth, 16, 0),
                "alpha": write_png(alpha, 8, 6),
                "mask": write_png(mask, 2, 3, palette=rng.integers(0, 256, (4, 3))),
                "instances": write_png(instances, 16, 0),
                "label": number,
            }
        )
        wanted.append(
            {
                "image": pillow_rgb(jpeg),
                "gray": np.asarray(PilImage.fromarray(pixels).convert("L"))[..., None],
                "depth": depth,
                "alpha": alpha,
                "mask": mask[..., 0],
                "instances": instances[..., 0],
            }
        )
    part = PackedFiles(write_field_set(tmp_path / "set", FIELDS, samples))
    for number, values in enumerate(wanted):
        for name, value in values.items():
            found = decode_field(part, name, number)
            assert found.dtype == (np.uint16 if name in ("depth", "instances") else np.uint8)
            assert np.array_equal(found, value), name
        assert np.array_equal(decode_record(part, number), values["image"])
    with pytest.raises(TypeError, match="'label' has no pixels: it is of kind label, not image or mask"):
        decode_field(part, "label", 0)
    with pytest.raises(errors.LimitError, match="max_pixels"):
        decode_field(part, "mask", 0, max_pixels=100)


def test_a_picture_of_another_format_is_an_error(tmp_path: Path) -> None:
    sample = {"image": random_png(2, 8, 5, 4), "mask": random_png(2, 8, 5, 4)}
    part = PackedFiles(write_field_set(tmp_path / "set", {"image": Image(), "mask": Mask()}, [sample]))
    with pytest.raises(
        errors.DecodeError, match="an 8-bit RGB PNG cannot be opened as ids of 8 bits: a mask is"
    ):
        decode_field(part, "mask", 0)


@pytest.mark.parametrize(("channels", "bits"), [(5, 8), (1, 16), (2, 16)])
def test_raw_pixels_have_the_records_format(channels: int, bits: int) -> None:
    pixels = np.random.default_rng(1).integers(0, 2**bits, (6, 7, channels)).astype(f"<u{bits // 8}")
    record = np.zeros(1, RECORD)[0]
    record["codec"], record["width"], record["height"] = RAW, 7, 6
    record["channels"], record["flags"] = channels, _C.FLAG_SIXTEEN_BIT if bits == 16 else 0
    part = SimpleNamespace(
        schema=Schema.of({"image": Image(channels, bits)}),
        stored=lambda sample, field: pixels.tobytes(),
        record=lambda sample, field: record,
    )
    assert np.array_equal(decode_field(part, "image", 0), pixels)
