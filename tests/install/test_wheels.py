"""What packages are built of and for: cibuildwheel's settings, the libraries' sources, the workflow, conda's
recipe, and the wheel that make setup built."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import zipfile
from email.parser import Parser
from pathlib import Path
from typing import Any

import pytest
import yaml

try:
    import tomllib
except ModuleNotFoundError:  # Python 3.10
    from pip._vendor import tomli as tomllib

ROOT = Path(__file__).resolve().parents[2]
LICENSES = ROOT / "packaging" / "licenses"
PYTHON = "Programming Language :: Python :: 3."
IN_CONDA = {"torch": "pytorch", "lmdb": "python-lmdb"}


@pytest.fixture(scope="module")
def pyproject() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def sources() -> dict[str, tuple[str, list[str]]]:
    """Of libraries.sh: each library's SHA-256 and URLs, by its name and version."""
    script = (ROOT / "tools" / "wheels" / "libraries.sh").read_text(encoding="utf-8")
    table = script.partition("cat << 'TABLE'\n")[2].partition("TABLE\n")[0]
    rows = re.findall(r"^(\S+) (\S+)\n((?:  \S+\n)+)", table, re.MULTILINE)
    assert rows
    assert "".join(f"{name} {sha256}\n{urls}" for name, sha256, urls in rows) == table
    return {name: (sha256, urls.split()) for name, sha256, urls in rows}


def test_every_python_of_the_classifiers_has_a_wheel(pyproject: dict[str, Any]) -> None:
    project = pyproject["project"]
    lines = [line for line in project["classifiers"] if line.startswith(PYTHON)]
    minors = sorted(int(line.removeprefix(PYTHON)) for line in lines)
    stable = int(pyproject["tool"]["scikit-build"]["wheel"]["py-api"].removeprefix("cp3"))
    assert minors == list(range(minors[0], minors[-1] + 1))
    assert project["requires-python"] == f">=3.{minors[0]}"
    built = [*(f"cp3{minor}-*" for minor in minors if minor <= stable), f"cp3{minors[-1]}t-*"]
    assert pyproject["tool"]["cibuildwheel"]["build"] == built


def test_each_library_is_named_by_url_and_digest(sources: dict[str, tuple[str, list[str]]]) -> None:
    assert len(sources) >= 4
    for name, (sha256, urls) in sources.items():
        assert re.fullmatch(r"[0-9a-f]{64}", sha256), name
        assert all(url.startswith("https://") for url in urls), name


def test_each_linked_library_has_its_licence(sources: dict[str, tuple[str, list[str]]]) -> None:
    linked = {name.rpartition("-")[0] for name in sources} - {"curl"}  # of which headers alone are used
    assert {folder.name for folder in LICENSES.iterdir()} == linked | {"nanobind", "robin-map"}
    assert all(any(folder.iterdir()) for folder in LICENSES.iterdir())


def test_actions_are_pinned_and_install_tests_have_every_wheel(pyproject: dict[str, Any]) -> None:
    jobs = yaml.safe_load((ROOT / ".github" / "workflows" / "wheels.yml").read_text(encoding="utf-8"))["jobs"]
    used = [step["uses"] for job in jobs.values() for step in job["steps"] if "uses" in step]
    assert used
    assert [action for action in used if not re.search(r"@v\d+\.\d+\.\d+$", action)] == []
    machines = {row["machine"] for row in jobs["wheels"]["strategy"]["matrix"]["include"]}
    tried = jobs["install"]["strategy"]["matrix"]
    assert set(tried["machine"]) == machines
    assert {"debian:12", "debian:13"} <= set(tried["image"])


def test_the_conda_recipe_has_the_same_requirements(pyproject: dict[str, Any]) -> None:
    recipe = yaml.safe_load((ROOT / "packaging" / "conda" / "recipe.yaml").read_text(encoding="utf-8"))
    project = pyproject["project"]
    assert recipe["context"]["version"] == project["version"]
    split = (re.fullmatch(r"([\w-]+)(.*)", line) for line in project["dependencies"])
    needed = {f"{IN_CONDA.get(match[1], match[1])} {match[2]}" for match in split if match}
    assert set(recipe["requirements"]["run"]) == needed | {"python", "libcurl"}
    host = {re.sub("([<>=].*)", r" \1", line) for line in pyproject["build-system"]["requires"]}
    assert host <= set(recipe["requirements"]["host"])


@pytest.mark.parametrize("machine", ["linux-64", "linux-aarch64"])
def test_rattler_build_takes_the_conda_recipe(machine: str) -> None:
    from rattler_build import PlatformConfig, RenderConfig, Stage0Recipe, VariantConfig

    pythons = ["3.10.* *_cpython", "3.14.* *_cp314"]
    asked = {
        "python": pythons,
        "cxx_compiler": ["gxx"],
        "c_stdlib": ["sysroot"],
        "c_stdlib_version": ["2.28"],
    }
    platform = PlatformConfig(target_platform=machine, host_platform=machine, build_platform=machine)
    recipe = Stage0Recipe.from_file(ROOT / "packaging" / "conda" / "recipe.yaml")
    made = recipe.render(VariantConfig(asked), RenderConfig(platform=platform))
    assert [one.variant["python"] for one in made] == pythons
    for one in made:
        found = one.recipe.to_dict()
        assert f"gxx_{machine}" in found["requirements"]["build"]
        assert all((ROOT / name).is_file() for name in found["about"]["license_file"])


def built_wheel() -> Path:
    wheels = sorted((ROOT / "build" / "wheel").glob("fastload-*.whl"))
    if not wheels:
        pytest.skip("make setup has built no wheel here")
    return wheels[-1]


def test_the_wheel_has_licences_and_nothing_strange() -> None:
    with zipfile.ZipFile(built_wheel()) as wheel:
        names = [name for name in wheel.namelist() if not name.endswith("/")]
        info = next(name for name in names if name.endswith(".dist-info/METADATA")).rpartition("/")[0]
        texts = [ROOT / "LICENSE", *(text for text in LICENSES.glob("*/*"))]
        for text in texts:
            assert wheel.read(f"{info}/licenses/{text.relative_to(ROOT)}") == text.read_bytes()
        metadata = Parser().parsestr(wheel.read(f"{info}/METADATA").decode())
        assert len(metadata.get_all("License-File", [])) == len(texts)
    inside = re.compile(r"fastload/(\w+/)*(\w+\.py|py\.typed|_C\.pyi|_C\.[\w-]+\.so)")
    assert [name for name in names if not name.startswith(f"{info}/") and not inside.fullmatch(name)] == []
    sources = {str(path.relative_to(ROOT)) for path in (ROOT / "fastload").rglob("*.py")}
    assert {name for name in names if name.endswith(".py")} == sources


def test_the_extension_shows_nothing_of_its_libraries() -> None:
    spec = importlib.util.find_spec("fastload._C")
    assert spec is not None
    assert spec.origin is not None
    nm = ["nm", "--dynamic", "--defined-only", "--format=posix", spec.origin]
    listed = subprocess.run(nm, check=True, capture_output=True, text=True).stdout
    exported = {line.split()[0] for line in listed.splitlines()}
    assert "PyInit__C" in exported
    foreign = re.compile(r"(jpeg|jinit|jsimd|png|Web[PR]|VP8|inflate|deflate|crc32|adler32|tsl)")
    assert [name for name in exported if foreign.match(name)] == []
