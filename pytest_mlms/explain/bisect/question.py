"""The question of a bisection: the point of a manifest, both ends, and the quantity."""

from __future__ import annotations

import hashlib
import json
import platform
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, NamedTuple

from packaging.requirements import Requirement

from pytest_mlms.core.errors import MlmsError
from pytest_mlms.core.records import Stack
from pytest_mlms.core.serialization import to_plain
from pytest_mlms.keep.history.machine_class import machine_class
from pytest_mlms.keep.results.item_result import definition_of
from pytest_mlms.manifest.load import LoadedManifest, find_manifests, load
from pytest_mlms.manifest.schema import Model
from pytest_mlms.provide.artifacts.digest import digest_of
from pytest_mlms.provide.cases import Case, points_of
from pytest_mlms.provide.host.machine import machine_state
from pytest_mlms.provide.stacks.declared import framework_of, package_of
from pytest_mlms.provide.stacks.index import parse_requirement
from pytest_mlms.provide.stacks.installer_settings import deciding_settings
from pytest_mlms.provide.stacks.recorded import declaration_of
from pytest_mlms.provide.stacks.schema import is_wheel


class Point(NamedTuple):
    """The case that an upgrade measures; ``item`` is the stack's name in the node id."""

    loaded: LoadedManifest
    path: Path
    device: str
    batch_size: int
    item: str = ""
    shape: str | None = None
    scenario: str | None = None

    @property
    def case(self) -> str:
        """The device, the batch size, the load and the shape, as node ids end."""
        size = f"{self.device}-b{self.batch_size}"
        return "-".join(filter(None, (size, self.scenario, self.shape)))

    @property
    def label(self) -> str:
        """The model and the case."""
        manifest = self.loaded.manifest
        return f"{manifest.name} {self.case}"


class End(NamedTuple):
    """An end of a bisection as it was asked for; of a lock file, its packages and its Python."""

    text: str
    requirements: tuple[str, ...] = ()
    python: str | None = None


@dataclass(frozen=True)
class Question:
    """Everything that the answer depends on; the record of another question isn't continued.

    ``stack`` names the one whose settings each release has. ``model`` has the digests of the model
    by role, and ``machine`` the class of the machine. ``settings`` are further circumstances of
    probes by name; records of older versions have none.
    """

    manifest: str
    framework: str
    device: str
    batch_size: int
    model: dict[str, str]
    dataset: str | None
    good: End
    bad: End
    quantity: str | None
    tolerance: float | None
    requirements: tuple[str, ...]
    machine: str
    stack: str | None = None
    shape: str | None = None
    settings: dict[str, str] = field(default_factory=dict)
    scenario: str | None = None

    def difference(self, other: Question) -> str:
        """Return how another question differs, as a text; "" where it is the same."""
        for name in [part.name for part in fields(self) if part.name != "settings"]:
            mine, theirs = getattr(self, name), getattr(other, name)
            if mine != theirs:
                return f"{name} is {_shown(theirs)} there, and {_shown(mine)} here"
        for name, mine in self.settings.items():
            if other.settings.get(name, mine) != mine:
                return f"{name} was another"
        return ""


def _shown(value: Any) -> str:
    if isinstance(value, End):
        return value.text
    return "not given" if value in (None, ()) else str(value)


def question_of(
    point: Point,
    framework: str,
    ends: tuple[End, End],
    quantity: str | None,
    tolerance: float | None,
    more: Iterable[str],
    stack: str | None = None,
    like: Stack | None = None,
    predictors: Iterable[Path] = (),
    words: Iterable[str] = (),
) -> Question:
    """Return the question of a bisection on this machine.

    ``like`` is the stack whose settings those of the probes are, and ``words`` are options of
    pytest that these have.
    """
    model = model_of(point, framework)
    good, bad = ends
    return Question(
        manifest=str(point.path),
        framework=framework,
        device=point.device,
        batch_size=point.batch_size,
        model=point.loaded.model_digests(model),
        dataset=point.loaded.dataset_digest,
        good=good,
        bad=bad,
        quantity=quantity,
        tolerance=tolerance,
        requirements=tuple(more),
        machine=machine_class(to_plain(machine_state()), point.device),
        stack=stack,
        shape=point.shape,
        settings=_settings(point, model, like or Stack("", framework), predictors, words),
        scenario=point.scenario,
    )


