"""Warnings of a collected manifest and of a whole run; -W makes them errors without a traceback.

A run warns of manifests without a limit, of marks, gates and stacks that do nothing, of variables
that set another number of threads, and of what originals of MLModelScope lack.
"""

from __future__ import annotations

import os
import re
import warnings
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence

import pytest

from pytest_mlms.core.records import Stack
from pytest_mlms.decide.expected import expected, gates_of
from pytest_mlms.manifest.load import LoadedManifest
from pytest_mlms.provide.cases import Case, case_of, cases_of
from pytest_mlms.provide.stacks.declared import stacks_for
from pytest_mlms.session import FIRST_WORKERS, SESSION, Session
from pytest_mlms.warning_types import MlmsNotGated, MlmsWarning


def warn_at(path: str, line: int, text: str, category: type[MlmsWarning]) -> None:
    """Warn while a file is collected; raises CollectError by -W error."""
    try:
        warnings.warn_explicit(text, category, path, line)
    except MlmsWarning:
        raise pytest.Collector.CollectError(f"{path}:{line}: {text}") from None


def warn_of_run(
    config: pytest.Config, path: str, text: str, category: type[MlmsWarning] = MlmsWarning
) -> None:
    """Warn of a run whose items are collected; refuses it by -W error."""
    try:
        warn_at(path, 1, text, category)
    except pytest.Collector.CollectError as error:
        refuse(str(error), config)


def refuse(text: str, config: pytest.Config) -> None:
    """Raise UsageError; a worker of xdist, whose errors of usage nobody reads, reports it."""
    if config.stash[SESSION].worker is None:
        raise pytest.UsageError(text)
    report = pytest.CollectReport("mlms", "failed", longrepr=text, result=[])
    config.hook.pytest_collectreport(report=report)


def warn_without_limits(loaded: LoadedManifest, cases: Sequence[Case], session: Session) -> None:
    """Warn once of a manifest none of whose cases must decide anything but a soak's defaults.

    A model without a manifest needs no limit, and neither do the control of a host, and hosts that
    are compared. Of originals, one warning tells of all.
    """
    if loaded.origin is not None:
        session.originals.append(loaded.origin)
    config = session.config
    if loaded.manifest.control or config.sides or config.model:
        return
    if not cases or any(not limit.default for case in cases for limit in expected(case, config)):
        return
    session.ungated.add(loaded.path)
    if loaded.origin is not None or session.worker not in FIRST_WORKERS:
        return
    place = loaded.place()
    name = loaded.manifest.name
    text = f"no limit judges what {name} measures"
    if any(case.kind == "soak" for case in cases):
        text += " but the defaults of its soaks, so nothing else of it can fail; add thresholds"
    elif loaded.limits("soak"):
        text += (
            " without --mlms-soak, so it can't fail; add that, or thresholds of other quantities"
        )
    else:
        text += f", so it can't fail; {_advice(loaded)}"
    warn_at(str(place.path), place.line, text, MlmsNotGated)


def _advice(loaded: LoadedManifest) -> str:
    """Return how to have a limit; an agreement is one where another model than its own runs."""
    if not loaded.manifest.thresholds.agreement:
        return "add thresholds"
    return (
        "no stack of this run has a model that its agreement compares with the reference: name one "
        "by --mlms-stack ('here' runs the models of all frameworks), or add other thresholds"
    )


def failure_without_limits(case: Case, session: Session) -> str:
    """Return why an item fails under --mlms-strict if no limit judges it.

    It is "" where other items of the manifest are judged, and for a soak, which has limits.
    """
    if case.loaded.path not in session.ungated or expected(case, session.config):
        return ""
    return (
        f"no limit judges what was measured, and --mlms-strict asks for one\n"
        f"  {_advice(case.loaded)} in {case.loaded.place().path}"
    )


_OF_OTHER_RUNS = re.compile(r"-vs-|-aa|[=<>~+/#]")
"""In patterns for upgrades, or for stacks that only an option names."""


def warn_of_idle_marks(loaded: LoadedManifest, cases: Sequence[Case], session: Session) -> None:
    """Warn of each mark that no case has, neither in this run nor on another declared stack.

    No error, since a mark may be for a stack that is declared elsewhere.
    """
    idle = []
    for name, reasons in loaded.manifest.marks.items():
        for pattern in reasons:
            if not any(case.is_called(pattern) for case in cases):
                idle.append((name, pattern))
    if not idle or session.worker not in FIRST_WORKERS:
        return
    possible = list(_possible_cases(loaded, session))
    for name, pattern in idle:
        is_of_another = _OF_OTHER_RUNS.search(pattern)
        if not is_of_another and not any(case.is_called(pattern) for case in possible):
            place = loaded.place("marks", name, pattern)
            advice = f"name a framework, a stack, or a pattern of ids such as {possible[-1].id}"
            text = f"{name} {pattern!r} marks nothing; {advice}"
            warn_at(str(place.path), place.line, text, MlmsWarning)


def _possible_cases(loaded: LoadedManifest, session: Session) -> Iterator[Case]:
    """Yield cases with each id that items other than upgrades may have on declared stacks."""
    offered = [model.name for model in loaded.manifest.models]
    stacks = [*session.declared_stacks.values(), *session.chosen_stacks]
    for kind in ("accuracy", "trace", "performance"):
        yield from cases_of(
            loaded, kind, lambda name: stacks_for(name, stacks, offered), lambda name: None
        )


