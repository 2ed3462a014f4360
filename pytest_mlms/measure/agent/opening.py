"""Load a case's model in an agent, and check that it is what the case asks for.

The framework must be there in a version that the manifest takes. The device must be there, and be
the one that is used. The model's signature must be the manifest's.

Compilers of frameworks keep their work in caches, which are empty for each process or filled once.
A predictor's file declares how its framework is told the folder: ``CACHES = {"env": {NAME: TEXT},
"options": {NAME: TEXT}}``, with ``{caches}`` for the folder.
"""

from __future__ import annotations

import contextlib
import math
import re
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from mlms_predictors._run import protocol
from mlms_predictors._run.options import caches_of
from mlms_predictors._run.replies import HelloReply, LoadReply
from packaging.utils import canonicalize_name

from pytest_mlms.core.errors import AgentError, InvalidRun, MlmsError, Unavailable
from pytest_mlms.core.records import Launch, Stack, device_name
from pytest_mlms.core.waits import Waiting, in_silence
from pytest_mlms.measure.agent.channel import check_waited, read_record, shortened
from pytest_mlms.measure.agent.predictor import Predictor
from pytest_mlms.measure.agent.process import Agent, Refused, start_agent
from pytest_mlms.measure.agent.registry import missing_requests
from pytest_mlms.measure.agent.signature import check_signature
from pytest_mlms.provide.cases import Case
from pytest_mlms.provide.stacks.declared import install_advice, installed_by, package_of
from pytest_mlms.provide.stacks.launch import without_threads
from pytest_mlms.provide.stacks.variables import advice_on_missing

_LONGEST_START = 600.0  # seconds of an interpreter
_LONGEST_TEXT = 4096  # characters of a path
_NUMPY_LINES = 60  # of the log, enough for numpy's warning with its traceback
_BUILT_FOR_NUMPY_1 = re.compile(
    r"compiled using NumPy 1\.x|_ARRAY_API not found|removed in the NumPy 2\.0 release"
)
"""Messages of numpy 2 about a module that was built or written for numpy 1."""
_OF_DRIVERS = re.compile(
    r"lib(?:cuda|nvidia-[\w-]+|ze_loader|hsa-runtime64)\.so[.\d]*: cannot open"
)
"""The message of a framework whose device's driver isn't on this host."""


@dataclass(frozen=True)
class PredictorSpec:
    """Everything that is needed to load a case's model in an agent.

    ``predictor`` is the predictor's file, ``files`` are the model's by role, and ``log`` is where
    the agent's output goes. ``timeout`` is the longest wait for a reply, in seconds. ``allow_code``
    lets the model's files run code. ``waiting`` tells a person what a slow agent does. ``took`` and
    ``pace`` are the agent's. ``env`` and ``options`` come before the launch's and the case's.
    """

    case: Case
    launch: Launch
    predictor: Path
    files: Mapping[str, Path]
    log: Path
    timeout: float
    allow_code: bool = False
    waiting: Waiting = in_silence
    took: dict[str, float] = field(default_factory=dict)
    pace: Mapping[str, float] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)
    options: Mapping[str, str] = field(default_factory=dict)

    @property
    def with_own_threads(self) -> PredictorSpec:
        """The same at the framework's own number of threads."""
        launch = without_threads(self.launch, self.case.stack)
        return replace(self, case=self.case.with_own_threads, launch=launch)

    @property
    def device(self) -> str:
        """The case's device as the agent calls it: the one GPU of a container is its first."""
        return self.launch.device or device_name(self.case.device)

    @property
    def environment(self) -> str:
        """The stack and its interpreter, as errors name them."""
        stack = self.case.stack.name
        interpreter = self.launch.command[0]
        return f"stack {stack} ({interpreter})"


@contextlib.contextmanager
def open_predictor(spec: PredictorSpec) -> Iterator[Predictor]:
    """Start an agent and load a model; the agent ends with the context.

    Raises Unavailable where the framework, its version or the device is missing, OutputError where
    the signature is another, InvalidRun where it runs on another device or with other threads, and
    AgentError where it can't be loaded, or not be imported in an environment that was made for it.
    """
    with start_predictor(spec) as started:
        yield started.load()


