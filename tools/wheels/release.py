"""A release: ``make release`` does all of it but publishing, into build/release, and uploads nothing.

It looks whether the tree is clean and the version is the same everywhere, makes the source distribution from
the commit, and from that a wheel for each Python that it finds. It checks them (auditwheel, abi3audit,
twine), writes an SBOM and their provenance, installs each wheel in bare Debian systems, and writes
docs/project/release.md. Where Debian's cross compiler for 64-bit Arm is installed, it makes Arm's wheels,
too, and tries them under an emulator; on a 64-bit Arm machine it makes that machine's alone.

``release.py check sdist`` does these parts alone, as .github/workflows/wheels.yml does. ``--prepare 0.1.0``
writes version and date into the files that have them, to be committed. ``--publish``, after all parts went
well, tags the commit and pushes the tag; the workflow then builds the wheels anew and publishes them.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
from papers import HERE, ROOT, committed, compiler_for, git, project, sha256_of, tables

OUT = ROOT / "build" / "release"
DIST = OUT / "dist"
PAGE = ROOT / "docs" / "project" / "release.md"
PARTS = ("check", "sdist", "libraries", "wheels", "audit", "papers", "install", "page")
HERE_IS, ARM = platform.machine(), "aarch64"
ARM_TORCH = "torch==2.9.1"  # later builds of torch for Arm bring the libraries of CUDA
EMULATOR = Path("/proc/sys/fs/binfmt_misc/qemu-aarch64")
TOOLCHAIN = ROOT / "tools" / "aarch64.cmake"
GLIBC = "2_28"  # what wheels on PyPI are for; [tool.cibuildwheel] has the container
SYSTEMS = {"bookworm": "12", "trixie": "13", "testing": "testing"}
BEGIN, END = "<!-- a dry run, written by make release -->", "<!-- the dry run's end -->"


def say(text: str) -> None:
    """Print a line of progress."""
    print(f"[release] {text}", flush=True)


def stop(text: str) -> SystemExit:
    """The error for what is wrong."""
    return SystemExit(f"[release] {text}")


def run(*words: str | Path, env: dict[str, str] | None = None, cwd: Path = ROOT) -> str:
    """Run a program; its output, or an error that shows it."""
    done = subprocess.run(
        [str(word) for word in words],
        cwd=cwd,
        env={**os.environ, **(env or {})},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode:
        raise stop(f"This failed: {' '.join(map(str, words))}\n{done.stdout}")
    return done.stdout


# ---- The version, everywhere ------------------------------------------------------------------------

#: Where a version stands: the file, and what is around it.
PLACES = {
    "pyproject.toml": r'(?m)^version = "([^"]+)"',
    "fastload/_version.py": r'__version__ = "([^"]+)"',
    "packaging/conda/recipe.yaml": r'(?m)^  version: "([^"]+)"',
    "docs/install.md": r"(?m)^fastload (\S+) \(Python",
}
_HEAD = re.compile(r"(?m)^## (?P<name>Unreleased|(?P<version>\d+\.\d+\.\d+) \((?P<date>\d{4}-\d\d-\d\d)\))$")


def found_versions(root: Path) -> dict[str, str]:
    """The version in each file that has one; "nothing" where it was not found."""
    found = {}
    for name, pattern in PLACES.items():
        match = re.search(pattern, (root / name).read_text(encoding="utf-8"))
        found[name] = match[1] if match else "nothing"
    return found


def disagreements(root: Path, publishes: bool) -> list[str]:
    """What is wrong with versions and changelog, in words; ``publishes``: the changelog must have a date."""
    found = found_versions(root)
    version = found["pyproject.toml"]
    wrong = [
        f"{name} has {one} where pyproject.toml has {version}."
        for name, one in found.items()
        if one != version
    ]
    head = _HEAD.search((root / "CHANGELOG.md").read_text(encoding="utf-8"))
    if head is None:
        wrong.append('CHANGELOG.md has neither a heading "## Unreleased" nor one as "## 0.1.0 (2026-01-31)".')
    elif head["version"] not in (None, version):
        wrong.append(f"CHANGELOG.md begins with {head['version']} where pyproject.toml has {version}.")
    elif publishes and head["version"] is None:
        wrong.append(
            f'CHANGELOG.md begins with "Unreleased": make release ARGS="--prepare {version}" dates it.'
        )
    if publishes and not (root / "tests" / "golden" / version).is_dir():
        wrong.append(f"tests/golden/{version} is missing: python tests/golden/make.py writes it.")
    return wrong


def prepare(root: Path, version: str, day: date) -> None:
    """Write ``version`` into each file that has one, and it and the day over the changelog's first part."""
    if not re.fullmatch(r"\d+\.\d+\.\d+", version):
        raise stop(f"A version has three numbers, as 0.1.0. Found: {version}.")
    changelog = root / "CHANGELOG.md"
    text = changelog.read_text(encoding="utf-8")
    head = _HEAD.search(text)
    if head is None or head["name"] != "Unreleased":
        raise stop('CHANGELOG.md does not begin with "## Unreleased": there is nothing to release.')
    changelog.write_text(f"{text[: head.start()]}## {version} ({day}){text[head.end() :]}", encoding="utf-8")
    for name, pattern in PLACES.items():
        path = root / name
        text = path.read_text(encoding="utf-8")
        match = re.search(pattern, text)
        if match is None:
            raise stop(f"{name} has no version as {pattern}.")
        path.write_text(text[: match.start(1)] + version + text[match.end(1) :], encoding="utf-8")


