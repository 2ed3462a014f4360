"""From the files of models, and data, to a drafted manifest that can run."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from mlms_predictors import Tensor

from pytest_mlms.agent.predictor import Predictor
from pytest_mlms.agent.process import Refused
from pytest_mlms.agent.unchecked import UncheckedModel, open_unchecked
from pytest_mlms.artifacts.digest import sha256_of
from pytest_mlms.artifacts.external_data import external_data
from pytest_mlms.artifacts.fetch import fetch
from pytest_mlms.draft.data import ArrayData, CocoData, Data, PictureData, TableData, pack_folder
from pytest_mlms.draft.detection import guess_objects
from pytest_mlms.draft.inputs import guess_inputs, has_free_batch
from pytest_mlms.draft.model_files import ModelFiles
from pytest_mlms.draft.onnx_hints import OnnxHints, hints_of
from pytest_mlms.draft.outputs import (
    Trial,
    classes_of,
    guess_masks,
    guess_numbers,
    guess_outputs,
)
from pytest_mlms.draft.parts import DatasetPart, Draft, InputPart, ModelPart, OutputPart
from pytest_mlms.errors import AgentError, MlmsError, Unavailable
from pytest_mlms.evaluate.random_inputs import draw_array
from pytest_mlms.manifest.types import instead
from pytest_mlms.pipeline import preprocess, read_labels
from pytest_mlms.records import Artifact, Place, Stack
from pytest_mlms.stacks.declared import HERE, stacks_for
from pytest_mlms.stacks.installers import Show
from pytest_mlms.stacks.launch import prepare
from pytest_mlms.text import file_stem

__all__ = ["DraftRequest", "draft_manifest", "stacks_of"]

_SAVED_MODEL = "saved_model.pb"
_READ_ONNX = ("onnxruntime", "opencv", "openvino", "tensorrt")
_TAKES_SIGNATURE = ("caffe2", "mxnet", "pytorch", "tensorflow")
"""Frameworks whose models may not tell their inputs; the option ``inputs`` does."""

_SIZES = (2, 3)  # batches of a trial
_BATCH_SIZES = (1, 8)
_SLOW = 0.02  # seconds for an input, from which only the first of these sizes is measured
_HEADING = (
    "Drafted by mlms init, which looked at the files, the data and a run. What it could not know "
    "says that it is a guess."
)


@dataclass(frozen=True)
class DraftRequest:
    """What a user has asked to be drafted.

    Attributes:
        models: The files of each model.
        stacks: The stack that runs each framework.
        target: The manifest, whose folder paths are relative to.
        data: The data, and at most how many inputs of it.
        labels: A file with the names of the classes.
        task: The task, where the user says it.
        options: The options of each framework's predictor.
        predictors: The file of each framework's predictor.
        allow_code: Whether the files of models may run code.
        replaces: Whether files of an earlier draft are replaced.
        made: The files that were made beside the manifest, to be removed if it isn't written.
        cache: The folder of stacks and unpacked archives.
        say: Tells the user what was found.
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


@dataclass(frozen=True)
class _Signature:
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]


@dataclass(frozen=True)
class _Found:
    """What a run of the first model has shown."""

    device: str
    inputs: Sequence[InputPart]
    outputs: Sequence[OutputPart]
    left_out: Sequence[str]
    batch_sizes: Sequence[int]
    classes: int | None
    best: str | None
    task: str
    seconds: float
    names: Sequence[str] = ()


def stacks_of(models: Sequence[ModelFiles], chosen: Sequence[Stack]) -> dict[str, Stack]:
    """Return the stack that runs each framework: the first that is chosen, or this interpreter."""
    offered = {model.framework for model in models}
    found = {}
    for framework in offered:
        stacks = stacks_for(framework, chosen or [HERE], offered)
        stacks = stacks or stacks_for(framework, [HERE], offered)
        found[framework] = stacks[0]
    return found


def draft_manifest(request: DraftRequest) -> Draft:
    """Return a manifest for models; data is packed beside it where it must be.

    Raises MlmsError, which says what to do.
    """
    first = request.models[0]
    with _opened(first, request) as predictor:
        signature = _Signature(predictor.inputs, predictor.outputs)
        _say_signature(first, predictor, request)
        found = _look(first, predictor, request)
    parts = [_model_part(first, request)]
    for model in request.models[1:]:
        with _opened(model, request) as predictor:
            _say_signature(model, predictor, request)
            _check_same(first, signature, model, predictor)
        parts.append(_model_part(model, request))
    dataset, outputs = _dataset(request, found)
    comment = ""
    if found.left_out:
        comment = f"without outputs that have no row for each input: {', '.join(found.left_out)}"
    return Draft(
        name=request.name,
        task=request.task or found.task,
        task_comment=comment,
        models=parts,
        inputs=found.inputs,
        outputs=outputs,
        dataset=dataset,
        devices=[found.device],
        batch_sizes=found.batch_sizes,
        heading=_HEADING,
        seconds=found.seconds,
    )


