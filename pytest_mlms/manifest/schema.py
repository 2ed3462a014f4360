"""Schema of a manifest: its keys, their values, and the checks within one section."""

from __future__ import annotations

import itertools
import math
import re
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Annotated, Any, Literal, TypeVar

from mlms_predictors._run.protocol import Generation
from packaging.specifiers import SpecifierSet
from packaging.version import InvalidVersion
from pydantic import AfterValidator, Field, WithJsonSchema, model_validator

from pytest_mlms.core.tasks import LabelForm, TaskFacts, facts_of
from pytest_mlms.manifest.output_steps import Dequantize
from pytest_mlms.manifest.scenarios import Batcher, ScenarioEntry, SingleStream, labels_of
from pytest_mlms.manifest.steps import (
    ARRAY_STEPS,
    SOUND_STEPS,
    InputStep,
    OutputStep,
    StepFile,
    TopK,
    check_channels,
)
from pytest_mlms.manifest.text_steps import Threshold, check_text_steps
from pytest_mlms.manifest.thresholds import Thresholds
from pytest_mlms.manifest.types import (
    AmountOfMemory,
    Closed,
    Count,
    Device,
    Framework,
    InputElement,
    Layout,
    Name,
    Positive,
    Scalar,
    SemanticVersion,
    Sha256,
    Short,
    Source,
    as_tuple,
    one_or_several,
    split_framework,
)
from pytest_mlms.manifest.yaml12 import Path

T = TypeVar("T")

BATCH = "batch"
"""The word for the axis of the batch in the shape of an input."""

BY_GROUP = "dataset"
"""The word for the shapes that a dataset has."""

_MOST_INSTANCES = 1024
_AXIS = re.compile("[a-z][a-z0-9_]*")

_STEPS_OF_ANY_SHAPE = ("normalize", "cast", "quantize")
"""Input steps that work on tensors, and with the channels first."""


def _distinct(values: list[T]) -> list[T]:
    for value, count in Counter(values).items():
        if count > 1:
            raise ValueError(f"{value!r} is there twice; keep one")
    return values


def _digests(value: Any) -> Any:
    return {"graph": value} if isinstance(value, str) else value


def _axes(value: Any, of_input: bool = False) -> tuple[int | str, ...]:
    """Check the sizes of the axes of an input or output; an input's may have names, or be 0."""
    axes = value if isinstance(value, (list, tuple)) else [None]
    least = 0 if of_input else 1
    for axis in axes:
        is_size = isinstance(axis, int) and not isinstance(axis, bool) and axis >= least
        is_name = of_input and isinstance(axis, str) and _AXIS.fullmatch(axis)
        if not is_size and not is_name and axis != BATCH:
            raise ValueError("write a list of sizes, with 'batch' for the batch: [batch, 128]")
    if list(axes).count(BATCH) > 1:
        raise ValueError("shape has two axes 'batch'; keep one")
    return tuple(axes)


def _input_axes(value: Any) -> tuple[int | str, ...]:
    return _axes(value, of_input=True)


def _shapes(value: Any) -> Any:
    """Return the sizes of shapes by name; those of a dataset's groups are not known yet."""
    if value == BY_GROUP:
        return {BY_GROUP: {}}
    if not isinstance(value, dict):
        raise ValueError(
            "write 'dataset', or a name for each shape, with its axes: {short: {tokens: 16}}"
        )
    return value


def _ascending(value: tuple[float, float]) -> tuple[float, float]:
    low, high = value
    if low > high:
        raise ValueError(f"range begins with {low:g}, above its end; write [least, largest]")
    return value


_LARGEST_FLOATS = {"float16": 65504.0, "float32": 3.4028234e38, "float64": sys.float_info.max}


