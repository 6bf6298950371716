"""Small sets of every kind that ``pack`` takes, each of the same pictures; a module that processes import."""

from __future__ import annotations

import gzip
import io
import json
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import h5py
import lmdb
import numpy as np
import pyarrow as pa
from annotated_trees import ids_of, write_mask, write_voc, write_yolo
from hub_tables import arrow_bytes, parquet_bytes, table
from made_detection import made_set
from mds_reference import write_mds
from pack_trees import encoded
from PIL import Image
from tar_reference import write_tar

import fastload

COUNT = 9
WIDTH, HEIGHT = 40, 30
OTHER = 4  # the picture in whose place another one may be
SHARD_SIZE = 5000  # of a set in three or more shards
Pictures = Sequence[bytes]


def pictures(other: bytes | None = None) -> list[bytes]:
    """Encoded pictures of one size, every third a progressive JPEG and the last a PNG.

    Args:
        other: what is there in the place of picture :data:`OTHER`.
    """
    made = [encoded(i, "JPEG" if i < COUNT - 1 else "PNG", WIDTH, HEIGHT) for i in range(COUNT)]
    for i in range(0, COUNT - 1, 3):
        out = io.BytesIO()
        Image.open(io.BytesIO(made[i])).save(out, "JPEG", progressive=True)
        made[i] = out.getvalue()
    made[OTHER] = made[OTHER] if other is None else other
    return made


# ---- Makers: a folder and pictures in, what pack takes out -------------------------------------------


def _names(parts: Iterable[str]) -> list[str]:
    """Names of the pictures, in folders of a few."""
    folders = list(parts)
    return [f"{folders[i * len(folders) // COUNT]}{i:03d}.jpg" for i in range(COUNT)]


def _write(folder: Path, files: Mapping[str, bytes]) -> Path:
    for name, data in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    return folder


def _tree(folder: Path, images: Pictures, *parts: str) -> Path:
    return _write(folder, dict(zip(_names(parts), images, strict=True)))


def _classes(folder: Path, images: Pictures) -> Path:
    return _tree(folder, images, "cat/", "dog/")


def _flat(folder: Path, images: Pictures) -> Path:
    return _tree(folder, images, "")


def _splits(folder: Path, images: Pictures) -> Path:
    return _tree(folder, images, "train/cat/", "train/dog/", "val/cat/")


def _csv(folder: Path, images: Pictures) -> Path:
    _tree(folder, images, "a/", "b/")
    lines = [f"{name},{'cat' if i % 2 else 'dog'}\n" for i, name in enumerate(_names(("a/", "b/")))]
    (folder / "list.csv").write_text("".join(["path,label\n", *lines]))
    return folder / "list.csv"


def _jsonl(folder: Path, images: Pictures) -> Path:
    _tree(folder, images, "a/", "b/")
    rows = [
        {"image": name, "caption": f"picture {i}", "boxes": [[1, 2, 3 + i, 9]] * (i % 3)}
        for i, name in enumerate(_names(("a/", "b/")))
    ]
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder / "rows.jsonl"


def _table(images: Pictures, first: int = 0) -> Any:
    return table(images, first, caption=[f"picture {first + i}" for i in range(len(images))])


def _parquet(folder: Path, images: Pictures) -> Path:
    return _write(folder, {"birds.parquet": parquet_bytes(_table(images), 2)}) / "birds.parquet"


def _arrow(folder: Path, images: Pictures) -> Path:
    return _write(folder, {"birds.arrow": arrow_bytes(_table(images), batch=2)}) / "birds.arrow"


def _parquets(folder: Path, images: Pictures) -> Path:
    parts = {"0": _table(images[:5]), "1": _table(images[5:], 5)}
    return _write(folder, {f"data/train-0000{n}-of-00002.parquet": parquet_bytes(rows, 2)
                              for n, rows in parts.items()})  # fmt: skip


def _with_pictures(folder: Path, images: Pictures) -> Path:
    """Put pictures in the place of those that a set's own maker has drawn."""
    places = sorted(path for path in folder.rglob("*.jpg") if path.is_file())
    for path, data in zip(places, images, strict=True):
        path.write_bytes(data)
    return folder


def _coco(folder: Path, images: Pictures) -> Path:
    made_set(folder, COUNT, size=(WIDTH, HEIGHT))
    (folder / "annotations" / "panoptic.json").unlink()
    shutil.rmtree(folder / "panoptic")
    shutil.rmtree(folder / "masks")
    return _with_pictures(folder, images)


