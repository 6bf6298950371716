"""The top of a report: what limits, what would help, and what the machine could do."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

from fastload.diagnose.facts import Fix, Sentence, Stage, Verdict
from fastload.diagnose.report.figures import COLOURS, drawing, inline, logarithmic, new_figure, tidy
from fastload.diagnose.report.page import Part, rate, seconds, share, table, tiles, words

__all__ = ["fixes_part", "machine_part", "verdict_part"]

_LIMITS = {
    "step": "The training step is the bottleneck: the loader keeps up",
    "storage": "Storage is the bottleneck",
    "decode": "Decoding is the bottleneck",
    "transform": "Transforms are the bottleneck",
    "python": "Python code of the dataset or transform is the bottleneck",
    "collate": "Collating is the bottleneck",
    "transfer": "Copying to the device is the bottleneck",
    "threads": "Too few threads or workers for the CPUs there are",
    "quota": "Fewer CPUs than threads",
    "neighbour": "Other processes take the CPUs",
    "prefetch": "Uneven batches: too few are ready ahead",
    "batch": "Small batches: each costs something of its own",
    "ranks": "Another rank is waited for",
    "unknown": "No single limit was found",
}


def verdict_part(verdict: Verdict, by: str = "") -> Part:
    """What limits, in words, each sentence with its evidence to unfold; and the three rates.

    Args:
        by: who says so, in place of what limits.
    """
    first, rest = verdict.sentences[:1], verdict.sentences[1:]
    head = words(first[0].text) if first else escape(_LIMITS.get(verdict.limit, verdict.limit))
    kicker = by or _LIMITS.get(verdict.limit, verdict.limit)
    if verdict.loop is not None:
        kicker += f" · {verdict.loop.loader}"
    numbers = [(rate(verdict.rate), "samples of the loop")]
    if verdict.loader_rate > 0:
        numbers.append((rate(verdict.loader_rate), "of the loader alone"))
    if verdict.step_rate > 0:
        numbers.append((rate(verdict.step_rate), "of the step alone"))
    if verdict.loop is not None:
        numbers.append((share(verdict.loop.wait_share), "of the time waiting for data"))
    body = [f'<p class="kicker">{escape(kicker)}</p>', f"<h1>{head}</h1>", *_evidence(first)]
    body += [_sentence(sentence) for sentence in rest]
    return Part("", "\n".join([*body, tiles(numbers)]))


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


def fixes_part(verdict: Verdict) -> Part | None:
    """What would help, best first; None where there is nothing to do."""
    if not verdict.fixes:
        return None
    rows = [
        (
            words(fix.words) + (f"<br><small>{words(fix.evidence)}</small>" if fix.evidence else ""),
            rate(fix.rate),
            f"{100 * fix.gain:+.0f}%" if fix.rate > 0 else "-",
            words(fix.price) or "nothing",
        )
        for fix in verdict.fixes
    ]
    chart = _gains([fix for fix in verdict.fixes if fix.rate > 0], verdict.rate)
    heads = ("What to do", "Loop then", "Gain", "It costs")
    return Part("What would help", chart + table(heads, rows, numbers=(1, 2)))


def _gains(fixes: Sequence[Fix], now: float) -> str:
    """A bar for each fix that was tried: the loop's rate with it, over today's."""
    if not fixes:
        return ""
    with drawing():
        figure = new_figure(0.75 + 0.34 * (len(fixes) + 1))
        axes = figure.subplots()
        names = ["as it is", *(fix.name for fix in fixes)]
        values = [now, *(fix.rate for fix in fixes)]
        colours = [COLOURS["loader"], *[COLOURS["transform"]] * len(fixes)]
        bars = axes.barh(names, values, color=colours, height=0.62)
        gains = ["", *(f" ({100 * fix.gain:+.0f}%)" for fix in fixes)]
        axes.bar_label(bars, [f"{rate(v)}{g}" for v, g in zip(values, gains, strict=True)], padding=4)
        axes.axvline(now, color=COLOURS["wait"], linewidth=1, linestyle=(0, (4, 3)))
        axes.set_xlim(0, 1.22 * max(values))
        axes.set_xlabel("samples per second of the whole loop")
        axes.invert_yaxis()
        tidy(axes, "x")
        return inline(figure, "gains", "Bars: the loop's rate as it is and with each fix")


def machine_part(verdict: Verdict) -> Part | None:
    """What each stage could do, against what is reached; None where nothing was measured."""
    stages = [stage for stage in verdict.stages if stage.rate > 0]
    if not stages:
        return None
    rows = [
        (escape(s.name), rate(s.rate), seconds(s.cpu) if s.cpu > 0 else "-", words(s.evidence))
        for s in stages
    ]
    heads = ("Stage", "Alone", "CPU a sample", "How it was measured")
    return Part("The machine, and the rates reached", _ceilings(stages, verdict) + table(heads, rows, (1, 2)))


def _ceilings(stages: Sequence[Stage], verdict: Verdict) -> str:
    """Each stage's ceiling on a scale of ratios; a line where the loop is."""
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
