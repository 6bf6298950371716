"""The form in which the node cache keeps JPEGs: ``Cache.format``, and the arithmetic of "auto"."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import numpy as np

from fastload._native import _C
from fastload.cache.opening import file_bytes, has_file, planned_bytes
from fastload.cache.settings import CacheSetting
from fastload.cache.tiers import COEFFICIENTS
from fastload.errors import CacheError, FastloadError
from fastload.machine.cpu import find_budget
from fastload.machine.sizes import human_bytes
from fastload.shard.dataset import PackedFiles

ASSUMED_EPOCHS = 10  # a loader does not know how many there will be
_SAMPLES, _FAR_SAMPLES = 8, 2  # measured records; fewer for a set in a store, where each is a request
_ROUNDS = 2  # of which the fastest counts
_CROP = 0.65  # of each side: torchvision's random crops are 42% of a picture on average


@dataclass(frozen=True)
class Facts:
    """The numbers by which "auto" decides.

    Args:
        records: number of records in the sets.
        jpegs: share of the measured records that can become coefficients, in [0, 1].
        jpeg_us, coefficients_us: time of one thread for a crop of 42% of a picture.
        transcode_us: time of one thread for a picture.
        bytes_ratio: size of coefficients relative to the JPEGs.
        need: bytes of memory for all records as coefficients.
        room: those of these bytes that the cache's setting and the memory allow.
        threads: cores that may be used.
        epochs: assumed number of epochs, the first included.
    """

    records: int
    jpegs: float
    jpeg_us: float
    coefficients_us: float
    transcode_us: float
    bytes_ratio: float
    need: int
    room: int
    threads: int
    epochs: int = ASSUMED_EPOCHS


@dataclass(frozen=True)
class Choice:
    """What the cache keeps, and why.

    Args:
        format: "jpeg" or "coefficients".
        reason: one line.
        facts: numbers behind it, by name; empty if nothing was measured.
    """

    format: str
    reason: str
    facts: dict[str, Any]


def decide(facts: Facts) -> Choice:
    """Decide by arithmetic. Transcoding counts in full, as if no core were idle."""
    saved = facts.jpeg_us - facts.coefficients_us
    cost = facts.transcode_us
    if facts.jpegs == 0:
        return Choice("jpeg", "no measured record can become coefficients", asdict(facts))
    pays = 1 + math.ceil(cost / saved) if saved > 0 else None
    sums = (
        f"a crop takes {facts.jpeg_us:.0f} us of a thread from JPEG, {facts.coefficients_us:.0f} from "
        f"coefficients, transcoding {cost:.0f} once"
    )
    if pays is None or pays > facts.epochs:
        when = "never" if pays is None else f"from epoch {pays} on"
        why = f"{sums}: that pays {when}, and {facts.epochs} epochs are assumed"
        return Choice("jpeg", why, {**asdict(facts), "pays_from_epoch": pays})
    numbers = {**asdict(facts), "pays_from_epoch": pays}
    if facts.room < facts.need:
        why = f"coefficients need {human_bytes(facts.need)} of memory, {human_bytes(facts.room)} may be taken"
        return Choice("jpeg", why, numbers)
    count = facts.records * facts.jpegs * 1e-6
    later = (facts.epochs - 1) * count * saved
    why = (
        f"{sums}: that pays from epoch {pays} on; over {facts.epochs} epochs (assumed) it saves "
        f"{later:.0f} s of threads for {count * cost:.0f} s, at worst {count * cost / facts.threads:.0f} s "
        f"of the first epoch on {facts.threads} threads; {human_bytes(facts.need)} of memory"
    )
    return Choice("coefficients", why, numbers)


def choose(wanted: str, datasets: Sequence[PackedFiles], setting: CacheSetting, why_not: str = "") -> Choice:
    """Choose what the cache of some datasets keeps.

    Args:
        wanted: ``Cache.format``.
        datasets: the parts of what is read.
        setting: ``cache``.
        why_not: what rules out coefficients, whatever was requested; "": nothing.
    """
    if wanted == "jpeg":
        return Choice("jpeg", "", {})
    if why_not:
        return Choice("jpeg", why_not, {})
    if wanted == "coefficients":
        return Choice("coefficients", "asked for", {})
    if setting.mode == "off":
        return Choice("jpeg", "there is no cache", {})
    if has_file(datasets, setting, COEFFICIENTS):
        return Choice("coefficients", "they are there already", {})
    need = sum(file_bytes(dataset, COEFFICIENTS) for dataset in datasets)
    try:
        room = planned_bytes(datasets, setting, COEFFICIENTS)
    except CacheError:
        room = 0
    try:
        facts = _measured(datasets, need, min(need, room))
    except FastloadError as error:
        return Choice("jpeg", f"nothing could be measured: {error}", {})
    return decide(facts)


def _measured(datasets: Sequence[PackedFiles], need: int, room: int) -> Facts:
    """Measure some records of the largest set, spread evenly."""
    dataset = max(datasets, key=len)
    count = min(len(dataset), _SAMPLES if dataset.location is None else _FAR_SAMPLES)
    decoder = _C.Decoder()
    times: list[tuple[float, float, float, float]] = []
    for sample in dataset.ids_at(np.linspace(0, len(dataset) - 1, count).astype(np.int64)).tolist():
        record = np.frombuffer(dataset.stored(sample), np.uint8)
        try:
            if _C.sniff(record) != "jpeg":
                continue
            made = np.frombuffer(_C.to_coefficients(record, "fast", "pixels"), np.uint8)
        except FastloadError:
            continue
        crop = _crop(record)
        jpeg = _seconds(_jpeg_decoder(dataset, sample, record, crop, decoder))
        coefficients = _seconds(partial(decoder.decode_rgb, made, crop))
        transcoding = _seconds(partial(_C.to_coefficients, record, "fast", "pixels"))
        times.append((jpeg, coefficients, transcoding, len(made) / len(record)))
    jpeg_s, made_s, cost_s, ratio = np.mean(times or [(0.0, 0.0, 0.0, 0.0)], axis=0).tolist()
    records = sum(map(len, datasets))
    share = len(times) / max(1, count)
    threads = find_budget().threads
    return Facts(records, share, 1e6 * jpeg_s, 1e6 * made_s, 1e6 * cost_s, ratio, need, room, threads)


def _crop(record: Any) -> tuple[int, int, int, int]:
    """Return the middle of the picture: x, y, width, height."""
    _, width, height, _, _ = _C.probe(record)
    across, down = max(1, round(_CROP * width)), max(1, round(_CROP * height))
    return (width - across) // 2, (height - down) // 2, across, down


def _jpeg_decoder(
    dataset: PackedFiles, sample: int, record: Any, crop: tuple[int, int, int, int], decoder: Any
) -> Callable[[], Any]:
    """Return a function that decodes the crop as a loader does: by entry points, if there are any."""
    points = dataset.entries.get(sample) if dataset.entries is not None else b""
    if dataset.entries is None or not points:
        return partial(decoder.decode_rgb, record, crop)
    return partial(_C.jpeg_decode, record, crop, np.frombuffer(points, np.uint8), dataset.entries.spacing)


def _seconds(work: Callable[[], Any]) -> float:
    """Return the shortest time, in seconds of this thread."""
    best = math.inf
    for _ in range(_ROUNDS):
        began = time.thread_time()
        work()
        best = min(best, time.thread_time() - began)
    return best
