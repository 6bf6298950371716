"""Pictures opened in other formats than RGB: against Pillow, else against the samples as written."""

from __future__ import annotations

import io

import numpy as np
import pytest
from decode_images import encode, photo, pillow_rgb
from decode_png_writer import CHANNELS, GRAY, KINDS, PALETTE, random_png, write_png
from PIL import Image

from fastload import errors
from fastload._native import _C

GRAY8, RGB8, GRAY16, RGB16, IDS8, IDS16 = (
    (1, 8, False),
    (3, 8, False),
    (1, 16, False),
    (3, 16, False),
    (1, 8, True),
    (1, 16, True),
)
PHOTO = photo(83, 61)
FILES = {
    "jpeg": encode(PHOTO, "JPEG", quality=80),
    "gray jpeg": encode(PHOTO, "JPEG", "L", quality=80),
    "gray progressive": encode(PHOTO, "JPEG", "L", progressive=True),
    "progressive": encode(PHOTO, "JPEG", progressive=True),
    "cmyk": encode(PHOTO, "JPEG", "CMYK"),
    "webp": encode(PHOTO, "WEBP", lossless=True),
    "png": encode(PHOTO, "PNG"),
    "rgba": encode(PHOTO, "PNG", "RGBA"),
    "palette": encode(PHOTO, "PNG", "P"),
}


def bytes_of(data: bytes) -> np.ndarray:
    return np.frombuffer(data, np.uint8)


def decoded(data: bytes, wanted: tuple[int, int, bool], **options: object) -> np.ndarray:
    return _C.Decoder().decode(bytes_of(data), wanted, **options)


def samples_of(colour: int, depth: int, width: int = 29, height: int = 17) -> np.ndarray:
    return np.random.default_rng([colour, depth]).integers(0, 2**depth, (height, width, CHANNELS[colour]))


@pytest.mark.parametrize("kind", FILES)
def test_gray_is_pillows(kind: str) -> None:
    """In every codec convert("L") of what RGB gives; RGB itself is what decode_rgb gives."""
    data, before = FILES[kind], _C.simd_level()
    wanted = np.asarray(Image.fromarray(pillow_rgb(data)).convert("L"))
    for level in ("scalar", "neon", "sse4", "avx2", "avx512"):
        _C.set_simd_level(level)
        assert np.array_equal(decoded(data, GRAY8)[..., 0], wanted)
        assert np.array_equal(decoded(data, GRAY8, roi=(5, 7, 41, 30))[..., 0], wanted[7:37, 5:46])
    _C.set_simd_level(before)
    assert np.array_equal(decoded(data, RGB8), _C.decode_rgb(bytes_of(data)))


@pytest.mark.parametrize("interlaced", [False, True])
@pytest.mark.parametrize(("colour", "depth"), [kind for kind in KINDS if kind[1] <= 8])
def test_gray_of_every_png_is_pillows(colour: int, depth: int, interlaced: bool) -> None:
    data = random_png(colour, depth, 33, 17, interlaced=interlaced)
    with Image.open(io.BytesIO(data)) as image:
        assert np.array_equal(decoded(data, GRAY8)[..., 0], np.asarray(image.convert("L")))


def test_gray_of_each_colour() -> None:
    """Every value that the sum of three products can round to, by red, green and blue alone and mixed."""
    rng = np.random.default_rng(0)
    pixels = rng.integers(0, 256, (300, 300, 3), np.uint8)
    pixels[:256, 0], pixels[:256, 1, 0], pixels[:256, 2, 1] = np.arange(256)[:, None], *[np.arange(256)] * 2
    found = decoded(encode(pixels, "PNG"), GRAY8)
    assert np.array_equal(found[..., 0], np.asarray(Image.fromarray(pixels).convert("L")))


