"""All ranks side by side: how long each waits for data, and in words which one is slow."""

from __future__ import annotations

from html import escape

from fastload.diagnose.gathered import Gathered
from fastload.diagnose.rank_words import RankClocks
from fastload.diagnose.report.figures import COLOURS, drawing, inline, new_figure, tidy
from fastload.diagnose.report.page import Part, rate, seconds, share, table

__all__ = ["ranks_part"]

_MOST = 64  # bars; of more ranks, those that wait most


def ranks_part(gathered: Gathered) -> Part:
    """Bars of waiting and step, and a row for each rank."""
    used = [each for each in gathered.clocks.values() if each.batches]
    most = sorted(sorted(used, key=lambda each: -each.batch_wait)[:_MOST], key=lambda each: each.rank)
    heads = ("Rank", "Host", "Samples", "Waiting", "A batch", "Threads", "Read", "Decode", "Transform")
    rows = [_row(each) for each in most]
    left = len(used) - len(most)
    more = f"<p><small>{left:,} more ranks wait less than these.</small></p>" if left else ""
    numbers = (2, 3, 4, 5, 6, 7, 8)
    body = (
        f"<p>{escape(str(gathered))}</p>" + (_bars(most) if most else "") + table(heads, rows, numbers) + more
    )
    return Part("Rank by rank", body)


def _row(each: RankClocks) -> tuple[str, ...]:
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
        every = -(-len(clocks) // 20)  # names of all would lie on each other
        axes.set_xticks(places[::every], [str(each.rank) for each in clocks[::every]])
        axes.set_xlim(-0.6, max(3, len(clocks)) - 0.4)
        axes.set_xlabel("rank")
        axes.set_ylabel("ms a batch")
        figure.legend(loc="outside upper left", ncols=2)
        tidy(axes)
        return inline(figure, "ranks", "Bars: each rank's step, and how long it waits for data")
