"""Another mix for a run that goes on: what each dataset has given carries over, and what is new begins."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from fastload.backends.state import LoaderState
from fastload.dataset.mixture import MixedFiles
from fastload.errors import StateError
from fastload.loader.generations import migrated
from fastload.sampler.schedule import MixtureStart
from fastload.shard.dataset import PackedFiles


class MigratedSource(NamedTuple):
    """What becomes of a dataset."""

    where: str  # its folder or URL
    samples: int  # that it has given in the run
    size: int  # samples in it
    before: float | None  # its share in the old mix; None: it was not in it
    after: float | None  # its share in the new mix, as it begins; None: it is not in it
    why: str = ""  # it begins or ends, if there is more to say

    def __str__(self) -> str:
        passes, place = divmod(self.samples, self.size)
        at = f"{self.samples:,} samples given, {place:,} of {self.size:,} in pass {passes + 1}"
        why = f" ({self.why})" if self.why else ""
        if self.after is None:
            return f"{self.where}: ends{why}, with {at}."
        if self.before is None:
            return f"{self.where}: begins{why}, with {self.size:,} samples and a share of {self.after:.4g}."
        share = f"a share of {self.after:.4g}"
        if round(self.before, 9) != round(self.after, 9):
            share += f", before {self.before:.4g}"
        return f"{self.where}: goes on{why} where it was: {at}; {share}."


@dataclass(frozen=True)
class Migration:
    """What :func:`fastload.migrate` found; ``print()`` says it dataset by dataset.

    Args:
        state: for ``load_state_dict`` of a loader over the new mix, on any number of ranks.
        sources: those of the new mix in its order, then those that end.
        place: which sample of the run this is, in words.
    """

    state: dict[str, Any]
    sources: tuple[MigratedSource, ...]
    place: str

    def __str__(self) -> str:
        return "\n".join([self.place, *(f"  {source}" for source in self.sources)])


def migrate(
    state: Any, new_mix: MixedFiles | PackedFiles | str | os.PathLike[str], old: MixedFiles | None = None
) -> Migration:
    """Give a run another mix: datasets added, removed or re-weighted, bounds, another ``num_samples``; or a
    later generation of a set that has grown.

    Datasets are matched by their ids, which follow from what is in them. One that is in both mixes goes on
    exactly where it was: no sample of its pass is lost or comes twice. One that is new, or that has
    grown or shrunk, begins with a pass of its own; one that is not in the new mix ends. The new shares hold
    from this place on. If ``num_samples`` differs, the epoch goes on at its position and ends at the new
    number; if it has that many already, the next epoch begins.

    Args:
        state: a loader over the old mix; or a state of its ``state_dict()``, and then ``old``.
        new_mix: a :func:`fastload.mix`. A ``Schedule`` in it counts from the run's beginning, and so does
            ``max_epochs``. Or a packed set or its path, of which the state has an earlier generation: the
            epoch under way is finished on that one, and later epochs have the set's: the newest, or that of
            ``PackedDataset(folder, generation=g)``.
        old: the mix with which the state was saved.

    Raises:
        TypeError: no mixes, or a state without ``old``.
        StateError: the state is not of ``old``, or not of a loader with ``shuffle=True``; or of another set,
            or of a later generation of it.
        FormatError, ShardError: there is no packed set at the path.
    """
    if not isinstance(state, Mapping) and hasattr(state, "__fastload_view__"):
        state, old = state.state_dict(), state.__fastload_view__().opened
    if isinstance(new_mix, (str, os.PathLike)):
        new_mix = PackedFiles(new_mix)
    if isinstance(new_mix, PackedFiles):
        grown, words = migrated(LoaderState.from_dict(state), new_mix)
        return Migration(grown.to_dict(), (), words)
    if old is None:
        raise TypeError(
            "migrate takes a loader, or a state and the mix with which it was saved: "
            "migrate(state, new_mix, old=old_mix). Found: no old mix."
        )
    for mix in (old, new_mix):
        if not isinstance(mix, MixedFiles):
            raise TypeError(
                f"migrate goes from one fastload.mix to another. Found: {type(mix).__name__}. A run that "
                "may get more datasets later begins with a mix of one."
            )
    saved = LoaderState.from_dict(state)
    _check(saved, old)
    was = old.starting(None if saved.mixture is None else MixtureStart.from_text(saved.mixture))
    order = was.order(saved.seed or 0, True)
    total = order.total(saved.epoch)
    if saved.position > total:
        raise StateError(
            f"position of a loader state must be at most {total}, the end of epoch {saved.epoch}. Found: "
            f"{saved.position}. The state is damaged, or of another mix."
        )
    at = order.start_at(saved.epoch, saved.position)
    shares = order.wished(saved.epoch, saved.position).tolist()
    start, sources = _carried(at, shares, old, new_mix)
    if saved.position >= min(total, new_mix.num_samples):
        start = replace(start, epoch=saved.epoch + 1, position=0)
    new = replace(
        saved,
        dataset=new_mix.id,
        length=len(new_mix),
        epoch=start.epoch,
        position=start.position,
        mixture=start.to_text(),
    )
    then = new_mix.starting(start).order(saved.seed or 0, True).wished(start.epoch, start.position).tolist()
    then += [None] * len(sources)
    sources = [source._replace(after=share) for source, share in zip(sources, then, strict=False)]
    place = (
        f"After sample {start.given:,} of the run; it goes on in epoch {start.epoch}, at position "
        f"{start.position:,} of {new_mix.num_samples:,}:"
    )
    return Migration(new.to_dict(), tuple(sources), place)


def _check(saved: LoaderState, old: MixedFiles) -> None:
    if saved.dataset != old.id:
        raise StateError(
            f"The state is of dataset {saved.dataset!r:.80}. Found: an old mix with the id {old.id!r}. Pass "
            "the mix with which it was saved: the same datasets, in the same order, with the same weights."
        )
    if saved.shuffle is not True:
        raise StateError(
            "migrate needs a state of a loader with shuffle=True: without it each epoch begins with each "
            f"dataset anew, and a sampler has its own order. Found: shuffle={saved.shuffle!r:.80}."
        )


def _carried(
    at: MixtureStart, shares: list[float], old: MixedFiles, new: MixedFiles
) -> tuple[MixtureStart, list[MigratedSource]]:
    """Return where the new mix begins, and what becomes of each dataset; shares in the new mix are not known
    yet."""
    left = {number: {*part.manifest.all_ids} for number, part in enumerate(old.parts)}
    places, known = {part.where for part in old.parts}, {one for ids in left.values() for one in ids}
    counts, walks, free = [], [], at.free_walk
    sources: list[MigratedSource] = []
    for part in new.parts:
        own = {*part.manifest.all_ids}
        number = next((number for number, ids in left.items() if ids & own), None)
        if number is not None:
            del left[number]  # a dataset may be in a mix several times
            counts.append(at.counts[number])
            walks.append(at.walks[number])
            sources.append(MigratedSource(part.where, at.counts[number], len(part), shares[number], None))
            continue
        counts.append(0)
        walks.append(free)
        free += 1
        is_changed = part.where in places and not own & known
        why = "its contents have changed, so its order is another" if is_changed else ""
        sources.append(MigratedSource(part.where, 0, len(part), None, None, why))
    for number in left:
        part = old.parts[number]
        sources.append(MigratedSource(part.where, at.counts[number], len(part), shares[number], None))
    start = replace(at, counts=tuple(counts), walks=tuple(walks), free_walk=free, mix=new.exact)
    return start, sources