def check(publishes: bool) -> None:
    """Tree and versions."""
    changed = git("status", "--porcelain")
    if changed:
        raise stop(f"A release is made of a commit, and these files differ from it:\n{changed}")
    wrong = disagreements(ROOT, publishes)
    if wrong:
        raise stop("\n".join(wrong))
    say(f"version {project()['version']}, commit {git('rev-parse', '--short', 'HEAD')}")


# ---- Pythons ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Interpreter:
    """A Python on this machine."""

    path: Path
    tag: str  # as cibuildwheel's: cp312, cp314t
    full: str  # 3.12.1
    prefix: Path


_ASKED = (
    "import sys, sysconfig; v = sys.version_info; "
    "t = 't' if sysconfig.get_config_var('Py_GIL_DISABLED') else ''; "
    "print(f'cp{v[0]}{v[1]}{t}', '%d.%d.%d' % v[:3] + t, sys.base_prefix, sys.implementation.name)"
)


def wanted_tags() -> list[str]:
    """The Pythons that [tool.cibuildwheel] builds for."""
    return [one.removesuffix("-*") for one in tables()["tool"]["cibuildwheel"]["build"]]


def looked_at(path: Path) -> Interpreter | None:
    """Return what a program says of itself; None if it is no CPython."""
    try:
        done = subprocess.run([path, "-c", _ASKED], capture_output=True, text=True, timeout=30, check=False)
    except OSError:
        return None
    words = done.stdout.split()
    if done.returncode or len(words) != 4 or words[3] != "cpython":
        return None
    return Interpreter(path, words[0], words[1], Path(words[2]))


def interpreters(given: Sequence[Path]) -> dict[str, Interpreter]:
    """One for each tag that is wanted, and all that were given by name."""
    places = [Path(folder) for folder in os.environ.get("PATH", "").split(os.pathsep) if folder]
    places += [*Path("/opt").glob("python*/bin"), *Path("/opt/python").glob("*/bin")]
    places += [*Path.home().glob(".pyenv/versions/*/bin"), *Path.home().glob(".local/share/uv/python/*/bin")]
    found: dict[str, Interpreter] = {}
    for path in given:
        one = looked_at(path)
        if one is None:
            raise stop(f"{path} is no CPython.")
        found[one.tag] = one
    for tag in wanted_tags():
        name = f"python3.{tag.removeprefix('cp3')}"
        for folder in places:
            path = folder / name
            if tag not in found and path.exists() and (one := looked_at(path)) is not None and one.tag == tag:
                found[tag] = one
    return found


# ---- What is made -----------------------------------------------------------------------------------


def environment(name: str, python: Path, requirements: str) -> Path:
    """Make an environment with what a file of tools/wheels pins, once; return its Python."""
    folder = OUT / "environments" / name
    stamp = folder / "requirements.txt"
    text = (ROOT / HERE / requirements).read_text(encoding="utf-8")
    if not stamp.exists() or stamp.read_text(encoding="utf-8") != text:
        run(python, "-m", "venv", "--clear", folder)
        run(folder / "bin" / "python", "-m", "pip", "install", "-q", "-r", ROOT / HERE / requirements)
        stamp.write_text(text, encoding="utf-8")
    return folder / "bin" / "python"


def tools() -> Path:
    """The Python that has what looks at wheels."""
    return environment("tools", Path(sys.executable), "requirements.txt")


