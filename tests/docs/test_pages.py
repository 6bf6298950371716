"""Every code block of README.md and docs/ runs as it stands, in the world of tools/site/world.py."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from blocks import REASONS, RUN, SHOWN, Block, PageError, blocks_of, indented_code, pages
from page_run import run_page

ROOT = Path(__file__).resolve().parents[2]
LEAST_SHARE_RUN = 0.8
AVOIDABLE = {"part of a program", "hours long"}


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


WITH_CODE = [page for page in pages() if any(block.runs for block in blocks_of(page))]


@pytest.mark.parametrize("page", WITH_CODE, ids=name_of)
def test_the_blocks_run(page: Path, workplace: Path) -> None:
    assert run_page(page)["__name__"] == "__main__"


def test_most_blocks_run(record_property: Callable[[str, object], None]) -> None:
    """Of those that need nothing but this machine; the others are counted in the report, by their reasons."""
    blocks = [block for page in pages() for block in blocks_of(page) if block.language in RUN]
    reasons = Counter(block.not_run for block in blocks if block.not_run)
    record_property("blocks", len(blocks))
    record_property("not run", dict(reasons))
    possible = [block for block in blocks if block.not_run not in REASONS - AVOIDABLE]
    assert len(possible) > 100
    assert sum(block.runs for block in possible) >= LEAST_SHARE_RUN * len(possible), (len(blocks), reasons)


@pytest.mark.parametrize("page", pages(), ids=name_of)
def test_every_block_says_what_it_is(page: Path) -> None:
    unknown = [(block.line, block.language) for block in blocks_of(page)]
    assert [found for found in unknown if found[1] not in RUN | SHOWN | {"setup"}] == []


@pytest.mark.parametrize("page", pages(), ids=name_of)
def test_no_code_is_merely_indented(page: Path) -> None:
    """It would not run."""
    assert list(indented_code(page.read_text(encoding="utf-8"))) == []


@pytest.mark.parametrize("page", pages(), ids=name_of)
def test_a_console_has_a_prompt(page: Path) -> None:
    consoles = [block for block in blocks_of(page) if block.language == "console"]
    assert [block.line for block in consoles if not block.commands()] == []


def page_with(tmp_path: Path, text: str) -> Path:
    page = tmp_path / "page.md"
    page.write_text(text)
    return page


def test_blocks_are_read(tmp_path: Path) -> None:
    page = page_with(
        tmp_path,
        "Words.\n\n```python title='x'\na = 1\n```\n\n<!-- not run: needs a GPU -->\n\n=== \"Tab\"\n\n"
        "    ```console\n    $ ls \\\n      -l\n    total\n    $ true\n    ```\n<!-- setup\nb = 2\n-->\n",
    )
    with pytest.raises(PageError, match=r"page.md:9: no code block follows the comment"):
        blocks_of(page)
    page.write_text(page.read_text().replace('=== "Tab"\n\n', ""))
    blocks = blocks_of(page)
    assert blocks == [
        Block(4, "python", "a = 1\n"),
        Block(10, "console", "$ ls \\\n  -l\ntotal\n$ true\n", "needs a GPU"),
        Block(16, "setup", "b = 2\n"),
    ]
    assert blocks[1].commands() == "ls \\\n  -l\ntrue"
    assert [block.runs for block in blocks] == [True, False, True]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("```python\nx\n", r"page.md:1: the code block has no end"),
        ("<!-- not run: too hard -->\n```python\nx\n```\n", r"page.md:1: unknown reason 'too hard'"),
        ("<!-- setup x = 1 -->\n", r"page.md:1: a setup is"),
    ],
)
def test_a_page_that_keeps_to_no_rule_is_an_error(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(PageError, match=message):
        blocks_of(page_with(tmp_path, text))


def test_indented_code_is_found() -> None:
    assert list(indented_code("Words.\n\n    code\n    more\n\nWords.\n\n    code\n")) == [3, 8]
    for words in (
        "- Item.\n\n    goes on\n",
        '=== "Tab"\n\n    words\n',
        "```text\n\n    x\n```\n",
        "A\n    b\n",
    ):
        assert list(indented_code(words)) == []


@pytest.mark.parametrize(
    "text",
    [
        "```python\nassert 1 == 2\n```\n",
        "```console\n$ test -e nowhere\n```\n",
        "```console\n$ fastload info nowhere\n```\n",
        "```console\n$ true\n$ false | cat nowhere\n$ true\n```\n",
    ],
)
def test_a_block_that_fails_is_seen(text: str, tmp_path: Path) -> None:
    with pytest.raises(AssertionError):
        run_page(page_with(tmp_path, text))


def test_names_and_folders_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    page = page_with(
        tmp_path,
        "<!-- setup\nfrom pathlib import Path\n-->\n```console\n$ mkdir a\n$ cd a\n$ touch b\n```\n"
        "```python\nnames = sorted(path.name for path in Path('a').iterdir())\n```\n",
    )
    assert run_page(page)["names"] == ["b"]
