"""What ``pack`` does with a source, each way checked against a plain pack of the same pictures."""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import cache, cached_property
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from pack_trees import encoded, environment, snapshot
from PIL import Image
from process import HANG
from row_sources import HEIGHT, OTHER, SHARD_SIZE, WIDTH, Source, pictures, records_of
from run_reference import runs_by_hand

import fastload
from fastload import PackedDataset
from fastload.errors import PackError
from fastload.packing import ray
from fastload.shard.manifest import MANIFEST_NAME

LIMIT, SIDE = 2, 20
KILLER = Path(__file__).with_name("row_killer.py")


class Case:
    """A source in a folder of its own, and the packs of it."""

    def __init__(self, name: str, source: Source, folder: Path) -> None:
        self.name, self.source, self.folder = name, source, folder
        self._packs = 0

    def made(self, images: list[bytes] | None = None, where: str = "source") -> Any:
        """The source of these pictures, its files written anew."""
        return self.source.made(self.folder / where, images or pictures())

    @cached_property
    def _given(self) -> Any:
        return self.made()

    @property
    def given(self) -> Any:
        """The source, its files written once; an iterable, which comes once, anew."""
        return self.made() if self.source.comes_once else self._given

    def changed(self) -> list[bytes]:
        """The pictures with one that differs: in a store, which tells no times, by its size, too."""
        before = pictures()[OTHER]
        after = bytearray(before)
        after[-10] ^= 1
        return pictures(encoded(77, "JPEG", WIDTH, HEIGHT) if self.source.by_url else bytes(after))

    def place(self) -> Path:
        """Where a pack goes: the name, and with it the shards' names, is always the same."""
        self._packs += 1
        return self.folder / str(self._packs) / "set"

    def pack(self, output: Path | str, given: Any = None, **options: Any) -> list[Any]:
        """Pack it."""
        known = {"shard_size": SHARD_SIZE, "num_proc": 1, **self.source.options}
        found: Any = fastload.pack(self.given if given is None else given, output, **{**known, **options})
        return found if isinstance(found, list) else [found]

    def packed(self, given: Any = None, **options: Any) -> Path:
        """Pack it into a new folder, and return that."""
        output = self.place()
        self.pack(output, given, **options)
        return output

    @cached_property
    def whole(self) -> Path:
        """A plain pack."""
        return self.packed()

    @cached_property
    def files(self) -> dict[str, bytes]:
        """The files of a plain pack."""
        return snapshot(self.whole)

    @cached_property
    def content(self) -> list[Any]:
        """The samples of a plain pack."""
        return content(self.whole)


def sets_in(output: Path) -> list[PackedDataset]:
    """The datasets in a folder, by the splits' names."""
    return [PackedDataset(path.parent) for path in sorted(output.rglob(MANIFEST_NAME))]


def content(output: Path, most: int | None = None) -> list[Any]:
    """Key and fields of all samples, as bytes; ``most``: of the first of each dataset."""
    return [
        (dataset.key(i), {name: dataset.value_bytes(name, i) for name in dataset.schema.names})
        for dataset in sets_in(output)
        for i in range(len(dataset))[:most]
    ]


def pixels(output: Path) -> list[npt.NDArray[np.uint8]]:
    """The pictures of all samples."""
    found = []
    for dataset in sets_in(output):
        for record, data in zip(records_of(dataset), files(dataset), strict=True):
            if record["codec"] == list(fastload._native._C.CODECS).index("raw"):
                shape = int(record["height"]), int(record["width"]), int(record["channels"])
                found.append(np.frombuffer(data, np.uint8).reshape(shape))
            else:
                found.append(np.asarray(Image.open(io.BytesIO(data)).convert("RGB")))
    return found


def counted(output: Path, codec: str) -> int:
    """How many pictures have been stored so."""
    number = list(fastload._native._C.CODECS).index(codec)
    return sum(int((records_of(dataset)["codec"] == number).sum()) for dataset in sets_in(output))


# ---- Ways --------------------------------------------------------------------------------------------


def into_a_folder(case: Case) -> None:
    """All pictures, in their order, in several shards."""
    assert same(pixels(case.whole), decoded(pictures()))
    if not case.source.is_raw:
        assert [picture for dataset in sets_in(case.whole) for picture in files(dataset)] == pictures()
    assert sum(len(dataset.manifest.shards) for dataset in sets_in(case.whole)) >= 3
    assert MANIFEST_NAME not in {path.name for path in case.whole.parent.iterdir()}


def files(dataset: PackedDataset) -> list[bytes]:
    """The pictures' files."""
    if dataset.schema.index_field is not None:
        return [dataset.read(i) for i in range(len(dataset))]
    (field,) = (field.name for field in dataset.schema if field.storage == "records")
    lists = [dataset.value(field, i) or [] for i in range(len(dataset))]
    return [data for each in lists for data in each if data is not None]