def _panoptic(folder: Path, images: Pictures) -> Path:
    made_set(folder, COUNT, size=(WIDTH, HEIGHT))
    for name in ("instances", "captions"):
        (folder / "annotations" / f"{name}.json").unlink()
    shutil.rmtree(folder / "masks")
    return _with_pictures(folder, images)


def _yolo(folder: Path, images: Pictures) -> Path:
    write_yolo(folder, COUNT, splits=("train",))
    return _with_pictures(folder, images)


def _voc(folder: Path, images: Pictures) -> Path:
    return _with_pictures(write_voc(folder, COUNT), images)


def _pairs(folder: Path, images: Pictures) -> Path:
    for i in range(COUNT):
        write_mask(folder / "masks" / f"{i:03d}.png", ids_of(i, (WIDTH, HEIGHT)))
    _tree(folder / "images", images, "")
    return folder


def _members(images: Pictures, first: int = 0) -> list[tuple[str, bytes]]:
    numbered = list(enumerate(images, first))
    return [
        member
        for i, data in numbered
        for member in ((f"{i:03d}.jpg", data), (f"{i:03d}.txt", f"picture {i}".encode()))
    ]


def _tars(folder: Path, images: Pictures) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    write_tar(folder / "some-000.tar", _members(images[:5]))
    write_tar(folder / "some-001.tar", _members(images[5:], 5))
    return folder


def _gzipped(folder: Path, images: Pictures) -> Path:
    for path in list(_tars(folder, images).glob("*.tar")):
        path.with_suffix(".tar.gz").write_bytes(gzip.compress(path.read_bytes(), mtime=0))
        path.unlink()
    return folder


class PictureSamples:
    """A sequence of samples."""

    def __init__(self, images: Pictures) -> None:
        self._images = images

    def __len__(self) -> int:
        return len(self._images)

    def __getitem__(self, i: int) -> dict[str, Any]:
        return {"image": self._images[i], "caption": f"picture {i}", "label": i % 3}


def _sequence(folder: Path, images: Pictures) -> PictureSamples:
    return PictureSamples(images)


def _iterable(folder: Path, images: Pictures) -> Iterator[dict[str, Any]]:
    samples = PictureSamples(images)
    return (samples[i] for i in range(len(samples)))


# ---- Lists of pictures: those of each sample, None at a place without one, and in place of a list ----

#: Picture :data:`OTHER` is in the sample of this number, so that these are those of one list each, too.
LISTS: tuple[tuple[int | None, ...] | None, ...] = (
    (0,), (), (1, None, 2), None, (3, OTHER), (5,), (6, None, 7, 8),
)  # fmt: skip
_PICTURE = pa.struct([("bytes", pa.binary()), ("path", pa.string())])


def _cells(images: Pictures) -> list[list[dict[str, Any] | None] | None]:
    """The lists as a typed table's cells."""
    return [
        None if each is None
        else [None if i is None else {"bytes": images[i], "path": f"{i}.jpg"} for i in each]
        for each in LISTS
    ]  # fmt: skip


def _of_columns(name: str, columns: Mapping[str, Any]) -> Callable[[Path, Pictures], Path]:
    """Return the maker of a Parquet file of lists of pictures and other columns."""

    def made(folder: Path, images: Pictures) -> Path:
        lists = pa.array(_cells(images), pa.list_(_PICTURE))
        return _write(folder, {name: parquet_bytes(pa.table({"images": lists, **columns}), 2)}) / name

    return made


_TURNS = [[{"user": f"What is {i}?", "assistant": f"Number {i}."}] * (i % 3) for i in range(len(LISTS))]
_finevision = _of_columns("finevision.parquet", {
    "texts": _TURNS, "source": ["made"] * len(LISTS), "relevance_min": [*range(len(LISTS))],
})  # fmt: skip
_cauldron = _of_columns("cauldron.parquet", {
    "texts": [[{**turn, "source": "made"} for turn in turns] for turns in _TURNS],
})  # fmt: skip
# Texts stand where there is no picture, and the other way round.
_obelics = _of_columns("obelics.parquet", {
    "texts": [[f"{i}" if i is None else None for i in each or ()] for each in LISTS],
    "metadata": ['[{"src": "a"}]'] * len(LISTS),
})  # fmt: skip


def _llava(folder: Path, images: Pictures) -> Path:
    """``image`` is a path, a list of paths, or absent."""
    _write(folder, {f"coco/{i}.jpg": data for i, data in enumerate(images)})
    rows: list[dict[str, Any]] = []
    for number, each in enumerate(LISTS):
        rows.append({"id": f"{number}", "conversations": [{"from": "human", "value": f"<image>{number}"}]})
        names = [f"coco/{i}.jpg" for i in each or () if i is not None]
        if each is not None:
            rows[-1]["image"] = names[0] if len(names) == 1 else names
    return _write(folder, {"llava.json": json.dumps(rows).encode()}) / "llava.json"


