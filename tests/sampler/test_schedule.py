"""Mixes whose weights change: each source's share at each block, bounds, walks, ranks, places far away."""

from __future__ import annotations

import itertools
import json
import warnings
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from long_forms import SEED, as_drawn, how_many

from fastload.errors import StateError
from fastload.sampler import Partition, Sampler
from fastload.sampler.order import derived_seed, shuffled
from fastload.sampler.schedule import UNIT, Course, MixtureStart, Schedule, exact_shares
from fastload.sampler.scheduled_order import ScheduledOrder

# ---- Schedules drawn at random, and the obvious way to count -----------------------------------------


def drawn_schedule(draw: np.random.Generator, sources: int) -> Schedule:
    """Up to seven points, some closer than a block; weights of any size, a third of them 0."""
    gaps = draw.choice([1, 7, 900, 4096, 30000], int(draw.integers(0, 7))) * draw.integers(1, 4)
    points = [0, *np.cumsum(gaps).tolist()]
    at = {}
    for point in points:
        weights = draw.random(sources) ** draw.integers(1, 8) * (draw.random(sources) > 0.3)
        weights[int(draw.integers(sources))] += 0.1
        at[int(point)] = weights.tolist()
    least = min(np.diff(points[1:]), default=40000)
    ramp: Any = ["whole", 0, int(draw.integers(0, least + 1))][int(draw.integers(3))]
    return Schedule(at, ramp)


def share_at(schedule: Schedule, sample: Fraction) -> list[Fraction]:
    """The shares at one place of the run, as the docstring of Schedule says."""
    points = list(schedule.at)
    number = max(number for number, point in enumerate(points) if point <= sample)
    own, at = normalised(schedule.at[points[number]]), sample - points[number]
    if schedule.ramp == "whole":
        if number + 1 == len(points):
            return own
        after, part = normalised(schedule.at[points[number + 1]]), at / (points[number + 1] - points[number])
        return [a + (b - a) * part for a, b in zip(own, after, strict=True)]
    if number == 0 or at >= schedule.ramp:
        return own
    before, part = normalised(schedule.at[points[number - 1]]), at / schedule.ramp
    return [a + (b - a) * part for a, b in zip(before, own, strict=True)]


def normalised(weights: Any) -> list[Fraction]:
    exact = [Fraction(weight) for weight in weights]
    return [weight / sum(exact) for weight in exact]


def wish(schedule: Schedule, end: int) -> list[Fraction]:
    """The sum of the shares of the first samples: the mean of the ends of each straight stretch is exact."""
    ramps = [] if schedule.ramp == "whole" else [point + schedule.ramp for point in list(schedule.at)[1:]]
    bends = sorted({0, end, *(bend for bend in [*schedule.at, *ramps] if bend < end)})
    found = [Fraction(0)] * schedule.width
    for first, last in itertools.pairwise(bends):
        middle = share_at(schedule, Fraction(first + last, 2))
        found = [one + (last - first) * share for one, share in zip(found, middle, strict=True)]
    return found


def marks_of(course: Course, end: int) -> list[Any]:
    """The ends of all blocks up to a sample of the run, or to the run's end."""
    end, marks = course.reach(end), []
    while not marks or marks[-1].given < end:
        before, after = course.block(marks[-1].given if marks else 0)
        marks += [after] if marks else [before, after]
    return marks


def test_at_each_blocks_end_each_source_has_its_wish_rounded() -> None:
    """Not only within two samples, as promised: within one, up or down."""
    draw, blocks = np.random.default_rng([SEED, 1]), 0
    for case in range(how_many(40, 1000)):
        sources = 100 if case % 20 == 19 else int(draw.integers(1, 9))
        schedule = drawn_schedule(draw, sources)
        marks = marks_of(Course(schedule, MixtureStart.of_run(sources)), 70_000)
        blocks += len(marks) - 1
        for before, after in itertools.pairwise(marks):
            wished = wish(schedule, after.given)
            off = [abs(int(count) - one) for count, one in zip(after.counts, wished, strict=True)]
            assert after.counts.sum() == after.given, as_drawn(case)
            assert (after.counts >= before.counts).all(), as_drawn(case)
            assert max(off) < 1 + 1e-6, as_drawn((case, schedule, after.given))
    assert blocks > 17 * how_many(40, 1000)


def counted_one_by_one(schedule: Schedule, limits: list[int], end: int) -> tuple[list[list[float]], int]:
    """Each source's wish after each sample, when exhausted sources' shares go to the others; and the end."""
    wished, rows = np.zeros(len(limits)), [[0.0] * len(limits)]
    shares = np.array([[float(one) for one in normalised(schedule.at[point])] for point in schedule.at])
    points = list(schedule.at)
    for sample in range(end):
        share = shares[max(number for number, point in enumerate(points) if point <= sample)].copy()
        need = 1.0
        while need > 1e-9:  # a source may be exhausted within this sample
            share[wished > np.array(limits) - 1e-6] = 0
            if not share.any():
                return rows, sample
            gain = np.minimum(share / share.sum() * need, np.array(limits) - wished)
            wished, need = wished + gain, need - gain.sum()
        rows.append(wished.tolist())
    return rows, end


