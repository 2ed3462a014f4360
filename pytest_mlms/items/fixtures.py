"""The fixtures of items, for users' own tests too; each provides one thing, where it is asked for.

Every pytest run imports this, so what is heavy is imported where it is used.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

import pytest

from pytest_mlms.resources import (
    check_environment,
    check_known,
    files_of,
    hold_device,
    launch_of,
    open_or_skip,
    open_other,
    predictor_spec,
    remember_environment,
    skip_if_known_unavailable,
    skip_if_unavailable,
)
from pytest_mlms.session import SESSION, Session

if TYPE_CHECKING:
    from pytest_mlms.config import Config
    from pytest_mlms.core.records import Launch, Stack
    from pytest_mlms.decide.upgrade.agents import AgentPair
    from pytest_mlms.decide.upgrade.compared_inputs import OpenPictures
    from pytest_mlms.decide.upgrade.interleave import OpenPair
    from pytest_mlms.decide.upgrade.rounds import Outputs, SideName
    from pytest_mlms.items.device_monitor import DeviceMonitor
    from pytest_mlms.items.item_outputs import ItemOutputs
    from pytest_mlms.items.item_tracer import ItemTracer
    from pytest_mlms.keep.results.recorder import Recorder
    from pytest_mlms.measure.agent.helpers import PictureAgent, PictureSpec
    from pytest_mlms.measure.agent.opening import Caches
    from pytest_mlms.measure.agent.predictor import Predictor
    from pytest_mlms.measure.evaluate.kept_outputs import Reference
    from pytest_mlms.measure.pipeline import Dataset
    from pytest_mlms.provide.artifacts.fetch import CaseFiles
    from pytest_mlms.provide.cases import Case


@pytest.fixture(scope="session")
def mlms_session(pytestconfig: pytest.Config) -> Iterator[Session]:
    """The plugin's state in this session; the agent that it keeps ends with it."""
    session = pytestconfig.stash[SESSION]
    yield session
    session.predictor.close()
    session.code.close()


@pytest.fixture(scope="session")
def mlms_config(mlms_session: Session) -> Config:
    """The plugin's options."""
    return mlms_session.config


@pytest.fixture
def mlms_case() -> Case:
    """The case that the item evaluates.

    A test of your own gets it by @pytest.mark.mlms(manifest="digits.yaml").
    """
    advice = "mark the test with @pytest.mark.mlms(manifest='PATH'), from the test's folder"
    pytest.fail(f"mlms_case: {advice}", pytrace=False)


@pytest.fixture
def mlms_available(mlms_case: Case, mlms_session: Session, request: pytest.FixtureRequest) -> None:
    """Nothing; the item is skipped where its framework is known to be missing, or the host another.

    So nothing is fetched or computed for it.
    """
    skip_if_known_unavailable(mlms_case, mlms_session, request.config)


@pytest.fixture
def mlms_stack(mlms_case: Case) -> Stack:
    """The software environment that the case runs in."""
    return mlms_case.stack


@pytest.fixture
def mlms_artifacts(
    mlms_case: Case, mlms_session: Session, request: pytest.FixtureRequest
) -> CaseFiles:
    """The local files of the case; those that are not here yet are fetched and checked."""
    return files_of(mlms_case, mlms_session, request.node)


@pytest.fixture
def mlms_dataset(
    mlms_case: Case,
    mlms_artifacts: CaseFiles,
    mlms_session: Session,
    request: pytest.FixtureRequest,
) -> Dataset | None:
    """The manifest's dataset, with its steps; None without one, or for a shape of the manifest."""
    from pytest_mlms.measure.pipeline import without_corrupt
    from pytest_mlms.measure.pipeline.dataset import open_dataset_of

    path = mlms_artifacts.dataset
    if path is None or not mlms_case.has_dataset:
        return None
    loaded = mlms_case.loaded
    entry = loaded.manifest.dataset
    skipped = entry.skip_corrupt if entry else 0
    has_code = loaded.origin is not None and bool(loaded.origin.code)
    key = (path, loaded.path, mlms_case.stack if has_code else None)

    def opened() -> Dataset:
        if has_code:
            from pytest_mlms.items.embedded_code import open_with_code

            dataset = open_with_code(path, mlms_case, mlms_artifacts, mlms_session, request.node)
        else:
            dataset = open_dataset_of(loaded, path, mlms_artifacts.steps)
        return without_corrupt(dataset, skipped) if skipped else dataset

    return mlms_session.dataset.get(key, opened)


