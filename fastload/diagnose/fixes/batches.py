"""Batches: how many are in work ahead of the loop, and how large they are."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from fastload.diagnose.case import Case, shown
from fastload.diagnose.facts import Fix, Loop
from fastload.diagnose.fixes.tuned import by_itself
from fastload.diagnose.trial import in_turns
from fastload.machine.memory import available_memory

__all__ = ["deeper_prefetch", "larger_batches", "waits_in_bursts"]

_IDLE = 0.05  # of the threads' time: something else than their work holds the loader up
_DEEPEST = 16
_SMALL = 16  # samples a batch, below which a batch's own cost shows
_TIMES = 4
_SHARE = 0.25  # of the available memory for batches
_WAITED = 0.08  # of the loop's time: less is not worth a trial
_LONGEST = 0.25  # of the waits, the longest ones ...
_BURST = 0.6  # ... have this part of all waiting; of a loader that is always too slow they have a quarter
_STEPS = 20  # in a run with steps in it, in which bursts show ...
_MOST_SECONDS = 3.0  # ... if it does not take longer than this
_OWN_CPU = 0.5  # CPUs that a step takes: one that takes more cannot be stood for by sleeping


def deeper_prefetch(case: Case) -> Iterator[Fix]:
    """Twice as many batches ahead, where waits come in bursts, or threads are idle for want of room."""
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
        found = in_turns(makers, size, seconds, step=case.step)
    else:
        found = in_turns(makers, size, seconds, pace=partial(_rest, pause))
    now, more = found["now"], found["more"]
    rates = f"{depth} batches ahead gave {shown(now.rate)} images/s, {wanted} {shown(more.rate)}, in turns"
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
            f"{_LONGEST:.0%} of the waits have {_burst(case.loop):.0%} of the waiting, and on the average "
            f"the loader is fast enough. {rates}, with a pause of {1000 * pause:.1f} ms for each step."
        )
        gain = more.rate / now.rate - 1
        reached = min(case.now * (1 + gain), case.step_rate)
        fix = Fix("prefetch", words, reached, reached / case.now - 1, evidence, price)
    yield fix
    yield from by_itself(case, fix, wanted - depth)


def waits_in_bursts(loop: Loop) -> bool:
    """Whether the loop waits now and then for long, and otherwise not."""
    return loop.wait_share >= _WAITED and _burst(loop) >= _BURST


def _burst(loop: Loop | None) -> float:
    """The part of all waiting that the longest quarter of the waits has."""
    if loop is None or len(loop.wait) == 0 or loop.wait.sum() <= 0:
        return 0.0
    longest = np.sort(loop.wait)[-max(1, round(_LONGEST * len(loop.wait))) :]
    return float(longest.sum() / loop.wait.sum())


def _pause(case: Case) -> float | None:
    """Seconds that stand for a step in trials; None: waits are no bursts, or no pause can stand for it."""
    loop, step = case.loop, case.step
    if loop is None or step is None or not waits_in_bursts(loop):
        return None
    if case.base.rate < step.rate or step.cpu * step.rate > _OWN_CPU:
        return None
    return case.subject.batch_size / step.rate


def _rest(seconds: float, samples: int) -> None:
    """Stands for a step, of however many samples, in which a device works and this process does not."""
    time.sleep(seconds)


def larger_batches(case: Case) -> Iterator[Fix]:
    """Four times as large, where they are small."""
    subject = case.subject
    size = subject.batch_size
    if size > _SMALL or size * _TIMES > len(subject.ids) or subject.trial_batch < size:
        return
    if not case.budget.allows(6, "batch_size"):
        return
    found = in_turns(
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
        found["more"],
        f"Batches of {size} gave {shown(found['now'].rate)} images/s, of {_TIMES * size} "
        f"{shown(found['more'].rate)}, in turns, without a step.",
        "other training: the learning rate belongs to it",
        found["now"],
    )
