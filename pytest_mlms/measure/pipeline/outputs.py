"""The output steps: scores of classes, and those that end in a text, a mask, an image or numbers.

Classes are ranked by the values of the model's own output. Softmax keeps their order, but makes
equal what is far below the largest value: its probability is rounded to 0.
"""

from __future__ import annotations

import functools
import unicodedata
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import scipy

from pytest_mlms.core.arrays import Array
from pytest_mlms.core.errors import DatasetError, OutputError
from pytest_mlms.core.files import FileState
from pytest_mlms.manifest.output_steps import Dequantize, DropBackground, Image, Sigmoid
from pytest_mlms.manifest.schema import Output
from pytest_mlms.manifest.text_steps import (
    Argmax,
    Ctc,
    Detokenize,
    NormalizeText,
    Threshold,
)
from pytest_mlms.measure.pipeline import observers
from pytest_mlms.measure.pipeline.step_files import decode, read_names, read_text, state_of

_HALF = 0.5  # the threshold of probabilities
_MOST_CLASSES = 100_000_000  # beyond which a number is no class's


def is_table(values: Array) -> bool:
    """Return whether an output is inputs x classes, beside axes of 1 such as N x 1000 x 1 x 1."""
    if values.ndim < 2:
        return False
    long_axes = [size for size in values.shape[1:] if size != 1]
    return len(long_axes) <= 1


def table_of(spec: Output, values: Array, inputs: int) -> Array:
    """Return an output of so many inputs as inputs x classes, without the background.

    One score of two classes becomes two columns, of which the second is the larger one where the
    score is above the threshold. Raises OutputError where it isn't a table of classes.
    """
    if spec.threshold is not None:
        return _beside_threshold(spec, _column_of(spec, values, inputs))
    if len(values.shape) == 0 or len(values) != inputs or not is_table(values):
        found = f"output {spec.name!r} of {inputs} inputs is {values.shape}"
        advice = "name another output, or write 'type: tensor'"
        if values.shape == (inputs,):
            advice = ONE_COLUMN_ADVICE
        raise OutputError(f"{found}; expected inputs x classes; {advice}")
    table = _without_background(spec, values.reshape(inputs, -1))
    if table.shape[1] == 1:
        raise OutputError(f"output {spec.name!r} has one number an input; {ONE_COLUMN_ADVICE}")
    return table


ONE_COLUMN_ADVICE = (
    "write 'steps: [threshold]' where it is the probability of class 1, 'steps: [sigmoid, "
    "threshold]' for its logit, 'steps: [class_numbers]' where it is the number of the class, or "
    "'type: tensor'"
)
"""The advice for an output that has one number for each input."""


def _column_of(spec: Output, values: Array, inputs: int) -> Array:
    """Return an output of one number an input (N). Raises OutputError for another one."""
    if values.shape[:1] != (inputs,) or values.size != inputs:
        found = f"output {spec.name!r} of {inputs} inputs is {values.shape}"
        step = "threshold" if spec.threshold else "class_numbers"
        advice = f"leave out the step {step!r}, or name another output"
        raise OutputError(f"{found}; expected one number an input; {advice}")
    return values.reshape(inputs)


def class_numbers(spec: Output, values: Array, inputs: int) -> Array:
    """Return the numbers of classes that an output has (N, int64), by the step class_numbers.

    Raises OutputError for what isn't one whole number an input, of 0 or more.
    """
    numbers = _column_of(spec, values, inputs)
    with np.errstate(invalid="ignore"):
        is_number = numbers.dtype.kind in "biuf" and (numbers >= 0) & (numbers <= _MOST_CLASSES)
        whole = numbers.astype(np.int64) if numbers.dtype.kind in "biuf" else numbers
    is_number = np.asarray(is_number & (whole == numbers))
    if not is_number.all():
        wrong = numbers[int(is_number.argmin())]
        problem = f"output {spec.name!r} has {wrong}, which is no number of a class"
        advice = "leave out the step 'class_numbers', or name another output"
        if set(np.unique(numbers)) <= {-1, 1}:
            advice = "classes count from 0; give 0 for -1, or name an output with scores"
        raise OutputError(f"{problem}; {advice}")
    return np.asarray(whole)


def best_classes(spec: Output, values: Array, inputs: int) -> Array:
    """Return the number of each input's best class (N). Raises OutputError as table_of does."""
    if spec.has_class_numbers:
        return class_numbers(spec, values, inputs)
    return np.asarray(table_of(spec, values, inputs).argmax(axis=1))


