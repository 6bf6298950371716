"""Tutorials: notebooks in percent format (docs/tutorials/*.py), executed, as pages and as .ipynb files."""

from __future__ import annotations

import base64
import re
from pathlib import Path
from typing import Any

import jupytext

PICTURES = {"image/svg+xml": "svg", "image/png": "png"}
ESCAPES = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
HINT = "*This page is a notebook: [{name}.ipynb]({name}.ipynb), made from `docs/tutorials/{name}.py`.*"


def read(path: Path) -> Any:
    """The notebook that a percent-format file describes."""
    notebook = jupytext.read(path, fmt="py:percent")
    notebook.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
    return notebook


def execute(notebook: Any, folder: Path) -> None:
    """Runs every cell in this folder; outputs go into the notebook.

    Raises:
        nbclient.exceptions.CellExecutionError: a cell fails.
    """
    from nbclient import NotebookClient

    NotebookClient(
        notebook, timeout=120, kernel_name="python3", resources={"metadata": {"path": str(folder)}}
    ).execute()


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
            parts += [shown(output, name, pictures) for output in cell.get("outputs", [])]
    head, _, rest = "\n\n".join(part for part in parts if part).partition("\n")
    return f"{head}\n\n{HINT.format(name=name)}\n{rest}\n", pictures


def shown(output: Any, name: str, pictures: dict[str, bytes]) -> str:
    """One output of a cell: a picture, or text."""
    data = output.get("data", {})
    for kind, suffix in PICTURES.items():
        if kind in data:
            file = f"{name}-{len(pictures) + 1}.{suffix}"
            pictures[file] = data[kind].encode() if suffix == "svg" else base64.b64decode(data[kind])
            return f"![What the cell draws]({file}){{ .output }}"
    text = ESCAPES.sub("", str(output.get("text") or data.get("text/plain") or "")).rstrip()
    return f"```{{ .text .output }}\n{text}\n```" if text else ""