@dataclass(frozen=True)
class Started:
    """An agent that was started, ``began`` by the monotonic clock, which the agent shares."""

    spec: PredictorSpec
    agent: Agent
    began: float

    def load(self) -> Predictor:
        """Load the model; raises as ``open_predictor`` does."""
        spec = self.spec
        with _advising(spec.launch):
            with spec.waiting(lambda: _importing(spec)):
                hello = _say_hello(self.agent, spec)
            start_seconds = time.monotonic() - self.began
            with spec.waiting(lambda: _loading(spec)):
                predictor = _load(self.agent, spec, hello, start_seconds)
        seconds = math.inf if hello.ready is None else hello.ready - self.began
        has_our_clock = 0 <= seconds < _LONGEST_START
        return replace(predictor, interpreter_seconds=seconds if has_our_clock else None)

    def hurry(self) -> None:
        """Bound a ``load`` in another thread by what the other side took."""
        self.agent.hurry()

    def stop(self) -> None:
        """Have a ``load`` in another thread end with an error."""
        self.agent.process.terminate()


@contextlib.contextmanager
def start_predictor(spec: PredictorSpec) -> Iterator[Started]:
    """Start an agent, whose model is loaded later; it ends with the context. Raises AgentError."""
    began = time.monotonic()
    agent = _start(spec)
    try:
        yield Started(spec, agent, began)
    finally:
        agent.close()


@contextlib.contextmanager
def check_agent(spec: PredictorSpec) -> Iterator[None]:
    """Start an agent that loads no model; it ends with the context.

    Raises Unavailable where the framework, its version or the device is missing, and AgentError
    where it can't be imported in an environment that was made for it.
    """
    agent = _start(spec)
    try:
        with _advising(spec.launch), spec.waiting(lambda: _importing(spec)):
            _say_hello(agent, spec)
        yield
    finally:
        agent.close()


@contextlib.contextmanager
def _advising(launch: Launch) -> Iterator[None]:
    """Say of an error that names a variable which the agent did not get how to pass it on."""
    try:
        yield
    except Refused as error:
        advice = advice_on_missing(str(error), launch.env)
        if advice:
            raise Refused(f"{error}; {advice}", error.error) from error
        raise


def _start(spec: PredictorSpec) -> Agent:
    launch = replace(spec.launch, env={**spec.launch.env, **spec.env})
    agent = start_agent(launch, spec.predictor, spec.log, spec.timeout)
    agent.took = spec.took
    agent.pace = spec.pace
    return agent


def _importing(spec: PredictorSpec) -> str:
    return f"{spec.case.stack.framework} to be imported in stack {spec.case.stack.name}"


def _loading(spec: PredictorSpec) -> str:
    names = ", ".join(path.name for path in spec.files.values())
    return f"stack {spec.case.stack.name} to load {names} on {spec.case.device}"


def _say_hello(agent: Agent, spec: PredictorSpec) -> HelloReply:
    """Have the framework imported; check its version and its devices."""
    try:
        facts = agent.request("hello").facts
    except Refused as error:
        problem = import_problem(agent, error, spec.case.stack, spec.environment)
        if not problem:
            raise
        raise _import_error(problem, spec.case.stack) from None
    _check_protocol(facts, spec)
    with agent.checking("hello"):
        hello = read_record(HelloReply, facts, _LONGEST_TEXT)
        if hello.import_seconds is not None:
            check_waited(hello.import_seconds, hello.import_waited)
    agent.learn_pid(hello.process)
    case = spec.case
    missing = missing_requests(case, hello.requests)
    if missing:
        raise Unavailable(
            f"{case.place('framework')}: the agent of {spec.environment} doesn't answer "
            f"{', '.join(missing)}, which {case.kind} needs here; docs/agents.md lists groups of "
            f"requests"
        )
    framework = case.stack.framework
    version = hello.versions.get(framework)
    model = case.model
    if version is None or not (model.or_nearest or model.is_for(version)):
        raise Unavailable(
            f"{case.place('framework')}: asks for {case.model.framework}, "
            f"and {spec.environment} has {framework} {version}"
        )
    _check_device(hello, spec)
    return hello


