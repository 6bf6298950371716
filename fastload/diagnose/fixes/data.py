"""Fixes for the data: another packing or tier of the set, fewer reads, decoded pictures in memory."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from fastload._native import _C
from fastload.backends.values import Cache
from fastload.cache.settings import CacheSetting
from fastload.diagnose.examination import Examination, digits
from fastload.diagnose.facts import Fix
from fastload.diagnose.storage import RangeReader
from fastload.diagnose.trial import LoaderUnderTest, LocalCopy, can_be_replicated, in_turns
from fastload.machine.memory import available_memory
from fastload.packing.from_python import pack
from fastload.shard.codecs import JPEG, PROGRESSIVE

if TYPE_CHECKING:
    from fastload.dataset.packed import PackedDataset


# ---- Packing a sample of the set --------------------------------------------------------------------


def pack_sample(folder: Path, subject: Any, ids: npt.NDArray[np.int64], **options: Any) -> PackedDataset[Any]:
    """Pack these samples with options of :func:`fastload.pack`."""
    from fastload.dataset.packed import PackedDataset

    schema, form = subject.parts[0].schema, subject.parts[0].manifest.options.get("coefficients")
    if form is not None and not options.get("raw") and not options.get("baseline"):
        options = {"coefficients": form, **options}  # the set's own form, except for what is tried
    pack(_samples_of_set(subject, ids, schema.names), folder, schema, on_error="skip", **options)
    return PackedDataset(folder)


def _samples_of_set(subject: Any, ids: npt.NDArray[np.int64], names: Any) -> Iterator[dict[str, Any]]:
    for sample in ids.tolist():
        part, number = subject.dataset.locate(sample)
        yield {name: part.value(name, number) for name in names}


# ---- Packing options --------------------------------------------------------------------------------

_LARGER = 1.25  # a side this many times as long as needed is worth scaling
_SHARE_OF_DECODING = 0.25  # share of the pictures, or of their pixels, that an option must concern
_SECONDS = 2.0  # one thread's time for the sample
_LEAST, _MOST = 32, 256  # pictures in the sample


def repacked(case: Examination) -> Iterator[Fix]:
    """Try ``--max-side``, ``--baseline`` and entry points, as far as the pictures call for them."""
    subject = case.subject
    seconds = max(1e-4, case.base.seconds)
    ids = subject.ids[: int(min(_MOST, max(_LEAST, _SECONDS / seconds)))]
    records = _records(subject, ids)
    tried = _candidates(subject, records)
    if not tried or not case.budget.allows(4 + 5 * len(tried), "packing with other options"):
        return
    packs = {name: pack_sample(case.folder / name, subject, ids, **options) for name, _, options, _ in tried}
    makers: dict[str, Any] = {"now": lambda: subject.make(ids=ids)}
    for name, packed in packs.items():
        places = np.arange(len(packed), dtype=np.int64)
        makers[name] = partial(subject.make, dataset=packed, ids=places)
    trials = in_turns(makers, subject.trial_batch, case.budget.run, step=case.step)
    now, before = trials["now"], float(records["length"].mean())
    for name, words, _, price in tried:
        trial, after = trials[name], packs[name].manifest.data_bytes / len(packs[name])
        evidence = (
            f"{len(ids)} of the pictures, packed this way into a temporary folder: {digits(trial.rate)} "
            f"images/s, and {digits(now.rate)} as they are, in turns; {after / 1000:.0f} KB per record "
            f"instead of {before / 1000:.0f}."
        )
        stored = case.storage_rate * before / max(1.0, after)
        yield case.fix(name, words, trial, evidence, price, now, stored)


def sensible_side(subject: Any) -> int | None:
    """Return the longer side to which pictures may be scaled for this transform; None: it depends on each."""
    sizes = [view.output_size for view in subject.plan.every]
    if any(size is None for size in sizes):
        return None
    longest = max(max(size) for size in sizes)
    return int(-(-2.2 * longest // 64) * 64)


def _records(subject: Any, ids: npt.NDArray[np.int64]) -> npt.NDArray[np.void]:
    located = [subject.dataset.locate(int(sample)) for sample in ids]
    return np.array([part.record(number) for part, number in located])


def _candidates(subject: Any, records: npt.NDArray[np.void]) -> list[tuple[str, str, Mapping[str, Any], str]]:
    """Return what is worth trying: name, instruction, options and price of each."""
    where = subject.parts[0].where
    jpegs = records["codec"] == JPEG
    progressive = jpegs & ((records["flags"] & PROGRESSIVE) != 0)
    side = sensible_side(subject)
    candidates: list[tuple[str, str, Mapping[str, Any], str]] = []
    longer = np.maximum(records["width"], records["height"])
    pixels = records["width"].astype(np.float64) * records["height"]
    share = pixels[longer > _LARGER * side].sum() / max(1.0, pixels.sum()) if side is not None else 0.0
    if share >= _SHARE_OF_DECODING:
        price = "pixels change: pictures are scaled and encoded again"
        candidates.append(("max-side", f"`pack --max-side {side}`", {"max_side": side}, price))
    if np.mean(progressive) >= _SHARE_OF_DECODING:
        price = "one lossless pass, and a few more bytes"
        candidates.append(("baseline", "`pack --baseline`", {"baseline": True}, price))
    bare = not subject.in_store and any(part.entries is None for part in subject.parts)
    if bare and side is not None and np.mean(jpegs & ~progressive) >= _SHARE_OF_DECODING:
        words, price = f"`fastload index {where} --entries`", "2% more bytes on disk"
        candidates.append(("entry-points", words, {}, price))
    return candidates


# ---- Block shuffle and caches in memory -------------------------------------------------------------

_SHARE = 0.5  # share of the available memory that a proposed cache may use
_FILLING = 2.0  # seconds for decoding the sample of pictures to keep


def amount(count: float) -> str:
    """Write a number of bytes with its unit."""
    for unit, name in ((1e9, "GB"), (1e6, "MB")):
        if count >= unit:
            return f"{count / unit:.3g} {name}"
    return f"{count / 1e3:.0f} KB"


def _size(count: float) -> str:
    """Write a number of bytes as an argument."""
    return amount(count).replace(" ", "")


def spelled(setting: CacheSetting, **changes: Any) -> str:
    """Write the argument ``cache`` as it can be typed, with some parts of the value changed."""
    share, disk = setting.share, setting.disk
    limit = None if setting.limit is None else f"{setting.limit}B"
    parts = {
        "size": limit if share is None else f"{share * 100:g}%",
        "folder": None if setting.root is None else str(setting.root),
        "decoded": setting.decoded,
        "disk": None if disk is None else f"{disk.root}:{disk.limit}B",
        "format": setting.format,
    }
    cache = Cache(**parts | changes)  # type: ignore[arg-type]
    for name in ("size", "disk"):  # of which the text alone is enough
        text = getattr(cache, name)
        if text is not None and cache == Cache(**{name: text}):
            return f'cache="{text}"'
    return f"cache=fastload.{cache!r}"


def in_blocks(case: Examination) -> Iterator[Fix]:
    """Predict ``shuffle="block"`` from how fast storage is in order."""
    storage = case.storage
    if storage is None or case.cold <= 0 or case.subject.arguments.shuffle is not True:
        return
    base = case.base
    yield case.fix(
        "block",
        'shuffle="block"',
        base,
        f"Storage gave {digits(storage.random)} records/s at random and {digits(storage.orderly)} in order. "
        f"{storage.evidence}.",
        "another order: `fastload plan --shuffle block` says how well it mixes",
        storage_rate=storage.orderly / case.cold,
    )


def from_memory(case: Examination) -> Iterator[Fix]:
    """Predict a cache in the node's memory for what comes from storage in each epoch."""
    subject, base = case.subject, case.base
    cache = subject.options.cache
    if case.storage is None or case.cold <= 0 or cache.mode == "on" or cache.disk is not None:
        return
    room = min(1.0, _SHARE * available_memory() / max(1, subject.data_bytes))
    if room < 0.1:
        return
    words = spelled(cache, size="50%" if room < 1 else _size(1.1 * subject.data_bytes))
    left = case.cold * (1 - room)
    yield case.fix(
        "memory-cache",
        words,
        base,
        f"The loader delivered {digits(base.rate)} images/s from records in memory; {room:.0%} of the set "
        "fits there. This applies from the second epoch on.",
        f"{amount(min(subject.data_bytes, room * subject.data_bytes))} of memory",
        storage_rate=case.storage.random / left if left > 0 else float("inf"),
    )


