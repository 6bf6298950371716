"""DLIO, the program of MLPerf Storage: the data loader that its workloads name as a plug-in.

::

    dlio_benchmark workload=resnet50_h100 ++workload.reader.data_loader_sampler=none \\
        ++workload.reader.data_loader_classname=fastload.integrations.dlio.FastloadDataLoader

It reads the files that DLIO has made: TFRecord, NPZ and NPY files as they are, or packed by
``python -m fastload.integrations.dlio DATA_FOLDER``; JPEG and PNG files packed.
"""

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from fastload._native import _C
from fastload.backends.values import Ranks
from fastload.errors import ChecksumError, FormatError, PackError
from fastload.extras import library_missing
from fastload.loader.data_loader import DataLoader
from fastload.machine.paths import exists
from fastload.packing.from_python import pack
from fastload.sample.fields import Array, Image
from fastload.sample.ragged import Ragged
from fastload.shard.manifest import MANIFEST_NAME
from fastload.transforms import Resize

try:
    from dlio_benchmark.common.enumerations import DataLoaderType, DatasetType
    from dlio_benchmark.data_loader.base_data_loader import BaseDataLoader
except ImportError as error:
    raise library_missing("dlio_benchmark", "fastload.integrations.dlio", error) from error

#: The folder of the packed sets, in DLIO's data folder beside its ``train`` and ``valid``.
PACKED = "packed"
_RECORD = "record"  # the field of a sample's bytes
_PICTURES = ("jpeg", "png")
_ARRAYS = ("npz", "npy")


# ---- The plug-in ------------------------------------------------------------------------------------


class FastloadDataLoader(BaseDataLoader):  # type: ignore[misc]
    """What ``reader.data_loader_classname`` names; DLIO makes one for training and one for evaluation.

    Each batch has all bytes of its samples, which DLIO's own readers read and drop: a
    :class:`fastload.Ragged` of uint8 for TFRecord, NPZ and NPY, with a row for each byte; pictures are uint8
    (batch, 1, side, side), resized to the side that ``record_length_resize`` gives.
    """

    def __init__(self, format_type: Any, dataset_type: Any, epoch_number: int) -> None:
        super().__init__(format_type, dataset_type, epoch_number, DataLoaderType.CUSTOM)
        self._loader: DataLoader[Any] | None = None

    def read(self) -> None:
        """Open the files or the packed set.

        Raises:
            PackError: pictures that are not packed, another format, or a set of other files.
        """
        args = self._args
        is_training = self.dataset_type is DatasetType.TRAIN
        folder = Path(args.data_folder) / PACKED / str(self.dataset_type)
        options: dict[str, Any] = {
            "batch_size": self.batch_size,
            "shuffle": str(args.sample_shuffle) != "off",
            "seed": args.seed,
            "num_workers": args.read_threads,
            "drop_last": True,
            "ranks": Ranks(args.my_rank, args.comm_size, handshake="off"),
        }
        if exists(folder / MANIFEST_NAME):
            if str(self.format_type) in _PICTURES:
                side = args.max_dimension
                options.update(fields=["image"], transform=Resize((side, side)))
            else:
                options.update(fields=[_RECORD])
            self._loader = DataLoader(str(folder), **options)
        else:
            files = args.file_list_train if is_training else args.file_list_eval
            dataset = RecordFiles(files, str(self.format_type), args.num_samples_per_file)
            self._loader = DataLoader(dataset, collate_fn=_as_read, **options)  # type: ignore[arg-type]
        steps = self.num_samples // self.batch_size // args.comm_size
        if len(self._loader) != steps:
            raise PackError(
                f"DLIO expects {steps} batches of {self.batch_size} samples an epoch on each of "
                f"{args.comm_size} ranks. Found: {len(self._loader)} in {folder}, which was packed of other "
                "files. Remove it, and pack again."
            )

    def next(self) -> Iterator[Any]:
        """Yield the batches of one epoch, after the last of which DLIO does not come back."""
        if self._loader is None:
            self.read()
        try:
            for batch in self._loader or ():
                if isinstance(batch, dict):
                    yield batch[_RECORD] if _RECORD in batch else batch["image"]
                else:
                    yield batch
        finally:
            self.epoch_number += 1

    def finalize(self) -> None:
        """Do nothing: DLIO calls it after each epoch, and goes on."""


# ---- DLIO's files as they are -----------------------------------------------------------------------


