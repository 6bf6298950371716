"""The code blocks of a page, and what the comments before them say."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
REASONS = {
    "needs a GPU",
    "needs several machines",
    "needs a bucket",
    "needs the network",
    "needs another library",
    "hours long",
    "part of a program",
    "installs software",
}
RUN = {"python", "console"}
SHOWN = {"bash", "c", "cpp", "csv", "diff", "dockerfile", "html", "ini", "json", "text", "toml", "yaml"}
FENCE = re.compile(r"^(?P<indent> *)(?P<fence>```+)(?P<language>\S*)(?P<rest>.*)$")
COMMENT = re.compile(r"^ *<!--\s*(?P<words>not run|setup)\b(?P<rest>.*)$")
# What holds indented text that is not code: tabs, admonitions, definitions, footnotes, lists.
HOLDER = re.compile(r"^ *(===|!!!|\?\?\?\+?|:   |\[\^\w+\]:|[-*+] |\d+[.)] )")


class PageError(Exception):
    """A page that does not keep to the rules for code blocks; the message says where."""


@dataclass(frozen=True)
class Block:
    """A fenced block, or (language "setup") Python that the reader does not see."""

    line: int  # of its first line of code, from 1
    language: str
    code: str
    not_run: str | None = None  # why

    @property
    def runs(self) -> bool:
        return self.not_run is None and self.language in RUN | {"setup"}

    def commands(self) -> str:
        """Of a console: what is typed, without prompts and output."""
        typed: list[str] = []
        goes_on = False
        for line in self.code.splitlines():
            if goes_on or line.startswith("$ "):
                typed.append(line if goes_on else line[2:])
                goes_on = line.endswith("\\")
        return "\n".join(typed)


def pages() -> list[Path]:
    """Every page whose blocks run."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def blocks_of(page: Path) -> list[Block]:
    """The page's blocks in order.

    Raises:
        PageError: a fence without its end, or a comment that says nothing known.
    """
    lines = page.read_text(encoding="utf-8").splitlines()
    found: list[Block] = []
    reason: str | None = None
    number = 0
    while number < len(lines):
        line, where = lines[number], f"{page.name}:{number + 1}"
        number += 1
        if fence := FENCE.match(line):
            end = closing(lines, number, fence["indent"] + fence["fence"], where)
            code = textwrap.dedent("\n".join(lines[number:end])) + "\n"
            found.append(Block(number + 1, fence["language"], code, reason))
            reason, number = None, end + 1
        elif (comment := COMMENT.match(line)) and comment["words"] == "setup":
            end = next((i for i in range(number, len(lines)) if lines[i].strip() == "-->"), None)
            if end is None or comment["rest"].strip():
                raise PageError(f"{where}: a setup is '<!-- setup', lines of Python, and a line '-->'.")
            code = textwrap.dedent("\n".join(lines[number:end])) + "\n"
            found.append(Block(number + 1, "setup", code))
            number = end + 1
        elif comment:
            reason = reason_of(comment["rest"], where)
        elif line.strip() and reason is not None:
            raise PageError(f"{where}: no code block follows the comment 'not run: {reason}'.")
    return found


def closing(lines: list[str], begin: int, fence: str, where: str) -> int:
    """The line on which the block ends."""
    for number in range(begin, len(lines)):
        if lines[number].rstrip() == fence:
            return number
    raise PageError(f"{where}: the code block has no end.")


def reason_of(rest: str, where: str) -> str:
    """What a comment 'not run' gives as its reason."""
    reason = rest.strip().removesuffix("-->").removeprefix(":").strip()
    if reason not in REASONS:
        raise PageError(f"{where}: unknown reason {reason!r} not to run a block. Known: {sorted(REASONS)}.")
    return reason


def indented_code(text: str) -> Iterator[int]:
    """Lines at which an indented code block begins: four spaces, outside lists, tabs and admonitions."""
    fence, held, blank = "", False, True
    for number, line in enumerate(text.splitlines(), start=1):
        if fence:
            if line.strip() == fence:
                fence = ""
        elif found := FENCE.match(line):
            fence = found["fence"]
        elif HOLDER.match(line):
            held = True
        elif line.startswith("    ") and blank and not held:
            yield number
            held = True  # one report a block
        elif line.strip() and not line.startswith(" "):
            held = False
        blank = not line.strip()
