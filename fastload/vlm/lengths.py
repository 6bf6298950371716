"""The lengths of a set's documents: tokens of texts, which are counted once and kept, and of pictures."""

from __future__ import annotations

import fcntl
import hashlib
import os
import tempfile
import warnings
import zipfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from fastload.machine.messages import stacklevel
from fastload.vlm.grids import Ints, PictureGrids, by_sample

Counts: TypeAlias = npt.NDArray[np.int32]
FOLDER = ".chat"  # in a set's folder
_NAMED = 5  # samples in a message
_MOST = 2**31 - 1  # tokens of a sample of which no document can be made: more than a pack can have
_CHUNK = 256  # samples that a thread counts at a time
_PART = 1 << 16  # samples whose pictures are looked up at a time


class Counter(Protocol):
    """What counts tokens: a :class:`~fastload.vlm.chat.Chat`."""

    @property
    def turns(self) -> str:
        """The field that has the conversations."""

    @property
    def frames(self) -> Any:
        """How pictures are written."""

    def digest(self) -> str:
        """Return a digest of all that decides the lengths of texts."""

    def text_lengths(self, conversations: Any, pictures: Any, samples: Any) -> Counts:
        """Return the tokens of each sample's texts, without its pictures' own."""

    def picture_lengths(self, grids: Any) -> list[int]:
        """Return how many tokens each picture of a sample has of its own."""


@dataclass(frozen=True, eq=False)
class DocumentLengths:
    """How long the documents of a set are, for :class:`fastload.PackingSampler`.

    Attributes:
        tokens: (n,) int64, of each sample's document.
        images: (n,) int64, those of them that are pictures' own, with what frames them.
        pictures: (n,) int64, the pictures of each sample.
    """

    tokens: Ints
    images: Ints
    pictures: Ints

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        """Return ``tokens``, for what takes lengths."""
        return np.array(self.tokens, dtype, copy=True) if copy else np.asarray(self.tokens, dtype)

    def __len__(self) -> int:
        """Return the number of samples."""
        return len(self.tokens)

    def __repr__(self) -> str:
        """Say how many there are, and how long."""
        known = self.tokens[self.tokens < _MOST]
        mean, most = (int(known.mean()), int(known.max())) if len(known) else (0, 0)
        without = f", {len(self) - len(known):,} without a document" * (len(known) < len(self))
        return f"DocumentLengths({len(self):,} samples, mean {mean:,} tokens, longest {most:,}{without})"


@dataclass(frozen=True)
class Counting:
    """How lengths are counted.

    Args:
        chat: makes the documents.
        grids: of the pictures; None: there are none.
        folder: where lengths are kept; None: in the set's.
        threads: that tokenise.
    """

    chat: Counter
    grids: PictureGrids | None
    folder: str | os.PathLike[str] | None
    threads: int


def document_lengths(counting: Counting, dataset: Any, bad: str) -> DocumentLengths:
    """Return the lengths of a dataset's documents.

    Args:
        counting: how they are counted.
        dataset: a packed set, a view of one, or several.
        bad: whether samples of which no document can be made are left out ("skip"), or an error ("raise").
    """
    ids = getattr(dataset, "sample_ids", None)
    parts = [_of_part(counting, part) for part in dataset.parts]
    tokens, images, pictures = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    if ids is not None:
        tokens, images, pictures = tokens[ids], images[ids], pictures[ids]
    without = np.flatnonzero(tokens == _MOST)
    if len(without):
        _tell(counting, dataset, without if ids is None else ids[without], len(tokens), bad)
    return DocumentLengths(tokens, images, pictures)


def _of_part(counting: Counting, part: Any) -> tuple[Ints, Ints, Ints]:
    """Return the tokens of a set's documents, those of their pictures, and the pictures of each sample."""
    count = part.num_ids
    images, pictures = np.zeros(count, np.int64), np.zeros(count, np.int64)
    for begin in range(0, count if counting.grids is not None else 0, _PART):
        samples = np.arange(begin, min(begin + _PART, count), dtype=np.int64)
        # By the index alone: what is kept of texts must not depend on whether the rule takes the pictures.
        pictures[samples] = part.picture_sizes(counting.grids.field, samples)[1]  # type: ignore[union-attr]
        try:
            images[samples] = _of_pictures(counting, part, samples)[0]
        except ValueError:  # one of them is bad
            for sample in samples:
                try:
                    one = samples[sample - begin : sample - begin + 1]
                    images[sample] = _of_pictures(counting, part, one)[0][0]
                except ValueError:
                    images[sample] = -1
    texts = _kept(counting, part, pictures)
    without = (texts < 0) | (images < 0)
    return np.where(without, _MOST, texts + images), np.where(without, 0, images), pictures


def _tell(counting: Counting, dataset: Any, without: Ints, count: int, bad: str) -> None:
    """Warn of samples of which no document can be made; or raise what is wrong with the first."""
    part, own = dataset.locate(int(without[0]))
    sample = np.array([own])
    why = ValueError(f"sample {own} of {part.folder} has no document")
    try:
        pictures = np.zeros(part.num_ids, np.int64)
        if counting.grids is not None:
            pictures[sample] = _of_pictures(counting, part, sample)[1]
        _texts_of(counting, part, sample, pictures)
    except ValueError as error:
        why = error
    if bad == "raise":
        raise why
    warnings.warn(
        f"No document can be made of {len(without):,} of {count:,} samples: "
        f"{', '.join(map(str, without[:_NAMED].tolist()))}{', ...' * (len(without) > _NAMED)}. They are "
        f"longer than any pack, so PackingSampler(long='skip') leaves them out. The first: {why}",
        stacklevel=stacklevel(),
    )


