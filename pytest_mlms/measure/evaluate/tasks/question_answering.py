"""Question answering: answers as texts, or as the span of the context that logits point at.

They are compared as the script of SQuAD v1.1 does: exact match and F1.
"""

from __future__ import annotations

import json
import re
import string
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from pytest_mlms.core.arrays import Array
from pytest_mlms.core.errors import DatasetError, MlmsError, OutputError
from pytest_mlms.core.serialization import parse_json
from pytest_mlms.manifest.schema import Output
from pytest_mlms.manifest.text_steps import Tokenize
from pytest_mlms.measure.evaluate.tasks.task import Scorer, Task
from pytest_mlms.measure.evaluate.tasks.text_task import (
    TextEvidence,
    TextScorer,
    divided,
    label_text,
)
from pytest_mlms.measure.pipeline import Dataset
from pytest_mlms.measure.pipeline.outputs import normalized_label
from pytest_mlms.measure.pipeline.step_files import Text, encode

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)


class AnswerScores:
    """Measure of ``exact_match`` and ``answer_f1``, by the best of the answers of a label."""

    columns: ClassVar[Sequence[str]] = ("exact", "f1", "inputs")

    def counts(self, label: str, text: str) -> Sequence[float]:
        """Return the exact match, F1, and 1 for the input itself."""
        found = _words(text)
        answers = [_words(answer) for answer in answers_of(label)]
        exact = max(answer == found for answer in answers)
        f1 = max(_f1(answer, found) for answer in answers)
        return (float(exact), f1, 1.0)

    def figures(self, sums: Array) -> Mapping[str, Array]:
        """Return the mean of F1."""
        return {"answer_f1": divided(sums[:, 1], sums[:, 2])}

    def losses(self, counts: Array) -> Array:
        """Return 1 - F1 of each input."""
        return np.asarray(1 - counts[:, 1])

    def shares(self, counts: Array) -> Mapping[str, NDArray[np.bool_]]:
        """Return which answers are right."""
        return {"exact_match": counts[:, 0] == 1}


def answers_of(label: str) -> list[str]:
    """Return the answers of a label: a text, or a list of texts in JSON.

    Raises DatasetError for a list of something else, or of nothing.
    """
    if not label.lstrip().startswith("["):
        return [label]
    try:
        answers = parse_json(label)
    except ValueError:
        return [label]  # a text that begins with a bracket
    if not answers or not all(isinstance(answer, str) for answer in answers):
        raise DatasetError(f"the label {label} is no list of answers; write texts, in quotes")
    return list(answers)


def label_of_answers(answers: Sequence[str]) -> str:
    """Return the label that ``answers_of`` reads these from: a single text, or a list in JSON."""
    if len(answers) == 1 and not answers[0].lstrip().startswith("["):
        return answers[0]
    return json.dumps(answers, ensure_ascii=False)


def _words(text: str) -> list[str]:
    """Return the words of an answer in lower case, without punctuation and articles."""
    plain = text.lower().translate(_PUNCTUATION)
    return _ARTICLES.sub(" ", plain).split()


def _f1(answer: Sequence[str], found: Sequence[str]) -> float:
    same = (Counter(answer) & Counter(found)).total()
    if same == 0:
        return 0.0
    precision = same / len(found)
    recall = same / len(answer)
    return 2 * precision * recall / (precision + recall)


_MOST_TOKENS = 30


class QuestionAnswering(Task):
    """An output of type text, or two of the types span_start and span_end."""

    def scorer(self, outputs: Sequence[Output], dataset: Dataset) -> Scorer:
        """Return a scorer for texts if one of the outputs has them, or else for spans."""
        by_type: dict[str, Output] = {output.type: output for output in outputs}
        if "text" in by_type:
            return _AnswerScorer(by_type["text"], dataset, AnswerScores())
        if len(by_type) < 2:
            raise MlmsError(
                "a span has two outputs; write one of type span_start and one of span_end"
            )
        return SpanScorer.of(by_type["span_start"], by_type["span_end"], dataset)


def _answers(dataset: Dataset, index: int) -> list[str]:
    """Return the answers that the label of an input has; raises DatasetError, which names it."""
    label = label_text(dataset, index)
    try:
        return answers_of(label)
    except DatasetError as error:
        raise dataset.label_error(index, str(error)) from None


