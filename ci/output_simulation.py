"""Simulation of the comparison of outputs: how often faults on few inputs are found.

Both sides are networks of float32 whose sums are taken in another order by the candidate, so that
they differ by real rounding. Faults are put on some of 600 inputs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from gate_report import row_of
from numpy.typing import NDArray

from pytest_mlms.core.records import Verdict
from pytest_mlms.decide.upgrade.output_verdict import Circumstances, agreement_of
from pytest_mlms.measure.evaluate.closeness import Rule
from pytest_mlms.measure.evaluate.output_sweep import OutputSweep

__all__ = ["FAULTS", "HEADER", "OUTPUTS", "Sides", "output_report", "sides_of", "verdict_on"]

Array = NDArray[Any]

INPUTS = 600
_BATCH = 300
_SAMPLE = 300
_NETWORKS = 25
_WIDTH = 96
_LAYERS = 12
_SHARES = (0.003, 0.01, 0.05)

HEADER = (
    "output",
    "rounding alone: REGRESSED",
    *(f"a fault on {share:.2g} %: found" for share in (100 * each for each in _SHARES)),
    "on 0.3 % by a sample of 300",
)


class Sides(NamedTuple):
    """The outputs of both sides for all inputs, which differ by rounding."""

    a: Array
    b: Array


def _layers(random: np.random.Generator) -> list[Array]:
    scale = np.sqrt(2 / _WIDTH)
    return [
        (scale * random.standard_normal((_WIDTH, _WIDTH))).astype(np.float32)
        for _ in range(_LAYERS)
    ]


def _run(inputs: Array, layers: Sequence[Array], order: Array) -> Array:
    """Return the last layer's values, whose sums are taken in an order."""
    values = inputs
    for weights in layers:
        values = np.maximum(values[:, order] @ weights[order], np.float32(0))
    centred: Array = values - values.mean(axis=1, keepdims=True)
    return centred


def _boxes_and_scores(values: Array) -> Array:
    """Return boxes in pixels beside a score of each, a row an attribute."""
    boxes = np.float32(320) + 100 * values[:, :64].reshape(len(values), 4, 16)
    scores = 1 / (1 + np.exp(-values[:, 64:80].reshape(len(values), 1, 16)))
    return np.concatenate([boxes, scores], axis=1).astype(np.float32)


def _softmax(values: Array) -> Array:
    powers = np.exp(values - values.max(axis=1, keepdims=True))
    return np.asarray(powers / powers.sum(axis=1, keepdims=True))


OUTPUTS: Mapping[str, Callable[[Array], Array]] = {
    "logits of 10 classes": lambda values: values[:, :10],
    "probabilities of 96 classes": _softmax,
    "a number (regression)": lambda values: values[:, :1],
    "boxes in pixels beside scores": _boxes_and_scores,
}
"""The last layer's values as outputs of some kinds of models."""


def _scaled(row: Array, random: np.random.Generator) -> Array:
    return row * np.float32(0.99)


def _one_value(row: Array, random: np.random.Generator) -> Array:
    """Change a value by a hundredth of its like values."""
    wrong = row.copy().reshape(-1, row.shape[-1])
    line = random.integers(len(wrong))
    place = random.integers(wrong.shape[-1])
    wrong[line, place] += np.float32(0.01) * np.abs(wrong[line]).max()
    return wrong.reshape(row.shape)


def _nan(row: Array, random: np.random.Generator) -> Array:
    wrong = row.copy()
    wrong.flat[random.integers(wrong.size)] = np.nan
    return wrong


FAULTS: Sequence[Callable[[Array, np.random.Generator], Array]] = (_scaled, _one_value, _nan)
"""Faults in the output of an input: all of it 1 % less, a value 1 % off, NaN."""


def sides_of(output: str, random: np.random.Generator) -> Sides:
    """Return both sides of a network that is drawn, for inputs that are drawn."""
    layers = _layers(random)
    inputs = random.standard_normal((INPUTS, _WIDTH)).astype(np.float32)
    kind = OUTPUTS[output]
    order = np.arange(_WIDTH)
    a = kind(_run(inputs, layers, order))
    return Sides(a, kind(_run(inputs, layers, random.permutation(order))))


def verdict_on(sides: Sides) -> Verdict:
    """Return the gate's verdict on outputs, compared batch by batch."""
    sweep = OutputSweep({"y": Rule()})
    for first in range(0, len(sides.a), _BATCH):
        rows = slice(first, first + _BATCH)
        names = [f"row {row}" for row in range(first, first + len(sides.a[rows]))]
        sweep.add({"y": sides.a[rows]}, {"y": sides.b[rows]}, names)
    return agreement_of(sweep, Circumstances(of=INPUTS)).verdict


def _share_regressed(
    library: Sequence[Sides], share: float, inputs: int, decisions: int, random: np.random.Generator
) -> str:
    """Return how many of the decisions are REGRESSED, with a fault on a share of all inputs."""
    regressed = 0
    for _ in range(decisions):
        sides = library[int(random.integers(len(library)))]
        chosen = random.permutation(INPUTS)
        wrong = sides.b.copy()
        fault = FAULTS[int(random.integers(len(FAULTS)))]
        for row in chosen[: max(1, round(share * INPUTS)) if share else 0]:
            wrong[row] = fault(wrong[row], random)
        seen = random.permutation(INPUTS)[:inputs]
        regressed += verdict_on(Sides(sides.a[seen], wrong[seen])) is Verdict.REGRESSED
    return f"{regressed:,} of {decisions:,}"


def output_report(decisions: int, seed: int) -> Iterator[str]:
    """Yield a table with a row for each kind of output."""
    yield row_of(HEADER)
    yield row_of(["---"] * len(HEADER))
    for number, output in enumerate(OUTPUTS):
        random = np.random.default_rng([seed, number])
        library = [sides_of(output, random) for _ in range(_NETWORKS)]
        cells = [
            _share_regressed(library, share, INPUTS, decisions, random) for share in (0, *_SHARES)
        ]
        cells.append(_share_regressed(library, _SHARES[0], _SAMPLE, decisions, random))
        yield row_of([output, *cells])
