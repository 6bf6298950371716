"""DLIO, the program of MLPerf Storage: the data loader that its workloads name as a plug-in.

::

    dlio_benchmark workload=resnet50_h100 ++workload.reader.data_loader_sampler=none \\
        ++workload.reader.data_loader_classname=fastload.integrations.dlio.FastloadDataLoader

It reads the files that DLIO has made: TFRecord, NPZ and NPY files as they are, or packed by
``python -m fastload.integrations.dlio DATA_FOLDER``; JPEG and PNG files packed.
"""

from __future__ import annotations

import itertools
import mmap
import os
import sys
import threading
import zipfile
import zlib
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt
import torch

from fastload._native import _C
from fastload.backends.values import Ranks
from fastload.errors import ChecksumError, FormatError, PackError
from fastload.extras import library_missing
from fastload.loader.data_loader import DataLoader
from fastload.machine.paths import exists
from fastload.machine.threads import started_pool
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
        self._files: RecordFiles | None = None  # None: packed

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
            self._files = RecordFiles(files, str(self.format_type), args.num_samples_per_file)
            numbers = _Numbers(len(self._files))
            options["num_workers"] = 0
            self._loader = DataLoader(numbers, collate_fn=list, **options)  # type: ignore[arg-type]
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
            if self._files is not None:
                yield from self._files.read_ahead(self._loader or (), self._args.read_threads)
                return
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


class _Numbers(torch.utils.data.Dataset[int]):
    """The numbers of samples, which the loader puts in order."""

    def __init__(self, count: int) -> None:
        self._count = count

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, sample: int) -> int:
        return sample


class RecordFiles:
    """The samples of DLIO's TFRecord, NPZ or NPY files: uint8, a row for each byte. Threads may share it.

    Args:
        files: their paths. kind: ``tfrecord``, ``npz`` or ``npy``.
        samples_per_file: of each file.

    Raises:
        PackError: another kind of files. FormatError: a file has other samples, or is cut.
        ChecksumError: a record or an array is damaged.
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
        self._scratch = threading.local()

    def __len__(self) -> int:
        return len(self._files) * self._each

    def read_ahead(self, batches: Iterable[Sequence[int]], threads: int) -> Iterator[Ragged]:
        """Yield the batches in their order, of which ``threads`` read the next ones. 0: none is read ahead.

        Threads do as well as processes: they wait for reads, checksums and copies, which leave the
        interpreter alone, and nothing has to be handed over.
        """
        if not threads:
            yield from map(self.read, batches)
            return
        pool, waiting = started_pool(threads, "read"), deque[Any]()
        try:
            for batch in batches:
                waiting.append(pool.submit(self.read, batch))
                if len(waiting) > 2 * threads:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            pool.shutdown(cancel_futures=True)

    def read(self, samples: Sequence[int]) -> Ragged:
        """Read the samples of a batch."""
        if self._kind == "tfrecord":
            records = [self._place(sample) for sample in samples]
            values, offsets = _room(int(place[3]) for _, place in records)
            for begin, (path, place) in zip(offsets.tolist(), records, strict=False):
                values[begin : begin + place[3]] = self._record(path, *place.tolist())
        else:
            arrays = [array_place(self._files[sample // self._each]) for sample in samples]
            values, offsets = _room(map(self._bytes_of, arrays))
            rows = itertools.pairwise(offsets.tolist())
            for sample, array, (begin, end) in zip(samples, arrays, rows, strict=True):
                array.read(values[begin:end], sample % self._each)
        return Ragged(torch.from_numpy(values), torch.from_numpy(offsets))

    def _bytes_of(self, array: ArrayPlace) -> int:
        """Return the bytes of one sample."""
        if len(array.shape) < 2 or array.shape[-1] != self._each:
            raise FormatError(
                f"{array.path} has an array of shape {array.shape}; DLIO's files end in "
                f"num_samples_per_file, {self._each}. Generate the files again."
            )
        return array.nbytes // self._each

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
        """Return the image's bytes of a record, which are there until this thread reads the next one."""
        scratch = getattr(self._scratch, "data", None)
        if scratch is None or len(scratch) < length + _FOOT:
            scratch = self._scratch.data = np.empty(length + _FOOT, np.uint8)
        data = scratch[: length + _FOOT]
        with open(path, "rb", buffering=0) as file:
            file.seek(offset)
            count = file.readinto(data)  # type: ignore[arg-type]
        if count != len(data) or _masked(data[:length]) != int(data[length:].view("<u4")[0]):
            raise ChecksumError(
                f"{path}: the record of {length} bytes at offset {offset} is damaged: its CRC-32C is "
                "another. Generate the file again."
            )
        return data[begin : begin + image]