@contextlib.contextmanager
def _opened(model: ModelFiles, request: DraftRequest) -> Iterator[Predictor]:
    """Load a model; an agent's log is kept if it fails, as the error names it."""
    files = {"graph": _local_graph(model, request)}
    if model.weights is not None:
        files["weights"] = model.weights
    elif model.framework in _READ_ONNX and _external(model):
        files["weights"] = model.graph.parent / _external(model)[0]
    stack = request.stacks[model.framework]
    predictor = request.predictors[model.framework]
    mounts = [predictor.parent, *files.values()]
    launch = prepare(stack, request.cache, threads=1, mounts=mounts, show=request.show)
    folder = Path(tempfile.mkdtemp(prefix="mlms-init-"))
    unchecked = UncheckedModel(
        stack=stack,
        launch=launch,
        predictor=predictor,
        files={role: path.absolute() for role, path in files.items()},
        log=folder / "agent.log",
        options=request.options.get(model.framework, {}),
        allow_code=request.allow_code,
    )
    is_kept = False
    try:
        with open_unchecked(unchecked) as opened:
            yield opened
    except (Refused, Unavailable) as error:
        raise MlmsError(f"{model.graph}: {_without_log(error)}") from error
    except AgentError as error:
        is_kept = True  # the error names the log
        raise MlmsError(f"{model.graph}: {error}") from error
    finally:
        if not is_kept:
            shutil.rmtree(folder, ignore_errors=True)


def _without_log(error: MlmsError) -> str:
    """Return an error's text without the log of an agent, which is removed."""
    text, _, _ = str(error).partition(" (log: ")
    return text


def _external(model: ModelFiles) -> tuple[str, ...]:
    """Return the files beside an ONNX file that have its weights. Raises MlmsError for several."""
    try:
        names = external_data(model.graph)
    except ValueError as error:
        raise MlmsError(f"{model.graph} is not an ONNX model: {error}; export it again") from error
    if len(names) > 1:
        problem = f"{model.graph} has its weights in {len(names)} files"
        advice = "save it with onnx.save(model, path, save_as_external_data=True) into one"
        raise MlmsError(f"{problem}, such as {names[0]}; {advice}")
    return names


def _local_graph(model: ModelFiles, request: DraftRequest) -> Path:
    """Return the file or folder that the agent gets; an archive is unpacked."""
    if not model.is_archive:
        return model.graph
    return _unpacked(model, request) / _member(model, request)


def _unpacked(model: ModelFiles, request: DraftRequest) -> Path:
    path = model.graph.absolute()
    return fetch(Artifact(str(path), None, Place(model.graph, 1), "."), request.cache)


def _member(model: ModelFiles, request: DraftRequest) -> Path:
    """Return the folder of a SavedModel in an archive, relative to it."""
    root = _unpacked(model, request)
    found = sorted(root.rglob(_SAVED_MODEL))
    if len(found) != 1:
        problem = f"{model.graph} has {len(found)} {_SAVED_MODEL}"
        raise MlmsError(f"{problem}; pack one SavedModel, or name the file of another model")
    return found[0].parent.relative_to(root)


def _say_signature(model: ModelFiles, predictor: Predictor, request: DraftRequest) -> None:
    version = predictor.versions.get(model.framework, "")
    request.say(f"{model.graph}: {model.framework} {version}")
    for title, tensors in (("takes", predictor.inputs), ("gives", predictor.outputs)):
        for tensor in tensors:
            sizes = ["any" if size is None else str(size) for size in tensor.shape]
            request.say(f"  {title} {tensor.name} {tensor.dtype} {' x '.join(sizes)}".rstrip())