class RecordFiles(torch.utils.data.Dataset[Ragged]):
    """The samples of DLIO's TFRecord, NPZ or NPY files: uint8, a row for each byte.

    Args:
        files: their paths. kind: ``tfrecord``, ``npz`` or ``npy``.
        samples_per_file: of each file.

    Raises:
        PackError: another kind of files. FormatError: a file has other samples, or is cut.
        ChecksumError: a record is damaged.
    """

    def __init__(self, files: Sequence[str], kind: str, samples_per_file: int) -> None:
        if kind in _PICTURES:
            raise PackError(
                f"{kind} files of DLIO are read from a packed set. Found none: 'python -m "
                "fastload.integrations.dlio DATA_FOLDER' packs them."
            )
        if kind not in ("tfrecord", *_ARRAYS):
            raise PackError(
                f"fastload reads DLIO's formats tfrecord, npz, npy, jpeg and png. Found: {kind!r}. Choose "
                "another dataset.format."
            )
        self._files, self._kind, self._each = list(files), kind, samples_per_file
        self._places: dict[int, npt.NDArray[np.int64]] = {}  # of TFRecord files, by their numbers
        self._scratch = np.empty(0, np.uint8)

    def __len__(self) -> int:
        return len(self._files) * self._each

    def __getitem__(self, sample: int) -> Ragged:
        return self.__getitems__([sample])

    def __getitems__(self, samples: Sequence[int]) -> Ragged:
        """Read the samples of a batch, in a worker process into memory that it shares."""
        parts: Iterable[npt.NDArray[np.uint8]]
        if self._kind == "tfrecord":
            places = [self._place(sample) for sample in samples]
            lengths = [int(place[3]) for _, place in places]
            parts = (self._record(path, *place.tolist()) for path, place in places)
        else:
            parts = [self._array(sample) for sample in samples]
            lengths = [len(part) for part in parts]
        offsets = np.cumsum([0, *lengths])
        values = torch.empty(0, dtype=torch.uint8)
        if torch.utils.data.get_worker_info() is None:
            values = values.new_empty(int(offsets[-1]))
        else:  # as torch's default_collate, which saves a copy
            values.set_(torch.UntypedStorage._new_shared(int(offsets[-1])))  # type: ignore[no-untyped-call]
        for begin, part in zip(offsets.tolist(), parts, strict=False):
            values.numpy()[begin : begin + len(part)] = part
        return Ragged(values, torch.from_numpy(offsets))

    def _place(self, sample: int) -> tuple[str, npt.NDArray[np.int64]]:
        """Return the file of a record, and its row of :func:`record_places`."""
        number, place = divmod(sample, self._each)
        path = self._files[number]
        if number not in self._places:
            found = record_places(path)
            if len(found) != self._each:
                raise FormatError(
                    f"{path} has {len(found)} records; num_samples_per_file is {self._each}. Generate the "
                    "files again."
                )
            self._places[number] = found
        return path, self._places[number][place]

    def _record(self, path: str, offset: int, length: int, begin: int, image: int) -> npt.NDArray[np.uint8]:
        """Return the image's bytes of a record, which are there until the next one is read."""
        if len(self._scratch) < length + _FOOT:
            self._scratch = np.empty(length + _FOOT, np.uint8)
        data = self._scratch[: length + _FOOT]
        with open(path, "rb", buffering=0) as file:
            file.seek(offset)
            count = file.readinto(data)  # type: ignore[arg-type]
        if count != len(data) or _masked(data[:length]) != int(data[length:].view("<u4")[0]):
            raise ChecksumError(
                f"{path}: the record of {length} bytes at offset {offset} is damaged: its CRC-32C is "
                "another. Generate the file again."
            )
        return data[begin : begin + image]

    def _array(self, sample: int) -> npt.NDArray[np.uint8]:
        number, place = divmod(sample, self._each)
        path = self._files[number]
        found = np.load(path)
        array = found["x"] if self._kind == "npz" else found
        if array.ndim < 2 or array.shape[-1] != self._each:
            raise FormatError(
                f"{path} has an array of shape {array.shape}; DLIO's files end in num_samples_per_file, "
                f"{self._each}. Generate the files again."
            )
        return np.ascontiguousarray(array[..., place]).reshape(-1).view(np.uint8)


def _as_read(batch: Ragged) -> Ragged:
    """Return the batch: it is one already."""
    return batch


