"""Fixes for torch loaders: workers, passes, pictures, the line that takes the time, batches, and fastload."""

from __future__ import annotations

import io
import math
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import fastload
from fastload.dataset.packed import PackedDataset
from fastload.diagnose.attribution import Attribution, Place
from fastload.diagnose.causes import CHUNKED, MOST_STEPS, PART, SEQUENTIAL, STARTS, Evidence
from fastload.diagnose.examination import Examined, digits, together
from fastload.diagnose.facts import Fix, Loop
from fastload.diagnose.fixes.loader import MACHINE
from fastload.diagnose.fixes.processors import known_processor, picture_seconds
from fastload.diagnose.fixes.step import of_the_step, pinned
from fastload.diagnose.torch_loader import Files, TorchLoaderUnderTest
from fastload.diagnose.trial import FixedOrder, Trial, in_turns


@dataclass
class TorchExamination(Examined):
    """The examination of a torch loader.

    Args:
        subject: the loader.
        evidence: what was seen, without what was tried.
        attribution: where the time went.
    """

    subject: TorchLoaderUnderTest
    evidence: Evidence
    attribution: Attribution

    @property
    def now(self) -> float:
        """Samples per second of the loop as it is, with the starts of its passes."""
        return whole_rate(self.loop) if self.loop is not None else self.whole(self.base)

    @property
    def blocked(self) -> float:
        """See :class:`~fastload.diagnose.examination.Examined`."""
        return min(1.0, self.evidence.blocked + self.evidence.share("lock"))

    def lighter(self, share: float) -> Trial:
        """Return the loader's run, computed, if ``share`` of the time that samples take were gone."""
        left = max(1 - share, _LEAST_LEFT)
        base = self.base
        return Trial(base.rate / left, base.cpu * left, threads=base.threads, serial=base.serial * left)

    def gain_of(self, trial: Trial) -> float:
        """Return the loop's gain with another run of the loader."""
        return self.whole(trial) / self.whole(self.base) - 1


def whole_rate(loop: Loop) -> float:
    """Return a loop's samples per second, with the starts of its passes."""
    batches, seconds = loop.notes.get("all_batches"), loop.notes.get("all_seconds")
    if isinstance(batches, int) and isinstance(seconds, float) and seconds > 0:
        return loop.batch_size * batches / seconds
    return loop.rate


_LEAST_LEFT = 0.012  # share of a sample's time that nothing takes away

# ---- Workers and passes -----------------------------------------------------------------------------

_ROUNDS = 3
_BATCHES = 5  # of a worker, that a run takes at least ...
_QUEUE = 0.4  # ... and the part of their time that filling the queue takes
_MOST_WORKERS = 8  # a CPU, for samples that wait
_SHARE_BLOCKED = 0.2  # of a sample's time; with less, more workers than CPUs do not help
SHORT = 3.0  # seconds of a pass that is tried as a whole
_PASSES = 2.2  # passes of a run


def more_workers(case: TorchExamination) -> Iterator[Fix]:
    """Try one worker per CPU; more, if samples wait for something other than CPUs."""
    subject, cpus = case.subject, max(1, int(case.cpus))
    blocked = case.evidence.blocked
    # Each worker is at work for 1 - blocked of its time.
    waiting = math.ceil(cpus / max(1 - blocked, 1 / _MOST_WORKERS)) if blocked > _SHARE_BLOCKED else cpus
    tried = sorted({count for count in (cpus, waiting) if count > subject.workers}, reverse=True)
    for wanted in tried:
        if _allows(case, f"num_workers={wanted}"):
            yield _workers(case, wanted, "workers")


def fewer_workers(case: TorchExamination) -> Iterator[Fix]:
    """Try one worker per CPU, if there are more and samples do not wait."""
    subject, cpus = case.subject, max(1, int(case.cpus))
    if subject.workers <= cpus or case.evidence.blocked > _SHARE_BLOCKED:
        return
    if _allows(case, f"num_workers={cpus}"):
        yield _workers(case, cpus, "fewer-workers")