def _settings(
    point: Point,
    model: Model,
    stack: Stack,
    predictors: Iterable[Path],
    words: Iterable[str],
) -> dict[str, str]:
    """Return digests of what probes depend on beside what was asked for, by name."""
    where = (point.device, point.batch_size, point.scenario)
    case = Case("upgrade", point.loaded, model, stack, *where, shape=point.shape)
    files = sorted(file for folder in predictors for file in folder.rglob("*.py"))
    parts = {
        "the Python": stack.python or platform.python_version(),
        "the stack": [declaration_of(stack), stack.threads, stack.cores],
        "the installer's configuration": deciding_settings(stack),
        "a predictor": [digest_of(file) for file in files],
        "what the case measures": definition_of(case),
        "an option of pytest": list(words),
    }
    return {
        name: hashlib.sha256(json.dumps(part).encode()).hexdigest()[:16]
        for name, part in parts.items()
    }


def read_point(nodeid: str) -> Point:
    """Return the point of a manifest that a node id names, that of any of its items.

    Raises MlmsError, which lists the points of the manifest.
    """
    file, _, function = nodeid.partition("::")
    path = Path(file)
    if not file or not path.is_file():
        problem = f"{nodeid!r} names no manifest: there is no {file or 'file'} below {Path.cwd()}"
        raise MlmsError(f"{problem}; write FILE::test_upgrade[…], an id that pytest lists")
    (path,) = find_manifests([path])
    loaded = load(path)
    _, _, rest = function.partition("[")
    return _point_of(loaded, path, rest.removesuffix("]"))


def _point_of(loaded: LoadedManifest, path: Path, case: str) -> Point:
    points = list(_points(loaded, path))
    for point in sorted(points, key=lambda point: -len(point.case)):  # the longest says most
        # What an upgrade has not, as the scenario of a performance item, may be within or behind.
        size = f"{point.device}-b{point.batch_size}"
        rest = [re.escape(f"-{word}") for word in (point.scenario, point.shape) if word]
        form = rf"(.*?)-{re.escape(size)}{''.join(f'(?:-.*)?{word}' for word in rest)}(?:-.*)?"
        matching = re.fullmatch(form, f"-{case}")
        if matching:
            stacks = matching[1].removeprefix("-")
            stack, _, _ = stacks.partition("-vs-")
            return point._replace(item=stack)
    if len(points) == 1 and not case:
        return points[0]
    cases = [point.case for point in points]
    known = ", ".join(cases)
    said = f"no device and batch size of it ends {case!r}" if case else "there are several items"
    first = f"{path}::test_upgrade[{cases[0]}]"
    raise MlmsError(f"{path}: {said}; it has {known}: write one as in '{first}'")


def _points(loaded: LoadedManifest, path: Path) -> Iterator[Point]:
    """Yield the points of a manifest that upgrades measure."""
    for device in loaded.manifest.evaluate.devices:
        for size, scenario, shape in points_of("upgrade", loaded.manifest):
            yield Point(loaded, path, device, size, shape=shape, scenario=scenario)


def framework_for(point: Point, packages: Iterable[str]) -> str:
    """Return the framework of the manifest that one of these requirements installs."""
    offered = [model.name for model in point.loaded.manifest.models]
    names = [
        package_of(text) if is_wheel(text) else parse_requirement(text).name for text in packages
    ]
    for name in names:
        if framework_of(name) in offered:
            return framework_of(name)
    named = ", ".join(names)
    known = ", ".join(offered)
    problem = f"{named} is no framework of {point.path}, which has {known}"
    advice = "name the framework's release beside it, as in --with onnxruntime==1.31.1"
    raise MlmsError(f"{problem}; {advice}")


def model_of(point: Point, framework: str) -> Model:
    """Return the model for a framework, of several the variant that the node id names.

    Raises MlmsError where there is none, or nothing tells which.
    """
    found = [model for model in point.loaded.manifest.models if model.name == framework]
    if len(found) == 1:
        return found[0]
    for model in found:
        if f"-{point.item}".endswith(f"-{model.variant}"):
            return model
    if found:
        example = f"{point.path}::test_upgrade[{found[0].variant}-{point.case}]"
        raise MlmsError(f"{point.path} has several variants; name one of them, as in '{example}'")
    raise MlmsError(f"{point.loaded.place('models')}: there is no model for {framework}; add one")


def exact_release(text: str, option: str) -> Requirement:
    """Return a requirement of one release; raises MlmsError, which says what to write."""
    requirement = parse_requirement(text)
    specifiers = list(requirement.specifier)
    if len(specifiers) == 1:
        (only,) = specifiers
        is_release = not only.version.endswith("*")
        if only.operator == "==" and is_release:
            return requirement
    problem = f"{option} {text!r} is no release"
    raise MlmsError(f"{problem}; write one as in 'onnxruntime==1.20.1', or name a lock file")