def _range_of(element_type: str) -> tuple[float, float]:
    """Return the least and the largest number of an element type."""
    if element_type == "bool":
        return 0, 1
    if element_type in _LARGEST_FLOATS:
        largest = _LARGEST_FLOATS[element_type]
        return -largest, largest
    kind, bits = re.fullmatch(r"(u?int)(\d+)", element_type).groups()  # type: ignore[union-attr]
    if kind == "uint":
        return 0, 2 ** int(bits) - 1
    return -(2 ** (int(bits) - 1)), 2 ** (int(bits) - 1) - 1


_SHAPE_FORM = {
    "type": "array",
    "items": {"anyOf": [{"type": "integer", "minimum": 1}, {"const": BATCH}]},
}
Shape = Annotated[Any, AfterValidator(_axes), WithJsonSchema(_SHAPE_FORM)]
_INPUT_FORM = {
    "type": "array",
    "items": {"anyOf": [{"type": "integer", "minimum": 0}, {"type": "string"}]},
}
InputShape = Annotated[Any, AfterValidator(_input_axes), WithJsonSchema(_INPUT_FORM)]
Shapes = Annotated[dict[str, dict[str, Positive]], Short(_shapes, {"const": BY_GROUP})]
Range = Annotated[tuple[float, float], AfterValidator(_ascending), Short(as_tuple)]
Distinct = Annotated[list[T], Field(min_length=1), AfterValidator(_distinct)]
Columns = Annotated[
    tuple[str, ...], Field(min_length=1, max_length=2), Short(one_or_several, {"type": "string"})
]
Digests = Annotated[
    dict[Literal["graph", "weights"], Sha256],
    Field(
        description="64 hexadecimal digits as sha256sum prints, in quotes if they are all decimal"
    ),
    Short(_digests, {"type": "string"}),
]
TensorPosition = Annotated[
    int,
    Field(ge=0, description="its number among the model's, from 0; name is then free to choose"),
]
GpuName = Annotated[
    str, Field(min_length=1, description="a part of the GPU's name; for cases on a GPU")
]
Architecture = Annotated[str, Field(min_length=1, description="as uname -m prints")]


class Model(Closed):
    """The weights in one framework's own format.

    ``options`` go to its predictor, which documents them. Several models of one framework differ in
    their ``variant``, as in fp32 and int8. With ``or_nearest`` the framework's
    versions are those that it was made for: a declared stack that has one of them runs it, or else
    the one that has the nearest version.
    """

    framework: Framework
    variant: Annotated[Name | None, Field(description="its name among those of one framework")] = (
        None
    )
    or_nearest: bool = False
    graph: Source
    weights: Source | None = None
    sha256: Digests
    options: dict[str, Scalar] = {}

    @model_validator(mode="after")
    def _check_digests(self) -> Model:
        files = {"graph"}
        if self.weights:
            files.add("weights")
        if set(self.sha256) != files:
            found = f"sha256 is for {sorted(self.sha256)}"
            raise ValueError(f"{found}; write one for each of {sorted(files)}")
        return self

    @property
    def name(self) -> str:
        """The framework's name, which is its predictor's file name."""
        return split_framework(self.framework)[0]

    @property
    def label(self) -> str:
        """The framework's name, with the variant where it has one."""
        return f"{self.name}-{self.variant}" if self.variant else self.name

    @property
    def names(self) -> set[str]:
        """The names by which limits mean it: of its framework, its variant, and both."""
        return {self.name, self.variant or self.name, self.label}

    @property
    def versions(self) -> SpecifierSet:
        """The framework's versions that it is meant for."""
        return split_framework(self.framework)[1]

    def is_for(self, version: str) -> bool:
        """Return whether a version of the framework is one of those that it is meant for."""
        try:
            return self.versions.contains(version, prereleases=True)
        except InvalidVersion:
            return False


