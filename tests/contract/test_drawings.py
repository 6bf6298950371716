"""The drawings of docs/how: dark ones are drawn from light ones, and their words can be read on a phone."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

import draw_dark
import pytest

LIGHT = draw_dark.light_drawings()
PAGES = draw_dark.FOLDER.parents[1] / "how"
PHONE = 358  # CSS pixels that a page leaves for a drawing on a phone of 390
SMALLEST = 12


def test_there_are_drawings() -> None:
    assert len(LIGHT) > 10
    assert {path.name for path in draw_dark.FOLDER.iterdir()} == {
        name for light in LIGHT for name in (light.name, draw_dark.dark_path(light).name)
    }


@pytest.mark.parametrize("light", LIGHT, ids=lambda path: path.stem)
def test_the_dark_drawing_is_of_the_light_one(light: Path) -> None:
    text = light.read_text(encoding="utf-8")
    dark = draw_dark.dark_path(light).read_text(encoding="utf-8")
    assert dark == draw_dark.dark(text), "run tools/draw_dark.py"
    assert not draw_dark.PARTNERS.keys() & set(draw_dark.COLOUR.findall(dark))


@pytest.mark.parametrize("light", LIGHT, ids=lambda path: path.stem)
def test_words_are_large_enough_on_a_phone(light: Path) -> None:
    text = light.read_text(encoding="utf-8")
    width = float(ElementTree.fromstring(text).attrib["viewBox"].split()[2])
    sizes = [float(size) for size in re.findall(r"(?:font|font-size): ?([\d.]+)px", text)]
    assert sizes
    assert min(sizes) * PHONE / width >= SMALLEST
    assert "font-size=" not in text
    assert "scale(" not in text


@pytest.mark.parametrize("light", LIGHT, ids=lambda path: path.stem)
def test_each_drawing_is_shown_in_both_forms(light: Path) -> None:
    name = light.name.removesuffix("-light.svg")
    pages = [page.read_text(encoding="utf-8") for page in PAGES.glob("*.md")]
    for form in ("light", "dark"):
        address = rf"\.\./images/how/{name}-{form}\.svg#gh-{form}-mode-only"
        shown = re.compile(rf"^!\[.+\]\({address}\)", re.MULTILINE)
        assert any(shown.search(page) for page in pages), f"no page shows {name}-{form}.svg"
