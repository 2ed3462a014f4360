"""Fixtures and settings of all tests."""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import signal
import sys
from collections.abc import Generator, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from tests.support.driver import H200, Driver, compile_driver
from tests.support.postgresql import Server, running_server
from tests.support.prepared import Server as Prepared
from tests.support.project import Project, SharedRuns
from tests.support.small_disk import mount_small_disk

# "same" takes the same examples each time, and "few" some of them, for another Python;
# --hypothesis-profile=search looks for new ones.
settings.register_profile(
    "same",
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
settings.register_profile(
    "search",
    settings.get_profile("same"),
    derandomize=False,
    max_examples=2000,
)
settings.register_profile("few", settings.get_profile("same"), max_examples=20)
settings.load_profile("same")

# Shells have what they start in the background ignore Ctrl-C, and processes inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)

# Where one of these is set, pytest prints summaries of another form, and we write what CI reads.
for name in ("CI", "BUILD_NUMBER", "GITHUB_ACTIONS", "GITHUB_STEP_SUMMARY", "GITLAB_CI"):
    os.environ.pop(name, None)

# Images of containers set it; each process that a test starts would compile the project again.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

PREPARED = None if "MLMS_TESTS_START" in os.environ else Prepared()
"""What runs of pytest are forked from, but those of slow tests, which are of whole ways."""


_FAILED = pytest.StashKey[bool]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed:
        item.stash[_FAILED] = True
    return report


def _seconds(item: pytest.Item) -> float:
    mark = item.get_closest_marker("slow")
    return mark.kwargs.get("seconds", 0.0) if mark else 0.0


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Have each worker begin with some of the longest tests, so that none of these ends alone."""
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    longest = sorted(filter(_seconds, items), key=_seconds, reverse=True)
    others = iter([item for item in items if not _seconds(item)])
    share = len(items) // workers  # as worksteal deals them
    dealt: list[pytest.Item] = []
    for number in range(workers):
        own = longest[number::workers]
        dealt += [*own, *itertools.islice(others, share - len(own))]
    items[:] = [*dealt, *others]


@pytest.fixture
def pytester(
    pytester: pytest.Pytester, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[pytest.Pytester]:
    """pytester, whose folder goes with a test that passed, as tmp_path does: it may be large."""
    start = pytester.popen
    is_slow = request.node.get_closest_marker("slow") is not None

    def fork_or_start(command: Sequence[Any], **how: Any) -> Any:
        may_fork = not is_slow and how.get("stdin") is pytester.CLOSE_STDIN
        streams = (how.get("stdout", -1), how.get("stderr", -1))
        forked = PREPARED.fork(command, streams) if PREPARED and may_fork else None
        return forked or start(command, **how)

    monkeypatch.setattr(pytester, "popen", fork_or_start)
    shared = None
    if "shared_runs" in request.fixturenames:
        shared = request.getfixturevalue("shared_runs")
    yield pytester
    is_shared = shared is not None and pytester.path in shared.folders
    if not request.node.stash.get(_FAILED, False) and not is_shared:
        shutil.rmtree(pytester.path, ignore_errors=True)


@pytest.fixture
def started() -> Iterator[None]:
    """Start the runs of a test that is of what is imported, and when."""
    with contextlib.ExitStack() as stack:
        if PREPARED:
            stack.enter_context(PREPARED.free)
        yield


@pytest.fixture
def project(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Project:
    # No test of the project depends on speed, so none has to wait for the device.
    monkeypatch.setenv("MLMS_LOCKS", str(tmp_path / "locks"))
    # These plugins take longer to import than pytest itself.
    monkeypatch.setenv("PYTEST_ADDOPTS", "-p no:hypothesispytest -p no:anyio")
    monkeypatch.setenv("COLUMNS", "200")
    return Project(pytester)


@pytest.fixture(scope="module")
def shared_runs(request: pytest.FixtureRequest) -> Iterator[SharedRuns]:
    failed = request.session.testsfailed
    shared = SharedRuns()
    yield shared
    if request.session.testsfailed == failed:
        for folder in shared.folders:
            shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def seeds(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of seeds for the caches of all tests and workers; one takes seconds to make."""
    folder = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent
    made = folder / "shared-seeds"
    made.mkdir(exist_ok=True)
    return made


@pytest.fixture(scope="session")
def postgresql() -> Iterator[Server]:
    """A PostgreSQL server that runs; skips where it isn't installed."""
    with running_server() as server:
        yield server


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    with mount_small_disk(tmp_path / "disk") as folder:
        yield folder


@pytest.fixture(scope="session")
def driver_libraries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a stub of NVIDIA's driver, compiled by each process of pytest."""
    return compile_driver(tmp_path_factory.mktemp("driver"))


@pytest.fixture
def driver(driver_libraries: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Driver:
    """A stub of NVIDIA's driver in use, with an H200; tests.support.driver has its language."""
    driver = Driver(driver_libraries, tmp_path / "driver.txt")
    driver.says(H200)
    driver.use_here(monkeypatch)
    return driver