def test_an_exhausted_sources_share_goes_to_the_others() -> None:
    draw = np.random.default_rng([SEED, 2])
    ended = 0
    for case in range(how_many(12, 300)):
        sources = int(draw.integers(1, 6))
        schedule = drawn_schedule(draw, sources)
        schedule = Schedule(schedule.at, 0)
        limits = draw.integers(1, 4000, sources)
        course = Course(schedule, MixtureStart.of_run(sources), limits)
        rows, end = counted_one_by_one(schedule, limits.tolist(), 9000)
        marks = marks_of(course, 9000)
        if course.end is None:
            assert end == 9000, as_drawn(case)
        else:  # wishes that stay fractions may be rounded up
            assert 0 <= course.end - end <= sources, as_drawn(case)
        ended += course.end is not None
        for mark in marks:
            if mark.given < len(rows):
                assert mark.counts.sum() == mark.given, as_drawn(case)
                assert (mark.counts <= limits).all(), as_drawn(case)
                assert np.abs(mark.counts - rows[mark.given]).max() < 2, as_drawn(
                    (case, schedule, mark.given)
                )
    assert ended > 3


def test_bounds_on_ramps_are_kept_and_reached() -> None:
    draw, ended = np.random.default_rng([SEED, 3]), 0
    for case in range(how_many(12, 300)):
        sources = int(draw.integers(1, 9))
        schedule = drawn_schedule(draw, sources)
        limits = draw.integers(1, 9000, sources)
        course = Course(schedule, MixtureStart.of_run(sources), limits)
        marks = marks_of(course, 80_000)
        spent = {source for _, source in course.exhausted}
        for before, after in itertools.pairwise(marks):
            assert after.counts.sum() == after.given, as_drawn(case)
            assert (after.counts >= before.counts).all(), as_drawn(case)
            assert (after.counts <= limits).all(), as_drawn(case)
            assert np.abs(after.owed).max() < 2 * UNIT, as_drawn(case)
        assert spent, as_drawn(case)
        for source in spent:
            assert marks[-1].counts[source] == limits[source], as_drawn(case)
        stopping = Course(schedule, MixtureStart.of_run(sources), limits, stops=True)
        assert stopping.reach(80_000) == stopping.end == course.exhausted[0][0], as_drawn(case)
        ended += 1
    assert ended == how_many(12, 300)


# ---- The order ---------------------------------------------------------------------------------------


def order_of(
    sizes: list[int],
    schedule: Schedule,
    num_samples: int,
    seed: int = 3,
    limits: list[int] | None = None,
    start: MixtureStart | None = None,
) -> ScheduledOrder:
    start = start or MixtureStart.of_run(len(sizes))
    course = Course(schedule, start, None if limits is None else np.array(limits))
    return ScheduledOrder(np.array(sizes), [f"set{i}" for i in sizes], num_samples, seed, course, start)


def epoch_ids(order: ScheduledOrder, epoch: int) -> list[int]:
    return order.ids(np.arange(order.total(epoch)), epoch).tolist()