def _allows(case: TorchExamination, name: str, run: float = 0.0) -> bool:
    """Whether there is time for two loaders in turns; slow batches take longer than a run's time."""
    rate = max(case.base.rate, 1e-6) / max(case.subject.workers, 1)  # of one process
    slow = _BATCHES * case.subject.trial_batch / rate
    each = max(run, case.budget.run, slow) + _QUEUE * slow
    rounds = _ROUNDS + 2 if case.step is not None else _ROUNDS
    return case.budget.allows(2 * rounds * each / case.budget.run, name)


def _workers(case: TorchExamination, wanted: int, name: str) -> Fix:
    subject = case.subject
    makers = {"now": subject.make, "then": lambda: subject.make(num_workers=wanted)}
    trials = in_turns(makers, subject.trial_batch, case.budget.run, _ROUNDS, case.step)
    now, then = trials["now"], trials["then"]
    return case.fix(
        name,
        f"num_workers={wanted}" + (", persistent_workers=True" if not subject.workers else ""),
        then,
        f"num_workers={subject.workers} gave {digits(now.rate)} samples/s and num_workers={wanted} "
        f"{digits(then.rate)}, in turns, without a step.",
        "memory of the processes" if wanted > subject.workers else "",
        now,
    )


def kept_workers(case: TorchExamination) -> Iterator[Fix]:
    """Try ``persistent_workers=True`` in whole passes if they are short; else compute what it saves."""
    subject, e = case.subject, case.evidence
    if not subject.workers or subject.of("persistent_workers"):
        return
    lost, words = e.starting + e.first, "persistent_workers=True"
    seconds = _pass_seconds(case)
    run = max(case.budget.run, _PASSES * seconds)
    if 0 < seconds <= SHORT and _allows(case, words, run):
        makers = {
            "now": lambda: subject.make(persistent_workers=False),
            "kept": lambda: subject.make(persistent_workers=True),
        }
        trials = in_turns(makers, subject.trial_batch, run, _ROUNDS, case.step)
        now, kept = trials["now"], trials["kept"]
        evidence = (
            f"Whole passes of {seconds:.2g} s: {digits(now.rate)} samples/s, and {digits(kept.rate)} kept."
        )
        yield case.fix("persistent-workers", words, kept, evidence, "memory between passes", now)
    elif lost >= STARTS / 4:
        least, most = share_left(e.starting), share_left(lost)  # first batches also take their samples' time
        gain = share_left(e.starting + e.first / 4)
        evidence = (
            f"Computed: starting workers anew takes {e.starting:.0%} of the loop's time, first batches "
        )
        evidence += f"{e.first:.0%}."
        yield case.predicted("persistent-workers", words, gain, evidence, within=(least, most))


def longer_passes(case: TorchExamination) -> Iterator[Fix]:
    """Compute what longer passes gain, if workers are kept and queues run empty between passes."""
    first = case.evidence.first
    if not case.evidence.persistent or first < STARTS / 2:
        return
    gain = share_left(first)
    evidence = f"Computed: waits for first batches take {first:.0%} of the loop's time."
    words = "Longer epochs (a sampler that repeats the dataset, such as fastload.RepeatedSampler)"
    yield case.predicted("longer-epochs", words, gain, evidence, within=(gain / 2, 1.5 * gain))


def _pass_seconds(case: TorchExamination) -> float:
    """Return the seconds of a whole pass; 0: not known."""
    return case.subject.pass_samples / case.now if case.now > 0 else 0.0


# ---- Pictures ---------------------------------------------------------------------------------------

_PICTURES = 10
_PICTURE_SECONDS = 2.0
_SIDES = 2  # times the side of the pictures in a batch, for random crops
_QUALITY = 90