@pytest.mark.parametrize("interlaced", [False, True])
@pytest.mark.parametrize(("colour", "depth"), KINDS)
def test_channels_are_kept(colour: int, depth: int, interlaced: bool) -> None:
    """16 bits with their values, two and four channels with their alpha; gray is repeated, alpha dropped."""
    samples = samples_of(colour, depth)
    if depth < 8 or colour == PALETTE:
        pytest.skip("ids only")
    data = write_png(samples, depth, colour, interlaced=interlaced)
    is_gray, alpha = CHANNELS[colour] < 3, CHANNELS[colour] % 2 == 0
    dtype = np.uint16 if depth == 16 else np.uint8
    if alpha:
        found = decoded(data, (CHANNELS[colour], depth, False))
        assert found.dtype == dtype
        assert np.array_equal(found, samples)
    colours = samples[..., :1].repeat(3, 2) if is_gray else samples[..., :3]
    assert np.array_equal(decoded(data, (3, depth, False)), colours)
    if depth == 16 and is_gray:
        found = decoded(data, GRAY16, roi=(3, 4, 11, 9))
        assert found.dtype == np.uint16
        assert np.array_equal(found, samples[4:13, 3:14, :1])


@pytest.mark.parametrize("colour", [0, 2, 4, 6])
def test_sixteen_bits_are_scaled_to_eight(colour: int) -> None:
    samples = samples_of(colour, 16)
    data, scaled = write_png(samples, 16, colour), np.rint(samples / 257).astype(np.uint8)
    assert np.array_equal(decoded(data, (CHANNELS[colour], 8, False)), scaled)
    colours = scaled[..., :1].repeat(3, 2) if CHANNELS[colour] < 3 else scaled[..., :3]
    gray = np.asarray(Image.fromarray(np.ascontiguousarray(colours)).convert("L"))
    assert np.array_equal(decoded(data, GRAY8)[..., 0], gray)


@pytest.mark.parametrize("interlaced", [False, True])
@pytest.mark.parametrize("depth", [1, 2, 4, 8, 16])
@pytest.mark.parametrize("colour", [GRAY, PALETTE])
def test_ids_are_the_samples(colour: int, depth: int, interlaced: bool) -> None:
    if (colour, depth) not in KINDS:
        pytest.skip("a palette has at most 256 colours")
    samples = samples_of(colour, depth)
    palette = np.random.default_rng(1).integers(0, 256, (2**depth, 3)) if colour == PALETTE else None
    data = write_png(samples, depth, colour, interlaced=interlaced, palette=palette)
    for wanted in (IDS8, IDS16):
        if depth > wanted[1]:
            continue
        found = decoded(data, wanted)
        assert found.dtype == (np.uint16 if wanted == IDS16 else np.uint8)
        assert np.array_equal(found, samples[..., 0])
        assert np.array_equal(decoded(data, wanted, roi=(5, 6, 7, 8)), samples[6:14, 5:12, 0])
    if colour == PALETTE:
        with Image.open(io.BytesIO(data)) as image:
            assert np.array_equal(np.asarray(image), samples[..., 0])


@pytest.mark.parametrize(("channels", "bits"), [(1, 8), (2, 8), (5, 8), (255, 8), (1, 16), (3, 16), (7, 16)])
def test_raw_pixels(channels: int, bits: int) -> None:
    pixels = np.random.default_rng(2).integers(0, 2**bits, (13, 9, channels)).astype(f"<u{bits // 8}")
    raw = (9, 13, channels, bits)
    # One byte in front: records begin anywhere.
    data = np.frombuffer(b"." + pixels.tobytes(), np.uint8)[1:]
    decoder = _C.Decoder()
    assert np.array_equal(decoder.decode(data, (channels, bits, False), raw), pixels)
    assert np.array_equal(decoder.decode(data, (channels, bits, False), raw, (2, 3, 4, 5)), pixels[3:8, 2:6])
    if channels == 1:
        assert np.array_equal(decoder.decode(data, (1, bits, True), raw), pixels[..., 0])
        assert np.array_equal(decoder.decode(data, IDS16, raw), pixels[..., 0])
    if (channels, bits) == (1, 8):
        assert np.array_equal(decoder.decode(data, RGB8, raw), pixels.repeat(3, 2))
    assert decoder.counts()["raw"] >= 2


