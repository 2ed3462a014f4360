"""Files, launches, devices and agents for the fixtures of items.

What a host doesn't have skips the item. Every pytest run imports this, so what is heavy is imported
where it is used.
"""

from __future__ import annotations

import contextlib
import sys
import warnings
from collections.abc import Hashable, Iterator
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, NoReturn, TypeVar

import pytest

from pytest_mlms.core.errors import MlmsError, Unavailable
from pytest_mlms.session import Session

if TYPE_CHECKING:
    from pytest_mlms.core.records import Launch
    from pytest_mlms.measure.agent.opening import PredictorSpec
    from pytest_mlms.measure.agent.predictor import Predictor
    from pytest_mlms.provide.artifacts.fetch import CaseFiles
    from pytest_mlms.provide.cases import Case

Value = TypeVar("Value")


@contextlib.contextmanager
def skip_if_unavailable(session: Session) -> Iterator[None]:
    """Turn Unavailable into a skip, or under --mlms-strict into a failure."""
    try:
        yield
    except Unavailable as error:
        text = str(error)
        if session.config.strict:
            raise pytest.fail.Exception(text, pytrace=False) from None
        raise pytest.skip.Exception(text) from None


@contextlib.contextmanager
def open_or_skip(session: Session, opening: AbstractContextManager[Value]) -> Iterator[Value]:
    """Open a context; Unavailable is a skip while it opens, and an error after that."""
    with contextlib.ExitStack() as opened:
        with skip_if_unavailable(session):
            value = opened.enter_context(opening)
        yield value


def skip_if_known_unavailable(case: Case, session: Session, config: pytest.Config) -> None:
    """Skip an item that can't run, as far as that is known before anything is started.

    On another host than its manifest is for, a stack's path may lead nowhere without a mistake.
    """
    from pytest_mlms.provide.host.matching import check_hardware

    with skip_if_unavailable(session):
        check_hardware(case, lambda: session.capabilities(config))
        if case.unlocked is not None:
            _refuse_unlocked(case, case.unlocked, session.config.strict)
        check_known(case, session)
        if case.against is not None:
            check_known(case.baseline, session)


def _refuse_unlocked(case: Case, error: MlmsError, strict: bool) -> NoReturn:
    """Raise the reason why an item has no locked baseline; warn where that only skips it."""
    from pytest_mlms.warning_types import MlmsNotLocked

    if isinstance(error, Unavailable) and not strict:
        place = case.place()
        text = f"{case.label}: {error}"
        warnings.warn_explicit(text, MlmsNotLocked, str(place.path), place.line)
    raise error


def check_known(case: Case, session: Session) -> None:
    """Raise Unavailable where it is known, without starting anything, that a model can't be opened.

    It was unavailable to an earlier item, this machine hasn't what its stack needs, or its
    framework isn't in the interpreter of this process, which is to run it.
    """
    key = _environment_of(case)
    if key in session.available:
        return
    if key in session.unavailable:
        raise Unavailable(session.unavailable[key])
    try:
        _check_stack(case, session)
    except Unavailable as error:
        session.unavailable[key] = str(error)
        raise


def _check_stack(case: Case, session: Session) -> None:
    from pytest_mlms.provide.stacks.declared import serves
    from pytest_mlms.provide.stacks.launch import check_host

    check_host(case.stack)
    if serves(session.predictors[case.stack.framework]) and not case.stack.server:
        problem = f"stack {case.stack.name} has no server of {case.stack.framework}"
        raise Unavailable(f"{problem}; name one that has 'serve' or 'endpoint': docs/servers.md")
    missing = _missing_here(case, session)
    if missing:
        raise Unavailable(_missing_text(case, missing[0]))


def _missing_here(case: Case, session: Session) -> list[str]:
    from pytest_mlms.provide.host.capabilities import missing_here

    if case.stack.interpreter != "current":
        return []
    name = case.stack.framework
    if name not in session.missing_here:
        session.missing_here[name] = missing_here(session.predictors[name])
    return session.missing_here[name]


def _missing_text(case: Case, module: str) -> str:
    from pytest_mlms.provide.stacks.declared import install_advice

    stack = case.stack
    problem = f"{stack.framework} can't be imported in stack {stack.name} ({sys.executable})"
    return f"{problem}; {install_advice(stack.framework)}: No module named {module!r}"