class Input(Closed):
    """An input of the model, by its name there, or by its ``position`` among the model's.

    The steps make it from the dataset, and run in order. ``shape`` has the sizes of its axes where
    the model leaves them free, with the word batch for the axis of the batch, and names for axes
    whose sizes are in ``evaluate: shapes``. ``range`` has the
    least and the largest of the values that are drawn where there is no dataset, and of the ids of
    tokens. ``sample_rate`` is the rate of the sound that a model takes, in samples a second.
    ``column`` names the column of the dataset, for inputs that aren't called like theirs, or both
    columns of a pair of texts. A tensor whose ``element_type`` is string has texts as they are in
    the dataset. An input with ``from_output`` is a state, which no dataset has: it
    is that output of the call before, and all ``start`` at the first. One with an axis of 0 is
    empty at first, and grows within a generation.
    """

    name: str
    position: TensorPosition | None = None
    type: Literal["image", "audio", "text", "tensor"]
    element_type: InputElement
    layout: Layout | None = None
    shape: InputShape | None = None
    range: Range | None = None
    sample_rate: Positive | None = None
    column: Columns | None = None
    from_output: str | None = None
    start: float | None = None
    steps: list[InputStep] = []

    @property
    def is_state(self) -> bool:
        """True if it is an output of the call before."""
        return self.from_output is not None

    @property
    def batch_axis(self) -> int | None:
        """The number of the axis of the batch; None where there is none."""
        if self.shape is None:
            return 0
        return self.shape.index(BATCH) if BATCH in self.shape else None

    @property
    def grows(self) -> bool:
        """True if it is empty at first: the past of a generation."""
        return 0 in (self.shape or ())

    @property
    def named_axes(self) -> list[str]:
        """The names of its axes whose sizes are those of a shape."""
        return [axis for axis in self.shape or () if isinstance(axis, str) and axis != BATCH]

    def sized(self, sizes: Mapping[str, int]) -> Input:
        """Return the same input with these sizes of its named axes."""
        if not self.named_axes:
            return self
        axes = tuple(sizes.get(axis, axis) for axis in self.shape or ())
        return self.model_copy(update={"shape": axes})

    @property
    def takes_text(self) -> bool:
        """True if it is made from texts."""
        return self.type == "text" or self.element_type == "string"

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of the dataset that it is made from: one, or two for a pair of texts."""
        return (self.name,) if self.column is None else self.column

    @model_validator(mode="after")
    def _check_strings(self) -> Input:
        if self.element_type == "string" and (self.type != "tensor" or self.steps or self.range):
            raise ValueError(
                "an input of strings is a tensor of texts as they are in the dataset; write 'type: "
                "tensor', and leave out steps and range"
            )
        if self.element_type == "string" and self.is_state:
            raise ValueError("a state is of numbers; leave out 'from_output', or correct its type")
        return self

    @model_validator(mode="after")
    def _check_range(self) -> Input:
        if self.range is None:
            return self
        low, high = self.range
        least, largest = _range_of(self.element_type)
        if low < least or high > largest or math.isinf(high - low):
            problem = f"range {low:g} to {high:g} is wider than {self.element_type}"
            raise ValueError(f"{problem}; write numbers from {least:g} to {largest:g}")
        return self

    @model_validator(mode="after")
    def _check_steps(self) -> Input:
        if self.type == "image" and self.layout is None:
            raise ValueError("an image needs a layout; write 'layout: NCHW' or 'layout: NHWC'")
        if self.type != "image" and self.layout is not None:
            raise ValueError("layout belongs to images; write 'type: image', or leave it out")
        names = [step.name for step in self.steps]
        _check_type_steps(self.type, names)
        _check_normalized_channels(self.steps)
        _check_color_order(self.steps)
        if "layout" in names:
            after_layout = names[names.index("layout") + 1 :]
            _check_steps_behind_layout(after_layout)
        if "decode" in names[1:]:
            raise ValueError("step 'decode' makes an image out of a file; move it to the front")
        return self

    @model_validator(mode="after")
    def _check_state(self) -> Input:
        if self.grows and not self.is_state:
            raise ValueError("an axis of 0 is that of a past; write 'from_output: …' beside it")
        if not self.is_state:
            if self.start is not None:
                raise ValueError("start belongs to a state; write 'from_output: …' beside it")
            return self
        if self.type != "tensor" or self.steps or self.column:
            raise ValueError("a state is a tensor without steps and column; leave these out")
        if self.shape is None:
            raise ValueError("a state needs its shape; write it, as in 'shape: [2, batch, 128]'")
        if self.named_axes:
            problem = f"a state has no axis of a name, such as {self.named_axes[0]!r}"
            raise ValueError(f"{problem}; write its size, as in 'shape: [2, batch, 128]'")
        least, largest = _range_of(self.element_type)
        if not least <= (self.start or 0) <= largest:
            raise ValueError(
                f"start is outside of {self.element_type}; write a number of its range"
            )
        return self

    @model_validator(mode="after")
    def _check_columns(self) -> Input:
        if len(self.columns) > 1 and self.type != "text":
            raise ValueError("two columns are a pair of texts; write one column, or 'type: text'")
        return self

    @model_validator(mode="after")
    def _check_sound(self) -> Input:
        names = [step.name for step in self.steps]
        if self.type == "audio" and self.sample_rate is None:
            raise ValueError(
                "audio needs the rate that the model takes; write 'sample_rate: 16000'"
            )
        if self.type != "audio" and self.sample_rate is not None:
            raise ValueError("sample_rate belongs to audio; write 'type: audio', or leave it out")
        first = len(list(itertools.takewhile(_FIRST_OF_SOUND.__contains__, names)))
        for name in names[first:]:
            if name in _FIRST_OF_SOUND:
                raise ValueError(f"step {name!r} works on whole sounds; move it to the front")
        return self


_FIRST_OF_SOUND = ("mono", "resample")
_STEPS_OF_TYPE = {
    "audio": SOUND_STEPS | ARRAY_STEPS,
    "text": ARRAY_STEPS | {"tokenize"},
    "tensor": ARRAY_STEPS,
}
"""Type of an input -> its steps; an image has all others."""


def _check_type_steps(kind: str, names: list[str]) -> None:
    if kind == "text" and names[:1] != ["tokenize"]:
        raise ValueError("a text is made of tokens; begin its steps with 'tokenize'")
    article = "an" if kind in ("image", "audio") else "a"
    for name in names:
        types = _types_with(name)
        if kind not in types:
            advice = f"write 'type: {types[0]}', or leave it out"
            raise ValueError(f"{article} {kind} has no step {name!r}; {advice}")


def _types_with(step: str) -> list[str]:
    """Return the types of inputs that have a step."""
    if step in _STEPS_OF_ANY_SHAPE:
        return [*_STEPS_OF_TYPE, "image"]
    types = [kind for kind, steps in _STEPS_OF_TYPE.items() if step in steps]
    return types or ["image"]


def _check_normalized_channels(steps: list[InputStep]) -> None:
    """Check the values of channels where ``decode`` says how many there are."""
    channels = 0
    for step in steps:
        if step.name == "decode":
            channels = 1 if step.parameters.color == "L" else 3
        if step.name in ("normalize", "pad") and channels:
            check_channels(step.parameters, channels)


def _check_color_order(steps: list[InputStep]) -> None:
    """Refuse to make RGB of arrays, which are taken as RGB."""
    coloring = [step for step in steps if step.name in ("decode", "color_order")]
    if coloring and coloring[0].name == "color_order" and coloring[0].parameters.to == "RGB":
        problem = "color_order: arrays that aren't decoded are taken as RGB"
        raise ValueError(f"{problem}; leave it out, or write 'to: BGR', which reverses them")


def _check_steps_behind_layout(names: list[str]) -> None:
    for name in names:
        if name not in _STEPS_OF_ANY_SHAPE:
            raise ValueError(f"step {name!r} needs the channels last; move 'layout' behind it")


OutputType = Literal[
    "classification",
    "tensor",
    "boxes",
    "scores",
    "classes",
    "count",
    "masks",
    "mask",
    "image",
    "tokens",
    "text",
    "span_start",
    "span_end",
]
"""The forms of an output once its steps are done; docs/tasks.md has their shapes."""


_NUMBERS = frozenset({"dequantize", "softmax", "sigmoid", "threshold", "argmax"})
_STEPS_OF_OUTPUT: dict[str, frozenset[str]] = {
    "classification": frozenset(
        {"dequantize", "drop_background", "softmax", "sigmoid", "threshold", "class_numbers"}
        | {"top_k"}
    ),
    "tensor": _NUMBERS,
    "mask": _NUMBERS | {"mask"},
    "image": frozenset({"sigmoid", "image"}),
}
"""Type of an output -> its steps; boxes and texts have others, which they check."""

_OF_SOME_TYPES = ("class_numbers", "dequantize", "top_k", "mask", "image")
"""Steps that outputs of boxes and texts don't have."""

