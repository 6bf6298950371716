"""File name suffixes by content, in lower case."""

from __future__ import annotations

#: Images: torchvision.datasets.folder.IMG_EXTENSIONS.
IMAGES = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp")
#: Tables whose columns have types.
TABLES = (".parquet", ".arrow")
#: Tables of text.
TEXT_TABLES = (".csv", ".jsonl", ".json")
#: Tars that are not plain ranges of bytes.
COMPRESSED_TARS = (".tar.gz", ".tgz", ".tar.bz2", ".tar.xz", ".tar.zst")
#: Files that ``fastload index`` reads in place.
INDEXED = (".arrow", ".lmdb", ".mdb", ".h5", ".hdf5", ".tar", ".mds")
_IMAGES = tuple(suffix.encode() for suffix in IMAGES)


def is_image(name: str | bytes) -> bool:
    """Return whether a file of this name is an image, as ImageFolder decides."""
    return name.lower().endswith(IMAGES) if isinstance(name, str) else name.lower().endswith(_IMAGES)