def _look(model: ModelFiles, predictor: Predictor, request: DraftRequest) -> _Found:
    """Guess inputs, run the model on random ones, and guess outputs."""
    _check_told(model, predictor)
    hints = hints_of(model.graph)
    inputs = guess_inputs(predictor.inputs, request.data, hints)
    sizes = _SIZES if has_free_batch(predictor.inputs) else _fixed(predictor.inputs)
    trial = _try(model, predictor, _Batches(predictor, inputs, request.data), sizes)
    batch_sizes: Sequence[int] = (trial.small,)
    if trial.small != trial.large:
        batch_sizes = _BATCH_SIZES if trial.seconds < _SLOW else _BATCH_SIZES[:1]
    device = predictor.device.partition(":")[0]
    scored = _scored_otherwise(predictor.outputs, trial, request, hints)
    if scored is not None:
        task, parts = scored
        return _Found(device, inputs, parts, [], batch_sizes, None, None, task, trial.seconds)
    labelled = request.data is not None or request.labels is not None
    outputs, best, left_out = guess_outputs(predictor.outputs, trial, labelled=labelled)
    if not outputs:
        problem = f"{model.graph} has no output with a row for each input"
        raise MlmsError(f"{problem}; export it with the axis of the batch in its outputs")
    classes = None if best is None else classes_of(trial, best)
    return _Found(
        device=device,
        inputs=inputs,
        outputs=outputs,
        left_out=left_out,
        batch_sizes=batch_sizes,
        classes=classes,
        best=best,
        task=_task(inputs, best),
        seconds=trial.seconds,
        names=hints.names if len(hints.names) == classes else (),
    )


def _scored_otherwise(
    tensors: Sequence[Tensor], trial: Trial, request: DraftRequest, hints: OnnxHints
) -> tuple[str, list[OutputPart]] | None:
    """Return the task and the outputs of a model whose labels aren't classes; None for others.

    Raises MlmsError where the outputs don't fit the labels.
    """
    data = request.data
    if isinstance(data, CocoData):
        names = _names_of_detector(request, hints)
        return "object-detection", guess_objects(tensors, trial, data.categories, names)
    if not isinstance(data, ArrayData) or "label" not in data.arrays:
        return None
    dtype, shape = data.arrays["label"]
    if dtype.kind == "f":
        return "regression", guess_numbers(tensors, trial)
    if len(shape) < 3:
        return None
    parts = guess_masks(tensors, trial, shape[1:])
    if not parts:
        sides = " x ".join(map(str, shape[1:]))
        problem = f"{data.path} has labels of {sides}, and no output of the model has as many"
        raise MlmsError(f"{problem}; make them of the size of the output")
    return "semantic-segmentation", parts


def _names_of_detector(request: DraftRequest, hints: OnnxHints) -> Sequence[str]:
    """Return the names of a detector's classes, by --labels or by the model's file."""
    if request.labels is None:
        return hints.names
    try:
        text = request.labels.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise MlmsError(f"{request.labels} can't be read: {error}; save it as UTF-8") from error
    return [line.strip() for line in text.splitlines() if line.strip()]


def _check_told(model: ModelFiles, predictor: Predictor) -> None:
    """Raise MlmsError where a model does not tell its inputs, with what to write."""
    unknown = [tensor for tensor in predictor.inputs if not tensor.shape and _is_float(tensor)]
    if not unknown:
        return
    names = "; ".join(f"{tensor.name} float32[?,3,224,224]" for tensor in unknown)
    problem = f"{model.graph} does not say the shape of {unknown[0].name!r}"
    if model.framework in _TAKES_SIGNATURE:
        advice = f"say it, with ? for a free axis: --option 'inputs={names}'"
    else:
        advice = "export it with the shapes of its inputs"
    raise MlmsError(f"{problem}; {advice}")


def _is_float(tensor: Tensor) -> bool:
    return not tensor.dtype or tensor.dtype.startswith("float")


def _fixed(tensors: Sequence[Tensor]) -> tuple[int, int]:
    """Return the size of the only batch that a model takes, twice."""
    for tensor in tensors:
        if tensor.shape and tensor.shape[0] is not None:
            return tensor.shape[0], tensor.shape[0]
    return 1, 1


def _try(
    model: ModelFiles, predictor: Predictor, batches: _Batches, sizes: tuple[int, int]
) -> Trial:
    """Run batches of both sizes; of one input where the model takes no more."""
    try:
        return _run_trial(predictor, batches, sizes)
    except Refused as error:
        if sizes[0] == sizes[1]:
            raise _refused(model, error) from error
    try:
        return _run_trial(predictor, batches, (1, 1))
    except Refused as error:
        raise _refused(model, error) from error


def _refused(model: ModelFiles, error: Refused) -> MlmsError:
    advice = "write its manifest by hand, with the shape and the range of each input"
    problem = f"{model.graph} does not run on random inputs"
    return MlmsError(f"{problem}; {advice}: {_without_log(error)}")


