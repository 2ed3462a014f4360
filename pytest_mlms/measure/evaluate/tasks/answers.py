"""Answers to questions: exact match and F1 as the script of SQuAD v1.1 compares them."""

from __future__ import annotations

import json
import re
import string
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from pytest_mlms.core.errors import DatasetError
from pytest_mlms.core.serialization import parse_json
from pytest_mlms.measure.evaluate.tasks.task import Array
from pytest_mlms.measure.evaluate.tasks.text_task import divided

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
