"""What a built page links to, asks for, and can be linked to at."""

from __future__ import annotations

from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

# What a browser asks for by itself, by tag and attribute.
FETCHED = {
    ("audio", "src"),
    ("iframe", "src"),
    ("img", "src"),
    ("script", "src"),
    ("source", "src"),
    ("source", "srcset"),
    ("video", "src"),
}
NOT_FETCHED = {"canonical", "next", "prev"}  # of <link rel=...>


@dataclass
class Built(HTMLParser):
    """A page of the site."""

    path: Path
    anchors: set[str] = field(default_factory=set)
    links: list[str] = field(default_factory=list)
    fetched: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()
        self.feed(self.path.read_text(encoding="utf-8"))

    def __hash__(self) -> int:
        return hash(self.path)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        self.anchors.update(values[name] for name in ("id", "name") if name in values)
        if tag == "a" and "href" in values:
            self.links.append(values["href"])
        if tag == "link" and values.get("rel") not in NOT_FETCHED:
            self.fetched.append(values.get("href", ""))
        self.fetched += [value for name, value in values.items() if (tag, name) in FETCHED]


def is_external(address: str) -> bool:
    """Whether it leads out of the site (``data:`` does not)."""
    parts = urlsplit(address)
    return bool(parts.netloc) or parts.scheme in {"http", "https", "ftp"}


def built_pages(site: Path) -> dict[Path, Built]:
    """All pages by their paths."""
    return {path: Built(path) for path in sorted(site.rglob("*.html"))}


def broken(address: str, page: Built, pages: dict[Path, Built]) -> str:
    """What is wrong with a link of a page, or ""."""
    parts = urlsplit(address)
    target = (page.path.parent / unquote(parts.path)).resolve() if parts.path else page.path
    if target.is_dir():
        target /= "index.html"
    if not target.exists():
        return f"{page.path.name}: {address}: no such file"
    anchor = unquote(parts.fragment)
    if anchor and target in pages and anchor not in pages[target].anchors and anchor != "__comments":
        return f"{page.path.name}: {address}: no such place on the page"
    return ""
