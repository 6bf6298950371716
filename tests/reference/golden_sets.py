"""Golden sets: small datasets of each kind, made always the same, and all that a reader finds in them."""

from __future__ import annotations

import base64
import io
import json
import zlib
from collections.abc import Callable
from contextlib import redirect_stdout
from hashlib import blake2b
from pathlib import Path
from typing import Any

import h5py
import lmdb
import numpy as np
import pyarrow as pa
import torch
from tar_reference import write_tar

import fastload
from fastload import transforms as T
from fastload.cli import main

__all__ = [
    "GOLDEN",
    "SETS",
    "as_text",
    "command",
    "facts_of",
    "files_of",
    "libraries",
    "make",
    "restore",
    "texts_as_bytes",
]

GOLDEN = Path(__file__).parents[1] / "golden"
CLASSES = {
    "cat": ("colour.jpg", "progressive.jpg", "colour.png", "lossless.webp"),
    "dog": ("full.jpg", "gray.jpg", "restarts.jpg", "palette.png", "lossy.webp"),
}
SCHEMA = {
    "image": "image",
    "label": "label(classes=['cat', 'dog'])",
    "depth": "image(1, 16)",
    "bands": "image(5)",
    "mask": "mask(classes=['sky', 'road', 'car', 'tree'])",
    "number": "scalar(int64)",
    "flag": "scalar(bool)",
    "pose": "array(float64, (2, 3))",
    "track": "array(int16, (None, 2))",
    "boxes": "boxes(xywh)",
    "kinds": fastload.Of("boxes", fastload.Labels(("cat", "dog"), (17, 18))),
    "names": fastload.Of("boxes", fastload.Texts()),
    "outlines": "polygons",
    "areas": "polygons(rle)",
    "both": "polygons(mixed)",
    "points": "keypoints(2)",
    "text": "text",
    "data": "bytes",
    "facts": "json",
}


def pictures() -> dict[str, bytes]:
    """Encoded pictures. They are kept, because an encoder's next version may write others."""
    return texts_as_bytes(json.loads((GOLDEN / "pictures.json").read_text(encoding="utf-8")))


def sample(number: int) -> dict[str, Any]:
    """Sample ``number`` of :data:`SCHEMA`; number 0 has no objects."""
    given, rows = pictures(), range(number)
    return {
        "image": given[("colour.jpg", "colour.png", "lossless.webp")[number % 3]],
        "label": (None, "cat", "dog")[number % 3],
        "depth": given["deep.png"],
        "bands": (np.arange(60, dtype=np.uint8) * 3 + number).reshape(3, 4, 5),
        "mask": given["ids.png"],
        "number": number - (1 << 40),
        "flag": number == 1,
        "pose": np.arange(6.0).reshape(2, 3) / 3 + number,
        "track": np.array([[row, -row] for row in rows], np.int16).reshape(-1, 2),
        "boxes": np.array([[row, 1, 2.5, 3] for row in rows], np.float32).reshape(-1, 4),
        "kinds": [(17, 18)[row % 2] - 17 for row in rows],
        "names": [f"naïve {row}" for row in rows],
        "outlines": [[[0, 0, 4, 0, row, 5]] for row in rows],
        "areas": [{"size": [3, 4], "counts": [2, 5, 5]} for _ in rows],
        "both": [
            [[0, 0, 4.25, 0, row, 5]] if row % 2 else {"size": [2, 2], "counts": [1, 3]} for row in rows
        ],
        "points": np.array([[[row, 1, 2], [3, row, 0]] for row in rows], np.float32).reshape(-1, 2, 3),
        "text": "" if number == 0 else "日本 text",
        "data": bytes(range(number * 3)),
        "facts": None if number == 0 else {"id": number, "tags": ["a", "b"], "part": 0.1},
    }


def command(*words: object) -> None:
    """Run ``fastload WORDS``, without what it says."""
    with redirect_stdout(io.StringIO()):
        assert main([*map(str, words), "--json"]) == 0


def of_pictures(*options: str) -> Callable[[Path], None]:
    """Makes a set of pictures in folders, of several shards."""

    def write(folder: Path) -> None:
        source = folder.with_name(f"{folder.name}-source")
        for name, files in CLASSES.items():
            (source / name).mkdir(parents=True, exist_ok=True)
            for file in files:
                (source / name / file).write_bytes(pictures()[file])
        command("pack", source, folder, "--shard-size", "4096", "--num-proc", "1", *options)

    return write


def recoded(folder: Path) -> None:
    """One that was changed in place, as format version 1.3 has it."""
    of_pictures()(folder)
    command("recode", folder, "--coefficients", "small")


def of_fields(folder: Path) -> None:
    """One with fields of every kind."""
    fastload.pack([sample(number) for number in range(3)], folder, SCHEMA, num_proc=1)