def warn_of_thread_variables(
    loaded: LoadedManifest, cases: Sequence[Case], session: Session
) -> None:
    """Warn once of each stack with such a variable, which its framework may never read.

    No error, since a library beside the framework may have threads of its own.
    """
    if session.worker not in FIRST_WORKERS:
        return
    sides = [*cases, *(case.baseline for case in cases if case.against is not None)]
    with_variables = {case.stack.name: case for case in sides if case.stack.env}
    for case in with_variables.values():
        from pytest_mlms.provide.stacks.launch import THREAD_VARIABLES  # heavy, and rarely needed

        count = case.threads
        others = [
            f"{name}={value}"
            for name, value in case.stack.env
            if count and name in THREAD_VARIABLES and value != str(count)
        ]
        if not others:
            continue
        is_of_stack = case.stack.threads is not None and case.stack.place is not None
        place = case.stack.place if is_of_stack else loaded.place("evaluate", "threads")
        assert place is not None
        text = (
            f"'threads: {count}' is asked of the framework, so that {', '.join(others)} of stack "
            f"{case.stack.name} may do nothing; give a stack in stacks.yaml the 'threads', or "
            f"leave one of both out"
        )
        warn_at(str(place.path), place.line, text, MlmsWarning)


def warn_of_idle_gates(config: pytest.Config, items: Iterable[pytest.Item]) -> None:
    """Warn of each gate that judges nothing, such as one on queries where no load is run.

    No error, since a gate may be for other runs with the same ini file.
    """
    session = config.stash[SESSION]
    options = session.config
    upgrades = [case for case in map(case_of, items) if case and case.kind == "upgrade"]
    if not upgrades or session.worker not in FIRST_WORKERS:
        return
    measured = {name for case in upgrades for name in gates_of(case, options)}
    place = os.path.relpath(upgrades[0].loaded.path)
    for gate in options.gate:
        name = gate.partition("=")[0]
        if name not in measured:
            text = f"--mlms-gate={gate} judges nothing: no upgrade of this run measures {name}"
            advice = "leave it out, or run one that does, as of a scenario with a load, or on a GPU"
            warn_of_run(config, place, f"{text}; {advice}", MlmsNotGated)


def check_stacks(config: pytest.Config) -> None:
    """Refuse an option whose stacks all have nothing to run, and warn of one among others.

    Of the stacks that --mlms-stack all stands for, some may have nothing to run.
    """
    session = config.stash[SESSION]
    if not session.offered_frameworks:
        return
    if "all" not in session.config.stack:
        _check("--mlms-stack", session.chosen_stacks, config)
    _check("--mlms-against", session.baseline_stacks, config)


def _check(option: str, stacks: list[Stack], config: pytest.Config) -> None:
    session = config.stash[SESSION]
    offered = session.offered_frameworks
    unused = [stack for stack in stacks if not _runs(stack, offered)]
    if not unused:
        return
    names = []
    frameworks = set()
    for stack in unused:
        names.append(stack.name)
        frameworks.add(stack.framework if stack.framework not in offered else stack.variant)
    shown_names = ", ".join(names)
    missing = ", ".join(sorted(frameworks))
    known = ", ".join(sorted(offered))
    problem = f"no manifest of this run has a model for {missing}"
    advice = f"name a stack for {known}, or add a model"
    text = f"{option} {shown_names}: {problem}; {advice}"
    if len(unused) == len(stacks):
        refuse(text, config)
    elif session.worker in FIRST_WORKERS:
        place = config.inipath or config.rootpath
        warn_of_run(config, str(place), text)


def _runs(stack: Stack, offered: Collection[str]) -> bool:
    return all(not name or name in offered for name in (stack.framework, stack.variant))


_SHOWN = 5


def warn_of_originals(config: pytest.Config) -> None:
    """Warn of what all originals of a run lack, and of files that are no manifests."""
    session = config.stash[SESSION]
    if session.worker not in FIRST_WORKERS:
        return
    place = os.path.relpath(session.config.manifests[0])
    for category, text in _texts(session):
        warn_of_run(config, place, text, category)


def _texts(session: Session) -> Iterator[tuple[type[MlmsWarning], str]]:
    count = len(session.originals)
    noun = "manifest" if count == 1 else "manifests"
    missing = Counter(origin.dataset for origin in session.originals if origin.dataset)
    if missing:
        names = _listed([f"{name} ({times})" for name, times in missing.most_common()])
        problem = f"no datasets.yaml describes the datasets of original manifests: {names}"
        yield MlmsWarning, f"{problem}; add them to one, so that accuracy is measured"
    if count and not (session.config.upgrade or session.config.sides):
        problem = f"no limit judges what is measured of {count:,} original {noun}"
        defaults = " but the defaults of soaks" if session.config.soak else ", which can't fail"
        yield MlmsNotGated, f"{problem}{defaults}; add thresholds to what 'mlms import' writes"
    if session.strangers:
        names = _listed([os.path.relpath(path) for path in session.strangers])
        yield MlmsWarning, f"{_were_left(len(session.strangers))} left alone: {names}"


def _were_left(count: int) -> str:
    if count == 1:
        return "1 YAML file is no manifest and was"
    return f"{count} YAML files are no manifests and were"


def _listed(names: list[str]) -> str:
    more = ["…"] if len(names) > _SHOWN else []
    return ", ".join([*names[:_SHOWN], *more])
