"""A manifest's model, opened for use by the agents, files, steps and locks of its items.

Nothing here judges or records; what is timed is timed as items do, without their statistics.
"""

from __future__ import annotations

import contextlib
import itertools
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from mlms_predictors import Tensor
from mlms_predictors._run.options import layer_variables_of
from numpy.typing import NDArray

from pytest_mlms.author.loading import load_manifest
from pytest_mlms.core.errors import AgentError, MlmsError, OutputError, StackError
from pytest_mlms.core.waits import Waiting, in_silence
from pytest_mlms.manifest.load import LoadedManifest
from pytest_mlms.measure.agent.channel import temporary_log
from pytest_mlms.measure.agent.launching import LOCK_SECONDS, hold_device, launch_case
from pytest_mlms.measure.agent.opening import PredictorSpec, open_predictor
from pytest_mlms.measure.agent.predictor import Predictor
from pytest_mlms.measure.agent.registry import find_predictors
from pytest_mlms.measure.agent.signature import element_type_of, fits, type_text
from pytest_mlms.measure.evaluate.inputs import Inputs
from pytest_mlms.measure.evaluate.rows import BatchRows, predict_rows
from pytest_mlms.measure.pipeline import Dataset
from pytest_mlms.measure.pipeline.step_files import with_local_files
from pytest_mlms.measure.trace import LEVELS
from pytest_mlms.measure.trace.builder import PreparedRequest
from pytest_mlms.measure.trace.correlate import parents_of
from pytest_mlms.measure.trace.records import TraceMetadata
from pytest_mlms.measure.trace.runner import TracePlan, TraceTarget, run_trace
from pytest_mlms.measure.trace.spans import Trace
from pytest_mlms.measure.trace.summary import summarize
from pytest_mlms.measure.trace.tables import LayerRow, layer_rows
from pytest_mlms.predict.answers import Answer, DetectedObject, RankedLabel, answers_of
from pytest_mlms.predict.inputs import Given, dataset_of
from pytest_mlms.predict.pictures import shown_of
from pytest_mlms.project import download_limits, find_project, project_stacks
from pytest_mlms.provide.artifacts.fetch import default_cache, fetch_files
from pytest_mlms.provide.cases import Case, cases_of
from pytest_mlms.provide.host.capabilities import gather
from pytest_mlms.provide.host.matching import check_hardware
from pytest_mlms.provide.stacks.declared import choose, stacks_for
from pytest_mlms.provide.stacks.installers import Show
from pytest_mlms.provide.stacks.launch import is_made

Array = NDArray[Any]
T = TypeVar("T", RankedLabel, DetectedObject)

_TIMEOUT = 600.0  # seconds for a reply, a run and a trace, where the settings say none
_TIMED_SECONDS = 0.2


class MisfitError(OutputError):
    """An array that was given isn't what a model's input takes."""


@dataclass(frozen=True, eq=False)
class Prediction:
    """The prediction of a model for one input.

    Attributes:
        answers: By the name of each output, what its steps make of it; see ``Answer``.
        outputs: The model's own outputs, by name, without the axis of the batch if there is one.
    """

    answers: Mapping[str, Answer]
    outputs: Mapping[str, Array]

    @property
    def labels(self) -> tuple[RankedLabel, ...]:
        """The ranked classes of the first output that has some; () without one."""
        return self._first(RankedLabel)

    @property
    def objects(self) -> tuple[DetectedObject, ...]:
        """The objects that were found, the surest first; () without any."""
        return self._first(DetectedObject)

    @property
    def text(self) -> str | None:
        """The first text; None without one."""
        return next((one for one in self.answers.values() if isinstance(one, str)), None)

    @property
    def arrays(self) -> dict[str, Array]:
        """The answers that are arrays, by the names of their outputs."""
        return {name: one for name, one in self.answers.items() if isinstance(one, np.ndarray)}

    def _first(self, kind: type[T]) -> tuple[T, ...]:
        for answer in self.answers.values():
            if isinstance(answer, tuple) and answer and isinstance(answer[0], kind):
                return tuple(one for one in answer if isinstance(one, kind))
        return ()


