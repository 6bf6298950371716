"""The report's page: that it has everything, needs nothing, and is laid out well by a real browser."""

from __future__ import annotations

import itertools
import re
import subprocess
import sys
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pytest
from attributions import full_attribution
from chromium import found_in, screenshot
from page_checks import CHARTS
from verdicts import full_verdict, step_limits

from fastload.diagnose import report
from fastload.diagnose.attribution import WORDS, Attribution
from fastload.diagnose.facts import Sentence, Verdict
from fastload.diagnose.pages.page import amount, rate, seconds, share
from fastload.diagnose.pages.parts import fixes_part, grouped
from fastload.diagnose.pages.time import KINDS, heights_of, lines_part, processes_part

REFERENCE = Path(__file__).parents[1] / "reference"


class Tags(HTMLParser):
    """Open tags, which must close, and what the page would load."""

    VOID = ("meta", "br", "path", "use", "rect")

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.loads: list[str] = []
        self.ids: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in self.VOID:
            self.open.append(tag)
        for name, value in attrs:
            if name == "id":
                self.ids.append(str(value))
            if name in ("src", "href", "xlink:href") and not str(value).startswith("#"):
                self.loads.append(f"{tag} {name}={value}")

    def handle_endtag(self, tag: str) -> None:
        if tag not in self.VOID:
            assert self.open.pop() == tag


def test_the_page_has_all_of_the_verdict_and_needs_no_other_file() -> None:
    verdict = full_verdict()
    page = report(verdict=verdict).html
    tags = Tags()
    tags.feed(page)
    assert tags.open == []
    assert tags.loads == []
    assert "@import" not in page
    assert "url(http" not in page
    shown = re.sub(r"</?code>", "`", page)
    for sentence in verdict.sentences:
        assert sentence.text in shown
        assert sentence.evidence in page
    for fix in verdict.fixes:
        assert fix.words in page
        assert fix.evidence in page
    assert "408/s (+75%)" in page
    assert (
        page.index(verdict.sentences[0].text) < page.index("What would help") < page.index("Batch by batch")
    )
    assert "&lt;script&gt; &amp; co" in page
    assert "batches that were ready" in page
    notes = dict(re.findall(r"<tr><td>([a-z ]*)</td><td>(.*?)</td></tr>", page))
    assert notes["shm free"] == "67.1 MB"
    assert notes["throttled seconds"] == "250 ms"
    assert notes["with grad"] == "yes"
    assert notes["ready batches"] == "0, 1, 2, 0, 1, 2, ... (400 in all)"
    assert page.count("<svg") == 3
    assert len(page) < 150_000


def test_ids_of_charts_are_their_own() -> None:
    tags = Tags()
    page = report(verdict=full_verdict()).html
    tags.feed(page)
    assert len(tags.ids) >= 3
    assert len(set(tags.ids)) == len(tags.ids)
    assert set(re.findall(r'(?:"|url\()#([^")]*)', page)) <= set(tags.ids)


def test_a_verdict_of_one_sentence_is_a_page() -> None:
    page = report(verdict=step_limits()).html
    assert "Nothing: the step is the bottleneck." in page
    assert "The model is the limit" in page
    assert "<svg" not in page
    assert "What would help" not in page
    assert "The model is the limit" in report(verdict=replace(step_limits(), sentences=())).html


def profiled_verdict(workers: int = 2, bins: int = 20) -> Verdict:
    """One with a profile, a fix with a range, and rates on a quiet machine."""
    verdict = full_verdict()
    first, second, *others = verdict.fixes
    first = replace(first, low=0.3, high=1.1, quiet_rate=702.0)
    fixes = (first, replace(second, quiet_rate=523.0), *others)
    return replace(verdict, fixes=fixes, quiet_rate=301.0, attribution=full_attribution(workers, bins))


def chart(page: str, words: str) -> str:
    """The SVG that is described by ``words``."""
    (found,) = re.findall(rf'<svg[^>]*aria-label="{words}.*?</svg>', page, re.DOTALL)
    return str(found)


def rows_of(svg: str) -> list[str]:
    return [text for text in re.findall(r">([^<>]+)</text>", svg) if re.match(r"loop$|worker \d", text)]


