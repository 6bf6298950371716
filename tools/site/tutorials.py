"""Tutorials: notebooks in percent format (docs/tutorials/*.py), executed, as pages and as .ipynb files."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable
from importlib.util import find_spec
from itertools import groupby
from pathlib import Path
from typing import Any

import jupytext

PICTURES = {"image/svg+xml": "svg", "image/png": "png"}
ESCAPES = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
HINT = "*This page is a notebook: [{name}.ipynb]({name}.ipynb), made from `docs/tutorials/{name}.py`.*"
NOT_RUN = " *It was not run for this page, so it shows no outputs: it needs {names}.*"


def read(path: Path) -> Any:
    """The notebook that a percent-format file describes."""
    notebook = jupytext.read(path, fmt="py:percent")
    notebook.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
    return notebook


def missing(notebook: Any) -> list[str]:
    """The libraries that a notebook needs (``needs`` in its header) and that are not installed."""
    return [name for name in notebook.metadata.get("needs", []) if find_spec(name) is None]


def execute(notebook: Any, folder: Path) -> None:
    """Runs every cell in this folder, whose own path is left out of the outputs, which go into the notebook.

    Raises:
        nbclient.exceptions.CellExecutionError: a cell fails.
    """
    from nbclient import NotebookClient

    NotebookClient(
        notebook, timeout=120, kernel_name="python3", resources={"metadata": {"path": str(folder)}}
    ).execute()
    for cell in notebook.cells:
        for output in cell.get("outputs", []):
            for holder in (output, output.get("data", {})):
                holder.update({key: text.replace(f"{folder}/", "") for key, text in texts_in(holder).items()})


def texts_in(holder: Any) -> dict[str, str]:
    """What of an output is text."""
    return {key: holder[key] for key in ("text", "text/plain") if key in holder}


def written(notebook: Any) -> bytes:
    """The .ipynb file."""
    return str(jupytext.writes(notebook, fmt="ipynb")).encode()


def page_of(notebook: Any, name: str) -> tuple[str, dict[str, bytes]]:
    """The page's Markdown, and the pictures that its cells drew, by file name."""
    parts: list[str] = []
    pictures: dict[str, bytes] = {}
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            parts.append(cell.source)
        elif cell.cell_type == "code" and "hide" not in cell.metadata.get("tags", []):
            parts.append(f"```python\n{cell.source}\n```")
            parts += shown(cell.get("outputs", []), name, pictures)
    head, _, rest = "\n\n".join(part for part in parts if part).partition("\n")
    names = ", ".join(missing(notebook))
    hint = HINT.format(name=name) + (NOT_RUN.format(names=names) if names else "")
    return f"{head}\n\n{hint}\n{rest}\n", pictures


def shown(outputs: Iterable[Any], name: str, pictures: dict[str, bytes]) -> list[str]:
    """What a cell gives: its pictures, and its texts, those without a picture between them as one."""
    parts: list[str] = []
    for printed, group in groupby(
        outputs, lambda output: not PICTURES.keys() & output.get("data", {}).keys()
    ):
        if printed:
            text = ESCAPES.sub("", "".join(map(text_of, group))).rstrip()
            parts += [f"```{{ .text .output }}\n{text}\n```"] if text else []
        else:
            parts += [picture(output["data"], name, pictures) for output in group]
    return parts


def text_of(output: Any) -> str:
    """What an output says; a cell's value stands on a line of its own."""
    return str(output["text"]) if "text" in output else output.get("data", {}).get("text/plain", "") + "\n"


def picture(data: Any, name: str, pictures: dict[str, bytes]) -> str:
    """A link to a picture, which is kept."""
    kind = next(kind for kind in PICTURES if kind in data)
    file = f"{name}-{len(pictures) + 1}.{PICTURES[kind]}"
    pictures[file] = data[kind].encode() if kind == "image/svg+xml" else base64.b64decode(data[kind])
    return f"![What the cell draws]({file}){{ .output }}"
