"""lm-eval's logs of samples (``--log_samples``): read, and judged as pairs of documents.

A log has a line for each document and filter. Its keys are those that ``lm_eval/evaluator.py`` of
EleutherAI's lm-evaluation-harness writes; the values of the metrics are beside them.
"""

from __future__ import annotations

import contextlib
import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from pytest_mlms.core.arrays import Array
from pytest_mlms.core.errors import MlmsError
from pytest_mlms.core.quantities import upgrade_rules
from pytest_mlms.core.records import Comparison, Verdict
from pytest_mlms.core.serialization import parse_json, read_line
from pytest_mlms.decide.upgrade.decision import compare_accuracy
from pytest_mlms.decide.upgrade.paired_evidence import compare_figure
from pytest_mlms.measure.evaluate.scoring import resampled_figures
from pytest_mlms.measure.evaluate.tasks.task import Evidence

_FILE = re.compile(r"samples_(?P<task>.+)_(?P<date>\d{4}-\d\d-\d\dT[^_]+)\.jsonl")
_HASHES = {"doc_hash": "documents", "target_hash": "labels", "prompt_hash": "prompts"}
_HIGHER = {
    **dict.fromkeys(("acc", "acc_norm", "acc_bytes", "acc_mutual_info", "exact_match", "f1"), True),
    "brier_score": False,
}
"""Metrics of which higher values are better, or lower ones, where no results file says so."""
_AS_FIGURE = "answer_f1"
"""A quantity as the mean of a metric is one: a fraction that counts for inputs."""
_SEED = 0
_MOST_NAMED = 5


class _Sample(NamedTuple):
    """A line of a log: its hashes, the numbers of its metrics, and how answers were asked for.

    ``answers`` is their number for each request, 0 where untold, and ``settings`` those of the
    generation, as a text.
    """

    hashes: Mapping[str, Any]
    values: Mapping[str, float | None]
    answers: int
    settings: str


Samples = Mapping[int | str, _Sample]
"""The lines of a filter by ``doc_id``."""


@dataclass(frozen=True)
class SampleLog:
    """A log of a task: its lines by filter, and whether higher values of a metric are better."""

    path: Path
    filters: Mapping[str, Samples]
    higher: Mapping[str, bool]


class MetricVerdict(NamedTuple):
    """The verdict on a metric of a task by one of its filters."""

    task: str
    filter: str
    compared: Comparison


def find_logs(path: Path) -> dict[str, list[Path]]:
    """Return the logs of each task in a file or folder, the newest first.

    Raises MlmsError where there is none, or where they are of several models.
    """
    paths = [path] if path.is_file() else sorted(path.rglob("samples_*.jsonl"), reverse=True)
    logs: dict[str, list[Path]] = {}
    for each in paths:
        if found := _FILE.fullmatch(each.name):
            logs.setdefault(found["task"], []).append(each)
    if not logs:
        advice = "name a file samples_TASK_DATE.jsonl of lm_eval --log_samples, or its folder"
        raise MlmsError(f"{path}: there is no log of samples; {advice}")
    folders = sorted({each.parent for each in paths})
    if len(folders) > 1:
        raise MlmsError(f"{path}: there are logs in {len(folders)} folders; name {folders[0]}")
    return logs


def read_log(path: Path) -> SampleLog:
    """Read a log, and the results of the same run beside it, if there are any.

    Raises MlmsError with the line that isn't as lm-eval writes it.
    """
    filters: dict[str, dict[int | str, _Sample]] = {}
    places: dict[tuple[str, Any], int] = {}
    try:
        with path.open("rb") as file:
            for number, text in enumerate(file, 1):
                try:
                    name, doc, sample = _sample(read_line(text))
                except ValueError as error:
                    raise MlmsError(f"{path}:{number}: {error}") from None
                first = places.setdefault((name, doc), number)
                if first != number:
                    problem = f"document {doc} has filter {name!r} in line {first}, too"
                    raise MlmsError(f"{path}:{number}: {problem}; log each run into its own file")
                filters.setdefault(name, {})[doc] = sample
    except OSError as error:
        raise MlmsError(f"{path}: {error.strerror}") from error
    if not filters:
        raise MlmsError(f"{path}: there is no sample in it; run lm_eval again")
    return SampleLog(path, filters, _directions(path))


