"""docs/versions.md says what the tests are set up with, and docs/guide/frameworks.md nothing else."""

from __future__ import annotations

import re

import update_versions
from update_versions import PAGE, ROOT

FRAMEWORKS = ROOT / "docs" / "guide" / "frameworks.md"
ROW = re.compile(r"^\| (?:\[(.+)\]\(.*\)) \| ([\d., ]+) \|", re.MULTILINE)

#: What the page calls by another name than its package.
CALLED = {
    "dlio": "dliobenchmark",
    "composer": "mosaicml",
    "ignite": "pytorchignite",
    "lightningtrainerfabric": "lightning",
    "openclip": "opencliptorch",
    "raytrain": "ray",
    "torchvisionsreferences": "torchvision",
    "transformerstrainer": "transformers",
}


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text(encoding="utf-8") == update_versions.page(), "run tools/update_versions.py"


def test_every_environment_is_in_the_page() -> None:
    found = update_versions.environments()
    text = PAGE.read_text(encoding="utf-8")
    assert len(found) > 20
    for name, packages in found.items():
        for package, version in packages.items():
            assert re.search(
                rf"^\| {re.escape(package)} \| {re.escape(version)} \| .*`{name}`", text, re.MULTILINE
            )
    assert {"lightning", "torchvision", "transformers"} <= update_versions.on_each_change()


def test_the_page_of_frameworks_names_the_same_versions() -> None:
    pinned: dict[str, set[str]] = {}
    for packages in update_versions.environments().values():
        for package, version in packages.items():
            pinned.setdefault(re.sub(r"[^a-z]", "", package), set()).add(version)
    rows = ROW.findall(FRAMEWORKS.read_text(encoding="utf-8"))
    assert len(rows) >= 13
    for words, versions in rows:
        name = re.sub(r"[^a-z]", "", words.lower())
        found = pinned[CALLED.get(name, name)]
        for version in versions.split(", "):
            assert any(f"{one}.".startswith(f"{version}.") for one in found), f"{words} {version}: {found}"
