"""Setting of an upgrade: what was asked for, and the machine that it ran on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pytest_mlms.config import Config
from pytest_mlms.core.redaction import redact
from pytest_mlms.core.units import format_quantity
from pytest_mlms.decide.expected import gates_of
from pytest_mlms.decide.upgrade.criteria import rounds_of
from pytest_mlms.decide.upgrade.culprit import (
    other_indexes,
    point_id,
    session_words,
    stack_words,
    written_in,
)
from pytest_mlms.decide.upgrade.labels import with_variant
from pytest_mlms.decide.upgrade.round_estimate import ROUNDS, RoundSpan
from pytest_mlms.provide.cases import Case
from pytest_mlms.provide.host.machine import machine_state
from pytest_mlms.provide.stacks.declaration import HIDDEN
from pytest_mlms.provide.stacks.variables import is_secret


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
    """Return the settings of a side by what they are called."""
    stack, model = case.stack, case.model
    facts = {"interpreter": stack.interpreter or "", "container": stack.container or ""}
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
