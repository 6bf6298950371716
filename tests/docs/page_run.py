"""Running a page: its Python blocks in one namespace, its console blocks by bash, in a folder of its own."""

from __future__ import annotations

import gc
import os
import shlex
import subprocess
import sys
import types
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from blocks import Block, blocks_of

from fastload.cli import main

SHELL = set("|&;<>()$`*?[]#~=%{}!\n\\")


def run_page(page: Path) -> dict[str, object]:
    """Run all blocks of a page in the current folder; its names at the end.

    Raises:
        Exception: a block's own, with a note that says which block.
    """
    with as_main(page) as module:
        for block in blocks_of(page):
            if not block.runs:
                continue
            try:
                if block.language == "console":
                    run_console(block)
                else:
                    run_python(block, page, module)
            except BaseException as error:
                told(error, f"{page.name}:{block.line}: this {block.language} block fails:\n{block.code}")
                raise
        return vars(module)


@contextmanager
def as_main(page: Path) -> Iterator[types.ModuleType]:
    """A module of the page's own as ``__main__``, as for a script; loaders left open in it are closed."""
    module = types.ModuleType("__main__", f"The blocks of {page.name}.")
    kept = sys.modules["__main__"]
    sys.modules["__main__"] = module
    try:
        yield module
    finally:
        sys.modules["__main__"] = kept
        for value in list(vars(module).values()):
            if type(value).__module__.startswith("fastload.") and hasattr(value, "close"):
                value.close()
        gc.collect()


def run_python(block: Block, page: Path, module: types.ModuleType) -> None:
    """Line numbers in tracebacks are the page's. Executing this project's own pages is the point here."""
    source = "\n" * (block.line - 1) + block.code
    exec(compile(source, str(page), "exec", dont_inherit=True), vars(module))


def run_console(block: Block) -> None:
    """In bash; lines that only call fastload run in this process, which saves its start."""
    typed = block.commands()
    if all(is_plain(line) for line in typed.splitlines()):
        for line in typed.splitlines():
            arguments = shlex.split(line)[1:]
            status = main(arguments)
            assert status == 0, f"exit code {status} of: {line}"
        return
    done = subprocess.run(
        ["bash", "-e", "-c", typed],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, f"exit code {done.returncode} of:\n{typed}\n{done.stdout}{done.stderr}"


def is_plain(line: str) -> bool:
    """Whether the line is a call of fastload that a shell would hand on as it stands."""
    return line.startswith("fastload ") and not SHELL & set(line)


def environment() -> dict[str, str]:
    """``fastload`` and ``python`` are those that run the tests."""
    return {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}


def told(error: BaseException, note: str) -> None:
    """Adds a note (Python 3.10 has none)."""
    if hasattr(error, "add_note"):
        error.add_note(note)