def of_masks(folder: Path) -> None:
    """One with a mask and a number beside each picture, which format version 1.1 has."""
    schema = {name: SCHEMA[name] for name in ("image", "label", "mask", "number")}
    fastload.pack([sample(number) for number in range(3)], folder, schema, num_proc=1, format="lmdb")


def indexed(folder: Path) -> None:
    """An index of a tar, which lies beside it here."""
    members = []
    for label, files in enumerate(CLASSES.values()):
        for file in files:
            key = f"{label}-{file.replace('.', '-')}"
            members += [(f"{key}{Path(file).suffix}", pictures()[file]), (f"{key}.cls", b"%d" % label)]
    tar = write_tar(folder.with_name("pictures.tar"), sorted(members))
    command("index", tar, "--output", folder)
    tar.rename(folder / tar.name)
    settle(folder)


SETS: dict[str, Callable[[Path], None]] = {
    "arrow": of_pictures(),
    "lmdb": of_pictures("--format", "lmdb"),
    "hdf5": of_pictures("--format", "hdf5"),
    "raw": of_pictures("--raw", "--size", "16x12"),
    "fast": of_pictures("--coefficients", "fast"),
    "small": of_pictures("--coefficients", "small"),
    "recoded": recoded,
    "fields": of_fields,
    "masks": of_masks,
    "tar": indexed,
}


def settle(folder: Path) -> None:
    """Let an index of shards elsewhere take them from its own folder."""
    manifest = json.loads((folder / "dataset.json").read_bytes())
    for shard in manifest["shards"]:
        shard["file"] = str(folder / Path(shard["file"]).name) if shard["file"][0] == "/" else shard["file"]
    shards = [[shard["file"], shard["size"], shard["records"]] for shard in manifest["shards"]]
    facts = [*(manifest[key] for key in ("num_records", "index_size", "index_crc", "classes")), shards]
    manifest["id"] = blake2b(json.dumps(facts, separators=(",", ":")).encode(), digest_size=16).hexdigest()
    (folder / "dataset.json").write_text(json.dumps(manifest), encoding="utf-8")


def make(name: str, folder: Path) -> Path:
    """Make a set of :data:`SETS` below ``folder``."""
    made = folder / name
    SETS[name](made)
    return made


def libraries() -> dict[str, str]:
    """What a container's bytes depend on, to their major versions."""
    return {each.__name__: each.__version__.partition(".")[0] for each in (pa, lmdb, h5py)}


def files_of(folder: Path) -> dict[str, bytes]:
    """All files, by their paths."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def as_text(data: bytes) -> list[str]:
    """Bytes as lines of text; most of an index is zeros."""
    text = base64.b64encode(zlib.compress(data, 9)).decode()
    return [text[start : start + 100] for start in range(0, len(text), 100)]


def texts_as_bytes(texts: dict[str, list[str]]) -> dict[str, bytes]:
    """What :func:`as_text` made."""
    return {name: zlib.decompress(base64.b64decode("".join(lines))) for name, lines in texts.items()}


def restore(texts: dict[str, list[str]], folder: Path) -> Path:
    """Write a set's files."""
    for name, data in texts_as_bytes(texts).items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    settle(folder)
    return folder


def hashed(value: Any) -> str:
    """Of any value that a sample has; numbers by type, shape and bytes."""
    return blake2b(repr(plain(value)).encode(), digest_size=8).hexdigest()


def plain(value: Any) -> Any:
    """In Python's own types, the same for the same value."""
    if isinstance(value, torch.Tensor):
        value = value.numpy()
    if isinstance(value, np.ndarray | np.generic):
        if value.dtype.kind in "iu":  # 16 bits are int32 up to torch 2.2
            value = value.astype(np.int64)
        return str(value.dtype), value.shape, value.tobytes()
    if isinstance(value, dict):
        return {key: plain(value[key]) for key in sorted(value)}
    return [plain(part) for part in value] if isinstance(value, list | tuple) else value


def facts_of(folder: Path) -> dict[str, Any]:
    """All that a reader finds: names, labels, and hashes of bytes, values and pixels, a sample each."""
    dataset = fastload.PackedDataset(folder)
    samples = range(len(dataset))
    facts: dict[str, Any] = {
        "classes": dataset.classes,
        "keys": [dataset.key(i) for i in samples],
        "labels": [dataset.label(i) for i in samples],
        "records": [hashed(dataset.read(i)) for i in samples],
    }
    found = [dataset.sample(i) for i in samples]
    facts["fields"] = {name: [hashed(one[name]) for one in found] for name in dataset.schema.names}
    if not dataset.is_plain:
        return facts
    with fastload.DataLoader(dataset, 4, transform=T.CenterCrop(8), num_workers=1) as loader:
        facts["batches"] = [hashed(batch) for batch in loader]
    back = folder.with_name(f"{folder.name}-back")
    command("unpack", folder, back)
    facts["unpacked"] = {name: hashed(data) for name, data in files_of(back).items()}
    return facts
