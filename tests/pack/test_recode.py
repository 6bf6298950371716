"""``fastload recode``: JPEGs to coefficient records and back, in place, whole at any moment."""

from __future__ import annotations

import errno
import json
import os
import pickle
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from decode_images import encode, photo
from pack_trees import make_tree, snapshot
from test_kill_points import check, driven

import fastload
from fastload import Boxes, Bytes, DataLoader, Image, Label, Mask, PackedDataset, Text
from fastload.cli import main
from fastload.errors import ChecksumError, FormatError, PackError, StateError
from fastload.packing import PackOptions, pack
from fastload.packing.coefficients import FACTS, NOTE
from fastload.packing.lock import folder_lock
from fastload.packing.output import OutputFolder
from fastload.packing.recode import run as recode_run
from fastload.packing.recode.job import RecodeJob
from fastload.packing.recode.run import recode
from fastload.packing.unpack import unpack
from fastload.packing.verify import verify
from fastload.shard.codecs import COEFFICIENTS, JPEG
from fastload.shard.dataset import PackedFiles


@pytest.fixture
def files() -> dict[str, bytes]:
    """JPEGs, one that can be no record, and a PNG."""
    made = {f"c/{i:02d}.jpg": encode(photo(60 + i, 50, i), "JPEG", subsampling=i % 3) for i in range(12)}
    made["d/0.jpg"] = encode(photo(60, 50), "JPEG", "CMYK")
    made["d/1.png"] = encode(photo(60, 50), "PNG")
    return made


@pytest.fixture
def plain(files: dict[str, bytes], tmp_path: Path, format_name: str) -> Path:
    """These as a set of several shards."""
    source = make_tree(tmp_path / "source", files)
    pack(source, tmp_path / "set", PackOptions(format=format_name, shard_size=8000, num_proc=1))
    return tmp_path / "set"


def field_set(folder: Path, format_name: str, files: dict[str, bytes], **options: Any) -> Path:
    """A set of two images, one of them beside a mask, and other values, in several shards."""
    jpegs = [data for name, data in files.items() if name.startswith("c/")]
    mask = np.arange(3000, dtype=np.uint8).reshape(50, 60) % 7
    samples = [
        {
            "label": i % 3, "image": jpegs[i], "second": jpegs[-1 - i], "mask": mask, "bytes": jpegs[i],
            "boxes": np.full((i, 4), [1, 2, 30, 40], np.float32), "text": f"number {i}",
        }
        for i in range(len(jpegs))
    ]  # fmt: skip
    schema = {
        "label": Label(("a", "b", "c")), "image": Image(), "second": Image(), "mask": Mask(),
        "bytes": Bytes(), "boxes": Boxes("xyxy"), "text": Text(),
    }  # fmt: skip
    fastload.pack(samples, folder, schema, format=format_name, shard_size=12000, **options)
    return folder


def contents(folder: Path) -> dict[str, bytes]:
    """A set's files; of the manifest what is not said of earlier forms. LMDB's have a guessed size in them;
    where records lie in them, and their checksums, is in the index."""
    found = {name: data for name, data in snapshot(folder).items() if not name.endswith(".mdb")}
    manifest = json.loads(found["dataset.json"])
    manifest.pop("same_as", None)
    return {**found, "dataset.json": json.dumps(manifest).encode()}


def stored(folder: Path, field: str | None = None) -> list[bytes]:
    dataset = PackedFiles(folder)
    return [dataset.stored(i, field) for i in range(len(dataset))]


def test_there_and_back(plain: Path, files: dict[str, bytes], tmp_path: Path) -> None:
    before, was = contents(plain), PackedFiles(plain).id
    assert "entries.fli" in before
    result = recode(plain, "fast", 1)
    assert not result.was_so
    dataset = PackedFiles(plain)
    assert dataset.id == result.manifest.id != was
    assert result.manifest.same_as == (was,)
    assert result.manifest.version == (1, 3)
    assert dataset.records["codec"].tolist() == [COEFFICIENTS] * 12 + [JPEG, 2]
    assert [dataset.read(i) for i in range(14)] == list(files.values())
    assert verify(plain, decode=True, entries=True) == ([], 14)
    assert not set(before) & set(snapshot(plain)) - {"dataset.json", "entries.fli"}
    said = result.manifest.options[FACTS]
    assert (said["made"], said["note"], said["entries"], said["kept"][0]["examples"]) == (
        12,
        NOTE,
        64,
        ["d/0.jpg"],
    )
    unpack(plain, tmp_path / "back")
    assert snapshot(tmp_path / "back") == files
    # Records, and what is said of them, are those of a pack.
    [packed] = pack(
        tmp_path / "source", tmp_path / "packed",
        PackOptions(format=dataset.manifest.format, shard_size=8000, coefficients="fast", num_proc=1),
    )  # fmt: skip
    assert stored(plain) == stored(tmp_path / "packed")
    assert {**packed.manifest.options[FACTS], "entries": 64} == said
    assert recode(plain, None, 1).manifest.id == was
    assert contents(plain) == before
    assert recode(plain, None, 1).was_so


