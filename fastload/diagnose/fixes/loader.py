"""Fixes for the loader and the machine: batches, delivery, Python functions, threads, CPUs."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch

from fastload.diagnose.callables import Function, with_transform, without
from fastload.diagnose.examination import LEAST_GAIN, Examination, Examined, digits
from fastload.diagnose.facts import Fix, Loop
from fastload.diagnose.trial import LoaderUnderTest, in_turns
from fastload.machine.cpu import cgroup_quota
from fastload.machine.memory import available_memory
from fastload.prefetch.autotune import EXTRA_DEPTH
from fastload.transfer.convert import crosses_as
from fastload.transfer.cuda import goes_to_gpu

# ---- Autotune ---------------------------------------------------------------------------------------


def by_itself(case: Examination, fix: Fix, batches: int = 0) -> Iterator[Fix]:
    """Propose ``autotune=True``, if it is off and would find the setting of ``fix``.

    Args:
        fix: a tried fix of threads or prefetch; autotune's threads go up to the CPUs.
        batches: how many more batches ahead ``fix`` has.
    """
    options = case.subject.options
    # Without num_workers, the threads are already at their maximum.
    has_room = batches <= EXTRA_DEPTH if batches else options.num_workers is not None
    if options.autotune or options.dali is not None or fix.gain < LEAST_GAIN or not has_room:
        return
    what = f"prefetch by {batches} batches" if batches else f"num_workers from {case.subject.threads}"
    words = f"autotune=True would raise {what} by itself, while the job runs"
    evidence = f"Not run: the number is that of {fix.words}. It takes some seconds to get there."
    yield replace(fix, name="autotune", words=words, evidence=evidence)


# ---- Number and size of batches ---------------------------------------------------------------------

_IDLE = 0.05  # share of the threads' time; more shows that something other than their work limits
_DEEPEST = 16
_SMALL = 16  # samples per batch up to which a batch's fixed cost shows
_TIMES = 4
_SHARE = 0.25  # share of the available memory for batches
_WAITED = 0.08  # share of the loop's time; less waiting is not worth a trial
_LONGEST = 0.25  # share of the waits that are the longest; in bursts ...
_BURST = 0.6  # ... they make up this share of all waiting, with an always too slow loader about a quarter
_STEPS = 20  # steps of a run, which are enough to show bursts ...
_MOST_SECONDS = 3.0  # ... unless they take longer than this
_OWN_CPU = 0.5  # CPUs that a step may use; for one that uses more, a sleep is no substitute


def deeper_prefetch(case: Examination) -> Iterator[Fix]:
    """Try twice as many batches ahead, if waits come in bursts or threads have no room to work ahead."""
    subject, base = case.subject, case.base
    depth = subject.options.prefetch_factor
    wanted = min(_DEEPEST, 2 * depth)
    pause = _pause(case)
    if base.threads == 0 or wanted <= depth or (pause is None and 1 - base.busy < _IDLE):
        return
    slot = subject.loader.memory_plan()["slot_bytes"]
    seconds = case.budget.run
    if pause is not None:
        seconds = max(seconds, min(_MOST_SECONDS, _STEPS * pause))
    runs = 6 * seconds / case.budget.run
    if wanted * slot > _SHARE * available_memory() or not case.budget.allows(runs, "prefetch_factor"):
        return
    size = subject.batch_size
    makers: dict[str, Callable[[], Any]] = {}
    for name, ahead in (("now", depth), ("more", wanted)):
        makers[name] = partial(subject.make, batch_size=size, prefetch_factor=ahead)
    if pause is None:
        trials = in_turns(makers, size, seconds, step=case.step)
    else:
        trials = in_turns(makers, size, seconds, pace=partial(_rest, pause))
    now, more = trials["now"], trials["more"]
    rates = f"{depth} batches ahead gave {digits(now.rate)} images/s, {wanted} {digits(more.rate)}, in turns"
    price = f"{(wanted - depth) * slot / 1e6:.0f} MB of memory"
    words = f"prefetch_factor={wanted}"
    if pause is None:
        uneven = float(np.std(base.gaps) / np.mean(base.gaps)) if len(base.gaps) > 3 else 0.0
        evidence = (
            f"Threads were idle for {1 - base.busy:.0%} of their time, and waits for batches differ by "
            f"{uneven:.0%} of their mean. {rates}, without a step."
        )
        fix = case.fix("prefetch", words, more, evidence, price, now)
    else:
        evidence = (
            f"{_LONGEST:.0%} of the waits make up {_burst(case.loop):.0%} of the waiting, and on average "
            f"the loader is fast enough. {rates}, with a pause of {1000 * pause:.1f} ms for each step."
        )
        gain = more.rate / now.rate - 1
        reached = min(case.now * (1 + gain), case.step_rate)
        fix = Fix("prefetch", words, reached, reached / case.now - 1, evidence, price)
    yield fix
    yield from by_itself(case, fix, wanted - depth)


def waits_in_bursts(loop: Loop) -> bool:
    """Whether the loop sometimes waits for long, and otherwise hardly at all."""
    return loop.wait_share >= _WAITED and _burst(loop) >= _BURST


def _burst(loop: Loop | None) -> float:
    """Return the share of all waiting that is in the longest quarter of the waits."""
    if loop is None or len(loop.wait) == 0 or loop.wait.sum() <= 0:
        return 0.0
    longest = np.sort(loop.wait)[-max(1, round(_LONGEST * len(loop.wait))) :]
    return float(longest.sum() / loop.wait.sum())


def _pause(case: Examination) -> float | None:
    """Return the pause in place of a step in trials; None: waits are not in bursts, or no pause would do."""
    loop, step = case.loop, case.step
    if loop is None or step is None or not waits_in_bursts(loop):
        return None
    if case.base.rate < step.rate or step.cpu * step.rate > _OWN_CPU:
        return None
    return case.subject.batch_size / step.rate


def _rest(seconds: float, samples: int) -> None:
    """Replace a step of any number of samples, in which a device works and this process does not."""
    time.sleep(seconds)


def larger_batches(case: Examination) -> Iterator[Fix]:
    """Try batches four times as large, if they are small."""
    subject = case.subject
    size = subject.batch_size
    if size > _SMALL or size * _TIMES > len(subject.ids) or subject.trial_batch < size:
        return
    if not case.budget.allows(6, "batch_size"):
        return
    trials = in_turns(
        {
            "now": lambda: subject.make(batch_size=size),
            "more": lambda: subject.make(batch_size=_TIMES * size),
        },
        size,
        case.budget.run,
        step=case.step,
    )
    yield case.fix(
        "batch-size",
        f"batch_size={_TIMES * size}",
        trials["more"],
        f"Batches of {size} gave {digits(trials['now'].rate)} images/s, of {_TIMES * size} "
        f"{digits(trials['more'].rate)}, in turns, without a step.",
        "training changes: the learning rate depends on the batch size",
        trials["now"],
    )


# ---- Normalising on the device ----------------------------------------------------------------------


def as_uint8(case: Examination) -> Iterator[Fix]:
    """Try uint8 instead of floats from the loader; the device's work is not counted."""
    subject = case.subject
    dtypes = _floats(subject)
    if not dtypes or _on_cpu(case) or not case.budget.allows(6, "device normalisation"):
        return
    trials = in_turns(
        {
            "now": subject.make,
            "uint8": lambda: subject.make(**with_transform(subject, crosses_as(subject.plan))),
        },
        subject.trial_batch,
        case.budget.run,
        step=case.step,
    )
    now, then = trials["now"], trials["uint8"]
    words = 'uint8 from the loader, normalised on the device (device="cuda" does both)'
    share = min(1 / getattr(torch, name).itemsize for name in dtypes)
    yield case.fix(
        "device-normalise",
        words,
        then,
        f"The loader delivered {digits(then.rate)} images/s in uint8, {digits(now.rate)} in "
        f"{' and '.join(dtypes)}, in turns, without a step. Only {share:.0%} of the bytes are then copied to "
        "the device; that is not in the number.",
        "one pass over each batch on the device",
        now,
    )


