"""The site builds without a warning, stands on its own, and its links lead somewhere."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from blocks import ROOT
from site_pages import Built, broken, built_pages, is_external

import fastload
from fastload import errors, transforms
from fastload.cli.commands import VERBS
from fastload.transforms import batch

ROOT_PAGES = sorted(ROOT.glob("*.md"))
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
# What a name stands for is said where it is used; the others are not for users.
NOT_SHOWN = {
    "fastload.IGNORE_LABEL",
    "fastload.errors",
    "fastload.transforms",
    "fastload.transforms.Plan",
    "fastload.transforms.batch.BATCH_SPECS",
    "fastload.transforms.compile_plan",
}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built by mkdocs --strict; tutorials are shown without having run."""
    folder = tmp_path_factory.mktemp("site")
    program = Path(sys.executable).with_name("mkdocs")
    done = subprocess.run(
        [program, "build", "--strict", "--config-file", ROOT / "mkdocs.yml", "--site-dir", folder],
        env={**os.environ, "EXECUTE": "0", "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    told = [line for line in (done.stdout + done.stderr).splitlines() if not line.startswith("INFO")]
    assert (done.returncode, told) == (0, [])
    return folder


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, Built]:
    """The site's pages."""
    found = built_pages(site)
    assert len(found) > 50
    return found


def test_no_page_asks_another_server(site: Path, pages: dict[Path, Built]) -> None:
    asked = {address for page in pages.values() for address in page.fetched}
    assert len(asked) > 10
    assert [address for address in sorted(asked) if is_external(address)] == []
    styles = "".join(path.read_text(encoding="utf-8") for path in site.rglob("*.css"))
    assert len(styles) > 10_000
    assert re.findall(r"(?:@import|url\()\s*[\"']?(?:https?:)?//[^)\s]*", styles) == []


def test_the_search_box_works_from_a_folder(site: Path, pages: dict[Path, Built]) -> None:
    """A page under file:// may neither fetch the index nor start a Worker: both are scripts of the site."""
    assert (site / "search" / "search_index.js").read_text(encoding="utf-8").startswith("var __index = {")
    assert (site / "assets" / "iframe-worker.js").is_file()
    page = pages[site / "guide" / "doctor.html"]
    assert "../assets/iframe-worker.js" in page.fetched


def test_links_lead_somewhere(pages: dict[Path, Built]) -> None:
    """Of fetched files, too, but for those of the 404 page, which begin at the server's root."""
    checked = [
        (address, page)
        for page in pages.values()
        if page.path.name != "404.html"
        for address in page.links + page.fetched
        if not is_external(address) and not address.startswith(("mailto:", "data:", "javascript:"))
    ]
    assert len(checked) > 1000
    assert sorted({broken(address, page, pages) for address, page in checked} - {""}) == []


def test_a_broken_link_is_seen(tmp_path: Path) -> None:
    (tmp_path / "b.html").write_text('<h1 id="here">x</h1>')
    (tmp_path / "a.html").write_text(
        '<a href="b.html#here"></a><a href="b.html#gone"></a><a href="c.html"></a><a href="#x"></a>'
        '<img src="https://example.com/x.png"><link rel="stylesheet" href="//cdn.example.com/x.css">'
    )
    found = built_pages(tmp_path)
    page = found[tmp_path / "a.html"]
    assert [bool(broken(address, page, found)) for address in page.links] == [False, True, True, True]
    assert [is_external(address) for address in page.fetched] == [True, True]


def named(module: str, names: list[str]) -> set[str]:
    return {f"{module}.{name}" for name in names}


def test_the_reference_has_every_public_name(pages: dict[Path, Built]) -> None:
    anchors = {anchor for page in pages.values() for anchor in page.anchors}
    names = {
        *named("fastload", fastload.__all__),
        *named("fastload.transforms", transforms.__all__),
        *named("fastload.transforms.batch", batch.__all__),
        *named("fastload.errors", errors.__all__),
    }
    assert len(names) > 100
    assert sorted(names - anchors - NOT_SHOWN) == []


def test_the_reference_has_every_verb(site: Path) -> None:
    text = (site / "reference" / "command-line.html").read_text(encoding="utf-8")
    assert [verb for verb in VERBS if f'id="fastload-{verb}"' not in text] == []
    assert "--coefficients [{fast,small}]" in text
    assert "JPEG quality for --max-side, and for the frames of videos (default: 90)" in text


def test_llms_txt_lists_every_page(site: Path, pages: dict[Path, Built]) -> None:
    text = (site / "llms.txt").read_text(encoding="utf-8")
    listed = re.findall(r"^- \[[^\]]+\]\(([^)]+)\)(?:: \S.*)?$", text, re.MULTILINE)
    assert text.startswith("# fastload\n\n> ")
    assert sorted(listed) == sorted(
        path.relative_to(site).as_posix() for path in pages if path.name != "404.html"
    )
    full = (site / "llms-full.txt").read_text(encoding="utf-8")
    assert [address for address in listed if f"<!-- {address} -->" not in full] == []


@pytest.mark.parametrize("page", ROOT_PAGES, ids=lambda page: page.name)
def test_links_of_the_root_lead_somewhere(page: Path) -> None:
    links = [link.partition("#")[0] for link in LINK.findall(page.read_text(encoding="utf-8"))]
    here = [link for link in links if link and not is_external(link)]
    assert [link for link in here if not (ROOT / link).exists()] == []


def test_words_are_spelt() -> None:
    """By codespell, whose settings are in pyproject.toml."""
    program = Path(sys.executable).with_name("codespell")
    places = [*ROOT_PAGES, *("benchmarks", "csrc", "docs", "examples", "fastload", "tests/docs", "tools")]
    done = subprocess.run([program, *places], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
