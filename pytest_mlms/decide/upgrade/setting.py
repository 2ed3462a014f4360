"""Setting of an upgrade: what was asked for, the machine, the command that finds the release."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from packaging.utils import canonicalize_name

from pytest_mlms.config import Config
from pytest_mlms.core.errors import MlmsError
from pytest_mlms.core.records import Stack
from pytest_mlms.core.text import redact
from pytest_mlms.core.units import format_quantity
from pytest_mlms.decide.expected import gates_of
from pytest_mlms.decide.upgrade.criteria import rounds_of
from pytest_mlms.decide.upgrade.labels import with_variant
from pytest_mlms.decide.upgrade.round_estimate import ROUNDS, RoundSpan
from pytest_mlms.provide.artifacts.fetch import default_cache
from pytest_mlms.provide.cases import Case
from pytest_mlms.provide.host.machine import machine_state
from pytest_mlms.provide.stacks.declared import (
    folders_of,
    framework_of,
    is_published,
    package_of,
)
from pytest_mlms.provide.stacks.exact_packages import Difference
from pytest_mlms.provide.stacks.recorded import HIDDEN
from pytest_mlms.provide.stacks.variables import is_secret

_INDEX_OPTIONS = ("--index-url", "--extra-index-url", "--find-links", "--no-index", "-i", "-f")


def point_id(
    file: str,
    device: str,
    batch_size: int,
    variant: str | None = None,
    scenario: str | None = None,
    shape: str | None = None,
) -> str:
    """Return the id that ``mlms culprit`` takes for a point of a manifest."""
    point = "-".join(filter(None, (variant, device, f"b{batch_size}", scenario, shape)))
    return f"{file}::test_upgrade[{point}]"


def culprit_command(
    point: str, good: str, bad: str, quantity: str, more: Sequence[str] = ()
) -> str:
    """Return the command for two releases, such as onnxruntime==1.30.0, with ``more`` options."""
    words = ["mlms", "culprit", point, "--good", good, "--bad", bad, "--quantity", quantity, *more]
    return shlex.join(map(redact, words))


def other_indexes(case: Case) -> str:
    """Return why no command searches the releases of a case: its sides may be of other indexes.

    "" where they ask the same. A command has the indexes of one stack for both ends. pip doesn't
    tell which index the packages of an interpreter came from: the one that is asked for a framework
    of somebody's own may have a stranger's package of that name.
    """
    sides = (case.stack, case.baseline.stack)
    if all(stack.interpreter for stack in sides) and not is_published(case.stack.framework):
        return "nothing tells which index the packages of both interpreters are from"
    if _indexes(case.stack) == _indexes(case.baseline.stack):
        return ""
    return "the sides have other indexes in their pip_options"


def _indexes(stack: Stack) -> list[str]:
    return [option for option in stack.options if option.startswith(_INDEX_OPTIONS)]


def search_instead(problem: str) -> str:
    """Return what to do where no command searches the releases, which ``problem`` says."""
    return (
        f"which change: no search of an index finds it, as {problem}; declare a stack for each "
        f"version between both sides, and compare it with A by --mlms-against"
    )


def stack_words(case: Case, root: Path, folder: Path) -> Iterator[str]:
    """Yield the options for what stacks have beside the framework's release, typed in ``folder``.

    ``root`` is pytest's root directory, in which and below which the command looks for stacks.

    These are the settings of a candidate that has some, the place of its declaration where the
    command wouldn't look for it, and the requirements that hold on both sides. One with a secret
    in its name can't be written.
    """
    stack = case.stack
    if (stack.place is not None or stack.env) and HIDDEN not in stack.name:
        yield from ("--stack", stack.name)
        if stack.place is not None:
            declared = stack.place.path.absolute().parent
            if declared not in folders_of(root, [case.loaded.path.absolute()]):
                yield f"--mlms-manifests={written_in(folder, declared)}"
    for text in _shared(stack.requirements, case.baseline.stack.requirements):
        if framework_of(package_of(text)) != stack.framework:
            yield from ("--with", text)


def _shared(ours: Sequence[str], others: Sequence[str]) -> Iterator[str]:
    """Yield the requirements that hold on both sides: alike, or where one takes any version."""
    for text in ours:
        if text in others or package_of(text) in others:
            yield text
    for text in others:
        if text not in ours and package_of(text) in ours:
            yield text


def session_words(config: Config, folder: Path) -> Iterator[str]:
    """Yield the options of this session that an upgrade depends on, as typed in ``folder``."""
    for predictors in config.predictors:
        yield f"--mlms-predictors={written_in(folder, predictors)}"
    if config.cache is not None and config.cache != default_cache():
        yield f"--mlms-cache={written_in(folder, config.cache)}"
    for pattern in config.env_passthrough:
        yield f"--mlms-env-passthrough={pattern}"
    if config.allow_code:
        yield "--mlms-allow-code"
    if config.outputs is not None:
        yield f"--mlms-outputs={config.outputs or 'all'}"
    if config.clock is not None:
        yield f"--mlms-clock={config.clock}"
    if config.seed is not None:
        yield f"--mlms-seed={config.seed}"


def written_in(folder: Path, path: Path) -> str:
    """Return a path as a person in a folder writes it."""
    return str(path.relative_to(folder) if path.is_relative_to(folder) else path)


_PILLOW = "pillow"
_MODULES = {
    "librosa": "librosa",
    "opencv-contrib-python": "cv2",
    "opencv-contrib-python-headless": "cv2",
    "opencv-python": "cv2",
    "opencv-python-headless": "cv2",
    _PILLOW: "PIL",
    "scikit-image": "skimage",
    "soundfile": "soundfile",
    "tokenizers": "tokenizers",
}
"""Distribution that prepares inputs -> its module."""

_NOT_COMPARED = "not compared: inputs of both sides are prepared by pytest's own interpreter"


def told_changes(case: Case, predictor: Path, changed: Sequence[Difference]) -> list[str]:
    """Return a text for each package that differs, which says of some that they aren't compared.

    Raises MlmsError where nothing else differs: the upgrade would say nothing of what was asked.
    """
    unused = [each for each in changed if _is_unused(each, case, predictor)]
    sides = (case.baseline.stack, case.stack)
    if unused and len(unused) == len(changed) and _rest_of(sides[0]) == _rest_of(sides[1]):
        names = ", ".join(map(str, unused))
        a, b = (stack.name for stack in sides)
        package = unused[0]
        raise MlmsError(
            f"{case.place()}: {b} and {a} differ only in what no agent uses: {names}; inputs are "
            f"prepared by pytest's own interpreter for both sides. To compare it, "
            f"{_how_to_compare(package, case)}"
        )
    return [f"{each} ({_NOT_COMPARED})" if each in unused else str(each) for each in changed]


def _how_to_compare(package: Difference, case: Case) -> str:
    if package.package == _PILLOW and any(
        each.decode for spec in case.loaded.manifest.inputs for each in spec.steps[:1]
    ):
        return "write 'preprocess: stack' under evaluate: pictures are then decoded by each stack"
    return (
        f"run pytest with {package.package}=={package.a} installed beside it, then with "
        f"{package.package}=={package.b}, and compare both runs (mlms report has --against)"
    )


def _is_unused(difference: Difference, case: Case, predictor: Path) -> bool:
    """Return whether a stack asks for a package that neither its predictor nor its code uses."""
    module = _MODULES.get(difference.package)
    if difference.package == _PILLOW and case.loaded.manifest.evaluate.preprocess == "stack":
        return False
    origin = case.loaded.origin
    if module is None or (origin is not None and origin.code):
        return False
    asked = _asked(case.stack) | _asked(case.baseline.stack)
    return difference.package in asked and module not in predictor.read_text(errors="replace")


def _asked(stack: Stack) -> set[str]:
    return {str(canonicalize_name(package_of(text))) for text in stack.requirements}


def _rest_of(stack: Stack) -> tuple[object, ...]:
    """Return what else of a stack changes what agents do."""
    return (stack.python, stack.env, stack.threads, stack.libraries)


@dataclass(frozen=True)
class UpgradeSetting:
    """Facts that the text of an upgrade adds to the measurements.

    ``a`` and ``b`` are the names of the stacks, ``budget`` is in seconds, and ``threads`` those
    that both sides were asked for (None: their own choice). ``place`` is the manifest's line for
    tolerances; ``tolerance_given`` is whether the command line set that of latency. ``cpu_shares``
    are the busy and the stolen share of the host's CPUs, ``gpu_notes`` what the driver said of the
    GPU. ``framework`` and ``point`` are the case: the point is the id that ``mlms culprit`` takes.
    ``changed_packages`` differ between the sides, as in "numpy 2.3.0 → 2.4.6", and
    ``culprit_words`` are more options of that command, to which the tolerances of ``typed``
    quantities belong, too. ``rounds`` are how many there may be.
    ``caches`` is what processes found of these, with the bytes that they left on each side.
    ``packages`` are the exact ones of A and of B, a line each, and ``other_indexes`` says why that
    command can't be, where the sides ask other indexes. ``differences`` are what else differs,
    such as "option mode fast → safe".
    """

    a: str
    b: str
    budget: float
    threads: Sequence[int | None]
    place: str
    tolerance_given: bool
    machine: Mapping[str, Any]
    cpu_shares: Mapping[str, float | None]
    gpu_notes: Sequence[str] = ()
    framework: str = ""
    point: str = ""
    changed_packages: Sequence[str] = ()
    rounds: RoundSpan = ROUNDS
    culprit_words: Sequence[str] = ()
    typed: Sequence[str] = ()
    caches: str = ""
    packages: Sequence[Sequence[str]] = ((), ())
    other_indexes: str = ""
    differences: Sequence[str] = ()


def setting_of(
    case: Case,
    config: Config,
    cpu_shares: Mapping[str, float | None],
    gpu_notes: Sequence[str],
    changed_packages: Sequence[str] = (),
    cache_bytes: Sequence[int | None] = (),
    packages: Sequence[Sequence[str]] = ((), ()),
) -> UpgradeSetting:
    """Return the setting of an upgrade that has run."""
    return UpgradeSetting(
        a=with_variant(case.baseline.stack.name, case.baseline.model.variant),
        b=with_variant(case.stack.name, case.model.variant),
        budget=config.budget,
        threads=(case.baseline.threads, case.threads),
        place=str(case.loaded.place("thresholds", "upgrade")),
        tolerance_given=config.tolerance is not None,
        machine=machine_state(),
        cpu_shares=cpu_shares,
        gpu_notes=gpu_notes,
        framework=case.model.name,
        rounds=rounds_of(config),
        point=point_id(
            written_in(Path.cwd(), case.loaded.path),
            case.device,
            case.batch_size,
            case.model.variant,
            case.scenario,
            case.shape,
        ),
        changed_packages=changed_packages,
        culprit_words=(
            *stack_words(case, config.root, Path.cwd()),
            *session_words(config, Path.cwd()),
        ),
        typed=[
            name for name, gate in gates_of(case, config).items() if gate.place.startswith("--")
        ],
        caches=_caches_text(case, cache_bytes),
        packages=packages,
        other_indexes=other_indexes(case),
        differences=differences_of(case),
    )


def differences_of(case: Case) -> list[str]:
    """Return what differs between the sides beside their packages, a text each, A → B.

    That is the interpreter or the container, the model's files, options, variables, threads, cores
    and libraries. Secrets that differ are told as ``***``.
    """
    old, new = _facts_of(case.baseline), _facts_of(case)
    found = []
    for name in dict.fromkeys([*old, *new]):
        if old.get(name) != new.get(name):
            a, b = (_shown(name, facts.get(name, "not set")) for facts in (old, new))
            found.append(f"{name} {a} → {b}")
    return found


def _shown(name: str, value: str) -> str:
    is_variable = name.startswith(("$", "option "))
    return HIDDEN if is_variable and is_secret(name, value) else redact(value)


def _facts_of(case: Case) -> dict[str, str]:
    """Return the settings of a side by name."""
    stack, model = case.stack, case.model
    facts = {"interpreter": stack.interpreter or "", "container": stack.container or ""}
    facts["agent"] = shlex.join(stack.agent)
    facts["server"] = shlex.join(stack.serve.command) if stack.serve else stack.endpoint
    for role, digest in model.sha256.items():
        facts[role] = f"{Path(getattr(model, role)).name} ({str(digest)[:8]})"
    options = {**model.options, **dict(stack.model_options)}
    facts.update({f"option {name}": str(value) for name, value in options.items()})
    facts.update({f"${name}": value for name, value in stack.env})
    for library in stack.libraries:
        facts[f"library {library.name}"] = f"{library.library} of {library.package}"
    facts["passed variables"] = " ".join(stack.env_passthrough)
    facts["threads"] = str(case.threads or "")
    facts["cores"] = ",".join(map(str, stack.cores))
    return {name: text for name, text in facts.items() if text}


def _caches_text(case: Case, sizes: Sequence[int | None]) -> str:
    """Return in which state caches were found, and what processes left there, A -> B."""
    if case.caches is None:
        return ""
    if not any(sizes):
        return f"{case.caches}, but neither side wrote any"
    return f"{case.caches} ({' -> '.join(format_quantity(size or 0, 'B') for size in sizes)})"
