"""A verdict where several ranks train together: one that is slow is waited for by all."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from fastload.diagnose.facts import Sentence, Verdict
from fastload.ranks.exchange import in_words

if TYPE_CHECKING:
    from fastload.diagnose.gathered import Gathered

__all__ = ["gathered_of", "later", "with_ranks"]

_NAME = "doctor"


def gathered_of(loader: Any) -> Gathered | None:
    """Write this rank's clocks down, and read the others'; None: no others, or nothing to ask them by."""
    if not hasattr(loader, "_arranged") or loader._arranged.known()[0].size < 2:
        return None
    from fastload.diagnose.gathered import gathered_stats
    from fastload.errors import WorldError

    try:
        return gathered_stats(loader, name=_NAME)
    except WorldError:  # ranks without a process group
        return None


def later(first: Gathered, found: Gathered | None, rank: int) -> Gathered:
    """What others have written since ``first``, and rank ``rank``'s own clocks as they were then.

    Args:
        found: asked for later; None: there was nothing to ask by any more.
    """
    if found is None or rank not in first.clocks:
        return first
    return replace(found, clocks={**first.clocks, **found.clocks, rank: first.clocks[rank]})


def with_ranks(verdict: Verdict, gathered: Gathered, rank: int) -> Verdict:
    """The verdict of rank ``rank``, where some are slow: which ones and why come first.

    If it is not one of them, nothing that could be done here would help, so no fix is left; its own numbers
    stay, as of a loop that waits for others in its step.
    """
    slow = gathered.slow
    if not slow:
        return verdict
    evidence = "Each rank's own clocks since its first batch: " + "; ".join(
        f"rank {own.rank} waits {1e3 * own.batch_wait:.1f} ms a batch" for own in gathered.clocks.values()
    )
    which = Sentence(str(gathered), f"{evidence}.")
    if rank in slow:
        here = Sentence(f"This is rank {rank}, so what follows is about a slow one.")
        return replace(verdict, limit="ranks", sentences=(which, here, *verdict.sentences))
    words = f"Ask the doctor on {in_words(slow)}: this is rank {rank}, whose step waits for them."
    numbers = f"Here the loop reached {verdict.rate:.0f} images/s"
    numbers += f", and the loader could give {verdict.loader_rate:.0f}." if verdict.loader_rate else "."
    return replace(verdict, limit="ranks", sentences=(which, Sentence(words, numbers)), fixes=())
