"""``fastload recode``: JPEGs to coefficient records and back, in place."""

from __future__ import annotations

import json
import pickle
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pack_trees import make_tree, snapshot
from recode_sets import contents, field_set, stored

import fastload
from fastload import DataLoader, PackedDataset
from fastload.cli import main
from fastload.errors import FormatError, PackError, StateError
from fastload.packing import PackOptions, pack
from fastload.packing.coefficients import FACTS, NOTE
from fastload.packing.files import folder_lock
from fastload.packing.recode import recode
from fastload.packing.unpack import unpack
from fastload.packing.verify import verify
from fastload.shard.codecs import COEFFICIENTS, JPEG
from fastload.shard.dataset import PackedFiles


def test_there_and_back(plain: Path, jpegs: dict[str, bytes], tmp_path: Path) -> None:
    before, was, seal = contents(plain), PackedFiles(plain).id, PackedFiles(plain).manifest.seal
    assert "entries.fli" in before
    result = recode(plain, "fast", 1)
    assert not result.was_so
    dataset = PackedFiles(plain)
    assert dataset.id == result.manifest.id != was
    assert result.manifest.same_as == (was, seal)
    assert result.manifest.version == (1, 3)
    assert dataset.records["codec"].tolist() == [COEFFICIENTS] * 12 + [JPEG, 2]
    assert [dataset.read(i) for i in range(14)] == list(jpegs.values())
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
    assert snapshot(tmp_path / "back") == jpegs
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


def test_between_the_forms_and_back_from_a_pack(plain: Path, jpegs: dict[str, bytes], tmp_path: Path) -> None:
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
    assert stored(packed) == list(jpegs.values())
    assert (result.entries.spacing, result.entries.with_entries) == (64, 12)
    assert not {"coefficients", FACTS} & set(result.manifest.options)
    assert recode(packed, "fast", 1).manifest.options["coefficients"] == "fast"


def test_a_set_without_entry_points_stays_so(plain: Path) -> None:
    assert main(["index", str(plain), "--entries", "none"]) == 0
    recode(plain, "fast", 1)
    recode(plain, None, 1)
    assert not (plain / "entries.fli").exists()


def test_samples_of_many_fields(jpegs: dict[str, bytes], tmp_path: Path, format_name: str) -> None:
    """Every image, and nothing else: the columns of other values are the same files."""
    folder = field_set(tmp_path / "set", format_name, jpegs)
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
    direct = field_set(tmp_path / "direct" / "set", format_name, jpegs, coefficients="small")
    for name in ("image", "second"):
        assert stored(folder, name) == stored(direct, name)
    recode(folder, None, 1)
    assert contents(folder) == before


def test_several_processes_give_the_same(plain: Path, jpegs: dict[str, bytes], tmp_path: Path) -> None:
    for name in ("one", "two"):
        subprocess.run(["cp", "-r", plain, tmp_path / name], check=True)
    recode(tmp_path / "one", "fast", 1)
    recode(tmp_path / "two", "fast", 2)
    assert snapshot(tmp_path / "one") == snapshot(tmp_path / "two")


def test_who_has_the_old_set_open_goes_on(plain: Path, jpegs: dict[str, bytes]) -> None:
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
    assert [old.read(i) for i in range(14)] == list(jpegs.values())
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


def test_what_is_refused(plain: Path, jpegs: dict[str, bytes], tmp_path: Path) -> None:
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
    pngs = make_tree(tmp_path / "pngs", {"0.png": jpegs["d/1.png"]})
    pack(pngs, tmp_path / "png", PackOptions(format=kind, num_proc=1))
    with pytest.raises(PackError, match="has no JPEGs, so there is nothing to recode. Found: PNG"):
        recode(tmp_path / "png", "fast", 1)
    assert snapshot(plain) == before


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
    assert "is already in this form" in capsys.readouterr().out
    assert main(["recode", str(plain), "--jpeg", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)["dataset"]
    assert (facts["codecs"], facts[FACTS], facts["was_so"]) == ({"jpeg": 13, "png": 1}, None, False)
    assert main(["info", str(plain)]) == 0
    assert "coefficients" not in capsys.readouterr().out
    assert main(["recode", str(plain), "--jpeg", "--coefficients", "fast"]) == 2
