"""A report's sections: verdict, loop, loader's clocks, sample costs, mixing of the order, and ranks."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from copy import copy
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fastload.dataset.generations import order_of
from fastload.diagnose.causes import BY_KEY
from fastload.diagnose.facts import Fix, Loop, Sentence, Stage, Verdict
from fastload.diagnose.pages.measured import STAGES, Costs, SampleCost, Timeline
from fastload.diagnose.pages.page import (
    COLOURS,
    INK,
    ReportPart,
    amount,
    drawing,
    inline,
    logarithmic,
    new_figure,
    rate,
    seconds,
    share,
    table,
    tidy,
    tiles,
    words,
)
from fastload.diagnose.ranks import Gathered, RankClocks
from fastload.sampler import Partition, Sampler
from fastload.sampler.quality import Quality, measure
from fastload.shard.dataset import PackedFiles

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from fastload.loader.view import LoaderView


# ---- Costs of single samples ------------------------------------------------------------------------

_SLOWEST = 12
_BAD = 5  # bad samples that are named; the others are counted
_QUANTILES = ((0.5, "median"), (0.95, "95%"), (0.99, "99%"))


def costs_part(costs: Costs) -> ReportPart | None:
    """Make a histogram and two tables; None if there are no samples."""
    if not costs.samples and not costs.bad:
        return None
    body = ""
    if costs.samples:
        times = np.array([sample.decode for sample in costs.samples])
        body = f"<p>{escape(_words(costs, times))}</p>{_histogram(times)}"
        slowest = sorted(costs.samples, key=lambda sample: -sample.decode)[:_SLOWEST]
        heads = ("The slowest", "Decode", "Median ×", "Read", "Pixels", "Bytes", "Codec")
        rows = [_row(sample, float(np.median(times))) for sample in slowest]
        body += table(heads, rows, numbers=(1, 2, 3, 4, 5)) + _codecs(costs)
    if costs.bad:
        named = "".join(
            f"<li>{escape(key)}: <small>{escape(error)}</small></li>" for key, error in costs.bad[:_BAD]
        )
        more = f"<li>and {len(costs.bad) - _BAD:,} more</li>" if len(costs.bad) > _BAD else ""
        body += f"<p>Could not be decoded: {len(costs.bad):,}.</p><ul>{named}{more}</ul>"
    return ReportPart("What single samples cost", body)


def _words(costs: Costs, times: NDArray[np.float64]) -> str:
    top = max(1, len(times) // 100)
    of_slowest = float(np.sort(times)[-top:].sum() / times.sum())
    field = f" (field {costs.field!r})" if costs.field else ""
    return (
        f"{len(times):,} of {costs.of:,} samples{field} were read and decoded one by one, whole, on one "
        f"thread. The median takes {seconds(float(np.median(times)))} of CPU time, the slowest "
        f"{seconds(float(times.max()))}. "
        f"The slowest {share(top / len(times))} take {share(of_slowest)} of the time."
    )


def _row(sample: SampleCost, median: float) -> tuple[str, ...]:
    pixels = f"{sample.width}×{sample.height}" if sample.width else "-"
    name = f"{escape(sample.key)}<br><small>sample {sample.sample:,}, {escape(sample.shard)}</small>"
    relative = f"{sample.decode / median:.1f}" if median > 0 else "-"
    read, decode = seconds(sample.read), seconds(sample.decode)
    return name, decode, relative, read, pixels, amount(sample.length), escape(sample.codec)


def _codecs(costs: Costs) -> str:
    """Make a table of codecs: samples, times and speed of each."""
    names = sorted({sample.codec for sample in costs.samples})
    total = sum(sample.decode for sample in costs.samples)
    rows = []
    for name in names:
        own = [sample for sample in costs.samples if sample.codec == name]
        spent = sum(sample.decode for sample in own)
        pixels = sum(sample.width * sample.height for sample in own)
        speed = f"{pixels / spent / 1e6:.0f} MP/s" if pixels and spent else "-"
        rows.append((escape(name), f"{len(own):,}", seconds(spent / len(own)), speed, share(spent / total)))
    return table(("Codec", "Samples", "Mean", "Pixels per second", "Of the time"), rows, numbers=(1, 2, 3, 4))


def _histogram(times: NDArray[np.float64]) -> str:
    ms = 1e3 * times
    spreads = ms.min() > 0 and ms.max() / ms.min() > 12
    edges = np.geomspace(ms.min(), ms.max(), 41) if spreads else np.linspace(0, 1.02 * ms.max(), 41)
    edges[-1] = math.nextafter(float(edges[-1]), math.inf)  # or the largest may lie above it
    with drawing():
        figure = new_figure(2.5)
        axes = figure.subplots()
        counts, _, _ = axes.hist(ms, bins=edges.tolist(), color=COLOURS["decode"])
        axes.set_ylim(0, 1.32 * float(np.max(counts)))  # room for the marks' names
        if spreads:
            logarithmic(axes)
        axes.set_xlim(float(edges[0]), float(edges[-1]))
        _marks(axes, ms, float(np.max(counts)), math.sqrt(edges[0] * edges[-1]) if spreads else edges[-1] / 2)
        axes.set_xlabel("ms of CPU time to decode a sample" + (" (logarithmic)" if spreads else ""))
        axes.set_ylabel("samples")
        tidy(axes)
        return inline(figure, "costs", "A histogram of the time that single samples take to decode")


def _marks(axes: Axes, values: NDArray[np.float64], top: float, middle: float) -> None:
    """Draw lines at the quantiles; their names are at different heights and cross no line."""
    marks = [(float(np.quantile(values, part)), name) for part, name in _QUANTILES]
    right = [(value, name, 5, "left") for value, name in marks if value <= middle]
    left = [(value, name, -5, "right") for value, name in reversed(marks) if value > middle]
    for at, (value, name, aside, side) in enumerate([*right, *left]):
        height = top * (1.25 - 0.11 * at)
        axes.vlines(value, 0, height, color=COLOURS["wait"], linewidth=1, linestyle=(0, (4, 3)))
        words = f"{name}: {seconds(value / 1e3)}"
        axes.annotate(words, (value, height), (aside, 0), textcoords="offset points", ha=side, va="center")


# ---- A loader's clocks ------------------------------------------------------------------------------

_SPAN = 0.1  # seconds per column, enough for many samples
_COLUMNS = 90
_WORDS = {"shard": "read", "decode": "decode", "transform": "transform"}


def timeline_part(moments: Timeline, what: str) -> ReportPart | None:
    """Draw busy threads by stage, and the queue's depth; None if too little was seen.

    Args:
        what: when this was, in words that begin the sentence.
    """
    if len(moments) < 3 or moments.threads < 1 or moments.times[-1] <= 0:
        return None
    edges, busy = moments.busy(max(1, min(_COLUMNS, int(moments.times[-1] / _SPAN))))
    with drawing():
        figure = new_figure(3.9)
        above, below = figure.subplots(2, 1, sharex=True, height_ratios=(3, 2))
        base = np.zeros(busy.shape[1])
        for name, threads in zip(STAGES, busy, strict=True):
            top = base + threads
            above.stairs(top, edges, baseline=base, fill=True, color=COLOURS[name], label=_WORDS[name])
            base = top
        above.axhline(moments.threads, color=COLOURS["prefetch"], linewidth=1, linestyle=(0, (4, 3)))
        above.set_ylim(0, 1.1 * max(moments.threads, float(base.max())))
        above.set_ylabel("busy threads")
        below.plot(moments.times, moments.ahead, color=COLOURS["loader"], linewidth=1.4)
        below.fill_between(moments.times, moments.ahead, color=COLOURS["loader"], alpha=0.25, linewidth=0)
        below.set_ylim(0, 1.1 * max(1.0, float(moments.ahead.max())))
        below.set_ylabel("batches ahead")
        below.set_xlabel("seconds")
        below.set_xlim(0, float(moments.times[-1]))
        figure.legend(loc="outside upper left", ncols=3)
        tidy(above)
        tidy(below)
        drawn = inline(figure, "threads", "Threads busy with each stage, and batches that are decoded ahead")
    used = float(busy.sum(axis=0) @ np.diff(edges)) / float(edges[-1])
    words = (
        f"{what} {used:.2f} of {moments.threads} threads (the dashed line) were busy, and "
        f"{moments.ahead.mean():.1f} batches were decoded ahead of the consumer, on average. If none is "
        "ahead, the loader is the bottleneck; if always as many as allowed, the consumer is."
    )
    return ReportPart("Threads and queue", f"<p>{escape(words)}</p>" + drawn)


def waterfall_part(stats: Mapping[str, Any], what: str) -> ReportPart | None:
    """Draw where a sample's time goes, stage by stage; None if our threads decoded nothing.

    Args:
        what: a sentence that says whose clocks these are.
    """
    stages, threads = stats["stages"], max(1, int(stats["threads"]))
    count = stages["decode"]["count"]
    spent = {name: stages[name]["seconds"] / count for name in STAGES} if count else {}
    total = sum(spent.values())
    if total <= 0:
        return None
    bars = [(_WORDS[name], value, COLOURS[name], True) for name, value in spent.items()]
    bars.append((f"of {threads} at once", total / threads, COLOURS["loader"], False))
    rows = [
        (_WORDS[name], seconds(value), share(value / total), "a thread's time")
        for name, value in spent.items()
    ]
    rows.append(
        ("all of them", seconds(total), "", f"at most {rate(threads / total)} with {threads} at once")
    )
    transfer = stages.get("transfer", {})
    if transfer.get("seconds") and stats["samples"]:
        copied = transfer["seconds"] / stats["samples"]
        bars.append(("to the device", copied, COLOURS["transfer"], False))
        rows.append(("to the device", seconds(copied), "", "the copy engine's time"))
    spacing = 1 / stats["images_per_second"] if stats["images_per_second"] > 0 else 0.0
    if spacing:
        wait = spacing * stats["data_wait"]["share"]
        bars += [("step", spacing - wait, COLOURS["step"], False), ("waiting", wait, COLOURS["wait"], True)]
        rows.append(("step", seconds(spacing - wait), share(1 - wait / spacing), "the loop's time"))
        rows.append(("waiting for data", seconds(wait), share(wait / spacing), "the loop's time"))
    heads = ("Where", "Per sample", "Share", "")
    body = f"<p>{escape(what)}</p>" + _waterfall(bars) + table(heads, rows, numbers=(1, 2))
    return ReportPart("Where a sample's time goes", body)


def _waterfall(bars: list[tuple[str, float, str, bool]]) -> str:
    """Draw a bar for each (name, seconds, colour, whether it begins where the previous one ends)."""
    with drawing():
        figure = new_figure(0.75 + 0.34 * len(bars))
        axes = figure.subplots()
        begin = end = 0.0
        for at, (_, value, colour, goes_on) in enumerate(bars):
            begin = end if goes_on else 0.0
            end = begin + value
            axes.barh(at, 1e3 * value, left=1e3 * begin, color=colour, height=0.62)
            axes.annotate(seconds(value), (1e3 * end, at), (4, 0), textcoords="offset points", va="center")
        axes.set_yticks(range(len(bars)), [name for name, *_ in bars])
        axes.set_xlim(0, 1.13 * axes.get_xlim()[1])
        axes.set_xlabel("ms per sample")
        axes.invert_yaxis()
        tidy(axes, "x")
        return inline(figure, "waterfall", "Bars, one after the other: where a sample's time goes")


def read_part(stats: Mapping[str, Any]) -> ReportPart | None:
    """Show what was read, from where, and by which decoder; None if our threads decoded nothing."""
    count = stats["stages"]["decode"]["count"]
    if not count:
        return None
    ahead, cache = stats["read_ahead"], stats["cache"]
    paths = {name: n for name, n in stats["decoded"].items() if n and name != "warnings"}
    rows = [
        ("samples decoded", f"{count:,}, of which {stats['samples']:,} were delivered"),
        ("encoded bytes", f"{amount(stats['bytes'])}, {amount(stats['bytes'] / count)} per sample"),
        ("decoded by", ", ".join(f"{escape(name)}: {n:,}" for name, n in paths.items()) or "-"),
        ("bad samples", f"{stats['faults']:,}"),
    ]
    if stats["first_batch_seconds"] is not None:
        rows.append(("first batch after", seconds(stats["first_batch_seconds"])))
    if ahead:
        storage = f"{ahead['requests']:,} requests, {amount(ahead['bytes'])}"
        from_where = f"{ahead['resident']:,} in memory, {ahead['ahead']:,} read ahead"
        records = f"{from_where}, {ahead['late']:,} too late"
        rows += [("read from storage", storage), ("records looked up", records)]
    asked = cache.get("hits", 0) + cache.get("misses", 0)
    if asked:
        hits = (
            f"{share(cache['hits'] / asked)} of {asked:,} records were found ({escape(str(cache['tier']))})"
        )
        rows.append(("node cache", f"{hits}; {amount(cache['bytes'])} of memory"))
    elif cache.get("reason"):
        rows.append(("node cache", escape(str(cache["reason"]))))
    return ReportPart("What was read", table(("Since the loader was made", ""), rows))


# ---- A watched loop, batch by batch -----------------------------------------------------------------

_LISTED = 6  # values shown of a list
_LOOP_COLUMNS = 160  # more could not be told apart


def grouped(values: NDArray[np.float64], columns: int) -> NDArray[np.float64]:
    """Return the means of at most ``columns`` runs of consecutive values, of nearly equal lengths."""
    if len(values) <= columns:
        return values
    begins = np.linspace(0, len(values), columns + 1).astype(np.int64)
    sums: NDArray[np.float64] = np.add.reduceat(values, begins[:-1])
    return sums / np.diff(begins)


def loop_part(loop: Loop) -> ReportPart | None:
    """Draw waiting and steps over time, with tables; None for a loop without batches."""
    if len(loop.wait) == 0:
        return None
    heads = ("Per batch", "mean", "median", "95% below", "longest")
    rows = [_spread("waiting for data", loop.wait), _spread("the step", loop.step)]
    body = (
        _timeline(loop)
        + table(heads, rows, numbers=(1, 2, 3, 4))
        + table(("Of the loop", ""), _facts(loop))
        + _notes(loop)
    )
    return ReportPart("Batch by batch", body)


def _spread(name: str, values: NDArray[np.float64]) -> tuple[str, ...]:
    low, high = (float(q) for q in np.quantile(values, (0.5, 0.95)))
    return (name, *(seconds(v) for v in (float(values.mean()), low, high, float(values.max()))))


def _facts(loop: Loop) -> list[tuple[str, str]]:
    busy = loop.loader_cpu / loop.seconds if loop.seconds > 0 else 0.0
    rows = [
        ("batches watched", f"{len(loop.wait):,} of {loop.batch_size} samples, {seconds(loop.seconds)}"),
        (
            "CPUs",
            f"{loop.cpus:g} may be used; {busy:.2f} busy with loading ({loop.threads} threads or workers), "
            f"{loop.loop_cpu / max(loop.seconds, 1e-9):.2f} with the loop itself",
        ),
    ]
    if loop.read_bytes is not None:
        per_second = amount(loop.read_bytes / max(loop.seconds, 1e-9))
        rows.append(("read from storage", f"{amount(loop.read_bytes)}, {per_second} per second"))
    if loop.copied_bytes is not None:
        rows.append(("copied to the device", amount(loop.copied_bytes)))
    return rows


def _notes(loop: Loop) -> str:
    """Make a folded table of the loop's notes."""
    rows = [
        (escape(name.replace("_", " ")), escape(_plain(name, value))) for name, value in loop.notes.items()
    ]
    if not rows:
        return ""
    return f"<details><summary>What else was seen</summary>{table(('', ''), rows)}</details>"