def test_between_the_forms_and_back_from_a_pack(plain: Path, files: dict[str, bytes], tmp_path: Path) -> None:
    kind = PackedFiles(plain).manifest.format
    packed = tmp_path / "packed"
    source, options = tmp_path / "source", PackOptions(format=kind, coefficients="small", num_proc=1)
    pack(source, packed, options)
    small = stored(packed)
    assert recode(packed, "fast", 1).manifest.options["coefficients"] == "fast"
    assert stored(packed) != small
    assert recode(packed, "small", 1).manifest.options["coefficients"] == "small"
    assert stored(packed) == small
    result = recode(packed, None, 1)
    assert stored(packed) == list(files.values())
    assert (result.entries.spacing, result.entries.with_entries) == (64, 12)
    assert not {"coefficients", FACTS} & set(result.manifest.options)
    assert recode(packed, "fast", 1).manifest.options["coefficients"] == "fast"


def test_a_set_without_entry_points_stays_so(plain: Path) -> None:
    assert main(["index", str(plain), "--entries", "none"]) == 0
    recode(plain, "fast", 1)
    recode(plain, None, 1)
    assert not (plain / "entries.fli").exists()


def test_samples_of_many_fields(files: dict[str, bytes], tmp_path: Path, format_name: str) -> None:
    """Every image, and nothing else: the columns of other values are the same files."""
    folder = field_set(tmp_path / "set", format_name, files)
    before = contents(folder)
    old = PackedFiles(folder)
    values = {name: [old.value_bytes(name, i) for i in range(12)] for name in old.schema.names}
    result = recode(folder, "small", 1)
    new = PackedFiles(folder)
    assert result.manifest.options[FACTS]["made"] == 24
    assert (new.records["codec"] == COEFFICIENTS).all()
    assert (new.field_records("second")["codec"] == COEFFICIENTS).all()
    assert new.labels.tolist() == old.labels.tolist()
    for name, wanted in values.items():
        assert [new.value_bytes(name, i) for i in range(12)] == wanted
    for number, field in new.schema.columns:
        if field.storage != "record":
            assert (folder / f"field-{number:02d}-2.fli").read_bytes() == before[f"field-{number:02d}.fli"]
    assert verify(folder, decode=True) == ([], 12)
    direct = field_set(tmp_path / "direct" / "set", format_name, files, coefficients="small")
    for name in ("image", "second"):
        assert stored(folder, name) == stored(direct, name)
    recode(folder, None, 1)
    assert contents(folder) == before


def test_several_processes_give_the_same(plain: Path, files: dict[str, bytes], tmp_path: Path) -> None:
    for name in ("one", "two"):
        subprocess.run(["cp", "-r", plain, tmp_path / name], check=True)
    recode(tmp_path / "one", "fast", 1)
    recode(tmp_path / "two", "fast", 2)
    assert snapshot(tmp_path / "one") == snapshot(tmp_path / "two")


@pytest.mark.parametrize("form", ["fast", None], ids=["to records", "back"])
def test_killed_anywhere_the_set_is_whole(
    files: dict[str, bytes], tmp_path: Path, format_name: str, form: str | None
) -> None:
    folder = field_set(tmp_path / "source", format_name, files)
    if form is None:
        recode(folder, "small", 1)
    task: dict[str, Any] = {"command": "recode", "source": str(folder), "form": form, "format": format_name}
    found = driven(tmp_path, points=30, **task)
    assert found["calls"] >= 100
    check(found, 20)


def test_a_failing_write_leaves_the_set_whole(
    files: dict[str, bytes], tmp_path: Path, format_name: str
) -> None:
    folder = field_set(tmp_path / "source", format_name, files)
    task: dict[str, Any] = {"command": "recode", "source": str(folder), "form": "fast", "format": format_name}
    calls = "write,pwrite,writev,ftruncate,rename"
    found = driven(tmp_path, points=16, errno=errno.EIO, calls=calls, **task)
    check(found, 9)
    assert found["words"]


class Stop(Exception):
    """Ends a recode where a test wants it."""


