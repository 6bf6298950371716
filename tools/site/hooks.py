"""What mkdocs is told beside mkdocs.yml: pages that are made from other files, and llms.txt.

EXECUTE=0 shows tutorials without running them, which takes seconds each.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import command_line
import llms
import root_pages
import tutorials
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.nav import Navigation
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[2]
WORLD = Path(__file__).with_name("world.py")
COMMAND_LINE = "reference/command-line.md"
CELL = re.compile(r"<td(?P<style>[^>]*)>(?P<inside>.*?)</td>", re.DOTALL)
NUMBER = re.compile(r"[-+\d].{0,24}")
LONG, WORDS = 60, 20  # characters of a cell that is given much room, and some

_texts: dict[str, str] = {}  # the Markdown of each page, by its file
_pages: list[Page] = []  # in the navigation's order


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the pages that no file of docs/ is."""
    for file, page in root_pages.PAGES.items():
        files.append(File.generated(config, page, content=root_pages.page_of(file, ROOT)))
    files.append(File.generated(config, COMMAND_LINE, content=command_line.page()))
    notebooks = [file for file in files if re.fullmatch(r"tutorials/[^/]+\.py", file.src_uri)]
    if notebooks:
        add_tutorials(notebooks, files, config)
    return files


def add_tutorials(notebooks: list[File], files: Files, config: MkDocsConfig) -> None:
    """Each as a page, with its pictures and its notebook, executed where the examples' folders are.

    One that needs a library that is not installed is shown without having run, and says so.
    """
    with tempfile.TemporaryDirectory() as place:
        for file in notebooks:
            path = Path(str(file.abs_src_path))
            notebook = tutorials.read(path)
            if os.environ.get("EXECUTE", "1") != "0" and not tutorials.missing(notebook):
                folder = Path(place) / path.stem
                folder.mkdir()
                subprocess.run([sys.executable, str(WORLD), str(folder)], check=True)
                tutorials.execute(notebook, folder)
            page, pictures = tutorials.page_of(notebook, path.stem)
            files.remove(file)
            files.append(File.generated(config, f"tutorials/{path.stem}.md", content=page))
            files.append(
                File.generated(config, f"tutorials/{path.stem}.ipynb", content=tutorials.written(notebook))
            )
            for name, data in pictures.items():
                files.append(File.generated(config, f"tutorials/{name}", content=data))


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> None:
    """Keeps the text for llms.txt."""
    _texts[page.file.src_uri] = markdown


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Tells the style sheet which cells of tables are numbers with their spread, and which are prose, and on
    which pages tabs stand beside each other where there is room."""
    html = CELL.sub(classed, html)
    return f'<div class="both">{html}</div>' if page.file.src_uri.startswith("migrate/") else html


def classed(cell: re.Match[str]) -> str:
    """A cell of a table with its class."""
    text = re.sub(r"<[^>]+>", "", cell["inside"])
    if NUMBER.fullmatch(text):
        name = "number"
    elif len(text) > WORDS:
        name = "long" if len(text) > LONG else "words"
    else:
        return cell[0]
    return f'<td class="{name}"{cell["style"]}>{cell["inside"]}</td>'


def on_nav(nav: Navigation, config: MkDocsConfig, files: Files) -> None:
    """Keeps the order of pages for llms.txt."""
    _texts.clear()
    _pages[:] = nav.pages


def tab_of(page: Page) -> str:
    """The title of the tab under which a page stands."""
    above = list(page.ancestors)
    return str(above[-1].title) if above else ""


def on_post_build(config: MkDocsConfig) -> None:
    """Writes llms.txt and llms-full.txt, of what the navigation lists."""
    entries = [
        llms.Entry(
            tab_of(page),
            config.site_name if page.is_homepage else str(page.title),
            (config.site_url or "") + page.url,
            _texts[page.file.src_uri],
            page.meta.get("description", ""),
        )
        for page in _pages
    ]
    name, description = config.site_name, config.site_description or ""
    site = Path(config.site_dir)
    (site / "llms.txt").write_text(llms.short(name, description, entries), encoding="utf-8")
    (site / "llms-full.txt").write_text(llms.full(name, description, entries), encoding="utf-8")