class _AnswerScorer(TextScorer):
    """Scorer of answers as texts, whose labels may be lists of answers."""

    def label(self, index: int) -> str:
        answers = _answers(self.dataset, index)
        return label_of_answers([normalized_label(answer, self.output) for answer in answers])


def _tokenized_input(dataset: Dataset) -> tuple[str, Tokenize]:
    """Return the input that has the tokens of question and context, and its step."""
    for spec in dataset.inputs:
        for step in spec.steps:
            if isinstance(step.parameters, Tokenize) and step.parameters.give == "ids":
                return spec.name, step.parameters
    advice = "add a step 'tokenize' to the input of the tokens' ids"
    raise MlmsError(f"no input tells which texts the positions of a span stand for; {advice}")


@dataclass(frozen=True, eq=False)
class SpanScorer(Scorer):
    """Scorer of the spans that two outputs point at, and reader of their texts."""

    start: Output
    end: Output
    dataset: Dataset
    input_name: str
    parameters: Tokenize
    _labels: list[str] = field(default_factory=list)
    _texts: list[str] = field(default_factory=list)
    _counts: list[Sequence[float]] = field(default_factory=list)
    _measure: AnswerScores = field(default_factory=AnswerScores)

    @classmethod
    def of(cls, start: Output, end: Output, dataset: Dataset) -> SpanScorer:
        """Return the scorer of two outputs; raises MlmsError where no input has the tokens."""
        return cls(start, end, dataset, *_tokenized_input(dataset))

    def texts(self, outputs: Mapping[str, Array], inputs: range) -> list[str]:
        """Return the text of each span; raises OutputError for outputs that are no logits."""
        starts = self._logits(outputs, self.start, len(inputs))
        ends = self._logits(outputs, self.end, len(inputs))
        elements = self.dataset.elements[self.input_name]
        rows = zip(inputs, starts, ends, strict=True)
        return [self._answer(elements[index], first, last) for index, first, last in rows]

    def add(self, outputs: Mapping[str, Array], inputs: range) -> None:
        """Take the logits of a batch."""
        for index, text in zip(inputs, self.texts(outputs, inputs), strict=True):
            label = label_of_answers(_answers(self.dataset, index))
            self._labels.append(label)
            self._texts.append(text)
            self._counts.append(self._measure.counts(label, text))

    def _logits(self, outputs: Mapping[str, Array], output: Output, count: int) -> Array:
        logits = np.asarray(outputs[output.name])
        length = self.parameters.length
        if logits.size != count * length:
            found = f"output {output.name!r} of {count} inputs is {logits.shape}"
            raise OutputError(f"{found}; expected a logit for each of {length} tokens")
        if not np.isfinite(logits).all():
            advice = "check the input's steps, its element type and the model"
            raise OutputError(f"output {output.name!r} has NaN or infinity; {advice}")
        return logits.reshape(count, length)

    def _answer(self, element: Any, starts: Array, ends: Array) -> str:
        text: Text = element if isinstance(element, tuple) else str(element)
        encoding = encode(text, self.parameters)
        if isinstance(text, tuple):
            _, context = text
            sequence = 1
        else:
            context = text
            sequence = 0
        is_context = np.array([number == sequence for number in encoding.sequence_ids])
        span = best_span(starts, ends, is_context)
        if span is None:
            return ""
        first, last = span
        begin, _ = encoding.offsets[first]
        _, end = encoding.offsets[last]
        return context[begin:end]

    def evidence(self) -> TextEvidence:
        """Return the evidence of all inputs that were added."""
        counts = np.array(self._counts, dtype=np.float64).reshape(-1, len(AnswerScores.columns))
        return TextEvidence(self._measure, self._labels, self._texts, counts)


def best_span(starts: Array, ends: Array, is_context: Array) -> tuple[int, int] | None:
    """Return the first and last token of the span with the largest sum of logits.

    Both are tokens of the context (T truth values), the last one at most 29 behind the first. None
    for a context without tokens.
    """
    tokens = np.flatnonzero(is_context)
    if not tokens.size:
        return None
    sums = np.add.outer(starts[tokens].astype(np.float64), ends[tokens])
    distances = np.subtract.outer(tokens, tokens).T
    is_span = (distances >= 0) & (distances < _MOST_TOKENS)
    sums[~is_span] = -np.inf
    first, last = np.unravel_index(sums.argmax(), sums.shape)
    return int(tokens[first]), int(tokens[last])
