"""A table of odd image files, for decoders that must agree on all of them."""

from __future__ import annotations

import io

import numpy as np
from decode_images import patch_frame, resampled_jpeg
from pictures import encoded, picture
from PIL import Image

__all__ = ["odd_images"]


def odd_images() -> dict[str, bytes]:
    """Name and bytes of each, good ones and bad ones."""
    return {**_jpegs(), **_others(), **_bad()}


def _jpegs() -> dict[str, bytes]:
    found = {
        f"jpeg {name}": encoded(picture(i, 150, 120), subsampling=i)
        for i, name in enumerate(["444", "422", "420"])
    }
    found |= {f"jpeg {name}": resampled_jpeg(name, 6, 9, (3, 2)) for name in ("4:4:0", "4:1:1", "1x4")}
    for turn in range(1, 9):
        exif = Image.Exif()
        exif[0x0112] = turn
        found[f"jpeg exif {turn}"] = encoded(picture(turn, 140, 100), exif=exif)
    found["jpeg gray"] = encoded(picture(1, 130, 110).convert("L"))
    found["jpeg cmyk"] = encoded(picture(2, 130, 110).convert("CMYK"))
    found["jpeg rgb"] = encoded(picture(3, 130, 110), keep_rgb=True)
    found["jpeg progressive"] = encoded(picture(4, 130, 110), progressive=True)
    found["jpeg restarts"] = encoded(picture(5, 130, 110), restart_marker_blocks=3)
    found["jpeg 1x1"] = encoded(picture(6, 1, 1))
    found["jpeg 1x200"] = encoded(picture(6, 1, 200))
    found["jpeg 300x2"] = encoded(picture(6, 300, 2))
    found["jpeg and bytes behind it"] = found["jpeg 420"] + bytes(100)
    found["jpeg quality 5"] = encoded(picture(7, 130, 110), quality=5)
    return found


def _others() -> dict[str, bytes]:
    rgb = picture(8, 90, 70)
    alpha = rgb.copy()
    alpha.putalpha(rgb.convert("L"))
    palette = rgb.convert("P", palette=Image.Palette.ADAPTIVE, colors=16)
    deep = Image.fromarray((np.arange(90 * 70, dtype=np.uint16) * 9).reshape(70, 90))
    frames = io.BytesIO()
    rgb.save(frames, "WEBP", save_all=True, append_images=[picture(9, 90, 70)])
    return {
        "png": encoded(rgb, "PNG"),
        "png alpha": encoded(alpha, "PNG"),
        "png gray and alpha": encoded(alpha.convert("LA"), "PNG"),
        "png palette": encoded(palette, "PNG"),
        "png palette, transparent": encoded(palette, "PNG", transparency=3),
        "png 16 bits": encoded(deep, "PNG"),
        "png 1 bit": encoded(rgb.convert("1"), "PNG"),
        "webp": encoded(rgb, "WEBP"),
        "webp lossless": encoded(rgb, "WEBP", lossless=True),
        "webp animated": frames.getvalue(),
        "gif": encoded(palette, "GIF"),
        "bmp": encoded(rgb, "BMP"),
        "tiff": encoded(rgb, "TIFF"),
    }


def _bad() -> dict[str, bytes]:
    jpeg = encoded(picture(10, 150, 120), subsampling=2)
    holed = bytearray(jpeg)
    middle = len(jpeg) // 2
    holed[middle : middle + 200] = bytes(200)
    png = encoded(picture(11, 60, 50), "PNG")
    return {
        "bad: cut in the middle": jpeg[: len(jpeg) // 2],
        "bad: cut in the middle, but closed": jpeg[: len(jpeg) // 2] + b"\xff\xd9",
        "bad: no end marker": jpeg[:-2],
        "bad: ten bytes short": jpeg[:-10],
        "bad: header only": jpeg[:300] + b"\xff\xd9",
        "bad: zeros in the middle": bytes(holed),
        "bad: no quantisation tables": jpeg.replace(b"\xff\xdb", b"\xff\xfe"),
        "bad: no Huffman tables": jpeg.replace(b"\xff\xc4", b"\xff\xfe"),
        "bad: twelve bits": patch_frame(jpeg, precision=12),
        "bad: huge": patch_frame(jpeg, width=65000, height=65000),
        "bad: higher than its data": patch_frame(jpeg, height=2000),
        "bad: png cut": png[: len(png) // 2],
        "bad: not an image": b"GARBAGE" * 9,
        "bad: one byte": b"\xff",
    }
