"""Write docs/how/tree.md, with a line for each module: ``python tools/update_tree.py``.

A line is the first sentence of the module's own description, so that nothing is written twice. A test
compares the page with the files, and the folders with those that ARCHITECTURE.md describes.
"""

from __future__ import annotations

import ast
import re
from itertools import groupby
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DOCUMENT = ROOT / "docs" / "how" / "tree.md"
HOUSE = ROOT / "ARCHITECTURE.md"
FOLDERS = ("csrc", "fastload", "tools")
WIDTH = 110  # of a description
KERNEL = re.compile(r"(_(scalar|vector|avx2|avx512|neon|simd|sse42|arm))?\.(h|cpp)$")
INTRODUCTION = """# The tree

A line for each module: the first sentence of its own description. One of C++ stands for its header, its
source and its kernels (`_vector`, `_scalar`, `_avx2`, `_avx512`, `_neon`, `_simd`, `_sse42`, `_arm`).
What each folder is for is in `ARCHITECTURE.md`; the benchmarks are in `benchmarks/README.md`.

`python tools/update_tree.py` writes this page, and a test compares it with the files.
"""


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


def folders() -> set[str]:
    """The folders that have modules."""
    return {name.rpartition("/")[0] for name in modules()}


def described() -> dict[str, str]:
    """The folders that ARCHITECTURE.md describes, in the rows of its tables."""
    rows = re.findall(r"^\| `([\w/]+)/` \| (.+) \|$", HOUSE.read_text(encoding="utf-8"), re.MULTILINE)
    return {folder: words for folder, words in rows if folder.split("/")[0] in FOLDERS}


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
    words = re.sub(r":\w+:`~?\.?([^`]*)`", r"\1", words.split("\n\n")[0]).replace("`", "")
    words = re.split(r"(?<=[\w)\"])[.;](?:\s|$)", " ".join(words.split()), maxsplit=1)[0]
    return re.sub(r" \([^)]*$", "", words)


def shortened(words: str) -> str:
    """At most WIDTH characters, without what stands behind a colon or in brackets, or cut after a word."""
    if len(words) <= WIDTH:
        return words
    clause = re.match(rf".{{20,{WIDTH}}}(?=: | \()", words)
    return clause[0] if clause else words[: WIDTH - 3].rpartition(" ")[0] + "..."


def page() -> str:
    """The page as the files are now."""
    lines = [INTRODUCTION]
    names = sorted(modules().items(), key=lambda item: item[0].rpartition("/")[::2])
    for folder, inside in groupby(names, key=lambda item: item[0].rpartition("/")[0]):
        lines.append(f"## {folder}\n")
        for name, path in inside:
            words = re.sub(r"([*_\[\]])", r"\\\1", shortened(description(path))).replace("<", "&lt;")
            lines.append(f"- `{name.rpartition('/')[2]}`: {words}")
        lines.append("")
    return "\n".join(lines)


if __name__ == "__main__":
    DOCUMENT.write_text(page(), encoding="utf-8")
