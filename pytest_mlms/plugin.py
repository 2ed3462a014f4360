"""The plugin: its hooks, each of which reads what it needs and calls one function.

Nothing imports this module. Every pytest run on a machine that has the plugin does, so what is
heavy is imported where it is used.
"""

from __future__ import annotations

import contextlib
import gc
import os
import time
from collections.abc import Generator, Mapping
from pathlib import Path
from typing import Any

import pytest

from pytest_mlms import hookspecs
from pytest_mlms.config import Config, check_named, typed_flags, typed_paths
from pytest_mlms.items import fixtures
from pytest_mlms.options import add_options
from pytest_mlms.session import REPORTER, SESSION, WORKER, Session
from pytest_mlms.show.report.reporter import Reporter

MARKER = (
    "mlms(manifest, kind): a case of a manifest; "
    "in your own test, the manifest to take mlms_case from"
)


def pytest_addoption(parser: pytest.Parser) -> None:
    add_options(parser)


def pytest_addhooks(pluginmanager: pytest.PytestPluginManager) -> None:
    pluginmanager.add_hookspecs(hookspecs)


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """Load the conftest.py files of the manifests' folders, where no other paths are named."""
    known = early_config.known_args_namespace
    if known.mlms_manifests and not known.file_or_dir:
        # Without this, pytest takes those of ``testpaths``, which is not what is collected.
        own = early_config.invocation_params.dir / "conftest.py"
        known.file_or_dir = [str(own), *known.mlms_manifests]


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", MARKER)
    session = _make_session(config)
    config.stash[SESSION] = session
    options = session.config
    if options.stack or options.against:
        _check_stacks(session, config)
    config.pluginmanager.register(fixtures, "mlms-fixtures")
    if session.worker is None:
        config.pluginmanager.register(Reporter(config, session), REPORTER)
    if options.resume is not None:
        _resume(config)
    if options.model:
        _draft_manifest(session)
    if options.history is not None and options.manifests and session.worker is None:
        _check_history(session)
    if options.push is not None and session.worker is None:
        _check_push(session)
    _collect_manifests(config, session.config)
    distributes = session.config.manifests or options.fleet
    if distributes and config.pluginmanager.hasplugin("xdist"):
        from pytest_mlms.distribute.registration import register

        register(config)


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Tell a worker of xdist the folder of the run."""
    run_folder = node.config.stash[SESSION].run_folder
    node.workerinput.setdefault("mlms_run_folder", str(run_folder))


@pytest.hookimpl(wrapper=True)
def pytest_report_header(
    config: pytest.Config,
) -> Generator[None, list[str | list[str]], list[str | list[str]]]:
    """Add the lines of this run; leave out the file of settings where that is none, as ours are."""
    found = yield
    if config.inipath == Path(os.devnull):
        lines = [[one] if isinstance(one, str) else one for one in found]
        found = [[line for line in of if not line.startswith("configfile: ")] for of in lines]
    return [*found, *_own_header(config)]


def _own_header(config: pytest.Config) -> list[str]:
    session = config.stash[SESSION]
    if not session.config.manifests:
        return []
    paths = [os.path.relpath(path) for path in session.config.manifests]
    results = os.path.relpath(session.run_folder)
    lines = [f"mlms: manifests {', '.join(paths)}; results {results}"]
    lines += [f"mlms: {line}" for line in (*session.drafted, *session.history_notices)]
    return ["\n".join(lines)]


def pytest_sessionstart(session: pytest.Session) -> None:
    """Keep each Ctrl-C of a run of manifests, until pytest ends."""
    if session.config.stash[SESSION].config.manifests:
        from pytest_mlms.core.waits import interrupts_kept

        kept = contextlib.ExitStack()
        kept.enter_context(interrupts_kept())
        session.config.add_cleanup(kept.close)


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Generator[None, object, object]:
    """Look for no garbage while manifests are collected, nor later in what was: it stays."""
    has_manifests = bool(session.config.stash[SESSION].config.manifests)
    is_paused = has_manifests and gc.isenabled()
    if is_paused:
        gc.disable()
    try:
        return (yield)
    except pytest.UsageError as error:
        from pytest_mlms.items.uncollected import explained

        raise explained(error, session) from None
    finally:
        if is_paused:
            gc.freeze()
            gc.enable()


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    session = parent.config.stash[SESSION]
    roots = session.config.manifests
    if not roots:
        return None
    from pytest_mlms.items.collect import ManifestFile, is_manifest

    if not is_manifest(file_path, roots):
        return None
    name = {"nodeid": file_path.name} if file_path == session.draft else {}
    collector: pytest.Collector = ManifestFile.from_parent(parent, path=file_path, **name)
    return collector


@pytest.hookimpl(wrapper=True)
def pytest_ignore_collect(
    collection_path: Path, config: pytest.Config
) -> Generator[None, bool | None, bool | None]:
    """Warn of manifests below a folder that pytest leaves out by its name."""
    is_ignored = yield
    if is_ignored and config.stash[SESSION].config.manifests and collection_path.is_dir():
        from pytest_mlms.items.collect import warn_of_hidden

        warn_of_hidden(collection_path, config)
    return is_ignored


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "mlms_case" in metafunc.fixturenames:
        from pytest_mlms.items.collect import parametrize

        parametrize(metafunc)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Refuse stacks that have nothing to run, and have pytest-benchmark's options select our items.

    pytest-benchmark only knows the items with its own fixture.
    """
    session = config.stash[SESSION]
    options = session.config
    if options.stack or options.against:
        from pytest_mlms.items.warned import check_stacks

        check_stacks(config)
    if config.hook.pytest_mlms_devices.get_hookimpls() and (options.manifests or options.fleet):
        _check_devices(config)
    if options.upgrade and options.gate:
        from pytest_mlms.items.warned import warn_of_idle_gates

        warn_of_idle_gates(config, items)
    if session.originals or session.strangers:
        from pytest_mlms.items.warned import warn_of_originals

        warn_of_originals(config)
    if config.getoption("benchmark_only", False) or config.getoption("benchmark_skip", False):
        from pytest_mlms.items.selection import select_benchmarks

        select_benchmarks(config, items)


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """With --mlms-fleet and without xdist, show what this host has, and run nothing."""
    options = session.config.stash[SESSION].config
    if not options.fleet or session.config.pluginmanager.hasplugin("mlms-fleet"):
        return None
    from pytest_mlms.distribute.inventory import show_this_host

    show_this_host(session.config)
    return True


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Let --mlms-fleet succeed, which runs no tests."""
    options = session.config.stash[SESSION].config
    if options.fleet and exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED:
        session.exitstatus = pytest.ExitCode.OK


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Judge the limits that a user's test has set, once it has run to its end."""
    if not _uses_case(item):
        return (yield)
    from pytest_mlms.keep.results.recorder import RECORDER
    from pytest_mlms.show.report.outcome import calling

    with calling(item):
        result = yield
        recorder = item.stash.get(RECORDER, None)
        if recorder is not None:
            recorder.settle_own(item.config.stash[SESSION].config.strict)
    return result


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if _uses_case(item):
        from pytest_mlms.show.report.outcome import finish_report

        finish_report(item, call, report)
    return report


