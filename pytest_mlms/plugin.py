"""The plugin: hooks only, each reads what it needs and calls one function; nothing imports this
file.

Imported by every pytest run on a machine that has the plugin, so what is heavy is imported where it
is used.
"""

from __future__ import annotations

import os
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from pytest_mlms import hookspecs
from pytest_mlms.config import Config
from pytest_mlms.items import fixtures
from pytest_mlms.options import add_options
from pytest_mlms.report.reporter import Reporter
from pytest_mlms.session import REPORTER, SESSION, WORKER, Session

MARKER = "mlms(manifest, kind): a case of a manifest; in your own test, the manifest to take mlms_case from"


def pytest_addoption(parser: pytest.Parser) -> None:
    add_options(parser)


def pytest_addhooks(pluginmanager: pytest.PytestPluginManager) -> None:
    pluginmanager.add_hookspecs(hookspecs)


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    known = early_config.known_args_namespace
    if (
        known.mlms_manifests and not known.file_or_dir
    ):  # what is collected then, so ``testpaths`` doesn't count
        known.file_or_dir = [
            str(early_config.invocation_params.dir / "conftest.py"),
            *known.mlms_manifests,
        ]


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", MARKER)
    options = Config.from_pytest(config)
    worker = getattr(config, "workerinput", None)
    run_folder = Path(worker["mlms_run_folder"]).absolute() if worker else _run_folder(options)
    config.stash[SESSION] = Session(options, run_folder, worker and worker["workerid"])
    if options.stack or options.against:
        _check_stacks(config.stash[SESSION])
    config.pluginmanager.register(fixtures, "mlms-fixtures")
    if worker is None:
        config.pluginmanager.register(Reporter(config, config.stash[SESSION]), REPORTER)
    if options.resume is not None:
        _resume(config)
    if config.getoption("mlms_manifests") and config.args_source is not config.ArgsSource.ARGS:
        config.args[:] = [str(path) for path in options.manifests]
        config.args_source = config.ArgsSource.ARGS
    if (options.manifests or options.fleet) and config.pluginmanager.hasplugin("xdist"):
        from pytest_mlms.distribute.wiring import wire

        wire(config)


def _resume(config: pytest.Config) -> None:
    from pytest_mlms.items.resume import Resume

    resume = Resume(config)
    config.pluginmanager.register(resume, "mlms-resume")
    reporter = config.pluginmanager.getplugin(REPORTER)
    if reporter:
        reporter.resume(resume.lines.values())


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    node.workerinput.setdefault("mlms_run_folder", str(node.config.stash[SESSION].run_folder))


def pytest_report_header(config: pytest.Config) -> str | None:
    session = config.stash[SESSION]
    if not session.config.manifests:
        return None
    shown = ", ".join(os.path.relpath(path) for path in session.config.manifests)
    return f"mlms: manifests {shown}; results {os.path.relpath(session.run_folder)}"


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    roots = parent.config.stash[SESSION].config.manifests
    if not roots:
        return None
    from pytest_mlms.items.collect import ManifestFile, is_manifest

    return (
        ManifestFile.from_parent(parent, path=file_path) if is_manifest(file_path, roots) else None
    )


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "mlms_case" in metafunc.fixturenames:
        from pytest_mlms.items.collect import parametrize

        parametrize(metafunc)


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    options = session.config.stash[SESSION].config
    if not options.fleet or session.config.pluginmanager.hasplugin("mlms-fleet"):
        return None
    from pytest_mlms.distribute.inventory import show_this_host

    show_this_host(session.config)
    return True


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    if (
        session.config.stash[SESSION].config.fleet
        and exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED
    ):
        session.exitstatus = pytest.ExitCode.OK


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if "mlms_case" in getattr(item, "fixturenames", ()):
        from pytest_mlms.report.outcome import finish_report

        finish_report(item, call, report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    try:
        return (yield)
    except (KeyboardInterrupt, pytest.exit.Exception):
        plugins = item.config.pluginmanager
        reporter = plugins.getplugin(REPORTER) or plugins.getplugin(WORKER)
        if reporter and "mlms_case" in getattr(item, "fixturenames", ()):
            from pytest_mlms.report.outcome import interrupted_result

            result = interrupted_result(item)
            if result:
                reporter.add(result)
        raise


def _check_stacks(session: Session) -> None:
    """Say now, once, that a stack is unknown: not for each manifest."""
    from pytest_mlms.errors import MlmsError

    if session.config.aa and session.config.against:
        raise pytest.UsageError(
            "--mlms-aa is each stack against itself; leave out --mlms-aa or --mlms-against"
        )
    try:
        candidates = session.chosen_stacks or [session.declared_stacks["here"]]
        baselines = session.baseline_stacks
    except MlmsError as error:
        raise pytest.UsageError(str(error)) from None
    if baselines and all(one == other for one in candidates for other in baselines):
        raise pytest.UsageError(
            f"both sides of the upgrade are the stack {baselines[0].name}; name another one for --mlms-stack or "
            f"--mlms-against, or use --mlms-aa to see the noise floor"
        )


def _run_folder(options: Config) -> Path:
    if options.resume is None:
        return _new_run(options.results)
    from pytest_mlms.items.resume import resumed_run

    return resumed_run(options)


def _new_run(results: Path) -> Path:
    """Return the folder of a run that begins now; it is made when something is written to it."""
    return results / f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}-{os.urandom(3).hex()}"
