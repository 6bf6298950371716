"""``pack --coefficients``: JPEGs as coefficient records, which everything gives back as the same files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from decode_images import encode, photo, pillow_rgb
from pack_trees import make_tree, snapshot
from PIL import Image as Pillow

import fastload
from fastload import Bytes, DataLoader, Image, Label, Mask, PackedDataset
from fastload._native import _C
from fastload.cli import main
from fastload.errors import PackError
from fastload.machine.threads import started_pool
from fastload.packing import PackOptions, pack
from fastload.packing.coefficients import FACTS, NOTE, RecodeCounts, RecodeOutcome
from fastload.packing.unpack import unpack
from fastload.packing.verify import verify
from fastload.shard.codecs import CODECS, COEFFICIENTS, JPEG

FORMS = ("fast", "small")


@pytest.fixture
def files() -> dict[str, bytes]:
    """JPEGs of several kinds, one that can be no record, and others that must not be touched."""
    made = {f"c/{i}.jpg": encode(photo(60 + i, 50, i), "JPEG", subsampling=i % 3) for i in range(6)}
    made["c/6.jpg"] = encode(photo(60, 50), "JPEG", "L", quality=30)
    made["c/7.jpg"] = encode(photo(60, 50), "JPEG", progressive=True)
    made["d/0.jpg"] = encode(photo(60, 50), "JPEG", "CMYK")
    made["d/1.png"] = encode(photo(60, 50), "PNG")
    made["d/2.webp"] = encode(photo(60, 50), "WEBP")
    return made


def codecs(dataset: PackedDataset[Any]) -> list[str]:
    return [CODECS[number].name for number in dataset.records["codec"].tolist()]


@pytest.mark.parametrize("num_proc", [1, 2, None])
def test_processes_without_a_shard_take_no_cores(
    num_proc: int | None, files: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One shard is one process's work, however many are allowed: it has all of the cores."""
    found = []

    def started(threads: int, name: str) -> Any:
        if name == "fastload-records":
            found.append(threads)
        return started_pool(threads, name)

    monkeypatch.setattr("fastload.packing.recoding.started_pool", started)
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: set(range(8)))
    source = make_tree(tmp_path / "source", files)
    pack(source, tmp_path / "set", PackOptions(coefficients="fast", num_proc=num_proc))
    assert set(found) == {8}


@pytest.mark.parametrize("form", FORMS)
def test_pack_and_unpack(files: dict[str, bytes], tmp_path: Path, format_name: str, form: str) -> None:
    source = make_tree(tmp_path / "source", files)
    options = PackOptions(format=format_name, coefficients=form, num_proc=1, shard_size=8000)
    [result] = pack(source, tmp_path / "set", options)
    dataset = PackedDataset(tmp_path / "set")
    assert codecs(dataset) == ["coefficients"] * 8 + ["jpeg", "png", "webp"]
    assert result.manifest.codecs == {"coefficients": 8, "jpeg": 1, "png": 1, "webp": 1}
    said = result.manifest.options[FACTS]
    assert (said["made"], said["note"], result.manifest.options["coefficients"]) == (8, NOTE, form)
    assert said["jpeg_bytes"] == sum(len(data) for data in list(files.values())[:8])
    assert said["record_bytes"] == int(dataset.records["length"][:8].sum())
    [kept] = said["kept"]
    assert (kept["count"], kept["examples"]) == (1, ["d/0.jpg"])
    assert kept["reason"]
    for i, data in enumerate(files.values()):
        assert dataset.read(i) == dataset.value("image", i) == data
        is_record = i < 8
        assert (dataset.stored(i) == data) is not is_record
        if is_record:
            assert dataset.stored(i)[:6] == b"\x8aFLC\x01" + bytes([1 + FORMS.index(form)])
    assert verify(tmp_path / "set", decode=True, entries=True) == ([], len(files))
    assert unpack(tmp_path / "set", tmp_path / "back") == len(files)
    assert snapshot(tmp_path / "back") == files
    pack(source, tmp_path / "two" / "set", PackOptions(**{**vars(options), "num_proc": 2}))
    assert snapshot(tmp_path / "two" / "set") == snapshot(tmp_path / "set")
    again = pack(source, tmp_path / "set", options)
    assert again[0].was_complete
    with pytest.raises(PackError, match=f"coefficients was {form}, now None"):
        pack(source, tmp_path / "set", PackOptions(format=format_name, shard_size=8000))


