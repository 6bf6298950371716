"""Training programs of others, whole: what each rank is given, and what it loses, are the original's.

``training_job.py`` says in which ways each runs; ``FASTLOAD_WRITE_PAGES=1`` puts what was found into
docs/measured/programs.md.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import page
import pytest
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
    """What the programs that were asked for found, each in a folder; one that cannot be fetched has none."""
    asked = [item.callspec.params["job"] for item in request.session.items if "found" in item.fixturenames]
    folder, out = Path(os.environ["FASTLOAD_PROGRAMS"]), tmp_path_factory.mktemp("out")
    data = tmp_path_factory.mktemp("data")
    make_data(data)
    jobs = []
    for job in asked:
        try:
            for source in sources(TRAININGS[job.rpartition(":")[0]].of):
                source.fetch(folder)
            jobs.append(job)
        except OSError as error:
            (out / f"{job}.absent").write_text(str(error))
    run_to_end([sys.executable, str(JOB), *map(str, (folder, data, out)), *jobs], LIMIT * (1 + len(jobs)))
    return out


@pytest.mark.timeout(LIMIT * len(JOBS))
@pytest.mark.parametrize("job", JOBS)
def test_rows_pixels_and_losses_are_the_originals(job: str, found: Path) -> None:
    name, _, ranks = job.rpartition(":")
    program = TRAININGS[name]
    if (found / f"{job}.absent").exists():
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
    if os.environ.get("FASTLOAD_WRITE_PAGES") == "1":
        page.write(page.line(name, program, int(ranks), ours, packed))


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