def _beside_threshold(spec: Output, column: Array) -> Array:
    """Return scores (N) as a table of N x 2: the threshold, and the score before its sigmoid.

    Raises OutputError for scores that can't be the probabilities that the threshold is for.
    """
    assert spec.threshold is not None, "only scores with a threshold are one column"
    above = spec.threshold.above
    scores = column.astype(np.float64)
    for step in spec.steps:
        if isinstance(step.parameters, Dequantize):
            scores = dequantize(scores, step.parameters)
        if isinstance(step.parameters, Sigmoid):
            if step.parameters.clip is not None:
                scores = scores.clip(-step.parameters.clip, step.parameters.clip)
            above = float(scipy.special.logit(above))
    has_sigmoid = any(step.name == "sigmoid" for step in spec.steps)
    if not has_sigmoid and above == _HALF and ((scores < 0) | (scores > 1)).any():
        found = f"{np.nanmin(scores):.6g} to {np.nanmax(scores):.6g}"
        problem = f"output {spec.name!r} has scores of {found}, which are no probabilities"
        logits = "write 'steps: [sigmoid, threshold]' for logits"
        if column.dtype.kind in "iu":
            logits = "write 'dequantize: {scale: …, zero_point: …}' before the threshold"
        advice = f"{logits}, or 'threshold: {{above: …}}' for other scores"
        raise OutputError(f"{problem}; {advice}")
    return np.stack([np.full(scores.shape, above), scores], axis=1)


def _without_background(spec: Output, table: Array) -> Array:
    """Return a table without the class that ``drop_background`` drops, if it has that step."""
    dropped = next((one for one in _parameters(spec) if isinstance(one, DropBackground)), None)
    if dropped is None:
        return table
    classes = table.shape[1]
    if dropped.index >= classes:
        problem = f"output {spec.name!r} has {classes} classes"
        raise OutputError(f"{problem}, and the background is number {dropped.index}; correct it")
    with observers.step("drop_background"):
        return np.delete(table, dropped.index, axis=1)


def _parameters(spec: Output) -> list[Any]:
    return [step.parameters for step in spec.steps]


def postprocess(output: Array, spec: Output) -> Array:
    """Return the scores of a model's output, both N x classes, as ``table_of`` gives them.

    All steps but top_k are done, in the order of the manifest. The background is dropped already.
    The scores of two classes by one with a threshold are 1 - p and p.
    """
    if spec.threshold is not None:
        return _of_two_classes(output, spec)
    scores = output
    for step in spec.steps:
        if step.name == "softmax":
            with observers.step(step.name):
                scores = np.asarray(scipy.special.softmax(scores, axis=-1))
        elif isinstance(step.parameters, Dequantize):
            scores = dequantize(scores, step.parameters)
    return scores


def _of_two_classes(table: Array, spec: Output) -> Array:
    """Return the scores of both classes, N x 2: probabilities, or mirrored at the threshold."""
    above, scores = table.T
    has_sigmoid = any(step.name == "sigmoid" for step in spec.steps)
    if has_sigmoid:
        scores = scipy.special.expit(scores)
    are_shares = has_sigmoid or bool(((scores >= 0) & (scores <= 1)).all())
    others = 1 - scores if are_shares else 2 * above - scores
    return np.stack([others, scores], axis=1)


def top_k(scores: Array, k: int) -> Array:
    """Return the indices of the k largest scores of each row (N x k), best first.

    Of equal scores the one with the lower index comes first.
    """
    last = scores.shape[-1] - 1
    ascending = np.argsort(scores[..., ::-1], axis=-1, kind="stable")
    best_first = last - ascending[..., ::-1]
    return np.asarray(best_first[..., :k])


def read_labels(path: Path, classes: int | None = None) -> list[str]:
    """Return the names of the classes, one a line of the file.

    Raises DatasetError where there are more or fewer than ``classes``, if it is said.
    """
    labels = read_names(path, "label")
    if classes is not None and len(labels) != classes:
        problem = f"{path} has {len(labels)} labels, and the model {classes} classes"
        raise DatasetError(f"{problem}; write one a line")
    return labels


