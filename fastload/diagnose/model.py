"""The arithmetic of loader and step: what a loop reaches from what each can do alone."""

from __future__ import annotations

__all__ = ["together"]


def together(
    loader_rate: float,
    step_rate: float,
    loader_cpu: float,
    step_cpu: float,
    cpus: float,
    serial: float = 0.0,
) -> float:
    """Samples per second of a loop whose loader works ahead while the step runs.

    The slower of the two sets the pace; and both together cannot take more CPU time than there is, which
    counts where the step computes on the CPU.

    Args:
        loader_rate, step_rate: of each alone, samples per second; ``float("inf")`` for nothing to do.
        loader_cpu, step_cpu: CPU seconds a sample.
        cpus: CPUs that both share.
        serial: seconds a sample that the loader works in the loop's own thread, while no step runs.
    """
    busy = loader_cpu + step_cpu
    in_thread = serial + 1 / step_rate
    paced = 1 / in_thread if in_thread > 0 else float("inf")
    return min(loader_rate, paced, cpus / busy if busy > 0 else float("inf"))