_ONE_COLUMN = ("dequantize", "sigmoid", "threshold", "top_k")
"""The steps of one score for two classes, in their order."""


def _check_classification(names: list[str]) -> None:
    """Raise ValueError for steps of classes that are out of order, or don't go together."""
    others = [name for name in names if name != "dequantize"]
    if "drop_background" in others[1:]:
        raise ValueError("step 'drop_background' takes a column of the output; put it first")
    if "dequantize" in names[1:]:
        raise ValueError("step 'dequantize' takes the output as it is; put it first")
    if "class_numbers" in names and set(names) - {"class_numbers", "top_k"}:
        raise ValueError("step 'class_numbers' takes no scores; leave out the other steps")
    if "sigmoid" in names and "threshold" not in names:
        advice = "write 'threshold' behind it, or 'softmax' for a column for each class"
        raise ValueError(f"step 'sigmoid' is for one score of two classes; {advice}")
    if "threshold" in names and names != [name for name in _ONE_COLUMN if name in names]:
        problem = "step 'threshold' takes one score of two classes"
        raise ValueError(f"{problem}; write no other steps than {', '.join(_ONE_COLUMN)}, in order")


class Output(Closed):
    """An output of the model, by its name there or its ``position``, and the steps that follow.

    ``type`` says what it is once these are done, and so what a task makes of it. ``shape`` has the
    sizes of its axes where the model doesn't tell which is the axis of the batch, with the word
    batch for that one. An output with ``batch: none`` has no such axis: it is of the one input of a
    call, and of any size where it has no ``shape``.
    """

    name: str
    position: TensorPosition | None = None
    type: OutputType
    shape: Shape | None = None
    batch: Literal["none"] | None = None
    steps: list[OutputStep] = []

    @property
    def batch_axis(self) -> int | None:
        """The number of the axis of the batch; None where the manifest doesn't say it."""
        return None if self.shape is None or self.batch else self.shape.index(BATCH)

    @model_validator(mode="after")
    def _check_steps(self) -> Output:
        if self.batch and BATCH in (self.shape or ()):
            raise ValueError(
                "an output with 'batch: none' has no axis batch; leave one of them out"
            )
        if self.shape is not None and BATCH not in self.shape and not self.batch:
            raise ValueError(
                "the shape of an output has the word batch for the axis of the batch; write it, or "
                "'batch: none' for an output without such an axis"
            )
        names = [step.name for step in self.steps]
        if "top_k" in names[:-1]:
            raise ValueError("step 'top_k' leaves no scores to go on with; move it to the end")
        if self.type == "classification":
            _check_classification(names)
            above = self.threshold.above if self.threshold else 0.5
            if "sigmoid" in names and not 0 < above < 1:
                raise ValueError("a probability is from 0 to 1; write 'above' between them")
        check_text_steps(self.type, {step.name: step.parameters for step in self.steps})
        for name in names:
            self._check_step(name)
        return self

    def _check_step(self, name: str) -> None:
        known = _STEPS_OF_OUTPUT.get(self.type)
        is_known = name not in _OF_SOME_TYPES if known is None else name in known
        is_known |= name == "dequantize" and self.type in ("boxes", "scores")
        if is_known:
            return
        types = [other for other, steps in _STEPS_OF_OUTPUT.items() if name in steps]
        advice = f"write 'type: {' or '.join(types)}'" if types else "write another type"
        raise ValueError(f"type {self.type} has no step {name!r}; {advice}, or leave it out")

    @property
    def top_k(self) -> TopK | None:
        """The top_k step's parameters, if it has one."""
        for step in self.steps:
            if isinstance(step.parameters, TopK):
                return step.parameters
        return None

    @property
    def threshold(self) -> Threshold | None:
        """The threshold's parameters, if it has one: of a classification with one score."""
        for step in self.steps:
            if isinstance(step.parameters, Threshold):
                return step.parameters
        return None

    @property
    def quantised_step(self) -> float | None:
        """The number that a step of its integers stands for; None where they aren't quantised."""
        for step in self.steps:
            if isinstance(step.parameters, Dequantize):
                return step.parameters.scale
        return None

    @property
    def has_class_numbers(self) -> bool:
        """True for a classification that gives the number of each input's class, and no scores."""
        return any(step.name == "class_numbers" for step in self.steps)


