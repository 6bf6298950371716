"""Files of the project's root that are pages of the site, too: pages that they name become links there."""

from __future__ import annotations

import posixpath
import re
from pathlib import Path

# file: its page
PAGES = {
    "ARCHITECTURE.md": "project/architecture.md",
    "CHANGELOG.md": "project/changelog.md",
    "CONTRIBUTING.md": "project/contributing.md",
    "FORMAT.md": "project/format.md",
    "SECURITY.md": "project/security.md",
    "benchmarks/README.md": "project/benchmarks.md",
    "examples/README.md": "examples.md",
}
NAMED = re.compile(r"(?<![\w/`\[])(?<!\]\()docs/[\w/-]+\.md\b(?![`\]])")
FENCED = re.compile(r"(```.*?^```$)", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"(?P<text>\[[^\]]*\])\((?P<target>[^)\s#]*)(?P<anchor>#[^)\s]*)?\)")


def page_of(file: str, root: Path) -> str:
    """The page's text."""
    parts = FENCED.split((root / file).read_text(encoding="utf-8"))
    for number in range(0, len(parts), 2):  # what is not code
        linked = NAMED.sub(
            lambda name: f"[{name[0]}]({posixpath.relpath(name[0], posixpath.dirname(file))})", parts[number]
        )
        parts[number] = LINK.sub(lambda link: moved(link, file), linked)
    return "".join(parts)


def moved(link: re.Match[str], file: str) -> str:
    """A link as it must be on the page; to what is not on the site: the words alone."""
    target, anchor = link["target"], link["anchor"] or ""
    if not target or "://" in target or target.startswith("mailto:"):
        return link[0]
    path = posixpath.normpath(posixpath.join(posixpath.dirname(file), target))
    if path in PAGES:
        path = PAGES[path]
    elif path == "README.md":
        path = "index.md"
    elif path.startswith("docs/"):
        path = path.removeprefix("docs/")
    else:
        return f"{link['text'][1:-1]}"
    return f"{link['text']}({posixpath.relpath(path, posixpath.dirname(PAGES[file]))}{anchor})"
