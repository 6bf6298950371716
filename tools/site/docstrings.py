"""Docstrings as the reference shows them: the source writes code and names as Sphinx does, not Markdown."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path
from typing import Any

import griffe

DOCS = Path(__file__).resolve().parents[2] / "docs"
ROLE = re.compile(
    r":(?:class|func|meth|mod|attr|data|exc|obj):`(?P<hidden>~?)(?P<name>[\w.]+)(?P<call>\(\))?`"
)
CODE = re.compile(r"(?<!`)``(?P<code>[^`]+)``(?!`)")
PAGE = re.compile(r"(?:``)?\bdocs/(?P<page>[\w/-]+\.md)(?:``)?")
EXAMPLE = re.compile(r"\n\n(?P<code>(?:    .*\n)*    .*)(?=\n\n|\Z)")
SEVERAL = re.compile(
    r"^(?P<indent> +)(?P<names>\*{0,2}\w+(?:, \*{0,2}\w+)+): (?P<words>.*(?:\n(?P=indent) +.*)*)",
    re.MULTILINE,
)


class Docstrings(griffe.Extension):
    """Rewrites each docstring before it is parsed."""

    def on_object(self, *, obj: griffe.Object, loader: griffe.GriffeLoader, **kwargs: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = as_markdown(obj.docstring.value)
        if isinstance(obj, griffe.Attribute) and str(obj.value).startswith("optional("):
            obj.value = str(obj.value)[len("optional(") : -1]  # fastload.sample.fields.optional: the default


def as_markdown(text: str) -> str:
    """A docstring's text with links, code and lists of arguments as Markdown has them."""
    text = re.sub(r"::$", ":", text, flags=re.MULTILINE)
    text = EXAMPLE.sub(lambda found: f"\n\n```python\n{textwrap.dedent(found['code'])}\n```\n", text)
    text = PAGE.sub(lambda found: f"[{title_of(found['page'])}](../{found['page']})", text)
    text = ROLE.sub(reference, text)
    text = CODE.sub(r"`\g<code>`", text)
    return SEVERAL.sub(one_each, text)


def title_of(page: str) -> str:
    """What a link to a page says: the beginning of its heading."""
    heading = (DOCS / page).read_text(encoding="utf-8").split("# ", 1)[1].splitlines()[0]
    return heading.partition(":")[0].strip()


def reference(found: re.Match[str]) -> str:
    """A link to what the reference has of this name; plain code where it has nothing."""
    name = found["name"]
    shown = name.rpartition(".")[2] if found["hidden"] or name.startswith("fastload.") else name
    return f'<autoref identifier="{name}" optional><code>{shown}{found["call"] or ""}</code></autoref>'


def one_each(found: re.Match[str]) -> str:
    """``a, b: words`` in a list of arguments as two entries: the parser knows one name a line."""
    names, words = found["names"].split(", "), found["words"]
    return "\n".join(f"{found['indent']}{name}: {words}" for name in names)