def on_path(python: Path) -> dict[str, str]:
    """The variables with which a program finds what is installed beside ``python``."""
    return {"PATH": f"{python.parent}{os.pathsep}{os.environ['PATH']}"}


def dated() -> dict[str, str]:
    """The variables that give the files in archives the commit's time."""
    return {"SOURCE_DATE_EPOCH": str(int(committed().timestamp()))}


def make_sdist() -> None:
    """The source distribution of the commit, not of the folder, which has files that git ignores."""
    for folder in (DIST, OUT / "commit"):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
    run("git", "archive", "--format=tar", "-o", OUT / "commit.tar", "HEAD")
    run("tar", "-xf", OUT / "commit.tar", "-C", OUT / "commit")
    run(tools(), "-m", "build", "--sdist", "--outdir", DIST, OUT / "commit", env=dated())
    (OUT / "commit.txt").write_text(git("rev-parse", "HEAD"), encoding="utf-8")
    say(f"made {the_sdist().name}")


def the_sdist() -> Path:
    """The source distribution."""
    found = sorted(DIST.glob("fastload-*.tar.gz"))
    if len(found) != 1:
        raise stop(f"{DIST} has {len(found)} source distributions: release.py sdist makes it.")
    return found[0]


def the_wheels() -> list[Path]:
    """The wheels."""
    found = sorted(DIST.glob("fastload-*.whl"))
    if not found:
        raise stop(f"{DIST} has no wheels: release.py wheels makes them.")
    return found


def machines() -> list[str]:
    """The kinds of machine that wheels are made for: this one's, and Arm where x86-64 has its compiler."""
    crosses = HERE_IS == "x86_64" and shutil.which(compiler_for(ARM)) is not None
    return [HERE_IS, ARM] if crosses else [HERE_IS]


def libraries_for(machine: str) -> Path:
    """The folder of what wheels have inside."""
    return OUT / "libraries" / machine


def compiling_for(machine: str) -> dict[str, str]:
    """The variables with which CMake, and zlib's own configure, compile for a machine."""
    env = {"CMAKE_PREFIX_PATH": str(libraries_for(machine))}
    if machine != HERE_IS:
        env |= {"CMAKE_TOOLCHAIN_FILE": str(TOOLCHAIN), "CHOST": f"{machine}-linux-gnu"}
    return env


def make_libraries() -> None:
    """What wheels have inside; made again where what makes them has changed."""
    made_by = (ROOT / HERE / "libraries.sh", TOOLCHAIN)
    digest = " ".join(map(sha256_of, made_by))
    for machine in machines():
        prefix = libraries_for(machine)
        stamp = prefix / "made_by.sha256"
        if not stamp.exists() or stamp.read_text(encoding="utf-8") != digest:
            shutil.rmtree(prefix, ignore_errors=True)
            run(made_by[0], prefix, OUT / "tarballs", env=compiling_for(machine))
            stamp.write_text(digest, encoding="utf-8")
        say(f"the libraries for {machine} are there")


def wheel_for(machine: str, tag: str, stub: Path) -> dict[str, str]:
    """The variables with which this machine's Python makes another one's wheel. Headers are the same on both;
    the wheel's name, the extension's suffix and the stub, for which the extension would run, are given."""
    if machine == HERE_IS:
        return {}
    suffix = f".cpython-{tag.removeprefix('cp')}-{machine}-linux-gnu.so"
    return {
        "_PYTHON_HOST_PLATFORM": f"linux-{machine}",
        "SETUPTOOLS_EXT_SUFFIX": suffix,
        "CMAKE_ARGS": f"-DFASTLOAD_STUB={stub}",
    }


def make_wheel(machine: str, tag: str, one: Interpreter) -> None:
    """One wheel, from the source distribution. Another machine's comes after this one's, with its stub."""
    source, raw, stub = OUT / "source", OUT / "raw" / machine / tag, OUT / "stubs" / tag / "_C.pyi"
    shutil.rmtree(source, ignore_errors=True)
    source.mkdir(parents=True)
    with tarfile.open(the_sdist()) as archive:
        archive.extractall(source)
    (unpacked,) = source.iterdir()
    python = environment(tag, one.path, "compiling.txt")
    env = {**on_path(python), **dated(), **compiling_for(machine), **wheel_for(machine, tag, stub)}
    quiet = ("-q", "--no-deps", "--no-build-isolation")
    words: list[str | Path] = [python, "-m", "pip", "wheel", *quiet, "-w", raw, unpacked]
    run("bash", "-c", '. tools/compiler_cache.sh; exec "$@"', "bash", *words, env=env)
    (wheel,) = raw.glob("*.whl")
    if machine == HERE_IS:
        stub.parent.mkdir(parents=True, exist_ok=True)
        with zipfile.ZipFile(wheel) as inside:
            stub.write_bytes(inside.read("fastload/_C.pyi"))
    say(f"made {wheel.name}")
    python = tools()
    run(python, "-m", "auditwheel", "repair", "--only-plat", "-w", DIST, wheel, env=on_path(python))


