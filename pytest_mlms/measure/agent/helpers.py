"""Agents beside those of items: for the Python of a manifest, for pictures, and for drafts.

A dataset may have elements that code makes into inputs, in a process of its own. Drafts look at a
model before there is a manifest that it could be compared with.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import Any, NamedTuple, Protocol

import numpy as np
from mlms_predictors._run.replies import HelloReply

from pytest_mlms.core.errors import AgentError, DatasetError, MlmsError, OutputError, Unavailable
from pytest_mlms.core.records import Launch, Place, Stack
from pytest_mlms.manifest.load import EmbeddedText, LoadedManifest
from pytest_mlms.measure.agent.channel import read_record
from pytest_mlms.measure.agent.opening import import_problem, load_model
from pytest_mlms.measure.agent.predictor import Predictor
from pytest_mlms.measure.agent.process import Agent, Array, Refused, start_agent
from pytest_mlms.measure.pipeline.dataset import Batch, Dataset
from pytest_mlms.measure.pipeline.inputs import Decoding, as_input


class CodeElement(NamedTuple):
    """An element of a dataset: its number, the suffix of its file's name, and its content."""

    number: int
    suffix: str
    content: bytes


class CodeRunner(Protocol):
    """The functions of some code, each run in another process."""

    def preprocess(self, elements: Sequence[CodeElement]) -> list[Array]:
        """Return the inputs for some elements, by their number; raises DatasetError."""

    def postprocess(self, outputs: Sequence[Array]) -> Array:
        """Return the scores that the code makes of a batch's outputs; raises OutputError."""


@dataclass(frozen=True, eq=False)
class CodeDataset(Dataset):
    """A dataset of files; ``runner`` returns the code that makes inputs and scores of them.

    Without code for one of the two, that is done as for other datasets.
    """

    runner: Callable[[], CodeRunner] | None = None
    makes_inputs: bool = False
    makes_scores: bool = False
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def batch(self, indices: Sequence[int]) -> Batch:
        """Return the model's inputs for the elements at ``indices``; raises DatasetError."""
        if not self.makes_inputs or self.runner is None:
            return super().batch(indices)
        with self._lock:  # an agent does one thing at a time
            arrays = self.runner().preprocess([self._element(index) for index in indices])
        if len(arrays) != len(self.inputs):
            found = f"preprocess returns {len(arrays)} arrays"
            raise DatasetError(f"{self.name}: {found}, and there are {len(self.inputs)} inputs")
        batch = {}
        for spec, array in zip(self.inputs, arrays, strict=True):
            batch[spec.name] = as_input(np.asarray(array), spec)
        return batch

    def check_element(self, index: int) -> None:
        """Raise DatasetError for an element that the code makes no inputs of."""
        self.batch([index])
        if self.labels is not None:
            self.labels[index]

    def _element(self, index: int) -> CodeElement:
        content = next(iter(self.elements.values()))[index]
        if not isinstance(content, bytes):
            problem = f"{self.place(index)} is no file, which the code of a manifest reads"
            raise DatasetError(f"{self.name}: {problem}; name an archive with a labels.csv")
        name = self.files[index] if self.files else ""
        return CodeElement(index, PurePath(name).suffix, content)

    def scored(self, rows: Mapping[str, Array]) -> Mapping[str, Array]:
        """Return the scores of classes that the code makes of the rows of an output."""
        if not self.makes_scores or self.runner is None:
            return rows
        ((name, values),) = rows.items()
        with self._lock:
            found = self.runner().postprocess([values])
        return {name: _scores(found, values)}


def _scores(found: Array, values: Array) -> Array:
    """Return inputs x classes; of the classes alone, those get 1 and the others 0."""
    inputs = len(values)
    if found.shape == (inputs,) and found.dtype.kind in "iu" and values.ndim > 1:
        classes = int(np.prod(values.shape[1:]))
        if found.min() < 0 or found.max() >= classes:
            raise OutputError(f"postprocess returns a class that is none of {classes}")
        return np.eye(classes, dtype=np.float32)[found]
    if found.ndim != 2 or len(found) != inputs:
        problem = f"postprocess returns {found.shape} for {inputs} inputs"
        raise OutputError(f"{problem}; expected inputs x classes, or a class for each input")
    return found


@dataclass(frozen=True)
class CodeSpec:
    """Everything that is needed to run the code of a manifest in an agent of a stack.

    ``predictor`` is the file of the stack's predictor, which the agent doesn't import. ``log`` is
    where its output goes. ``timeout`` is the longest wait for a reply, in seconds.
    """

    loaded: LoadedManifest
    stack: str
    launch: Launch
    predictor: Path
    log: Path
    timeout: float

    def place(self, key: str) -> Place:
        """Return the place of the code under a key of the manifest."""
        text = getattr(self.loaded.origin, key)
        return Place(self.loaded.place().path, text.line)

    @property
    def texts(self) -> Sequence[EmbeddedText]:
        """The code, in the order in which it is run."""
        origin = self.loaded.origin
        return origin.code if origin else ()