@dataclass(frozen=True, eq=False)
class Profile:
    """The time of calls, by layers.

    Attributes:
        trace: All spans, as a trace item keeps them.
        layers: Each layer in the order in which they run, with its mean time in microseconds.
        unseen: Each level that shows nothing, with the reason.
    """

    trace: Trace
    layers: Sequence[LayerRow]
    unseen: Mapping[str, str]


class Model:
    """A model that is loaded in an agent until it is closed, or the context ends.

    It holds its device while it loads and while it works, as items do, and not in between: within
    an item, which holds the device, use its ``mlms_predictor``. ``patience`` is how long it waits
    for a device that another process holds, in seconds; DeviceInUse is raised then.
    """

    def __init__(
        self, spec: PredictorSpec, files: Mapping[str, Path], patience: float = LOCK_SECONDS
    ) -> None:
        self.case = spec.case
        self._hold = partial(hold_device, spec.case, None, spec.waiting, patience)
        manifest = spec.case.loaded.manifest
        self._inputs = [with_local_files(one, files) for one in manifest.inputs]
        self._outputs = [with_local_files(one, files) for one in manifest.outputs]
        self._numbers = itertools.count(1)
        self._is_closed = False
        self._failure: AgentError | None = None
        with self._hold(), ExitStack() as opening:
            self._spec = replace(spec, log=opening.enter_context(temporary_log("mlms-predict-")))
            self._agent = opening.enter_context(ExitStack())
            self._predictor = self._agent.enter_context(open_predictor(self._spec))
            self._opened = opening.pop_all()

    def __enter__(self) -> Model:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """End the agent, whose log stays where an error named it."""
        self._is_closed = True
        with contextlib.suppress(AgentError), self._opened:
            if self._failure is not None:
                raise self._failure

    @property
    def versions(self) -> Mapping[str, str]:
        """The versions of the framework and of what it runs on, by name."""
        return self._predictor.versions

    @property
    def device(self) -> str:
        """The device that it runs on, such as ``cuda:0``."""
        return self._predictor.device

    def predict(self, inputs: Given) -> Prediction:
        """Return the prediction for one input; docs/api.md has what ``inputs`` may be.

        A call has as many copies of it as the least of the manifest's batch sizes. Raises
        DatasetError for what the input's steps can't be done with, OutputError for an array or an
        output of another shape or type than the manifest's, and AgentError where the framework
        fails.
        """
        dataset = self._dataset(inputs)
        with self._naming_place():
            with self._held():
                rows = self._call(dataset)
            own = {name: _only_row(values) for name, values in rows.by_input().items()}
            return Prediction(answers_of(self._outputs, dataset, rows, own), own)

    @property
    def tensors(self) -> tuple[Sequence[Tensor], Sequence[Tensor]]:
        """The inputs that the model itself takes, and those of its outputs that are declared."""
        outputs = {tensor.name: tensor for tensor in self._predictor.outputs}
        return self._predictor.inputs, [outputs[spec.name] for spec in self._outputs]

    def infer(self, batch: Mapping[str, Array]) -> dict[str, Array]:
        """Return the model's own outputs for a batch of its own inputs, without any steps.

        Both are by the manifest's names; ``tensors`` has their types and shapes. Raises MisfitError
        for a batch that the model doesn't take, and AgentError where the framework fails.
        """
        _check_batch(batch, self._predictor.inputs)
        with self._naming_place(), self._held():
            found = self._predictor.predict(batch)
        return {spec.name: found[spec.name] for spec in self._outputs}

    def shown(self, inputs: Given, prediction: Prediction) -> dict[str, Array]:
        """Return what shows an input and its answers to people, as ``pictures.shown_of`` does."""
        return shown_of(self._dataset(inputs), self._outputs, prediction.answers)

    def latency(self, inputs: Given) -> float:
        """Return the median seconds of a call after warm-up, within the agent.

        Raises as ``predict`` does.
        """
        batch = self._dataset(inputs).batch([0] * self.case.batch_size)
        with self._naming_place(), self._held():
            self._predictor.predict(batch)
            run = self._predictor.run(
                "single_stream",
                [batch],
                seconds=_TIMED_SECONDS,
                least=1,
                longest=self._spec.timeout,
            )
        return float(np.median(run.latencies))

    def profile(self, inputs: Given, levels: Sequence[str] = ("layer",)) -> Profile:
        """Trace calls with an input, each level in a fresh agent as trace items do.

        ``levels`` are those of docs/tracing.md. Raises as ``predict`` does.
        """
        for level in levels:
            if level not in LEVELS:
                raise MlmsError(f"there is no level {level!r}; write some of {', '.join(LEVELS)}")
        dataset = self._dataset(inputs)
        case = self.case
        batch = dataset.batch([0] * case.batch_size)
        on_gpu = case.device.startswith("cuda")
        target = TraceTarget(
            self._open_fresh,
            lambda predictor: batch,
            lambda predictor: PreparedRequest(
                dataset.batch([0] * case.batch_size), lambda outputs: None
            ),
            layer_variables_of(self._spec.predictor) if on_gpu else {},
        )
        metadata = TraceMetadata(
            manifest=case.loaded.manifest.name,
            case=case.id,
            batch_size=case.batch_size,
            framework=case.stack.framework,
            device=case.device,
        )
        plan = TracePlan(tuple(levels), _TIMED_SECONDS, self._spec.timeout)
        with self._naming_place(), self._held():
            trace = run_trace(plan, target, metadata, lambda trace: None)
        return Profile(trace, layer_rows(trace, parents_of(trace)), summarize(trace).unseen)

    def _dataset(self, inputs: Given) -> Dataset:
        return dataset_of(inputs, self._inputs, self.case.loaded.place("inputs"))

    def _call(self, dataset: Dataset) -> BatchRows:
        inputs = Inputs.of(self.case, dataset, self._predictor)
        (rows,) = predict_rows(self._predictor, inputs, self._outputs)
        return rows

    @contextlib.contextmanager
    def _open_fresh(self, env: Mapping[str, str] | None = None) -> Iterator[Predictor]:
        log = self._spec.log.with_name(f"agent-{next(self._numbers)}.log")
        with open_predictor(replace(self._spec, log=log, env=dict(env or {}))) as predictor:
            yield predictor

    @contextlib.contextmanager
    def _held(self) -> Iterator[None]:
        """Hold the device, with an agent that runs: one that an error ended is started anew."""
        if self._is_closed:
            raise MlmsError(f"{self.case.loaded.path}: the model is closed; open it again")
        with self._hold():
            if self._predictor.agent.was_ended:
                self._agent.close()
                self._predictor = self._agent.enter_context(self._open_fresh())
            yield

    @contextlib.contextmanager
    def _naming_place(self) -> Iterator[None]:
        """Begin errors of outputs, and of arrays that don't fit, with the manifest's line.

        Note that of an agent, which names its log.
        """
        try:
            yield
        except AgentError as error:
            self._failure = error
            raise
        except OutputError as error:
            if str(error).startswith("input "):
                raise MisfitError(f"{self.case.loaded.place('inputs')}: {error}") from error
            raise OutputError(f"{self.case.loaded.place('outputs')}: {error}") from error


