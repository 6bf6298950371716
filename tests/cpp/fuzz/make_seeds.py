"""Starting points for the fuzz targets.

make_seeds.py OUT                    writes OUT/<target>/<name>: small pictures and index files of every kind,
                                     made here, and the saved inputs of corpus.txt
make_seeds.py --save TARGET FILE...  adds inputs (a finding, named as its file) to corpus.txt

corpus.txt holds one input a line: target, name, base64 of its zlib-compressed bytes.
"""

from __future__ import annotations

import argparse
import base64
import io
import random
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path

from PIL import Image

CORPUS = Path(__file__).with_name("corpus.txt")
JPEG_TARGETS = (
    "fuzz_jpeg_parser",
    "fuzz_jpeg_entropy",
    "fuzz_jpeg_parts",
    "fuzz_coefficients",
    "fuzz_decode",
    "fuzz_baseline",
)
OTHERS = (
    "fuzz_formats",
    "fuzz_index",
    "fuzz_column",
    "fuzz_polygons",
    "fuzz_cache",
    "fuzz_answer",
    "fuzz_pixels",
    "fuzz_vision",
)
TARGETS = (*JPEG_TARGETS, *OTHERS)
SIZES = ((1, 1), (2, 3), (8, 8), (17, 9), (16, 33), (40, 24))


def picture(width: int, height: int, mode: str = "RGB") -> Image.Image:
    """Coarse noise: small when encoded, with something in every channel."""
    rng = random.Random(width * 1000 + height)
    small = Image.frombytes("RGB", (4, 4), rng.randbytes(48))
    return small.resize((width, height), Image.Resampling.BICUBIC).convert(mode)


def encoded(image: Image.Image, kind: str, **options: object) -> bytes:
    out = io.BytesIO()
    image.save(out, kind, **options)
    return out.getvalue()


def jpegs() -> Iterator[tuple[str, bytes]]:
    for number, size in enumerate(SIZES):
        name = f"{size[0]}x{size[1]}"
        for sampling in (0, 1, 2):
            yield f"s{sampling}-{name}", encoded(picture(*size), "JPEG", quality=70, subsampling=sampling)
        yield f"gray-{name}", encoded(picture(*size, "L"), "JPEG", quality=95, optimize=True)
        yield (
            f"restart-{name}",
            encoded(picture(*size), "JPEG", quality=80, restart_marker_blocks=number + 1),
        )
        yield f"progressive-{name}", encoded(picture(*size), "JPEG", progressive=True)
    yield "cmyk", encoded(picture(20, 20, "CMYK"), "JPEG")
    yield "rgb", encoded(picture(20, 20), "JPEG", keep_rgb=True)
    # 4:4:0, which Pillow does not write: 4:2:2 with its factors and its sides exchanged.
    yield "s440", encoded(picture(24, 24), "JPEG", subsampling=1).replace(b"\1\x21\0", b"\1\x12\0", 1)


def others() -> Iterator[tuple[str, bytes]]:
    for mode in ("L", "LA", "RGB", "RGBA", "P", "1", "I;16"):
        image = picture(19, 11, "RGBA" if mode == "LA" else "RGB" if mode == "P" else "L")
        image = picture(19, 11, mode) if mode in ("RGB", "RGBA") else image.convert(mode)
        yield f"png-{mode.replace(';', '')}", encoded(image, "PNG")
    yield "webp-lossy", encoded(picture(19, 11), "WEBP", quality=60)
    yield "webp-lossless", encoded(picture(19, 11, "RGBA"), "WEBP", lossless=True)
    yield (
        "webp-animated",
        encoded(picture(9, 9), "WEBP", save_all=True, append_images=[picture(9, 9).rotate(90)]),
    )
    for kind in ("GIF", "BMP", "TIFF"):
        yield kind.lower(), encoded(picture(5, 5), kind)


def masks() -> Iterator[tuple[str, bytes]]:
    """PNGs of every depth and colour type, and what else decodes without libjpeg."""
    yield from others()
    yield "palette-2bit", encoded(picture(19, 11).quantize(4), "PNG", bits=2)
    yield "gray-alpha", encoded(picture(9, 7, "L").convert("LA"), "PNG")
    sixteen = Image.frombytes("I;16", (13, 9), random.Random(3).randbytes(13 * 9 * 2))
    yield "gray-16bit", encoded(sixteen, "PNG")
    # 16-bit colour, which Pillow does not write.
    rows = zlib.compress(b"".join(b"\0" + random.Random(y).randbytes(5 * 6) for y in range(4)))
    parts = (b"IHDR", struct.pack(">IIBBBBB", 5, 4, 16, 2, 0, 0, 0)), (b"IDAT", rows), (b"IEND", b"")
    chunks = (struct.pack(">I", len(d)) + k + d + struct.pack(">I", zlib.crc32(k + d)) for k, d in parts)
    yield "rgb-16bit", b"\x89PNG\r\n\x1a\n" + b"".join(chunks)