def pytest_report_teststatus(
    report: pytest.CollectReport | pytest.TestReport,
) -> tuple[str, str, tuple[str, Mapping[str, bool]]] | None:
    """Give undecided items a category of their own."""
    if not hasattr(report, "mlms_undecided"):
        return None
    from pytest_mlms.show.report.outcome import category_of

    return category_of(report)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, exitstatus: int, config: pytest.Config
) -> Generator[None, object, object]:
    """Tell failures and warnings once; write a run's last line, below all other summaries."""
    reporter = config.pluginmanager.getplugin(REPORTER)
    with reporter.summing_up(terminalreporter) if reporter else contextlib.nullcontext():
        result = yield
    is_empty = exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED
    if is_empty and not config.stash[SESSION].config.manifests:
        from pytest_mlms.items.uncollected import hint_of_manifests

        hint = hint_of_manifests(config)
        if hint:
            terminalreporter.write_line(f"mlms: {hint}", yellow=True)
    if reporter is not None:
        reporter.write_last_line(terminalreporter)
    return result


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    try:
        return (yield)
    except (KeyboardInterrupt, pytest.exit.Exception):
        _report_interrupted(item)
        raise


def _make_session(config: pytest.Config) -> Session:
    options = Config.from_pytest(config)
    worker = getattr(config, "workerinput", None)
    if worker is None:
        return Session(options, _run_folder(options))
    run_folder = Path(worker["mlms_run_folder"]).absolute()
    return Session(options, run_folder, worker["workerid"])


