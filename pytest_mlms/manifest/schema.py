"""The form of a manifest: what keys there are, what they hold, and what must agree within one section."""

from __future__ import annotations

from collections import Counter
from typing import Annotated, Any, Literal, TypeVar

from packaging.specifiers import SpecifierSet
from pydantic import AfterValidator, Field, model_validator

from pytest_mlms.manifest.steps import InputStep, OutputStep, TopK
from pytest_mlms.manifest.types import (
    Bytes,
    Closed,
    Device,
    ElementType,
    Fraction,
    Framework,
    Layout,
    Name,
    Positive,
    Rate,
    Scenario,
    Seconds,
    SemanticVersion,
    Sha256,
    Short,
    Source,
    split_framework,
)

__all__ = ["Dataset", "Evaluate", "Input", "Limit", "Manifest", "Model", "Output", "Thresholds"]

T = TypeVar("T")


def _distinct(values: list[T]) -> list[T]:
    twice = [value for value, count in Counter(values).items() if count > 1]
    if twice:
        raise ValueError(f"{twice[0]!r} is there twice; keep one")
    return values


Distinct = Annotated[list[T], Field(min_length=1), AfterValidator(_distinct)]
Digests = Annotated[
    dict[Literal["graph", "weights"], Sha256],
    Field(description="64 hexadecimal digits as sha256sum prints, in quotes if they are all decimal"),
    Short(lambda value: {"graph": value} if isinstance(value, str) else value, {"type": "string"}),
]


class Model(Closed):
    """The weights in one framework's own format."""

    framework: Framework
    graph: Source
    weights: Source | None = None
    sha256: Digests

    @model_validator(mode="after")
    def _digest_each(self) -> Model:
        files = {"graph"} | ({"weights"} if self.weights else set())
        if set(self.sha256) != files:
            raise ValueError(f"sha256 is for {sorted(self.sha256)}; write one for each of {sorted(files)}")
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
    """An input of the model, by its name there, and the steps that make it from the dataset, run in order."""

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
        wrong = [name for name in names if name not in ("normalize", "cast")] if self.type == "tensor" else []
        if wrong:
            raise ValueError(f"a tensor has no step {wrong[0]!r}; write 'type: image', or leave it out")
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
    """Labelled inputs: an .npz file with an array for each input and 'label', or an archive with a labels.csv."""

    name: Name
    version: SemanticVersion
    source: Source
    sha256: Sha256
    license: str | None = None
    references: list[str] = []


class Evaluate(Closed):
    """The points: every device with every batch size and scenario; the seed draws the performance inputs."""

    devices: Distinct[Device] = ["cpu"]
    batch_sizes: Distinct[Positive] = [1]
    scenarios: Distinct[Scenario] = ["single_stream"]
    seed: Annotated[int, Field(ge=0)] = 0


class Limit(Closed):
    """Which cases a limit judges: all that measure its quantity, less what these leave out."""

    devices: list[Device] = []
    frameworks: list[str] = []


class PerformanceLimit(Limit):
    """The same for what depends on how requests arrive too."""

    batch_sizes: list[Positive] = []
    scenarios: list[Scenario] = []


class AtLeastFraction(Limit):
    """A share that must be reached: 0.97 or 97 %."""

    min: Fraction


class AtLeastRate(PerformanceLimit):
    """A rate that must be reached: 200 /s."""

    min: Rate


class AtMostSeconds(PerformanceLimit):
    """A time that must not be passed: 5 ms."""

    max: Seconds


class AtMostBytes(PerformanceLimit):
    """A size that must not be passed: 64 MiB."""

    max: Bytes


OneOrMore = Annotated[list[T], Short(lambda value: value if isinstance(value, list) else [value], {"items": True})]


class Thresholds(Closed):
    """What an item must meet: a limit, or a list of them for different cases."""

    top1: OneOrMore[AtLeastFraction] = []
    top5: OneOrMore[AtLeastFraction] = []
    latency_mean: OneOrMore[AtMostSeconds] = []
    latency_p50: OneOrMore[AtMostSeconds] = []
    latency_p90: OneOrMore[AtMostSeconds] = []
    latency_p95: OneOrMore[AtMostSeconds] = []
    latency_p99: OneOrMore[AtMostSeconds] = []
    throughput: OneOrMore[AtLeastRate] = []
    first_inference: OneOrMore[AtMostSeconds] = []
    load_time: OneOrMore[AtMostSeconds] = []
    peak_memory: OneOrMore[AtMostBytes] = []


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


def disagreements(manifest: Manifest) -> list[tuple[tuple[Any, ...], str]]:
    """Return what doesn't agree between the sections, as (path, text) pairs."""
    found: list[tuple[tuple[Any, ...], str]] = []
    for section, key in (("models", "name"), ("inputs", "name"), ("outputs", "name")):
        names = [getattr(part, key) for part in getattr(manifest, section)]
        found += [
            ((section, index), f"{section} has {name!r} twice; keep one, or write a manifest for each")
            for index, name in enumerate(names)
            if name in names[:index]
        ]
    for quantity in Thresholds.model_fields:
        for index, limit in enumerate(getattr(manifest.thresholds, quantity)):
            found += [(("thresholds", quantity, index), text) for text in _idle(manifest, quantity, limit)]
    return found


def _idle(manifest: Manifest, quantity: str, limit: Limit) -> list[str]:
    """Say why a limit would judge no case: nobody should believe in a gate that never closes."""
    if quantity in ("top1", "top5") and not manifest.has_accuracy:
        return [f"{quantity} judges nothing; add a dataset and an output of type classification"]
    offered: dict[str, list[Any]] = {
        "batch_sizes": manifest.evaluate.batch_sizes,
        "scenarios": manifest.evaluate.scenarios,
        "devices": manifest.evaluate.devices,
        "frameworks": [model.name for model in manifest.models],
    }
    return [
        f"{quantity} names {name} that nothing is evaluated with; write some of {', '.join(map(str, values))}"
        for name, values in offered.items()
        if set(getattr(limit, name, ())) - set(values)
    ]
