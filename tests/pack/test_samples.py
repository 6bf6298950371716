"""fastload.pack: samples of any fields, from iterables and sequences, interrupted, in several processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from field_samples import SCHEMA, Samples, photo, sample
from pack_trees import environment, snapshot
from process import HANG

import fastload
from fastload.errors import PackError
from fastload.packing.verify import verify
from fastload.sample.plain import plain_value
from fastload.shard.dataset import PackedFiles

HERE = Path(__file__).resolve().parent


def pack(samples: Any, output: Path, format_name: str = "arrow", **options: Any) -> Any:
    options = {"schema": SCHEMA, "shard_size": 20_000, "entries": None, **options}
    return fastload.pack(samples, output, format=format_name, **options)


def check_values(folder: Path, ids: list[int]) -> None:
    """The dataset has these samples, all fields of them."""
    dataset = PackedFiles(folder)
    assert len(dataset) == len(ids)
    for number, i in enumerate(ids):
        given = sample(i)
        for field in SCHEMA:
            if field.storage == "record":
                assert len(dataset.value_bytes(field.name, number)) > 20
                continue
            data = dataset.value_bytes(field.name, number)
            assert data == field.encode(given[field.name])
            assert plain_value(field, data) == plain_value(field, field.encode(given[field.name]))
        assert dataset.value("image", number) == given["image"]
        assert dataset.value("bands", number) == given["bands"].tobytes()


def test_every_kind_in_every_format(tmp_path: Path, format_name: str) -> None:
    result = pack(Samples(40), tmp_path / "set", format_name)
    assert len(result.manifest.shards) > 3
    assert PackedFiles(tmp_path / "set").schema == SCHEMA
    check_values(tmp_path / "set", list(range(40)))
    assert verify(tmp_path / "set") == ([], 40)
    assert not [name for name in os.listdir(tmp_path / "set") if name.startswith(".")]


def test_the_same_bytes_from_an_iterable(tmp_path: Path, format_name: str) -> None:
    pack(Samples(300), tmp_path / "a" / "set", format_name, shard_size=100_000)
    pack((sample(i) for i in range(300)), tmp_path / "b" / "set", format_name, shard_size=100_000)
    first, second = (snapshot(tmp_path / name) for name in "ab")
    manifests = [json.loads(found.pop("set/dataset.json")) for found in (first, second)]
    assert manifests[1]["options"].pop("given") is None
    assert manifests[0]["options"].pop("given") is not None
    assert manifests[0] == manifests[1]
    assert first == second


def test_a_pack_that_is_complete_stays(tmp_path: Path) -> None:
    first = pack(Samples(20), tmp_path / "set")
    assert not first.was_complete
    assert pack(Samples(20), tmp_path / "set").was_complete
    with pytest.raises(PackError, match="holds a pack of other samples"):
        pack(Samples(21), tmp_path / "set")
    with pytest.raises(PackError, match="holds a pack with another schema"):
        pack(Samples(20), tmp_path / "set", schema={"image": "image", "label": "text"})
    with pytest.raises(PackError, match="an iterable cannot be compared with it"):
        pack(iter([sample(0)]), tmp_path / "set")
    assert pack(iter([sample(0)]), tmp_path / "set", restart=True).manifest.num_records == 1
    check_values(tmp_path / "set", [0])


class Interrupted(Samples):
    """Stops everything at a sample, as Ctrl-C does."""

    at = 25
    asked: list[int]

    def __getitem__(self, i: int) -> dict[str, Any]:
        self.asked.append(i)
        if i == self.at:
            raise KeyboardInterrupt
        return super().__getitem__(i)


def test_an_interrupted_pack_goes_on(tmp_path: Path, format_name: str) -> None:
    pack(Samples(300), tmp_path / "whole" / "set", format_name, shard_size=200_000)
    samples = Interrupted(300)
    samples.at, samples.asked = 280, []  # of the second batch
    with pytest.raises(KeyboardInterrupt):
        pack(samples, tmp_path / "again" / "set", format_name, shard_size=200_000)
    assert os.listdir(tmp_path / "again" / "set") == [".fastload-pack"]
    samples.at, samples.asked = -1, []
    pack(samples, tmp_path / "again" / "set", format_name, shard_size=200_000)
    spread = {round(i * 299 / 15) for i in range(16)} | {int(i * 299 / 15) for i in range(16)}
    assert min(set(samples.asked) - spread) > 150  # the samples of finished shards are not made again
    assert snapshot(tmp_path / "again") == snapshot(tmp_path / "whole")


def test_an_interrupted_iterable_begins_anew_and_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def stopping() -> Iterator[dict[str, Any]]:
        yield from (sample(i) for i in range(300))
        raise OSError("the network is gone")

    with pytest.raises(PackError, match="raised OSError after 300 samples: the network is gone"):
        pack(stopping(), tmp_path / "set")
    assert os.listdir(tmp_path / "set") == [".fastload-pack"]
    pack((sample(i) for i in range(10)), tmp_path / "set")
    assert "a pack was interrupted" in capsys.readouterr().err
    check_values(tmp_path / "set", list(range(10)))


def test_bad_samples_stop_or_are_listed(tmp_path: Path, format_name: str) -> None:
    samples = [sample(i) for i in range(30)]
    samples[3]["boxes"] = [[1, 2, -3, 4]]
    samples[9]["image"] = b"not a picture"
    samples[14]["mask"] = photo(1)
    del samples[20]["pose"]
    samples[22] = None  # type: ignore[call-overload]
    samples[29]["image"] = tmp_path / "missing.jpg"
    with pytest.raises(PackError, match="6 samples cannot be packed") as caught:
        pack(samples, tmp_path / "set", format_name)
    assert "00000003: Field 'boxes' must have widths and heights of at least 0" in str(caught.value)
    result = pack(samples, tmp_path / "set", format_name, on_error="skip")
    lines = [json.loads(line) for line in (tmp_path / "set" / "skipped.jsonl").read_text().splitlines()]
    reasons = [line["reason"] for line in lines]
    assert result.manifest.skipped == len(lines) == 6
    assert [line["path"][:8] for line in lines[:-1]] == [
        "00000003",
        "00000009",
        "00000014",
        "00000020",
        "00000022",
    ]
    assert lines[-1]["path"].endswith("missing.jpg")
    assert "'image': not an image" in reasons[1]
    assert "a mask cannot be a JPEG" in reasons[2]
    assert "has no 'pose'" in reasons[3]
    assert "must be a dict" in reasons[4]
    assert "No such file" in reasons[5]
    check_values(tmp_path / "set", [i for i in range(30) if i not in (3, 9, 14, 20, 22, 29)])


def test_samples_that_raise_are_bad_samples(tmp_path: Path) -> None:
    with pytest.raises(PackError, match="00000005: LookupError: sample 5 is lost"):
        pack(Samples(20, broken=(5,)), tmp_path / "set")
    pack(Samples(20, broken=(0, 5, 19)), tmp_path / "set", on_error="skip", restart=True)
    check_values(tmp_path / "set", [i for i in range(20) if i not in (0, 5, 19)])
    with pytest.raises(
        PackError, match="none of 2 samples can be packed; the first is 00000000: LookupError"
    ):
        pack(Samples(2, broken=(0, 1)), tmp_path / "none", on_error="skip")
    with pytest.raises(PackError, match="no samples"):
        pack([], tmp_path / "none", restart=True)


def test_what_cannot_be_packed_at_all(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="samples must be an iterable of dicts"):
        pack(5, tmp_path / "set")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "mine.txt").touch()
    with pytest.raises(PackError, match="holds no pack"):
        pack(Samples(3), tmp_path / "other")
    for processes in (0, -1):
        with pytest.raises(PackError, match=f"num_proc is {processes}, must be >= 1"):
            pack(Samples(3), tmp_path / "set", num_proc=processes)
    local = [{"image": photo(1), "label": lambda: 0}] * 600
    with pytest.raises(PackError, match="cannot be sent to other processes"):
        pack(local, tmp_path / "set", num_proc=2, schema={"image": "image"})


def test_image_and_label_are_a_plain_set(tmp_path: Path) -> None:
    samples = [{"image": photo(i), "label": "ab"[i % 2]} for i in range(20)]
    schema = {"image": fastload.Image(), "label": fastload.Label(("a", "b"))}
    result = pack(samples, tmp_path / "set", schema=schema)
    assert json.loads((tmp_path / "set" / "dataset.json").read_text())["fastload"] == [1, 0]
    dataset = fastload.PackedDataset(tmp_path / "set")
    assert [dataset.read(i) for i in range(20)] == [one["image"] for one in samples]
    assert dataset.labels.tolist() == [0, 1] * 10
    assert dataset.classes == ["a", "b"]
    assert result.manifest.fields == ()


def test_paths_are_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pictures").mkdir()
    for i in range(3):
        (tmp_path / "pictures" / f"{i}.jpg").write_bytes(photo(i))
    samples = [{"image": f"pictures/{i}.jpg", "n": i} for i in range(3)]
    pack(samples, tmp_path / "set", schema=None)
    dataset = PackedFiles(tmp_path / "set")
    assert [dataset.key(i) for i in range(3)] == [f"pictures/{i}.jpg" for i in range(3)]
    assert str(dataset.schema) == "image=image, n=scalar(int64)"


def test_the_schema_that_is_guessed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    samples = [{name: value for name, value in sample(i).items() if name != "ignored"} for i in range(20)]
    for i, one in enumerate(samples):
        one["label"] = i
        one["keypoints"] = one.pop("points")
    pack(samples, tmp_path / "set", schema=None)
    found = (
        "caption=text, image=image, mask=mask, label=label, depth=image(channels=1, bits=16), "
        "bands=image(channels=5), second=scalar(int64), age=scalar(float32), flag=scalar(bool), "
        "pose=array(float64, (3, 4)), track=array(int64, (None, 2)), bits=array(bool, (3,)), "
        "boxes=boxes(xywh), outlines=polygons, areas=polygons(rle), extra=bytes, facts=json, "
        "keypoints=keypoints(4)"
    )
    assert f"schema, guessed from 16 samples: {found}\n" in capsys.readouterr().err
    with pytest.raises(PackError, match="'odd' has values of the type object that fit no kind of field"):
        pack([{"image": photo(0), "odd": object()}], tmp_path / "odd", schema=None)
    with pytest.raises(PackError, match="neither pictures nor texts"):
        pack([{"n": 1}], tmp_path / "odd", schema=None)


def test_memory_is_flat(tmp_path: Path) -> None:
    """The records' bytes are not kept: only a batch of them, and a shard's values."""
    code = (
        "import sys, numpy as np, fastload\n"
        "count = int(sys.argv[1])\n"
        "pixels = np.random.default_rng(0).integers(0, 255, (300, 400, 3), np.uint8)\n"
        "samples = ({'image': pixels, 'n': i, 'caption': 'x' * 100} for i in range(count))\n"
        "fastload.pack(samples, sys.argv[2], shard_size='40MB', entries=None)\n"
        # Not getrusage(), whose ru_maxrss begins with what the process that started this one holds.
        "print(next(line.split()[1] for line in open('/proc/self/status') if line.startswith('VmHWM')))\n"
    )
    found = []
    for count in (120, 360):  # of 360 KB; both fill a shard
        command = [sys.executable, "-c", code, str(count), str(tmp_path / str(count))]
        done = subprocess.run(
            command, env=environment(), capture_output=True, text=True, timeout=HANG, check=True
        )
        found.append(int(done.stdout) << 10)
    assert found[1] - found[0] < 40 << 20, found


def test_pixels_of_other_dtypes_say_so(tmp_path: Path) -> None:
    floats = [{"image": np.zeros((4, 4, 3), np.float32)}]
    with pytest.raises(PackError, match="pixels must be uint8 or uint16. Found: float32"):
        pack(floats, tmp_path / "set", schema={"image": "image"})
    ids = [{"mask": np.full((4, 4), 256, np.int64)}]
    with pytest.raises(PackError, match="a mask of 8 bits has ids from 0 to 255. Found: 256 to 256"):
        pack(ids, tmp_path / "ids", schema={"mask": "mask"})
    pack(ids, tmp_path / "set", schema={"mask": "mask(bits=16, ignore=65535)"}, restart=True)
    assert PackedFiles(tmp_path / "set").records["flags"][0] & 2


def test_raw_pixels_in_the_index(tmp_path: Path, format_name: str) -> None:
    """A first image of other than one or three channels is raw: stock libraries need its sides."""
    rng = np.random.default_rng(3)
    pixels = [rng.integers(0, 1 << 16, (4 + i, 6, 7), np.uint16) for i in range(5)]
    samples = [{"bands": one, "n": i} for i, one in enumerate(pixels)]
    pack(samples, tmp_path / "set", format_name, schema={"bands": "image(7, 16)", "n": "int32"})
    dataset = PackedFiles(tmp_path / "set")
    assert [dataset.read(i) for i in range(5)] == [one.tobytes() for one in pixels]
    record = dataset.record(2)
    assert (record["height"], record["width"], record["channels"], record["flags"]) == (6, 6, 7, 2)
    assert dataset.key(2) == "00000002.npy"
    assert verify(tmp_path / "set") == ([], 5)
    if format_name == "hdf5":
        with h5py.File(tmp_path / "set" / "set-00000-of-00001.h5") as file:
            assert file["bands_height"][:].tolist() == [4, 5, 6, 7, 8]
            assert np.array_equal(file["bands"][1].view("<u2").reshape(5, 6, 7), pixels[1])


def test_hdf5_datasets_beside_the_fields_have_names_of_their_own(tmp_path: Path) -> None:
    samples = [
        {
            "image": np.zeros((2, 2, 3), np.uint8),
            "more": np.zeros((3 + i, 4, 2), np.uint8),
            "more_height": 7,
            "path": 1,
        }
        for i in range(2)
    ]
    schema = {"image": "image", "more": "image(2)", "more_height": "int32", "path": "int32"}
    pack(samples, tmp_path / "set", "hdf5", schema=schema)
    with h5py.File(tmp_path / "set" / "set-00000-of-00001.h5") as file:
        assert file["more_height"][:].tolist() == [7, 7]
        assert file["more_height_"][:].tolist() == [3, 4]
        assert (file["path"][:].tolist(), len(file["path_"])) == ([1, 1], 2)
    assert verify(tmp_path / "set") == ([], 2)


def test_samples_that_are_not_compared_are_said(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    samples = [sample(i) for i in range(20)]
    pack(samples, tmp_path / "set")
    assert "compared" not in capfd.readouterr().err
    pack(samples, tmp_path / "set")
    assert "16 of the 20 samples were compared with it and are the same" in capfd.readouterr().err
    pack(samples[:10], tmp_path / "few")
    pack(samples[:10], tmp_path / "few")  # all of them
    assert "compared" not in capfd.readouterr().err