def decoded(images: list[bytes]) -> list[npt.NDArray[np.uint8]]:
    """Pictures as Pillow decodes them."""
    return [np.asarray(Image.open(io.BytesIO(data)).convert("RGB")) for data in images]


def same(some: list[Any], others: list[Any]) -> bool:
    """Whether lists of arrays are equal."""
    return len(some) == len(others) and all(map(np.array_equal, some, others))


def again(case: Case) -> None:
    """The same source again is complete, also if its files were written anew; another one is refused."""
    given = case.made(where="changing")
    output = case.packed(given)
    before = snapshot(output)
    for _ in range(1 if case.source.by_url else 2):  # of an object that was written anew the ETag is new
        given = case.made(where="changing") if case.source.comes_once else given
        assert all(result.was_complete for result in case.pack(output, given))
        assert snapshot(output) == before
        given = case.made(where="changing")
    changed = case.changed()
    given = case.made(changed, where="changing")
    with pytest.raises(
        PackError, match=r"is a complete pack, but not of this source|holds a (complete )?pack"
    ):
        case.pack(output, given)
    assert snapshot(output) == before
    case.pack(output, given, restart=True)
    assert same(pixels(output), decoded(changed))
    assert snapshot(output) == snapshot(case.packed(given))


def resumed(case: Case) -> None:
    """A pack that was killed goes on, and the result is the same byte for byte."""
    assert killed()[case.name] == {"stops": 6, "wrong": []}


@cache
def killed() -> dict[str, Any]:
    """What became of killed packs of all sources; see row_killer.py."""
    done = subprocess.run([sys.executable, KILLER], capture_output=True, text=True, timeout=3 * HANG,
                          env=environment(), check=False)  # fmt: skip
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def by_processes(case: Case) -> None:
    """Two processes write what one writes."""
    assert snapshot(case.packed(num_proc=2)) == case.files


def into_a_store(case: Case) -> None:
    """The same files as in a folder, and none elsewhere."""
    output, elsewhere = case.place(), case.folder / "temporary"
    elsewhere.mkdir(parents=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tempfile, "tempdir", str(elsewhere))
        results = case.pack(f"file://{output}")
    assert {str(result.output).partition("://")[0] for result in results} == {"file"}
    assert not list(elsewhere.iterdir())
    found, wanted = snapshot(output), case.files
    if not case.source.is_sized:  # then a shard has its name before the shards' number is known
        found, wanted = (
            {_short(k): _shorter(k, data) for k, data in each.items()} for each in (found, wanted)
        )
    assert found == wanted


def _short(name: str) -> str:
    return re.sub(r"-of-\d{5}", "", name)


def _shorter(name: str, data: bytes) -> bytes:
    """A file; of a manifest what does not follow from the shards' names."""
    return re.sub(r'"id": "\w+"', "", _short(data.decode())).encode() if name == MANIFEST_NAME else data


def by_shares(case: Case) -> None:
    """A plan, its shards by two packs, and what they publish; another source than the plan's is refused."""
    output = case.place()
    (plan,) = case.pack(output, plan_only=True)
    assert (plan.written, plan.published) == (0, False)
    shares = [case.pack(output, shards=share)[0] for share in ("1/2", "0/2")]
    assert sum(share.written for share in shares) == plan.shards
    assert not snapshot(output).keys() & {MANIFEST_NAME}
    for again in (False, True):
        assert {result.was_complete for result in case.pack(output, publish=True)} == {again}
        assert snapshot(output) == case.files
    assert case.pack(output, shards="0/1")[0].published
    output, given = case.place(), case.made(where="planned")
    case.pack(output, given, plan_only=True)
    with pytest.raises(PackError, match="has changed since|holds a pack of other samples"):
        case.pack(output, case.made(case.changed(), where="planned"), shards="0/1")


class StandIn:
    """In the place of a Ray cluster: what its tasks get has been pickled, and they share nothing."""

    def __init__(self, address: str, at_once: int | None = None) -> None:
        self.tasks = 0

    def __enter__(self) -> StandIn:
        return self

    def __exit__(self, *error: object) -> None: ...

    def as_finished(
        self, function: Callable[[Any, Any], Any], common: Any, items: list[Any]
    ) -> Iterator[tuple[Any, Any]]:
        """The results, in another order than was asked for."""
        for item in reversed(items):
            yield item, function(ForkingPickler.loads(bytes(ForkingPickler.dumps(common))), item)