def stopped_after(shards: int, monkeypatch: pytest.MonkeyPatch, run: Callable[[], object]) -> None:
    """Run a recode that ends when so many shards are written."""
    write, left = RecodeJob.write, [shards]

    def stopping(self: RecodeJob, number: int, advance: Any) -> Any:
        left[0] -= 1
        if left[0] < 0:
            raise Stop
        return write(self, number, advance)

    with monkeypatch.context() as patch:
        patch.setattr(RecodeJob, "write", stopping)
        with pytest.raises(Stop):
            run()


def test_finished_shards_are_kept(plain: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stopped_after(2, monkeypatch, lambda: recode(plain, "fast", 1))
    started: list[tuple[int, ...]] = []

    class Heard(recode_run.Observer):
        def recode_started(self, output: Path, *counts: int) -> None:
            started.append(counts)

    recode(plain, "fast", 1, Heard())
    shards = PackedFiles(plain).manifest.shards
    assert [counts[2] for counts in started] == [shards[0].records + shards[1].records]
    assert not (plain / ".fastload-recode").exists()


@pytest.mark.parametrize("then", ["small", None])
def test_another_wish_begins_anew(plain: Path, monkeypatch: pytest.MonkeyPatch, then: str | None) -> None:
    before = contents(plain)
    stopped_after(2, monkeypatch, lambda: recode(plain, "fast", 1))
    result = recode(plain, then, 1)
    assert result.was_so is (then is None)
    assert not [name for name in os.listdir(plain) if name.startswith(".")]
    if then is None:
        assert contents(plain) == before
    assert verify(plain, decode=True)[0] == []


def test_killed_behind_the_switch_another_wish_first_ends_it(
    plain: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = contents(plain)

    def stop(*_: object) -> None:
        raise Stop

    with monkeypatch.context() as patch:
        patch.setattr(recode_run, "_finish", stop)
        with pytest.raises(Stop):
            recode(plain, "fast", 1)
    assert len(snapshot(plain)) > 2 * len(before)  # old and new
    with pytest.warns(UserWarning, match="entry points are left out"):
        assert PackedFiles(plain).manifest.options["coefficients"] == "fast"
    recode(plain, None, 1)
    assert contents(plain) == before


def test_pack_restart_throws_an_unfinished_recode_away(
    plain: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = snapshot(plain)
    stopped_after(2, monkeypatch, lambda: recode(plain, "fast", 1))
    kind = PackedFiles(plain).manifest.format
    pack(tmp_path / "source", plain, PackOptions(format=kind, shard_size=8000, num_proc=1, restart=True))
    assert snapshot(plain) == before
    recode(plain, "fast", 1)
    pack(tmp_path / "source", plain, PackOptions(format=kind, shard_size=8000, num_proc=1, restart=True))
    assert snapshot(plain) == before


def test_who_has_the_old_set_open_goes_on(plain: Path, files: dict[str, bytes]) -> None:
    old = PackedDataset(plain)
    chain = fastload.transforms.Compose(
        [fastload.transforms.RandomResizedCrop(32), fastload.transforms.ToDtype("uint8")]
    )

    def loader(dataset: Any) -> DataLoader[Any]:
        return DataLoader(dataset, batch_size=2, shuffle=True, transform=chain, seed=3)

    with loader(PackedDataset(plain)) as whole:
        wanted = [(images.clone(), labels.clone()) for images, labels in whole]
    seen = []
    with loader(old) as reading:
        batches = iter(reading)
        for sample in range(len(old)):
            old.read(sample)  # all shards are open
        seen += [next(batches) for _ in range(2)]
        state = reading.state_dict()
        recode(plain, "fast", 1)
        assert not list(plain.glob("set-00000-of-*[0-9].*-2*"))
        seen += [*batches]
    assert [old.read(i) for i in range(14)] == list(files.values())
    assert pickle.loads(pickle.dumps(old)).read(3) == old.read(3)  # a worker's: it opens the new set
    # What the old set's loader has saved goes on with the new one: the same pixels.
    with loader(PackedDataset(plain)) as resumed:
        resumed.load_state_dict(state)
        rest = [(images.clone(), labels.clone()) for images, labels in resumed]
    for found in (seen, seen[:2] + rest):
        assert len(found) == len(wanted)
        for (a, labels), (b, others) in zip(found, wanted, strict=True):
            assert np.array_equal(a, b)
            assert labels.tolist() == others.tolist()
    with loader(PackedDataset(plain)) as other, pytest.raises(StateError, match="dataset was"):
        other.load_state_dict({**state, "dataset": "0" * 32})


def test_a_full_disk(
    tiny: Path, files: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, format_name: str
) -> None:
    large = {name: data + bytes(100_000) for name, data in files.items() if name.startswith("c/")}
    source = make_tree(tmp_path / "source", large)
    pack(source, tmp_path / "set", PackOptions(format=format_name, shard_size=250_000, num_proc=1))
    subprocess.run(["cp", "-r", tmp_path / "set", tiny], check=True)
    (tiny / "fill").write_bytes(bytes(800_000))
    before = snapshot(tiny / "set")
    with pytest.raises(PackError, match=r"not enough space in .*bytes needed, [\d,]+ free"):
        recode(tiny / "set", "fast", 1)
    monkeypatch.setattr(recode_run, "require_space", lambda folder, needed: None)
    with pytest.raises(
        PackError, match=r"No space left on device|Input/output error\. About [\d,]+ bytes needed"
    ):
        recode(tiny / "set", "fast", 1)
    kept = {name: data for name, data in snapshot(tiny / "set").items() if not name.startswith(".fastload-")}
    assert kept == before
    assert not list((tiny / "set").rglob(".tmp-*"))
    subprocess.run(["mount", "-o", "remount,size=40m", tiny], check=True)
    recode(tiny / "set", "fast", 1)
    recode(tiny / "set", None, 1)
    assert stored(tiny / "set") == list(large.values())


def test_what_is_refused(plain: Path, files: dict[str, bytes], tmp_path: Path) -> None:
    kind = PackedFiles(plain).manifest.format
    before = snapshot(plain)
    with folder_lock(plain), pytest.raises(PackError, match="is being packed by process"):
        recode(plain, "fast", 1)
    with pytest.raises(PackError, match="must be fast or small"):
        recode(plain, "tiny", 1)
    with pytest.raises(PackError, match="num_proc is 0"):
        recode(plain, "fast", 0)
    with pytest.raises(PackError, match="is in a store: recode it in a folder of this machine"):
        recode("s3://bucket/set", "fast")
    assert main(["index", str(plain), "--output", str(tmp_path / "index")]) == 0
    with pytest.raises(PackError, match="is an index of files that are not its own"):
        recode(tmp_path / "index", "fast", 1)
    pngs = make_tree(tmp_path / "pngs", {"0.png": files["d/1.png"]})
    pack(pngs, tmp_path / "png", PackOptions(format=kind, num_proc=1))
    with pytest.raises(PackError, match="has no JPEGs, so there is nothing to recode. Found: PNG"):
        recode(tmp_path / "png", "fast", 1)
    assert snapshot(plain) == before


def test_a_damaged_shard_stops_it(plain: Path) -> None:
    dataset = PackedFiles(plain)
    at, shard = int(dataset.records["offset"][5]) + 30, dataset.manifest.shards[dataset.records["shard"][5]]
    with open(plain / shard.file, "r+b") as file:
        file.seek(at)
        file.write(b"\x00\x01\x02")
    before = snapshot(plain)
    with pytest.raises(ChecksumError):
        recode(plain, "fast", 1)
    found = snapshot(plain)
    assert {name: found[name] for name in before} == before
    assert not (OutputFolder(plain).work).exists()


@pytest.mark.parametrize("name", ["../index.fli", "index-3.fli", "/etc/passwd", 7])
def test_another_name_of_the_index_is_refused(plain: Path, name: object) -> None:
    recode(plain, "fast", 1)
    body = json.loads((plain / "dataset.json").read_text())
    assert body["index"] == "index-2.fli"
    (plain / "dataset.json").write_text(json.dumps({**body, "index": name}))
    with pytest.raises(FormatError, match="'index' must be 'index-2.fli', or not be there. Found: "):
        PackedFiles(plain)


def test_command_line(plain: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["recode", str(plain), "--num-proc", "1"]) == 0
    out = capsys.readouterr()
    assert "recoding 14 samples, " in out.err
    assert "fast, 12 coefficient records, " in out.out
    assert NOTE in out.out
    assert main(["recode", str(plain), "--coefficients", "fast"]) == 0
    assert "is so already" in capsys.readouterr().out
    assert main(["recode", str(plain), "--jpeg", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)["dataset"]
    assert (facts["codecs"], facts[FACTS], facts["was_so"]) == ({"jpeg": 13, "png": 1}, None, False)
    assert main(["info", str(plain)]) == 0
    assert "coefficients" not in capsys.readouterr().out
    assert main(["recode", str(plain), "--jpeg", "--coefficients", "fast"]) == 2
