"""Packs of samples, slow and obvious: what csrc/core/sampler/ and fastload/sampler/packs.py are held to."""

from __future__ import annotations

from collections.abc import Sequence

Window = list[list[int]]  # the samples of each pack


def best_fit(amounts: Sequence[Sequence[int]], most: Sequence[int]) -> Window:
    """Return the packs of a window by best fit decreasing, each in ascending order.

    Args:
        amounts: for each bound, how much of it each sample has; the first one decides the fit.
        most: what a pack holds of each.
    """
    samples = range(len(amounts[0]))
    packs: Window = []
    rooms: list[list[int]] = []
    for sample in sorted(samples, key=lambda one: (-amounts[0][one], one)):
        wanted = [amount[sample] for amount in amounts]
        takes = [
            number
            for number, room in enumerate(rooms)
            if all(left >= each for left, each in zip(room, wanted, strict=True))
        ]
        if takes:
            pack = min(takes, key=lambda number: (rooms[number][0], number))
        else:
            pack = len(packs)
            packs.append([])
            rooms.append(list(most))
        packs[pack].append(sample)
        rooms[pack] = [left - each for left, each in zip(rooms[pack], wanted, strict=True)]
    return [sorted(pack) for pack in packs]


def next_fit(lengths: Sequence[int], tokens: int) -> int:
    """Return the number of packs where a sample goes into the last pack or opens one."""
    return first_fit(lengths, tokens, 1, all_closed=True)


def first_fit(lengths: Sequence[int], tokens: int, bins: int, all_closed: bool) -> int:
    """Return the number of packs where a sample goes into the first of ``bins`` open ones that takes it.

    Where none takes it, all are closed, as grain's FirstFitPackIterDataset does it, or the fullest one.
    """
    rooms: list[int] = []
    packs = 0
    for length in lengths:
        place = next((number for number, room in enumerate(rooms) if room >= length), None)
        if place is None:
            if len(rooms) == bins:
                rooms = [] if all_closed else sorted(rooms)[1:]
            rooms.append(tokens)
            packs += 1
            place = len(rooms) - 1
        rooms[place] -= length
    return packs


def shares(costs: Sequence[int], rooms: Sequence[int]) -> list[list[int]]:
    """Return the packs of each rank: the costliest first, to the least loaded rank that has room.

    Args:
        costs: of each pack of a global batch, in its order; equal costs go in that order.
        rooms: packs of each rank.
    """
    given: list[list[int]] = [[] for _ in rooms]
    for pack in sorted(range(len(costs)), key=lambda one: (-costs[one], one)):
        free = [rank for rank, room in enumerate(rooms) if len(given[rank]) < room]
        rank = min(free, key=lambda one: (sum(costs[other] for other in given[one]), one))
        given[rank].append(pack)
    return [sorted(packs) for packs in given]
