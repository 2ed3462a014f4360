"""The cost of a manifest's models, by an ONNX file or by the framework itself in an agent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from mlms_predictors import Tensor

from pytest_mlms.core.errors import MlmsError, OutputError
from pytest_mlms.core.records import Artifact
from pytest_mlms.measure.agent.channel import temporary_log
from pytest_mlms.measure.agent.launching import launch_case
from pytest_mlms.measure.agent.opening import PredictorSpec, open_predictor
from pytest_mlms.measure.agent.process import Refused
from pytest_mlms.measure.structure.cost import ModelCost, Shape, bound_shape, cost_of
from pytest_mlms.measure.structure.onnx_structure import describe_onnx
from pytest_mlms.provide.artifacts.fetch import fetch
from pytest_mlms.provide.cases import Case
from pytest_mlms.provide.stacks.installers import Show

_TIMEOUT = 300.0  # seconds for a reply


@dataclass(frozen=True)
class FrameworkSource:
    """The settings of an agent that describes a model by its framework.

    ``predictor`` is the file of the framework's predictor, ``cache`` the folder of stacks and
    artifacts; ``show`` is called with the steps of an installation.
    """

    predictor: Path
    cache: Path
    allow_code: bool
    show: Show


def is_onnx(graph: Artifact) -> bool:
    """Return whether a graph is an ONNX file, which can be described without its framework."""
    name = graph.member or graph.source
    return Path(name).suffix == ".onnx"


def describe_case(case: Case, axes: Mapping[str, int], source: FrameworkSource) -> ModelCost:
    """Return the cost of a case's model; ``axes`` are the sizes of free axes by name.

    Raises MlmsError.
    """
    artifacts = case.loaded.model_files(case.model)
    files = {role: fetch(artifact, source.cache) for role, artifact in artifacts.items()}
    if is_onnx(artifacts["graph"]):
        return describe_onnx(files["graph"], case.batch_size, axes)
    with (
        temporary_log("mlms-describe-") as log,
        open_predictor(_spec(case, files, source, log)) as predictor,
    ):
        shapes = {tensor.name: _bound_shape(tensor, case, axes) for tensor in predictor.inputs}
        try:
            return cost_of(predictor.structure(shapes))
        except Refused as error:
            if error.error != "NotImplementedError":
                raise
            problem = f"{case.stack.framework} doesn't tell what its models are made of"
            advice = "describe the network as ONNX, or name another --mlms-stack"
            raise MlmsError(f"{case.place()}: {problem}; {advice}") from None


def _spec(
    case: Case, files: Mapping[str, Path], source: FrameworkSource, log: Path
) -> PredictorSpec:
    launch = launch_case(case, files, source.predictor, source.cache, show=source.show)
    return PredictorSpec(case, launch, source.predictor, files, log, _TIMEOUT, source.allow_code)


def _bound_shape(tensor: Tensor, case: Case, axes: Mapping[str, int]) -> Shape:
    """Return the shape of an input; raises OutputError where the model doesn't have it."""
    if not tensor.shape:
        example = f"options: {{inputs: '{tensor.name} {tensor.dtype}[?,3,224,224]'}}"
        problem = f"the model doesn't say the shape of {tensor.name!r}"
        raise OutputError(f"{case.place()}: {problem}; write it, as in: {example}")
    try:
        return bound_shape(tensor.name, tensor.shape, case.batch_size, axes)
    except ValueError as error:
        raise OutputError(f"{case.place('graph')}: {error}") from None
