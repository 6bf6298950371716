"""Training programs of others, whole: what each rank is given, and what it loses, are the original's.

``training_job.py`` says in which ways each runs; ``FASTLOAD_WRITE_PAGES=1`` puts what was found into
docs/measured/programs.md.
"""

from __future__ import annotations

import hashlib
import os
import sys
from pathlib import Path
from typing import Any

import page
import pytest
import sources as list_of_sources
import torch
from compared import Compared, compare
from foreign_jobs import run_to_end
from sources import sources
from trainings import TRAININGS, make_data

JOBS = [f"{name}:{n}" for name, program in TRAININGS.items() for n in ((1, 2) if program.ranks else (1,))]
JOB = Path(__file__).with_name("training_job.py")
PIXELS = 1e-6  # of normalised floats, which the core computes by one multiplication and one addition
LOSS = 1e-5  # of the first one, relative
LIMIT = 600  # seconds for one program


@pytest.fixture(scope="session")
def found(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the programs that were asked for found, each in a folder; one whose files lack has none."""
    asked = [item.callspec.params["job"] for item in request.session.items if "found" in item.fixturenames]
    folder, out = Path(os.environ["FASTLOAD_PROGRAMS"]), tmp_path_factory.mktemp("out")
    data = tmp_path_factory.mktemp("data")
    make_data(data)
    jobs = with_files(asked, folder, out)
    run_to_end([sys.executable, str(JOB), *map(str, (folder, data, out)), *jobs], LIMIT * (1 + len(jobs)))
    return out


def with_files(jobs: list[str], folder: Path, out: Path) -> list[str]:
    """Those whose files are in the folder now; OUT/JOB.absent or OUT/JOB.wrong says why others are not."""
    found = []
    for job in jobs:
        try:
            for source in sources(TRAININGS[job.rpartition(":")[0]].of):
                source.fetch(folder)
            found.append(job)
        except (OSError, ValueError) as error:
            kind = "absent" if isinstance(error, OSError) else "wrong"
            (out / f"{job}.{kind}").write_text(str(error))
    return found


@pytest.mark.timeout(LIMIT * len(JOBS))
@pytest.mark.parametrize("job", JOBS)
def test_rows_pixels_and_losses_are_the_originals(job: str, found: Path) -> None:
    name, _, ranks = job.rpartition(":")
    program = TRAININGS[name]
    writes = os.environ.get("FASTLOAD_WRITE_PAGES") == "1"
    if (found / f"{job}.wrong").exists():
        pytest.fail((found / f"{job}.wrong").read_text())
    if (found / f"{job}.absent").exists():
        if writes:
            page.write(page.absent(name, program, int(ranks)))
        require = os.environ.get("FASTLOAD_REQUIRE_PROGRAMS") == "1"
        (pytest.fail if require else pytest.skip)((found / f"{job}.absent").read_text())
    failed = found / job / "failed"
    assert not failed.exists(), failed.read_text()
    ours, packed = compare(found / job, "import", "torch", int(ranks), program.looks), None
    assert min(ours.batches, ours.steps) > 0
    assert ours.differ == ""
    assert (ours.pixels, ours.losses) == (0, (0, 0))
    if program.packs:
        packed = compare(found / job, "packed", "files", int(ranks))
        assert packed.differ == ""
        assert packed.pixels <= (0 if program.draws else PIXELS)
        assert packed.losses[0] <= LOSS
        assert packed.passes[0] == packed.passes[1] > 0  # the engine read all
    if writes:
        page.write(page.line(name, program, int(ranks), ours, packed))


def test_a_program_whose_files_lack_or_are_others_keeps_none_of_the_rest_from_running(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(list_of_sources, "RAW", (tmp_path / "nothing").as_uri())
    mae, vae = (sources(TRAININGS[name].of) for name in ("mae", "vae"))
    there = [source for source in sources() if source.sha256 == hashlib.sha256(b"").hexdigest()]
    assert there  # an empty __init__.py
    kept = {TRAININGS["mae"].of: mae, TRAININGS["vae"].of: vae, TRAININGS["minGPT adder"].of: there}
    monkeypatch.setattr(sys.modules[__name__], "sources", kept.get)
    for source in (*there, *mae):
        source.place(tmp_path).parent.mkdir(parents=True, exist_ok=True)
        source.place(tmp_path).write_bytes(b"")  # others than mae's
    found = with_files(["vae:1", "mae:1", "mae:2", "minGPT adder:1"], tmp_path, tmp_path)
    assert found == ["minGPT adder:1"]
    assert f"{vae[0].path} cannot be fetched" in (tmp_path / "vae:1.absent").read_text()
    assert f"Put that file at {tmp_path}" in (tmp_path / "vae:1.absent").read_text()
    assert "its SHA-256 is e3b0c442" in (tmp_path / "mae:2.wrong").read_text()


def test_the_page_says_which_programs_did_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copy = tmp_path / "programs.md"
    copy.write_text(page.PAGE.read_text(encoding="utf-8"), encoding="utf-8")
    monkeypatch.setattr(page, "PAGE", copy)
    before = copy.read_text(encoding="utf-8").splitlines()
    page.write(page.absent("mae", TRAININGS["mae"], 2))
    after = copy.read_text(encoding="utf-8").splitlines()
    assert len(before) == len(after)
    changed = [line for line, old in zip(after, before, strict=True) if line != old]
    assert len(changed) == 1
    assert changed[0].startswith("| mae: `facebookresearch/mae` efb2a806")
    assert "| not run: its files could not be fetched |" in changed[0]
    assert changed[0].count("|") == before[before.index(page.HEAD.splitlines()[0])].count("|")


def one_run(*batches: Any, losses: tuple[float, ...] = (1.0,)) -> dict[str, Any]:
    """What a run of one pass has."""
    return {
        "passes": [{"batches": list(batches), "len": len(batches), "engine": True}],
        "losses": list(losses),
    }


def test_what_differs_is_seen() -> None:
    pixels, labels = 0.4 * torch.rand(2, 3, 4, 4), torch.tensor([4, 5])
    whole = one_run([pixels, labels])
    for other in (
        one_run([pixels, labels + 1]),
        one_run([pixels, labels], [pixels, labels]),
        one_run([pixels]),
    ):
        seen = Compared()
        seen.add(whole, other)
        assert seen.differ
    seen = Compared()
    seen.add(whole, one_run([pixels + 0.5, labels], losses=(2.0,)))
    assert (seen.differ, round(seen.pixels, 3), seen.losses) == ("", 0.5, (0.5, 0.5))