def _plain(name: str, value: object) -> str:
    """Write a note's value in the unit that its name implies."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float):
        if name.endswith("_seconds"):
            return seconds(value)
        return amount(value) if name.endswith(("_bytes", "_free")) else f"{value:,g}"
    if isinstance(value, list | tuple):
        first = ", ".join(_plain(name, each) for each in value[:_LISTED])
        return f"{first}, ... ({len(value):,} in all)" if len(value) > _LISTED else first
    return str(value)


def _ready(loop: Loop) -> NDArray[np.float64] | None:
    """Return how many batches were ready at each request; None: not known."""
    counts = loop.notes.get("ready_batches")
    if not isinstance(counts, list | tuple) or len(counts) != len(loop.wait) or None in counts:
        return None
    return np.array(counts, np.float64)


def _timeline(loop: Loop) -> str:
    wait, step = grouped(loop.wait, _LOOP_COLUMNS), grouped(loop.step, _LOOP_COLUMNS)
    edges = np.concatenate(([0.0], np.cumsum(wait + step)))
    edges *= loop.seconds / edges[-1] if edges[-1] > 0 else 1.0
    ready = _ready(loop)
    with drawing():
        figure = new_figure(2.6 if ready is None else 3.6)
        below = None
        if ready is None:
            axes = figure.subplots()
        else:
            axes, below = figure.subplots(2, 1, sharex=True, height_ratios=(3, 1.3))
            depths = grouped(ready, _LOOP_COLUMNS)
            below.stairs(depths, edges, fill=True, color=COLOURS["loader"])
            below.set_ylim(0, 1.15 * max(1.0, float(depths.max())))
            below.set_ylabel("ready")
            tidy(below)
        axes.stairs(1e3 * step, edges, fill=True, color=COLOURS["step"], label="step")
        both = 1e3 * (step + wait)
        axes.stairs(
            both, edges, baseline=1e3 * step, fill=True, color=COLOURS["wait"], label="waiting for data"
        )
        axes.set_xlim(0, edges[-1])
        axes.set_ylim(0, 1.08 * float(both.max()) or 1.0)
        also = "" if below is None else "; below: batches that were ready when one was asked for"
        (below or axes).set_xlabel(f"seconds since the loop's second batch{also}")
        axes.set_ylabel("ms per batch")
        figure.legend(loc="outside upper left", ncols=2)
        tidy(axes)
        return inline(figure, "loop", "Each batch's step, and the time waited for data before it")


# ---- Mixing of the order ----------------------------------------------------------------------------


def measure_mixing(loader: LoaderView, epoch: int = 0) -> dict[str, Quality] | None:
    """Measure the loader's order, a uniform shuffle and no shuffle, in one process's batches.

    Returns:
        None with a user's sampler, which perhaps may be asked only once, and for several sets, which have no
        common order on disk.
    """
    dataset = loader.opened
    if loader.order.is_given or not isinstance(dataset, PackedFiles) or not len(dataset):
        return None
    partition = Partition(min(loader.options.batch_size, len(dataset)))
    own = copy(loader.core)
    own.partition = Partition(loader.options.batch_size)
    return {
        "this loader": measure(own, dataset.labels, epoch),
        "a uniform shuffle": measure(Sampler(order_of(dataset, 0, True), partition), dataset.labels),
        "no shuffle": measure(Sampler(order_of(dataset, 0, False), partition), dataset.labels),
    }


def mixing_part(found: dict[str, Quality], has_classes: bool) -> ReportPart:
    """Make a table with a row for each order."""
    heads = ("Order", "Classes per batch", "Chi-square", "With its neighbour", "Distance")
    rows = [
        (
            name,
            f"{quality.classes:.1f}" if has_classes else "-",
            f"{quality.class_chi2:.2f}" if has_classes else "-",
            share(quality.together),
            f"{quality.distance:.3f}",
        )
        for name, quality in found.items()
    ]
    words = (
        "<p><small>Chi-square: of a batch's classes; independent draws have 1. With its neighbour: samples "
        "whose successor on disk is in the same batch. Distance: the mean between place on disk and place "
        "in the epoch, as a share of the set; independent draws have 1/3.</small></p>"
    )
    return ReportPart("How well the order mixes", table(heads, rows, numbers=(1, 2, 3, 4)) + words)


# ---- Rank by rank -----------------------------------------------------------------------------------

_MOST = 64  # bars, for the ranks that wait most


def ranks_part(gathered: Gathered) -> ReportPart:
    """Draw each rank's waiting and step, with a table."""
    used = [each for each in gathered.clocks.values() if each.batches]
    most = sorted(sorted(used, key=lambda each: -each.batch_wait)[:_MOST], key=lambda each: each.rank)
    heads = ("Rank", "Host", "Samples", "Waiting", "Per batch", "Threads", "Read", "Decode", "Transform")
    rows = [_rank_row(each) for each in most]
    left = len(used) - len(most)
    more = f"<p><small>{left:,} more ranks wait less than these.</small></p>" if left else ""
    numbers = (2, 3, 4, 5, 6, 7, 8)
    body = (
        f"<p>{escape(str(gathered))}</p>" + (_bars(most) if most else "") + table(heads, rows, numbers) + more
    )
    return ReportPart("Rank by rank", body)


