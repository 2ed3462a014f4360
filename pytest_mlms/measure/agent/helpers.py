"""Agents that load no model: one runs the Python of a manifest, one decodes pictures."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pytest_mlms.core.errors import AgentError, DatasetError, MlmsError, OutputError
from pytest_mlms.core.records import Launch, Place
from pytest_mlms.manifest.load import EmbeddedText, LoadedManifest
from pytest_mlms.measure.agent.process import Agent, Array, Refused, start_agent
from pytest_mlms.measure.pipeline.code_dataset import CodeElement
from pytest_mlms.measure.pipeline.stack_pictures import Decoding


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
        """Return what the code makes of the outputs of a batch; raises OutputError."""
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