def _only_row(values: Array) -> Array:
    return np.asarray(values[0]) if np.ndim(values) and len(values) == 1 else values


def _check_batch(batch: Mapping[str, Array], tensors: Sequence[Tensor]) -> None:
    """Raise MisfitError where arrays aren't the tensors that a model takes."""
    names = [tensor.name for tensor in tensors]
    if set(batch) != set(names):
        given = ", ".join(batch) or "none"
        raise MisfitError(f"the inputs are {given}; the model takes {', '.join(names)}")
    for tensor in tensors:
        array = batch[tensor.name]
        dtype = element_type_of(array)
        if dtype != tensor.dtype or not fits(array.shape, tensor.shape):
            given = type_text(dtype, array.shape) if array.shape else dtype
            wanted = type_text(tensor.dtype, tensor.shape)
            raise MisfitError(f"input {tensor.name!r} is {given}; the model takes {wanted}")


def open_model(
    manifest: str | Path,
    *,
    stack: str | None = None,
    device: str | None = None,
    predictors: Sequence[str | Path] | None = None,
    cache: str | Path | None = None,
    allow_code: bool | None = None,
    show: Show = lambda step: None,
    waiting: Waiting = in_silence,
) -> Model:
    """Return a manifest's model, loaded: the first that ``stack`` runs, or this interpreter.

    ``stack`` is as of --mlms-stack, and ``device`` as in manifests, by default the first of
    these. What else is None is as pytest's ini file has it. ``show`` is called with the steps of
    downloads and installations, and ``waiting`` tells a person of waits. Raises ManifestError for
    a manifest that is wrong, ArtifactError, StackError, which lists the declared stacks,
    Unavailable for what this machine hasn't, and otherwise as items do.
    """
    spec, files = model_spec(
        manifest,
        stack=stack,
        device=device,
        predictors=predictors,
        cache=cache,
        allow_code=allow_code,
        show=show,
        waiting=waiting,
    )
    return Model(spec, files)


