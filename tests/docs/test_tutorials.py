"""Tutorials run as plain Python in the world of the pages; as notebooks they become pages."""

from __future__ import annotations

from pathlib import Path

import pytest
import tutorials
from blocks import ROOT, Block
from page_run import as_main, run_python

FILES = sorted((ROOT / "docs" / "tutorials").glob("*.py"))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_it_runs(file: Path, workplace: Path) -> None:
    if names := tutorials.missing(tutorials.read(file)):
        pytest.skip(f"needs {', '.join(names)}: tests/foreign/transformers/test_vlm_tutorial.py runs it")
    with as_main(file) as module:
        run_python(Block(1, "python", file.read_text(encoding="utf-8")), file, module)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_it_begins_with_its_title(file: Path) -> None:
    assert tutorials.read(file).cells[0].source.startswith("# ")


def test_cells_become_a_page(tmp_path: Path) -> None:
    file = tmp_path / "lesson.py"
    file.write_text(
        '# %% [markdown]\n# # Title\n#\n# Words.\n\n# %% tags=["hide"]\nx = 41\n\n'
        '# %%\nprint("said", __import__("os").path.abspath("here"))\nx + 1\n'
    )
    notebook = tutorials.read(file)
    tutorials.execute(notebook, tmp_path)
    page, pictures = tutorials.page_of(notebook, "lesson")
    title, hint, *rest = page.split("\n\n")
    assert (title, pictures) == ("# Title", {})
    assert "(lesson.ipynb)" in hint
    assert rest == [
        "Words.",
        '```python\nprint("said", __import__("os").path.abspath("here"))\nx + 1\n```',
        "```{ .text .output }\nsaid here\n42\n```\n",
    ]


def test_a_notebook_that_needs_what_is_not_there_says_so(tmp_path: Path) -> None:
    file = tmp_path / "lesson.py"
    file.write_text(
        "# ---\n# jupyter:\n#   needs: [no_such_library, torch]\n# ---\n\n"
        "# %% [markdown]\n# # Title\n\n# %%\nimport no_such_library\n"
    )
    notebook = tutorials.read(file)
    assert tutorials.missing(notebook) == ["no_such_library"]
    page, _ = tutorials.page_of(notebook, "lesson")
    assert "not run for this page, so it shows no outputs: it needs no_such_library.*" in page
    assert "torch" not in page


def test_a_picture_is_a_file() -> None:
    pictures: dict[str, bytes] = {}
    outputs = [
        {"text": "a\n"},
        {"data": {"image/png": "aGk=", "text/plain": "x"}},
        {"data": {"image/svg+xml": "<svg/>"}},
        {"text": "\x1b[31mb\x1b[0m\n"},
        {"data": {"text/plain": "c"}},
    ]
    assert tutorials.shown(outputs, "lesson", pictures) == [
        "```{ .text .output }\na\n```",
        "![What the cell draws](lesson-1.png){ .output }",
        "![What the cell draws](lesson-2.svg){ .output }",
        "```{ .text .output }\nb\nc\n```",
    ]
    assert pictures == {"lesson-1.png": b"hi", "lesson-2.svg": b"<svg/>"}
