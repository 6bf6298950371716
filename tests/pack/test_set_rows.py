"""Packed sets, and files that can be indexed, as sources of a pack: their samples are copied as they are, or
changed as they would have been."""

from __future__ import annotations

import json
import os
import pickle
import shutil
import tempfile
from pathlib import Path
from typing import Any

import h5py
import lmdb
import numpy as np
import pytest
from damaged_set import damaged
from field_sets import RICH, rich_samples
from mds_reference import write_mds
from object_server import ObjectServer
from pack_trees import class_tree, encoded, run_cli, snapshot
from recode_sets import field_set, stored
from tar_reference import write_tar

import fastload
from fastload.errors import PackError
from fastload.packing import PackOptions, pack
from fastload.packing.foreign import index_files
from fastload.packing.opened import opened
from fastload.packing.packer import dry_run, pack_shares, plan_shares, publish_shares
from fastload.packing.shares import ShardRanges
from fastload.packing.spread import Advance
from fastload.packing.unpack import unpack
from fastload.packing.verify import verify
from fastload.packing.work import ShardWork
from fastload.shard.codecs import RAW
from fastload.shard.dataset import PackedFiles

OTHER = {"arrow": "hdf5", "hdf5": "lmdb", "lmdb": "arrow"}
SIZE = 12000
# What is stored; each is also what the pictures' own pack stores.
CHANGES: dict[str, dict[str, Any]] = {
    "none": {},
    "smaller": {"max_side": 30},
    "coefficients": {"coefficients": "fast"},
    "small coefficients": {"coefficients": "small", "max_side": 30},
    "baseline": {"baseline": True},
    "raw": {"raw": True},
    "raw of a size": {"raw": True, "size": (20, 16)},
}


def options(**given: Any) -> PackOptions:
    return PackOptions(**{"shard_size": SIZE, "num_proc": 1, **given})


def rich(folder: Path, format_name: str = "arrow", **given: Any) -> Path:
    """A set with fields of every kind, in several shards."""
    fastload.pack(rich_samples(12), folder, RICH, format=format_name, shard_size=SIZE, **given)
    return folder


def samples(folder: Path) -> list[Any]:
    """Keys, what the tables say of the pictures besides where they lie, and all bytes."""
    dataset = PackedFiles(folder)
    facts = ["length", "crc32c", "width", "height", "codec", "channels", "flags", "label"]
    found: list[Any] = []
    for i in range(len(dataset)):
        of = {field.name: dataset.value_bytes(field.name, i) for field in dataset.schema}
        pictures = [f.name for f in dataset.schema if f.storage == "record"]
        found.append((dataset.key(i), of, [dataset.record(i, name)[facts].tolist() for name in pictures]))
    return found


def files(folder: Path) -> dict[str, bytes]:
    """All files but the manifest, which says what was packed."""
    return {name: data for name, data in snapshot(folder).items() if name != "dataset.json"}


@pytest.mark.parametrize("change", CHANGES)
def test_a_set_of_fields(tmp_path: Path, format_name: str, change: str) -> None:
    direct = rich(tmp_path / "direct" / "out", OTHER[format_name], **CHANGES[change])
    source = rich(tmp_path / "set", format_name)
    [result] = pack(source, tmp_path / "out", options(format=OTHER[format_name], **CHANGES[change]))
    assert [sample[1:] for sample in samples(tmp_path / "out")] == [sample[1:] for sample in samples(direct)]
    assert [sample[0] for sample in samples(tmp_path / "out")] == [f"{i:08d}.jpg" for i in range(12)]
    assert result.manifest.codecs == PackedFiles(direct).manifest.codecs
    assert result.manifest.options.get("coefficient_records") == PackedFiles(direct).manifest.options.get(
        "coefficient_records"
    )
    assert verify(tmp_path / "out", decode=True, entries=True) == ([], 12)


@pytest.mark.parametrize("change", CHANGES)
def test_a_set_of_images_and_labels(tmp_path: Path, format_name: str, change: str) -> None:
    source = class_tree(tmp_path / "source")
    pack(source, tmp_path / "set", options(format=format_name, shard_size=30000))
    pack(source, tmp_path / "direct" / "out", options(format=format_name, **CHANGES[change]))
    pack(tmp_path / "set", tmp_path / "out", options(format=format_name, **CHANGES[change]))
    assert samples(tmp_path / "out") == samples(tmp_path / "direct" / "out")