def make_wheels(given: Sequence[Path]) -> None:
    """A wheel for each machine and Python."""
    found = interpreters(given)
    missing = [tag for tag in wanted_tags() if tag not in found]
    if missing:
        say(f"no wheels for {', '.join(missing)}: there are no such Pythons here")
    if machines() == ["x86_64"]:
        say(f"no wheels for 64-bit Arm: there is no {compiler_for(ARM)} (Debian: g++-aarch64-linux-gnu)")
    shutil.rmtree(OUT / "raw", ignore_errors=True)
    for old in DIST.glob("*.whl"):
        old.unlink()
    for tag, one in found.items():
        for machine in machines():
            make_wheel(machine, tag, one)


# ---- What is looked at ------------------------------------------------------------------------------


def glibc_of(wheel: Path) -> str:
    """The oldest glibc that a wheel runs with, by its name: "2.28"."""
    match = re.search(r"manylinux_(\d+)_(\d+)_", wheel.name)
    return f"{match[1]}.{match[2]}" if match else "unknown"


def audit() -> None:
    """auditwheel, abi3audit and twine, whose words are kept."""
    python = tools()
    kept = []
    for wheel in the_wheels():
        kept.append(run(python, "-m", "auditwheel", "show", wheel, env=on_path(python)))
        inside = run(python, "-m", "zipfile", "-l", wheel)
        if ".libs/" in inside:
            raise stop(f"{wheel.name} has libraries of the system inside: build with CMAKE_PREFIX_PATH.")
    stable = [wheel for wheel in the_wheels() if "-abi3-" in wheel.name]
    if stable:
        kept.append(run(python, "-m", "abi3audit", "--strict", "--report", *stable))
    kept.append(run(python, "-m", "twine", "check", "--strict", the_sdist(), *the_wheels()))
    (OUT / "audit.txt").write_text("\n".join(kept), encoding="utf-8")
    say("auditwheel, abi3audit and twine find nothing wrong")


def write_papers() -> None:
    """SBOM and provenance beside the files."""
    papers = ROOT / HERE / "papers.py"
    run(tools(), papers, "sbom", OUT / "fastload.cdx.json")
    commit = (OUT / "commit.txt").read_text(encoding="utf-8") if (OUT / "commit.txt").exists() else "HEAD"
    run(tools(), papers, "provenance", OUT / "fastload.intoto.json", commit, the_sdist(), *the_wheels())
    say("wrote fastload.cdx.json, the SBOM, and fastload.intoto.json, the provenance")


# ---- Bare systems -----------------------------------------------------------------------------------


def debian(suite: str, machine: str) -> Path | None:
    """Return the folder of a bare Debian, made once; None where it cannot be made or run."""
    root = OUT / "roots" / machine / suite
    program, words = "debootstrap", ["--variant=minbase", "--include=python3-venv,ca-certificates"]
    if machine != HERE_IS:  # unpacked, without its packages' scripts, which would be emulated for long
        packages = "bash,coreutils,dash,grep,libc-bin,libstdc++6,mawk,sed,python3-venv,ca-certificates"
        program, words = "mmdebstrap", ["--architectures=arm64", "--variant=extract", f"--include={packages}"]
        if not EMULATOR.exists():
            return None
    if not (root / "usr/bin/python3").exists():
        if os.geteuid() != 0 or shutil.which(program) is None:
            return None
        shutil.rmtree(root, ignore_errors=True)
        root.parent.mkdir(parents=True, exist_ok=True)  # mmdebstrap makes the last folder only
        run(program, *words, suite, root, "https://deb.debian.org/debian")
        for name, program in (("awk", "mawk"), ("sh", "dash")):  # which the packages' scripts would choose
            if not os.path.lexists(root / "usr/bin" / name):
                (root / "usr/bin" / name).symlink_to(program)
    for name in ("etc/resolv.conf", "etc/hosts", "etc/ssl/certs/ca-certificates.crt"):
        if Path("/", name).exists():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(Path("/", name), root / name)
    return root


