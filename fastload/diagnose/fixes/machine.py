"""What the machine itself holds back: a quota, others' work, room, heat, places of memory."""

from __future__ import annotations

from collections.abc import Iterator

from fastload.diagnose.case import Examined
from fastload.diagnose.facts import Fix
from fastload.machine.cpu_budget import cgroup_quota

__all__ = ["MACHINE"]

_BUSY = 0.8  # of the CPUs that it gets: the loader would use more of them


def larger_quota(case: Examined) -> Iterator[Fix]:
    """The cgroup's CPU quota, where there are more CPUs than it lets through: computed."""
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
        f"Computed, not tried: the cgroup lets {quota:g} of {mask} CPUs through, and the loader takes "
        f"{case.base.rate * case.base.cpu:.2f}."
        + (f" The loop was held back for {held:.1f} s while it was watched." if held else ""),
        "CPUs",
    )


def no_neighbours(case: Examined) -> Iterator[Fix]:
    """Others' work on the same CPUs: computed."""
    if not case.is_crowded or case.base.rate * case.base.cpu < _BUSY * case.spare:
        return
    times = _more(case, case.cpus, case.cpus / case.spare)
    yield Fix(
        "neighbour",
        f"The CPUs alone (other processes, or other machines on the same host, take "
        f"{case.cpus - case.spare:.1f} of {case.cpus:g})",
        min(case.step_rate, case.now * times),
        min(case.step_rate / case.now, times) - 1,
        f"Computed, not tried: {round(case.cpus)} busy threads of this process got {case.spare:.2f} CPUs of "
        f"{case.cpus:g}.",
    )


def room_in_shm(case: Examined) -> Iterator[Fix]:
    """Worker processes hand batches over in /dev/shm."""
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
    """Cores that were slowed down."""
    hot = _note(case, "hot")
    if hot:
        evidence = (
            f"The kernel counted {hot:.0f} times while the loop was watched that a core was slowed down."
        )
        yield Fix(
            "heat", "Better cooling: cores are slowed down because of their temperature", 0.0, 0.0, evidence
        )


def near_memory(case: Examined) -> Iterator[Fix]:
    """Several NUMA nodes under one loader of torch's; ours keeps to the GPU's."""
    nodes = _note(case, "numa_nodes")
    if nodes > 1 and case.loop is not None and "start_method" in case.loop.notes:
        words = "Try `numactl --cpunodebind=N --membind=N`, with the node of the rank's GPU"
        yield Fix("numa", words, 0.0, 0.0, f"The machine has {nodes:.0f} NUMA nodes. Not measured.")


def _more(case: Examined, cpus: float, times: float) -> float:
    """How many times as many samples: no more than so many CPUs can do, by the CPU time of a sample."""
    return max(1.0, min(times, cpus / (case.base.cpu * case.now))) if case.base.cpu > 0 else times


def _note(case: Examined, name: str) -> float:
    """A number that was noted while the loop was watched; 0 where there is none."""
    value = case.loop.notes.get(name) if case.loop is not None else None
    return float(value) if isinstance(value, (int, float)) else 0.0


MACHINE = (larger_quota, no_neighbours, room_in_shm, cooler, near_memory)