def test_the_same_options_give_the_same_files(tmp_path: Path) -> None:
    source = rich(tmp_path / "set")
    pack(source, tmp_path / "again" / "set", options())
    assert files(tmp_path / "again" / "set") == files(source)
    assert pack(source, tmp_path / "again" / "set", options())[0].was_complete


def test_coefficient_records_become_the_identical_jpegs(
    tmp_path: Path, jpegs: dict[str, bytes], format_name: str
) -> None:
    direct = field_set(tmp_path / "direct", format_name, jpegs)
    source = field_set(tmp_path / "set", format_name, jpegs, coefficients="small")
    pack(source, tmp_path / "jpegs", options())
    assert samples(tmp_path / "jpegs") == samples(direct)
    pack(source, tmp_path / "records", options(coefficients="small"))
    for name in ("image", "second"):
        assert stored(tmp_path / "records", name) == stored(source, name)


def test_pixels_stay_or_become_png_files(tmp_path: Path, format_name: str) -> None:
    pack(class_tree(tmp_path / "source"), tmp_path / "set", options(format=format_name, raw=True))
    pack(tmp_path / "set", tmp_path / "raw", options(raw=True))
    assert samples(tmp_path / "raw") == samples(tmp_path / "set")
    assert (PackedFiles(tmp_path / "raw").records["codec"] == RAW).all()
    pack(tmp_path / "set", tmp_path / "png", options())
    unpack(tmp_path / "set", tmp_path / "files")
    found = [PackedFiles(tmp_path / "png").read(i) for i in range(48)]
    assert sorted(found) == sorted(snapshot(tmp_path / "files").values())
    assert samples(tmp_path / "png")[0][0] == samples(tmp_path / "set")[0][0]


def test_pixels_of_other_channels_stay(tmp_path: Path) -> None:
    pictures = [{"image": np.full((8, 9, 5), i, np.uint8), "label": i} for i in range(4)]
    fastload.pack(pictures, tmp_path / "set", {"image": fastload.Image(5), "label": fastload.Label()})
    pack(tmp_path / "set", tmp_path / "out", options())
    assert samples(tmp_path / "out") == samples(tmp_path / "set")


def test_keys_that_are_no_text(tmp_path: Path) -> None:
    source = class_tree(tmp_path / "source")
    os.rename(source / "class 0" / "000.jpeg", os.fsencode(source) + b"/class 0/\xff.jpeg")
    pack(source, tmp_path / "set", options())
    for number, given in enumerate([{}, {"coefficients": "fast"}]):
        pack(tmp_path / "set", tmp_path / f"{number}", options(**given))
        keys = [sample[0] for sample in samples(tmp_path / f"{number}")]
        assert keys == [sample[0] for sample in samples(tmp_path / "set")]
        assert (PackedFiles(tmp_path / f"{number}").records["flags"] & 0x80).tolist().count(0x80) == 1


def test_some_fields(tmp_path: Path) -> None:
    source = rich(tmp_path / "set")
    some = PackOptions(fields=(("image", "none"), ("boxes", "none")), num_proc=1)
    [result] = pack(source, tmp_path / "out", some)
    names = result.manifest.schema.names
    assert [*names] == [name for name in RICH.names if name not in ("image", "boxes")]
    wanted = [(key, {name: of[name] for name in names}) for key, of, _ in samples(source)]
    assert [sample[:2] for sample in samples(tmp_path / "out")] == wanted
    with pytest.raises(PackError, match="the field 'mask' is .* cannot be packed as"):
        pack(source, tmp_path / "no", PackOptions(fields=(("mask", "image"),)))


def test_sets_under_names_of_splits(tmp_path: Path) -> None:
    for name in ("train", "val"):
        pack(class_tree(tmp_path / name), tmp_path / "sets" / name, options())
    results = pack(tmp_path / "sets", tmp_path / "out", options(format="lmdb"))
    assert [str(result.output) for result in results] == [str(tmp_path / "out" / n) for n in ("train", "val")]
    assert samples(tmp_path / "out" / "val") == samples(tmp_path / "sets" / "val")
    class_tree(tmp_path / "sets" / "test")
    with pytest.raises(PackError, match="has a packed set in 'train' and none in 'test'; pack them one by"):
        pack(tmp_path / "sets", tmp_path / "out", options())
    shutil.rmtree(tmp_path / "sets" / "test")
    shutil.copytree(tmp_path / "sets" / "val", tmp_path / "sets" / "more")
    for source in (str(tmp_path / "sets"), f"file://{tmp_path / 'sets'}"):
        with pytest.raises(
            PackError, match="in 'train' and another one, whose name is no split's, in 'more'"
        ):
            pack(source, tmp_path / "out", options())