def smaller_pictures(case: TorchExamination) -> Iterator[Fix]:
    """Time smaller copies and draft decoding of the pictures that the loop has decoded."""
    e = case.evidence
    if not e.is_large or e.share("decode") < PART:
        return
    side = _SIDES * (e.batch_side or 224)
    files = [Path(name) for *_, name in case.attribution.pictures if name and Path(name).is_file()]
    if not files:
        listed = case.subject.files()
        files = [Path(path) for path in listed.paths[:_PICTURES]] if listed is not None else []
    has_time = case.budget.left > _PICTURE_SECONDS
    timed = _decoding(files[:_PICTURES], side) if files and has_time else None
    area = (side / e.picture_side) ** 2
    small, draft = (timed[1] / timed[0], timed[2] / timed[0]) if timed else (area, min(1.0, 0.25 + area))
    how = (
        f"{len(files[:_PICTURES])} of the loop's files, decoded by Pillow" if timed else "Computed from areas"
    )
    for name, words, left, price in (
        (
            "max-side",
            f"Pictures of at most {side} pixels (`fastload pack --max-side {side}`)",
            small,
            "resolution",
        ),
        ("draft", f"Image.draft('RGB', ({side}, {side})) before decoding", draft, "exact pixels"),
    ):
        low = case.gain_of(case.lighter(e.share("decode") * (1 - left)))
        high = case.gain_of(case.lighter(_most(e.share("decode", "transform") * (1 - left))))
        evidence = f"{how}: {left:.0%} of the time. Transforms of smaller pictures are faster, too."
        yield case.predicted(name, words, (low + high) / 2, evidence, price, (low, high))


def _decoding(files: list[Path], side: int) -> tuple[float, float, float] | None:
    """Time decoding of files as they are, of smaller copies, and by drafts; None: without Pillow."""
    Image: Any = sys.modules.get("PIL.Image")
    if Image is None:
        return None
    total = np.zeros(3)
    end = time.perf_counter() + _PICTURE_SECONDS
    for file in files:
        raw = file.read_bytes()
        try:
            with Image.open(io.BytesIO(raw)) as picture:
                small = picture.convert("RGB")
        except OSError:
            continue
        small.thumbnail((side, side))
        copy = io.BytesIO()
        small.save(copy, "JPEG", quality=_QUALITY)
        for at, (data, drafted) in enumerate(((raw, False), (copy.getvalue(), False), (raw, True))):
            began = time.thread_time()
            with Image.open(io.BytesIO(data)) as picture:
                if drafted:
                    picture.draft("RGB", (side, side))
                picture.convert("RGB")
            total[at] += time.thread_time() - began
        if time.perf_counter() > end:
            break
    full, copied, draft = (float(value) for value in total)
    return (full, copied, draft) if full > 0 else None


# ---- The line ---------------------------------------------------------------------------------------

_LINES = (
    "decode",
    "video",
    "lock",
    "processor",
    "reading",
    "python",
    "transform",
    "collate",
    "shared-memory",
    "pickling",
    "sleep",
)
_LESS, _MORE, _WHOLE, _UNSURE = 0.4, 0.8, 0.98, 0.03
_WORDS = {
    "lock": "Without the lock at {}, such as a handle for each worker",
    "processor": "A faster processor at {}",
    "reading": "Faster reading at {}: another format, shards, memory",
    "sleep": "Without the wait at {}",
    "python": "{} done once, before training, or vectorised",
    "transform": "A faster transform at {}, or none",
    "video": "Frames that are decoded once, when a set is packed, in place of {}",
    "decode": "Smaller or decoded copies, or a faster decoder, at {}",
    "collate": "A faster collate function at {}",
    "shared-memory": "Smaller tensors from the workers (uint8, crops)",
    "pickling": "Tensors in place of objects that are pickled",
}


def faster_line(case: TorchExamination) -> Iterator[Fix]:
    """Compute the range of what the lines with the greatest shares would give: 0.4 to all of their time."""
    said = 0
    for kind in sorted(_LINES, key=lambda kind: -case.evidence.share(kind)):
        share, place = case.evidence.share(kind), case.evidence.place.get(kind)
        if share < PART or place is None or said == 2:
            continue
        said += 1
        yield _line(case, kind, share, place)