def index_file(records: int, page_bytes: int, fixed: bytes, spacing: int = 0) -> bytes:
    """A paged file (FORMAT.md) with checksums of 0; the target puts them right."""
    names = [f"name {i}".encode() for i in range(records)]
    offsets = [0]
    for name in names:
        offsets.append(offsets[-1] + len(name))
    data = fixed * records + struct.pack(f"<{records + 1}Q", *offsets) + b"".join(names)
    begin, table = 128, 128 + len(fixed) * records
    pages = -(-len(data) // page_bytes)
    header = struct.pack(
        "<8sHHI8QII32sII",
        *(b"FLINDEX1", 1, 0, 128, records, begin, len(data), page_bytes, table),
        *(table + 8 * (records + 1), begin + len(data), begin + len(data) + 4 * pages, spacing, 0, b"", 0, 0),
    )
    return header + data + bytes(4 * pages)


def indexes() -> Iterator[tuple[str, bytes]]:
    record = struct.pack("<QIIiIHH4B", 10, 20, 0, 3, 0, 64, 48, 1, 3, 0, 0)
    for records, page_bytes in ((0, 64), (1, 64), (3, 32), (5, 4096)):
        index = index_file(records, page_bytes, record)
        entries = index_file(records, page_bytes, b"", 64)
        for fixes in (31, 15, 3, 0):
            control = struct.pack("<BHHxxx", fixes, len(index), 2)
            yield f"{records}-{page_bytes}-{fixes}", control + index + entries


def columns() -> Iterator[tuple[str, bytes]]:
    for storage, width in enumerate((32, 12, 1)):  # record, fixed, ragged
        ragged = storage == 2
        for records, page_bytes in ((0, 64), (1, 64), (5, 32), (9, 4096)):
            fixed = b"" if ragged else bytes(range(width))
            file = index_file(records, page_bytes, fixed, 0 if ragged else width)
            for fixes in (7, 3, 0):
                control = struct.pack("<BBHHxx", fixes, storage, width - 1, 2)
                yield f"{storage}-{records}-{page_bytes}-{fixes}", control + file


def seeds() -> Iterator[tuple[str, str, bytes]]:
    """Target, name, input."""
    rng = random.Random(1)
    for name, file in jpegs():
        yield "fuzz_jpeg_parser", name, file
        yield "fuzz_jpeg_parts", name, rng.randbytes(16) + file
        yield "fuzz_baseline", name, bytes(4) + file
        for way in range(8):  # JPEG or its record, which the target makes, of either form, sizes put right
            # Records come unchanged, with one byte changed, and with four.
            changes = b"".join(rng.randbytes(2) + bytes([rng.choice((1, 16, 255))]) for _ in range(4))
            changes = changes[: (0, 3, 12)[(way + len(name)) % 3]].ljust(12, b"\0")
            control = bytes([way]) + rng.randbytes(10) + changes + rng.randbytes(1)
            yield "fuzz_coefficients", f"{name}-{way}", control + file
        for kind, spacing in enumerate((0, 16, 64)):
            patches = rng.randbytes(3 * kind)
            control = struct.pack("<HBH", spacing, kind, len(patches)) + rng.randbytes(11)
            yield "fuzz_jpeg_entropy", f"{name}-{kind}", control + patches + file
    for name, file in (*jpegs(), *others()):
        yield "fuzz_jpeg_parser", name, file
        for way in range(4):
            yield "fuzz_decode", f"{name}-{way}", bytes([8 * way]) + rng.randbytes(31) + file
    yield "fuzz_decode", "raw", b"\7" + rng.randbytes(31) + rng.randbytes(300)
    for name, file in (*masks(), *jpegs()):
        if name.startswith(("s0", "s1", "restart")):
            continue
        for wanted in range(10):
            yield "fuzz_formats", f"{name}-{wanted}", bytes([wanted]) + rng.randbytes(31) + file
    for wanted in range(12):
        yield "fuzz_formats", f"raw-{wanted}", bytes([0x80 | wanted]) + rng.randbytes(31) + rng.randbytes(300)
    for name, file in indexes():
        yield "fuzz_index", name, file
    for name, file in columns():
        yield "fuzz_column", name, file
    for name, file in caches():
        yield "fuzz_cache", name, file
    for name, text in answers():
        yield "fuzz_answer", name, text
    for number in range(40):
        for target in ("fuzz_pixels", "fuzz_vision"):
            yield target, f"drawn-{number}", random.Random(number).randbytes(100 + 5 * number)
    for name, way, value in polygons():
        yield "fuzz_polygons", name, bytes([way, 39, 29]) + rng.randbytes(14) + value


def caches() -> Iterator[tuple[str, bytes]]:
    """A node cache of three records, one of which is there, and a disk tier of two classes."""
    table, data = 8192 + 4096, 8192 + 4096 + 3 * 32
    for tier in (b"", b"coefficients"):
        header = struct.pack(
            "<8sHHI12QII32s32sII",
            *(b"FLCACHE1", 1, 0, 8192, data + 300, 3, table, data, 0, data, 0, data, 300, 3, 300, 0, 0, 0),
            *(b"", tier, 0, 0),
        ).ljust(512, b"\0")
        live = struct.pack("<II56xQQQ", 1, 0, 1, 100, 0)
        entries = b"".join(
            struct.pack("<QIHHIIII", data + 100 * i, 100, 8, 4, 0, 0, int(i == 1), 60) for i in range(3)
        )
        for fixes in (7, 15, 3, 0):
            control = struct.pack("<BBHH10x", 0, fixes, 1 + fixes, 100 + fixes % 2)
            yield (
                f"cache-{tier.decode()}-{fixes}",
                control + header + live + entries + bytes(range(256)) + bytes(44),
            )
    places, slots = 16384 + 4096, 16384 + 4096 + 4 * 4
    header = struct.pack(
        "<8sHHI9QII32s32sI",
        *(b"FLTIER01", 1, 0, 16384, slots + 4 * 5, 3 * 4096 + 2 * 8192, 4, 5, places, slots, 9000, 99999, 0),
        *(0, 2, b"", b"", 0),
    ).ljust(512, b"\0")
    classes = struct.pack("<8Q", 4096, 0, 3, 0, 8192, 3, 2, 3 * 4096).ljust(160, b"\0")
    live = struct.pack("<IIQQ", 0, 0, 1, 4096) + struct.pack("<8Q", 1, *(0,) * 7)
    words = struct.pack("<4I5I", 1, 0, 4, 0, 1, 0, 0x7FFFFFFF, 0x80000003, 0)
    for fixes in (19, 3, 1, 0):
        for length in (100, 5000):
            control = struct.pack("<BBHH10x", 1, fixes, fixes % 4, length)
            yield f"tier-{fixes}-{length}", control + header + classes + live + words
    # Without classes: there is nothing to copy.
    none = header[:40] + bytes(8) + header[48:92] + bytes(4) + header[96:]
    yield "tier-none", struct.pack("<BBHH10x", 1, 3, 0, 100) + none + classes + live + words


def answers() -> Iterator[tuple[str, bytes]]:
    """Ranges, heads, errors and paths, as stores and users write them."""
    for number, text in enumerate((b"bytes 10-99/1000", b" Bytes 0-0/*", b"bytes 5-4/9", b"items 0-1/2")):
        yield f"range-{number}", b"\0" + text
    head = b'HTTP/1.1 206 Partial Content\r\nETag: "a"\r\nContent-Length: 90\r\n'
    head += b"Content-Range: bytes 10-99/1000\r\nRetry-After: 7\r\nx-amz-bucket-region: eu\r\n"
    yield "head", b"\1" + head + b"Date: Sun, 06 Nov 1994 08:49:37 GMT\r\n\r\n"
    yield "later", b"\1HTTP/1.1 503 Slow Down\r\nRetry-After: Sun, 06 Nov 1994 08:49:37 GMT\r\n"
    for number, text in enumerate((b"<Error><Code>SlowDown</Code></Error>", b"\n plain\1words\nmore")):
        yield f"error-{number}", b"\2" + text
    yield "path", b"\3a b/\xc3\xbc+c&d=(1)~'"


def polygons() -> Iterator[tuple[str, int, bytes]]:
    """A triangle, an area of 30 x 40 pixels, and both beside an object without outlines."""
    corners = (1.5, 2.0, 35.25, 4.0, 20.0, 28.75)
    counts = (500, 100, 600)
    yield "outlines", 0, struct.pack("<3I6f", 1, 1, 3, *corners)
    yield "areas", 1, struct.pack("<7I", 1, 30, 40, 3, *counts)
    head = struct.pack("<10I", 3, 0, 1, 0, 1, 0, 3, 30, 40, 3)
    yield "mixed", 2, head + struct.pack("<6d3I", *corners, *counts)
    for number, at in enumerate((1e300, float("nan"), -0.0, 2.0**31, -1e9)):
        yield f"far-{number}", 2, struct.pack("<4I", 1, 0, 1, 3) + struct.pack("<6d", *corners[:5], at)


def saved() -> Iterator[tuple[str, str, bytes]]:
    for line in CORPUS.read_text().splitlines():
        target, name, text = line.split()
        yield target, name, zlib.decompress(base64.b64decode(text))


def save(target: str, files: list[Path]) -> None:
    with CORPUS.open("a") as corpus:
        for file in files:
            text = base64.b64encode(zlib.compress(file.read_bytes(), 9)).decode()
            corpus.write(f"{target} {file.name} {text}\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--save", metavar="TARGET", choices=TARGETS)
    parser.add_argument("paths", nargs="+", type=Path)
    arguments = parser.parse_args()
    if arguments.save:
        save(arguments.save, arguments.paths)
        return
    for target, name, content in (*seeds(), *saved()):
        folder = arguments.paths[0] / target
        folder.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)


if __name__ == "__main__":
    main()
