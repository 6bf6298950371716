"""The release's script: versions that agree, the date in the changelog, and the papers, as far as they need
nothing that the tests' environment lacks."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from datetime import date
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools" / "wheels"))

import papers  # noqa: E402
import release  # noqa: E402


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    """A folder with copies of the files that have the version."""
    for name in (*release.PLACES, "CHANGELOG.md"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, tmp_path / name)
    return tmp_path


def test_the_version_is_the_same_everywhere() -> None:
    assert len(set(release.found_versions(ROOT).values())) == 1
    assert release.disagreements(ROOT, publishes=False) == []


@pytest.mark.parametrize("name", list(release.PLACES))
def test_another_version_is_found(copied: Path, name: str) -> None:
    text = (copied / name).read_text(encoding="utf-8")
    found = re.search(release.PLACES[name], text)
    assert found is not None
    (copied / name).write_text(text[: found.start(1)] + "7.8.9" + text[found.end(1) :], encoding="utf-8")
    assert any("7.8.9" in line for line in release.disagreements(copied, publishes=False))


def test_a_version_is_prepared(copied: Path) -> None:
    version = release.found_versions(copied)["pyproject.toml"]
    assert any("Unreleased" in line for line in release.disagreements(copied, publishes=True))
    release.prepare(copied, "3.4.5", date(2031, 2, 1))
    assert set(release.found_versions(copied).values()) == {"3.4.5"} != {version}
    (missing,) = release.disagreements(copied, publishes=True)
    assert missing == "tests/golden/3.4.5 is missing: python tests/golden/make.py writes it."
    (copied / "tests" / "golden" / "3.4.5").mkdir(parents=True)
    assert release.disagreements(copied, publishes=True) == []
    changelog = (copied / "CHANGELOG.md").read_text(encoding="utf-8")
    original = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert changelog == original.replace("## Unreleased", "## 3.4.5 (2031-02-01)", 1)
    with pytest.raises(SystemExit, match="nothing to release"):
        release.prepare(copied, "3.4.6", date(2031, 2, 1))
    with pytest.raises(SystemExit, match=r"three numbers, as 0\.1\.0\. Found: 4\."):
        release.prepare(copied, "4", date(2031, 2, 1))


def test_a_changelog_of_another_version_is_found(copied: Path) -> None:
    (copied / "CHANGELOG.md").write_text("# Changelog\n\n## 9.9.9 (2031-02-01)\n", encoding="utf-8")
    assert any("begins with 9.9.9" in line for line in release.disagreements(copied, publishes=False))


def test_what_is_inside_has_licences_of_the_wheel() -> None:
    parts = papers.parts()
    assert {part.name for part in parts} == set(papers.LICENCES)
    folders = {folder.name for folder in (ROOT / "packaging" / "licenses").iterdir()}
    assert {part.name for part in parts} - {"curl"} == folders  # curl's headers leave nothing in the wheel
    of_wheel = set(papers.project()["license"].split(" AND "))
    for part in parts:
        assert part.licence is not None
        chosen = {word for word in re.split(r" AND | OR ", part.licence) if word != "curl"}
        assert chosen <= of_wheel, part.name
    assert all(re.fullmatch(r"[0-9a-f]{64}", part.sha256) for part in papers.sources())


def test_what_is_beside_is_what_pip_installs() -> None:
    found = [part.how.removeprefix("not inside, ") for part in papers.beside()]
    assert found == papers.project()["dependencies"]


def test_provenance_names_files_and_materials(tmp_path: Path) -> None:
    if not (ROOT / ".git").exists():
        pytest.skip("not a git checkout")
    wheel = tmp_path / "fastload-0.1.0-cp312-abi3-manylinux_2_28_x86_64.whl"
    wheel.write_bytes(b"a wheel")
    statement = papers.provenance("HEAD", [wheel])
    digest = subprocess.run(["sha256sum", wheel], check=True, capture_output=True, text=True).stdout.split()[
        0
    ]
    assert statement["_type"] == "https://in-toto.io/Statement/v1"
    assert statement["subject"] == [{"name": wheel.name, "digest": {"sha256": digest}}]
    materials = statement["predicate"]["buildDefinition"]["resolvedDependencies"]
    assert {"gitCommit": papers.git("rev-parse", "HEAD")} in [one.get("digest") for one in materials]
    digests = {one["digest"]["sha256"] for one in materials if "sha256" in one.get("digest", {})}
    assert digests == {part.sha256 for part in papers.sources()}
    assert {one["name"] for one in materials} > set(papers.pinned())


def test_pins_are_what_pyproject_asks_for() -> None:
    asked = {re.split(r"[><=]", line)[0] for line in papers.tables()["build-system"]["requires"]}
    assert asked == set(papers.pinned()) - {"cmake", "ninja"}


def test_the_name_of_another_machines_wheel_is_given(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(release, "HERE_IS", "x86_64")
    monkeypatch.setattr(release.shutil, "which", lambda name: name)
    assert release.machines() == ["x86_64", "aarch64"]
    assert release.wheel_for("x86_64", "cp314t", tmp_path) == {}
    given = release.wheel_for("aarch64", "cp314t", tmp_path)
    assert given["SETUPTOOLS_EXT_SUFFIX"] == ".cpython-314t-aarch64-linux-gnu.so"
    asked = release.compiling_for("aarch64")
    assert Path(asked["CMAKE_TOOLCHAIN_FILE"]).is_file()
    assert asked["CMAKE_PREFIX_PATH"] != release.compiling_for("x86_64")["CMAKE_PREFIX_PATH"]
    monkeypatch.setattr(release.shutil, "which", lambda name: None)
    assert release.machines() == ["x86_64"]


def test_interpreters_by_their_tags() -> None:
    one = release.looked_at(Path(sys.executable))
    assert one is not None
    assert one.tag.rstrip("t") == f"cp{sys.version_info[0]}{sys.version_info[1]}"
    assert release.looked_at(Path("/bin/true")) is None
    assert release.looked_at(Path("/nowhere")) is None


@pytest.mark.parametrize(
    ("name", "tag", "pythons", "glibc"),
    [
        ("fastload-0.1.0-cp310-cp310-manylinux_2_28_x86_64.whl", "cp310", "3.10", "2.28"),
        ("fastload-0.1.0-cp312-abi3-manylinux_2_34_aarch64.whl", "cp312", "3.12 and newer", "2.34"),
        ("fastload-0.1.0-cp314-cp314t-manylinux_2_28_x86_64.whl", "cp314t", "3.14t", "2.28"),
    ],
)
def test_wheels_by_their_names(name: str, tag: str, pythons: str, glibc: str) -> None:
    wheel = Path(name)
    assert (release.tag_of(wheel), release.pythons_of(wheel), release.glibc_of(wheel)) == (
        tag,
        pythons,
        glibc,
    )


def test_the_last_line_of_a_trial_is_understood() -> None:
    script = (ROOT / "tests" / "install" / "try_wheel.sh").read_text(encoding="utf-8")
    assert "${wheel##*/}: installed in $installed s, $then after $total s" in script
    line = (
        "Debian GNU/Linux 12 (bookworm), Python 3.11.2, "
        "fastload-0.1.0-cp311-cp311-manylinux_2_28_x86_64.whl: installed in 7.1 s, first batch after 9.3 s"
    )
    row = release.row_of({"line": line, "how": ", copied in"})
    assert row == ["Debian 12", "3.11.2, copied in", "cp311-cp311", "7.1", "first batch after 9.3 s"]
    row = release.row_of({"line": line.replace("x86_64", "aarch64"), "how": ", emulated"})
    assert row[1:3] == ["3.11.2, emulated", "cp311-cp311, Arm"]


def test_the_workflow_runs_parts_that_there_are() -> None:
    jobs = yaml.safe_load((ROOT / ".github" / "workflows" / "wheels.yml").read_text(encoding="utf-8"))["jobs"]
    steps: list[dict[str, Any]] = [step for job in jobs.values() for step in job["steps"]]
    calls = [found for step in steps for found in re.findall(r"release\.py (.*)", step.get("run", ""))]
    assert calls
    assert {word for call in calls for word in call.split()} <= set(release.PARTS)
    attested = [step["with"] for step in steps if step.get("uses", "").startswith("actions/attest@")]
    assert [("sbom-path" in given) for given in attested] == [False, True]


def test_the_page_has_a_place_for_the_dry_run() -> None:
    text = release.PAGE.read_text(encoding="utf-8")
    assert text.count(release.BEGIN) == text.count(release.END) == 1
    assert text.index(release.BEGIN) < text.index(release.END)