def _of_pictures(counting: Counting, part: Any, samples: Ints) -> tuple[Ints, Ints]:
    """Return the tokens of samples' pictures, and how many pictures each has."""
    assert counting.grids is not None
    _, grids, counts = counting.grids.of(part, samples)
    return _own(counting.chat, grids, counts), counts


def _own(chat: Counter, grids: Ints, counts: Ints) -> Ints:
    """Return the tokens of samples' pictures. Pictures of one grid have as many, so each is asked once."""
    among = np.repeat(counts, counts) == 1  # a sample's only picture may have others (LLaVA-OneVision)
    keys, places = np.unique(np.column_stack([grids, among]), axis=0, return_inverse=True)
    own = [chat.picture_lengths([grid] if one else [grid, grid])[0] for *grid, one in keys.tolist()]
    each = np.asarray(own, np.int64)[places.reshape(-1)]
    sums = np.append(0, np.cumsum(each))
    found: Ints = np.diff(sums[np.append(0, np.cumsum(counts))])
    return found


# ---- Texts, counted once ----------------------------------------------------------------------------


def _kept(counting: Counting, part: Any, pictures: Ints) -> Counts:
    """Return the tokens of texts: those kept by this digest, else counted now, and kept."""
    chat, grids = counting.chat, counting.grids
    words = [chat.digest(), part.id, "" if grids is None else grids.field]
    if not chat.frames.fixed and grids is not None:
        words.append(repr(grids.rule))  # the texts around a picture depend on it
    name = f"{hashlib.sha256(' '.join(words).encode()).hexdigest()[:32]}.npz"
    home = _home(part, counting.folder)
    if home is None:
        return _counted(counting, part, pictures)
    with _alone(home / f"{name}.lock"):
        found = _read(home / name, part.num_ids)
        if found is None:
            found = _counted(counting, part, pictures)
            try:
                _write(home / name, found)
            except OSError as error:  # as of a full disk: what was counted is good all the same
                warnings.warn(
                    f"The lengths of {part.folder} cannot be kept: {error}. They will be counted again. "
                    "Make room, or pass another folder=.",
                    stacklevel=stacklevel(),
                )
    return found


def _home(part: Any, folder: str | os.PathLike[str] | None) -> Path | None:
    """Return the folder in which lengths are kept; None: there is none, which is said once."""
    home = None if folder is None else Path(folder)
    if home is None and part.location is None:
        home = Path(part.folder) / FOLDER
    try:
        if home is not None:
            home.mkdir(parents=True, exist_ok=True)
            if os.access(home, os.W_OK):
                return home
    except OSError:
        if folder is not None:
            raise
    warnings.warn(
        f"Chat.lengths counts the tokens of {part.num_ids:,} samples, and cannot keep them beside the set: "
        f"{home or 'it is in a store'} cannot be written. Pass folder= to count them once.",
        stacklevel=stacklevel(),
    )
    return None


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    """Hold a lock among the processes of a node, so that only one of them counts."""
    with open(path, "a", encoding="ascii") as file:
        with suppress(OSError):  # a file system without locks: each counts
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _read(path: Path, count: int) -> Counts | None:
    """Return lengths that were kept; None: there are none, or the file is damaged, which is said."""
    try:
        with open(path, "rb") as file, np.load(file) as kept:
            found: Counts = kept["texts"]
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        warnings.warn(f"{path} is damaged ({error}): the tokens are counted again.", stacklevel=stacklevel())
        return None
    return found if found.shape == (count,) and found.dtype == np.int32 else None


def _write(path: Path, found: Counts) -> None:
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=".", suffix=".npz")
    try:
        with os.fdopen(handle, "wb") as file:
            np.savez(file, texts=found)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(name, 0o644)
        os.replace(name, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(name)
        raise


def _counted(counting: Counting, part: Any, pictures: Ints) -> Counts:
    """Count the tokens of all texts, in several threads: a tokenizer of Rust runs without the GIL.

    A sample of which no document can be made has -1.
    """
    texts = np.zeros(part.num_ids, np.int32)

    def count(begin: int) -> None:
        samples = np.arange(begin, min(begin + _CHUNK, part.num_ids), dtype=np.int64)
        try:
            texts[samples] = _texts_of(counting, part, samples, pictures)
        except ValueError:  # of one of them
            texts[samples] = -1
            for place, sample in enumerate(samples.tolist()):
                with suppress(ValueError):
                    texts[sample] = _texts_of(counting, part, samples[place : place + 1], pictures)[0]

    with ThreadPoolExecutor(counting.threads) as pool:
        jobs = [pool.submit(count, begin) for begin in range(0, part.num_ids, _CHUNK)]
        try:
            for job in jobs:
                job.result()
        except BaseException:
            for job in jobs:
                job.cancel()
            raise
    return texts


def _texts_of(counting: Counting, part: Any, samples: Ints, pictures: Ints) -> Counts:
    chat, grids = counting.chat, counting.grids
    among: Any = pictures[samples].tolist()
    if not chat.frames.fixed and grids is not None:
        _, found, counts = grids.of(part, samples)
        among = by_sample(found, counts)
    values = [part.value(chat.turns, sample) for sample in samples.tolist()]
    return chat.text_lengths(values, among, samples.tolist())