def plain_walk(size: int, seed: int, walk: int, steps: int) -> list[int]:
    """Shuffle after shuffle of one source."""
    rounds = range(-(-steps // size))
    found = [shuffled(np.arange(size), size, derived_seed(seed, walk), turn) for turn in rounds]
    return np.concatenate(found)[:steps].tolist() if steps else []


def test_each_source_is_walked_pass_after_pass_through_all_epochs() -> None:
    draw, walks = np.random.default_rng([SEED, 4]), 0
    for case in range(how_many(10, 200)):
        sizes = draw.integers(1, 3000, int(draw.integers(1, 6))).tolist()
        order = order_of(sizes, drawn_schedule(draw, len(sizes)), int(draw.integers(1, 6000)))
        ids = np.array([one for epoch in range(4) for one in epoch_ids(order, epoch)])
        firsts = np.cumsum(sizes) - sizes
        parts = np.searchsorted(np.cumsum(sizes), ids, side="right")
        for part, size in enumerate(sizes):
            own = (ids[parts == part] - firsts[part]).tolist()
            assert own == plain_walk(size, 3, part, len(own)), as_drawn(case)
            walks += 1
        counted = np.bincount(parts, minlength=len(sizes))
        assert order.given(3, order.total(3)).tolist() == counted.tolist(), as_drawn(case)
        at = int(draw.integers(len(ids)))
        epoch, position = divmod(at, order.total(0))
        counted = np.bincount(parts[:at], minlength=len(sizes))
        assert order.given(epoch, position).tolist() == counted.tolist(), as_drawn(case)
    assert walks > how_many(10, 200)


HALF = Schedule({0: [3, 1], 5000: [0, 1], 12000: [1, 1]}, 1000)


def test_positions_in_any_order_and_number_give_the_same() -> None:
    whole = np.array(epoch_ids(order_of([900, 40], HALF, 9000), 1))
    positions = np.random.default_rng(0).permutation(9000)
    assert np.array_equal(order_of([900, 40], HALF, 9000).ids(positions, 1), whole[positions])
    for position in (0, 1, 2999, 4095, 8999):
        again = order_of([900, 40], HALF, 9000)
        assert again.ids(np.array([position]), 1)[0] == whole[position]


@pytest.mark.parametrize("world", [1, 2, 3, 8])
def test_ranks_divide_it_and_go_on_anywhere(world: int) -> None:
    order = order_of([700, 200], HALF, 6000)
    whole = epoch_ids(order, 1)
    assert len(whole) == 6000
    ranks = [Sampler(order, Partition(24 // world, rank, world)) for rank in range(world)]
    for start in range(0, 6000, how_many(24 * 31, 24)):
        steps = range(ranks[0].num_batches(1, start))
        found = [int(i) for step in steps for rank in ranks for i in rank.batch(1, start, step).ids]
        assert found == whole[start:]


def test_seed_and_block_change_which_source_comes_when() -> None:
    def sources(seed: int, epoch: int) -> list[bool]:
        order = order_of([50, 50], Schedule({0: [1, 1]}), 4096, seed)
        return [i < 50 for i in epoch_ids(order, epoch)]

    assert sources(1, 0) == sources(1, 0)
    assert sources(1, 0) != sources(1, 1)
    assert sources(1, 0) != sources(2, 0)


def test_a_source_that_begins_later_and_one_that_ends() -> None:
    order = order_of([50, 50], Schedule({0: [1, 0], 1000: [1, 1], 2000: [0, 1]}), 500)
    shares = [np.mean([i >= 50 for i in epoch_ids(order, epoch)]) for epoch in range(6)]
    assert [*shares[:2], *shares[4:]] == [0, 0, 1, 1]
    assert np.allclose(shares[2:4], 0.5, atol=0.1)
    assert order.wished(2, 0).tolist() == [0.5, 0.5]


def test_the_run_ends_and_says_so_once() -> None:
    """Of 30 and 60 samples once each, in equal shares: the first is exhausted after 60, the run after 90."""
    order = order_of([30, 60], Schedule({0: [1, 1]}), 40, limits=[30, 60])
    assert order.total(0) == 40
    with pytest.warns(UserWarning, match="max_epochs") as caught:
        assert [order.total(epoch) for epoch in (1, 2, 3, 9)] == [40, 10, 0, 0]
    assert [str(one.message) for one in caught] == [
        "The mix's set30 has given 30 samples, all that max_epochs allows, at sample 60 of the run (epoch "
        "1, position 20): its share goes to the others from there on.",
        "The mix's set60 has given 60 samples, all that max_epochs allows, at sample 90 of the run (epoch "
        "2, position 10): the mix ends there, and later epochs have none.",
    ]
    ids = [one for epoch in range(3) for one in epoch_ids(order, epoch)]
    assert sorted(ids) == list(range(90))
    assert order.total(2) == 10
    assert order.given(7, 0).tolist() == [30, 60]
    assert order.wished(2, 10).tolist() == [0, 0]
    sampler = Sampler(order, Partition(4))
    assert [sampler.num_batches(epoch) for epoch in (0, 2, 3)] == [10, 3, 0]


@pytest.mark.parametrize("sources", [2, 100])
def test_a_place_far_away_costs_little(sources: int) -> None:
    """10^10 samples: blocks grow, so that there are 33,000 of them; each of 64 is kept."""
    schedule = Schedule({0: [1] * sources, 10**10: [1, *[2] * (sources - 1)]}, "whole")
    order = order_of([10**8] * sources, schedule, 10**7)
    ids = order.ids(np.arange(512) + 1234, 999)
    assert len(np.unique(ids)) == 512
    assert len(order._course._marks) < 600
    counts = order.given(999, 10**7)
    assert np.abs(counts - np.array([float(one) for one in wish(schedule, 10**10)])).max() < 2


def test_what_comes_before_a_migrated_mix_began() -> None:
    """Partners and substitutes may come from there, and are of the mix; earlier epochs are refused."""
    start = MixtureStart(1060, 3, 60, (700, 0), (0, 4), 5)
    order = order_of([50, 70], Schedule({0: [1, 1]}), 100, start=start)
    assert order.total(3) == order.total(4) == 100
    ids = order.ids(np.arange(100), 3)
    assert ((ids >= 0) & (ids < 120)).all()
    assert set(ids[:60].tolist()) <= set(ids[60:].tolist())
    own = [int(i) for i in ids[60:] if i < 50]
    assert own == plain_walk(50, 3, 0, 700 + len(own))[700:]
    new = [int(i) - 50 for i in ids[60:] if i >= 50]
    assert new == plain_walk(70, 3, 4, len(new))
    with pytest.raises(StateError, match="This mix began in epoch 3, by fastload.* Found: epoch 2"):
        order.total(2)


# ---- Arguments, and the start in a state -------------------------------------------------------------


@given(st.lists(st.floats(0, 1e300), min_size=1, max_size=9).filter(any))
@settings(deadline=None)
def test_exact_shares(weights: list[float]) -> None:
    found = exact_shares(weights)
    assert found.sum() == UNIT
    wished = [weight * UNIT for weight in normalised(weights)]
    tiny = sum(0 < wish < 1 for wish in wished)
    assert all((one > 0) == (wish > 0) for one, wish in zip(found, wished, strict=True))
    assert all(abs(int(one) - wish) < 1 + tiny for one, wish in zip(found, wished, strict=True))


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (([1, 2],), TypeError, "Schedule takes a dict of weights by sample"),
        (({},), ValueError, r"says the weights from sample 0 on. Found: points \[\]"),
        (({5: [1]},), ValueError, r"from sample 0 on. Found: points \[5\]"),
        (({0: [1], -1: [1]},), ValueError, "integers >= 0 and < 2\\*\\*62. Found: -1"),
        (({0: [1], 1.5: [1]},), ValueError, "Found: 1.5"),
        (({0: [1], 2**62: [1]},), ValueError, "Found: 4611686018427387904"),
        (({0: 1},), TypeError, "Weights at sample 0 must be a list of numbers. Found: 1"),
        (({0: [1, "x"]},), TypeError, "must be a list of numbers"),
        (({0: [0, 0]},), ValueError, "not all of them 0. Found: \\[0.0, 0.0\\]"),
        (({0: [1, -1]},), ValueError, "finite numbers >= 0"),
        (({0: [1, float("nan")]},), ValueError, "finite numbers >= 0"),
        (({0: [1, 1], 5: [1]},), ValueError, "as many weights at each point.* Found: 2 at 0, 1 at 5"),
        (({0: [1]}, -1), ValueError, 'ramp must be a number of samples >= 0, or "whole". Found: -1'),
        (({0: [1]}, "all"), ValueError, "Found: 'all'"),
        (({0: [1], 5: [1], 9: [1]}, 5), ValueError, "follows after 4 samples. Found: 5"),
    ],
)
def test_illegal_schedules(arguments: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        Schedule(*arguments)


def test_points_come_in_any_order() -> None:
    assert list(Schedule({9: [1], 0: [2], 4: [3]}, 5).at) == [0, 4, 9]


STARTS = st.builds(
    lambda head, counts, walks, mix: MixtureStart(
        *head, tuple(counts), tuple(walks[: len(counts)]), 900, mix
    ),
    st.tuples(*[st.integers(0, 2**62)] * 3),
    st.lists(st.integers(0, 2**50), min_size=1, max_size=40),
    st.permutations(range(40)),
    st.integers(0, 2**64 - 1),
)


@given(STARTS, st.integers(0, 10**6), st.integers(0, 10**6))
@settings(deadline=None)
def test_the_text_of_a_start(start: MixtureStart, place: int, other: int) -> None:
    text = start.to_text()
    assert MixtureStart.from_text(json.loads(json.dumps(text))) == start
    damaged = list(text)
    damaged[place % len(text)] = "0123456789ABCDEF"[other % 16]
    if "".join(damaged) != text:
        with pytest.raises(
            StateError, match="mixture of a loader state must be as fastload.migrate wrote it"
        ):
            MixtureStart.from_text("".join(damaged))


@pytest.mark.parametrize("text", [None, 5, "", "abc", "ä", "Ü" * 9, [1]])
def test_other_texts_are_refused(text: object) -> None:
    with pytest.raises(StateError, match="the state is damaged"):
        MixtureStart.from_text(text)


def test_no_warning_of_sources_that_go_on() -> None:
    """A source that is exhausted in a later epoch is not told of before that."""
    order = order_of([30, 60], Schedule({0: [1, 1]}), 40, limits=[40, 99])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert [order.total(epoch) for epoch in (0, 1)] == [40, 40]
    with pytest.warns(UserWarning, match="set30 has given 40 samples"):
        assert order.total(2) == 40