def to_images(values: Array, parameters: Image) -> Array:
    """Return pictures with the channels last (inputs x height x width x channels), float64.

    Raises ValueError for values of another shape, or of another number of channels.
    """
    if values.ndim != 4:
        found = f"the output is {values.shape}"
        raise ValueError(f"{found}; name one of inputs, channels, height and width")
    pictures = np.moveaxis(values, 1, -1) if parameters.layout == "NCHW" else values
    channels = pictures.shape[-1]
    for name in ("mean", "scale"):
        count = len(getattr(parameters, name))
        if count not in (1, channels):
            found = f"{name} has {count} values for {channels} channels"
            raise ValueError(f"{found}; write one for all, or one for each")
    scale = np.asarray(parameters.scale)
    return np.asarray(pictures.astype(np.float64) * scale + np.asarray(parameters.mean))


Values = Any
"""An array with the inputs first, or a list of ids or texts, one for each input."""


def decode_texts(values: Array, output: Output) -> list[str]:
    """Return the texts of an output of type text, with the inputs as its first axis.

    Raises OutputError for values that its steps can't be done with, and DatasetError for files of
    tokens that don't fit them.
    """
    texts = steps_done(values, output)
    for text in texts:
        if not isinstance(text, str):
            advice = "end its steps with 'ctc' and a file, or with 'detokenize'"
            raise OutputError(f"output {output.name!r} has no text; {advice}")
    return list(texts)


def decode_tokens(values: Array, output: Output) -> list[Array]:
    """Return the ids of an output of type tokens, for each input, without the padding at its end.

    Negative ids before the last token stay, so that each token keeps its place.
    Raises OutputError as decode_texts does.
    """
    rows = []
    for row in steps_done(values, output):
        ids = np.asarray(row)
        if ids.ndim != 1 or ids.dtype.kind not in "iu":
            found = f"{ids.dtype} {ids.shape} an input"
            advice = "add a step 'argmax', or name the output with the tokens"
            raise OutputError(f"output {output.name!r} has {found}, not ids of tokens; {advice}")
        rows.append(without_padding(ids))
    return rows


def without_padding(ids: Array) -> Array:
    """Return ids of tokens (N) up to the last that isn't negative."""
    tokens = np.flatnonzero(ids >= 0)
    return ids[: tokens[-1] + 1] if tokens.size else ids[:0]


def normalized_label(label: str, output: Output) -> str:
    """Return a label as the steps ``normalize_text`` of an output make it."""
    for step in output.steps:
        if step.name == "normalize_text":
            label = _normalized(label, step.parameters)
    return label


def steps_done(values: Array, output: Output) -> Values:
    """Return an output after its steps, a row for each input.

    Raises OutputError for values that a step can't be done with.
    """
    done: Values = values
    for number, step in enumerate(output.steps, start=1):
        change = _STEPS[step.name]
        try:
            with observers.step(step.name):
                done = change(done, step.parameters)
        except (ValueError, TypeError, IndexError, ArithmeticError) as error:
            place = f"step {number} of output {output.name!r}, {step.name}"
            raise OutputError(f"{place}: {error}") from error
    return done


def _softmax(values: Values, parameters: object) -> Values:
    return scipy.special.softmax(_finite(values).astype(np.float64), axis=-1)


def dequantize(values: Values, parameters: Dequantize) -> Array:
    """Return the numbers that integers stand for, in float64."""
    return (np.asarray(values).astype(np.float64) - parameters.zero_point) * parameters.scale


def _sigmoid(values: Values, parameters: Sigmoid) -> Values:
    logits = _finite(values).astype(np.float64)
    if parameters.clip is not None:
        logits = logits.clip(-parameters.clip, parameters.clip)
    return scipy.special.expit(logits)


def _threshold(values: Values, parameters: Threshold) -> Values:
    return (_finite(values) > parameters.above).astype(np.int64)


def _argmax(values: Values, parameters: Argmax) -> Values:
    array = _finite(values)
    axis = parameters.axis
    if not -array.ndim < axis < array.ndim or axis == 0:
        raise ValueError(f"the output is {array.shape}; write an axis of it behind the first")
    return array.argmax(axis=axis)


def _finite(values: Values) -> Array:
    array = np.asarray(values)
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        raise ValueError("it has NaN or infinity; check the input's steps and the model")
    return array


def _ctc(values: Values, parameters: Ctc) -> Values:
    array = _finite(values)
    if array.ndim == 3:
        classes: int | None = array.shape[2]
        paths = array.argmax(axis=2)
    elif array.ndim == 2 and array.dtype.kind in "iu":
        classes = None
        paths = array
    else:
        raise ValueError(f"it is {array.dtype} {array.shape}; expected inputs x times x classes")
    if classes is not None and parameters.blank >= classes:
        raise ValueError(f"blank {parameters.blank} isn't among the {classes} classes; correct it")
    sequences = [_collapsed(path, parameters.blank) for path in paths]
    if parameters.file is None:
        return sequences
    tokens = _ctc_tokens(parameters.file, parameters, classes)
    return [_joined(sequence, tokens, parameters) for sequence in sequences]


