"""Findings about a model: its inputs and outputs, by its signature, its file, and a run."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from mlms_predictors import Tensor

from pytest_mlms.author.draft.axes import InputAxes, axes_of, batch_size
from pytest_mlms.author.draft.data import ArrayData, CocoData, Data, PictureData
from pytest_mlms.author.draft.inputs import guess_inputs
from pytest_mlms.author.draft.labels import (
    are_classes,
    check_arrays_used,
    check_classes_or_numbers,
    check_labelled,
    class_numbers,
    fitting_outputs,
    has_labels,
    refuse_unused,
)
from pytest_mlms.author.draft.model_files import ModelFiles
from pytest_mlms.author.draft.onnx_hints import OnnxHints, hints_of
from pytest_mlms.author.draft.opening import DraftRequest, Trial, try_model, without_log
from pytest_mlms.author.draft.outputs import (
    classes_of,
    further_outputs,
    guess_answers,
    guess_masks,
    guess_numbers,
    guess_objects,
    guess_outputs,
    says_classes,
)
from pytest_mlms.author.draft.parts import InputPart, OutputPart, options_of_guesses
from pytest_mlms.author.draft.quantisation import quantisation_of
from pytest_mlms.author.draft.states import state_outputs, states_of, steady, with_states
from pytest_mlms.core.errors import MlmsError
from pytest_mlms.core.tasks import facts_of, tasks
from pytest_mlms.measure.agent.predictor import Predictor
from pytest_mlms.measure.agent.process import Refused
from pytest_mlms.measure.pipeline import read_labels

_TAKES_SIGNATURE = ("caffe2", "mxnet", "pytorch", "tensorflow")
"""Frameworks whose models may not tell their inputs; the option ``inputs`` does."""

_TELLS_AXES = (".pt2", ".tflite")
"""Files that have the axes of each input."""

_NO_TASK = "inference"
_BATCH_SIZES = (1, 8)
_SLOW = 0.02  # seconds for an input, from which only the first of these sizes is measured


@dataclass(frozen=True)
class Findings:
    """Facts and guesses about a model.

    Attributes:
        device: The device that it ran on.
        inputs: The inputs of the manifest.
        outputs: The outputs of the manifest.
        batch_sizes: The sizes to measure.
        task: The likely task.
        seconds: About its time for an input.
        left_out: The outputs that have no row for each input.
        classes: The number of its classes, None where no output has scores of them.
        names: The names of the classes where its file tells them.
    """

    device: str
    inputs: Sequence[InputPart]
    outputs: Sequence[OutputPart]
    batch_sizes: Sequence[int]
    task: str
    seconds: float
    left_out: Sequence[str] = ()
    classes: int | None = None
    names: Sequence[str] = ()


def find_out(model: ModelFiles, predictor: Predictor, request: DraftRequest) -> Findings:
    """Guess inputs, run the model on random ones, and guess outputs. Raises MlmsError."""
    quantised = quantisation_of(model.graph, predictor.inputs, predictor.outputs)
    hints = replace(hints_of(model.graph), quantised=quantised)
    _check_shapes(model, predictor, request, hints)
    states = _possible_states(predictor, request)
    if isinstance(request.data, ArrayData):
        taken = [tensor for tensor in predictor.inputs if tensor.name not in states]
        check_arrays_used(request.data, taken)
    axes = axes_of(predictor.inputs, hints.axes, request.shapes)
    inputs = guess_inputs(predictor.inputs, request.data, hints, axes, request.shapes)
    try:
        trial = try_model(predictor, inputs, request.data, batch_size(axes))
    except Refused as error:
        problem = f"{model.graph} does not run on random inputs: {without_log(error)}"
        advice = "write its manifest by hand, with the shape and the range of each input"
        options = options_of_guesses(inputs)
        if options:
            advice = f"say other sizes of its free axes than mlms init … {options}, or {advice}"
        raise MlmsError(f"{problem}\nIf such inputs are what is wrong, {advice}") from error
    states = steady(states, trial)
    inputs = with_states(inputs, states, axes)
    gives = [tensor for tensor in predictor.outputs if tensor.name not in states.values()]
    gives = gives or list(predictor.outputs)
    findings = Findings(
        device=predictor.device.partition(":")[0],
        inputs=inputs,
        outputs=[],
        batch_sizes=_batch_sizes(trial),
        task=_NO_TASK,
        seconds=trial.seconds,
    )
    if trial.small == 1 and batch_size(axes) is None:
        request.say("  refuses batches, which its free axes allow: measured with one input a call")
    complete = _with_outputs(findings, model, predictor, gives, trial, axes, request, hints)
    outputs = [*complete.outputs, *state_outputs(states, axes, trial, gives)]
    return _with_all_outputs(replace(complete, outputs=outputs), predictor, trial, request, hints)


def _with_all_outputs(
    findings: Findings,
    predictor: Predictor,
    trial: Trial,
    request: DraftRequest,
    hints: OnnxHints,
) -> Findings:
    """Return the findings with the outputs that are in none yet, so that upgrades compare them.

    One without a row for each input leaves one input a call. A model that takes only batches of
    several has it left out.
    """
    listed = {part.name for part in findings.outputs}
    others = [tensor for tensor in predictor.outputs if tensor.name not in listed]
    parts = further_outputs(others, trial, hints.quantised)
    left_out = [
        tensor.name for tensor in others if tensor.name not in {part.name for part in parts}
    ]
    findings = replace(findings, outputs=[*findings.outputs, *parts], left_out=left_out)
    if findings.batch_sizes == (1,) or not any(part.batch for part in findings.outputs):
        return findings
    names = ", ".join(part.name for part in findings.outputs if part.batch)
    request.say(f"  has no row for each input in {names}: measured with one input a call")
    return replace(findings, batch_sizes=(1,))


def _with_outputs(
    findings: Findings,
    model: ModelFiles,
    predictor: Predictor,
    gives: Sequence[Tensor],
    trial: Trial,
    axes: Mapping[str, InputAxes],
    request: DraftRequest,
    hints: OnnxHints,
) -> Findings:
    """Return the findings with the outputs, those that are no states. Raises MlmsError."""
    by_labels = _by_labels(gives, trial, request, hints)
    if by_labels is not None:
        task, outputs = by_labels
        return replace(findings, task=task, outputs=outputs)
    said = request.task is not None and _must_be_classes(request.task)
    labelled = has_labels(request.data) or request.labels is not None or said
    classes = _least_classes(request.data)
    outputs, best, left_out = guess_outputs(
        gives,
        trial,
        labelled=labelled,
        classes=classes,
        inputs=[tensor.shape[1:] for tensor in predictor.inputs],
        quantised=hints.quantised,
    )
    is_scored = has_labels(request.data) and _must_be_classes(request.task)
    if best is None and request.data is not None and is_scored:
        found = _with_answers(findings, gives, trial, request, hints)
        return replace(found, left_out=left_out)
    if not outputs:
        if request.data is not None:
            problem = f"{model.graph} has no output with a row for each input"
            raise MlmsError(f"{problem}; export it with the axis of the batch in its outputs")
        return _of_one_input(findings, axes, gives, trial)
    findings = replace(findings, outputs=outputs, left_out=left_out)
    if best is None:
        return findings
    check_labelled(request.data)
    classes = classes_of(trial, best)
    names = hints.names if len(hints.names) == classes else ()
    return replace(findings, task=_task(findings.inputs[0]), classes=classes, names=names)


def _possible_states(predictor: Predictor, request: DraftRequest) -> dict[str, str]:
    """Return the outputs that inputs may be taken from, without those that the data has."""
    states = states_of(predictor.inputs, predictor.outputs)
    arrays = request.data.arrays if isinstance(request.data, ArrayData) else {}
    return {name: output for name, output in states.items() if name not in arrays}


def _with_answers(
    findings: Findings,
    gives: Sequence[Tensor],
    trial: Trial,
    request: DraftRequest,
    hints: OnnxHints,
) -> Findings:
    """Return the findings with an output that has one number for the class of each input.

    Raises MlmsError where no output has.
    """
    assert request.data is not None, "the labels are there"
    classes = _least_classes(request.data)
    answers = guess_answers(gives, trial, classes, hints.quantised)
    if answers is None:
        refuse_unused(request.data, gives, trial)
    outputs, is_score = answers
    if is_score:
        classes = 2
    elif request.labels is not None:
        classes = len(read_labels(request.labels))
    task = _task(findings.inputs[0])
    return replace(findings, outputs=outputs, task=task, classes=classes or None)


def _of_one_input(
    findings: Findings, axes: Mapping[str, InputAxes], gives: Sequence[Tensor], trial: Trial
) -> Findings:
    """Return the findings of a model that takes one input a call, of which no axis is the batch."""
    inputs = []
    for part in findings.inputs:
        shape = list(trial.inputs[part.name])
        batch = axes[part.name].batch
        if batch is not None and axes[part.name].is_free:
            shape[batch] = 1
        kept = [one for one in part.comment.split("; ") if one != axes[part.name].comment]
        inputs.append(
            replace(
                part, type="tensor", layout=None, steps=(), shape=shape, comment="; ".join(kept)
            )
        )
    names = [tensor.name for tensor in gives if tensor.name in trial.outputs]
    comment = "not as long as the batch: one input a call"
    outputs = [OutputPart(name, "tensor", comment=comment, batch="none") for name in names]
    return replace(findings, inputs=inputs, outputs=outputs, batch_sizes=(1,))


def _check_shapes(
    model: ModelFiles, predictor: Predictor, request: DraftRequest, hints: OnnxHints
) -> None:
    """Raise MlmsError where a model does not tell its inputs, with what to write."""
    unknown = [
        tensor
        for tensor in predictor.inputs
        if tensor.name not in request.shapes and _is_unknown(tensor, hints, model)
    ]
    if not unknown:
        return
    name = unknown[0].name
    problem = f"{model.graph} does not say the shape of {name!r}"
    if model.framework in _TAKES_SIGNATURE:
        names = "; ".join(f"{tensor.name} float32[?,3,224,224]" for tensor in unknown)
        option = shlex.quote(f"inputs={names}")
        example = f"mlms init {shlex.quote(str(model.graph))} --option {option}"
        advice = f"say it, with ? for a free axis: {example}"
    else:
        shape = shlex.quote(f"{name}=batch,3,224,224")
        example = f"mlms init {shlex.quote(str(model.graph))} --shape {shape}"
        advice = f"say it: {example}, or --shape {name}= for a single number"
    raise MlmsError(f"{problem}; {advice}")


def _is_unknown(tensor: Tensor, hints: OnnxHints, model: ModelFiles) -> bool:
    """Return whether nothing tells the axes of an input: no axes may also be those of a number."""
    if tensor.shape:
        return False
    if tensor.name in hints.axes:
        return hints.axes[tensor.name] is None
    is_told = model.graph.suffix in _TELLS_AXES
    return not is_told and (not tensor.dtype or tensor.dtype.startswith("float"))


def _batch_sizes(trial: Trial) -> Sequence[int]:
    """Return the sizes to measure: the only one, or those that do not take long."""
    if trial.small == trial.large:
        return (trial.small,)
    return _BATCH_SIZES if trial.seconds < _SLOW else _BATCH_SIZES[:1]


def _by_labels(
    tensors: Sequence[Tensor], trial: Trial, request: DraftRequest, hints: OnnxHints
) -> tuple[str, list[OutputPart]] | None:
    """Return the task and the outputs of a model whose labels aren't classes; None for others.

    Raises MlmsError where the outputs don't fit the labels.
    """
    data = request.data
    if isinstance(data, CocoData):
        names = hints.names if request.labels is None else read_labels(request.labels)
        parts = guess_objects(tensors, trial, data.categories, names, hints.quantised)
        return "object-detection", parts
    if not isinstance(data, ArrayData) or "label" not in data.arrays:
        return None
    dtype, shape = data.arrays["label"]
    if dtype.kind == "f" or len(shape) < 3:
        return _of_classes_or_numbers(tensors, trial, data, request, hints)
    parts = guess_masks(tensors, trial, shape[1:])
    if not parts:
        sides = " x ".join(map(str, shape[1:]))
        problem = f"{data.path} has labels of {sides}, and no output of the model has as many"
        raise MlmsError(f"{problem}; make them of the size of the output")
    return "semantic-segmentation", parts


def _of_classes_or_numbers(
    tensors: Sequence[Tensor],
    trial: Trial,
    data: ArrayData,
    request: DraftRequest,
    hints: OnnxHints,
) -> tuple[str, list[OutputPart]] | None:
    """Return the task and the outputs of a regression; None for labels that are classes.

    Raises MlmsError where they are neither.
    """
    labels = data.labels
    known = tasks().get(request.task or "")
    form = known.labels if known else "class"
    if request.task == _NO_TASK or form not in ("class", "array"):
        return None
    if form == "class":
        as_classes = are_classes(labels, trial, data, hints.quantised)
        if request.task is None and labels[0].size == 1 and as_classes != says_classes(trial):
            check_classes_or_numbers(data, trial)
        if as_classes or request.task is not None:
            return None
    fitting = fitting_outputs(trial, labels[0].size, hints.quantised)
    return "regression", guess_numbers(tensors, trial, fitting, hints.quantised)


def _least_classes(data: Data | None) -> int:
    """Return how many classes labels are of at least, 0 where nothing tells."""
    if isinstance(data, PictureData):
        return len(data.class_names)
    if not isinstance(data, ArrayData) or "label" not in data.arrays:
        return 0
    numbers = class_numbers(data.labels)
    return 0 if numbers is None else int(numbers.max()) + 1


def _must_be_classes(task: str | None) -> bool:
    """Return whether labels are classes as far as the user says, who may name another task."""
    if task == _NO_TASK:
        return False
    return task is None or facts_of(task).labels == "class"


def _task(first: InputPart) -> str:
    """Return the task of a model with classes, by its first input."""
    if first.type == "image":
        return "image-classification"
    if first.type == "audio":
        return "audio-classification"
    are_tokens = first.element_type in ("int32", "int64")
    return "text-classification" if are_tokens else "classification"
