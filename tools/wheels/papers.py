"""The papers of a release: what is in its files (an SBOM), and what made them (their provenance).

``papers.py sbom OUT`` writes CycloneDX 1.6 as JSON, ``papers.py provenance OUT COMMIT FILE...`` an in-toto
statement with SLSA's provenance of these files. Both follow from the checkout: the libraries of
tools/wheels/libraries.sh, what tools/wheels/compiling.txt pins, pyproject.toml and the commit. ``sbom`` needs
cyclonedx-python-lib, which tools/wheels/release.py has in an environment of its own.
"""

from __future__ import annotations

import hashlib
import json
import platform
import re
import shutil
import subprocess
import sys
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    from pip._vendor import tomli as tomllib

ROOT = Path(__file__).resolve().parents[2]
HERE = Path("tools/wheels")
BUILDER = "urn:fastload:tools/wheels/release.py"
BUILD_TYPE = "urn:fastload:release:1"  # version and commit say all

#: SPDX's expression for what each library's folder in packaging/licenses has.
LICENCES = {
    "zlib": "Zlib",
    "libjpeg-turbo": "BSD-3-Clause AND IJG AND Zlib",
    "libpng": "libpng-2.0",
    "libwebp": "BSD-3-Clause",
    "curl": "curl",
    "highway": "Apache-2.0 OR BSD-3-Clause",
    "nanobind": "BSD-3-Clause",
    "robin-map": "MIT",
}
HEADERS = {"curl", "highway"}  # of which headers alone are used


@dataclass(frozen=True)
class Part:
    """Something of others that a wheel has inside, or needs beside it; ``sha256`` and ``urls`` are of its
    source."""

    name: str
    version: str | None
    purl: str
    how: str
    sha256: str = ""
    urls: tuple[str, ...] = ()

    @property
    def licence(self) -> str | None:
        """SPDX's expression, of what is inside."""
        return LICENCES.get(self.name)