_HUGE = 4 << 20  # bytes from which on huge pages are worth it


def _room(sizes: Iterable[int]) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    """Return memory for samples of these bytes, and where each begins in it, with its end behind them."""
    offsets = np.cumsum([0, *sizes])
    size = int(offsets[-1])
    if size < _HUGE:
        return np.empty(size, np.uint8), offsets
    memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with suppress(OSError):  # a kernel may lack them
        memory.madvise(mmap.MADV_HUGEPAGE)
    return np.frombuffer(memory, np.uint8), offsets


@dataclass(frozen=True)
class ArrayPlace:
    """The array of an NPY file, or that named ``x`` of an NPZ file."""

    path: str
    shape: tuple[int, ...]
    nbytes: int
    begin: int | None  # where the file has its bytes in their order; None: NumPy reads it
    crc: int | None = None  # of its header and its bytes, where the file says it
    header_crc: int = 0

    def read(self, target: npt.NDArray[np.uint8], sample: int) -> None:
        """Write the bytes of a sample, which is a place of the last dimension, into ``target``."""
        if self.begin is None or self.shape[-1] != 1:
            found = np.load(self.path)
            array = found["x"] if isinstance(found, np.lib.npyio.NpzFile) else found
            target[:] = np.ascontiguousarray(array[..., sample]).reshape(-1).view(np.uint8)
            return
        with open(self.path, "rb") as file:
            file.seek(self.begin)
            count = file.readinto(target)  # type: ignore[arg-type]
        if count != self.nbytes:
            raise FormatError(f"{self.path} is cut in its array. Generate the file again.")
        if self.crc is not None and zlib.crc32(target.data, self.header_crc) != self.crc:
            raise ChecksumError(
                f"{self.path}: its array is damaged: its CRC-32 is another. Generate it again."
            )


def array_place(path: str) -> ArrayPlace:
    """Return where the array of a file lies.

    Raises:
        FormatError: it is no such file, or has no such array.
    """
    try:
        with open(path, "rb") as file:
            if not path.endswith(".npz"):
                return _array_at(file, path, None)
            with zipfile.ZipFile(file) as files:
                member = files.getinfo("x.npy")
                if member.compress_type != zipfile.ZIP_STORED:
                    with files.open(member) as packed:
                        found = _array_at(packed, path, None)
                    return ArrayPlace(path, found.shape, found.nbytes, None)
            file.seek(member.header_offset + _LOCAL_LENGTHS)
            file.seek(int(np.frombuffer(file.read(4), "<u2").sum()), os.SEEK_CUR)
            return _array_at(file, path, member.CRC)
    except (EOFError, KeyError, ValueError, zipfile.BadZipFile) as error:
        raise FormatError(
            f"{path} is not a whole {path[-3:]} file of DLIO's: {error}. Generate it again."
        ) from error


_LOCAL_LENGTHS = 26  # where a zip's local header has the lengths of what is between it and the bytes


def _array_at(file: IO[bytes], path: str, crc: int | None) -> ArrayPlace:
    """Return the place of the array whose NPY header begins here."""
    start = file.tell()
    version = np.lib.format.read_magic(file)
    header = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, is_fortran, dtype = header(file)
    begin = file.tell()
    nbytes = int(np.prod(shape)) * dtype.itemsize
    if is_fortran or dtype.hasobject:
        return ArrayPlace(path, shape, nbytes, None)
    file.seek(start)
    return ArrayPlace(path, shape, nbytes, begin, crc, zlib.crc32(file.read(begin - start)))


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
            records = ({_RECORD: samples.read([number]).values.numpy()} for number in range(len(samples)))
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