@pytest.fixture
def mlms_launch(
    mlms_case: Case,
    mlms_artifacts: CaseFiles,
    mlms_session: Session,
    request: pytest.FixtureRequest,
) -> Launch:
    """The way to start an agent of the case's stack, whose environment is made if need be."""
    return launch_of(mlms_case, mlms_artifacts, mlms_session, request.node)


@pytest.fixture
def mlms_device(
    mlms_case: Case, mlms_launch: Launch, mlms_session: Session, request: pytest.FixtureRequest
) -> Iterator[str]:
    """The device of the case, which no other session on this host uses while the item runs."""
    skip_if_known_unavailable(mlms_case, mlms_session, request.config)
    if "mlms_reference" in request.fixturenames:
        # The reference takes the device for itself, so it must be computed before.
        request.getfixturevalue("mlms_reference")
    with open_or_skip(mlms_session, hold_device(mlms_case, request.node)):
        yield mlms_case.device


@pytest.fixture
def mlms_recorder(
    mlms_case: Case, mlms_device: str, mlms_session: Session, request: pytest.FixtureRequest
) -> Recorder:
    """The recorder of the item's results and artifacts."""
    from pytest_mlms.decide.expected import expected
    from pytest_mlms.items.warned import failure_without_limits
    from pytest_mlms.keep.results.recorder import RECORDER, Recorder
    from pytest_mlms.provide.host.capabilities import uuid_of
    from pytest_mlms.provide.host.machine import CpuTimes

    recorder = Recorder(
        request.node.nodeid,
        mlms_session.run_folder,
        mlms_case.place(),
        cpu_shares=CpuTimes().shares,
        label=mlms_case.label,
        expected=expected(mlms_case, mlms_session.config),
        without_limits=failure_without_limits(mlms_case, mlms_session),
    )
    request.node.stash[RECORDER] = recorder
    uuid = uuid_of(mlms_device, request.config)
    if uuid:
        recorder.note(device_uuid=uuid)
    if "mlms_dataset" in request.fixturenames:
        dataset = request.getfixturevalue("mlms_dataset")
        if dataset is not None and dataset.skipped:
            recorder.note(skipped_elements=dataset.skipped)
    return recorder


@pytest.fixture
def mlms_caches() -> Iterator[Caches]:
    """The folders in which compilers keep their work, where the manifest says what is in them."""
    from pytest_mlms.measure.agent.opening import Caches

    with contextlib.ExitStack() as folders:
        yield Caches(folders)


@pytest.fixture
def mlms_predictor_factory(
    mlms_case: Case,
    mlms_launch: Launch,
    mlms_artifacts: CaseFiles,
    mlms_session: Session,
    mlms_recorder: Recorder,
    mlms_caches: Caches,
    request: pytest.FixtureRequest,
) -> Callable[..., AbstractContextManager[Predictor]]:
    """A function that loads the model in a fresh agent, the only one of the session that is alive.

    It returns a context, and takes environment variables for the agent.
    """
    from pytest_mlms.measure.agent.opening import open_predictor

    @contextlib.contextmanager
    def open_fresh(env: Mapping[str, str] | None = None) -> Iterator[Predictor]:
        mlms_session.predictor.close()
        variables = {**mlms_launch.env, **(env or {})}
        launch = dataclasses.replace(mlms_launch, env=variables)
        spec = predictor_spec(mlms_case, mlms_artifacts, launch, mlms_session, request.node)
        mlms_recorder.add_log(spec.log)
        mlms_recorder.launched(launch)
        with mlms_caches.given(spec, "b") as spec:
            opening = open_predictor(spec)
            if not env:
                opening = remember_environment(mlms_case, mlms_session, opening)
            with open_or_skip(mlms_session, opening) as predictor:
                mlms_recorder.ran_on(predictor)
                yield predictor
        mlms_recorder.note(**mlms_caches.facts)

    return open_fresh


@pytest.fixture
def mlms_predictor(
    mlms_case: Case,
    mlms_launch: Launch,
    mlms_session: Session,
    mlms_recorder: Recorder,
    mlms_predictor_factory: Callable[..., AbstractContextManager[Predictor]],
) -> Predictor:
    """The case's model in an agent, which is kept while the next items use the same."""
    predictor = mlms_session.predictor.open(mlms_case.setting, mlms_predictor_factory)
    mlms_recorder.launched(mlms_launch)
    mlms_recorder.ran_on(predictor)
    return predictor