def _run_trial(predictor: Predictor, batches: _Batches, sizes: tuple[int, int]) -> Trial:
    outputs = []
    seconds = 0.0
    for size in sizes:  # the second run has no first inference in its time
        batch = batches.of(size)
        began = time.perf_counter()
        outputs.append(predictor.predict(batch))
        seconds = (time.perf_counter() - began) / size
    return Trial(*sizes, outputs[0], outputs[-1], seconds)


class _Batches:
    """Batches for a trial: the first rows of arrays, or random values."""

    def __init__(
        self, predictor: Predictor, inputs: Sequence[InputPart], data: Data | None
    ) -> None:
        self._tensors = predictor.inputs
        self._specs = {part.name: part.spec() for part in inputs}
        self._arrays = data if isinstance(data, ArrayData) else None

    def of(self, size: int) -> dict[str, Any]:
        """Return a batch. Raises MlmsError where the shape of an input is not known."""
        generator = np.random.default_rng(0)
        batch = {}
        for tensor in self._tensors:
            spec = self._specs[tensor.name]
            if self._arrays is not None and tensor.name in self._arrays.arrays:
                rows = self._arrays.first_rows(tensor.name, size)
                batch[tensor.name] = preprocess(rows, spec)
            else:
                batch[tensor.name] = draw_array(tensor, spec, size, generator)
        return batch


def _check_same(
    first: ModelFiles, signature: _Signature, model: ModelFiles, predictor: Predictor
) -> None:
    """Raise MlmsError where two models of a manifest have other inputs or outputs."""
    for kind, ours, theirs in (
        ("inputs", signature.inputs, predictor.inputs),
        ("outputs", signature.outputs, predictor.outputs),
    ):
        expected = sorted(tensor.name for tensor in ours)
        found = sorted(tensor.name for tensor in theirs)
        if expected != found:
            problem = (
                f"{model.graph} has the {kind} {', '.join(found)}, "
                f"and {first.graph} {', '.join(expected)}"
            )
            advice = "export them with the same names, or write a manifest for each"
            raise MlmsError(f"{problem}; {advice}")


def _model_part(model: ModelFiles, request: DraftRequest) -> ModelPart:
    graph = model.graph
    member = ""
    if model.is_archive:
        member = f"#{_member(model, request).as_posix()}"
    elif graph.is_dir():
        graph = request.beside("model.zip")
        pack_folder(model.graph, graph)
        request.say(f"packed {model.graph} into {graph}")
        member = "#."
    weights = model.weights
    if weights is None and graph.suffix == ".onnx" and _external(model):
        weights = graph.parent / _external(model)[0]
    sha256 = {"graph": sha256_of(graph)}
    if weights is not None:
        sha256["weights"] = sha256_of(weights)
    return ModelPart(
        framework=model.framework,
        graph=_written(graph, request) + member,
        weights=None if weights is None else _written(weights, request),
        sha256=sha256,
        options=request.options.get(model.framework, {}),
    )


def _written(path: Path, request: DraftRequest) -> str:
    """Return a path as the manifest has it: relative to its folder, unless that is far away."""
    relative = os.path.relpath(path.absolute(), request.target.absolute().parent)
    is_far = relative.startswith(os.path.join("..", "..", ".."))
    return str(path.absolute()) if is_far else Path(relative).as_posix()


def _task(inputs: Sequence[InputPart], best: str | None) -> str:
    if best is None:
        return "inference"
    first = inputs[0]
    if first.type == "image":
        return "image-classification"
    return "text-classification" if first.element_type.startswith("int") else "classification"


def _dataset(
    request: DraftRequest, found: _Found
) -> tuple[DatasetPart | None, Sequence[OutputPart]]:
    """Return the dataset, and the outputs with the names of their classes."""
    data = request.data
    outputs = found.outputs
    if isinstance(data, CocoData):
        return _objects(data, request), outputs
    names = _class_names(request, found)
    if data is None:
        return None, _named(outputs, request.labels, request)
    if isinstance(data, ArrayData):
        _check_arrays(data, found)
        return _part_of(data.path, data.path, request), _named(outputs, request.labels, request)
    if isinstance(data, TableData):
        source = data.path
        if source.is_dir():
            source = request.beside("data.zip")
            pack_folder(data.path, source)
            request.say(f"packed {data.path} into {source}")
        return _part_of(source, data.path, request), _named(outputs, request.labels, request)
    return _pictures(data, names, request, found)