def _rank_row(each: RankClocks) -> tuple[str, ...]:
    count = max(1, each.decoded)
    stages = (seconds(spent / count) for spent in (each.read, each.decode, each.transform))
    speed = rate(each.samples / each.seconds if each.seconds > 0 else 0.0)
    waits = (share(each.wait_share), seconds(each.batch_wait))
    return (str(each.rank), escape(each.host), speed, *waits, str(each.threads), *stages)


def _bars(clocks: list[RankClocks]) -> str:
    with drawing():
        figure = new_figure(2.6)
        axes = figure.subplots()
        places = range(len(clocks))
        step = [1e3 * (each.batch_seconds - each.batch_wait) for each in clocks]
        wait = [1e3 * each.batch_wait for each in clocks]
        axes.bar(places, step, color=COLOURS["step"], width=0.7, label="step, and waiting for other ranks")
        axes.bar(places, wait, bottom=step, color=COLOURS["wait"], width=0.7, label="waiting for data")
        every = -(-len(clocks) // 20)  # the names of all would overlap
        axes.set_xticks(places[::every], [str(each.rank) for each in clocks[::every]])
        axes.set_xlim(-0.6, max(3, len(clocks)) - 0.4)
        axes.set_xlabel("rank")
        axes.set_ylabel("ms per batch")
        figure.legend(loc="outside upper left", ncols=2)
        tidy(axes)
        return inline(figure, "ranks", "Bars: each rank's step, and how long it waits for data")


# ---- Verdict, fixes and stages ----------------------------------------------------------------------


def _title(limit: str) -> str:
    """Return a cause's name in words."""
    return BY_KEY[limit].title if limit in BY_KEY else limit


def verdict_part(verdict: Verdict, by: str = "") -> ReportPart:
    """Show the verdict's sentences, with evidence to unfold, and the three rates.

    Args:
        by: who gives the verdict, shown in place of its limit.
    """
    first, rest = verdict.sentences[:1], verdict.sentences[1:]
    head = words(first[0].text) if first else escape(_title(verdict.limit))
    kicker = by or _title(verdict.limit)
    if verdict.loop is not None:
        kicker += f" · {verdict.loop.loader}"
    numbers = [(rate(verdict.rate), "samples in the loop")]
    if verdict.quiet_rate > 0:
        numbers.append((rate(verdict.quiet_rate), "if nothing else used the CPUs"))
    if verdict.loader_rate > 0:
        numbers.append((rate(verdict.loader_rate), "by the loader alone"))
    if verdict.step_rate > 0:
        numbers.append((rate(verdict.step_rate), "by the step alone"))
    if verdict.loop is not None:
        numbers.append((share(verdict.loop.wait_share), "of the time waiting for data"))
    body = [f'<p class="kicker">{escape(kicker)}</p>', f"<h1>{head}</h1>", *_evidence(first)]
    body += [_sentence(sentence) for sentence in rest]
    return ReportPart("", "\n".join([*body, tiles(numbers)]))


def _evidence(sentences: Sequence[Sentence]) -> list[str]:
    return [
        f"<details><summary><small>How this is known</small></summary><p>{words(s.evidence)}</p></details>"
        for s in sentences
        if s.evidence
    ]


def _sentence(sentence: Sentence) -> str:
    if not sentence.evidence:
        return f"<p>{words(sentence.text)}</p>"
    return f"<details><summary>{words(sentence.text)}</summary><p>{words(sentence.evidence)}</p></details>"


def fixes_part(verdict: Verdict) -> ReportPart | None:
    """Show what would help, best first; None if there are no fixes."""
    if not verdict.fixes:
        return None
    rows = [
        (
            words(fix.words) + (f"<br><small>{words(fix.evidence)}</small>" if fix.evidence else ""),
            rate(fix.rate) + _when_quiet(fix),
            _gain(fix) or "-",
            words(fix.price) or "nothing",
        )
        for fix in verdict.fixes
    ]
    chart = _gains([fix for fix in verdict.fixes if fix.rate > 0], verdict.rate)
    heads = ("What to do", "Loop then", "Gain", "It costs")
    return ReportPart("What would help", chart + table(heads, rows, numbers=(1, 2)))


_LETTER = 0.012  # of the chart's width, with some room


def _when_quiet(fix: Fix) -> str:
    return f"<br><small>{rate(fix.quiet_rate)} on a quiet machine</small>" if fix.quiet_rate > 0 else ""


def _gain(fix: Fix) -> str:
    """Write a gain, or the range in which it is expected; "" if no number can be given."""
    if fix.rate <= 0:
        return ""
    if fix.is_range:
        return f"{100 * fix.low:+.0f}% to {100 * fix.high:+.0f}%"
    return f"{100 * fix.gain:+.0f}%"


def _gains(fixes: Sequence[Fix], now: float) -> str:
    """Draw the loop's rate as it is, and with each fix that has a number."""
    if not fixes:
        return ""
    with drawing():
        figure = new_figure(0.75 + 0.34 * (len(fixes) + 1))
        axes = figure.subplots()
        names = ["as it is", *(fix.name for fix in fixes)]
        values = [now, *(fix.rate for fix in fixes)]
        ends = list(values)  # of what is drawn, after which the label stands
        for at, fix in enumerate(fixes, 1):
            if fix.quiet_rate > fix.rate:
                ends[at] = fix.quiet_rate
                axes.barh(at, fix.quiet_rate, color=COLOURS["transform"], alpha=0.3, height=0.62)
        axes.barh(range(len(names)), values, color=_colours(len(fixes)), height=0.62)
        for at, fix in enumerate(fixes, 1):
            if fix.is_range and now > 0:
                low, high = (now * (1 + gain) for gain in (fix.low, fix.high))
                axes.plot((low, high), (at, at), color=INK, linewidth=1.4, marker="|", markersize=8)
                ends[at] = max(ends[at], high)
        labels = [rate(now), *map(_bar_label, fixes)]
        for at, (end, label) in enumerate(zip(ends, labels, strict=True)):
            axes.annotate(label, (end, at), (5, 0), textcoords="offset points", va="center")
        axes.set_yticks(range(len(names)), names)
        axes.axvline(now, color=COLOURS["wait"], linewidth=1, linestyle=(0, (4, 3)))
        axes.set_xlim(
            0, max(end / (1 - _LETTER * len(label)) for end, label in zip(ends, labels, strict=True))
        )
        axes.set_xlabel("samples per second of the whole loop")
        axes.invert_yaxis()
        tidy(axes, "x")
        return inline(figure, "gains", "Bars: the loop's rate as it is and with each fix")


def _colours(fixes: int) -> list[str]:
    return [COLOURS["loader"], *[COLOURS["transform"]] * fixes]


def _bar_label(fix: Fix) -> str:
    quiet = f", quiet {rate(fix.quiet_rate)}" if fix.quiet_rate > 0 else ""
    return f"{rate(fix.rate)} ({_gain(fix)}{quiet})"


def machine_part(verdict: Verdict) -> ReportPart | None:
    """Show what each stage could do, and what the loop reaches; None if nothing was measured."""
    stages = [stage for stage in verdict.stages if stage.rate > 0]
    if not stages:
        return None
    rows = [
        (escape(s.name), rate(s.rate), seconds(s.cpu) if s.cpu > 0 else "-", words(s.evidence))
        for s in stages
    ]
    heads = ("Stage", "Alone", "CPU per sample", "How it was measured")
    return ReportPart(
        "The machine, and the rates reached", _ceilings(stages, verdict) + table(heads, rows, (1, 2))
    )


def _ceilings(stages: Sequence[Stage], verdict: Verdict) -> str:
    """Draw each stage's ceiling on a logarithmic scale, and a line at the loop's rate."""
    finite = [stage for stage in stages if math.isfinite(stage.rate)]
    if not finite:
        return ""
    with drawing():
        figure = new_figure(0.95 + 0.34 * len(finite))
        axes = figure.subplots()
        least = min([stage.rate for stage in finite] + [verdict.rate] * (verdict.rate > 0))
        most = max(stage.rate for stage in finite)
        begin = 10 ** (math.floor(10 * math.log10(least / 2)) / 10)
        colours = [COLOURS.get(stage.name.split()[0].strip(","), COLOURS["loader"]) for stage in finite]
        widths = [stage.rate - begin for stage in finite]
        bars = axes.barh([s.name for s in finite], widths, left=begin, color=colours, height=0.62)
        axes.bar_label(bars, [rate(stage.rate) for stage in finite], padding=4)
        logarithmic(axes)
        axes.set_xlim(begin, most * (most / begin) ** 0.16)
        if verdict.rate > 0:
            axes.axvline(verdict.rate, color=COLOURS["wait"], linewidth=1.4)
            axes.set_title(f"the line: what the loop reaches, {rate(verdict.rate)}", color=COLOURS["wait"])
        axes.set_xlabel("samples per second if nothing else limited (logarithmic)")
        axes.invert_yaxis()
        tidy(axes, "x")
        return inline(figure, "ceilings", "Bars: what each stage could do; a line: what the loop reaches")