@pytest.fixture
def mlms_outputs(
    mlms_case: Case,
    mlms_launch: Launch,
    mlms_session: Session,
    mlms_recorder: Recorder,
    mlms_predictor_factory: Callable[..., AbstractContextManager[Predictor]],
    request: pytest.FixtureRequest,
) -> ItemOutputs:
    """The outputs of the case's model for all inputs, which items of one stack share."""
    from pytest_mlms.items.item_outputs import ItemOutputs

    mlms_recorder.launched(mlms_launch)
    return ItemOutputs.of(
        mlms_case, mlms_session, mlms_recorder, mlms_predictor_factory, request.node
    )


@pytest.fixture
def mlms_reference(
    mlms_case: Case,
    mlms_dataset: Dataset | None,
    mlms_session: Session,
    request: pytest.FixtureRequest,
) -> Reference:
    """The outputs of the manifest's reference framework for all inputs.

    They are computed once for the items that follow each other.
    """
    from pytest_mlms.items.item_outputs import reference_outputs
    from pytest_mlms.measure.evaluate.kept_outputs import Reference

    with skip_if_unavailable(mlms_session):
        case = _reference_case(mlms_case)
        check_known(case, mlms_session)

        def compute() -> Reference:
            if "mlms_predictor_factory" in request.fixturenames:
                check_environment(mlms_case, mlms_session, request.node)
            opening = functools.partial(open_other, case, mlms_session, request.node)
            kept = reference_outputs(case, mlms_dataset, mlms_session, request.node, opening)
            return Reference.of(case, kept, opening)

        key = (case.setting, case.batch_size)
        return mlms_session.reference.get(key, compute)


def _reference_case(case: Case) -> Case:
    """Return the case of the reference. Raises Unavailable where no stack runs it."""
    from pytest_mlms.core.errors import Unavailable

    if case.reference is not None:
        return case.reference
    framework = case.agreement.reference if case.agreement else "no reference"
    raise Unavailable(f"{case.place()}: no stack runs {framework}; add one with --mlms-stack")


@pytest.fixture
def mlms_device_monitor(
    mlms_case: Case,
    mlms_device: str,
    mlms_artifacts: CaseFiles,
    mlms_session: Session,
    mlms_recorder: Recorder,
) -> Iterator[DeviceMonitor]:
    """The monitor of the device between the processes of an item or the rounds of an upgrade."""
    from pytest_mlms.core.files import total_size
    from pytest_mlms.items.device_monitor import monitor_device

    mlms_session.predictor.close()  # the agent that earlier items shared may be on the device
    is_needed = mlms_case.kind == "upgrade"
    size = total_size(mlms_artifacts.model.values())
    opening = monitor_device(mlms_device, mlms_recorder.note, size, is_needed)
    with open_or_skip(mlms_session, opening) as monitor:
        yield monitor


@pytest.fixture
def mlms_pair_factory(
    mlms_case: Case,
    mlms_launch: Launch,
    mlms_artifacts: CaseFiles,
    mlms_session: Session,
    mlms_recorder: Recorder,
    mlms_caches: Caches,
    request: pytest.FixtureRequest,
) -> OpenPair:
    """A function that loads both sides of an upgrade in fresh agents.

    It returns a context, and takes the order in which the sides are started and the cores that they
    are held to.
    """
    from pytest_mlms.core.errors import MlmsError
    from pytest_mlms.decide.upgrade.agents import open_pair
    from pytest_mlms.decide.upgrade.crash import Exits, crash_or

    baseline = mlms_case.baseline
    baseline_files = mlms_artifacts
    if baseline.model is not mlms_case.model:
        baseline_files = files_of(baseline, mlms_session, request.node)
    baseline_launch = mlms_launch
    if baseline.stack != mlms_case.stack:
        baseline_launch = launch_of(baseline, baseline_files, mlms_session, request.node)
    mlms_recorder.launched(mlms_launch)
    _note_changes(mlms_case, baseline_launch, mlms_launch, mlms_session, mlms_recorder)

    exits = Exits()
    pace: dict[str, float] = {}

    @contextlib.contextmanager
    def open_fresh(
        order: Sequence[SideName], cores: Sequence[int], own_threads: bool = False
    ) -> Iterator[AgentPair]:
        mlms_session.predictor.close()
        item = request.node
        a = predictor_spec(baseline, baseline_files, baseline_launch, mlms_session, item)
        a = dataclasses.replace(a, took=pace)
        b = predictor_spec(mlms_case, mlms_artifacts, mlms_launch, mlms_session, item)
        b = dataclasses.replace(b, pace=pace)
        if own_threads:
            a, b = a.with_own_threads, b.with_own_threads
        mlms_recorder.add_log(a.log)
        mlms_recorder.add_log(b.log)
        batches: Sequence[Outputs] = ()
        try:
            with mlms_caches.given(a, "a") as of_a, mlms_caches.given(b, "b") as of_b:
                opening = open_pair({"a": of_a, "b": of_b}, order, cores, exits)
                with open_or_skip(mlms_session, opening) as pair:
                    if not own_threads:
                        mlms_recorder.ran_on(pair.b)
                        mlms_recorder.check_same(pair.a, "a")
                    try:
                        yield pair
                    finally:
                        batches = pair.batches
            mlms_recorder.note(**mlms_caches.facts)
        except MlmsError as error:
            raise crash_or(error, {"a": a, "b": b}, batches) from error

    return open_fresh