def _sample(line: Mapping[str, Any] | None) -> tuple[str, int | str, _Sample]:
    """Return a line's filter, its document, and the rest; raises ValueError."""
    if line is None:
        raise ValueError("it is no JSON object, or cut off; run lm_eval again")
    doc, metrics = line.get("doc_id"), line.get("metrics")
    if isinstance(doc, bool) or not isinstance(doc, int | str):
        raise ValueError("there is no number in 'doc_id'; name a log of lm_eval --log_samples")
    if not isinstance(metrics, list) or not all(isinstance(name, str) for name in metrics):
        raise ValueError("there is no list of 'metrics'; log samples by a newer lm_eval")
    requests = line.get("resps")
    first = requests[0] if isinstance(requests, list) and requests else None
    hashes = {name: line.get(name) for name in _HASHES}
    values = {name: _number(line.get(name)) for name in metrics}
    answers = len(first) if isinstance(first, list) else 0
    sample = _Sample(hashes, values, answers, _settings(line.get("arguments")))
    return str(line.get("filter", "none")), doc, sample


def _settings(arguments: Any) -> str:
    """Return the settings among the arguments of requests, whose other arguments are texts."""
    requests = arguments.values() if isinstance(arguments, dict) else ()
    parts = [part for each in requests if isinstance(each, dict) for part in each.values()]
    return json.dumps([part for part in parts if isinstance(part, dict)], sort_keys=True)


def _number(value: Any) -> float | None:
    """Return a metric as a number, None where it is none; numpy's are written as texts."""
    if isinstance(value, str):
        value = {"True": 1.0, "False": 0.0}.get(value, value)
    with contextlib.suppress(ValueError, OverflowError):
        return float(value) if isinstance(value, int | float | str) else None
    return None


def _directions(path: Path) -> dict[str, bool]:
    """Return whether higher is better by metric, as the results of a log's run say."""
    found = _FILE.fullmatch(path.name)
    if found is None:
        return {}
    for results in sorted(path.parent.glob(f"*_{found['date']}.json")):
        with contextlib.suppress(OSError, ValueError, AttributeError):
            told = parse_json(results.read_bytes()).get("higher_is_better", {})
            of_task = told.get(found["task"], {}).items()
            return {name: value for name, value in of_task if isinstance(value, bool)}
    return {}


def judge_logs(
    task: str, a: SampleLog, b: SampleLog, tolerance: float | None = None
) -> Iterator[MetricVerdict]:
    """Yield the verdict on each filter and metric of a task that either side has.

    ``tolerance`` is the share by which the mean over documents may be worse; None: that of an exact
    match. Where documents or prompts aren't the same on both sides, nothing is decided.
    """
    share = upgrade_rules("inputs")["exact_match"].tolerance if tolerance is None else tolerance
    higher = {**_HIGHER, **b.higher, **a.higher}
    for name in dict.fromkeys([*a.filters, *b.filters]):
        sides = [log.filters.get(name, {}) for log in (a, b)]
        lacking = _unpaired(*sides)
        metrics = [key for side in sides for sample in side.values() for key in sample.values]
        for metric in dict.fromkeys(metrics):
            values = [_values(metric, side, sides[0] or side) for side in sides]
            undecided = Comparison(
                quantity=metric,
                a=float(np.mean(values[0])) if len(values[0]) else math.nan,
                b=float(np.mean(values[1])) if len(values[1]) else math.nan,
                unit="fraction",
                tolerance=share,
                gate=True,
                replicates=max(map(len, sides)),
                of="inputs",
                lacking=lacking or _unusable(metric, sides, values, metric in higher),
            )
            if not undecided.lacking:
                undecided = _compared(undecided, values, higher[metric], list(sides[0]))
            yield MetricVerdict(task, name, undecided)


def _values(metric: str, side: Samples, order: Samples) -> Array:
    """Return the numbers of a metric in the order of the documents; NaN where there is none."""
    found = [side[doc].values.get(metric) for doc in order if doc in side]
    return np.array([math.nan if value is None else value for value in found])