def test_raw_rgb_as_gray() -> None:
    found = decoded(PHOTO.tobytes(), GRAY8, raw=(83, 61, 3, 8))
    assert np.array_equal(found[..., 0], np.asarray(Image.fromarray(PHOTO).convert("L")))


def test_what_pillow_decodes_can_be_gray() -> None:
    def by_pillow(record: bytes) -> np.ndarray:
        return np.ascontiguousarray(pillow_rgb(record))

    data = bytes_of(encode(PHOTO, "BMP"))
    found = _C.Decoder(fallback=by_pillow).decode(data, GRAY8)
    assert np.array_equal(found[..., 0], np.asarray(Image.fromarray(PHOTO).convert("L")))


@pytest.mark.parametrize(
    ("data", "wanted", "message"),
    [
        (
            FILES["png"],
            IDS8,
            "an 8-bit RGB PNG cannot be opened as ids of 8 bits: a mask is a PNG with a palette",
        ),
        (
            FILES["jpeg"],
            IDS8,
            "a jpeg cannot be opened as ids of 8 bits: a mask is .* Convert it to class ids",
        ),
        (FILES["rgba"], IDS16, "an 8-bit RGB PNG with alpha cannot be opened as ids of 16 bits"),
        (random_png(4, 8, 3, 3), IDS8, "an 8-bit gray PNG with alpha cannot"),
        (
            random_png(0, 16, 3, 3),
            IDS8,
            r"a 16-bit gray PNG .* ids of 8 bits: declare the field as Mask\(bits=16\)",
        ),
        (FILES["png"], GRAY16, r"1 channel of 16 bits: it has fewer bits. .*Image\(bits=8\)"),
        (
            FILES["jpeg"],
            RGB16,
            "a jpeg cannot be opened as 3 channels of 16 bits: it gives 1 or 3 channels of 8",
        ),
        (random_png(2, 16, 3, 3), GRAY16, r"it has 3 channels. Declare the field as Image\(channels=3\)"),
        (FILES["png"], (4, 8, False), r"it has 3 channels. Declare the field as Image\(channels=3\)"),
        (FILES["palette"], (2, 8, False), "an 8-bit palette PNG cannot be opened as 2 channels of 8 bits"),
        (FILES["webp"], (4, 8, False), "a webp cannot be opened as 4 channels of 8 bits"),
    ],
)
def test_what_cannot_be_had_says_what_to_do(data: bytes, wanted: tuple[int, int, bool], message: str) -> None:
    with pytest.raises(errors.DecodeError, match=message):
        decoded(data, wanted)


def test_raw_pixels_that_cannot_be_had() -> None:
    with pytest.raises(
        errors.DecodeError, match=r"a raw picture of 5 channels of 8 bits cannot .*channels=5"
    ):
        decoded(bytes(60), RGB8, raw=(4, 3, 5, 8))
    with pytest.raises(errors.DecodeError, match="2 channels of 8 bits cannot be opened as ids of 8 bits"):
        decoded(bytes(24), IDS8, raw=(4, 3, 2, 8))
    with pytest.raises(errors.DecodeError, match="4x3 with 1 channel of 16 bits needs 24 bytes, .* has 12"):
        decoded(bytes(12), GRAY16, raw=(4, 3, 1, 16))
    for wanted in ((0, 8, False), (256, 8, False), (3, 12, False), (3, 8, True)):
        with pytest.raises(ValueError, match="1 to 255 channels .ids: 1. of 8 or 16 bits. Found"):
            decoded(FILES["png"], wanted)


def test_a_cut_file_is_an_error_in_every_format() -> None:
    whole = random_png(0, 16, 40, 40)
    for wanted in (GRAY8, GRAY16, RGB16, IDS16):
        with pytest.raises(errors.DecodeError, match="PNG"):
            decoded(whole[: len(whole) // 2], wanted)
