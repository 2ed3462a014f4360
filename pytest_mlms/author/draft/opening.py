"""Models that have no manifest yet: what is asked of them, their loading, and a trial of them.

A request has the models, the data and the wishes that a manifest is drafted for. A trial gives the
outputs for batches of two sizes, which tell the axis of the batch."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from pytest_mlms.author.draft.axes import Said
from pytest_mlms.author.draft.data import ArrayData, Data
from pytest_mlms.author.draft.model_files import SAVED_MODEL, ModelFiles
from pytest_mlms.author.draft.parts import InputPart
from pytest_mlms.core.arrays import Array
from pytest_mlms.core.errors import AgentError, MlmsError, Unavailable
from pytest_mlms.core.records import Artifact, Place, Stack
from pytest_mlms.core.text import file_stem
from pytest_mlms.measure.agent.channel import temporary_log
from pytest_mlms.measure.agent.helpers import UncheckedModel, open_unchecked
from pytest_mlms.measure.agent.predictor import Predictor
from pytest_mlms.measure.agent.process import Refused
from pytest_mlms.measure.evaluate.inputs import draw_array
from pytest_mlms.measure.pipeline import preprocess, start_state
from pytest_mlms.provide.artifacts.external_data import external_data, is_onnx
from pytest_mlms.provide.artifacts.fetch import fetch
from pytest_mlms.provide.stacks.declared import HERE, stacks_for
from pytest_mlms.provide.stacks.installers import Show
from pytest_mlms.provide.stacks.launch import prepare


@dataclass(frozen=True)
class DraftRequest:
    """A user's request for a manifest.

    Attributes:
        models: The files of each model.
        stacks: The stack that runs each framework.
        target: The manifest, whose folder paths are relative to.
        data: The data, and at most how many inputs of it.
        labels: A file with the names of the classes.
        task: The task, where the user says it.
        target_columns: The columns of a table that have what is right, where the user says it.
        without_columns: The columns of a table that are no features.
        threads: The threads of the CPU; None for the framework's choice.
        shapes: The shapes of inputs that the user says: sizes, and the word batch.
        options: The options of each framework's predictor.
        predictors: The file of each framework's predictor.
        allow_code: Whether the files of models may run code.
        replaces: Whether files of an earlier draft are replaced.
        made: The files that were made beside the manifest, to be removed if it isn't written.
        cache: The folder of stacks and unpacked archives.
        say: Tells the user a finding.
        show: Shows a step of an installation.
    """

    models: Sequence[ModelFiles]
    stacks: Mapping[str, Stack]
    target: Path
    predictors: Mapping[str, Path]
    cache: Path
    say: Callable[[str], None]
    show: Show
    data: Data | None = None
    most_inputs: int = 1000
    labels: Path | None = None
    task: str | None = None
    target_columns: Sequence[str] = ()
    without_columns: Sequence[str] = ()
    threads: int | None = None
    shapes: Said = field(default_factory=dict)
    options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    allow_code: bool = False
    replaces: bool = False
    made: list[Path] = field(default_factory=list)

    @property
    def name(self) -> str:
        """The name of the manifest."""
        return file_stem(self.target.name)

    def beside(self, suffix: str) -> Path:
        """Return the path of a file of the manifest's own, beside it.

        It is noted as made, unless it was there before. Raises MlmsError where it must not be
        replaced.
        """
        path = self.target.with_name(f"{self.name}-{suffix}")
        if not path.exists():
            self.made.append(path)
        elif path not in self.made and not self.replaces:
            advice = "--force replaces it, --output FILE writes files of other names"
            raise MlmsError(f"{path} is there already; {advice}")
        return path

    def written(self, path: Path) -> str:
        """Return a path as the manifest has it: relative to its folder, unless that is far away."""
        relative = os.path.relpath(path.absolute(), self.target.absolute().parent)
        is_far = relative.startswith(os.path.join("..", "..", ".."))
        return str(path.absolute()) if is_far else Path(relative).as_posix()


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


_SIZES = (2, 3)  # batches of a trial


@dataclass(frozen=True)
class Trial:
    """The outputs of two runs by name, with batches of the sizes ``small`` and ``large``.

    Both are the same for a model that takes one size. The second one took ``seconds`` an input.
    ``inputs`` are the shapes of the small batch.
    """

    small: int
    large: int
    outputs: Mapping[str, Array]
    outputs_large: Mapping[str, Array]
    seconds: float = 0.0
    inputs: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    def batch_axis(self, name: str) -> int | None:
        """Return the axis of an output that is as long as the batch, None where there is none."""
        small = self.outputs[name].shape
        large = self.outputs_large[name].shape
        if len(small) != len(large):
            return None
        for axis, (size, other) in enumerate(zip(small, large, strict=True)):
            if size == self.small and other == self.large:
                return axis
        return None

    def rows(self, name: str) -> Array:
        """Return an output with the axis of the batch first."""
        axis = self.batch_axis(name)
        assert axis is not None, "outputs without a batch are left out before"
        return np.moveaxis(self.outputs[name], axis, 0)


def try_model(
    predictor: Predictor, inputs: Sequence[InputPart], data: Data | None, only: int | None
) -> Trial:
    """Run batches of two sizes; of ``only`` one, or of one input, where the model takes no more.

    Raises Refused where the model does not run.
    """
    if only is not None:
        return _run_trial(predictor, inputs, data, (only, only))
    try:
        return _run_trial(predictor, inputs, data, _SIZES)
    except Refused:
        return _run_trial(predictor, inputs, data, (1, 1))


def draw_batch(
    predictor: Predictor, inputs: Sequence[InputPart], data: Data | None, size: int
) -> dict[str, Array]:
    """Return a batch for a model: the first rows of arrays, or random values.

    Raises MlmsError where the shape of an input is not known.
    """
    specs = {part.name: part.spec() for part in inputs}
    arrays = data if isinstance(data, ArrayData) else None
    generator = np.random.default_rng(0)
    batch: dict[str, Array] = {}
    for tensor in predictor.inputs:
        spec = specs[tensor.name]
        if spec.is_state:
            batch[tensor.name] = start_state(spec, size)
        elif arrays is not None and tensor.name in arrays.arrays:
            batch[tensor.name] = preprocess(arrays.first_rows(tensor.name, size), spec)
        else:
            batch[tensor.name] = draw_array(tensor, spec, size, generator)
    return batch


def _run_trial(
    predictor: Predictor, inputs: Sequence[InputPart], data: Data | None, sizes: tuple[int, int]
) -> Trial:
    outputs = []
    shapes = []
    seconds = 0.0
    for size in sizes:  # the second run has no first inference in its time
        batch = draw_batch(predictor, inputs, data, size)
        shapes.append({name: array.shape for name, array in batch.items()})
        began = time.perf_counter()
        outputs.append(predictor.predict(batch))
        seconds = (time.perf_counter() - began) / size
    return Trial(*sizes, outputs[0], outputs[-1], seconds, shapes[0])