def _collapsed(path: Array, blank: int) -> Array:
    """Return a path of classes with repetitions once, and without blanks."""
    is_new = np.ones(len(path), dtype=bool)
    is_new[1:] = path[1:] != path[:-1]
    return np.asarray(path[is_new & (path != blank)])


def _joined(sequence: Array, tokens: Sequence[str], parameters: Ctc) -> str:
    if sequence.size and not 0 <= sequence.min() <= sequence.max() < len(tokens):
        wrong = min(sequence.min(), 0) or sequence.max()
        problem = f"class {wrong} has no token in {parameters.file}"
        raise ValueError(f"{problem}; name the file of this model")
    text = "".join(tokens[index] for index in sequence)
    if parameters.delimiter:
        text = text.replace(parameters.delimiter, " ")
    return text


def _ctc_tokens(file: str, parameters: Ctc, classes: int | None) -> Sequence[str]:
    """Return the token of each class; raises ValueError where the file doesn't fit the classes."""
    tokens = [*_lines(state_of(file)), *parameters.append]
    if classes is None or len(tokens) == classes:
        return tokens
    if len(tokens) == classes - 1:
        tokens.insert(parameters.blank, "")
        return tokens
    found = f"{Path(file).name} has {len(tokens):,} tokens, and the model {classes:,} classes"
    advice = "write one a line, with or without the blank, or the last ones under 'append'"
    raise ValueError(f"{found}; {advice}")


@functools.lru_cache(maxsize=16)
def _lines(state: FileState) -> tuple[str, ...]:
    """Return the lines of a file of tokens; a line may be a blank."""
    text = read_text(Path(state.path), "token")
    lines = text.replace("\r\n", "\n").split("\n")
    if lines[-1] == "":
        lines.pop()
    return tuple(lines)


def _detokenize(values: Values, parameters: Detokenize) -> Values:
    return [_text_of(np.asarray(row), parameters) for row in values]


def _text_of(ids: Array, parameters: Detokenize) -> str:
    if ids.ndim != 1 or (ids.dtype.kind not in "iu" and ids.size):
        raise ValueError(f"an input has {ids.dtype} {ids.shape}, not ids of tokens; add 'argmax'")
    numbers = [int(number) for number in ids if number >= 0]
    if parameters.stop in numbers:
        del numbers[numbers.index(parameters.stop) :]
    return decode(parameters.file, numbers)


def _normalize_text(values: Values, parameters: NormalizeText) -> Values:
    return [_normalized(text, parameters) for text in values]


def _normalized(text: str, parameters: NormalizeText) -> str:
    if not isinstance(text, str):
        raise TypeError("it has no texts yet; move it behind 'ctc' or 'detokenize'")
    text = unicodedata.normalize(parameters.form, text)
    if parameters.case == "lower":
        text = text.lower()
    elif parameters.case == "upper":
        text = text.upper()
    if parameters.punctuation == "remove":
        text = _without_punctuation(text)
    return " ".join(text.split())


def _without_punctuation(text: str) -> str:
    """Return a text without punctuation, beside apostrophes between letters."""
    kept = []
    for index, character in enumerate(text):
        is_punctuation = unicodedata.category(character).startswith("P")
        if not is_punctuation or _is_inner_apostrophe(text, index):
            kept.append(character)
        else:
            kept.append(" ")
    return "".join(kept)


def _is_inner_apostrophe(text: str, index: int) -> bool:
    neighbours = text[index - 1 : index] + text[index + 1 : index + 2]
    return text[index] in "'\N{RIGHT SINGLE QUOTATION MARK}" and (
        len(neighbours) == 2 and neighbours.isalpha()
    )


_STEPS: dict[str, Callable[[Values, Any], Values]] = {
    "dequantize": dequantize,
    "softmax": _softmax,
    "sigmoid": _sigmoid,
    "threshold": _threshold,
    "argmax": _argmax,
    "ctc": _ctc,
    "detokenize": _detokenize,
    "normalize_text": _normalize_text,
    "mask": lambda values, parameters: values,
    "image": lambda values, parameters: to_images(_finite(values), parameters),
}
