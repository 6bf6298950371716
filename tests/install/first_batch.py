"""Made pictures, and a batch of them, where nothing but the wheel is: first_batch.py pictures | batch PACKED.

`pictures` writes an image folder of a JPEG, a PNG and a WebP under several names, so that each library in
the wheel is used; `batch` takes the first batch of the packed set and looks whether it shows them.
"""

from __future__ import annotations

import base64
import struct
import sys
import zlib
from pathlib import Path

JPEG = (  # 96x72: red grows to the right, green downwards, blue is half
    "/9j/4AAQSkZJRgABAQAAAQABAAD/2wBDABsSFBcUERsXFhceHBsgKEIrKCUlKFE6PTBCYFVlZF9VXVtqeJmBanGQc1tdhbWGkJ6j"
    "q62rZ4C8ybqmx5moq6T/2wBDARweHigjKE4rK06kbl1upKSkpKSkpKSkpKSkpKSkpKSkpKSkpKSkpKSkpKSkpKSkpKSkpKSkpKSk"
    "pKSkpKSkpKT/wAARCABIAGADASIAAhEBAxEB/8QAGQABAQEBAQEAAAAAAAAAAAAAAgABBQME/8QAFhABAQEAAAAAAAAAAAAAAAAA"
    "AAEC/8QAFwEBAQEBAAAAAAAAAAAAAAAAAwIGBP/EABYRAQEBAAAAAAAAAAAAAAAAAAEAAv/aAAwDAQACEQMRAD8A4EyUycyUy71o"
    "zqEyUycyUylZs6hMlMnMlMpWbOoTLZk5kplKzZ1CZKZOZKZSs2dQmSmTmSmUrNnVz5kpk5kpkq2azqEyUycyUyhZs6hMtmXpMtmU"
    "rNnUJkpk5kplKzZ1CZKZOZKZSs2dQmSmTmSmUrNnVz5kpk5kpkq2azqEyUycyUylZs6vOZKZOZKZSs2dQmSmTmSmUrNnUJkpk5kp"
    "lKzZ1CZKZOZKZSs2dXPmSmTmSmSrZrOoTLZl6TLZlKzZ1CZKZOZKZSs2dQmSmTmSmUrPnUJkpk5kplKzZ1CZKZOZbMpWbOr4Jkpl"
    "Iq2by2zJTKSVmyymSmUkrNllMlMpJWbLKZKZSSs2W2ZKZSSs2W//2Q=="
)
WEBP = "UklGRiQAAABXRUJQVlA4TBcAAAAvP8ALAAdQlCJXq/8BICH8Xy9G9D/1AwA="  # 64x48, all (200, 40, 90)
COLOUR = (200, 40, 90)


def png() -> bytes:
    """64x48 of one colour."""
    row = b"\0" + bytes(COLOUR) * 64
    chunks = (
        (b"IHDR", struct.pack(">IIBBBBB", 64, 48, 8, 2, 0, 0, 0)),
        (b"IDAT", zlib.compress(row * 48)),
        (b"IEND", b""),
    )
    parts = (struct.pack(">I", len(d)) + n + d + struct.pack(">I", zlib.crc32(n + d)) for n, d in chunks)
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


def write_pictures() -> None:
    """Two classes: eight JPEGs, and four each of PNG and WebP."""
    for label, files in (
        ("gradient", [("jpg", base64.b64decode(JPEG))] * 8),
        ("plain", [("png", png())] * 4 + [("webp", base64.b64decode(WEBP))] * 4),
    ):
        folder = Path("pictures") / label
        folder.mkdir(parents=True)
        for number, (suffix, data) in enumerate(files):
            (folder / f"{number}.{suffix}").write_bytes(data)


def take_batch(packed: str) -> None:
    """The first batch has the pictures' colours under the right labels."""
    from fastload import DataLoader
    from fastload import transforms as T

    loader = DataLoader(packed, batch_size=16, transform=T.Compose([T.Resize((48, 64))]))
    images, labels = next(iter(loader))
    assert images.shape == (16, 3, 48, 64), images.shape
    assert labels.tolist() == [0] * 8 + [1] * 8, labels
    for image in images[8:]:
        assert image.amax((1, 2)).tolist() == image.amin((1, 2)).tolist() == list(COLOUR), image
    for image in images[:8].float():
        assert image[0, :, :8].mean() < 40, "red on the left"
        assert image[0, :, -8:].mean() > 215, "red on the right"
        assert 108 < image[2].mean() < 148, "blue"


if sys.argv[1] == "pictures":
    write_pictures()
else:
    take_batch(sys.argv[2])
