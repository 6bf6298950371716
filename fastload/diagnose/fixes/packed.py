"""The same pictures, packed otherwise: smaller, baseline, with entry points. Tried on a sample of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from fastload.diagnose.case import Case, shown
from fastload.diagnose.facts import Fix
from fastload.diagnose.fixes.sample_pack import pack_sample
from fastload.diagnose.trial import in_turns
from fastload.shard.codecs import JPEG, PROGRESSIVE

__all__ = ["repacked", "sensible_side"]

_LARGER = 1.25  # a side so much longer than it need be is worth scaling
_SHARE = 0.25  # of the pictures, or of their pixels, of which something must hold to be tried
_SECONDS = 2.0  # of one thread's time for the sample
_LEAST, _MOST = 32, 256  # pictures of it


def repacked(case: Case) -> Iterator[Fix]:
    """``--max-side``, ``--baseline`` and entry points, as far as the pictures call for them."""
    subject = case.subject
    seconds = max(1e-4, case.base.seconds)
    ids = subject.ids[: int(min(_MOST, max(_LEAST, _SECONDS / seconds)))]
    records = _records(subject, ids)
    tried = _candidates(subject, records)
    if not tried or not case.budget.allows(4 + 5 * len(tried), "packing otherwise"):
        return
    packs = {name: pack_sample(case.folder / name, subject, ids, **options) for name, _, options, _ in tried}
    makers: dict[str, Any] = {"now": lambda: subject.make(ids=ids)}
    for name, pack in packs.items():
        places = np.arange(len(pack), dtype=np.int64)
        makers[name] = partial(subject.make, dataset=pack, ids=places)
    found = in_turns(makers, subject.trial_batch, case.budget.run, step=case.step)
    before = float(records["length"].mean())
    for name, words, _, price in tried:
        trial, after = found[name], packs[name].manifest.data_bytes / len(packs[name])
        evidence = (
            f"{len(ids)} of the pictures, packed so in a temporary folder: {shown(trial.rate)} images/s, and "
            f"{shown(found['now'].rate)} as they are, in turns; {after / 1000:.0f} KB a record instead of "
            f"{before / 1000:.0f}."
        )
        stored = case.storage_rate * before / max(1.0, after)
        yield case.fix(name, words, trial, evidence, price, found["now"], stored)


def sensible_side(subject: Any) -> int | None:
    """The longer side that pictures may be scaled to for this transform; None: it depends on the picture."""
    sizes = [view.output_size for view in subject.plan.every]
    if any(size is None for size in sizes):
        return None
    longest = max(max(size) for size in sizes)
    return int(-(-2.2 * longest // 64) * 64)


def _records(subject: Any, ids: npt.NDArray[np.int64]) -> npt.NDArray[np.void]:
    located = [subject.dataset.locate(int(sample)) for sample in ids]
    return np.array([part.record(number) for part, number in located])


def _candidates(subject: Any, records: npt.NDArray[np.void]) -> list[tuple[str, str, Mapping[str, Any], str]]:
    """What is worth trying: its name, the instruction, the options and the price."""
    where = subject.parts[0].where
    jpegs = records["codec"] == JPEG
    progressive = jpegs & ((records["flags"] & PROGRESSIVE) != 0)
    side = sensible_side(subject)
    found: list[tuple[str, str, Mapping[str, Any], str]] = []
    longer = np.maximum(records["width"], records["height"])
    pixels = records["width"].astype(np.float64) * records["height"]
    share = pixels[longer > _LARGER * side].sum() / max(1.0, pixels.sum()) if side is not None else 0.0
    if share >= _SHARE:
        price = "pixels change: pictures are scaled and encoded again"
        found.append(("max-side", f"`pack --max-side {side}`", {"max_side": side}, price))
    if np.mean(progressive) >= _SHARE:
        price = "one lossless pass, and some bytes more"
        found.append(("baseline", "`pack --baseline`", {"baseline": True}, price))
    bare = not subject.in_store and any(part.entries is None for part in subject.parts)
    if bare and side is not None and np.mean(jpegs & ~progressive) >= _SHARE:
        words, price = f"`fastload index {where} --entries`", "2% more bytes on disk"
        found.append(("entry-points", words, {}, price))
    return found