def test_sets_of_several_formats_under_names_of_splits_in_a_store(
    tmp_path: Path, object_server: ObjectServer
) -> None:
    for name, format_name in (("train", "arrow"), ("val", "lmdb")):
        pack(class_tree(tmp_path / name), tmp_path / "sets" / name, options(format=format_name))
    object_server.make_bucket("splits", {f"in/{n}": data for n, data in snapshot(tmp_path / "sets").items()})
    given = options(storage_options=object_server.storage_options)
    results = pack("s3://splits/in", tmp_path / "out", given)
    assert [result.output for result in results] == [tmp_path / "out" / n for n in ("train", "val")]
    for name in ("train", "val"):
        assert samples(tmp_path / "out" / name) == samples(tmp_path / "sets" / name)


def test_an_open_set_from_python(tmp_path: Path) -> None:
    source = rich(tmp_path / "set")
    result = fastload.pack(fastload.PackedDataset(source), tmp_path / "out", shard_size=SIZE, limit=5)
    assert isinstance(result, fastload.packing.publish.PackResult)
    assert samples(tmp_path / "out") == samples(source)[:5]


def test_from_a_store_into_a_store(tmp_path: Path, object_server: ObjectServer) -> None:
    source = rich(tmp_path / "set")
    fastload.packing.fetched.WINDOW_BYTES, whole = 10000, fastload.packing.fetched.WINDOW_BYTES
    try:
        object_server.make_bucket("sets", {f"in/{name}": data for name, data in snapshot(source).items()})
        given = options(storage_options=object_server.storage_options)
        pack("s3://sets/in", tmp_path / "here" / "set", given)
        pack("s3://sets/in", "s3://sets/out/set", given)
        opened_set = fastload.PackedDataset("s3://sets/in", storage_options=given.storage_options)
        fastload.pack(opened_set, tmp_path / "third" / "set", shard_size=SIZE)
    finally:
        fastload.packing.fetched.WINDOW_BYTES = whole
    assert files(tmp_path / "here" / "set") == files(tmp_path / "third" / "set") == files(source)
    client = object_server.client()
    for name, data in files(source).items():
        assert client.get_object(Bucket="sets", Key=f"out/set/{name}")["Body"].read() == data
    with pytest.raises(PackError, match="lies inside the source"):
        pack("s3://sets/in", "s3://sets/in/", options(restart=True, storage_options=given.storage_options))