def _line(case: TorchExamination, kind: str, share: float, place: Place) -> Fix:
    low = case.gain_of(case.lighter(_LESS * share))
    most = _most(share)
    if kind == "reading" and case.evidence.library(kind) in (*CHUNKED, *SEQUENTIAL):
        most = max(most, _WHOLE)  # whole chunks at a time leave nothing of a sample's own way
    high = case.gain_of(_freed(case, share) if kind in ("lock", "sleep") else case.lighter(most))
    evidence = (
        f"Computed: {share:.0%} of the time that samples take is {kind}, {place.share:.0%} at this line."
    )
    words = _WORDS[kind].format(place)
    if kind == "pickling":  # the step's work on objects changes, too, so it sets no limit
        low, high = share_left(_LESS * share), share_left(_most(min(share, _WHOLE)))
        gain = share_left(share / 2)
        return Fix("line-pickling", words, case.now * (1 + gain), gain, evidence, "", low, high)
    return case.predicted(f"line-{kind}", words, (low + high) / 2, evidence, within=(low, high))


def _most(share: float) -> float:
    """Return the share that goes at most.

    What is rewritten often saves a little of the rest, too, and a profile knows shares to within 3%.
    """
    return 1 - max(_MORE * (1 - share) - _UNSURE, _LEAST_LEFT)


_USUAL = (640, 480)  # pixels of a picture whose size is not known


def by_vision(case: TorchExamination) -> Iterator[Fix]:
    """Compute what fastload's threads would give in place of a processor of transformers that they can do."""
    share, place = case.evidence.share("processor"), case.evidence.place.get("processor")
    found = known_processor(case.subject.of("collate_fn"), case.subject.dataset)
    if share < PART or place is None or found is None:
        return
    name, processor = found
    sizes = case.attribution.pictures
    _, width, height, _ = max(sizes, key=lambda one: sizes[one]) if sizes else ("", *_USUAL, "")
    try:
        theirs, ours = picture_seconds(processor, width, height)
    except Exception:  # the user's processor may not take a picture alone
        return
    saved = share * max(0.0, 1 - ours / max(theirs, 1e-9))
    low, high = (case.gain_of(case.lighter(less)) for less in (_MORE * saved, _most(saved)))
    yield case.predicted(
        "vision",
        f'`fastload.DataLoader("SET", batch_size={case.subject.batch_size}, '
        f"transform=fastload.Vision({name}))` in place of {place}, with the pictures packed as SET",
        case.gain_of(case.lighter(saved)),
        f"Computed: {share:.0%} of the time that samples take is processor. A picture of {width} x {height} "
        f"pixels took it {1000 * theirs:.3g} ms of CPU time, and fastload {1000 * ours:.3g} ms, decoding "
        f"included.",
        "a second copy of the pictures on disk",
        (low, high),
    )


def by_windows(case: TorchExamination) -> Iterator[Fix]:
    """Compute what a packed copy would give in place of a LeRobotDataset that decodes video."""
    e, dataset = case.evidence, case.subject.dataset
    while hasattr(dataset, "dataset") and hasattr(dataset, "indices"):
        dataset = dataset.dataset
    place, info = e.place.get("video"), getattr(getattr(dataset, "meta", None), "info", None)
    if e.share("video") < PART or place is None or "codebase_version" not in (info or ()):
        return
    fields = ""
    if getattr(dataset, "delta_timestamps", None):
        fields = ", fields=fastload.Fields(windows=dataset.delta_timestamps)"
    taken = e.share("video", "reading", "python", "transform", "collate", "shared-memory")
    low, high = (case.gain_of(case.lighter(less)) for less in (_MORE * e.share("video"), _most(taken)))
    yield case.predicted(
        "windows",
        f'`fastload pack {getattr(dataset, "root", "SET")} OUT --as lerobot` and `fastload.DataLoader("OUT", '
        f"batch_size={case.subject.batch_size}, shuffle=True{fields})` in place of {place}",
        (low + high) / 2,
        f"Computed: {e.share('video'):.0%} of the time that samples take is video, and {taken:.0%} is work "
        f"that fastload's threads do or that is not needed then.",
        "frames on disk, which are larger than the video",
        (low, high),
    )