class DatasetEntry(Closed):
    """Labelled inputs.

    ``source`` is an .npz file with an array for each input and 'label', or an archive with a
    labels.csv that has a column for each. At most ``skip_corrupt`` elements that can't be read or
    prepared are left out.
    """

    name: Name
    version: SemanticVersion
    source: Source
    sha256: Sha256
    license: str | None = None
    references: list[str] = []
    skip_corrupt: Annotated[int, Field(ge=0)] = 0


DescribedDataset = Annotated[DatasetEntry, Short(lambda value: value, {"type": "string"})]
"""A dataset; its name alone stands for one of a datasets.yaml, which is read before."""


TOKENS = "tokens"
LOGPROBS = "logprobs"
"""The outputs of a generation, as predictors name them."""


class Generate(Closed):
    """How the model generates tokens: each call is a whole answer, one token after the other.

    ``prompt`` is the input of tokens, ``limit`` the input that has the largest number of tokens of
    each answer, and ``logits`` the model's output with a row for each token. The model's inputs
    ``mask`` and ``positions`` are made: ones for all tokens so far, and the places of the new ones.
    A token of ``end`` is the last of an answer. Tokens are greedy.
    """

    prompt: str
    limit: str = "limit"
    logits: str = "logits"
    mask: str | None = None
    positions: str | None = None
    end: list[Annotated[int, Field(ge=0)]] = []