def test_pixels_are_those_of_the_jpegs(files: dict[str, bytes], tmp_path: Path) -> None:
    """In the loader, as PIL pictures and as samples."""
    source = make_tree(tmp_path / "source", files)
    pack(source, tmp_path / "jpegs", PackOptions(num_proc=1))
    pack(source, tmp_path / "records", PackOptions(num_proc=1, coefficients="fast"))
    jpegs, records = (PackedDataset(tmp_path / name) for name in ("jpegs", "records"))
    for i, data in enumerate(files.values()):
        picture, label = records[i]
        assert isinstance(picture, Pillow.Image)
        assert (picture.mode, label) == ("RGB", jpegs[i][1])
        assert np.array_equal(np.asarray(picture), np.asarray(jpegs[i][0]))
        if i != 8:
            assert np.array_equal(np.asarray(picture), pillow_rgb(data))
        assert np.array_equal(records.sample(i)["image"], jpegs.sample(i)["image"])
    batches = []
    for dataset in (jpegs, records):
        chain = fastload.transforms.Compose(
            [fastload.transforms.RandomResizedCrop(32), fastload.transforms.ToDtype("uint8")]
        )
        with DataLoader(dataset, batch_size=4, shuffle=True, transform=chain, seed=3) as loader:
            batches.append([(images.clone(), labels.clone()) for images, labels in loader])
    assert len(batches[0]) == 3
    for (a, labels), (b, others) in zip(*batches, strict=True):
        assert np.array_equal(a, b)
        assert labels.tolist() == others.tolist()


def test_samples_of_many_fields(files: dict[str, bytes], tmp_path: Path, format_name: str) -> None:
    """Every Image field, and no other: bytes that are a JPEG by chance stay, as do masks."""
    jpegs = [data for name, data in files.items() if name.startswith("c/")]
    mask = np.arange(3000, dtype=np.uint8).reshape(50, 60) % 7
    samples = [
        {"image": jpegs[i], "second": jpegs[-1 - i], "mask": mask, "raw": jpegs[i], "label": i}
        for i in range(8)
    ]
    samples[3]["second"] = files["d/0.jpg"]
    schema = {"image": Image(), "second": Image(), "mask": Mask(), "raw": Bytes(), "label": Label()}
    given: dict[str, Any] = {"format": format_name, "coefficients": "small", "shard_size": 9000}
    result = fastload.pack(samples, tmp_path / "set", schema, **given)
    assert not isinstance(result, list)
    dataset = PackedDataset[dict[str, Any]](tmp_path / "set")
    assert len(dataset.manifest.shards) > 1
    assert codecs(dataset) == ["coefficients"] * 8
    kinds = dataset.field_records("second")["codec"].tolist()
    assert kinds == [COEFFICIENTS if i != 3 else JPEG for i in range(8)]
    said = result.manifest.options[FACTS]
    [kept] = said["kept"]
    assert (said["made"], kept["count"], kept["examples"]) == (15, 1, ["00000003.jpg"])
    for i, sample in enumerate(samples):
        for name in ("image", "second", "raw"):
            assert dataset.value(name, i) == sample[name]
        for name in ("image", "second"):
            shown = np.asarray(dataset[i][name]).transpose(1, 2, 0)
            want = np.asarray(_C.Decoder().decode_rgb(np.frombuffer(sample[name], np.uint8)))
            assert np.array_equal(shown, want)
    assert verify(tmp_path / "set", decode=True) == ([], 8)
    unpack(tmp_path / "set", tmp_path / "back")
    for i, sample in enumerate(samples):
        assert (tmp_path / "back" / f"{i:08d}.jpg").read_bytes() == sample["image"]
    # The same by two processes, and of the table that unpacking wrote.
    fastload.pack(samples, tmp_path / "two" / "set", schema, num_proc=2, **given)
    assert snapshot(tmp_path / "two" / "set") == snapshot(tmp_path / "set")
    fastload.pack(tmp_path / "back" / "samples.jsonl", tmp_path / "again", **given)
    again = PackedDataset[dict[str, Any]](tmp_path / "again")
    assert [again.stored(i) for i in range(8)] == [dataset.stored(i) for i in range(8)]


