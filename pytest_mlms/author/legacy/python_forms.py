"""Recognition of the Python that manifests of MLHarness embed: its meaning without running it.

The 285 manifests of dlmodel have 24 forms of ``preprocess`` and 20 of ``postprocess``. Code of the
same tokens, with other numbers, means the same steps with other parameters. All other code means
nothing here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from pytest_mlms.author.legacy.code_forms import (
    OUTPUT_FORMS,
    CodeForm,
    Number,
    OutputForm,
    OutputPart,
    Parameter,
    Step,
    Values,
    code_form,
    read_values,
    whole_number,
)
from pytest_mlms.author.legacy.preprocess_forms import (
    PICTURE_FORMS,
    TENSOR_FORMS,
    PictureForm,
    TensorForm,
    picture_steps,
)

_MOST_OUTPUTS = 20
_UNALIKE = 10  # levels of 0 to 255 between the means of red and blue


@dataclass(frozen=True)
class Preprocess:
    """The inputs that code makes.

    Attributes:
        form: The digest of its form.
        numbers: Its numbers as they are written, in order.
        type: The type of all inputs. A dataset must bring tensors as they are.
        element_types: The element type of each input, in the order of the model's.
        layout: The order of axes of a picture; "" of tensors.
        steps: The input steps.
        notes: Remarks that don't change what is computed.
        warnings: Where the code is probably not what was meant. The steps are those of the code.
    """

    form: str
    numbers: tuple[str, ...]
    type: Literal["image", "tensor"]
    element_types: tuple[str, ...]
    layout: Literal["NCHW", "NHWC", ""] = ""
    steps: Sequence[Step] = ()
    notes: Sequence[str] = ()
    warnings: Sequence[str] = ()


@dataclass(frozen=True)
class RecognisedOutput:
    """An output that code uses: its place among the model's outputs, its type and steps."""

    place: int
    type: str
    steps: Sequence[Step]


@dataclass(frozen=True)
class Postprocess:
    """The meaning of a model's outputs.

    Attributes:
        form: The digest of its form.
        numbers: Its numbers as they are written, in order.
        task: The task of the manifest.
        outputs: The outputs that are used; none where the code returns nothing.
        background: The class that is no object, which the step ``classes`` must leave out.
        frame: Height and width of the model's input that the code's boxes are pixels of.
        notes: Remarks that don't change what is computed.
        warnings: Where the code is probably not what was meant.
    """

    form: str
    numbers: tuple[str, ...]
    task: str
    outputs: Sequence[RecognisedOutput]
    background: int | None = None
    frame: tuple[int, int] | None = None
    notes: Sequence[str] = ()
    warnings: Sequence[str] = ()


def recognise_preprocess(text: str) -> Preprocess | None:
    """Return the inputs that code makes; None where its form isn't known, or its numbers aren't."""
    code = code_form(text)
    if code is None:
        return None
    picture = PICTURE_FORMS.get(code.digest)
    if picture is not None:
        return _picture(code, picture)
    tensor = TENSOR_FORMS.get(code.digest)
    return None if tensor is None else _tensor(code, tensor)


def _picture(code: CodeForm, form: PictureForm) -> Preprocess | None:
    values = read_values(form.numbers, code.numbers)
    steps = None if values is None else picture_steps(form, values)
    if values is None or steps is None:
        return None
    return Preprocess(
        form=code.digest,
        numbers=code.numbers,
        type="image",
        element_types=(form.element_type,),
        layout=form.layout,
        steps=steps,
        notes=form.notes,
        warnings=(*form.warnings, *_order_of_means(form, values)),
    )


def _order_of_means(form: PictureForm, values: Values) -> Sequence[str]:
    """Return a warning where the means look like those of the other order of colours.

    Photographs have more red than blue on the average.
    """
    means = [float(value * form.unit) for value in values.get("mean", ())]
    if len(means) != 3:
        return ()
    red, blue = (means[0], means[2]) if form.color == "RGB" else (means[2], means[0])
    if red >= blue - _UNALIKE:
        return ()
    other = "BGR" if form.color == "RGB" else "RGB"
    written = ", ".join(f"{mean:.10g}" for mean in means)
    return (f"the means {written} look like those of {other}, and the picture is {form.color}",)


def _tensor(code: CodeForm, form: TensorForm) -> Preprocess | None:
    if read_values(form.numbers, code.numbers) is None:
        return None
    return Preprocess(
        form=code.digest,
        numbers=code.numbers,
        type="tensor",
        element_types=form.element_types,
        notes=form.notes,
    )


def recognise_postprocess(text: str) -> Postprocess | None:
    """Return the meaning of outputs; None where the code's form isn't known, or its numbers."""
    code = code_form(text)
    form = OUTPUT_FORMS.get(code.digest) if code else None
    if code is None or form is None:
        return None
    values = read_values(form.numbers, code.numbers)
    outputs = None if values is None else _outputs(form, values)
    if values is None or outputs is None:
        return None
    return Postprocess(
        form=code.digest,
        numbers=code.numbers,
        task=form.task,
        outputs=outputs,
        background=whole_number(values, form.background),
        frame=_frame(values),
        notes=form.notes,
        warnings=form.warnings,
    )


def _outputs(form: OutputForm, values: Values) -> Sequence[RecognisedOutput] | None:
    """Return the outputs with their places; None where one is there twice or has no place."""
    outputs = []
    for part in form.outputs:
        place = whole_number(values, part.place, most=_MOST_OUTPUTS)
        if place is None:
            return None
        outputs.append(RecognisedOutput(place, part.type, _filled(part, values)))
    places = {output.place for output in outputs}
    return outputs if len(places) == len(outputs) else None


def _filled(part: OutputPart, values: Values) -> Sequence[Step]:
    """Return the steps of an output with the code's numbers."""
    steps = []
    for step in part.steps:
        for name, parameters in step.items():
            filled = {key: _value(value, values) for key, value in parameters.items()}
            steps.append({name: filled})
    return steps


def _value(value: Parameter, values: Values) -> Parameter:
    return float(values[value.name][0]) if isinstance(value, Number) else value


def _frame(values: Values) -> tuple[int, int] | None:
    height = whole_number(values, "height", least=1)
    width = whole_number(values, "width", least=1)
    return None if height is None or width is None else (height, width)
