"""The fixtures of manifest items, which users' own tests can use too: each provides one thing, and only if asked.

Imported by every pytest run, so what is heavy is imported where it is used.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest

from pytest_mlms.session import SESSION, Session

if TYPE_CHECKING:
    from pytest_mlms.cases import Case
    from pytest_mlms.options import Config
    from pytest_mlms.pipeline import Dataset
    from pytest_mlms.predictor import Predictor
    from pytest_mlms.provision.artifacts import CaseFiles
    from pytest_mlms.recorder import Recorder
    from pytest_mlms.records import Stack

_LOCK_SECONDS = 3600  # how long an item waits for its device


@contextlib.contextmanager
def _skip_what_is_lacking(session: Session) -> Iterator[None]:
    """Turn Unavailable into a skip, or under --mlms-strict into a failure."""
    from pytest_mlms.errors import Unavailable

    try:
        yield
    except Unavailable as lacking:
        if session.config.strict:
            pytest.fail(str(lacking), pytrace=False)
        pytest.skip(str(lacking))


@pytest.fixture(scope="session")
def mlms_session(pytestconfig: pytest.Config) -> Iterator[Session]:
    """What the plugin holds for this session; an agent that is still held ends with it."""
    session = pytestconfig.stash[SESSION]
    yield session
    session.predictor.close()


@pytest.fixture(scope="session")
def mlms_config(mlms_session: Session) -> Config:
    """The plugin's options."""
    return mlms_session.config


@pytest.fixture
def mlms_case() -> Case:
    """The case that an item evaluates; in a test of your own by @pytest.mark.mlms(manifest="digits.yaml")."""
    raise pytest.UsageError("mlms_case: mark the test with @pytest.mark.mlms(manifest='PATH'), from the test's folder")


@pytest.fixture
def mlms_stack(mlms_case: Case) -> Stack:
    """The software environment that the case runs in."""
    return mlms_case.stack


@pytest.fixture
def mlms_artifacts(mlms_case: Case, mlms_session: Session, request: pytest.FixtureRequest) -> CaseFiles:
    """The local files of the case: fetched where they are not here yet, and checked."""
    from pytest_mlms.provision.artifacts import fetch_files
    from pytest_mlms.report.terminal import download_progress

    return fetch_files(mlms_case.loaded, mlms_case.model, mlms_session.cache, download_progress(request.node))


@pytest.fixture
def mlms_dataset(mlms_case: Case, mlms_artifacts: CaseFiles, mlms_session: Session) -> Dataset | None:
    """The manifest's dataset, with its steps; None where it has none."""
    from pytest_mlms.pipeline import open_dataset

    path = mlms_artifacts.dataset
    if path is None:
        return None
    loaded = mlms_case.loaded
    inputs, place = loaded.manifest.inputs, loaded.place("dataset", "source")
    dataset: Dataset = mlms_session.dataset.get(
        (path, loaded.path), lambda: contextlib.nullcontext(open_dataset(path, inputs, place))
    )
    return dataset


@pytest.fixture
def mlms_device(mlms_case: Case, mlms_artifacts: CaseFiles, mlms_session: Session) -> Iterator[str]:
    """The device of the case, held for this item alone among all sessions on this host."""
    from pytest_mlms.provision.devices import exclusive

    with contextlib.ExitStack() as held:
        with _skip_what_is_lacking(mlms_session):
            held.enter_context(exclusive(mlms_case.device, _LOCK_SECONDS))
        yield mlms_case.device


@pytest.fixture
def mlms_recorder(mlms_case: Case, mlms_device: str, mlms_session: Session, request: pytest.FixtureRequest) -> Recorder:
    """What becomes the item's line in the results, and its folder of artifacts."""
    from pytest_mlms.recorder import RECORDER, Recorder

    recorder = Recorder(request.node.nodeid, mlms_session.run_folder)
    request.node.stash[RECORDER] = recorder
    return recorder


@pytest.fixture
def mlms_predictor_factory(
    mlms_case: Case, mlms_artifacts: CaseFiles, mlms_session: Session, mlms_recorder: Recorder
) -> Callable[[], contextlib.AbstractContextManager[Predictor]]:
    """A call that gives a context with the model loaded in a fresh agent, the only one of ours that is alive."""
    from pytest_mlms.predictor import open_predictor

    @contextlib.contextmanager
    def fresh() -> Iterator[Predictor]:
        mlms_session.predictor.close()
        name = mlms_case.stack.framework
        log, file = mlms_session.next_log(name), mlms_session.predictors[name]
        mlms_recorder.logs.append(log)
        with contextlib.ExitStack() as opened:
            with _skip_what_is_lacking(mlms_session):
                opening = open_predictor(mlms_case, file, mlms_artifacts.model, log, mlms_session.config.timeout)
                predictor = opened.enter_context(opening)
            mlms_recorder.ran_on(predictor)
            yield predictor

    return fresh


@pytest.fixture
def mlms_predictor(
    mlms_case: Case,
    mlms_artifacts: CaseFiles,
    mlms_session: Session,
    mlms_recorder: Recorder,
    mlms_predictor_factory: Callable[[], contextlib.AbstractContextManager[Predictor]],
) -> Iterator[Predictor]:
    """The case's model, loaded in an agent that is kept while the next item asks for the same."""
    key = (mlms_case.loaded.path, mlms_case.stack, mlms_case.device, tuple(mlms_artifacts.model.items()))
    predictor: Predictor = mlms_session.predictor.get(key, mlms_predictor_factory)
    mlms_recorder.ran_on(predictor)
    yield predictor
    if not predictor.agent.alive:
        mlms_session.predictor.close()
