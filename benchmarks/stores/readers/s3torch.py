"""torch's S3 connector (s3torchconnector): an object for each picture, a map-style dataset. No cache."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from stores.reader_parts import REGION, Decoder, Source, epochs_of, loader_of

VARIANTS = ()
CACHED = False


def versions() -> dict[str, str]:
    from importlib.metadata import version

    import s3torchconnector  # noqa: F401

    return {name: version(name) for name in ("s3torchconnector", "s3torchconnectorclient", "torch")}


def prepare(folder: Path, target: Path, shard_bytes: int) -> None:
    """The objects are the files as they are."""
    target.symlink_to(folder)


class Picture:
    """What the dataset makes of an object: pixels, and a label (the length of the key's first part)."""

    def __init__(self) -> None:
        self._decode = Decoder()

    def __call__(self, reader: object) -> tuple[object, int]:
        return self._decode(reader.read()), len(reader.key)  # type: ignore[attr-defined]


def epochs(source: Source, variant: str, workers: int) -> Iterator[Iterator[int]]:
    from s3torchconnector import S3ClientConfig, S3MapDataset

    dataset = S3MapDataset.from_prefix(
        source.url,
        region=REGION,
        endpoint=source.endpoint,
        transform=Picture(),
        s3client_config=S3ClientConfig(force_path_style=True),
    )
    return epochs_of(loader_of(dataset, source, workers, shuffle=True))