def _onevision(folder: Path, images: Pictures) -> Path:
    """One picture a sample, and conversations."""
    turns = [[{"from": "human", "value": f"{i}"}] * 2 for i in range(len(images))]
    columns: dict[str, Sequence[Any]] = {"id": [f"{i}" for i in range(len(images))], "conversations": turns}
    return _write(folder, {"ov.parquet": parquet_bytes(table(images, 0, **columns), 2)}) / "ov.parquet"


def _list_tars(folder: Path, images: Pictures) -> Path:
    """KEY.0.jpg, KEY.1.jpg, ...: all of a sample's."""
    folder.mkdir(parents=True, exist_ok=True)
    members: list[list[tuple[str, bytes]]] = [[], []]
    for number, each in enumerate(LISTS):
        mine = members[number // 4]
        pictured = [images[i] for i in each or () if i is not None]
        mine += [(f"{number:03d}.{place}.jpg", data) for place, data in enumerate(pictured)]
        mine.append((f"{number:03d}.json", json.dumps({"n": number}).encode()))
    for part, each_members in enumerate(members):
        write_tar(folder / f"lists-{part:03d}.tar", each_members)
    return folder


def records_of(dataset: fastload.PackedDataset) -> Any:
    """The entries of all pictures of a set, in their order."""
    if dataset.schema.index_field is not None:
        return dataset.records
    (field,) = (field.name for field in dataset.schema if field.storage == "records")
    records = dataset.field_records(field)
    return records[records["length"] > 0]


def _packed(make: Callable[[Path, Pictures], Any], **options: Any) -> Callable[[Path, Pictures], Path]:
    """Return the maker of a packed set; a picture that cannot be packed is damaged in its shard."""

    def packed(folder: Path, images: Pictures) -> Path:
        good = [data if len(data) > 99 else pictures()[i] for i, data in enumerate(images)]
        fastload.pack(
            make(folder / "origin", good), folder / "set", shard_size=SHARD_SIZE, restart=True, **options
        )
        dataset = fastload.PackedDataset(folder / "set")
        for i, data in enumerate(images):
            if data != good[i]:
                record = records_of(dataset)[i]
                shard = folder / "set" / dataset.manifest.shards[int(record["shard"])].file
                with open(shard, "r+b") as file:
                    file.seek(int(record["offset"]))
                    file.write(b"?" * int(record["length"]))
        return folder / "set"

    return packed


def _lmdb(folder: Path, images: Pictures) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "theirs.lmdb"
    shutil.rmtree(path, ignore_errors=True)
    with lmdb.open(str(path), map_size=1 << 20) as env, env.begin(write=True) as transaction:
        for i, data in enumerate(images):
            transaction.put(b"%03d" % i, data)
    (path / "lock.mdb").unlink()
    return path


def _hdf5(folder: Path, images: Pictures) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    with h5py.File(folder / "theirs.h5", "w", track_order=False) as file:
        rows = file.create_dataset("images", (len(images),), h5py.vlen_dtype(np.uint8))
        for i, data in enumerate(images):
            rows[i] = np.frombuffer(data, np.uint8)
        file["labels"] = [i % 3 for i in range(len(images))]
    return folder / "theirs.h5"


def _mds(folder: Path, images: Pictures) -> Path:
    shutil.rmtree(folder / "mds", ignore_errors=True)
    samples = [{"image": data, "caption": f"picture {i}"} for i, data in enumerate(images)]
    return write_mds(folder / "mds", {"image": "jpeg", "caption": "str"}, samples, each=4)


def _lerobot(folder: Path, images: Pictures) -> Path:
    """Two episodes of version 3.0, with the pictures in the Parquet file: videos would change them."""
    features: dict[str, Any] = {"observation.image": {"dtype": "image", "shape": [3, HEIGHT, WIDTH]}}
    lengths, dtypes = (
        (5, COUNT - 5),
        {"timestamp": "float32", "episode_index": "int64", "frame_index": "int64"},
    )
    features |= {name: {"dtype": dtype, "shape": [1]} for name, dtype in dtypes.items()}
    info = {"codebase_version": "v3.0", "fps": 10, "features": features,
            "data_path": "data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet"}  # fmt: skip
    places = [(e, i) for e, length in enumerate(lengths) for i in range(length)]
    rows = pa.table({
        "observation.image": pa.array([{"bytes": data, "path": None} for data in images], _PICTURE),
        "timestamp": pa.array([i / 10 for _, i in places], pa.float32()),
        "episode_index": [e for e, _ in places], "frame_index": [i for _, i in places],
    })  # fmt: skip
    zeros = [0] * len(lengths)
    episodes = pa.table({"episode_index": [*range(len(lengths))], "length": [*lengths],
                         "data/chunk_index": zeros, "data/file_index": zeros})  # fmt: skip
    return _write(folder, {
        "meta/info.json": json.dumps(info).encode(),
        "data/chunk-000/file-000.parquet": parquet_bytes(rows, 2),
        "meta/episodes/chunk-000/file-000.parquet": parquet_bytes(episodes, 2),
    })  # fmt: skip


# ---- The table ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Source:
    """A row of the table.

    Args:
        words: what the page calls it.
        make: writes its files (again), and returns what ``pack`` takes.
        options: of the pack.
        within: what follows the path, as a glob.
        by_url: whether ``pack`` gets its URL.
    """

    words: str
    make: Callable[[Path, Pictures], Any]
    options: Mapping[str, Any] = field(default_factory=dict)
    within: str = ""
    by_url: bool = False
    is_sized: bool = True  # whether the sizes of its samples are known before they are made
    is_raw: bool = False  # whether it has pixels, not the pictures' files

    @property
    def suffix(self) -> str:
        """What follows a sample's name in the key of a sample without a file, once its picture is known."""
        return "" if self.is_sized else ".jpg"

    @property
    def comes_once(self) -> bool:
        """Whether it is an iterable."""
        return self.make is _iterable

    def made(self, folder: Path, images: Pictures) -> Any:
        """Write it into a folder; return what ``pack`` takes."""
        place = self.make(folder, images)
        if self.by_url:
            return f"file://{place}{self.within}"
        return f"{place}{self.within}" if self.within else place


def _by_url(source: Source, words: str = "", within: str = "") -> Source:
    return Source(words or f"{source.words}, by URL", source.make, source.options, within or source.within,
                  by_url=True)  # fmt: skip


_ALL = {"as_": "wds", "fields": {"*.jpg": "images"}}
SOURCES = {
    "classes": Source("class folders", _classes),
    "flat": Source("a flat folder", _flat),
    "splits": Source("`train` and `val`", _splits),
    "csv": Source("CSV of path and label", _csv),
    "jsonl": Source("JSONL or CSV with fields", _jsonl),
    "parquet": Source("Parquet", _parquet),
    "arrow": Source("Arrow", _arrow),
    "parquets": Source("a folder of Parquet", _parquets),
    "coco": Source("COCO", _coco),
    "panoptic": Source("COCO panoptic", _panoptic),
    "yolo": Source("YOLO", _yolo),
    "voc": Source("VOC", _voc),
    "pairs": Source("images beside masks", _pairs),
    "tars": Source("WebDataset tars", _tars, {"as_": "wds"}),
    "gzipped": Source("WebDataset tars, compressed", _gzipped, {"as_": "wds"}),
    "finevision": Source("Parquet of lists of images, as FineVision", _finevision),
    "cauldron": Source("Parquet of lists of images, as The Cauldron", _cauldron),
    "obelics": Source("Parquet of images and texts between them, as OBELICS", _obelics),
    "onevision": Source("Parquet of an image and turns, as LLaVA-OneVision", _onevision),
    "llava": Source("JSON of paths or lists of them, as LLaVA", _llava, {"fields": {"image": "images"}}),
    "lerobot": Source("LeRobot 2.1 and 3.0", _lerobot),
    "list tars": Source("WebDataset tars of KEY.n.jpg", _list_tars, _ALL),
    "packed": Source("a packed set", _packed(_classes)),
    "packed raw": Source("a packed set of raw pixels", _packed(_classes, raw=True), is_raw=True),
    "packed fields": Source("a packed set with fields", _packed(_jsonl)),
    "packed lists": Source("a packed set with lists of images", _packed(_finevision)),
    "lmdb": Source("LMDB of others", _lmdb),
    "hdf5": Source("HDF5 of others", _hdf5),
    "mds": Source("MDS", _mds),
    "sequence": Source("a Python sequence", _sequence, is_sized=False),
    "iterable": Source("a Python iterable", _iterable, is_sized=False),
}
_URLS = (
    "classes", "splits", "csv", "jsonl", "parquet", "parquets", "coco", "panoptic", "yolo", "voc", "pairs",
    "tars", "gzipped", "packed", "finevision", "llava", "list tars",
)  # fmt: skip
SOURCES |= {f"{name} by URL": _by_url(SOURCES[name]) for name in _URLS}
SOURCES["parquet glob by URL"] = _by_url(SOURCES["parquets"], "a glob of Parquet, by URL", "/data/*.parquet")