def _note_changes(
    case: Case, before: Launch, after: Launch, session: Session, recorder: Recorder
) -> None:
    """Note the packages that differ between both sides, and the command that finds the culprit."""
    from pytest_mlms.decide.upgrade.setting import (
        other_indexes,
        session_words,
        stack_words,
        told_changes,
    )
    from pytest_mlms.keep.results.line import LaunchRecord
    from pytest_mlms.provide.stacks.exact import changed_packages

    baseline = LaunchRecord.of(before)
    candidate = LaunchRecord.of(after)
    changed = changed_packages(baseline.exact, candidate.exact)
    told = told_changes(case, session.predictors[case.stack.framework], changed)
    root = session.config.root  # of node ids, by which reports name manifests
    words = [*stack_words(case, root, root), *session_words(session.config, root)]
    recorder.note(launch_against=baseline, changed_packages=told, culprit_options=words)
    problem = other_indexes(case)
    if problem:
        recorder.note(culprit_lacking=problem)


@pytest.fixture
def mlms_unheld_pair(
    mlms_case: Case, mlms_pair_factory: Callable[..., AbstractContextManager[AgentPair]]
) -> Callable[[], AbstractContextManager[AgentPair]] | None:
    """A function that loads both sides at their frameworks' own numbers of threads.

    None where that is how they are timed, and on a GPU.
    """
    from pytest_mlms.decide.upgrade.rounds import SIDES

    is_held = mlms_case.threads or mlms_case.baseline.threads
    if not is_held or mlms_case.device != "cpu":
        return None
    return functools.partial(mlms_pair_factory, SIDES, (), own_threads=True)


@pytest.fixture
def mlms_pictures(
    mlms_case: Case,
    mlms_artifacts: CaseFiles,
    mlms_launch: Launch,
    mlms_session: Session,
    mlms_recorder: Recorder,
    request: pytest.FixtureRequest,
) -> OpenPictures | None:
    """A function that starts what decodes pictures with the stack of each side of an upgrade.

    None where pytest's own interpreter decodes them for both.
    """
    from pytest_mlms.measure.agent import helpers

    if mlms_case.loaded.manifest.evaluate.preprocess == "runner":
        return None
    baseline = mlms_case.baseline

    def spec_of(case: Case, launch: Launch) -> PictureSpec:
        spec = helpers.PictureSpec(
            place=case.loaded.place("evaluate", "preprocess"),
            stack=case.stack.name,
            launch=launch,
            predictor=mlms_session.predictors[case.stack.framework],
            log=mlms_session.next_log("pictures"),
            timeout=mlms_session.config.timeout,
        )
        mlms_recorder.add_log(spec.log)
        return spec

    @contextlib.contextmanager
    def opened() -> Iterator[Mapping[SideName, PictureAgent]]:
        of_baseline = mlms_launch
        if baseline.stack != mlms_case.stack:
            of_baseline = launch_of(baseline, mlms_artifacts, mlms_session, request.node)
        with (
            helpers.open_pictures(spec_of(baseline, of_baseline)) as a,
            helpers.open_pictures(spec_of(mlms_case, mlms_launch)) as b,
        ):
            yield {"a": a, "b": b}

    return opened


@pytest.fixture
def mlms_tracer(
    mlms_case: Case,
    mlms_artifacts: CaseFiles,
    mlms_dataset: Dataset | None,
    mlms_predictor_factory: Callable[..., AbstractContextManager[Predictor]],
    mlms_recorder: Recorder,
    mlms_session: Session,
) -> ItemTracer:
    """The tracer of the case: ``mlms_tracer.trace(["layer"])`` traces it at levels of your choice.

    The files of the trace are artifacts of the item.
    """
    from pytest_mlms.items.item_tracer import ItemTracer

    return ItemTracer(
        mlms_case,
        mlms_artifacts,
        mlms_dataset,
        mlms_predictor_factory,
        mlms_recorder,
        mlms_session.config,
        mlms_session.predictors[mlms_case.stack.framework],
    )