class Evaluate(Closed):
    """The points: every device with every batch size and scenario.

    ``seed`` draws the performance inputs. ``threads`` are the CPU threads that each framework must
    use; without them it chooses itself. ``instances`` copies of the model serve the queries of
    a server at the same time, and the ``batcher`` joins those that wait. Each of the ``shapes`` has
    the sizes of the axes that inputs name, and items of its own; the word dataset stands for the
    shapes that the dataset has, whose latencies are judged one by one. In upgrades pictures are
    decoded by pytest's own interpreter for both sides, or for each by the one of its ``stack``. The
    ``caches`` of compilers are empty for each process that is timed (cold), or filled once (warm).
    """

    devices: Distinct[Device] = ["cpu"]
    batch_sizes: Distinct[Positive] = [1]
    scenarios: Distinct[ScenarioEntry] = [ScenarioEntry(single_stream=SingleStream())]
    seed: Annotated[int, Field(ge=0)] = 0
    threads: Positive | None = None
    instances: Annotated[int, Field(ge=1, le=_MOST_INSTANCES)] = 1
    batcher: Batcher | None = None
    shapes: Shapes = {}
    preprocess: Literal["runner", "stack"] = "runner"
    caches: Literal["cold", "warm"] | None = None

    @property
    def by_group(self) -> bool:
        """True if each shape that the dataset has is judged."""
        return self.shapes == {BY_GROUP: {}}

    @property
    def named_shapes(self) -> Mapping[str, Mapping[str, int]]:
        """The shapes that have names: the sizes of their axes."""
        return {} if self.by_group else self.shapes

    @cached_property
    def scenario_labels(self) -> dict[str, ScenarioEntry]:
        """The scenarios by what ids call them."""
        return dict(zip(labels_of(self.scenarios), self.scenarios, strict=True))


