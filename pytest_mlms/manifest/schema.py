"""The form of a manifest.

What keys there are, what they hold, and what must agree within one section.
"""

from __future__ import annotations

from collections import Counter
from typing import Annotated, Literal, TypeVar

from packaging.specifiers import SpecifierSet
from pydantic import AfterValidator, Field, model_validator

from pytest_mlms.manifest.steps import InputStep, OutputStep, TopK
from pytest_mlms.manifest.thresholds import Thresholds
from pytest_mlms.manifest.types import (
    AmountOfMemory,
    Closed,
    Count,
    Device,
    ElementType,
    Framework,
    Layout,
    Name,
    Positive,
    Scalar,
    Scenario,
    SemanticVersion,
    Sha256,
    Short,
    Source,
    split_framework,
)

__all__ = ["Dataset", "Evaluate", "Input", "Manifest", "Model", "Output"]

T = TypeVar("T")


def _distinct(values: list[T]) -> list[T]:
    twice = [value for value, count in Counter(values).items() if count > 1]
    if twice:
        raise ValueError(f"{twice[0]!r} is there twice; keep one")
    return values


Distinct = Annotated[list[T], Field(min_length=1), AfterValidator(_distinct)]
Digests = Annotated[
    dict[Literal["graph", "weights"], Sha256],
    Field(
        description="64 hexadecimal digits as sha256sum prints, in quotes if they are all decimal"
    ),
    Short(lambda value: {"graph": value} if isinstance(value, str) else value, {"type": "string"}),
]


class Model(Closed):
    """The weights in one framework's own format.

    ``options`` go to its predictor, which says what there is.
    """

    framework: Framework
    graph: Source
    weights: Source | None = None
    sha256: Digests
    options: dict[str, Scalar] = {}

    @model_validator(mode="after")
    def _digest_each(self) -> Model:
        files = {"graph"} | ({"weights"} if self.weights else set())
        if set(self.sha256) != files:
            raise ValueError(
                f"sha256 is for {sorted(self.sha256)}; write one for each of {sorted(files)}"
            )
        return self

    @property
    def name(self) -> str:
        """The framework's name, which is its predictor's file name."""
        return split_framework(self.framework)[0]

    @property
    def versions(self) -> SpecifierSet:
        """The framework's versions that it is meant for."""
        return split_framework(self.framework)[1]


class Input(Closed):
    """An input of the model, by its name there, and the steps that make it from the dataset, run in
    order.
    """

    name: str
    type: Literal["image", "tensor"]
    element_type: ElementType
    layout: Layout | None = None
    steps: list[InputStep] = []

    @model_validator(mode="after")
    def _steps_fit(self) -> Input:
        names = [step.name for step in self.steps]
        if self.type == "image" and self.layout is None:
            raise ValueError("an image needs a layout; write 'layout: NCHW' or 'layout: NHWC'")
        wrong = (
            [name for name in names if name not in ("normalize", "cast")]
            if self.type == "tensor"
            else []
        )
        if wrong:
            raise ValueError(
                f"a tensor has no step {wrong[0]!r}; write 'type: image', or leave it out"
            )
        late = names[names.index("layout") + 1 :] if "layout" in names else []
        late = [name for name in late if name not in ("normalize", "cast")]
        if late:
            raise ValueError(f"step {late[0]!r} needs the channels last; move 'layout' behind it")
        if "decode" in names[1:]:
            raise ValueError("step 'decode' makes an image out of a file; move it to the front")
        return self


class Output(Closed):
    """An output of the model, by its name there, and the steps that follow."""

    name: str
    type: Literal["classification", "tensor"]
    steps: list[OutputStep] = []

    @model_validator(mode="after")
    def _steps_fit(self) -> Output:
        names = [step.name for step in self.steps]
        if "top_k" in names[:-1]:
            raise ValueError("step 'top_k' leaves no scores to go on with; move it to the end")
        if self.type == "tensor" and "top_k" in names:
            raise ValueError("a tensor has no step 'top_k'; write 'type: classification'")
        return self

    @property
    def top_k(self) -> TopK | None:
        """The top_k step's parameters, if it has one."""
        return next((step.parameters for step in self.steps if step.name == "top_k"), None)


class Dataset(Closed):
    """Labelled inputs: an .npz file with an array for each input and 'label', or an archive with a
    labels.csv.
    """

    name: Name
    version: SemanticVersion
    source: Source
    sha256: Sha256
    license: str | None = None
    references: list[str] = []


class Evaluate(Closed):
    """The points: every device with every batch size and scenario; the seed draws the performance
    inputs.

    ``threads`` are the CPU threads that each framework must use; its own choice where they are left
    out.
    """

    devices: Distinct[Device] = ["cpu"]
    batch_sizes: Distinct[Positive] = [1]
    scenarios: Distinct[Scenario] = ["single_stream"]
    seed: Annotated[int, Field(ge=0)] = 0
    threads: Positive | None = None


class Hardware(Closed):
    """What a host must have to run the manifest.

    ``memory`` is that of the device (of the CPU, the host's).
    """

    memory: AmountOfMemory | None = None
    gpu: (
        Annotated[
            str, Field(min_length=1, description="a part of the GPU's name; for cases on a GPU")
        ]
        | None
    ) = None
    architecture: Annotated[str, Field(min_length=1, description="as uname -m prints")] | None = (
        None
    )
    cores: Count | None = None


class Manifest(Closed):
    """One model, with everything that is needed to evaluate it."""

    name: Name
    version: SemanticVersion
    task: Name
    description: str = ""
    license: str | None = None
    references: list[str] = []
    models: Annotated[list[Model], Field(min_length=1)]
    inputs: Annotated[list[Input], Field(min_length=1)]
    outputs: Annotated[list[Output], Field(min_length=1)]
    dataset: Dataset | None = None
    hardware: Hardware | None = None
    evaluate: Evaluate = Evaluate()
    thresholds: Thresholds = Thresholds()
    marks: dict[Literal["xfail", "skip"], dict[str, str]] = {}

    @property
    def classification(self) -> Output | None:
        """The output that accuracy is judged by, if there is one."""
        return next((output for output in self.outputs if output.type == "classification"), None)

    @property
    def has_accuracy(self) -> bool:
        """Whether there is something to measure accuracy with."""
        return self.dataset is not None and self.classification is not None
