"""Bring ARCHITECTURE.md's tree up to date: ``python tools/update_tree.py``.

Lines of modules that are gone go; a new module gets a line with the first sentence of its own description.
Lines that are there stay as they are, so they can be written by hand. A test compares tree and files.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DOCUMENT = ROOT / "ARCHITECTURE.md"
FOLDERS = ("csrc", "fastload", "tools")
HEADING = "## The tree"
WIDTH = 85  # of a description
KERNEL = re.compile(r"(_(scalar|avx2|avx512|neon|simd|sse42|arm))?\.(h|cpp)$")


def module_of(path: Path) -> str:
    """A file's line in the tree: the file itself; for C++ what header, source and kernels share."""
    return KERNEL.sub("", path.relative_to(ROOT).as_posix())


def is_listed(path: Path) -> bool:
    """Whether the tree names this file: all sources but re-exporting packages."""
    if path.name == "__init__.py":
        return path.parent.name == "fastload"
    return path.suffix in {".py", ".h", ".cpp", ".sh"}


def modules() -> dict[str, Path]:
    """Every module that there is, with the file that describes it (for C++ the header, if there is one)."""
    found: dict[str, Path] = {}
    for path in sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*") if is_listed(path)):
        name = module_of(path)
        if name not in found or path == ROOT / f"{name}.h":
            found[name] = path
    return found


def described(text: str) -> dict[str, str]:
    """The tree in ``text``: a line with the folder, then an indented line for each module."""
    folder, lines = "", {}
    for line in text.split(HEADING, 1)[1].split("```")[1].splitlines():
        if line.endswith("/"):
            folder = line
        elif line.startswith("  "):
            name, _, description = line.strip().partition(" ")
            lines[folder + name] = description.strip()
    return lines


def description(path: Path) -> str:
    """The first sentence of a file's own description."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".py":
        words = ast.get_docstring(ast.parse(text)) or ""
    else:
        mark = "//" if path.suffix in {".h", ".cpp"} else "#"
        lines = [line for line in text.splitlines() if not line.startswith("#!")]
        end = next((i for i, line in enumerate(lines) if not line.startswith(mark)), len(lines))
        words = " ".join(line.removeprefix(mark) for line in lines[:end])
    words = re.sub(r":\w+:`~?\.?([^`]*)`", r"\1", words.split("\n\n")[0]).replace("``", "")
    return re.split(r"(?<=\w)[.;](?:\s|$)", " ".join(words.split()), maxsplit=1)[0]


def shortened(words: str) -> str:
    """At most WIDTH characters, cut after a word."""
    return words if len(words) <= WIDTH else words[: WIDTH - 3].rpartition(" ")[0] + "..."


def tree(old: dict[str, str]) -> str:
    """The tree of what there is now, with the descriptions of ``old`` where it has them."""
    lines, folder = [], ""
    for name, path in sorted(modules().items(), key=lambda item: item[0].rpartition("/")[::2]):
        if name.rpartition("/")[0] != folder:
            folder = name.rpartition("/")[0]
            lines.append(f"{folder}/")
        words = old.get(name) or shortened(description(path))
        lines.append(f"  {name.rpartition('/')[2]:<22} {words}")
    return "\n".join(lines)


def main() -> None:
    """Rewrite the tree in place."""
    text = DOCUMENT.read_text(encoding="utf-8")
    before, rest = text.split(HEADING, 1)
    introduction, _, after = rest.split("```", 2)
    new = f"{before}{HEADING}{introduction}```\n{tree(described(text))}\n```{after}"
    DOCUMENT.write_text(new, encoding="utf-8")


if __name__ == "__main__":
    main()