@contextmanager
def mounted(root: Path) -> Iterator[None]:
    """What programs in a bare system look for besides files, for the block."""
    run("mount", "-t", "proc", "proc", root / "proc")
    try:
        yield
    finally:
        run("umount", root / "proc")


def copy_interpreter(one: Interpreter, root: Path) -> None:
    """Put a Python of this machine into a bare system, at the same path."""
    there = root / one.prefix.relative_to("/")
    if not there.exists():
        left = shutil.ignore_patterns(
            "test", "tests", "__pycache__", "site-packages", "include", "share", "*.a"
        )
        shutil.copytree(one.prefix, there, symlinks=True, ignore=left)


def install(given: Sequence[Path], torch: Path | None) -> None:
    """Each wheel in bare systems, by tests/install/try_wheel.sh, whose last line is kept."""
    tried = []
    for machine in machines():
        for suite, name in SYSTEMS.items():
            root = debian(suite, machine)
            if root is None:
                needed = "root and debootstrap"
                if machine != HERE_IS:
                    needed = "root, mmdebstrap and the emulator, which make test-arm registers"
                say(f"Debian {name} for {machine} is not tried: that needs {needed}")
                continue
            own = looked_at_in(root)
            pythons = [("python3", own, "" if machine == HERE_IS else ", emulated")]
            if suite == "bookworm" and machine == HERE_IS:
                for tag, one in interpreters(given).items():
                    if tag != own:
                        copy_interpreter(one, root)
                        pythons.append((str(one.path), tag, ", copied in"))
            for python, tag, how in pythons:
                line = trial(root, python, torch_for(machine, tag, torch, root))
                tried.append({"line": line, "how": how})
                say(f"{line}{how}")
    (OUT / "installed.json").write_text(json.dumps(tried, indent=2), encoding="utf-8")


def torch_for(machine: str, tag: str, folder: Path | None, root: Path) -> str:
    """What pip gets to install torch in a bare system; "none" where there is no CPU build."""
    if machine != HERE_IS:
        return ARM_TORCH
    build = next(iter((folder or OUT / "none").glob(f"torch-*-{tag}-{tag}-*.whl")), None)
    if build is None:
        return "none"
    shutil.copyfile(build, root / "tmp" / build.name)
    return f"/tmp/{build.name}"


def trial(root: Path, python: str, torch: str) -> str:
    """Try the wheel that fits a Python in a bare system; what the script says at its end."""
    env = {"TORCH": torch, "TMPDIR": "/tmp", "PIP_FIND_LINKS": ""}
    env["MOST"] = "3600"  # seconds: the machine may be busy or emulated, and the page says how long it took
    with mounted(root):
        lines = run("tests/install/try_wheel.sh", DIST, python, root, env=env).splitlines()
    return lines[-1].removeprefix("[install] ")


def looked_at_in(root: Path) -> str:
    """The tag of a bare system's own Python."""
    return run("chroot", root, "/usr/bin/python3", "-c", _ASKED).split()[0]


# ---- The page ---------------------------------------------------------------------------------------


def pythons_of(wheel: Path) -> str:
    """Which Pythons take a wheel, by its name."""
    _, _, python, abi, _ = wheel.stem.split("-")
    minor = python.removeprefix("cp3")
    return f"3.{minor} and newer" if abi == "abi3" else f"3.{minor}{'t' if abi.endswith('t') else ''}"


def tag_of(wheel: Path) -> str:
    """What cibuildwheel calls a wheel's Python, by the wheel's name: cp312, cp314t."""
    _, _, python, abi, _ = wheel.stem.split("-")
    return abi if abi.endswith("t") else python


def table(rows: Sequence[Sequence[str]]) -> str:
    """A table of Markdown; the first row is its head."""
    head, *others = ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join([head, "|" + "---|" * len(rows[0]), *others])