def test_the_time_is_drawn_by_process_and_told_by_line() -> None:
    page = report(verdict=profiled_verdict()).html
    tags = Tags()
    tags.feed(page)
    assert tags.open == []
    assert len(set(tags.ids)) == len(tags.ids)
    assert set(re.findall(r'(?:href="|url\()#([^")]*)', page)) <= set(tags.ids)
    titles = ("Where the time goes", "Second by second", "What would help")
    places = [page.index(f"<h2>{title}") for title in titles]
    assert page.index("Decoding is the bottleneck: 2 threads") < places[0]
    assert places == sorted(places)
    drawn = chart(page, "Stacked bars over time")
    assert rows_of(drawn) == ["loop", "worker 1", "worker 2"]
    assert len(KINDS) == 18
    for kind, look in KINDS.items():
        assert f">{WORDS[kind]}</text>" in drawn
        assert look.colour in drawn
    assert re.findall(r"<td class=n>55%</td><td>decoding</td><td><span [^>]*>data.py:31</span></td>", page)
    assert "<code>Image.open(path).convert(&#x27;RGB&#x27;)</code>" in page
    assert "Photos.caption &lt;script&gt;" in page
    assert "data.py:70" not in page, "half a percent of the time"
    assert "PIL&#x27;s _io.open" in page
    assert re.findall(r"<td class=n>10%</td><td>reading values back</td><td><span [^>]*>train.py:14", page)
    assert "They have work 97% of their time." in page


def test_colours_of_patterns_are_kept() -> None:
    """Only references get the chart's name in front, which makes ids unique in the page."""
    drawn = chart(report(verdict=profiled_verdict()).html, "Stacked bars over time")
    fills = re.findall(r'<rect[^>]* fill="([^"]*)"', drawn)
    assert len(fills) == sum(bool(look.hatch) for look in KINDS.values())
    assert set(fills) <= {look.colour for look in KINDS.values()}


def test_a_profile_may_have_little_in_it() -> None:
    assert processes_part(None) is lines_part(None) is None
    assert processes_part(Attribution()) is lines_part(Attribution()) is None
    assert report(verdict=replace(full_verdict(), attribution=Attribution())).html.count("<svg") == 3
    alone = Attribution(
        loop={"strange": 1.0}, bins=(("main", 5.0, 6.0, {"strange": 1.0}), ("main", 6.0, 6.0, {}))
    )
    page = report(verdict=replace(step_limits(), attribution=alone)).html
    assert rows_of(chart(page, "Stacked bars over time")) == ["loop"]
    assert ">other</text>" in page
    assert ">strange</text>" in page
    assert page.count("<svg") == 2
    assert "worker" not in re.sub(r"<style.*?</style>", "", page, flags=re.DOTALL).split("A worker waits")[0]


def test_new_workers_take_the_rows_of_those_that_have_ended() -> None:
    shares = {"decode": 1.0}
    bins = tuple(
        (str(process), begin, begin + 2.0, shares) for process, begin in ((1, 0.0), (2, 0.5), (3, 2.0))
    )
    part = processes_part(Attribution(bins=bins))
    assert part is not None
    assert rows_of(part.body) == ["worker 1", "worker 2"]
    many = processes_part(full_attribution(workers=11, bins=200))
    assert many is not None
    assert rows_of(many.body) == ["loop", *(f"worker {number}" for number in range(1, 9))]
    assert "3 more workers are not drawn." in many.body
    assert len(many.body) < 250_000


def test_heights_are_shares_of_each_columns_time() -> None:
    row = [(0.0, 1.0, {"decode": 1.0}), (1.0, 3.0, {"decode": 0.25, "python": 0.75})]
    found = heights_of(row, np.array([0.0, 1.0, 3.0]), ["decode", "python"])
    np.testing.assert_allclose(found, [[1.0, 0.25], [0.0, 0.75]])
    found = heights_of(row, np.array([0.0, 2.0, 4.0]), ["decode", "python"])
    np.testing.assert_allclose(found, [[(1 + 0.25) / 2, 0.25 / 2], [0.75 / 2, 0.75 / 2]])
    found = heights_of([row[0], (0.0, 1.0, {"python": 1.0})], np.array([0.0, 1.0, 2.0]), ["decode", "python"])
    np.testing.assert_allclose(found, [[0.5, 0.0], [0.5, 0.0]])


