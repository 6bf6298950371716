"""Which generation of a growing set an epoch has: the one that the loader's state was saved with."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any

from fastload.backends.state import LoaderState
from fastload.dataset.generations import Generations
from fastload.errors import StateError
from fastload.machine.messages import stacklevel
from fastload.sampler import default_blocks
from fastload.shard.dataset import PackedFiles


def generations_of(state: LoaderState, dataset: Any, is_given: bool) -> Generations:
    """Return the generations with which a job goes on by a state; none: the opened one, or another set.

    Args:
        state: the loaded state.
        dataset: the loader's.
        is_given: whether a user's sampler gives the order.

    Raises:
        StateError: the state is of an earlier generation, and the sampler was made for the newest; or the
            generation that it says comes next is not there.
    """
    if not isinstance(dataset, PackedFiles):
        return ()
    number = dataset.manifest.generation_of(state.dataset)
    if number is None or (number == dataset.manifest.generation and state.then is None):
        return ()
    if is_given:
        raise StateError(
            f"The state is of generation {number} of {dataset.where}, and the loader's sampler is over "
            f"generation {dataset.manifest.generation}. Open the earlier one and make the sampler for it: "
            f"PackedDataset(folder, generation={number})."
        )
    if state.then is None:
        return ((0, dataset.at(number)),)
    then = dataset.manifest.generation_of(state.then)
    if then is None:
        raise StateError(
            f"The state goes on, after its epoch, with a generation that {dataset.where} does not have. Open "
            "the set that it was migrated to."
        )
    return ((0, dataset.at(number)), (state.epoch + 1, dataset.at(then)))


def tell_of_newer(state: LoaderState, generations: Generations, dataset: PackedFiles) -> None:
    """Warn that a job goes on with an earlier generation than the set has."""
    last, newest = generations[-1][1], dataset.manifest.generation
    if last.manifest.generation == newest:
        return
    warnings.warn(
        f"This job goes on with generation {last.manifest.generation} of {dataset.where}, as its state says: "
        f"{_facts(last)}. The newest generation is {newest}: {_facts(dataset)}. "
        "fastload.migrate(state, dataset) takes it in with the next epoch.",
        stacklevel=stacklevel(),
    )


def migrated(state: LoaderState, files: PackedFiles) -> tuple[LoaderState, str]:
    """Return a state with which a job takes in a later generation of its set, and what that means.

    The epoch under way is finished on the state's generation; later epochs have the other. At an epoch's
    beginning that epoch has it already.

    Args:
        state: of a loader over an earlier generation.
        files: the set in the generation to go to.

    Raises:
        StateError: the state is of another set, or of a later generation, or its order is that of a sampler
            of fastload's.
    """
    newest, then = files.newest, files.manifest.generation
    number = newest.manifest.generation_of(state.dataset)
    if number is None:
        raise StateError(
            f"The state is of another set than {files.where}: it has the dataset id {state.dataset}, the set "
            f"has {newest.id} and no earlier generation with that id."
        )
    if number > then:
        raise StateError(
            f"migrate goes to a later generation of a set. Found: a state of generation {number} of "
            f"{files.where}, and a dataset with generation {then}. Open a later one, or begin a run with "
            f"PackedDataset(folder, generation={then})."
        )
    before = newest.at(number)
    if number == then:
        which = (
            f"the newest generation, {then}" if then == newest.manifest.generation else f"generation {then}"
        )
        return replace(state, then=None), f"{files.where}: the state is of {which}."
    _refuse_samplers(state, before)
    begins = f"has generation {then}: {_facts(files)}, {_changes(before, files)}. Sample ids are the same."
    if not state.position:
        shuffle = _blocks_now(state.shuffle, before, files)
        state = replace(state, dataset=files.id, length=len(files), then=None, shuffle=shuffle)
        return state, f"{files.where}: epoch {state.epoch} has not begun; it and all later ones {begins}"
    left = len(before) - state.position
    carried = (
        f"epoch {state.epoch} is finished on generation {number}, with {left} of {len(before)} samples left"
    )
    words = f"{files.where}: {carried}. From epoch {state.epoch + 1} on it {begins}"
    if state.shuffle is False:  # also what a sampler's state says
        words += (
            f" If a sampler gave the order, no loader takes this: {_for_samplers(before)}, and begin with "
            "the newest generation after this epoch."
        )
    return replace(state, then=files.id), words


def _refuse_samplers(state: LoaderState, before: PackedFiles) -> None:
    """Refuse states of samplers, which are made for the samples of one generation.

    Raises:
        StateError: the state is of one.
    """
    is_named = isinstance(state.shuffle, str) and not state.shuffle.startswith("block:")
    if is_named or state.position > len(before):
        raise StateError(
            f"The state's order is that of a sampler, which was made for generation "
            f"{before.manifest.generation}: shuffle={state.shuffle!r:.80}, at position {state.position} of "
            f"{len(before)} samples. It cannot take in other samples. Finish the epoch as it is: "
            f"{_for_samplers(before)}. Then begin with the newest generation, and a sampler for that."
        )


def _for_samplers(before: PackedFiles) -> str:
    return f"open PackedDataset(folder, generation={before.manifest.generation}), with a sampler for it"


def _blocks_now(shuffle: bool | str, before: PackedFiles, now: PackedFiles) -> bool | str:
    """Return a state's order with the block shuffle's sizes for the newest generation: those that were given
    stay, defaults follow the set."""
    if not isinstance(shuffle, str) or not shuffle.startswith("block:"):
        return shuffle
    size, window, *nodes = map(int, shuffle.split(":")[1:])
    for given in ((None, None), (size, None), (None, window), (size, window)):
        if default_blocks(before.num_ids, before.manifest.read_bytes, *given, *nodes) == (size, window):
            block = default_blocks(now.num_ids, now.manifest.read_bytes, *given, *nodes)
            return ":".join(["block", *map(str, (*block, *nodes))])
    return shuffle


def _facts(files: PackedFiles) -> str:
    return f"{len(files)} samples"


def _changes(before: PackedFiles, now: PackedFiles) -> str:
    """Say what a later generation has more and less."""
    added = now.num_ids - before.num_ids
    gone = len(now.dropped) - len(before.dropped)
    return f"{added} new and {gone} dropped since"
