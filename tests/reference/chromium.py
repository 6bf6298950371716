"""A page as a real browser lays it out: screenshots, and what a script in it finds. Needs a Chromium."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

__all__ = ["find_chromium", "found_in", "screenshot"]

_NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")


def find_chromium() -> str:
    """The browser's path; the test skips where there is none."""
    for name in _NAMES:
        path = shutil.which(name)
        if path is not None:
            return path
    pytest.skip(f"needs a Chromium to look at pages with, as one of {', '.join(_NAMES)} (apt: chromium)")


def _run(*arguments: str, dark: bool = False) -> str:
    scheme = f"--blink-settings=preferredColorScheme={0 if dark else 1}"
    command = [find_chromium(), "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
    run = subprocess.run(
        [*command, scheme, "--hide-scrollbars", *arguments], capture_output=True, text=True, timeout=100
    )
    assert run.returncode == 0, run.stderr[-2000:]
    return run.stdout


def screenshot(
    page: Path, picture: Path, *, width: int = 1000, height: int = 2600, dark: bool = False
) -> None:
    """``page`` as a PNG."""
    _run(f"--window-size={width},{height}", f"--screenshot={picture}", page.as_uri(), dark=dark)


def found_in(page: Path, script: str, *, width: int = 1000, dark: bool = False) -> Any:
    """What ``script``, the body of a function, returns in ``page`` when that is laid out; JSON values."""
    probed = page.with_name(f"probed-{page.name}")
    wrapped = (
        "<script>window.addEventListener('load', () => { const found = (() => {" + script + "})();"
        "const out = document.createElement('pre'); out.id = 'found';"
        "out.textContent = JSON.stringify(found); document.body.append(out); });</script></body>"
    )
    text = page.read_text(encoding="utf-8")
    assert text.count("</body>") == 1
    probed.write_text(text.replace("</body>", wrapped), encoding="utf-8")
    shown = _run(f"--window-size={width},2600", "--dump-dom", probed.as_uri(), dark=dark)
    found = re.search(r'<pre id="found">(.*?)</pre>', shown, flags=re.DOTALL)
    assert found is not None, shown[-2000:]
    return json.loads(html.unescape(found[1]))
