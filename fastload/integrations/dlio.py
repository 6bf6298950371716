"""DLIO, the program of MLPerf Storage: the data loader that its workloads name as a plug-in.

::

    dlio_benchmark workload=resnet50_h100 ++workload.reader.data_loader_sampler=none \\
        ++workload.reader.data_loader_classname=fastload.integrations.dlio.FastloadDataLoader

It reads the files that DLIO has made: TFRecord, NPZ and NPY files as they are, or packed by
``python -m fastload.integrations.dlio DATA_FOLDER``; JPEG and PNG files packed.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
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
            self._loader = DataLoader(dataset, collate_fn=_joined, **options)
        steps = self.num_samples // self.batch_size // args.comm_size
        if len(self._loader) != steps:
            raise PackError(
                f"DLIO expects {steps} batches of {self.batch_size} samples an epoch on each of "
                f"{args.comm_size} ranks. Found: {len(self._loader)} in {folder}, which was packed of other "
                "files. Remove it, and pack again."
            )

    def next(self) -> Iterator[Any]:
        """Yield the batches of one epoch."""
        if self._loader is None:
            self.read()
        for batch in self._loader or ():
            if isinstance(batch, dict):
                yield batch[_RECORD] if _RECORD in batch else batch["image"]
            else:
                yield batch
        self.epoch_number += 1

    def finalize(self) -> None:
        """Do nothing: DLIO calls it after each epoch, and goes on."""


# ---- DLIO's files as they are -----------------------------------------------------------------------


class RecordFiles(torch.utils.data.Dataset[torch.Tensor]):
    """The samples of DLIO's TFRecord, NPZ or NPY files, each as uint8 (bytes,).

    Args:
        files: their paths. kind: ``tfrecord``, ``npz`` or ``npy``.
        samples_per_file: of each file.

    Raises:
        PackError: another kind of files. FormatError: a file has other samples, or is cut.
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
        self._places: dict[int, np.ndarray] = {}  # of a TFRecord file's records, by the file's number

    def __len__(self) -> int:
        return len(self._files) * self._each

    def __getitem__(self, sample: int) -> torch.Tensor:
        number, place = divmod(sample, self._each)
        path = self._files[number]
        if self._kind == "tfrecord":
            if number not in self._places:
                self._places[number] = record_places(path, self._each)
            return torch.from_numpy(read_record(path, *self._places[number][place]))
        found = np.load(path)
        array = found["x"] if self._kind == "npz" else found
        if array.ndim < 2 or array.shape[-1] != self._each:
            raise FormatError(
                f"{path} has an array of shape {array.shape}; DLIO's files end in num_samples_per_file, "
                f"{self._each}. Generate the files again."
            )
        one = array[..., place] if self._each > 1 else array
        return torch.from_numpy(np.ascontiguousarray(one).reshape(-1).view(np.uint8))


def _joined(samples: list[torch.Tensor]) -> Ragged:
    """Join the bytes of a batch's samples."""
    ends = np.cumsum([0, *map(len, samples)])
    return Ragged(torch.cat(samples), torch.from_numpy(ends))


_HEAD = np.dtype([("length", "<u8"), ("crc", "<u4")])  # of a TFRecord's record, with its CRC-32C masked
_FOOT = 4  # bytes of the CRC-32C behind it


def record_places(path: str, count: int) -> np.ndarray:
    """Return where the records of a TFRecord file begin and how long they are: (count, 2) int64, bytes.

    Raises:
        FormatError: the file has another number of records, or is cut.
    """
    places = []
    with open(path, "rb") as file:
        size = file.seek(0, 2)
        at = 0
        while at + _HEAD.itemsize <= size:
            file.seek(at)
            length = int(np.frombuffer(file.read(_HEAD.itemsize), _HEAD)["length"][0])
            places.append((at + _HEAD.itemsize, length))
            at += _HEAD.itemsize + length + _FOOT
    if at != size or len(places) != count:
        raise FormatError(
            f"{path} has {len(places)} records in {size} bytes, of which the last ends at {at}; "
            f"num_samples_per_file is {count}. Generate the files again."
        )
    return np.array(places, np.int64)


def read_record(path: str, offset: int, length: int) -> np.ndarray:
    """Return the bytes of the feature ``image`` of one record, uint8 (bytes,).

    Raises:
        ChecksumError: the record is damaged. FormatError: it has no such feature.
    """
    data = np.fromfile(path, np.uint8, length + _FOOT, offset=offset)
    crc = _C.crc32c(data[:length])
    masked = ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF
    if len(data) < length + _FOOT or masked != int(data[length:].view("<u4")[0]):
        raise ChecksumError(
            f"{path}: the record of {length} bytes at offset {offset} is damaged: its CRC-32C is another. "
            "Generate the file again."
        )
    for key, value in _features(memoryview(data)[:length]):
        if key == b"image":
            begin, end = value
            return data[begin:end]
    raise FormatError(f"{path}: the record at offset {offset} has no feature 'image'. Generate it again.")


def _features(example: memoryview) -> Iterator[tuple[bytes, tuple[int, int]]]:
    """Yield the names of a ``tf.train.Example``'s features of bytes, and where their values lie in it."""
    for begin, end in _parts(example, 0, len(example)):  # features
        for inner in _parts(example, begin, end):  # a map's entry
            key, feature = list(_parts(example, *inner))[:2]
            for list_of in _parts(example, *feature):  # bytes_list
                for value in _parts(example, *list_of):
                    yield bytes(example[key[0] : key[1]]), value


def _parts(data: memoryview, at: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield where the fields of a protobuf message in ``data[at:end]`` lie that have a length."""
    while at < end:
        wire, at = _varint(data, at)
        length, at = _varint(data, at)
        if wire & 7 != 2:
            continue
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
            records = ({_RECORD: samples[number].numpy()} for number in range(len(samples)))
            pack(records, output, {_RECORD: Array("uint8", (None,))})
        made.append(output)
    if not made:
        raise PackError(f"{data_folder} has no files in train or valid: it is no data folder of DLIO's.")
    return made


def _each(path: str, kind: str) -> int:
    """Return how many samples a file has."""
    if kind == "tfrecord":
        count, at = 0, 0
        with open(path, "rb") as file:
            while head := file.read(_HEAD.itemsize):
                count += 1
                at += _HEAD.itemsize + int(np.frombuffer(head, _HEAD)["length"][0]) + _FOOT
                file.seek(at)
        return count
    found = np.load(path)
    return int((found["x"] if kind == "npz" else found).shape[-1])


if __name__ == "__main__":
    sys.stdout.writelines(f"{folder}\n" for folder in pack_data(sys.argv[1]))