def import_problem(agent: Agent, error: Refused, stack: Stack, environment: str) -> str:
    """Return the problem and the advice where the framework can't be imported; "" elsewhere.

    ``error`` answered "hello". The agent is closed. ``environment`` is how errors name the stack.
    """
    agent.close()  # so that its log is complete
    advice = _advice_on_numpy(agent, error, stack)
    if not advice and error.error not in ("ImportError", "ModuleNotFoundError"):
        return ""
    problem = f"{stack.framework} can't be imported in {environment}"
    return f"{problem}; {advice or _advice_on_stack(stack)}: {error}"


def _import_error(text: str, stack: Stack) -> MlmsError:
    """Return the error of a framework that can't be imported.

    In an environment that was made for it, what was installed is broken. Else it is this host that
    lacks the framework, or its driver.
    """
    is_broken = stack.requirements and not _OF_DRIVERS.search(text)
    return AgentError(text) if is_broken else Unavailable(text)


def _advice_on_stack(stack: Stack) -> str:
    if not stack.requirements:
        return install_advice(stack.framework)
    advice = f"change its requirements{f' at {stack.place}' if stack.place else ''}"
    wanted = installed_by(stack.framework)
    is_other = stack.framework in map(package_of, stack.requirements)
    if is_other and not wanted.startswith(stack.framework):
        return f"{advice}: the package {stack.framework} is something else, write {wanted}"
    return advice


def _advice_on_numpy(agent: Agent, error: Refused, stack: Stack) -> str:
    """Return what to do where a framework was built for numpy 1 and has a newer one; else ""."""
    text = "\n".join([str(error), *agent.log.tail(_NUMPY_LINES)])
    if not _BUILT_FOR_NUMPY_1.search(text):
        return ""
    if stack.requirements and stack.place is None:
        wanted = " ".join([*filter(_is_not_numpy, stack.requirements), "numpy<2"])
        advice = f"ask for '{wanted}'"
    elif stack.requirements:
        advice = f"write numpy<2 into the requirements at {stack.place}"
    else:
        advice = "pip install 'numpy<2' there"
    return f"it was built for numpy 1, and there is a newer one; {advice}"


def _is_not_numpy(requirement: str) -> bool:
    return canonicalize_name(package_of(requirement)) != "numpy"


def _check_protocol(facts: Mapping[str, Any], spec: PredictorSpec) -> None:
    version = facts.get("protocol")
    if version != protocol.VERSION:
        spoken = shortened(str(version))
        raise AgentError(
            f"the agent in {spec.environment} speaks version {spoken} of the protocol, and this "
            f"pytest-mlms version {protocol.VERSION}; start it with the worker.py of this "
            f"installation, or install the same pytest-mlms on both sides"
        )


def _check_device(hello: HelloReply, spec: PredictorSpec) -> None:
    case = spec.case
    if spec.device not in hello.devices:
        framework = case.stack.framework
        version = hello.versions[framework]
        raise Unavailable(
            f"no device {case.device}: {framework} {version} in {spec.environment} "
            f"has {', '.join(hello.devices)}"
        )


def _load(agent: Agent, spec: PredictorSpec, hello: HelloReply, start_seconds: float) -> Predictor:
    """Load the model; check what it really uses, and its signature."""
    case = spec.case
    request: dict[str, Any] = {
        "files": {role: str(path) for role, path in spec.files.items()},
        "device": spec.device,
        "threads": case.threads,
        "options": {**case.options, **spec.options},
        "allow_code": spec.allow_code,
    }
    if spec.launch.server:
        request["server"] = dict(spec.launch.server)
    generation = case.loaded.manifest.generation
    if generation is not None:
        request["generation"] = generation._asdict()
    predictor = load_model(agent, request, hello, start_seconds)
    _check_used_device(spec, predictor.device)
    _check_used_threads(case, predictor.threads)
    predictor = replace(predictor.named_by(case.loaded), device=device_name(case.device))
    check_signature(case.loaded, predictor.inputs, predictor.outputs)
    return predictor