# How people without red or green cones see linear RGB: G. M. Machado and others, "A physiologically-based
# model for simulation of color vision deficiency", 2009.
SEEN = {
    "all": np.eye(3),
    "no red": np.array([[0.152, 1.053, -0.205], [0.115, 0.786, 0.099], [-0.004, -0.048, 1.052]]),
    "no green": np.array([[0.367, 0.861, -0.228], [0.280, 0.673, 0.047], [-0.012, 0.043, 0.969]]),
}


def lab(colour: str, seen: np.ndarray) -> np.ndarray:
    """CIELAB of an sRGB colour as seen."""
    value = np.array([int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)])
    linear = np.where(value <= 0.04045, value / 12.92, ((value + 0.055) / 1.055) ** 2.4)
    to_xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
    x, y, z = np.cbrt(to_xyz @ np.clip(seen @ linear, 0, 1) / np.array([0.9505, 1.0, 1.089]))
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


@pytest.mark.parametrize("eyes", SEEN)
def test_kinds_differ_in_hatch_or_for_each_eye_in_colour(eyes: str) -> None:
    pairs = [(a, b) for a, b in itertools.combinations(KINDS, 2) if KINDS[a].hatch == KINDS[b].hatch]
    assert len(pairs) > 50
    for a, b in pairs:
        distance = np.linalg.norm(lab(KINDS[a].colour, SEEN[eyes]) - lab(KINDS[b].colour, SEEN[eyes]))
        assert distance > 10, f"{a} and {b}: {distance:.1f}"


def test_gains_are_ranges_and_rates_of_a_quiet_machine_are_shown() -> None:
    part = fixes_part(profiled_verdict())
    assert part is not None
    assert "408/s (+30% to +110%, quiet 702/s)" in part.body
    assert "401/s (+72%, quiet 523/s)" in part.body
    assert "262/s (+12%)" in part.body
    assert "<td class=n>408/s<br><small>702/s on a quiet machine</small></td>" in part.body
    assert "<td class=n>+30% to +110%</td>" in part.body
    assert "<td class=n>+72%</td>" in part.body
    page = report(verdict=profiled_verdict()).html
    assert "<b>301/s</b><span>if nothing else used the CPUs</span>" in page


def test_what_is_not_known_is_not_drawn() -> None:
    verdict = full_verdict()
    unknown = replace(verdict, rate=0.0, fixes=tuple(replace(fix, rate=0.0) for fix in verdict.fixes))
    page = report(verdict=unknown).html
    assert "inf" not in re.sub(r"<[^>]*>", "", page)
    assert "nan" not in page
    assert page.count("<svg") == 2


def test_words_cannot_become_markup() -> None:
    hostile = "<script>alert('x')</script> & \"y\""
    verdict = replace(full_verdict(), sentences=(Sentence(hostile, hostile),), limit=hostile)
    verdict = replace(verdict, fixes=tuple(replace(f, name=hostile, words=hostile) for f in verdict.fixes))
    verdict = replace(verdict, stages=tuple(replace(s, name=hostile) for s in verdict.stages))
    page = report(verdict=verdict).html
    assert "<script" not in page
    tags = Tags()
    tags.feed(page)
    assert tags.open == []


def test_a_notebook_gets_the_same_without_a_page_around_it() -> None:
    shown = report(verdict=full_verdict())._repr_html_()
    assert "<html" not in shown
    assert "body {" not in shown
    assert "Decoding is the bottleneck: 2 threads" in shown
    rules = re.findall(r"^([^\n{}@]+)\{", shown.split("</style>")[0].removeprefix("<style>"), re.MULTILINE)
    assert len(rules) > 10
    assert all(part.strip().startswith(".fastload-report") for rule in rules for part in rule.split(","))