def warmed(case: Examination) -> Iterator[Fix]:
    """Predict ``fastload warm`` for the first epoch of a set that then stays in memory."""
    storage, subject, base = case.storage, case.subject, case.base
    if storage is None or not subject.fits_memory or case.cold <= 0:
        return
    seconds = subject.data_bytes / max(1.0, storage.orderly * subject.record_bytes)
    yield case.fix(
        "warm",
        f"`fastload warm {subject.parts[0].where}` before the job",
        base,
        f"The loader delivered {digits(base.rate)} images/s from records in memory; reading all "
        f"{amount(subject.data_bytes)} in order takes about {seconds:.0f} s.",
        f"{amount(subject.data_bytes)} of memory",
        storage_rate=float("inf"),
    )


def decoded_cache(case: Examination) -> Iterator[Fix]:
    """Try decoded pictures in memory, if the whole set fits."""
    subject, side = case.subject, sensible_side(case.subject)
    cache = subject.options.cache
    if side is None or cache.decoded is not None or subject.options.dali is not None:
        return
    if not all(part.is_plain for part in subject.parts):
        return
    need = _decoded_bytes(subject, side)
    if need > _SHARE * available_memory() or not case.budget.allows(10, "decoded pictures in memory"):
        return
    ids = subject.ids[: int(max(32, _FILLING * case.base.rate))]
    setting = CacheSetting("on", limit=max(1 << 24, 2 * need), root=case.memory_folder, decoded=side)

    def cached() -> object:
        loader = subject.make(ids=ids, cache=setting)
        for number, _ in enumerate(loader):
            if number * subject.trial_batch > len(ids):
                break
        return loader

    makers = {"now": lambda: subject.make(ids=ids), "cached": cached}
    trials = in_turns(makers, subject.trial_batch, case.budget.run, step=case.step)
    now, then = trials["now"], trials["cached"]
    yield case.fix(
        "decoded-cache",
        spelled(cache, size=_size(1.1 * need), decoded=side, format="jpeg"),
        then,
        f"{len(ids)} pictures kept decoded in memory gave {digits(then.rate)} images/s, decoded each time "
        f"{digits(now.rate)}, in turns. This applies from the second epoch on.",
        f"{amount(need)} of memory; pictures are scaled to {side} pixels before the crop",
        now,
        float("inf"),
    )


