"""The wheels that a machine with a GPU lacks, for it can't fetch any: ``bash ci/gpu --bundle``.

machine.txt has what the machine has. pip resolves that together with what pyproject.toml asks for.
A package is carried unless every version that the machine may have will do: it has the one that
machine.txt or one of its packages names, or one from the lowest that they take up to the newest.
The wheels are then imported, and the digits evaluated, in an environment of what the machine has.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from measured_commit import measured_commit
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from pytest_mlms.core.errors import MlmsError
from pytest_mlms.core.records import Stack
from pytest_mlms.provide.artifacts.fetch import default_cache
from pytest_mlms.provide.stacks.launch import prepare

__all__ = ["make_bundle"]

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / ".lease"
MACHINE = Path(__file__).with_name("machine.txt")
PYTHON = "3.12"
LARGEST = 64 << 20  # bytes, with the files of the checkout
EXTRAS = ("gpu", "xdist")
CUPTI = "cupti-python==13.0.1"  # for the libcupti that the machine has
_UNLOADED = ("torch", "jax", "cupy", "triton")
"""Beginnings of packages that the trial leaves out: gigabytes that only agents import."""
_PINNED = re.compile(r"==[\w.]+$")
_PLACE = {
    "implementation_name": "cpython",
    "platform_machine": "x86_64",
    "platform_system": "Linux",
    "python_full_version": f"{PYTHON}.0",
    "python_version": PYTHON,
    "sys_platform": "linux",
    "extra": "",
}
"""The environment of markers of requirements, on the machine."""
_GLIBC = range(5, 40)  # pip takes no wheel for an older one by itself
_IMPORTED = "import cupti.cupti, pynvml, xdist.plugin, pytest_mlms.cli.main, pytest_mlms.plugin"
_DIGITS = ("-qq", "-p", "pytest_mlms.plugin", "-p", "no:cacheprovider", "-k", "accuracy")


@dataclass(frozen=True)
class Resolved:
    """The choice of pip: the version and the requirements of each package, by its name."""

    versions: Mapping[str, Version]
    needs: Mapping[str, Sequence[Requirement]]

    def follow(self, roots: Sequence[Requirement]) -> Iterator[Requirement]:
        """Yield some requirements, and what the packages need whose version they name."""
        seen = set()
        waiting = list(roots)
        while waiting:
            requirement = waiting.pop()
            if str(requirement) not in seen:
                seen.add(str(requirement))
                yield requirement
                if _is_exact(requirement):  # of others it isn't known what they need
                    waiting += self.needs[_name(requirement)]


@dataclass(frozen=True)
class Machine:
    """Bounds on the versions of a machine's packages: all that must be true of each."""

    known: Mapping[str, Sequence[Requirement]]
    newest: Mapping[str, Version]

    @classmethod
    def of(cls, found: Resolved, listed: Sequence[Requirement]) -> Machine:
        """Return what is sure of a machine with the listed packages."""
        known: dict[str, list[Requirement]] = {}
        for requirement in found.follow(listed):
            known.setdefault(_name(requirement), []).append(requirement)
        return cls(known, found.versions)

    def has(self, wanted: Requirement) -> bool:
        """Return whether every version that it may have of a package will do."""
        name = _name(wanted)
        if name not in self.known:
            return False
        oldest = max(map(_oldest, self.known[name]))
        newest = oldest if any(map(_is_exact, self.known[name])) else self.newest[name]
        return all(wanted.specifier.contains(end, prereleases=True) for end in (oldest, newest))


def make_bundle() -> None:
    """Write the wheels into .lease/, and try them; raises MlmsError where something is missing."""
    wanted = [*project_requirements(), Requirement(CUPTI)]
    listed = machine_requirements()
    found = resolve([*listed, *wanted])
    carried, there = divide(found, Machine.of(found, listed), wanted)
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir()
    _pip("download", "--no-deps", "--dest", str(FOLDER), *carried)
    for wheel in sorted(FOLDER.glob("*.whl")):
        print(f"{wheel.stat().st_size / 1e6:6.2f} MB  {wheel.name}")
    (FOLDER / "commit").write_text(measured_commit())  # for a copy of the checkout without git
    size = _check_size()
    loaded = [str(each) for each in listed if not each.name.startswith(_UNLOADED)]
    try_wheels(sorted({*there, *filter(_PINNED.search, loaded)}))
    print(f"{FOLDER}: {len(carried)} wheels, {size / 2**20:.1f} MiB with the checkout; they import")


def project_requirements() -> list[Requirement]:
    """Return what pyproject.toml asks for on the machine, with the extras that it needs there."""
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    lines = list(project["dependencies"])
    for extra in EXTRAS:
        lines += project["optional-dependencies"][extra]
    return _for_the_machine(lines)


def machine_requirements() -> list[Requirement]:
    """Return the packages that the machine has by itself."""
    lines = MACHINE.read_text().splitlines()
    return [Requirement(line) for line in lines if not line.startswith("#")]