def by_ray(case: Case) -> None:
    """Tasks of a cluster write what one process writes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ray, "RayCluster", StandIn)
        assert snapshot(case.packed(ray="there")) == case.files


def dry(case: Case) -> None:
    """What would be done is what is done, and nothing is written."""
    output = case.place()
    runs = case.pack(output, dry_run=True)
    assert not output.exists()
    made = sets_in(case.whole)
    said = sorted((str(run.output.relative_to(output)), run.records, run.shards, run.classes) for run in runs)
    wanted = [
        (str(each.folder.relative_to(case.whole)), len(each), len(each.manifest.shards)) for each in made
    ]
    assert said == [(*facts, len(each.manifest.classes)) for facts, each in zip(wanted, made, strict=True)]
    sizes = {str(each.folder.relative_to(case.whole)): each.manifest.shards for each in made}
    for run in runs:
        assert run.needed_bytes >= sum(shard.size for shard in sizes[str(run.output.relative_to(output))])
    assert {str(run.schema) for run in runs} == {str(each.schema) for each in made}


def limited(case: Case) -> None:
    """Only the first samples of each dataset."""
    output = case.packed(limit=LIMIT)
    assert content(output) == content(case.whole, LIMIT)


def without_bad(case: Case) -> None:
    """A bad picture is named, or left out and listed."""
    spoilt = pictures(pictures()[OTHER][:20])
    given = case.made(spoilt, where="spoilt")
    output, key = case.place(), case.content[OTHER][0].removesuffix(case.source.suffix)
    with pytest.raises(PackError) as error:
        case.pack(output, given)
    assert key in str(error.value)
    assert len(sets_in(output)) < len(sets_in(case.whole))  # of several splits the first may be whole
    given = case.made(spoilt, where="spoilt") if case.source.comes_once else given
    results = case.pack(output, given, on_error="skip")
    assert content(output) == case.content[:OTHER] + case.content[OTHER + 1 :]
    assert [count for result in results for _, count in result.skip_reasons()] == [1]
    lines = [line for path in output.rglob("skipped.jsonl") for line in path.read_text().splitlines()]
    assert [json.loads(line)["path"].rpartition(": ")[2] for line in lines] == [key]  # behind a file's name


def in_runs(case: Case) -> None:
    """By the folders and numbers of the keys, as Python sorts them; a set that is packed again keeps them."""
    output = case.packed(runs="/:/")
    assert content(output) == case.content
    for dataset in sets_in(output):
        keys = [dataset.key(i) for i in range(len(dataset))]
        wanted = runs_by_hand([None] * len(keys), keys, "/:/")
        place = case.place()
        fastload.pack(dataset, place)
        for found in (dataset.runs, PackedDataset(place).runs):
            assert found is not None
            bounds = zip(found.begins[:-1].tolist(), found.begins[1:].tolist(), strict=True)
            assert [found.ids_at(np.arange(a, b)).tolist() for a, b in bounds] == wanted


def as_pixels(case: Case) -> None:
    """The pixels that Pillow decodes."""
    output = case.packed(raw=True)
    assert same(pixels(output), pixels(case.whole))
    assert counted(output, "raw") == len(pixels(output))


def smaller(case: Case) -> None:
    """All pictures are as large as asked."""
    output = case.packed(max_side=SIDE)
    sizes = {picture.shape[:2] for picture in pixels(output)}
    assert sizes == {(SIDE * HEIGHT // WIDTH, SIDE)}
    keys = [[Path(key).with_suffix("") for key, _ in each] for each in (content(output), case.content)]
    assert keys[0] == keys[1]


def as_baseline(case: Case) -> None:
    """No picture is progressive, and all have the same pixels."""
    output = case.packed(baseline=True)
    assert same(pixels(output), pixels(case.whole))
    stored = [each for dataset in sets_in(output) for each in files(dataset)]
    assert not any(b"\xff\xc2" in data[:1000] for data in stored if data[:2] == b"\xff\xd8")


def as_coefficients(case: Case) -> None:
    """JPEGs as coefficient records, which give back the very files."""
    output = case.packed(coefficients="small")
    assert content(output) == case.content
    jpegs = counted(case.whole, "jpeg")
    assert counted(output, "coefficients") == jpegs
    assert jpegs >= (0 if case.source.is_raw else len(case.content) - 1)


def as_lmdb(case: Case) -> None:
    """The same samples; and the same files, of which some are folders, in a store and by shares."""
    whole, shared = case.packed(format="lmdb"), case.place()
    assert content(whole) == case.content
    if case.source.is_sized:
        case.pack(f"file://{shared}", format="lmdb", shards="0/1")
        case.pack(f"file://{shared}", format="lmdb", publish=True)
        assert snapshot(shared) == snapshot(whole)


def as_hdf5(case: Case) -> None:
    """The same samples."""
    assert content(case.packed(format="hdf5")) == case.content


WAYS: dict[str, Callable[[Case], None]] = {
    "a folder": into_a_folder,
    "the same again": again,
    "killed, and on": resumed,
    "several processes": by_processes,
    "a store": into_a_store,
    "plan and shares": by_shares,
    "Ray": by_ray,
    "a dry run": dry,
    "limit": limited,
    "skip": without_bad,
    "runs": in_runs,
    "raw": as_pixels,
    "max side": smaller,
    "baseline": as_baseline,
    "coefficients": as_coefficients,
    "LMDB": as_lmdb,
    "HDF5": as_hdf5,
}