def _freed(case: TorchExamination, share: float) -> Trial:
    """Return the loader's run without waits that are not work: the CPUs then limit it."""
    base = case.base
    rate = case.cpus / base.cpu if base.cpu > 0 else base.rate / max(1 - share, _LEAST_LEFT)
    serial = base.serial * max(1 - share, _LEAST_LEFT)
    return Trial(max(rate, base.rate), base.cpu, threads=base.threads, serial=serial)


def less_in_step(case: TorchExamination) -> Iterator[Fix]:
    """Compute what the loop gains without synchronising, logging and copying in each step."""
    for kind, words in (
        ("logging", "Logging and saving at {} every hundredth step"),
        ("sync", "Synchronising at {} every hundredth step"),
    ):
        share, place = case.evidence.of_loop(kind), case.evidence.step_place.get(kind)
        most = max(share, _of_function(case, kind))
        if share < PART / 2 or place is None or case.step is None:
            continue
        low, high = (share_left(_LESS * share), share_left(_most(most)))
        gain = share_left(share)
        evidence = f"Computed: {share:.0%} of the loop's time is there."
        rate = case.now * (1 + gain)
        yield Fix(f"line-{kind}", words.format(place), rate, gain, evidence, "", low, high)


def share_left(share: float) -> float:
    """Return the gain of a loop that is rid of a share of its time."""
    return 1 / max(1 - share, _LEAST_LEFT) - 1


def _of_function(case: TorchExamination, kind: str) -> float:
    """Return the share of the whole function that has the line, if the model is not called there."""
    place = case.evidence.step_place.get(kind)
    if place is None:
        return 0.0
    steps = case.attribution.steps
    inside = [one for one in steps if _function(one) == _function(place)]
    trains = any("backward" in one.spot.text or one.spot.call.startswith("torch.nn.") for one in inside)
    return 0.0 if trains else sum(one.share for one in inside)


def _function(place: Place) -> tuple[str, str]:
    return place.spot.file, place.spot.function


# ---- Collate function, batches, fastload ------------------------------------------------------------


def without_collate(case: TorchExamination) -> Iterator[Fix]:
    """Try the loader without the user's collate function, if that is slow."""
    collate, share = case.subject.of("collate_fn"), case.evidence.share("collate")
    own = collate is not None and not getattr(collate, "__module__", "").startswith("torch.")
    if not own or share < PART:
        return
    name = getattr(collate, "__qualname__", type(collate).__qualname__)
    words = f"Without the collate_fn {name}"
    if not _allows(case, "without the collate_fn"):
        return
    makers: dict[str, Any] = {"now": case.subject.make, "without": lambda: case.subject.make(collate_fn=None)}
    try:
        trials = in_turns(makers, case.subject.trial_batch, case.budget.run, _ROUNDS, case.step)
    except Exception:  # torch's default_collate may not accept these samples
        return
    now, then = trials["now"], trials["without"]
    evidence = f"{digits(now.rate)} samples/s with it, {digits(then.rate)} without, in turns."
    yield case.fix("collate_fn", words, then, evidence, "its work has to be done elsewhere", now)


_TIMES = 4
_FIXED = 0.25  # share of a step that does not depend on its samples; with less, larger batches gain little