def tables() -> dict[str, Any]:
    """What pyproject.toml has."""
    return dict(tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8")))


def project() -> dict[str, Any]:
    """Its table ``project``."""
    return dict(tables()["project"])


def pinned() -> dict[str, str]:
    """What wheels are compiled with: versions by name."""
    text = (ROOT / HERE / "compiling.txt").read_text(encoding="utf-8")
    return dict(re.findall(r"^([\w-]+)==(\S+)$", text, re.MULTILINE))


def sources() -> list[Part]:
    """The libraries of libraries.sh."""
    script = ROOT / HERE / "libraries.sh"
    listed = subprocess.run([script, "--list"], check=True, capture_output=True, text=True)
    found = []
    for line in listed.stdout.splitlines():
        word, sha256, *urls = line.split()
        name, _, version = word.rpartition("-")
        purl = f"pkg:generic/{name}@{version}?checksum=sha256:{sha256}&download_url={urls[0]}"
        how = "headers, compiled in" if name in HEADERS else "a static library, linked in"
        found.append(Part(name, version, purl, how, sha256, tuple(urls)))
    return found


def parts() -> list[Part]:
    """All that a wheel has inside of others."""
    version = pinned()["nanobind"]
    bindings = Part("nanobind", version, f"pkg:pypi/nanobind@{version}", "a static library, linked in")
    table = Part(
        "robin-map", None, "pkg:github/Tessil/robin-map", f"headers in nanobind {version}, compiled in"
    )
    return [*sources(), bindings, table]


def beside() -> list[Part]:
    """What pip installs beside a wheel, in versions that the user's machine decides."""
    names = {line: re.split(r"[^\w-]", line)[0] for line in project()["dependencies"]}
    return [Part(name, None, f"pkg:pypi/{name}", f"not inside, {line}") for line, name in names.items()]


def git(*words: str) -> str:
    """Return what git says of the checkout."""
    done = subprocess.run(["git", *words], cwd=ROOT, check=True, capture_output=True, text=True)
    return done.stdout.strip()


def committed() -> datetime:
    """When the commit was made, UTC."""
    return datetime.fromtimestamp(int(git("show", "-s", "--format=%ct", "HEAD")), timezone.utc)


# ---- What is inside ---------------------------------------------------------------------------------


def component(part: Part) -> Any:
    """Return CycloneDX's component for something of others."""
    from cyclonedx import model
    from cyclonedx.model.component import Component, ComponentScope
    from cyclonedx.model.license import LicenseExpression
    from packageurl import PackageURL

    source = model.ExternalReferenceType.SOURCE_DISTRIBUTION
    return Component(
        name=part.name,
        version=part.version,
        bom_ref=part.purl,
        scope=ComponentScope.REQUIRED,
        purl=PackageURL.from_string(part.purl),
        licenses=[LicenseExpression(part.licence)] if part.licence else [],
        hashes=[model.HashType(alg=model.HashAlgorithm.SHA_256, content=part.sha256)] if part.sha256 else [],
        external_references=[model.ExternalReference(type=source, url=model.XsUri(url)) for url in part.urls],
        properties=[model.Property(name="fastload:how", value=part.how)],
    )


def sbom() -> str:
    """Return the SBOM as CycloneDX 1.6, validated against its schema."""
    from cyclonedx.model.bom import Bom
    from cyclonedx.model.component import Component
    from cyclonedx.model.license import LicenseExpression
    from cyclonedx.output.json import JsonV1Dot6
    from cyclonedx.schema import SchemaVersion
    from cyclonedx.validation.json import JsonStrictValidator
    from packageurl import PackageURL

    about = project()
    name, version = about["name"], about["version"]
    licenses = [LicenseExpression(about["license"])]
    purl = PackageURL("pypi", None, name, version)
    root = Component(name=name, version=version, bom_ref=name, licenses=licenses, purl=purl)
    components = [component(part) for part in [*parts(), *beside()]]
    serial = uuid.uuid5(uuid.NAMESPACE_URL, f"{name}@{git('rev-parse', 'HEAD')}")
    bom = Bom(serial_number=serial, components=components)
    bom.metadata.component, bom.metadata.timestamp = root, committed()
    bom.register_dependency(root, components)
    text = str(JsonV1Dot6(bom).output_as_string(indent=2))
    errors = JsonStrictValidator(SchemaVersion.V1_6).validate_str(text)
    if errors is not None:
        raise SystemExit(f"The SBOM is no CycloneDX 1.6: {errors}")
    return text + "\n"


# ---- What made it -----------------------------------------------------------------------------------


def sha256_of(path: Path) -> str:
    """The digest of a file, in hexadecimal."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def compiler_for(machine: str) -> str:
    """The C++ compiler that makes wheels for a machine here."""
    return "c++" if machine == platform.machine() else f"{machine}-linux-gnu-g++"


def compilers(files: Sequence[Path]) -> dict[str, str]:
    """What the compilers of wheels say of themselves, by the wheels' machines."""
    found = {}
    for machine in ("x86_64", "aarch64"):
        program = shutil.which(compiler_for(machine))
        if program is not None and any(file.name.endswith(f"_{machine}.whl") for file in files):
            said = subprocess.run([program, "--version"], check=False, capture_output=True, text=True).stdout
            found[machine] = (said.splitlines() or ["unknown"])[0]
    return found


def provenance(commit: str, files: Sequence[Path]) -> dict[str, Any]:
    """Return the in-toto statement (version 1) of files made of a commit, with SLSA's provenance (1)."""
    commit = git("rev-parse", commit)
    materials: list[dict[str, Any]] = [{"name": "fastload", "digest": {"gitCommit": commit}}]
    materials += [
        {"name": f"{one.name}-{one.version}", "uri": one.urls[0], "digest": {"sha256": one.sha256}}
        for one in sources()
    ]
    materials += [{"name": name, "uri": f"pkg:pypi/{name}@{version}"} for name, version in pinned().items()]
    return {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [{"name": path.name, "digest": {"sha256": sha256_of(path)}} for path in files],
        "predicateType": "https://slsa.dev/provenance/v1",
        "predicate": {
            "buildDefinition": {
                "buildType": BUILD_TYPE,
                "externalParameters": {"version": project()["version"], "commit": commit},
                "internalParameters": {
                    "machine": platform.machine(),
                    "compilers": compilers(files),
                    "libc": "-".join(platform.libc_ver()),
                },
                "resolvedDependencies": materials,
            },
            "runDetails": {
                "builder": {"id": BUILDER},
                "metadata": {
                    "invocationId": str(uuid.uuid4()),
                    "finishedOn": datetime.now(timezone.utc).isoformat(timespec="seconds"),
                },
            },
        },
    }


def main() -> None:
    """Write what the command line asks for."""
    what, out, *more = sys.argv[1:]
    if what == "sbom":
        text = sbom()
    else:
        commit, *files = more
        text = json.dumps(provenance(commit, [Path(one) for one in files]), indent=2) + "\n"
    Path(out).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