def _floats(subject: LoaderUnderTest) -> list[str]:
    """Return the dtypes to which the core converts uint8; none if it has to, or a device does it."""
    plan, options = subject.plan, subject.options
    python = plan.tail or options.collate_fn is not None or options.batch_transform is not None
    if plan.scheduled or python or options.dali is not None or goes_to_gpu(options.device.name):
        return []
    views = zip(plan.every, crosses_as(plan).every, strict=True)
    return sorted({own.dtype for own, left in views if own.dtype != left.dtype})


def _on_cpu(case: Examination) -> bool:
    """Whether the model seen in the loop is on the CPU."""
    return case.loop is not None and case.loop.notes.get("device") == "cpu"


# ---- Python functions -------------------------------------------------------------------------------

_SHARE_IN_PYTHON = 0.1  # share of a sample's time; less is not worth a trial
_TRIED = 2


def without_functions(case: Examination) -> Iterator[Fix]:
    """Try the loader without each of the slowest Python functions."""
    for function in case.functions[:_TRIED]:
        if function.seconds < _SHARE_IN_PYTHON / case.base.rate or not case.budget.allows(6, function.name):
            continue
        kind = "collate_fn" if function.collates else "callable"
        words = f"Without the {kind} {function.name}"
        if function.keep:
            words += f" (or in the core: {function.keep})"
        times = f"{1000 * function.seconds:.2f} ms per sample in Python{_lock(function)}"
        makers: dict[str, Callable[[], Any]] = {
            "now": case.subject.make,
            "without": partial(case.subject.make, **without(case.subject, function)),
        }
        try:
            trials = in_turns(makers, case.subject.trial_batch, case.budget.run, step=case.step)
        except Exception as error:  # later functions may need its results
            evidence = f"{times}. Nothing was measured without it: {type(error).__name__}: {error}"
            yield Fix(kind, f"{words} the loader would be faster", 0.0, 0.0, evidence)
            continue
        now, then = trials["now"], trials["without"]
        evidence = f"{times}. {digits(now.rate)} images/s with it, {digits(then.rate)} without, in turns."
        price = "its work has to be done elsewhere: in the core, on the device, or before packing"
        yield case.fix(kind, words, then, evidence, price, now)


