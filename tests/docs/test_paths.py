"""Files that pages and comments name are there: whoever copies a command, or looks a file up, finds it."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("fastload", "csrc", "tests", "tools", "benchmarks", "docs", "packaging", "examples")
_PATH = re.compile(
    rf"(?<![\w./:-])(?:{'|'.join(FOLDERS)})/[\w./-]*\w\.(?:py|sh|cpp|h|md|txt|toml|yml|json)\b(?![\w/*])"
)
_STANDS_FOR_ANY = re.compile(r"[A-Z]{3,}")  # NAME.py
#: Files whose own tests make the paths in them, and the list of what once was.
MADE_UP = ("CHANGELOG.md", "tests/tools/", "tests/contract/", "tests/docs/", "tests/diagnose/test_streams.py")
#: Other projects' files.
OTHERS = ("examples/pytorch/domain_templates/imagenet.py",)


def missing(text: str) -> list[str]:
    """Return the paths of this project that a text names and that do not exist."""
    return [
        path
        for path in dict.fromkeys(_PATH.findall(text))
        if not _STANDS_FOR_ANY.search(path.removesuffix("README.md"))
        and path not in OTHERS
        and not (ROOT / path).exists()
    ]


def test_what_is_missing_is_found() -> None:
    text = "python benchmarks/entries_run.py x; `tools/check.py`, csrc/core/NAME.cpp, https://x/docs/gone.md"
    assert missing(text) == ["benchmarks/entries_run.py"]


def test_files_that_are_named_are_there() -> None:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode:
        pytest.skip("not a git checkout")
    found = {}
    for name in listed.stdout.splitlines():
        if name.startswith(MADE_UP) or not name.endswith(
            (".md", ".py", ".sh", ".cpp", ".h", ".toml", ".yml")
        ):
            continue
        found |= {name: paths} if (paths := missing((ROOT / name).read_text(encoding="utf-8"))) else {}
    assert found == {}