@pytest.mark.parametrize("change", ["none", "coefficients"])
def test_two_processes(tmp_path: Path, change: str) -> None:
    source = rich(tmp_path / "set")
    pack(source, tmp_path / "one" / "out", options(**CHANGES[change]))
    run = run_cli(
        "pack", source, tmp_path / "two" / "out", "--shard-size", SIZE, "--num-proc", 2,
        *(["--coefficients", "fast"] if change == "coefficients" else []),
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    assert snapshot(tmp_path / "two" / "out") == snapshot(tmp_path / "one" / "out")


def test_shares(tmp_path: Path) -> None:
    source = rich(tmp_path / "set")
    [planned] = dry_run(source, tmp_path / "out", options())
    share = plan_shares(source, tmp_path / "out", options())
    assert (share.shards, share.files) == (planned.shards, planned.records) == (3, 12)
    for part in ("2", "0-1"):
        pack_shares(source, tmp_path / "out", ShardRanges.parse(part), options())
    publish_shares(source, tmp_path / "out", options())
    assert samples(tmp_path / "out") == samples(source)


class Stop(Exception):
    """Ends a pack where a test wants it."""


def test_after_a_stop_only_the_same_set_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = rich(tmp_path / "set")
    written: list[int] = []
    write = ShardWork.write

    def counted(self: ShardWork, number: int, advance: Advance) -> Any:
        if len(written) == 1:
            written.append(-1)
            raise Stop
        written.append(number)
        return write(self, number, advance)

    monkeypatch.setattr(ShardWork, "write", counted)
    with pytest.raises(Stop):
        pack(source, tmp_path / "out", options())
    shutil.move(source, tmp_path / "kept")
    fastload.pack(rich_samples(12, seed=1), source, RICH, shard_size=SIZE)
    with pytest.raises(PackError, match="the source has changed since this pack"):
        pack(source, tmp_path / "out", options())
    shutil.rmtree(source)
    shutil.move(tmp_path / "kept", source)
    pack(source, tmp_path / "out", options())
    assert written == [0, -1, 1, 2]
    assert samples(tmp_path / "out") == samples(source)


@pytest.mark.parametrize("change", ["none", "coefficients"])
def test_damaged_records_are_named_or_left_out(tmp_path: Path, change: str) -> None:
    source = damaged(rich(tmp_path / "whole"), tmp_path / "set", [3, 7])
    with pytest.raises(PackError, match=r"1 sample cannot be packed:\n  00000003.jpg: ChecksumError: .*CRC"):
        pack(source, tmp_path / "out", options(**CHANGES[change]))
    [result] = pack(source, tmp_path / "out", options(on_error="skip", restart=True, **CHANGES[change]))
    assert (result.manifest.num_records, result.manifest.skipped) == (10, 2)
    pack(tmp_path / "whole", tmp_path / "good", options(**CHANGES[change]))
    good = [s for s in samples(tmp_path / "good") if s[0] not in ("00000003.jpg", "00000007.jpg")]
    assert samples(tmp_path / "out") == good


def test_a_shard_that_is_gone_is_no_damaged_record(tmp_path: Path) -> None:
    source = rich(tmp_path / "set")
    rows = opened(source, options())[0].rows
    next(source.glob("*.arrow")).unlink()
    with pytest.raises(fastload.errors.ShardError):
        list(rows.batches(0, 12, options(on_error="skip"), None))


def test_what_is_refused(tmp_path: Path) -> None:
    source = rich(tmp_path / "set")
    before = snapshot(source)
    for output in (source, source / "below", f"file://{source}"):
        for given in (source, f"file://{source}"):
            with pytest.raises(PackError, match="lies inside the source"):
                pack(given, output, options(restart=True))
    with pytest.raises(PackError, match="is a packed set. layout is for a folder of images"):
        pack(source, tmp_path / "out", options(layout="coco"))
    assert snapshot(source) == before


def test_a_restart_does_not_remove_its_source(tmp_path: Path, format_name: str) -> None:
    source = tmp_path / "set"
    pack(class_tree(tmp_path / "tree"), source, options(format=format_name))
    before = snapshot(source)
    with pytest.raises(PackError, match="is part of what --restart removes in .*; choose another folder"):
        pack(next(source.glob("set-00000*")), source, options(restart=True))
    if format_name == "lmdb":
        index_files([next(source.glob("set-00000*"))], tmp_path / "index")
        with pytest.raises(PackError, match="is part of what --restart removes"):
            pack(tmp_path / "index", source, options(restart=True))
    assert snapshot(source) == before


def test_texts_that_hdf5_cannot_hold(tmp_path: Path, jpegs: dict[str, bytes]) -> None:
    schema = {"image": fastload.Image(), "text": fastload.Text()}
    fastload.pack([{"image": jpegs["c/00.jpg"], "text": "a\0b"}], tmp_path / "set", schema)
    with pytest.raises(PackError, match="'text': HDF5's strings hold no NUL"):
        pack(tmp_path / "set", tmp_path / "out", options(format="hdf5"))


# ---- files of other programs -----------------------------------------------------------------------

BLOBS = [encoded(i, kind) for i in range(6) for kind in ("JPEG", "PNG")]


def other_files(folder: Path, kind: str) -> Path:
    """Pictures, and what else such files have, in files of another program."""
    if kind == "mds":
        columns = {"image": "jpeg", "y": "int", "caption": "str", "left": "jpeg"}
        rows = [
            {"image": blob, "y": i % 3, "caption": f"{i}", "left": BLOBS[0]} for i, blob in enumerate(BLOBS)
        ]
        return write_mds(folder, columns, rows, each=5)
    folder.mkdir()
    if kind == "tars":
        for number in range(2):
            members = [
                (f"{number}{i}.{name}", blob)
                for i, blob in enumerate(BLOBS[::2])
                for name, blob in (("jpg", blob), ("txt", f"text {i}".encode()))
            ]
            write_tar(folder / f"{number}.tar", members)
        return folder
    if kind == "lmdb":
        with lmdb.open(str(folder), map_size=1 << 24) as env, env.begin(write=True) as txn:
            for i, blob in enumerate(BLOBS):
                txn.put(f"{i:04d}".encode(), blob)
        return folder
    with h5py.File(folder / "a.h5", "w") as file:
        if kind == "hdf5 pixels":
            file["x"] = np.random.default_rng(0).integers(0, 255, (12, 5, 7, 3), np.uint8)
        else:
            pictures = file.create_dataset("images", (12,), h5py.vlen_dtype(np.uint8))
            for i, blob in enumerate(BLOBS):
                pictures[i] = np.frombuffer(blob, np.uint8)
        file["y"] = [i % 3 for i in range(12)]
    return folder / "a.h5"


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Temporary folders go here."""
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    return tmp_path / "temporary"


@pytest.mark.parametrize("kind", ["mds", "tars", "lmdb", "hdf5", "hdf5 pixels"])
def test_files_of_other_programs(tmp_path: Path, kind: str, temporary: Path) -> None:
    source = other_files(tmp_path / "source", kind)
    index_files([source], tmp_path / "index")
    given = {"raw": True} if kind == "hdf5 pixels" else {}
    [result] = pack(source, tmp_path / "out", options(**given))
    assert samples(tmp_path / "out") == samples(tmp_path / "index")
    assert result.manifest.schema == PackedFiles(tmp_path / "index").schema
    assert not result.manifest.options.get("indexed")
    assert not list(temporary.iterdir())
    assert pack(source, tmp_path / "out", options(**given))[0].was_complete
    # The index itself is a source as well, of which nothing but the name differs.
    pack(tmp_path / "index", tmp_path / "again" / "out", options(coefficients="fast"))
    pack(source, tmp_path / "records" / "out", options(coefficients="fast"))
    assert files(tmp_path / "again" / "out") == files(tmp_path / "records" / "out")


def test_several_processes_read_one_index(tmp_path: Path, temporary: Path) -> None:
    source = other_files(tmp_path / "source", "tars")
    pack(source, tmp_path / "one" / "out", options())
    arguments = (source, tmp_path / "two" / "out", "--shard-size", SIZE, "--num-proc", 2)
    run = run_cli("pack", *arguments, TMPDIR=str(temporary))
    assert run.returncode == 0, run.stderr
    assert snapshot(tmp_path / "two" / "out") == snapshot(tmp_path / "one" / "out")
    assert not list(temporary.iterdir())


def test_another_machine_makes_the_index_anew(tmp_path: Path, temporary: Path) -> None:
    source = other_files(tmp_path / "source", "mds")
    rows = opened(source, options())[0].rows
    sent = pickle.dumps(rows)
    wanted = [batch.keys for batch in rows.batches(0, 12, options(), None)]
    assert len(list(temporary.iterdir())) == 1
    assert [batch.keys for batch in pickle.loads(sent).batches(0, 12, options(), None)] == wanted
    assert len(list(temporary.iterdir())) == 1
    del rows
    assert not list(temporary.iterdir())
    assert [batch.keys for batch in pickle.loads(sent).batches(0, 12, options(), None)] == wanted
    assert pickle.loads(sent) is pickle.loads(sent)
    fastload.packing.set_rows._elsewhere.clear()
    shutil.rmtree(source)
    write_mds(source, {"image": "jpeg"}, [{"image": blob} for blob in BLOBS], each=5)
    with pytest.raises(PackError, match="has other contents on this machine"):
        pickle.loads(sent)
    fastload.packing.set_rows._elsewhere.clear()


def test_splits_and_fields_of_other_programs_files(tmp_path: Path) -> None:
    (tmp_path / "source").mkdir()
    for name in ("train", "val"):
        other_files(tmp_path / "source" / name, "mds")
    some = options(fields=(("left", "none"), ("caption", "bytes")))
    results = pack(tmp_path / "source", tmp_path / "out", some)
    assert [str(result.manifest.schema) for result in results] == [
        "image=image, label=label, caption=bytes"
    ] * 2


def test_records_that_are_no_images_are_left_out_and_listed(tmp_path: Path) -> None:
    source = other_files(tmp_path / "source", "lmdb")
    with lmdb.open(str(source), map_size=1 << 24) as env, env.begin(write=True) as txn:
        txn.put(b"0003", b"text" * 999)
    with pytest.raises(PackError, match="1 record .*\\n.*0003"):
        pack(source, tmp_path / "out", options())
    [result] = pack(source, tmp_path / "out", options(on_error="skip"))
    assert (result.manifest.num_records, result.manifest.skipped) == (11, 1)
    assert "0003" in json.loads((tmp_path / "out" / "skipped.jsonl").read_text())["path"]


def test_values_in_no_record_are_named(tmp_path: Path) -> None:
    columns = {"image": "jpeg", "thing": "pkl"}
    source = write_mds(tmp_path / "source", columns, [{"image": BLOBS[0], "thing": b"x"}], each=4)
    [result] = pack(source, tmp_path / "out", options())
    assert result.notes[0].startswith("1 value in no record, left out: the first is shard.00000.mds: thing (")