def test_with_max_side(files: dict[str, bytes], tmp_path: Path) -> None:
    """Made smaller first; what comes of it is a record, too."""
    source = make_tree(tmp_path / "source", files)
    pack(source, tmp_path / "jpegs", PackOptions(max_side=62, num_proc=1))
    pack(source, tmp_path / "records", PackOptions(max_side=62, coefficients="fast", num_proc=1))
    jpegs, records = (PackedDataset(tmp_path / name) for name in ("jpegs", "records"))
    assert codecs(records)[:8] == ["coefficients"] * 8
    assert jpegs.records["width"].tolist() == records.records["width"].tolist()
    assert [records.read(i) for i in range(11)] == [jpegs.read(i) for i in range(11)]


def test_what_excludes_it() -> None:
    for given, words in (
        ({"raw": True}, "coefficients and raw exclude each other"),
        ({"baseline": True}, "coefficients and baseline exclude each other: progressive JPEGs become"),
        ({"coefficients": "tiny"}, "coefficients is 'tiny', must be fast or small"),
    ):
        with pytest.raises(PackError, match=words):
            PackOptions(**{"coefficients": "fast", **given})


def test_command_line(files: dict[str, bytes], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, output = make_tree(tmp_path / "source", files), tmp_path / "set"
    assert main(["pack", str(source), str(output), "--coefficients", "--num-proc", "1"]) == 0
    out = capsys.readouterr().out
    assert "8 coefficient records, " in out
    assert "of the JPEGs' bytes; 1 JPEG kept unchanged" in out
    assert "(d/0.jpg)" in out
    assert NOTE in out
    assert main(["pack", str(source), str(output), "--coefficients", "fast", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["datasets"][0][FACTS]["made"] == 8
    assert main(["info", str(output)]) == 0
    out = capsys.readouterr().out
    assert "coefficients 8, " in out
    assert "fast, 8 coefficient records" in out
    assert main(["verify", str(output), "--decode"]) == 0
    assert "11 records are intact" in capsys.readouterr().out


def test_a_damaged_record(
    files: dict[str, bytes], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, output = make_tree(tmp_path / "source", files), tmp_path / "set"
    pack(source, output, PackOptions(coefficients="fast", num_proc=1))
    [shard] = output.glob("*.arrow")
    at = int(PackedDataset(output).records["offset"][2]) + 200
    data = bytearray(shard.read_bytes())
    data[at] ^= 1
    shard.write_bytes(data)
    assert main(["verify", str(output), "--decode"]) == 1
    assert "sample 2 (c/2.jpg)" in capsys.readouterr().out


def test_many_reasons_are_grouped() -> None:
    tally, other = RecodeCounts(), RecodeCounts()
    for i in range(50):
        tally.add(f"{i}.jpg", RecodeOutcome(10, 0, f"reason {i % 25:02d}"))
    other.add("a.jpg", RecodeOutcome(100, 90))
    other.merge(tally.to_json())
    facts = other.to_json()
    assert (other.made, other.kept, len(facts["kept"])) == (1, 50, 21)
    others, first, *_ = facts["kept"]
    assert (others["reason"], others["count"], others["examples"][0]) == ("other reasons", 10, "20.jpg")
    assert first == {"reason": "reason 00", "count": 2, "examples": ["0.jpg", "25.jpg"]}
