"""Text generation, greedy: the tokens of a model beside the labels'.

Tokens are compared by place, up to the end of the label; what follows is no error of theirs. A
model's output that is shorter lacks the rest. Negative ids of a label mask their places, such as
those of a prompt.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from mlms_predictors._run.protocol import OF_TEXTS
from numpy.typing import NDArray

from pytest_mlms.core.arrays import Array
from pytest_mlms.core.errors import DatasetError, OutputError
from pytest_mlms.manifest.schema import Output
from pytest_mlms.measure.evaluate.tasks.task import Evidence, Scorer, Task
from pytest_mlms.measure.evaluate.tasks.text_task import divided
from pytest_mlms.measure.pipeline import Dataset
from pytest_mlms.measure.pipeline.outputs import decode_tokens, without_padding

_MOST_SHOWN = 6  # tokens


@dataclass(frozen=True, eq=False)
class TokenEvidence(Evidence):
    """The tokens of N labels: how many there are, how many are the same, and how many at first.

    ``expected`` and ``found`` are the first tokens of labels and outputs that differ, as texts.
    """

    lengths: Array
    same: Array
    prefixes: Array
    expected: Sequence[str]
    found: Sequence[str]

    def __len__(self) -> int:
        return len(self.lengths)

    @property
    def shares(self) -> Mapping[str, NDArray[np.bool_]]:
        """The inputs with all tokens of their labels."""
        return {"exact_match": self.prefixes == self.lengths}

    def figures(self, counts: Array) -> Mapping[str, Array]:
        """Return the shares of the labels' tokens that are the same, and before a divergence."""
        sums = np.asarray(counts, dtype=np.float64) @ np.stack(
            [self.lengths, self.same, self.prefixes], axis=1
        )
        lengths, same, prefixes = sums.T
        return {
            "same_tokens": divided(same, lengths),
            "tokens_before_divergence": divided(prefixes, lengths),
        }

    @property
    def losses(self) -> Array:
        """The tokens from the first divergence on."""
        return self.lengths - self.prefixes

    def answers(self) -> Sequence[Any]:
        """Return how many tokens of each input are the label's, and the others at first."""
        return list(zip(self.prefixes.tolist(), self.same.tolist(), self.found, strict=True))

    def columns(self) -> Mapping[str, Sequence[Any]]:
        """Return the counts, and the tokens from the first divergence on."""
        return {
            "expected": self.expected,
            "found": self.found,
            "tokens": self.lengths.tolist(),
            "same_tokens": self.same.tolist(),
            "first_divergence": self.prefixes.tolist(),
        }


@dataclass(frozen=True, eq=False)
class _TokenScorer(Scorer):
    output: Output
    dataset: Dataset
    _rows: list[tuple[int, int, int]] = field(default_factory=list)
    _expected: list[str] = field(default_factory=list)
    _found: list[str] = field(default_factory=list)

    def add(self, outputs: Mapping[str, Array], inputs: range) -> None:
        rows = decode_tokens(outputs[self.output.name], self.output)
        if len(rows) != len(inputs):
            found = f"output {self.output.name!r} of {len(inputs)} inputs is {len(rows)} rows"
            raise OutputError(f"{found}; check its steps")
        for index, tokens in zip(inputs, rows, strict=True):
            if (tokens >= OF_TEXTS).any():
                problem = "labels are ids of tokens, and the server tells only their texts"
                raise OutputError(f"{problem}; leave them out, or write 'tokens: ids' if it can")
            label = _label(self.dataset, index)
            places = np.flatnonzero(label >= 0)
            is_same = np.zeros(len(places), dtype=bool)
            in_output = places[places < len(tokens)]
            is_same[: len(in_output)] = label[in_output] == tokens[in_output]
            prefix = len(places) if is_same.all() else int(is_same.argmin())
            self._rows.append((len(places), int(is_same.sum()), prefix))
            self._expected.append(_text_of(label[places[prefix:]]))
            beyond = np.arange(len(label), len(tokens))
            shown = np.append(in_output[prefix:], beyond) if prefix < len(places) else beyond[:0]
            self._found.append(_text_of(tokens[shown]))

    def evidence(self) -> TokenEvidence:
        counts = np.array(self._rows, dtype=np.int64).reshape(-1, 3)
        lengths, same, prefixes = counts.T
        return TokenEvidence(lengths, same, prefixes, self._expected, self._found)


def _label(dataset: Dataset, index: int) -> Array:
    if dataset.labels is None:
        raise DatasetError(f"{dataset.name} has no labels; add 'label' with the ids of tokens")
    label = np.atleast_1d(np.asarray(dataset.label(index)))
    if label.ndim != 1 or label.dtype.kind not in "iu":
        problem = f"the label is {label.dtype} {label.shape}; write the ids of its tokens"
        raise dataset.label_error(index, problem)
    if not (label >= 0).any():
        problem = "the label masks all its tokens, so that any answer is right"
        raise dataset.label_error(index, f"{problem}; leave the input out")
    return without_padding(label)


def _text_of(tokens: Array) -> str:
    """Return the first tokens as a text, "" without any."""
    shown = [str(token) for token in tokens[:_MOST_SHOWN]]
    if len(tokens) > _MOST_SHOWN:
        shown.append("…")
    return " ".join(shown)


class TextGeneration(Task):
    """Ids of greedy tokens; labels are the expected ids, negative where a place is masked."""

    def scorer(self, outputs: Sequence[Output], dataset: Dataset) -> Scorer:
        """Return a scorer for the first of the outputs."""
        return _TokenScorer(outputs[0], dataset)
