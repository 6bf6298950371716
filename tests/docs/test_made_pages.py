"""Pages that are made of something else: of files in the root, of docstrings, of parsers; and llms.txt."""

from __future__ import annotations

import argparse
from pathlib import Path

import command_line
import docstrings
import llms
import pytest
import root_pages


@pytest.mark.parametrize(
    ("text", "page"),
    [
        ("see docs/guide/cache.md.", "see [docs/guide/cache.md](../guide/cache.md)."),
        ("(docs/guide/cache.md)", "([docs/guide/cache.md](../guide/cache.md))"),
        ("[the cache](docs/guide/cache.md#auto)", "[the cache](../guide/cache.md#auto)"),
        ("[format](FORMAT.md#index), [start](README.md)", "[format](format.md#index), [start](../index.md)"),
        ("[tests](tests/pack), `docs/guide/cache.md`", "tests, `docs/guide/cache.md`"),
        ("[a](#b) [c](https://example.com/docs/x.md)", "[a](#b) [c](https://example.com/docs/x.md)"),
        ("```text\ndocs/guide/cache.md\n```", "```text\ndocs/guide/cache.md\n```"),
    ],
)
def test_links_of_files_in_the_root(text: str, page: str, tmp_path: Path) -> None:
    (tmp_path / "SECURITY.md").write_text(text)
    assert root_pages.page_of("SECURITY.md", tmp_path) == page


def test_links_of_files_below_the_root(tmp_path: Path) -> None:
    (tmp_path / "benchmarks").mkdir()
    (tmp_path / "benchmarks" / "README.md").write_text("docs/guide/cache.md [x](../FORMAT.md) [y](draw.py)")
    page = root_pages.page_of("benchmarks/README.md", tmp_path)
    assert page == "[docs/guide/cache.md](../guide/cache.md) [x](format.md) y"


@pytest.mark.parametrize(
    ("docstring", "markdown"),
    [
        ("``a`` and ``b c``", "`a` and `b c`"),
        (
            ":class:`~fastload.sample.Field` :func:`fastload.mix`, :meth:`go()`",
            '<autoref identifier="fastload.sample.Field" optional><code>Field</code></autoref> '
            '<autoref identifier="fastload.mix" optional><code>mix</code></autoref>, '
            '<autoref identifier="go" optional><code>go()</code></autoref>',
        ),
        ("(``docs/guide/cache.md``)", "([The node cache](../guide/cache.md))"),
        ("Words.\n\n    x = 1\n    y = 2\n\nMore.", "Words.\n\n```python\nx = 1\ny = 2\n```\n\n\nMore."),
        (
            "Args:\n    a, b: one\n        thing.\n",
            "Args:\n    a: one\n        thing.\n    b: one\n        thing.\n",
        ),
        ("Args:\n    a: words, more: words.\n", "Args:\n    a: words, more: words.\n"),
    ],
)
def test_docstrings_become_markdown(docstring: str, markdown: str) -> None:
    assert docstrings.as_markdown(docstring) == markdown


def test_a_parser_becomes_a_section() -> None:
    verb = argparse.ArgumentParser(prog="fastload go", description="Go | there.")
    verb.add_argument("place", metavar="PLACE", nargs="+", help="where to")
    verb.add_argument("--pace", "-p", choices=["fast", "slow"], default="fast", help="default: %(default)s")
    verb.add_argument("--share", metavar="N", nargs="?", help="of *all*")
    verb.add_argument("--quiet", action="store_true")
    assert command_line.section("go", verb, 2) == (
        "## fastload go\n\nGo &#124; there.\n\n```text\nfastload go PLACE [PLACE ...] [options]\n```\n\n"
        "| argument | what it says |\n|---|---|\n"
        "| <code>PLACE</code> | where to |\n"
        "| <code>--pace {fast,slow}</code>, <code>-p {fast,slow}</code> | default: fast |\n"
        "| <code>--share [N]</code> | of &#42;all&#42; |\n"
        "| <code>--quiet</code> |  |\n"
    )


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("# Title\n\nOne thing. Another.\n", "One thing."),
        ("# Title\n\n```python\nx\n```\n\nor so.\n\nWith [a link](x.md), `code`: and more. Yes.", None),
        ("**The problem.** Workers are\nprocesses. So.", "Workers are processes."),
        ("![picture](x.png)\n\n<div class='hero'>\n\n# Title\n\nWords", "Words"),
        ("# Title only", ""),
    ],
)
def test_a_page_is_described_by_its_first_sentence(text: str, sentence: str | None) -> None:
    expected = "With a link, `code`: and more." if sentence is None else sentence
    assert llms.first_sentence(text) == expected


def test_a_long_sentence_is_cut() -> None:
    cut = llms.first_sentence("Word " * 100)
    assert cut.endswith("Word...")
    assert len(cut) <= llms.WIDTH


def test_llms_txt() -> None:
    entries = [
        llms.Entry("Start", "Install", "install.html", "# Install\n\nOne line. More.", "Described."),
        llms.Entry("Guide", "Cache", "guide/cache.html", "# Cache\n\nOne line. More."),
    ]
    assert llms.short("fastload", "What it is.", entries) == (
        "# fastload\n\n> What it is.\n\n## Start\n\n- [Install](install.html): Described.\n\n"
        "## Guide\n\n- [Cache](guide/cache.html): One line.\n"
    )
    assert llms.full("fastload", "What it is.", entries).count("\n\nOne line. More.\n") == 2
