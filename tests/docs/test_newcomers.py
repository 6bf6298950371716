"""Ten tasks of a newcomer, with typical mistakes: messages name the value and the next step, which helps.

``mistakes/TASK.txt`` has them: a name, and below it what was typed (Python, or a command line, perhaps behind
shell commands), ``shows`` words that the message must have, ``helps`` what it advises. FIRST is a picture.
"""

from __future__ import annotations

import contextlib
import io
import re
import shlex
import subprocess
import sys
import warnings
from dataclasses import dataclass
from pathlib import Path

import pytest

import fastload
from fastload.cli import main

HERE = Path(__file__).parent / "mistakes"
TASKS = ("pack", "train", "resume", "coco", "bucket", "ranks", "doctor", "report", "index", "unpack")
#: Words of a rule or of a next step, one of which every message has.
GUIDES = re.compile(
    r"must|legal|Legal|choose |Choose |id you mean|Pass|give |Give |Make|makes|restore|Restore|Mend|"
    r"leave|Leave|Check|Add|name|Name|Call|Put|needs?\b|takes?\b|expected|one of|exclude|are required|"
    r"--\w|lies inside|its ids are|Set |is for|are for|It has|'fastload \w+|Upgrade|Resume with|"
    r"out of range|missing|Install|Copy|Run |write for example|A loader state is a dict|"
    r"should not be set|or neither|<=|, as 5 |Index "
)
BEGIN = "import os\nimport torch\nimport fastload\nfrom fastload import DataLoader, transforms as T\n"
BEGIN += "resize = T.Resize((32, 32))\n"
BEGINS = {
    "resume": "a = DataLoader('packed/train', 4, shuffle=True, seed=1, transform=resize)\n"
    "b = DataLoader('packed/train', 4, shuffle=True, seed=1, transform=resize)\n",
    "report": "loader = DataLoader('packed/train', 4, transform=resize)\n",
}


@dataclass(frozen=True)
class Mistake:
    task: str
    name: str
    typed: str
    shows: str
    helps: str


def read(task: str) -> list[Mistake]:
    """Return the mistakes of a task."""
    found: list[Mistake] = []
    for block in re.split(r"\n(?=\S)", (HERE / f"{task}.txt").read_text(encoding="utf-8").strip()):
        name, typed, *more = block.split("\n")
        facts = dict(line.strip().partition(" ")[::2] for line in more)
        found.append(Mistake(task, name, typed.strip(), facts.get("shows", ""), facts.get("helps", "")))
    return found


MISTAKES = [mistake for task in TASKS for mistake in read(task)]


def done(typed: str, task: str, names: dict[str, object]) -> str:
    """Do what was typed; return what is said if that is an error, else ""."""
    before, is_command, command = f"; {typed}".rpartition("; fastload")
    if is_command and command[:1] in ("", " "):
        shell = before.lstrip("; ").replace("fastload ", f"{sys.executable} -m fastload ")
        if shell:
            subprocess.run(shell, shell=True, check=True, stdout=subprocess.DEVNULL)
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            try:
                code = main(shlex.split(command))
            except SystemExit as stop:
                code = stop.code if isinstance(stop.code, int) else 2
                err.write("" if isinstance(stop.code, int) else str(stop.code))
        return err.getvalue() + out.getvalue() if code else ""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            exec(BEGIN + BEGINS.get(task, "") + typed.replace("\\n", "\n"), names)
    except Exception as error:
        return str(error)
    return ""


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: f"{mistake.task}: {mistake.name}")
def test_a_mistake_is_named_with_its_value_and_what_helps(mistake: Mistake, workplace: Path) -> None:
    first = next(iter(sorted((workplace / "photos" / "train" / "cat").iterdir()))).relative_to(workplace)
    said = done(mistake.typed.replace("FIRST", str(first)), mistake.task, {})
    assert said, "no error"
    assert "Traceback" not in said
    assert mistake.shows.replace("FIRST", str(first)) in said
    assert len(said) < 2500
    assert GUIDES.search(said), said
    if mistake.helps:
        wrong = done(mistake.helps.replace("FIRST", str(first)), mistake.task, {})
        assert not wrong, wrong


def test_each_task_has_thirty() -> None:
    counts = {task: len(read(task)) for task in TASKS}
    assert {task: count for task, count in counts.items() if count < 30} == {}
    assert len({(mistake.task, mistake.name) for mistake in MISTAKES}) == len(MISTAKES)
    assert fastload.__version__  # the package whose words these are