def test_matplotlibs_settings_and_pyplot_are_left_alone(tmp_path: Path) -> None:
    before = dict(mpl.rcParams)
    path = report(verdict=full_verdict()).save(tmp_path / "r.html")
    assert path == tmp_path / "r.html"
    assert dict(mpl.rcParams) == before
    code = (
        f"import sys; sys.path.insert(0, {str(REFERENCE)!r}); from verdicts import full_verdict;"
        "from fastload.diagnose import report; report(verdict=full_verdict()).html;"
        "print('matplotlib' in sys.modules, 'matplotlib.pyplot' in sys.modules, 'torch' in sys.modules)"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.split() == ["True", "False", "False"]


def test_without_matplotlib_the_error_names_the_line_that_helps() -> None:
    code = (
        f"import sys; sys.modules['matplotlib'] = None; sys.path.insert(0, {str(REFERENCE)!r})\n"
        "from verdicts import full_verdict\nfrom fastload.diagnose import report\n"
        "try: report(verdict=full_verdict())\nexcept ImportError as error: print(type(error).__name__, error)"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.startswith("LibraryMissing drawing the report's charts needs matplotlib")
    assert 'pip install "fastload[report]"' in run.stdout


def test_numbers_are_short_and_have_units() -> None:
    assert [rate(v) for v in (0, 233.4, 91_234, float("inf"), 0.1234)] == [
        "-", "233/s", "91,200/s", "no bound", "0.123/s",
    ]  # fmt: skip
    assert [seconds(v) for v in (0.0, 12.345, 0.0386, 0.0000111)] == ["0 s", "12.3 s", "38.6 ms", "11.1 µs"]
    assert [amount(v) for v in (12, 1200, 734_003_200, 2e12)] == ["12 bytes", "1.20 KB", "734 MB", "2.00 TB"]
    assert [share(v) for v in (0.0, 0.0123, 0.57, 1.0)] == ["0%", "1.2%", "57%", "100%"]


def test_runs_of_batches_keep_their_mean() -> None:
    values = np.random.Generator(np.random.Philox(1)).random(1001)
    means = grouped(values, 160)
    assert len(means) == 160
    assert means.min() >= values.min()
    # Each run is 6 or 7 values, whose weighted mean is that of all.
    begins = np.linspace(0, 1001, 161).astype(int)
    expected = [values[a:b].mean() for a, b in itertools.pairwise(begins)]
    np.testing.assert_allclose(means, expected)
    assert grouped(values[:5], 160) is not None
    np.testing.assert_array_equal(grouped(values[:5], 160), values[:5])


@pytest.mark.parametrize("width", [1000, 420])
def test_a_browser_cuts_no_letters_and_lays_none_on_others(tmp_path: Path, width: int) -> None:
    for verdict in (full_verdict(), profiled_verdict(9, 100)):
        path = report(verdict=verdict).save(tmp_path / "r.html")
        assert found_in(path, CHARTS, width=width) == []


def test_the_check_of_letters_finds_them(tmp_path: Path) -> None:
    path = report(verdict=full_verdict()).save(tmp_path / "r.html")
    text = path.read_text()
    path.write_text(
        text.replace("</svg>", '<text x="10" y="20">One</text><text x="12" y="20">Two</text></svg>')
    )
    assert any("on each other" in line for line in found_in(path, CHARTS))
    path.write_text(text.replace("</svg>", '<text x="700" y="20">far too long for it</text></svg>'))
    assert any("cut" in line for line in found_in(path, CHARTS))


def pixels(path: Path) -> np.ndarray:
    """A PNG's pixels, by Pillow."""
    image = pytest.importorskip("PIL.Image")
    return np.asarray(image.open(path).convert("RGB"))


def test_it_is_dark_where_the_browser_is(tmp_path: Path) -> None:
    path = report(verdict=full_verdict()).save(tmp_path / "r.html")
    means, inks = [], []
    for dark in (False, True):
        screenshot(path, tmp_path / f"{dark}.png", height=1300, dark=dark)
        picture = pixels(tmp_path / f"{dark}.png")
        assert picture.shape == (1300, 1000, 3)
        means.append(float(np.median(picture)))
        ink = "return getComputedStyle(document.querySelector('svg text')).fill"
        inks.append(found_in(path, ink, dark=dark))
        colours = picture.reshape(-1, 3).astype(np.uint32) @ np.array([65536, 256, 1], np.uint32)
        assert len(np.unique(colours)) > 200, "charts have colours"
    assert means[0] > 240
    assert means[1] < 40
    assert inks[0] != inks[1]