def model_spec(
    manifest: str | Path,
    *,
    stack: str | None = None,
    device: str | None = None,
    predictors: Sequence[str | Path] | None = None,
    cache: str | Path | None = None,
    allow_code: bool | None = None,
    show: Show = lambda step: None,
    waiting: Waiting = in_silence,
    may_create: bool = True,
) -> tuple[PredictorSpec, Mapping[str, Path]]:
    """Return what opens a model, and the files of its steps by name: all that needs no device.

    Without ``may_create``, a stack that has to be installed first raises StackError; the rest is as
    of ``open_model``.
    """
    path = Path(manifest)
    project = find_project([path])
    if allow_code is None:
        allow_code = bool(project.value("allow_code"))
    folders = project.value("predictors") or () if predictors is None else predictors
    found = find_predictors([Path(folder) for folder in folders])
    loaded = load_manifest(path, found, allow_code)
    if loaded.origin is not None and loaded.origin.code:
        problem = f"{loaded.place()}: its Python makes the inputs or the scores of its dataset"
        raise MlmsError(f"{problem}; write steps into the manifest that 'mlms import' makes")
    case = _case_of(loaded, stack, device, found)
    cache = Path(cache or project.value("cache") or default_cache())
    check_hardware(case, partial(gather, None, cache, found))
    if not may_create:
        _check_made(case, cache, path)

    limits = download_limits(project)
    files = fetch_files(
        loaded, case.model, cache, _telling(show), limits=limits, say=show, with_dataset=False
    )
    predictor = found[case.stack.framework]
    launch = launch_case(
        case,
        files.model,
        predictor,
        cache,
        passthrough=project.value("env_passthrough") or (),
        show=show,
    )
    timeout = project.value("timeout") or _TIMEOUT
    spec = PredictorSpec(case, launch, predictor, files.model, Path(), timeout, allow_code, waiting)
    return spec, files.steps


def _check_made(case: Case, cache: Path, manifest: Path) -> None:
    """Raise StackError where a stack has to be installed first."""
    if is_made(case.stack, cache):
        return
    problem = f"stack {case.stack.name} has not been created"
    words = ["mlms", "stack", "create", case.stack.name, "--mlms-manifests", str(manifest)]
    advice = f"in the folder of manifests, '{shlex.join(words)}' does so"
    raise StackError(f"{problem}; {advice}, or a portal's --allow-create")


def _case_of(
    loaded: LoadedManifest, name: str | None, device: str | None, predictors: Mapping[str, Path]
) -> Case:
    """Return the accuracy case of a manifest on a stack, with the least of its batch sizes."""
    manifest = loaded.manifest
    chosen = choose([name] if name else [], project_stacks([loaded.path]), predictors, "--stack")
    if len(chosen) > 1:
        raise StackError(f"--stack {name} means {len(chosen)} stacks; name one")
    offered = {model.name for model in manifest.models}
    cases = cases_of(
        loaded, "accuracy", lambda one: stacks_for(one, chosen, offered), lambda one: None
    )
    if not cases:
        problem = f"{loaded.place('models')}: no model is for stack {name}"
        raise StackError(f"{problem}; name one of {', '.join(sorted(offered))}")
    size = min(manifest.evaluate.batch_sizes)
    return replace(cases[0], device=device or cases[0].device, batch_size=size)


def _telling(show: Show) -> Callable[[str, int, int], None]:
    """Return a report of downloads that tells each file once."""
    told: set[str] = set()

    def report(name: str, done: int, total: int) -> None:
        if name not in told:
            told.add(name)
            show(f"downloading {name}")

    return report