def _objects(data: CocoData, request: DraftRequest) -> DatasetPart:
    """Pack pictures with their objects; return the dataset."""
    chosen = data.sample(request.most_inputs)
    target = request.beside("data.zip")
    chosen.pack(target)
    count = len(data.content["images"])
    part = len(chosen.content["images"])
    shown = f"{part:,} of {count:,}" if part < count else f"{count:,}"
    objects = len(chosen.content["annotations"])
    request.say(f"{data.path}: {shown} pictures with {objects:,} objects, packed into {target}")
    return _part_of(target, data.path, request)


def _part_of(source: Path, data: Path, request: DraftRequest) -> DatasetPart:
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", data.absolute().stem).strip("-._") or "data"
    return DatasetPart(name, _written(source, request), sha256_of(source))


def _class_names(request: DraftRequest, found: _Found) -> list[str]:
    if request.labels is None:
        return list(found.names)
    if found.classes is None:
        raise MlmsError(f"{request.labels}: no output of the model has classes; leave it out")
    return read_labels(request.labels, found.classes)


def _named(
    outputs: Sequence[OutputPart], labels: Path | None, request: DraftRequest
) -> Sequence[OutputPart]:
    """Return the outputs with a file of the names of classes."""
    if labels is None:
        return outputs
    source = _written(labels, request)
    named = []
    for output in outputs:
        steps = [
            step.replace("}", f", labels: {source}}}") if step.startswith("top_k") else step
            for step in output.steps
        ]
        named.append(replace(output, steps=steps))
    return named


def _check_arrays(data: ArrayData, found: _Found) -> None:
    missing = [part.name for part in found.inputs if part.name not in data.arrays]
    if missing:
        there = ", ".join(data.arrays)
        problem = f"{data.path} has no array for input {missing[0]!r}, but {there}"
        advice = f"save them by the names of the inputs: numpy.savez(…, {missing[0]}=…)"
        raise MlmsError(f"{problem}; {advice}")


def _pictures(
    data: PictureData, names: Sequence[str], request: DraftRequest, found: _Found
) -> tuple[DatasetPart, Sequence[OutputPart]]:
    """Pack pictures with their classes' numbers; return the dataset, and outputs with names."""
    numbers = _numbers(data, names, request, found)
    chosen = data.sample(request.most_inputs)
    target = request.beside("data.zip")
    chosen.pack(target, numbers)
    count = len(data.files)
    part = f"{len(chosen.files):,} of {count:,}" if len(chosen.files) < count else f"{count:,}"
    request.say(f"{data.path}: {part} pictures of {len(numbers)} classes, packed into {target}")
    outputs = found.outputs
    ordered = list(names) or sorted(numbers, key=lambda name: numbers[name])
    if request.labels is not None:
        outputs = _named(outputs, request.labels, request)
    elif found.classes == len(ordered):
        labels = request.beside("labels.txt")
        labels.write_text("".join(f"{name}\n" for name in ordered), encoding="utf-8")
        outputs = _named(outputs, labels, request)
    return _part_of(target, data.path, request), outputs


def _numbers(
    data: PictureData, names: Sequence[str], request: DraftRequest, found: _Found
) -> dict[str, int]:
    """Return the number of each class of a folder: by --labels, by its name, or by its order."""
    classes = data.class_names
    if names:
        return {name: _number(name, names, request) for name in classes}
    if found.classes is None:
        problem = f"{data.path} has classes, and no output of the model has scores of them"
        raise MlmsError(f"{problem}; give other labels by a labels.csv")
    if all(name.isdecimal() and int(name) < found.classes for name in classes):
        return {name: int(name) for name in classes}
    if len(classes) == found.classes:
        return {name: number for number, name in enumerate(classes)}
    problem = f"{data.path} has {len(classes)} classes, and the model {found.classes}"
    advice = "name the file with the model's, one a line in the order of its output: --labels FILE"
    raise MlmsError(f"{problem}; {advice}")


def _number(name: str, names: Sequence[str], request: DraftRequest) -> int:
    """Return the line of a class in the file of names, in any case, or at its beginning."""
    wanted = _comparable(name)
    for number, known in enumerate(names):
        if wanted in (_comparable(known), _comparable(known.partition(",")[0])):
            return number
    for number, known in enumerate(names):
        if known.split()[:1] == [name]:  # n01440764 tench
            return number
    advice = instead(name, names[:20])
    where = request.labels or "the model's file"
    raise MlmsError(f"{where} has no class {name!r}, which a folder is called; {advice}")


def _comparable(name: str) -> str:
    return re.sub(r"[\s_-]+", " ", name).strip().casefold()
