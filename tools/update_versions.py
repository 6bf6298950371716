"""Write docs/versions.md, the versions that the tests run with: ``python tools/update_versions.py``.

From pyproject.toml, .github/workflows/test.yml, the Makefile and tests/foreign.
tests/contract/test_versions.py fails if the page says something else.
"""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "versions.md"
PINNED = re.compile(r"^([A-Za-z0-9_.-]+)(?:\[[^\]]*\])?==([0-9][\w.]*)$", re.MULTILINE)
HEAD = """---
description: Versions of Python, torch, torchvision, transformers, Lightning and others that tests run with.
---

# Versions

Which versions of Python, torch and other libraries do the tests run with? `tools/update_versions.py` writes
this page from the tests' own settings, and a test fails if it is out of date. Other versions may work, too.
[Installation](install.md#tested-versions) has the oldest and the newest version of each dependency that
passed, with the date; [Frameworks](guide/frameworks.md) says what each framework needs.

"""


def _text(path: str) -> str:
    return (ROOT / path).read_text(encoding="utf-8")


def _listed(key: str, text: str, words: str) -> list[list[str]]:
    """Each ``key: [...]`` of a workflow."""
    found = re.findall(rf"^\s*{key}: \[(.*)\]$", text, re.MULTILINE)
    assert found, f"{words}: no line '{key}: [...]'"
    return [[one.strip().strip('"') for one in line.split(",")] for line in found]


def on_each_change() -> set[str]:
    """The environments that ``make frameworks`` makes: those of every pull request."""
    recipe = re.search(r"^foreign-test:.*\n((?:\t.*\n)+)", _text("Makefile"), re.MULTILINE)
    assert recipe, "the Makefile has no foreign-test"
    names = {path.parent.name for path in (ROOT / "tests" / "foreign").glob("*/requirements.txt")}
    return names & set(re.findall(r"[\w-]+", recipe[1].split("|")[0]))


def environments() -> dict[str, dict[str, str]]:
    """Of each environment of tests/foreign (NAME or NAME@old) the packages that it pins, with versions."""
    found: dict[str, dict[str, str]] = {}
    for file in sorted((ROOT / "tests" / "foreign").glob("*/requirements*.txt")):
        variant = file.stem.removeprefix("requirements").removeprefix("-")
        name = file.parent.name + (f"@{variant}" if variant else "")
        more = file.with_name(f"no-deps{'-' + variant if variant else ''}.txt")
        more = more if more.exists() else file.with_name("no-deps.txt")
        text = file.read_text() + (more.read_text() if more.exists() else "")
        found[name] = dict(PINNED.findall(text))
    return found


def _order(version: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", version)]


def frameworks() -> str:
    """A row for each package: its versions, the newest first, and where they are tested."""
    tried: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for environment, packages in environments().items():
        for package, version in packages.items():
            tried[package][version].append(environment)
    always, lines = (
        on_each_change(),
        ["| package | version | `make foreign NAME=` | run |", "|---|---|---|---|"],
    )
    for package, versions in sorted(tried.items(), key=lambda one: one[0].lower()):
        for version in sorted(versions, key=_order, reverse=True):
            where = versions[version]
            when = "every pull request" if always & set(where) else "by hand"
            lines.append(f"| {package} | {version} | {', '.join(f'`{name}`' for name in where)} | {when} |")
    return "\n".join(lines)


def pythons() -> str:
    """Which Pythons and machines the workflow takes, and which torch."""
    text, name = _text(".github/workflows/test.yml"), "test.yml"
    quick, whole = _listed("python", text, name)
    machines = {one for line in _listed("machine", text, name) for one in line}
    torch = re.search(r"TORCH_VERSION:-([0-9.]+)\}", _text("tests/foreign/run.sh"))
    assert torch, "tests/foreign/run.sh names no torch"
    kinds = " and ".join("64-bit Arm" if one.endswith("-arm") else "x86-64" for one in sorted(machines))
    rows = {
        "the quick tests, on every push": f"Python {', '.join(quick)} on {kinds}",
        "all tests, on every pull request": f"Python {' and '.join(whole)} on {kinds}",
        "frameworks": f"torch {torch[1]}, unless the table below names another",
        "`make versions`": f"the oldest that is allowed ({', '.join(oldest())}), and the newest of each",
    }
    return "\n".join(["| tests | with |", "|---|---|", *(f"| {what} | {by} |" for what, by in rows.items())])


def oldest() -> list[str]:
    """The dependencies' lowest versions."""
    line = re.search(r"^dependencies = \[(.*)\]$", _text("pyproject.toml"), re.MULTILINE)
    assert line, "pyproject.toml has no line of dependencies"
    return [one.replace(">=", " ") for one in re.findall(r'"([^"]+)"', line[1])]


def extras() -> str:
    """What the extras ask for."""
    text = _text("pyproject.toml").split("[project.optional-dependencies]\n")[1].split("\n[")[0]
    lines = ["| extra | asks for |", "|---|---|"]
    for name, line in re.findall(r"^(\w+) = \[(.*)\]$", text, re.MULTILINE):
        asked = [one.split(";")[0].strip() for one in re.findall(r'"([^"]+)"', line)]
        lines.append(f"| `fastload[{name}]` | {', '.join(asked)} |")
    return "\n".join(lines)


def page() -> str:
    """The whole page."""
    sections = {
        "Python and torch": f"{pythons()}\n\nThe workflow is `.github/workflows/test.yml`.",
        "Frameworks and other libraries": f"`tests/foreign/run.sh` makes each environment.\n\n{frameworks()}",
        "Extras": f"The oldest versions that fastload takes.\n\n{extras()}",
    }
    return HEAD + "\n".join(f"## {title}\n\n{text}\n" for title, text in sections.items())


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