def _decoded_bytes(subject: LoaderUnderTest, side: int) -> int:
    """Return the bytes of the whole set, decoded."""
    total = 0
    for part in subject.parts:
        records = part.records
        width, height = (records[name].astype(np.uint32) for name in ("width", "height"))
        total += int(3 * np.prod(_C.bounded_sizes(width, height, side).astype(np.int64), axis=1).sum())
    return total


# ---- A tier on a local disk -------------------------------------------------------------------------

_LEFT = 0.9  # share of a disk's free bytes that a proposed tier may use
_LEAST_FAR = 0.1  # share of the set that must fit there
_SAMPLE = 64 << 20  # bytes written to measure the disk
_WRITING = 2.0  # seconds


def on_local_disk(case: Examination) -> Iterator[Fix]:
    """Predict a tier on the temporary folder's disk for a remote set that does not fit in memory."""
    storage, subject = case.storage, case.subject
    if storage is None or not storage.remote or case.cold <= 0 or subject.fits_memory:
        return
    if subject.options.cache.disk is not None or not can_be_replicated(subject.dataset):
        return
    kind = _C.file_system(str(case.folder))
    if kind["in_memory"] or kind["remote"]:
        return
    room = min(1.0, _LEFT * _free(case.folder) / max(1, subject.data_bytes))
    if room < _LEAST_FAR or not case.budget.allows(2 + _WRITING / case.budget.run, "a tier on disk"):
        return
    rate = _disk_rate(case)
    seconds = case.cold * ((1 - room) / storage.random + room / rate)
    yield case.fix(
        "disk-tier",
        spelled(subject.options.cache, disk=f"/LOCAL_DISK/FOLDER:{_size(room * subject.data_bytes)}"),
        case.base,
        f"The disk of {case.folder.parent} gave {digits(rate)} of the set's records per second at random "
        f"(written there, and dropped from memory); {room:.0%} of the set fits on it. This applies from the "
        "second epoch on, and to this disk only.",
        f"{amount(room * subject.data_bytes)} of disk",
        storage_rate=1 / seconds,
    )


def _free(folder: Path) -> int:
    status = os.statvfs(folder)
    return status.f_bavail * status.f_frsize


def _disk_rate(case: Examination) -> float:
    """Write records to the disk, drop their pages, and return the records per second of cold reads."""
    subject = case.subject
    replica = LocalCopy(subject.dataset, case.folder / "tier")
    ids = replica.fill(subject.ids, _WRITING, min(_SAMPLE, _free(case.folder) // 4))
    replica.sync()
    ranges = [replica.place(sample) for sample in ids.tolist()]
    with RangeReader() as reader:
        rate = reader.rate(ranges, case.budget.run)
    return max(1.0, rate * len(ranges) / sum(length for _, _, length in ranges))
