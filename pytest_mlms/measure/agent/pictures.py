"""Pictures decoded by the Pillow of a stack, in an agent that loads neither framework nor model."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pytest_mlms.core.errors import DatasetError, MlmsError
from pytest_mlms.core.records import Launch, Place
from pytest_mlms.measure.agent.process import Agent, Array, Refused, start_agent
from pytest_mlms.measure.pipeline.stack_pictures import Decoding


@dataclass(frozen=True)
class PictureSpec:
    """Everything that is needed to decode pictures in an agent of a stack.

    ``place`` is that of the manifest's key, ``log`` where the agent's output goes, and ``timeout``
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
