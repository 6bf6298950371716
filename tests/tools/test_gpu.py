"""make gpu without a GPU: what it refuses, and the document that it writes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import gpu_report
import pytest

SCRIPT = Path(gpu_report.__file__).with_name("gpu.sh")
DOCUMENT = """# By hand

Words <b>that</b> stay.
<!-- run: begin -->
old
<!-- run: end -->
Between.
<!-- tests: begin -->
<!-- tests: end -->
<!-- starvation: begin -->
<!-- starvation: end -->
<!-- articles: begin -->
old
<!-- articles: end -->
The end, without a line end"""
XML = """<testsuites><testsuite>
<testcase classname="tests.transfer.test_ring" name="test_a"/>
<testcase classname="tests.transfer.test_ring" name="test_b"><failure>x</failure></testcase>
<testcase classname="tests.transfer.test_ring" name="test_c"><skipped/></testcase>
</testsuite></testsuites>"""


def run(**variables: str) -> subprocess.CompletedProcess[str]:
    """tools/gpu.sh with these variables only."""
    command = [str(SCRIPT)]
    return subprocess.run(command, capture_output=True, text=True, timeout=110, env=variables, check=False)


def fake_torch(folder: Path, cuda: str, available: bool) -> str:
    """A folder with a module torch that says so."""
    folder.mkdir()
    (folder / "torch.py").write_text(
        f"__version__ = '9.9'\nclass version: cuda = {cuda}\n"
        f"class cuda:\n    is_available = staticmethod(lambda: {available})\n"
    )
    return str(folder)


def test_no_such_interpreter(tmp_path: Path) -> None:
    done = run(PATH=os.environ["PATH"], PYTHON="no-such-python")
    assert done.returncode == 1
    assert done.stderr == "[gpu] PYTHON=no-such-python: no such program.\n"


def test_a_cpu_build_and_a_missing_gpu_are_told_apart(tmp_path: Path) -> None:
    shared = {"PATH": os.environ["PATH"], "PYTHON": sys.executable}
    done = run(**shared, PYTHONPATH=fake_torch(tmp_path / "a", "None", False))
    assert done.returncode == 1
    assert done.stderr == "[gpu] No GPU: torch 9.9 is a CPU build. Nothing was run.\n"
    done = run(**shared, PYTHONPATH=fake_torch(tmp_path / "b", "'13.0'", False))
    assert done.returncode == 1
    assert "torch 9.9 (CUDA 13.0) sees no GPU" in done.stderr


def test_what_is_missing_has_a_line_each(tmp_path: Path) -> None:
    """An interpreter that sees a GPU but has no packages, and a PATH without a compiler."""
    tools = tmp_path / "bin"
    tools.mkdir()
    for name in ("bash", "dirname", "mkdir", "cat"):
        (tools / name).symlink_to(f"/usr/bin/{name}" if Path(f"/usr/bin/{name}").exists() else f"/bin/{name}")
    python = tools / "python"
    python.write_text(f'#!{tools}/bash\nexec {sys.executable} -S -E -c "import sys; sys.path.insert(0, '
                      f"'{fake_torch(tmp_path / 'torch', repr('13.0'), True)}')\n"
                      'exec(sys.stdin.read() if sys.argv[1] == \'-\' else sys.argv[2])" "$@"\n')  # fmt: skip
    python.chmod(0o755)
    done = run(PATH=str(tools), PYTHON=str(python))
    assert done.returncode == 1
    lines = done.stderr.splitlines()
    assert lines[0] == "[gpu] Missing:"
    for line in ("g++ 11 or newer", "the Python package nanobind", "the Python package pytest"):
        assert f"[gpu]   {line}" in lines
    assert any("cmake 3.20" in line for line in lines)
    assert "PACKAGES=" in lines[-1]


def test_the_report_keeps_what_was_written_by_hand(tmp_path: Path) -> None:
    folder = tmp_path / "gpu"
    (folder / "articles").mkdir(parents=True)
    (folder / "starvation.md").write_text("### resnet18\n\n| a |\n")
    (folder / "articles" / "mnist.md").write_text("### MNIST\n\nfast\n")
    (folder / "tests.xml").write_text(XML)
    (folder / "parts").write_text("build 0 31\ntests 1 7\nstarvation 124 120\n")
    document = tmp_path / "gpu.md"
    document.write_text(DOCUMENT)
    assert gpu_report.main([str(folder), "--document", str(document)]) == 0
    text = document.read_text()
    parts = [DOCUMENT.split("old")[0], "\nBetween.\n<!-- tests: begin -->\n", "<!-- starvation: end -->\n"]
    assert all(part in text for part in parts)
    assert text.endswith("<!-- articles: end -->\nThe end, without a line end")
    assert "old" not in text
    assert "1 passed, 1 failed, 1 skipped." in text
    assert "| `tests/transfer/test_ring` | `test_b` | failed |" in text
    assert "| starvation | stopped at its limit | 120 |" in text
    assert "| tests | exit status 1 | 7 |" in text
    assert "#### resnet18" in text
    assert "#### MNIST" in text
    gpu_report.main([str(folder), "--document", str(document)])
    assert [line for line in document.read_text().splitlines() if "date" not in line] == [
        line for line in text.splitlines() if "date" not in line
    ]


def test_parts_that_did_not_run_are_said_to_have_not(tmp_path: Path) -> None:
    text = gpu_report.report(tmp_path, "", DOCUMENT)
    assert text.count(gpu_report.NOT_RUN) == 3


def test_a_document_without_marks_is_refused() -> None:
    for text in ("", "<!-- run: end --><!-- run: begin -->", DOCUMENT + DOCUMENT):
        with pytest.raises(ValueError, match="needs the marks"):
            gpu_report.replace_section(text, "run", "x")


def test_the_real_document_has_all_marks() -> None:
    text = gpu_report.DOCUMENT.read_text()
    assert len(gpu_report.SECTIONS) > 1
    for name in gpu_report.SECTIONS:
        assert gpu_report.replace_section(text, name, "new body").count("new body") == 1
