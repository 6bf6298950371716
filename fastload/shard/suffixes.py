"""How names of files end, by what is in them; lower case."""

from __future__ import annotations

#: Images: torchvision.datasets.folder.IMG_EXTENSIONS.
IMAGES = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp")
#: Tables whose columns have types.
TABLES = (".parquet", ".arrow")
#: Tables of text.
TEXT_TABLES = (".csv", ".jsonl")
#: Tars that are no plain ranges of bytes.
COMPRESSED_TARS = (".tar.gz", ".tgz", ".tar.bz2", ".tar.xz", ".tar.zst")
#: Files that ``fastload index`` reads where they lie.
INDEXED = (".arrow", ".lmdb", ".mdb", ".h5", ".hdf5", ".tar", ".mds")
_IMAGES = tuple(suffix.encode() for suffix in IMAGES)


def is_image(name: str | bytes) -> bool:
    """Whether a file of this name is an image, as ImageFolder decides."""
    return name.lower().endswith(IMAGES) if isinstance(name, str) else name.lower().endswith(_IMAGES)
