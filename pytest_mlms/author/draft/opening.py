"""Models that have no manifest yet: their files, their stacks, and their loading in an agent."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path

from pytest_mlms.author.draft.model_files import SAVED_MODEL, ModelFiles
from pytest_mlms.author.draft.request import DraftRequest
from pytest_mlms.core.errors import AgentError, MlmsError, Unavailable
from pytest_mlms.core.records import Artifact, Place, Stack
from pytest_mlms.measure.agent.channel import temporary_log
from pytest_mlms.measure.agent.helpers import UncheckedModel, open_unchecked
from pytest_mlms.measure.agent.predictor import Predictor
from pytest_mlms.measure.agent.process import Refused
from pytest_mlms.provide.artifacts.external_data import external_data, is_onnx
from pytest_mlms.provide.artifacts.fetch import fetch
from pytest_mlms.provide.stacks.declared import HERE, stacks_for
from pytest_mlms.provide.stacks.launch import prepare


def stacks_of(models: Sequence[ModelFiles], chosen: Sequence[Stack]) -> dict[str, Stack]:
    """Return the stack that runs each framework: the first that is chosen, or this interpreter."""
    offered = {model.framework for model in models}
    found = {}
    for framework in offered:
        stacks = stacks_for(framework, chosen or [HERE], offered)
        stacks = stacks or stacks_for(framework, [HERE], offered)
        found[framework] = stacks[0]
    return found


@contextlib.contextmanager
def open_model(model: ModelFiles, request: DraftRequest) -> Iterator[Predictor]:
    """Load a model in an agent. Raises MlmsError, which names the model."""
    files = _local_files(model, request)
    stack = request.stacks[model.framework]
    predictor = request.predictors[model.framework]
    mounts = [predictor.parent, *files.values()]
    launch = prepare(stack, request.cache, threads=1, mounts=mounts, show=request.show)
    with temporary_log("mlms-init-") as log:
        unchecked = UncheckedModel(
            stack=stack,
            launch=launch,
            predictor=predictor,
            files=files,
            log=log,
            options=request.options.get(model.framework, {}),
            allow_code=request.allow_code,
        )
        try:
            with open_unchecked(unchecked) as opened:
                yield opened
        except (Refused, Unavailable) as error:
            raise MlmsError(f"{model.graph}: {without_log(error)}") from error
        except AgentError as error:
            raise AgentError(f"{model.graph}: {error}") from error


def without_log(error: MlmsError) -> str:
    """Return an error's text without the log of an agent, which is removed."""
    text, _, _ = str(error).partition(" (log: ")
    return text


def _local_files(model: ModelFiles, request: DraftRequest) -> dict[str, Path]:
    """Return the files or folders that the agent gets, by role; an archive is unpacked."""
    graph = model.graph
    if model.is_archive:
        graph = _unpacked(model, request) / folder_in_archive(model, request)
    files = {"graph": graph.absolute()}
    weights = weights_of(model)
    if weights is not None:
        files["weights"] = weights.absolute()
    return files


def weights_of(model: ModelFiles) -> Path | None:
    """Return the file of a model's weights, None where they are in its graph.

    Raises MlmsError for an ONNX file whose weights are in several files, or in one that isn't
    there, and for a broken one.
    """
    is_file = model.weights is None and model.graph.is_file()
    if not is_file or not is_onnx(model.framework, model.graph):
        return model.weights
    try:
        names = external_data(model.graph)
    except ValueError as error:
        raise MlmsError(f"{model.graph} is not an ONNX model: {error}; export it again") from error
    for name in names:
        if not (model.graph.parent / name).is_file():
            problem = f"{model.graph} has weights in {name}, and there is no such file"
            raise MlmsError(f"{problem}; put it there: {model.graph.parent / name}")
    if len(names) > 1:
        problem = f"{model.graph} has its weights in {len(names)} files"
        advice = "save it with onnx.save(model, path, save_as_external_data=True) into one"
        raise MlmsError(f"{problem}, such as {names[0]}; {advice}")
    return model.graph.parent / names[0] if names else None


def _unpacked(model: ModelFiles, request: DraftRequest) -> Path:
    path = model.graph.absolute()
    return fetch(Artifact(str(path), None, Place(model.graph, 1), "."), request.cache)


def folder_in_archive(model: ModelFiles, request: DraftRequest) -> Path:
    """Return the folder of a SavedModel in an archive, relative to it. Raises MlmsError."""
    root = _unpacked(model, request)
    found = sorted(root.rglob(SAVED_MODEL))
    if len(found) != 1:
        problem = f"{model.graph} has {len(found)} {SAVED_MODEL}"
        raise MlmsError(f"{problem}; pack one SavedModel, or name the file of another model")
    return found[0].parent.relative_to(root)