def _lock(function: Function) -> str:
    if function.lock is None or function.lock < 0.5:
        return ""
    return f", and Python's lock is held for {function.lock:.0%} of it"


# ---- Decoding threads and cores ---------------------------------------------------------------------

_BUSY_CORES = 0.9  # share of the CPUs' time from which on more CPUs would help
_MORE = 2


def more_threads(case: Examination) -> Iterator[Fix]:
    """Try as many threads as CPUs, if there are fewer."""
    subject, wanted = case.subject, int(case.cpus)
    if subject.threads >= wanted or not case.budget.allows(6, "more threads"):
        return
    trials = in_turns(
        {"now": subject.make, "more": lambda: subject.make(num_workers=wanted)},
        subject.trial_batch,
        case.budget.run,
        step=case.step,
    )
    now, more = trials["now"], trials["more"]
    fix = case.fix(
        "threads",
        f"num_workers={wanted}",
        more,
        f"num_workers={subject.threads} gave {digits(now.rate)} images/s and num_workers={wanted} "
        f"{digits(more.rate)}, in turns, without a step.",
        base=now,
    )
    yield fix
    yield from by_itself(case, fix)


def more_cores(case: Examination) -> Iterator[Fix]:
    """Compute what two more CPUs would gain, if all are busy."""
    base = case.base
    if case.subject.threads < int(case.cpus) or base.rate * base.cpu < _BUSY_CORES * case.cpus:
        return
    cpus = case.cpus + _MORE
    yield Fix(
        "cores",
        "Two more cores",
        min(case.step_rate, case.now * cpus / case.cpus),
        min(case.step_rate / case.now, cpus / case.cpus) - 1,
        f"Computed, not tried: a sample takes {1000 * base.cpu:.2f} ms of CPU time, and "
        f"{base.rate * base.cpu:.1f} of {case.cpus:g} CPUs were busy.",
        "CPUs",
    )


