"""Parts of a drafted manifest, and their text."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pytest_mlms.manifest import yaml12
from pytest_mlms.manifest.schema import Input

_PLAIN = re.compile(r"[A-Za-z0-9_/.][A-Za-z0-9_./+-]*( [A-Za-z0-9_./+-]+)*")
_WIDTH = 100  # columns
_RATE = "a guess: that of the files; what the model takes is not in its file"
_PASTS = ("past", "cache")
"""Parts of the names of what earlier calls left."""
_SHOWN_GUESSES = 3  # options


def scalar(value: Any) -> str:
    """Return a text or a number as YAML: a text in quotes where it must be."""
    if not isinstance(value, str):
        return json.dumps(value)
    is_plain = _PLAIN.fullmatch(value) and yaml12.parse(value).value == value
    return value if is_plain else json.dumps(value, ensure_ascii=False)


def _listed(values: Sequence[Any]) -> str:
    return f"[{', '.join(scalar(value) for value in values)}]"


def _commented(text: str, comment: str) -> list[str]:
    """Return lines with a comment at their end, or above them where it has no room there."""
    if not comment:
        return [text]
    line = f"{text}  # {comment}"
    if len(line) <= _WIDTH:
        return [line]
    indent = " " * (len(text) - len(text.lstrip(" -")))
    return [*_wrapped(comment, indent), text]


def _wrapped(comment: str, indent: str = "") -> list[str]:
    """Return a comment as lines of their own."""
    lines = []
    line = f"{indent}#"
    for word in comment.split():
        if len(line) + 1 + len(word) > _WIDTH:
            lines.append(line)
            line = f"{indent}#"
        line += f" {word}"
    return [*lines, line]


@dataclass(frozen=True)
class ModelPart:
    """An entry of ``models``; paths are as the manifest has them."""

    framework: str
    graph: str
    sha256: Mapping[str, str]
    weights: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    comment: str = ""
    variant: str = ""

    def lines(self) -> list[str]:
        """Return its text."""
        lines = _commented(f"  - framework: {self.framework}", self.comment)
        if self.variant:
            lines.append(f"    variant: {scalar(self.variant)}")
        lines.append(f"    graph: {scalar(self.graph)}")
        if self.weights:
            lines.append(f"    weights: {scalar(self.weights)}")
        if len(self.sha256) == 1:
            lines.append(f"    sha256: {scalar(self.sha256['graph'])}")
        else:
            lines.append("    sha256:")
            lines += [f"      {role}: {scalar(text)}" for role, text in self.sha256.items()]
        if self.options:
            pairs = ", ".join(f"{name}: {scalar(value)}" for name, value in self.options.items())
            lines.append(f"    options: {{{pairs}}}")
        return lines


@dataclass(frozen=True)
class InputPart:
    """An entry of ``inputs``; ``steps`` are as they are written, with a comment each.

    ``guess`` is the option that says its sizes, where some of them are guesses. With
    ``from_output`` it is a state.
    """

    name: str
    type: str
    element_type: str
    layout: str | None = None
    shape: Sequence[int | str] | None = None
    range: Sequence[float] | None = None
    steps: Sequence[tuple[str, str]] = ()
    comment: str = ""
    guess: str = ""
    sample_rate: int | None = None
    column: str | None = None
    from_output: str | None = None

    def lines(self) -> list[str]:
        """Return its text."""
        lines = _commented(f"  - name: {scalar(self.name)}", self.comment)
        lines.append(f"    type: {self.type}")
        lines.append(f"    element_type: {self.element_type}")
        for key, text in (
            ("layout", self.layout),
            ("shape", None if self.shape is None else _listed(self.shape)),
            ("range", None if self.range is None else _listed(self.range)),
            ("column", None if self.column is None else scalar(self.column)),
            ("from_output", None if self.from_output is None else scalar(self.from_output)),
        ):
            if text is not None:
                lines.append(f"    {key}: {text}")
        if self.sample_rate is not None:
            lines += _commented(f"    sample_rate: {self.sample_rate}", _RATE)
        if self.steps:
            lines.append("    steps:")
            for step, comment in self.steps:
                lines += _commented(f"      - {step}", comment)
        return lines

    @property
    def is_past(self) -> bool:
        """True if it is what earlier calls left, as far as its name tells."""
        return self.from_output is not None or any(word in self.name.lower() for word in _PASTS)

    def spec(self) -> Input:
        """Return it as the manifest will have it once it is read."""
        values: dict[str, Any] = {
            "name": self.name,
            "type": self.type,
            "element_type": self.element_type,
            "layout": self.layout,
            "shape": None if self.shape is None else list(self.shape),
            "range": None if self.range is None else list(self.range),
            "sample_rate": self.sample_rate,
            "column": self.column,
            "from_output": self.from_output,
            "steps": [yaml12.parse(step).value for step, _ in self.steps],
        }
        return Input.model_validate(values)


def options_of_guesses(inputs: Sequence[InputPart]) -> str:
    """Return the options that would say the sizes that are guesses, those of a past last."""
    guessed = [part for part in inputs if part.guess]
    guessed.sort(key=lambda part: part.is_past)
    options = [part.guess for part in guessed]
    more = [] if len(options) <= _SHOWN_GUESSES else [f"and {len(options) - _SHOWN_GUESSES} more"]
    return " ".join([*options[:_SHOWN_GUESSES], *more])


@dataclass(frozen=True)
class OutputPart:
    """An entry of ``outputs``; ``steps`` are as they are written."""

    name: str
    type: str
    shape: Sequence[int | str] | None = None
    steps: Sequence[str] = ()
    comment: str = ""
    batch: str = ""

    def lines(self) -> list[str]:
        """Return its text."""
        lines = _commented(f"  - name: {scalar(self.name)}", self.comment)
        lines.append(f"    type: {self.type}")
        if self.shape is not None:
            lines.append(f"    shape: {_listed(self.shape)}")
        if self.batch:
            lines.append(f"    batch: {self.batch}")
        if self.steps:
            lines.append(f"    steps: [{', '.join(self.steps)}]")
        return lines


@dataclass(frozen=True)
class DatasetPart:
    """The dataset of a manifest."""

    name: str
    source: str
    sha256: str
    comment: str = ""

    def lines(self) -> list[str]:
        """Return its text."""
        return [
            *_commented("dataset:", self.comment),
            f"  name: {scalar(self.name)}",
            "  version: 1.0.0",
            f"  source: {scalar(self.source)}",
            f"  sha256: {scalar(self.sha256)}",
        ]


@dataclass(frozen=True)
class Draft:
    """A drafted manifest.

    ``thresholds`` are lines with a comment each, ``measured`` says how they were measured, and
    ``doubt`` why the accuracy can't be right. ``classes`` is the number of classes, None for no
    classification. ``seconds`` is about what the model takes for an input. ``rounding`` is how much
    outputs of several models may differ by another order of computing.
    """

    name: str
    task: str
    models: Sequence[ModelPart]
    inputs: Sequence[InputPart]
    outputs: Sequence[OutputPart]
    dataset: DatasetPart | None = None
    classes: int | None = None
    devices: Sequence[str] = ("cpu",)
    batch_sizes: Sequence[int] = (1,)
    threads: int | None = None
    thresholds: Sequence[tuple[str, str]] = ()
    measured: str = ""
    doubt: str = ""
    heading: str = ""
    task_comment: str = ""
    seconds: float = 0.0
    rounding: float = 0.0

    @property
    def guesses(self) -> str:
        """The options that would say the sizes that are guesses."""
        return options_of_guesses(self.inputs)

    @property
    def guesses_a_past(self) -> bool:
        """True if both the positions of a call and those before it are guesses."""
        return len({part.is_past for part in self.inputs if part.guess}) > 1

    def agreement(self, atol: float) -> str:
        """Return the threshold of the agreement of its models with the first one."""
        first = self.models[0]
        reference = f"{first.framework}-{first.variant}" if first.variant else first.framework
        return f"agreement: {{reference: {reference}, rtol: 0, atol: {atol:g}}}"

    def text(self) -> str:
        """Return the manifest."""
        lines = _wrapped(self.heading) if self.heading else []
        lines.append(f"name: {scalar(self.name)}")
        lines += _commented("version: 1.0.0", "that of the model; yours to count")
        lines += _commented(f"task: {self.task}", self.task_comment)
        for title, parts in (
            ("models:", self.models),
            ("inputs:", self.inputs),
            ("outputs:", self.outputs),
        ):
            lines += ["", title]
            for part in parts:
                lines += part.lines()
        if self.dataset is not None:
            lines += ["", *self.dataset.lines()]
        lines += ["", "evaluate:"]
        lines.append(f"  devices: {_listed(self.devices)}")
        lines.append(f"  batch_sizes: {_listed(self.batch_sizes)}")
        if self.threads:
            lines.append(f"  threads: {self.threads}")
        if self.thresholds:
            lines += ["", *_wrapped(self.measured)]
            lines += _wrapped(self.doubt) if self.doubt else []
            lines.append("thresholds:")
            for threshold, comment in self.thresholds:
                lines += _commented(f"  {threshold}", comment)
        return "\n".join([*lines, ""])
