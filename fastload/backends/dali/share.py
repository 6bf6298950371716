"""Which part of the samples the native decoder takes beside DALI: fixed, or moved to where nobody waits."""

from __future__ import annotations

__all__ = ["DecodeShare"]

_FIRST = 0.25
_STEP = 0.02


class DecodeShare:
    """``value`` is the native decoder's share of each batch, in [0, 1].

    With "auto" it moves by 0.02 a batch: up when DALI's part was waited for and the native part was there,
    down the other way round. Which samples are whose follows from the share, seed, epoch and sample id.
    """

    def __init__(self, given: float | str) -> None:
        self.moves = given == "auto"
        self.value = _FIRST if isinstance(given, str) else float(given)

    def observe(self, native_late: bool, dali_late: bool) -> None:
        """What happened when a batch was asked for."""
        if self.moves and native_late != dali_late:
            step = _STEP if dali_late else -_STEP
            self.value = min(1.0, max(0.0, round(self.value + step, 6)))

    def take_all(self) -> None:
        """The native decoder has every sample from here on."""
        self.moves, self.value = False, 1.0
