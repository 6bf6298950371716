"""integrations.dlio against a stub of DLIO's interface; DLIO itself runs in tests/foreign/dlio."""

from __future__ import annotations

import enum
import importlib
import struct
import sys
from collections import Counter
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from index_reference import crc32c_reference
from PIL import Image

from fastload.errors import ChecksumError, FormatError, PackError

FILES, EACH, BATCH = 4, 6, 3


# ---- The stub, and files as DLIO's generators write them ----


class Args(SimpleNamespace):
    """DLIO's ``ConfigArguments``: one for all."""

    instance: Any = None


class BaseDataLoader:
    """As DLIO's class of that name."""

    def __init__(self, format_type: Any, dataset_type: Any, epoch: int, data_loader_type: Any) -> None:
        self._args = Args.instance
        self.format_type, self.dataset_type, self.epoch_number = format_type, dataset_type, epoch
        self.num_samples = self._args.total_samples_train
        self.batch_size = self._args.batch_size


class Word(enum.Enum):
    """DLIO's enumerations, whose members are printed as their values."""

    TRAIN = "train"
    VALID = "valid"
    CUSTOM = "custom"
    OFF = "off"
    SEED = "seed"

    def __str__(self) -> str:
        return str(self.value)


@pytest.fixture
def dlio(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The plug-in, imported beside the stub."""
    words = ModuleType("dlio_benchmark.common.enumerations")
    words.DataLoaderType = words.DatasetType = Word  # type: ignore[attr-defined]
    base = ModuleType("dlio_benchmark.data_loader.base_data_loader")
    base.BaseDataLoader = BaseDataLoader  # type: ignore[attr-defined]
    for name in ("dlio_benchmark", "dlio_benchmark.common", "dlio_benchmark.data_loader"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    for module in (words, base):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.delitem(sys.modules, "fastload.integrations.dlio", raising=False)
    yield importlib.import_module("fastload.integrations.dlio")
    sys.modules.pop("fastload.integrations.dlio", None)


def masked(data: bytes) -> bytes:
    """A checksum as TFRecord files have it."""
    crc = crc32c_reference(data)
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def message(number: int, data: bytes) -> bytes:
    """A field of a protobuf message that has a length."""
    length, left = b"", len(data)
    while left > 127:
        length += bytes([left & 127 | 128])
        left >>= 7
    return bytes([number << 3 | 2]) + length + bytes([left]) + data


def example(image: bytes, is_first: bool) -> bytes:
    """A ``tf.train.Example`` of image and size; TensorFlow writes maps in any order."""
    entry = message(1, message(1, b"image") + message(2, message(1, message(1, image))))
    size = message(1, message(1, b"size") + message(2, message(3, message(1, b"\x88\x02"))))
    return message(1, entry + size if is_first else size + entry)


def write(folder: Path, kind: str, rng: np.random.Generator) -> list[bytes]:
    """Write files of a kind, and return the bytes of all samples in order (pictures: of pixels)."""
    folder.mkdir(parents=True)
    made = []
    for number in range(FILES * (EACH if kind == "png" else 1)):
        path = folder / f"img_{number:02d}_of_{FILES}.{kind}"
        height, width = (int(rng.integers(5, 40)) for _ in range(2))
        values = rng.integers(0, 255, (height, width, EACH), np.uint8)
        if kind == "png":
            values = np.resize(values, (8, 8, 1))
            Image.fromarray(values[..., 0]).save(path)
        elif kind == "npz":
            np.savez(path, x=values, y=[0] * EACH)
        elif kind == "npy":
            np.save(path, values)
        else:
            with open(path, "wb") as file:
                for place in range(EACH):
                    data = example(values[..., place].tobytes(), place % 2 == 0)
                    length = struct.pack("<Q", len(data))
                    file.write(length + masked(length) + data + masked(data))
        made += [values[..., place].tobytes() for place in range(values.shape[-1])]
    return made


def arguments(folder: Path, kind: str, rank: int, ranks: int, threads: int, shuffle: Word) -> None:
    """Set DLIO's arguments."""
    files = sorted(str(path) for path in (folder / "train").iterdir())
    each = 1 if kind == "png" else EACH
    Args.instance = Args(
        my_rank=rank, comm_size=ranks, seed=7, read_threads=threads, sample_shuffle=shuffle, batch_size=BATCH,
        data_folder=str(folder), file_list_train=files, file_list_eval=[], num_samples_per_file=each,
        total_samples_train=len(files) * each, max_dimension=8,
    )  # fmt: skip


def epoch(dlio: Any, kind: str, loader: Any = None) -> tuple[list[bytes], Any]:
    """The samples of an epoch by the plug-in, as DLIO asks for them."""
    if loader is None:
        loader = dlio.FastloadDataLoader(Kind(kind), Word.TRAIN, 1)
        loader.read()
    samples = []
    for batch in loader.next():
        assert len(batch) == BATCH
        samples += [bytes(one.numpy().tobytes()) for one in batch]
    loader.finalize()
    return samples, loader


class Kind:
    def __init__(self, kind: str) -> None:
        self._kind = kind

    def __str__(self) -> str:
        return self._kind


# ---- What the plug-in gives ----


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("kind", ["tfrecord", "npz", "npy", "png"])
def test_each_sample_once(dlio: Any, tmp_path: Path, kind: str, ranks: int) -> None:
    """All ranks together give every sample's bytes once in each epoch, from files and from a packed set."""
    wanted = write(tmp_path / "train", kind, np.random.default_rng(3))
    for packed in [False, True] if kind != "png" else [True]:
        if packed:
            assert dlio.pack_data(tmp_path) == [tmp_path / "packed" / "train"]
        orders = []
        loaders: dict[int, Any] = {}
        for _ in range(2):
            found: list[bytes] = []
            for rank in range(ranks):
                arguments(tmp_path, kind, rank, ranks, 0, Word.SEED)
                samples, loaders[rank] = epoch(dlio, kind, loaders.get(rank))
                assert len(samples) == len(wanted) // ranks
                found += samples
            assert Counter(found) == Counter(wanted)
            orders.append(found)
        assert orders[0] != orders[1], "the second epoch has the first one's order"


def test_in_order_without_shuffle(dlio: Any, tmp_path: Path) -> None:
    wanted = write(tmp_path / "train", "tfrecord", np.random.default_rng(4))
    for threads in (0, 2):
        arguments(tmp_path, "tfrecord", 0, 1, threads, Word.OFF)
        assert epoch(dlio, "tfrecord")[0] == wanted
    dlio.pack_data(tmp_path)
    assert epoch(dlio, "tfrecord")[0] == wanted


def test_the_next_epoch_after_a_break(dlio: Any, tmp_path: Path) -> None:
    """DLIO leaves its loop at the last step, and asks for the next epoch."""
    wanted = write(tmp_path / "train", "npy", np.random.default_rng(8))
    arguments(tmp_path, "npy", 0, 1, 0, Word.SEED)
    loader = dlio.FastloadDataLoader(Kind("npy"), Word.TRAIN, 1)
    orders = []
    for number in (1, 2):
        assert loader.epoch_number == number
        batches = loader.next()
        taken = [next(batches) for _ in range(len(wanted) // BATCH)]
        batches.close()
        orders.append([one.numpy().tobytes() for batch in taken for one in batch])
        assert Counter(orders[-1]) == Counter(wanted)
    assert orders[0] != orders[1]


# Those that are read where they lie, and those that are left to NumPy.
@pytest.mark.parametrize("shape", [(5, 7, 1), (1500, 1501, 1), (4, 3, 2)], ids=str)
@pytest.mark.parametrize("form", ["npy", "npz", "compressed", "fortran"])
def test_arrays_are_numpys(dlio: Any, tmp_path: Path, form: str, shape: tuple[int, ...]) -> None:
    arrays = [np.random.default_rng(number).integers(-9, 9, shape, np.int16) for number in range(2)]
    for number, array in enumerate(arrays):
        path = tmp_path / f"{number}.{'npy' if form == 'npy' else 'npz'}"
        if form == "npy":
            np.save(path, array)
        else:
            save = np.savez_compressed if form == "compressed" else np.savez
            save(path, x=np.asfortranarray(array) if form == "fortran" else array, y=[0])
    files = sorted(map(str, tmp_path.iterdir()))
    each = shape[-1]
    samples = dlio.RecordFiles(files, files[0][-3:], each)
    numbers = list(range(len(samples)))[::-1]
    found = [one.numpy().tobytes() for one in samples.read(numbers)]
    assert found == [arrays[number // each][..., number % each].tobytes() for number in numbers]


# ---- What is refused ----


@pytest.mark.parametrize("kind", ["npy", "npz"])
def test_arrays_that_are_cut_or_damaged(dlio: Any, tmp_path: Path, kind: str) -> None:
    path = tmp_path / f"a.{kind}"
    array = np.arange(300, dtype=np.uint8).reshape(20, 15, 1)
    np.savez(path, x=array) if kind == "npz" else np.save(path, array)
    whole = path.read_bytes()
    assert len(whole) > array.nbytes
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        with pytest.raises(FormatError, match="Generate"):
            dlio.RecordFiles([str(path)], kind, 1).read([0])
    if kind == "npz":
        begin = whole.index(array.tobytes())
        for place in (begin, begin + 150, begin + 299):
            path.write_bytes(whole[:place] + bytes([whole[place] ^ 4]) + whole[place + 1 :])
            with pytest.raises(ChecksumError, match="CRC-32"):
                dlio.RecordFiles([str(path)], kind, 1).read([0])


def test_damage_is_told(dlio: Any, tmp_path: Path) -> None:
    """Each byte of a record's data counts; a cut file is no shorter set."""
    write(tmp_path / "train", "tfrecord", np.random.default_rng(5))
    path = sorted((tmp_path / "train").iterdir())[1]
    whole = path.read_bytes()
    damaged = bytearray(whole)
    damaged[40] ^= 1
    path.write_bytes(damaged)
    arguments(tmp_path, "tfrecord", 0, 1, 0, Word.OFF)
    assert refused(dlio) is ChecksumError
    path.write_bytes(whole[:-1])
    assert refused(dlio) is FormatError


def refused(dlio: Any) -> type[BaseException]:
    """The error of an epoch."""
    with pytest.raises((ChecksumError, FormatError)) as caught:
        epoch(dlio, "tfrecord")
    return caught.type


def test_other_files_are_refused(dlio: Any, tmp_path: Path) -> None:
    write(tmp_path / "train", "npz", np.random.default_rng(6))
    arguments(tmp_path, "npz", 0, 1, 0, Word.OFF)
    dlio.pack_data(tmp_path)
    Args.instance.total_samples_train += BATCH
    with pytest.raises(PackError, match="expects 9 batches of 3 samples"):
        epoch(dlio, "npz")
    with pytest.raises(PackError, match="python -m fastload.integrations.dlio DATA_FOLDER"):
        dlio.RecordFiles(["a.jpeg"], "jpeg", 1)
    with pytest.raises(PackError, match="Found: 'hdf5'"):
        dlio.RecordFiles(["a.hdf5"], "hdf5", 1)
    (tmp_path / "train" / "other.npy").touch()
    with pytest.raises(PackError, match="several formats: npy, npz"):
        dlio.pack_data(tmp_path)
    with pytest.raises(PackError, match="no files in train or valid"):
        dlio.pack_data(tmp_path / "nowhere")
    np.save(tmp_path / "flat.npy", np.zeros(4, np.uint8))
    with pytest.raises(FormatError, match=r"an array of shape \(4,\)"):
        dlio.RecordFiles([str(tmp_path / "flat.npy")], "npy", 4).read([0])
