"""llms.txt (https://llmstxt.org) and llms-full.txt: the site for programs that read text."""

from __future__ import annotations

import re
from dataclasses import dataclass

WIDTH = 200  # of a description


@dataclass(frozen=True)
class Entry:
    """A page: the tab it stands under, title, address in the site, and its Markdown."""

    tab: str
    title: str
    address: str
    text: str
    described: str = ""  # in its front matter

    @property
    def description(self) -> str:
        return self.described or first_sentence(self.text)


def first_sentence(text: str) -> str:
    """The first sentence of prose."""
    text = re.sub(r"<!--.*?-->|<[^>]+>|```.*?```", "", text, flags=re.DOTALL)
    for paragraph in re.split(r"\n\s*\n", text):
        words = re.sub(r"\*\*[^*]*\*\*", "", " ".join(paragraph.split())).strip()
        words = re.sub(r"(?<!!)\[([^\]]*)\]\([^)]*\)", r"\1", words)
        if re.match(r"[A-Z`\"]", words):
            sentence = re.split(r"(?<=[\w)`\"]\.)\s", words, maxsplit=1)[0].rstrip(":")
            return sentence if len(sentence) <= WIDTH else sentence[: WIDTH - 3].rpartition(" ")[0] + "..."
    return ""


def short(name: str, description: str, entries: list[Entry]) -> str:
    """The list of pages."""
    lines = [f"# {name}", "", f"> {description}"]
    tab = ""
    for entry in entries:
        if entry.tab != tab:
            tab = entry.tab
            lines += ["", f"## {tab}", ""]
        about = f": {entry.description}" if entry.description else ""
        lines.append(f"- [{entry.title}]({entry.address}){about}")
    return "\n".join(lines) + "\n"


def full(name: str, description: str, entries: list[Entry]) -> str:
    """All pages' text, each under its address."""
    pages = [f"<!-- {entry.address} -->\n\n{entry.text.strip()}\n" for entry in entries]
    return "\n\n".join([f"# {name}\n\n> {description}\n", *pages])