def resolve(requirements: Sequence[Requirement]) -> Resolved:
    """Return what pip would install on the machine; raises MlmsError where nothing fits."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "report.json")
        dry = ("--dry-run", "--ignore-installed", "--target", folder, "--report", str(report))
        _pip("install", *dry, *map(str, requirements))
        installs: list[dict[str, Any]] = json.loads(report.read_text())["install"]
    versions: dict[str, Version] = {}
    needs: dict[str, list[Requirement]] = {}
    for package in installs:
        facts = package["metadata"]
        name = canonicalize_name(facts["name"])
        versions[name] = Version(facts["version"])
        extras = package.get("requested_extras", [])
        needs[name] = _for_the_machine(facts.get("requires_dist", []), extras)
    return Resolved(versions, needs)


def divide(
    found: Resolved, machine: Machine, wanted: Sequence[Requirement]
) -> tuple[list[str], list[str]]:
    """Return what to carry, and what is wanted and there, each as NAME==VERSION."""
    carried: dict[str, str] = {}
    there: dict[str, str] = {}
    waiting = list(wanted)
    while waiting:
        requirement = waiting.pop()
        name = _name(requirement)
        exact = f"{name}=={found.versions[name]}"
        if machine.has(requirement):
            there[name] = exact
        elif name not in carried:
            carried[name] = exact
            waiting += found.needs[name]
    return sorted(carried.values()), sorted(there.values())


def try_wheels(there: Sequence[str]) -> None:
    """Import the wheels, and evaluate the digits, in an environment of what the machine has.

    Raises MlmsError where that fails, or there is no such Python.
    """
    stack = Stack("machine", "onnxruntime", python=PYTHON, requirements=tuple(there))
    python = prepare(stack, default_cache()).command[0]
    with tempfile.TemporaryDirectory() as folder:
        site = Path(folder, "site")
        wheels = [str(wheel) for wheel in FOLDER.glob("*.whl")]
        _pip("install", "--no-index", "--no-deps", "--target", str(site), *wheels)
        (site / "mlms_predictors").symlink_to(ROOT / "predictors")
        run = _Trial(python, site, Path(folder))
        run("-c", _IMPORTED)
        run("-m", "pytest", *_DIGITS, "--mlms-manifests", str(ROOT / "manifests" / "digits"))


@dataclass(frozen=True)
class _Trial:
    """Runs an interpreter as on the machine: with the wheels, beside a mere checkout."""

    python: str
    site: Path
    folder: Path

    def __call__(self, *arguments: str) -> None:
        paths = os.pathsep.join([str(self.site), str(ROOT)])
        env = {"PATH": os.defpath, "HOME": str(self.folder), "PYTHONPATH": paths}
        env["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"  # the checkout may say which plugin it has
        _run([self.python, "-B", *arguments], cwd=self.folder, env=env)


def _name(requirement: Requirement) -> str:
    return canonicalize_name(requirement.name)


def _is_exact(requirement: Requirement) -> bool:
    return _PINNED.search(str(requirement)) is not None


def _oldest(requirement: Requirement) -> Version:
    """Return the lowest version that a requirement takes; 0 where it names none."""
    lowest = [Version("0")]
    for specifier in requirement.specifier:
        if specifier.operator in (">=", "==", "~=") and "*" not in specifier.version:
            lowest.append(Version(specifier.version))
    return max(lowest)


def _for_the_machine(lines: Sequence[str], extras: Sequence[str] = ()) -> list[Requirement]:
    """Return the requirements that hold on the machine, for a package with some extras."""
    found = []
    for requirement in map(Requirement, lines):
        marker = requirement.marker
        places = [{**_PLACE, "extra": extra} for extra in ("", *extras)]
        if marker is None or any(marker.evaluate(place) for place in places):
            requirement.marker = None
            found.append(requirement)
    return found


def _check_size() -> int:
    """Return the bytes of the wheels and of the checkout's files; raises MlmsError above 64 MiB."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True)
    names = listed.stdout.decode().split("\0")
    files = [ROOT / name for name in names if name] + list(FOLDER.iterdir())
    size = sum(path.stat().st_size for path in files if path.exists())
    if size > LARGEST:
        problem = f"{FOLDER} and the checkout have {size / 2**20:.1f} MiB, above 64 MiB"
        raise MlmsError(f"{problem}; add packages that the machine has to {MACHINE}")
    return size


def _pip(command: str, *arguments: str) -> None:
    platforms = [f"manylinux_2_{minor}_x86_64" for minor in _GLIBC]
    options = ["--only-binary=:all:", "--implementation=cp", f"--python-version={PYTHON}"]
    for platform in [*platforms, "manylinux2014_x86_64", "manylinux1_x86_64"]:
        options.append(f"--platform={platform}")
    pip = [sys.executable, "-m", "pip", command, "--quiet", "--disable-pip-version-check"]
    _run([*pip, *options, *arguments])


def _run(command: Sequence[str], **options: Any) -> None:
    """Run a command; raises MlmsError with the last lines of what it printed where it fails."""
    done = subprocess.run(command, capture_output=True, text=True, check=False, **options)
    if done.returncode:
        lines = [*done.stdout.splitlines(), *done.stderr.splitlines()]
        shown = "\n".join(lines[-12:])
        raise MlmsError(f"{' '.join(command[:4])} … ended with status {done.returncode}\n{shown}")