@dataclass(frozen=True)
class CodeAgent:
    """An agent that has run the code of a manifest, whose functions it calls.

    Raises AgentError where the code ends the agent, or takes longer than the longest wait.
    """

    agent: Agent
    spec: CodeSpec

    def preprocess(self, elements: Sequence[CodeElement]) -> list[Array]:
        """Return the inputs for some elements, by their number; raises DatasetError."""
        fields = {"elements": [(element.number, element.suffix) for element in elements]}
        contents = [np.frombuffer(element.content, np.uint8) for element in elements]
        with self._telling("preprocess", DatasetError):
            reply = self.agent.request("preprocess", fields, _numbered(contents))
        return list(reply.arrays.values())

    def postprocess(self, outputs: Sequence[Array]) -> Array:
        """Return the scores that the code makes of a batch's outputs; raises OutputError."""
        with self._telling("postprocess", OutputError):
            reply = self.agent.request("postprocess", arrays=_numbered(outputs))
        (found,) = reply.arrays.values()
        return found

    @contextlib.contextmanager
    def _telling(self, key: str, kind: type[MlmsError]) -> Iterator[None]:
        """Raise an error of the code as one of a kind, with its line where the agent ended."""
        try:
            yield
        except Refused as error:
            raise kind(_advised(error, self.spec.stack)) from None
        except AgentError as error:
            raise AgentError(f"{self.spec.place(key)}: {error}") from None


def _numbered(arrays: Iterable[Array]) -> list[tuple[str, Array]]:
    return [(str(number), array) for number, array in enumerate(arrays)]


def _advised(error: Refused, stack: str) -> str:
    """Return the text of an error, and what to do where a module is missing."""
    _, _, own = str(error).partition("CodeError: ")  # which begins with the place
    text = own or str(error)
    if "ModuleNotFoundError" in text or "ImportError" in text:
        return f"{text}; add it to the stack {stack}"
    return text


@contextlib.contextmanager
def open_code(spec: CodeSpec) -> Iterator[CodeAgent]:
    """Start an agent that runs the code of a manifest; it ends with the context.

    Raises DatasetError, with the line, for code that can't be run, such as an import of what the
    stack doesn't have.
    """
    agent = start_agent(spec.launch, spec.predictor, spec.log, spec.timeout)
    try:
        texts = [(text.text, text.line) for text in spec.texts]
        fields = {"path": str(spec.loaded.place().path), "texts": texts}
        try:
            agent.request("open_code", fields)
        except Refused as error:
            raise DatasetError(_advised(error, spec.stack)) from None
        yield CodeAgent(agent, spec)
    finally:
        agent.close()


@dataclass(frozen=True)
class PictureSpec:
    """Everything that is needed to decode pictures in an agent of a stack.

    ``place`` is the manifest's key, ``log`` where the agent's output goes, and ``timeout``
    the longest wait for a reply, in seconds.
    """

    place: Place
    stack: str
    launch: Launch
    predictor: Path
    log: Path
    timeout: float


@dataclass(frozen=True)
class PictureAgent:
    """An agent that decodes pictures."""

    agent: Agent
    spec: PictureSpec

    def decode(self, asked: Decoding) -> Array:
        """Return the pixels of a picture, H x W or H x W x RGB.

        Raises DatasetError where Pillow can't decode it, and MlmsError where there is no Pillow.
        """
        fields = {"mode": asked.mode, "upright": asked.upright, "steps": asked.steps}
        content = np.frombuffer(asked.content, np.uint8)
        try:
            reply = self.agent.request("decode", fields, [("0", content)])
        except Refused as error:
            if error.error in ("ModuleNotFoundError", "ImportError"):
                raise MlmsError(
                    f"{self.spec.place}: pictures are decoded by each stack's own Pillow, which "
                    f"{self.spec.stack} can't import ({error}); add pillow to its requirements, "
                    f"or leave preprocess out"
                ) from None
            raise DatasetError(str(error)) from None
        (pixels,) = reply.arrays.values()
        return pixels


@contextlib.contextmanager
def open_pictures(spec: PictureSpec) -> Iterator[PictureAgent]:
    """Start an agent that decodes pictures; it ends with the context."""
    agent = start_agent(spec.launch, spec.predictor, spec.log, spec.timeout)
    try:
        yield PictureAgent(agent, spec)
    finally:
        agent.close()


_TIMEOUT = 300.0  # seconds for a reply
_LONGEST_TEXT = 4096  # characters


@dataclass(frozen=True)
class UncheckedModel:
    """Everything that is needed to load a model of which nothing is known but its files.

    ``predictor`` is the predictor's file, ``files`` are the model's by role, ``log`` is where the
    agent's output goes.
    """

    stack: Stack
    launch: Launch
    predictor: Path
    files: Mapping[str, Path]
    log: Path
    device: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    allow_code: bool = False


@contextlib.contextmanager
def open_unchecked(model: UncheckedModel) -> Iterator[Predictor]:
    """Start an agent and load a model; the agent ends with the context.

    Without a device it is the CPU, or the first one where the framework has no CPU. Raises
    Unavailable where the framework is missing, and AgentError where the model can't be loaded.
    """
    began = time.perf_counter()
    agent = start_agent(model.launch, model.predictor, model.log, _TIMEOUT)
    try:
        hello = _say_hello(agent, model)
        request = {
            "files": {role: str(path) for role, path in model.files.items()},
            "device": model.device or _device(hello, model),
            "threads": None,
            "options": dict(model.options),
            "allow_code": model.allow_code,
        }
        yield load_model(agent, request, hello, time.perf_counter() - began)
    finally:
        agent.close()


def _say_hello(agent: Agent, model: UncheckedModel) -> HelloReply:
    try:
        facts = agent.request("hello").facts
    except Refused as error:
        environment = f"stack {model.stack.name} ({model.launch.command[0]})"
        problem = import_problem(agent, error, model.stack, environment)
        if not problem:
            raise
        raise Unavailable(problem) from None
    with agent.checking("hello"):
        hello: HelloReply = read_record(HelloReply, facts, _LONGEST_TEXT)
    agent.learn_pid(hello.process)
    return hello


def _device(hello: HelloReply, model: UncheckedModel) -> str:
    if "cpu" in hello.devices:
        return "cpu"
    if hello.devices:
        return hello.devices[0]
    raise AgentError(f"{model.stack.framework} finds no device here; run it on a host with one")