class Hardware(Closed):
    """Requirements on a host that runs the manifest.

    ``memory`` is that of the device; for the CPU it is the host's.
    """

    memory: AmountOfMemory | None = None
    gpu: GpuName | None = None
    architecture: Architecture | None = None
    cores: Count | None = None


class Manifest(Closed):
    """One model, with everything that is needed to evaluate it.

    ``control`` makes it the control of a host: a model that always runs on this stack, so that only
    the machine changes what is measured.
    """

    name: Name
    version: SemanticVersion
    task: Name
    description: str = ""
    license: str | None = None
    references: list[str] = []
    models: Annotated[list[Model], Field(min_length=1)]
    inputs: Annotated[list[Input], Field(min_length=1)]
    outputs: Annotated[list[Output], Field(min_length=1)]
    dataset: DescribedDataset | None = None
    generate: Generate | None = None
    hardware: Hardware | None = None
    control: Annotated[
        Name | None, Field(description="the stack that it always runs on, as control of a host")
    ] = None
    evaluate: Evaluate = Evaluate()
    thresholds: Thresholds = Thresholds()
    marks: dict[Literal["xfail", "skip"], dict[str, str]] = {}

    @property
    def task_facts(self) -> TaskFacts:
        """The facts of its task: what it takes and measures."""
        return facts_of(self.task)

    @property
    def scored_outputs(self) -> list[Output]:
        """The outputs that its task scores."""
        types = self.task_facts.output_types
        return [output for output in self.outputs if output.type in types]

    @property
    def step_files(self) -> Iterator[tuple[Path, StepFile]]:
        """The files that steps of inputs and outputs name, each with the path of its step."""
        parts: dict[str, Sequence[Input | Output]] = {
            "inputs": self.inputs,
            "outputs": self.outputs,
        }
        for section, members in parts.items():
            for number, part in enumerate(members):
                for index, step in enumerate(part.steps):
                    path = (section, number, "steps", index, step.name)
                    yield from ((path, file) for file in step.files)

    @property
    def label_form(self) -> LabelForm:
        """The form of the dataset's labels: classes, where its task scores none of its outputs."""
        return self.task_facts.labels if self.scored_outputs else "class"

    @property
    def classification(self) -> Output | None:
        """The first output whose classes are ranked, if there is one."""
        for output in self.outputs:
            if output.type == "classification":
                return output
        return None

    @property
    def variants(self) -> set[str]:
        """The variants of its models."""
        return {model.variant for model in self.models if model.variant}

    def model_called(self, name: str) -> Model | None:
        """Return the first model that a name means."""
        return next((model for model in self.models if name in model.names), None)

    @property
    def has_state(self) -> bool:
        """True if an input is an output of the call before.

        The states of a generation are not: each prompt begins with their first ones.
        """
        return self.generate is None and any(spec.is_state for spec in self.inputs)

    @property
    def generation(self) -> Generation | None:
        """How its models generate, as predictors are told."""
        if self.generate is None:
            return None
        keys = self.generate
        return Generation(
            prompt=keys.prompt,
            logits=keys.logits,
            limit=keys.limit,
            states={spec.name: spec.from_output for spec in self.inputs if spec.from_output},
            mask=keys.mask or "",
            positions=keys.positions or "",
            end=keys.end,
            scores=any(output.name == LOGPROBS for output in self.outputs),
            prompt_type=next(i.element_type for i in self.inputs if i.name == keys.prompt),
        )

    @property
    def batch_axes(self) -> dict[str, int | None]:
        """The axis of the batch of each input, by name; None where there is none."""
        return {spec.name: spec.batch_axis for spec in self.inputs}

    @property
    def has_accuracy(self) -> bool:
        """True if there is something to measure accuracy with."""
        return self.dataset is not None and bool(self.scored_outputs)
