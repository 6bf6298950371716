"""Findings that only a comparison of ranks gives: uneven ranks, data divided twice, or against the mesh."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from fastload.diagnose.facts import Fix, Sentence, Verdict
from fastload.diagnose.rank_facts import Mesh, RankFacts, by_rank
from fastload.diagnose.ranks import slow_ranks
from fastload.ranks.handshake import in_words

_ALIKE = 1.25  # ranks that wait for one another take the same time for a batch, within this factor
_MODEL = {"tp", "sp", "cp", "pp", "model", "tensor", "context", "pipeline"}


@dataclass(frozen=True)
class Finding:
    """Something that is wrong between ranks.

    Args:
        key: "uneven-ranks", "divided-twice" or "mesh".
        sentence: what is wrong.
        evidence: the numbers of which this follows.
        remedy: what to do.
        gain: of the loop, at most, if it is done; 0: not known.
    """

    key: str
    sentence: str
    evidence: str
    remedy: str
    gain: float = 0.0


def findings_of(facts: Sequence[RankFacts]) -> list[Finding]:
    """Return what is found; first what makes a training wrong, then what makes it slow."""
    ranks = list(by_rank(facts).values())
    return [finding for look in _LOOKS if (finding := look(ranks)) is not None]


def with_findings(verdict: Verdict, findings: Sequence[Finding]) -> Verdict:
    """Return the verdict with the findings before all else.

    A verdict that says already which ranks are slow, from the clocks of fastload's loaders, says it better.
    """
    if verdict.limit == "ranks":
        findings = [each for each in findings if each.key != "uneven-ranks"]
    if not findings:
        return verdict
    first = tuple(Sentence(f"{each.sentence} {each.remedy}", each.evidence) for each in findings)
    fixes = tuple(
        Fix(
            "balance",
            each.remedy,
            verdict.rate * (1 + each.gain),
            each.gain,
            each.evidence,
            "",
            0.0,
            each.gain,
        )
        for each in findings
        if each.gain > 0
    )
    return replace(
        verdict,
        limit=findings[0].key,
        sentences=(*first, *verdict.sentences),
        fixes=(*fixes, *verdict.fixes),
        place=None,
    )


# ---- Ranks that keep others waiting -----------------------------------------------------------------


def uneven_ranks(facts: Sequence[RankFacts]) -> Finding | None:
    """Return the finding that ranks have different numbers of batches, or that some are slow."""
    return _uneven_epochs(facts) or _slow(facts)


def _uneven_epochs(facts: Sequence[RankFacts]) -> Finding | None:
    counts = {each.rank: each.epoch_batches for each in facts if each.epoch_batches is not None}
    if len(set(counts.values())) < 2:
        return None
    least, most = min(counts.values()), max(counts.values())
    few = [rank for rank, count in counts.items() if count == least]
    return Finding(
        "uneven-ranks",
        f"The ranks' epochs differ: {in_words(few)} {_has(few)} {least} batches, others up to {most}. At the "
        f"epoch's end the others wait for a rank that has no more.",
        "; ".join(f"rank {rank}: {count} batches an epoch" for rank, count in counts.items()) + ".",
        "Give all ranks as many: a DistributedSampler pads or drops the rest (drop_last=True), or train "
        "inside torch.distributed.algorithms.join.Join.",
    )


def _slow(facts: Sequence[RankFacts]) -> Finding | None:
    used = [each for each in facts if each.batches]
    seconds = [each.batch_seconds for each in used]
    if len(used) < 2 or max(seconds) > _ALIKE * min(seconds):
        return None  # they do not wait for one another
    slow = slow_ranks({each.rank: each for each in used})
    if not slow:
        return None
    others = [each for each in used if each.rank not in slow]
    named = [each for each in used if each.rank in slow]
    here, there = (statistics.median(each.batch_wait for each in group) for group in (named, others))
    share = statistics.median(each.wait_share for each in named)
    verb = "waits" if len(slow) == 1 else "wait"
    return Finding(
        "uneven-ranks",
        f"{in_words(slow).capitalize()} {verb} {_ms(here)} for each batch ({share:.0%} of the time), the "
        f"other ranks {_ms(there)}: they wait for {'it' if len(slow) == 1 else 'them'} in their steps.",
        "; ".join(
            f"rank {each.rank}: {_ms(each.batch_wait)} of waiting and {_ms(each.batch_seconds)} in all for "
            f"a batch of {each.batch_bytes / 1e6:.3g} MB, {each.workers} workers"
            for each in used
        )
        + ".",
        f"Make the loading on {in_words(slow)} as fast as on the others; more is of no use there. "
        + _difference(named, others),
        (here - there) / max(min(seconds) - (here - there), 0.02 * min(seconds)),
    )


def _difference(slow: Sequence[RankFacts], others: Sequence[RankFacts]) -> str:
    """Say what is different on slow ranks."""
    differences = []
    here, there = (statistics.median(each.workers for each in group) for group in (slow, others))
    if here < there:
        differences.append(f"{here:g} instead of {there:g} workers")
    here, there = (statistics.median(each.batch_bytes for each in group) for group in (slow, others))
    if here > _ALIKE * there:
        differences.append(f"batches of {here / 1e6:.3g} MB instead of {there / 1e6:.3g}")
    if differences:
        return f"What differs: {', '.join(differences)}."
    return "Its samples may take longer, or others use its CPUs or its disk."


# ---- Data that are divided twice --------------------------------------------------------------------


def divided_twice(facts: Sequence[RankFacts]) -> Finding | None:
    """Return the finding that a sampler divides what was already divided."""
    dividing = [each for each in facts if (each.replicas or 1) > 1]
    if not dividing:
        return None
    first = dividing[0]
    if len(first.dividers) > 1:
        names = " and ".join(first.dividers)
        return Finding(
            "divided-twice",
            f"The samples are divided among ranks twice, by {names}: a rank gets 1/{first.replicas} of them.",
            "; ".join(f"rank {each.rank}: part {each.replica} of {each.replicas}" for each in dividing) + ".",
            f"Leave one of them out: give the loader that is prepared no {first.dividers[-1]}.",
        )
    known = {each.fingerprint for each in dividing if each.fingerprint is not None}
    if len(known) < 2:
        return None
    return Finding(
        "divided-twice",
        f"The ranks have different datasets, and {first.dividers[0]} divides each by {first.replicas} again: "
        f"a rank sees only 1/{first.replicas} of its own dataset.",
        "; ".join(
            f"rank {each.rank}: {each.length} samples, part {each.replica} of {each.replicas}, fingerprint "
            f"{each.fingerprint}"
            for each in dividing
        )
        + ".",
        f"Divide once: give all ranks the same dataset, or use a sampler that does not divide in place of "
        f"{first.dividers[0]}.",
    )


# ---- Data that are divided against the mesh ---------------------------------------------------------


def against_mesh(facts: Sequence[RankFacts]) -> Finding | None:
    """Return the finding that ranks which share a batch, for a model in parts, get different ones."""
    places = {each.rank: _data_place(each) for each in facts}
    for each in facts:
        place = places[each.rank]
        if place is None or each.replicas is None:
            continue
        mesh, _, size = place
        alike = [other for other in facts if places[other.rank] == place]
        peers = [one for one in alike if (one.replicas, one.replica) != (each.replicas, each.replica)]
        if each.replicas <= size and not peers:
            continue
        return Finding(
            "mesh",
            f"The mesh has {size} data-parallel rank{'s' * (size != 1)}, but the sampler makes "
            f"{each.replicas} parts: ranks along {', '.join(_model_names(mesh))} hold parts of one model, "
            f"but get different batches.",
            f"Mesh {_shape(mesh)}; "
            + "; ".join(f"rank {one.rank} has part {one.replica} of {one.replicas}" for one in facts)
            + ".",
            f"Make the sampler with num_replicas={size} and rank= the rank along {_data_words(mesh)}: here "
            + ", ".join(f"{known[1]} on rank {of}" for of, known in places.items() if known is not None)
            + ".",
        )
    return None


def _data_place(facts: RankFacts) -> tuple[Mesh, int, int] | None:
    """Return the whole mesh without this rank's coordinate, its data-parallel rank, and how many there are.

    None: no mesh of all ranks has a dimension along which a model is divided.
    """
    for mesh in facts.meshes:
        if math.prod(mesh.shape) != facts.world_size or not _model_names(mesh) or not mesh.coordinate:
            continue
        rank, size = 0, 1
        for name, length, place in zip(mesh.names, mesh.shape, mesh.coordinate, strict=True):
            if not _is_model(name):
                rank, size = rank * length + place, size * length
        return replace(mesh, coordinate=()), rank, size
    return None


def _is_model(name: str) -> bool:
    return name.lower().removesuffix("_parallel") in _MODEL


def _model_names(mesh: Mesh) -> list[str]:
    pairs = zip(mesh.names, mesh.shape, strict=True)
    return [name for name, length in pairs if _is_model(name) and length > 1]


def _data_words(mesh: Mesh) -> str:
    names = [name for name in mesh.names if not _is_model(name)]
    return f'mesh["{names[0]}"]' if len(names) == 1 else " and ".join(names) or "no dimension, which is 0"


def _shape(mesh: Mesh) -> str:
    pairs = zip(mesh.names, mesh.shape, strict=True)
    return " x ".join(f"{name} {length}" for name, length in pairs)


_LOOKS: tuple[Callable[[Sequence[RankFacts]], Finding | None], ...] = (
    against_mesh,
    divided_twice,
    uneven_ranks,
)


def _has(ranks: Sequence[int]) -> str:
    return "has" if len(ranks) == 1 else "have"


def _ms(seconds: float) -> str:
    return f"{1e3 * seconds:.{0 if seconds >= 0.1 else 1}f} ms"