def _run_folder(options: Config) -> Path:
    """Return the folder of a new run, or of the one to resume; a new one is not made yet."""
    if options.resume is not None:
        from pytest_mlms.items.resume import resumed_run

        return resumed_run(options)
    began = time.strftime("%Y%m%d-%H%M%S", time.gmtime())
    digits = os.urandom(3).hex()
    return options.results / f"{began}-{digits}"


def _draft_manifest(session: Session) -> None:
    """Draft a manifest for --mlms-model, and have it collected as one that is named."""
    from pytest_mlms.core.errors import MlmsError
    from pytest_mlms.items.model_draft import draft_model

    try:
        draft_model(session)
    except MlmsError as error:
        raise pytest.UsageError(f"--mlms-model: {error}") from None


def _check_history(session: Session) -> None:
    """Refuse an address of a history that is wrong, before anything is measured."""
    from pytest_mlms.show.report.run_folders import check_address

    session.history_notices = check_address(session.config)


def _check_devices(config: pytest.Config) -> None:
    """Refuse what the hook pytest_mlms_devices announces where that is no device."""
    from pytest_mlms.core.errors import MlmsError
    from pytest_mlms.items.warned import refuse
    from pytest_mlms.provide.host.capabilities import announced_devices

    try:
        announced_devices(config)
    except MlmsError as error:
        refuse(str(error), config)


def _check_push(session: Session) -> None:
    """Refuse a token of a portal that is none, before anything is measured."""
    from pytest_mlms.core.errors import MlmsError
    from pytest_mlms.core.portal_address import read_token

    try:
        read_token(session.config.push_token_file)
    except MlmsError as error:
        raise pytest.UsageError(f"--mlms-push: {error}") from None


def _check_stacks(session: Session, config: pytest.Config) -> None:
    """Report an error of the stacks once, instead of once for each manifest."""
    from pytest_mlms.core.errors import MlmsError

    options = session.config
    if options.aa and options.against:
        raise pytest.UsageError(
            "--mlms-aa is each stack against itself; leave out --mlms-aa or --mlms-against"
        )
    try:
        if options.lock is not None:
            from pytest_mlms.keep.lockfile.reading import read_lock

            read_lock(options.lock)
        candidates = session.chosen_stacks or [session.declared_stacks["here"]]
        baselines = session.baseline_stacks
    except MlmsError as error:
        check_named(config)  # its variants are stacks, too
        raise pytest.UsageError(str(error)) from None
    if baselines and all(stack == baselines[0] for stack in (*candidates, *baselines)):
        raise pytest.UsageError(
            f"both sides of the upgrade are the stack {baselines[0].name}; name another one for "
            f"--mlms-stack or --mlms-against, or use --mlms-aa to see the noise floor"
        )


def _resume(config: pytest.Config) -> None:
    from pytest_mlms.items.resume import Resume, take_run

    reporter = config.pluginmanager.getplugin(REPORTER)
    if reporter is not None:
        take_run(reporter)
    from pytest_mlms.core.errors import MlmsError

    try:
        resume = Resume(config)
    except MlmsError as error:
        raise pytest.UsageError(f"--mlms-resume: {error}") from None
    config.pluginmanager.register(resume, "mlms-resume")
    if reporter is not None:
        reporter.show(resume.earlier)


def _collect_manifests(config: pytest.Config, options: Config) -> None:
    """Have pytest collect the manifests where the command line names nothing else to collect.

    What ``addopts`` name is left out where manifests or a model are typed.
    """
    named = config.getoption("mlms_manifests") or options.model
    is_typed = not typed_flags(config).isdisjoint(("--mlms-manifests", "--mlms-model"))
    names_paths = config.args_source is config.ArgsSource.ARGS
    if named and (not names_paths or (is_typed and not typed_paths(config))):
        config.args[:] = [str(path) for path in options.manifests]
        config.args_source = config.ArgsSource.ARGS


def _uses_case(item: pytest.Item) -> bool:
    return "mlms_case" in getattr(item, "fixturenames", ())


def _report_interrupted(item: pytest.Item) -> None:
    """Write what an interrupted item had recorded; pytest makes no report of it."""
    plugins = item.config.pluginmanager
    reporter = plugins.getplugin(REPORTER) or plugins.getplugin(WORKER)
    if reporter is None or not _uses_case(item):
        return
    try:
        from pytest_mlms.show.report.outcome import interrupted_result
    except ImportError:  # the first import of numpy was interrupted, before anything was measured
        return
    result = interrupted_result(item)
    if result and not reporter.has(result):
        reporter.add(result)