def dry_run() -> str:
    """What this run has made, for the page."""
    files = [["file", "bytes", "SHA-256", "Python", "glibc", "checked by"]]
    for path in [the_sdist(), *the_wheels()]:
        is_wheel = path.suffix == ".whl"
        checks = (
            "twine" + (", auditwheel" if is_wheel else "") + (", abi3audit" if "-abi3-" in path.name else "")
        )
        row = [f"`{path.name}`", f"{path.stat().st_size:,}", f"`{sha256_of(path)[:12]}`"]
        files.append([*row, *([pythons_of(path), glibc_of(path)] if is_wheel else ["", ""]), checks])
    for name, what in (("fastload.cdx.json", "CycloneDX's schema"), ("fastload.intoto.json", "")):
        path = OUT / name
        files.append([f"`{name}`", f"{path.stat().st_size:,}", f"`{sha256_of(path)[:12]}`", "", "", what])
    tried = [["system", "Python", "wheel", "pip is done after, s", "then"]]
    for one in json.loads((OUT / "installed.json").read_text(encoding="utf-8")):
        tried.append(row_of(one))
    built = {tag_of(wheel) for wheel in the_wheels()}
    missing = [tag for tag in wanted_tags() if tag not in built]
    commit = (OUT / "commit.txt").read_text(encoding="utf-8")
    words = f"{committed():%Y-%m-%d}, commit `{commit[:8]}`, on {HERE_IS}"
    words += f" with glibc {platform.libc_ver()[1]}."
    if missing:
        words += f" There was no Python for {', '.join(f'`{one}`' for one in missing)} on this machine."
    newer = sorted({glibc_of(wheel) for wheel in the_wheels()} - {GLIBC.replace("_", ".")})
    if newer:
        words += (
            f" Wheels that were linked on this machine need its glibc ({', '.join(newer)}); those of the "
            f"workflow are built in the container `manylinux_{GLIBC}`."
        )
    return "\n\n".join([words, table(files), table(tried)])


def row_of(one: dict[str, Any]) -> list[str]:
    """A row for a wheel that was installed."""
    match = re.fullmatch(r"(.+?), Python (\S+), (\S+): installed in ([\d.]+) s, (.+)", one["line"])
    if match is None:
        raise stop(f"try_wheel.sh ended with another line than is known: {one['line']}")
    system, python, wheel, seconds, then = match.groups()
    tags = "-".join(wheel.split("-")[2:4]) + (", Arm" if wheel.endswith(f"_{ARM}.whl") else "")
    return [
        re.sub(r"Debian GNU/Linux (\S+).*", r"Debian \1", system),
        python + one["how"],
        tags,
        seconds,
        then,
    ]


def write_page() -> None:
    """Put this run between the marks of docs/project/release.md."""
    text = PAGE.read_text(encoding="utf-8")
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    PAGE.write_text(f"{before}{BEGIN}\n\n{dry_run()}\n\n{END}{after}", encoding="utf-8")
    say(f"wrote {PAGE.relative_to(ROOT)}")


# ---- The command ------------------------------------------------------------------------------------


def publish() -> None:
    """Tag the commit and push the tag, which .github/workflows/wheels.yml publishes."""
    tag = f"v{project()['version']}"
    run("git", "tag", "-a", tag, "-m", f"fastload {project()['version']}")
    run("git", "push", "origin", tag)
    say(f"pushed {tag}: the workflow builds, checks and publishes it")


def parsed() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="make release ARGS=", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("part", nargs="*", help=f"parts to do alone: {', '.join(PARTS)} (all)")
    parser.add_argument(
        "--python", type=Path, action="append", default=[], help="another Python to build for"
    )
    parser.add_argument("--torch", type=Path, help="folder with CPU builds of torch, for bare systems")
    parser.add_argument("--prepare", metavar="VERSION", help="write version and date, and do nothing else")
    parser.add_argument("--publish", action="store_true", help="at the end, tag the commit and push the tag")
    arguments = parser.parse_args()
    unknown = [one for one in arguments.part if one not in PARTS]
    if unknown:
        parser.error(f"unknown parts: {', '.join(unknown)}. There are: {', '.join(PARTS)}.")
    return arguments


def main() -> None:
    """Do the parts that the command line names, or all."""
    arguments = parsed()
    if arguments.prepare:
        prepare(ROOT, arguments.prepare, date.today())
        return
    steps = {
        "check": lambda: check(arguments.publish),
        "sdist": make_sdist,
        "libraries": make_libraries,
        "wheels": lambda: make_wheels(arguments.python),
        "audit": audit,
        "papers": write_papers,
        "install": lambda: install(arguments.python, arguments.torch),
        "page": write_page,
    }
    for name in PARTS:
        if not arguments.part or name in arguments.part:
            steps[name]()
    if arguments.publish and not arguments.part:
        publish()


if __name__ == "__main__":
    main()
