"""The arithmetic of loader and step: what a loop reaches from what each can do alone."""

from __future__ import annotations

__all__ = ["together"]


def together(loader_rate: float, step_rate: float, loader_cpu: float, step_cpu: float, cpus: float) -> float:
    """Samples a second of a loop whose loader works ahead while the step runs.

    The slower of the two sets the pace; and both together cannot take more CPU time than there is, which
    counts where the step computes on the CPU.

    Args:
        loader_rate, step_rate: of each alone, samples a second; ``float("inf")`` for nothing to do.
        loader_cpu, step_cpu: CPU seconds a sample.
        cpus: CPUs that both share.
    """
    busy = loader_cpu + step_cpu
    return min(loader_rate, step_rate, cpus / busy if busy > 0 else float("inf"))