_HEAD = np.dtype([("length", "<u8"), ("crc", "<u4")])  # of a TFRecord's record, with its CRC-32C masked
_FOOT = 4  # bytes of the CRC-32C behind it
_BEGINNING = 256  # bytes of a record that have its small features


def _masked(data: npt.NDArray[np.uint8]) -> int:
    """Return a CRC-32C as TFRecord files have it."""
    crc = _C.crc32c(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def record_places(path: str) -> npt.NDArray[np.int64]:
    """Return the places of a TFRecord file's records and of their feature ``image``: (records, 4), bytes.

    A row has the record's offset and length, where in it the image begins, and the image's length.

    Raises:
        FormatError: the file is cut, or a record has no such feature near its beginning.
    """
    places, at = [], 0
    with open(path, "rb") as file:
        size = file.seek(0, os.SEEK_END)
        while at + _HEAD.itemsize + _FOOT <= size:
            file.seek(at)
            length = int(np.frombuffer(file.read(_HEAD.itemsize), _HEAD)["length"][0])
            beginning = memoryview(file.read(min(length, _BEGINNING)))
            offset, at = at + _HEAD.itemsize, at + _HEAD.itemsize + length + _FOOT
            try:
                begin, end = next(place for name, place in _features(beginning) if name == b"image")
            except (IndexError, StopIteration, ValueError):
                begin, end = 0, length + 1
            if end > length:
                raise FormatError(
                    f"{path}: the record at offset {offset} has no feature 'image'. Generate the file again."
                )
            places.append((offset, length, begin, end - begin))
    if at != size:
        raise FormatError(f"{path} has {size} bytes and is cut in a record. Generate the file again.")
    return np.array(places, np.int64).reshape(-1, 4)


def _features(example: memoryview) -> Iterator[tuple[bytes, tuple[int, int]]]:
    """Yield the names of a ``tf.train.Example``'s features of bytes, and where their values lie in it.

    ``example`` may be its beginning only: a value may end behind it.
    """
    for begin, end in _parts(example, 0, len(example)):  # features
        for inner in _parts(example, begin, end):  # a map's entry
            key, feature = itertools.islice(_parts(example, *inner), 2)
            for list_of in _parts(example, *feature):  # bytes_list
                for value in _parts(example, *list_of):
                    yield bytes(example[key[0] : key[1]]), value


def _parts(data: memoryview, at: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield where the fields of a protobuf message in ``data[at:end]`` lie that have a length."""
    while at < min(end, len(data)):
        wire, at = _varint(data, at)
        length, at = _varint(data, at)
        if wire & 7 == 2:
            yield at, at + length
            at += length


def _varint(data: memoryview, at: int) -> tuple[int, int]:
    """Return the number at a place, and where the next thing begins."""
    number = shift = 0
    while True:
        byte = data[at]
        number |= (byte & 127) << shift
        at += 1
        if byte < 128:
            return number, at
        shift += 7


# ---- Packing them -----------------------------------------------------------------------------------


def pack_data(data_folder: str | Path) -> list[Path]:
    """Pack DLIO's ``train`` and ``valid`` into sets in ``data_folder/packed``; return their folders.

    Raises:
        PackError: there are no files of DLIO's that fastload reads, or of several formats.
    """
    made = []
    for part in ("train", "valid"):
        files = sorted(str(path) for path in (Path(data_folder) / part).rglob("*.*"))
        kinds = sorted({Path(path).suffix[1:] for path in files})
        if not files:
            continue
        if len(kinds) > 1:
            raise PackError(f"{data_folder}/{part} has files of several formats: {', '.join(kinds)}.")
        output = Path(data_folder) / PACKED / part
        if kinds[0] in _PICTURES:
            pack(({"image": path} for path in files), output, {"image": Image(channels=1)})
        else:
            samples = RecordFiles(files, kinds[0], _each(files[0], kinds[0]))
            records = ({_RECORD: samples[number].values.numpy()} for number in range(len(samples)))
            pack(records, output, {_RECORD: Array("uint8", (None,))})
        made.append(output)
    if not made:
        raise PackError(f"{data_folder} has no files in train or valid: it is no data folder of DLIO's.")
    return made


def _each(path: str, kind: str) -> int:
    """Return how many samples a file has."""
    if kind == "tfrecord":
        return len(record_places(path))
    found = np.load(path)
    return int((found["x"] if kind == "npz" else found).shape[-1])


if __name__ == "__main__":
    sys.stdout.writelines(f"{folder}\n" for folder in pack_data(sys.argv[1]))
