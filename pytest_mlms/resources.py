"""What fixtures hand out of the session: files, launches, the device, agents; what a host lacks is
a skip.

Imported by every pytest run, so what is heavy is imported where it is used.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from pytest_mlms.session import Session

if TYPE_CHECKING:
    from pytest_mlms.agent.predictor import Predictor
    from pytest_mlms.artifacts.fetch import CaseFiles
    from pytest_mlms.cases import Case
    from pytest_mlms.records import Launch

__all__ = ["files_of", "hold_device", "launch_of", "open_other", "skip_what_is_lacking"]

_LOCK_SECONDS = 3600  # how long an item waits for its device


@contextlib.contextmanager
def skip_what_is_lacking(session: Session) -> Iterator[None]:
    """Turn Unavailable into a skip, or under --mlms-strict into a failure."""
    from pytest_mlms.errors import Unavailable

    try:
        yield
    except Unavailable as lacking:
        if session.config.strict:
            pytest.fail(str(lacking), pytrace=False)
        pytest.skip(str(lacking))


def files_of(case: Case, session: Session, item: pytest.Item) -> CaseFiles:
    """Return the local files of a case: fetched where they are not here yet, and checked."""
    from pytest_mlms.artifacts.fetch import fetch_files
    from pytest_mlms.report.progress import download_progress

    return fetch_files(
        case.loaded, case.model, session.cache, download_progress(item), session.bring
    )


def launch_of(case: Case, files: CaseFiles, session: Session, item: pytest.Item) -> Launch:
    """Return how to start an agent of the case's stack, whose environment is made where it isn't
    there yet.
    """
    from pytest_mlms.report.progress import install_progress
    from pytest_mlms.stacks.launch import prepare

    mounts = [session.predictors[case.stack.framework].parent, *files.model.values()]
    show = install_progress(item, case.stack.name)
    with skip_what_is_lacking(session):
        return prepare(case.stack, session.cache, threads=case.threads, mounts=mounts, show=show)


def hold_device(case: Case, config: pytest.Config) -> contextlib.AbstractContextManager[None]:
    """Hold the device of a case alone among all sessions on this host."""
    from pytest_mlms.host.capabilities import uuid_of
    from pytest_mlms.host.locks import exclusive

    return exclusive(
        case.device, _LOCK_SECONDS, cores=case.stack.cores, uuid=uuid_of(case.device, config)
    )


@contextlib.contextmanager
def open_other(case: Case, session: Session, item: pytest.Item) -> Iterator[Predictor]:
    """Load the model of a case that is not the item's own in an agent of its own."""
    from pytest_mlms.agent.predictor import open_predictor

    name, config = case.stack.framework, session.config
    file, files = session.predictors[name], files_of(case, session, item)
    launch, log = launch_of(case, files, session, item), session.next_log(name)
    with open_predictor(
        case, launch, file, files.model, log, config.timeout, config.allow_code
    ) as predictor:
        yield predictor