def larger_batches(case: TorchExamination) -> Iterator[Fix]:
    """Try batches four times as large, if the step was tried on such batches."""
    subject, loop = case.subject, case.loop
    larger = loop.notes.get("larger_step_rate") if loop is not None else None
    fixed = case.evidence.fixed
    if not isinstance(larger, float) or case.step is None or subject.is_stream or (fixed or 0.0) < _FIXED:
        return
    if case.evidence.wait > MOST_STEPS or not _allows(case, f"batch_size={_TIMES * subject.batch_size}"):
        return
    size = subject.batch_size
    makers = {
        "now": lambda: subject.make(batch_size=size),
        "more": lambda: subject.make(batch_size=_TIMES * size),
    }
    trials = in_turns(makers, size, case.budget.run, _ROUNDS)
    now, more = trials["now"], trials["more"]
    before = together(now.rate, case.step_rate, now.cpu, case.step.cpu, case.cpus, now.serial)
    after = together(more.rate, larger, more.cpu, 0.0, case.cpus, more.serial)
    gain = after / before - 1
    evidence = (
        f"The step takes {digits(larger)} samples/s in batches of {_TIMES * size}, "
        f"{digits(case.step_rate)} in batches of {size}; the loader {digits(more.rate)} and "
        f"{digits(now.rate)}."
    )
    price = "training changes: the learning rate depends on the batch size"
    rate = case.now * (1 + gain)
    step_gain = larger / case.step_rate
    spread = loop.notes.get("larger_step_gains") if loop is not None else None
    low, high = spread if isinstance(spread, tuple) else (step_gain - 1, step_gain - 1)
    low, high = ((1 + gain) * (1 + bound) / step_gain - 1 for bound in (low, high))
    words = f"batch_size={_TIMES * size}"
    yield Fix("batch-size", words, rate, gain, evidence, price, min(low, gain), max(high, gain))


def by_fastload(case: TorchExamination) -> Iterator[Fix]:
    """Pack a sample of the files, and try fastload's DataLoader on it with the same transform."""
    from fastload.packing.from_python import pack
    from fastload.sample.fields import Image, Label

    files = case.subject.files()
    if files is None or len(files.paths) < 8 or not _allows(case, "fastload", 2 * case.budget.run):
        return
    folder = case.folder / "as-fastload"
    pack(_samples(files), folder, {"image": Image(), "label": Label()}, on_error="skip")
    packed: PackedDataset[Any] = PackedDataset(folder)
    threads = max(1, int(case.cpus))

    def ours() -> Any:
        order: Any = FixedOrder(np.arange(len(packed)))
        return fastload.DataLoader(
            packed,
            case.subject.trial_batch,
            sampler=order,
            num_workers=threads,
            transform=files.transform,
            drop_last=True,
            cache="off",
            ranks=fastload.Ranks(0, 1),
        )

    makers = {"now": lambda: case.subject.make(files.indices), "fastload": ours}
    trials = in_turns(makers, case.subject.trial_batch, 2 * case.budget.run, _ROUNDS - 1, case.step)
    now, then = trials["now"], trials["fastload"]
    yield case.fix(
        "fastload",
        f'`fastload pack {files.root or "IMAGES"} SET` and `fastload.DataLoader("SET", ...)` with the same '
        "transform",
        then,
        f"{len(packed)} of its files, packed into a temporary folder, the same transform, {threads} threads: "
        f"{digits(then.rate)} images/s, and {digits(now.rate)} by this loader, in turns, without a step.",
        "a second copy of the files on disk",
        now,
    )


def _samples(files: Files) -> Iterator[dict[str, Any]]:
    for path, label in zip(files.paths, files.labels, strict=True):
        yield {"image": path, "label": label}


#: The likeliest to help come first, because time is limited; what is computed costs none.
TORCH_REGISTRY: tuple[Callable[[TorchExamination], Iterator[Fix]], ...] = (
    faster_line,
    by_vision,
    by_windows,
    less_in_step,
    longer_passes,
    smaller_pictures,
    kept_workers,
    larger_batches,
    more_workers,
    without_collate,
    by_fastload,
    fewer_workers,
    *MACHINE,
    pinned,
    of_the_step,
)