# ---- The machine ------------------------------------------------------------------------------------

_BUSY = 0.8  # a loader that uses this share of the CPUs that it gets would use more


def larger_quota(case: Examined) -> Iterator[Fix]:
    """Compute what a larger cgroup CPU quota would gain, if there are more CPUs than it allows."""
    quota, mask = cgroup_quota(), case.mask
    if quota is None or quota >= mask or case.base.rate * case.base.cpu < _BUSY * min(case.spare, quota):
        return
    held = _note(case, "throttled_seconds")
    times = _more(case, mask, mask / quota)
    yield Fix(
        "quota",
        f"A CPU quota of {mask} instead of {quota:g} (cpu.max; docker's --cpus, Kubernetes' limits)",
        min(case.step_rate, case.now * times),
        min(case.step_rate / case.now, times) - 1,
        f"Computed, not tried: the cgroup allows {quota:g} of {mask} CPUs, and the loader uses "
        f"{case.base.rate * case.base.cpu:.2f}."
        + (f" The loop was held back for {held:.1f} s while it was watched." if held else ""),
        "CPUs",
    )


def room_in_shm(case: Examined) -> Iterator[Fix]:
    """Propose more room in /dev/shm, through which worker processes deliver batches."""
    free, batch = _note(case, "shm_free"), _note(case, "batch_bytes")
    if case.loop is None or "start_method" not in case.loop.notes or not free:
        return
    workers, ahead = case.loop.threads, int(_note(case, "prefetch_factor") or 2)
    if free < workers * ahead * batch:
        yield Fix(
            "shm",
            "Give /dev/shm more room (docker's --shm-size)",
            0.0,
            0.0,
            f"/dev/shm had {free / 1e6:.0f} MB left, and {workers} workers may have {ahead} batches of "
            f"{batch / 1e6:.1f} MB each there.",
        )


def cooler(case: Examined) -> Iterator[Fix]:
    """Propose better cooling, if cores were slowed down."""
    hot = _note(case, "hot")
    if hot:
        words = "Better cooling: cores are slowed down because of their temperature"
        evidence = f"The kernel counted {hot:.0f} slowdowns of cores while the loop was watched."
        yield Fix("heat", words, 0.0, 0.0, evidence)


def near_memory(case: Examined) -> Iterator[Fix]:
    """Propose binding a torch loader to one of several NUMA nodes; ours keeps to the GPU's node."""
    nodes = _note(case, "numa_nodes")
    if nodes > 1 and case.loop is not None and "start_method" in case.loop.notes:
        words = "Try `numactl --cpunodebind=N --membind=N`, with the node of the rank's GPU"
        yield Fix("numa", words, 0.0, 0.0, f"The machine has {nodes:.0f} NUMA nodes. Not measured.")


def _more(case: Examined, cpus: float, times: float) -> float:
    """Return the factor by which the rate grows: at most ``times``, and what ``cpus`` CPUs can do."""
    return max(1.0, min(times, cpus / (case.base.cpu * case.now))) if case.base.cpu > 0 else times


def _note(case: Examined, name: str) -> float:
    """Return a number that was noted while the loop was watched; 0 if there is none."""
    value = case.loop.notes.get(name) if case.loop is not None else None
    return float(value) if isinstance(value, (int, float)) else 0.0


MACHINE = (larger_quota, room_in_shm, cooler, near_memory)
