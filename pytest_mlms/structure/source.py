"""What a manifest's models are made of.

Read from an ONNX file, or told by the framework itself in an agent.
"""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from mlms_predictors import Tensor

from pytest_mlms.agent.opening import PredictorSpec, open_predictor
from pytest_mlms.agent.process import Refused
from pytest_mlms.artifacts.fetch import fetch
from pytest_mlms.cases import Case
from pytest_mlms.errors import AgentError, MlmsError, OutputError
from pytest_mlms.records import Artifact
from pytest_mlms.stacks.installers import Show
from pytest_mlms.stacks.launch import prepare
from pytest_mlms.structure.cost import Described, Shape, bound_shape, describe
from pytest_mlms.structure.onnx_graph import describe_onnx

__all__ = ["AgentFacts", "describe_case", "is_onnx"]

_TIMEOUT = 300.0  # seconds for a reply


@dataclass(frozen=True)
class AgentFacts:
    """What it takes to ask a framework.

    Its predictor, the cache of stacks and artifacts, and who is told of steps.
    """

    predictor: Path
    cache: Path
    allow_code: bool
    show: Show


def is_onnx(graph: Artifact) -> bool:
    """Whether a model's graph is an ONNX file, which can be described without its framework."""
    return Path(graph.member or graph.source).suffix == ".onnx"


def describe_case(case: Case, axes: Mapping[str, int], agent: AgentFacts) -> Described:
    """Describe the model of a case; ``axes`` are the sizes of free axes. Raises MlmsError."""
    artifacts = case.loaded.model_files(case.model)
    files = {role: fetch(artifact, agent.cache) for role, artifact in artifacts.items()}
    if is_onnx(artifacts["graph"]):
        return describe_onnx(files["graph"], case.batch_size, axes)
    mounts = [agent.predictor.parent, *files.values()]
    launch = prepare(case.stack, agent.cache, threads=case.threads, mounts=mounts, show=agent.show)
    with (
        _folder_for_log() as folder,
        open_predictor(
            PredictorSpec(
                case,
                launch,
                agent.predictor,
                files,
                folder / "agent.log",
                _TIMEOUT,
                agent.allow_code,
            )
        ) as predictor,
    ):
        shapes = {tensor.name: _shape(tensor, case, axes) for tensor in predictor.inputs}
        try:
            return describe(predictor.structure(shapes))
        except Refused as error:
            if error.error != "NotImplementedError":
                raise
            text = "doesn't tell what its models are made of; describe the network as ONNX, or name another --mlms-stack"
            raise MlmsError(f"{case.place()}: {case.stack.framework} {text}") from None


@contextlib.contextmanager
def _folder_for_log() -> Iterator[Path]:
    """Give a folder for an agent's log, which stays where the agent failed: the error names it."""
    folder, failed = Path(tempfile.mkdtemp(prefix="mlms-describe-")), False
    try:
        yield folder
    except AgentError:
        failed = True
        raise
    finally:
        if not failed:
            shutil.rmtree(folder)


def _shape(tensor: Tensor, case: Case, axes: Mapping[str, int]) -> Shape:
    if not tensor.shape:
        text = f"the model doesn't say the shape of {tensor.name!r}; write it, as in: options: "
        raise OutputError(
            f"{case.place()}: {text}{{inputs: '{tensor.name} {tensor.dtype}[?,3,224,224]'}}"
        )
    try:
        return bound_shape(tensor.name, tensor.shape, case.batch_size, axes)
    except ValueError as error:
        raise OutputError(f"{case.place('graph')}: {error}") from None