def load_model(
    agent: Agent, request: Mapping[str, Any], hello: HelloReply, start_seconds: float
) -> Predictor:
    """Load a model by the fields of a request, and check nothing but the form of the reply."""
    facts = agent.request("load", request).facts
    with agent.checking("load"):
        loaded = read_record(LoadReply, facts, _LONGEST_TEXT)
        check_waited(loaded.seconds, loaded.waited)
    return Predictor(
        agent=agent,
        device=loaded.device,
        threads=loaded.threads,
        cores=None if hello.cores is None else tuple(hello.cores),
        versions=hello.versions,
        python=hello.python,
        executable=hello.executable,
        inputs=tuple(loaded.inputs),
        outputs=tuple(loaded.outputs),
        start_seconds=start_seconds,
        load_seconds=loaded.seconds,
        load_waited=loaded.waited,
        rss_before=loaded.rss_before,
        peak_is_since_load=loaded.peak_is_since_load,
        import_seconds=hello.import_seconds,
        import_waited=hello.import_waited,
        default_output=loaded.default_output,
        l2_bytes=loaded.l2_bytes,
        device_facts=loaded.device_facts,
        unmeasured=loaded.unmeasured,
        generates="generation" in request,
    )


def _check_used_device(spec: PredictorSpec, used: str) -> None:
    if used != spec.device:
        framework = spec.case.stack.framework
        raise InvalidRun(
            f"asked for {spec.device}, {framework} runs on {used}: it fell back silently; "
            f"repair its installation, or evaluate on what it has"
        )


def _check_used_threads(case: Case, used: int | None) -> None:
    if not case.threads or used == case.threads:
        return
    found = "its own choice of threads" if used is None else _thread_count(used)
    raise InvalidRun(
        f"asked for {_thread_count(case.threads)}, {case.stack.framework} runs with {found}; "
        f"ask for what it can do, or for none (evaluate.threads, or the stack's threads)"
    )


def _thread_count(count: int) -> str:
    if count == 1:
        return "1 thread"
    return f"{count} threads"


SideName = Literal["a", "b"]

_CACHES_OF_DRIVERS = {"CUDA_CACHE_PATH": "{caches}/cuda"}
"""Variables of a GPU's driver, which compiles kernels for any framework."""

_SIZES: dict[SideName, str] = {"a": "cache_bytes_against", "b": "cache_bytes"}


@dataclass
class Caches:
    """The folders of an item's caches, which are removed with ``folders``.

    ``facts`` are the bytes that the last process of each side left in its own, by the names that
    results have for them.
    """

    folders: contextlib.ExitStack
    facts: dict[str, int] = field(default_factory=dict)
    _kept: dict[SideName, Path] = field(default_factory=dict)

    @contextlib.contextmanager
    def given(self, spec: PredictorSpec, side: SideName) -> Iterator[PredictorSpec]:
        """Let an agent of a side keep its caches where the case says; as it likes without that."""
        case = spec.case
        if case.caches is None:
            yield spec
            return
        if case.stack.container:
            place = case.loaded.place("evaluate", "caches")
            problem = f"stack {case.stack.name} is a container, whose caches begin as in its image"
            raise MlmsError(f"{place}: {problem}; leave 'caches' out")
        with contextlib.ExitStack() as ends:
            keeps = case.caches == "warm"
            folder = self._kept.get(side) or _new_folder(self.folders if keeps else ends)
            if keeps:
                self._kept[side] = folder
            declared = caches_of(spec.predictor)
            env = {**_CACHES_OF_DRIVERS, **declared.get("env", {})}
            yield replace(
                spec, env=_filled(env, folder), options=_filled(declared.get("options", {}), folder)
            )
            files = [path for path in folder.rglob("*") if path.is_file()]
            self.facts[_SIZES[side]] = sum(path.stat().st_size for path in files)


def _new_folder(ends: contextlib.ExitStack) -> Path:
    """Return a folder that is removed at the end."""
    made = tempfile.TemporaryDirectory(prefix="mlms-caches-", ignore_cleanup_errors=True)
    return Path(ends.enter_context(made))


def _filled(texts: Mapping[str, str], folder: Path) -> dict[str, str]:
    return {name: text.replace("{caches}", str(folder)) for name, text in texts.items()}