def check_environment(case: Case, session: Session, item: pytest.Item) -> None:
    """Raise Unavailable where the framework of a case, its version or its device is missing.

    Starts an agent that loads no model, unless what is needed is known already.
    """
    from pytest_mlms.measure.agent.opening import check_agent

    check_known(case, session)
    if _environment_of(case) in session.available or _is_this_interpreter_on_cpu(case):
        return
    files = files_of(case, session, item)
    launch = launch_of(case, files, session, item)
    spec = predictor_spec(case, files, launch, session, item)
    with hold_device(case, item), remember_environment(case, session, check_agent(spec)):
        pass


def _is_this_interpreter_on_cpu(case: Case) -> bool:
    return case.stack.interpreter == "current" and case.device == "cpu"


@contextlib.contextmanager
def remember_environment(
    case: Case, session: Session, opening: AbstractContextManager[Value]
) -> Iterator[Value]:
    """Open a model; remember that it is available, or why it isn't, for the items that follow."""
    key = _environment_of(case)
    with contextlib.ExitStack() as opened:
        try:
            value = opened.enter_context(opening)
        except Unavailable as error:
            session.unavailable[key] = str(error)
            raise
        session.available.add(key)
        yield value


def _environment_of(case: Case) -> Hashable:
    # An agent of its own may answer what some items ask, and not what others do.
    needs = (case.kind, case.scenario) if case.stack.agent else None
    return (case.loaded.path, case.model.framework, case.stack, case.device, needs)


def files_of(case: Case, session: Session, item: pytest.Item) -> CaseFiles:
    """Return the local files of a case; those that are not here yet are fetched and checked."""
    from pytest_mlms.core.records import DownloadLimits
    from pytest_mlms.manifest.scenarios import Replay
    from pytest_mlms.provide.artifacts.fetch import fetch_files
    from pytest_mlms.show.report.progress import Status, waiting_in

    status = Status(f"the files of {case.loaded.manifest.name}")
    config = session.config
    limits = DownloadLimits(config.download_size, config.download_time, config.unpack_limit)
    with waiting_in(item)(status.text):
        return fetch_files(
            case.loaded,
            case.model,
            session.cache,
            status.show_download,
            session.bring,
            limits,
            status.show,
            case.load.arrivals if isinstance(case.load, Replay) else None,
        )


def launch_of(case: Case, files: CaseFiles, session: Session, item: pytest.Item) -> Launch:
    """Return how to start an agent of the case's stack; its environment is made if need be."""
    from pytest_mlms.measure.agent.launching import launch_case
    from pytest_mlms.provide.stacks.recorded import with_packages
    from pytest_mlms.show.report.progress import Status, waiting_in

    status = Status(f"stack {case.stack.name}")
    with skip_if_unavailable(session), waiting_in(item)(status.text):
        launch = launch_case(
            case,
            files.model,
            session.predictors[case.stack.framework],
            session.cache,
            passthrough=session.config.env_passthrough,
            config=item.config,
            show=status.show,
            hosts=session.config.endpoint,
        )
    return with_packages(launch)


def hold_device(case: Case, item: pytest.Item) -> AbstractContextManager[None]:
    """Return a context in which no other session on this host measures on the case's device."""
    from pytest_mlms.measure.agent import launching
    from pytest_mlms.show.report.progress import waiting_in

    return launching.hold_device(case, item.config, waiting_in(item))


def predictor_spec(
    case: Case, files: CaseFiles, launch: Launch, session: Session, item: pytest.Item
) -> PredictorSpec:
    """Return what is needed to load the case's model in a new agent, with a log of its own."""
    from pytest_mlms.measure.agent.opening import PredictorSpec
    from pytest_mlms.show.report.progress import waiting_in

    framework = case.stack.framework
    return PredictorSpec(
        case=case,
        launch=launch,
        predictor=session.predictors[framework],
        files=files.model,
        log=session.next_log(framework),
        timeout=session.config.timeout,
        allow_code=session.config.allow_code,
        waiting=waiting_in(item),
    )


@contextlib.contextmanager
def open_other(case: Case, session: Session, item: pytest.Item) -> Iterator[Predictor]:
    """Load the model of another case than the item's, in an agent of its own."""
    from pytest_mlms.measure.agent.opening import open_predictor

    files = files_of(case, session, item)
    launch = launch_of(case, files, session, item)
    opening = open_predictor(predictor_spec(case, files, launch, session, item))
    with remember_environment(case, session, opening) as predictor:
        yield predictor