def _unpaired(a: Samples, b: Samples) -> str:
    """Return why documents are no pairs, "" where they are."""
    for name, ours, others in (("A", a, b), ("B", b, a)):
        alone = [doc for doc in ours if doc not in others]
        if alone:
            return f"only {name} has {_named(alone)}; evaluate the same documents"
    for key, what in _HASHES.items():
        if any(not each.hashes[key] for side in (a, b) for each in side.values()):
            return f"a log has no {key!r}, which tells that {what} are the same on both sides"
        other = [doc for doc in a if a[doc].hashes[key] != b[doc].hashes[key]]
        if other:
            text = f"the {what} differ for {_named(other)}"
            return f"{text}; use the same task, template and examples"
    counts = [{each.answers for each in side.values()} for side in (a, b)]
    if counts[0] != counts[1]:
        texts = [", ".join(map(str, sorted(each))) for each in counts]
        return f"A has {texts[0]} answers to a request, and B {texts[1]}; use the same repeats"
    other = [doc for doc in a if a[doc].settings != b[doc].settings]
    if other:
        return f"the settings of the generation differ for {_named(other)}; use the same gen_kwargs"
    return ""


def _unusable(
    metric: str, sides: Sequence[Samples], values: Sequence[Array], is_known: bool
) -> str:
    """Return why the numbers of a metric can't be judged, "" where they can."""
    problems: list[tuple[Callable[[float | None], bool], str]] = [
        (lambda value: value is None, "no number, which may only count over all documents"),
        (lambda value: value is not None and not math.isfinite(value), "NaN or infinity"),
    ]
    for name, side in zip("AB", sides, strict=True):
        for has_it, what in problems:
            docs = [doc for doc, each in side.items() if has_it(each.values.get(metric))]
            if docs:
                return f"{name} has {what}, for {_named(docs)}"
    if min(map(np.min, values)) < 0 or max(map(np.max, values)) > 1:
        return "it isn't within 0 and 1, so that nothing bounds what other documents may lose"
    if not is_known:
        return "nothing says whether higher is better; keep results_DATE.json beside the log"
    return ""


def _compared(
    undecided: Comparison, values: Sequence[Array], higher: bool, docs: Sequence[int | str]
) -> Comparison:
    """Return the verdict on a metric, whose values are in [0, 1] and in one order of documents."""
    good = [each if higher else 1 - each for each in values]
    if all(np.isin(each, (0, 1)).all() for each in values):
        right = [each == 1 for each in good]
        found = compare_accuracy(undecided.quantity, right[0], right[1], undecided.tolerance)
    else:
        samples = resampled_figures([_Mean(each) for each in good], _SEED)
        means = [float(each.mean()) for each in good]
        figure = undecided.but(quantity=_AS_FIGURE, a=means[0], b=means[1])
        found = compare_figure(figure, samples[0][_AS_FIGURE], samples[1][_AS_FIGURE])
    ends = (found.low, found.high) if higher else (-found.high, -found.low)
    lost = [doc for doc, a, b in zip(docs, *good, strict=True) if b < a]
    texts = [f"worse for {_named(lost)}"] if lost else []
    if found.verdict is Verdict.INCONCLUSIVE:
        texts.append(found.lacking or "more documents decide it")
    return undecided.but(
        ratio=found.ratio if higher else -found.ratio,
        low=ends[0],
        high=ends[1],
        verdict=found.verdict,
        about="; ".join(texts),
    )


def _named(docs: Sequence[int | str]) -> str:
    names = ", ".join(map(str, docs[:_MOST_NAMED]))
    more = ", …" if len(docs) > _MOST_NAMED else ""
    return f"{len(docs):,} documents (doc_id {names}{more})"


@dataclass(frozen=True, eq=False)
class _Mean(Evidence):
    """A number of each document, whose mean counts."""

    values: Array

    def __len__(self) -> int:
        return len(self.values)

    def figures(self, counts: Array) -> Mapping[str, Array]:
        """Return the means of samples of the documents."""
        return {_AS_FIGURE: np.asarray(counts, np.float64) @ self.values / len(self.values)}

    @property
    def losses(self) -> Array:
        return np.asarray(1 - self.values)

    def columns(self) -> Mapping[str, Sequence[Any]]:
        """Return none: documents are named by their logs."""
        return {}
