"""The record of a search: what each process was, and all that was asked of it; and its replay.

The same record gives the same answer, as the search knows nothing else.
"""

from __future__ import annotations

import json
import math
import time
from collections import defaultdict, deque
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, Protocol

from pydantic import BeforeValidator, Field, FiniteFloat, TypeAdapter

from pytest_mlms.core.errors import MlmsError
from pytest_mlms.core.records import Estimate
from pytest_mlms.core.serialization import to_plain
from pytest_mlms.core.statistics import Interval
from pytest_mlms.decide.advice.measuring import Opened
from pytest_mlms.decide.advice.search import EndOfRecord, Process

Keep = Callable[..., None]
"""Adds a line of these fields to a record."""


class UnknownError(MlmsError):
    """A candidate that a history knows too little of."""


class Answers(NamedTuple):
    """The estimates of a candidate's accuracy, as items have them and ``wide`` as advice needs."""

    estimates: dict[str, Estimate]
    wide: dict[str, Estimate]
    seconds: float


class Source(Protocol):
    """Questions of a run about its candidates, by their numbers; each may raise MlmsError."""

    def prepare(self, number: int) -> None:
        """Fetch the candidate's files, and make its stack."""

    def answers(self, number: int, risk: float) -> Answers:
        """Return what is known of its answers."""

    def measure(self, number: int) -> Process:
        """Return one more process."""

    def reach(self, number: int, quantity: str, confidence: float) -> Interval:
        """Return what its calls tell of a percentile."""

    def turn(self) -> AbstractContextManager[None]:
        """Hold the device for a round."""


class Measured:
    """Candidates that are measured, and recorded; ``opening`` opens that of a number."""

    def __init__(
        self,
        labels: Sequence[str],
        opening: Callable[[int], Opened],
        hold: Callable[[], AbstractContextManager[None]],
        keep: Keep,
    ) -> None:
        self.turn = hold
        self._labels = labels
        self._opening = opening
        self._keep = keep
        self._opened: dict[int, Opened] = {}

    def prepare(self, number: int) -> None:
        """Open a candidate."""
        try:
            self._opened[number] = self._opening(number)
        except MlmsError as error:
            self._keep(kind="refused", candidate=self._labels[number], error=str(error))
            raise
        self._keep(kind="prepared", candidate=self._labels[number])

    def answers(self, number: int, risk: float) -> Answers:
        """Measure a candidate's accuracy."""
        began = time.monotonic()
        fields: dict[str, Any] = {"candidate": self._labels[number]}
        try:
            estimates, wide = self._opened[number].answers(risk)
        except MlmsError as error:
            self._keep(kind="answers", error=str(error), **fields)
            raise
        found = Answers(estimates, wide, time.monotonic() - began)
        self._keep(kind="answers", risk=risk, **to_plain(found), **fields)
        return found

    def measure(self, number: int) -> Process:
        """Measure one more process."""
        began = time.monotonic()
        fields: dict[str, Any] = {"candidate": self._labels[number]}
        try:
            values, slack = self._opened[number].measure()
        except MlmsError as error:
            self._keep(kind="process", error=str(error), **fields)
            raise
        process = Process(values, time.monotonic() - began, slack)
        self._keep(kind="process", **process._asdict(), **fields)
        return process

    def reach(self, number: int, quantity: str, confidence: float) -> Interval:
        """Return what the calls of all processes so far tell."""
        found = self._opened[number].reach(quantity, confidence)
        fields = {"quantity": quantity, "confidence": confidence, "interval": [*found]}
        self._keep(kind="calls", candidate=self._labels[number], **fields)
        return found

    def doubts(self, number: int) -> str:
        """Return what a person should know of a candidate's processes."""
        return self._opened[number].doubts if number in self._opened else ""


class AnotherQuestion(Exception):
    """A record has no answer to what is asked: it fails no candidate, as an MlmsError would."""


class Replayed:
    """Candidates of a record, in the order in which they were measured.

    ``asked`` has the quantities that a process of each candidate must tell. Everything raises
    AnotherQuestion where it is not what was asked when the record was made.
    """

    def __init__(
        self, path: Path, objective: str, labels: Sequence[str], asked: Sequence[Collection[str]]
    ) -> None:
        self.turn: Callable[[], AbstractContextManager[None]] = nullcontext
        self._path = path
        self._labels = labels
        self._asked = asked
        self._lines: defaultdict[tuple[str, str], deque[Any]] = defaultdict(deque)
        for line in read_record(path):
            self._lines[line.kind, line.candidate].append(line)
        question = self._next("question", "")
        self._check((question.objective, question.candidates) == (objective, [*labels]))

    def prepare(self, number: int) -> None:
        """Raise what opening the candidate raised."""
        refused = self._lines["refused", self._labels[number]]
        if refused:
            raise MlmsError(refused[0].error)

    def answers(self, number: int, risk: float) -> Answers:
        """Return the recorded accuracy of a candidate."""
        line = self._next("answers", self._labels[number])
        self._check(line.risk == risk)
        return Answers(line.estimates, line.wide, line.seconds)

    def measure(self, number: int) -> Process:
        """Return the next process; raises EndOfRecord after the last one."""
        if not self._lines["process", self._labels[number]]:
            raise EndOfRecord
        line = self._next("process", self._labels[number])
        self._check({*self._asked[number]} <= line.values.keys())
        return Process(line.values, line.seconds, line.slack)

    def reach(self, number: int, quantity: str, confidence: float) -> Interval:
        """Return what the calls told."""
        line = self._next("calls", self._labels[number])
        self._check((line.quantity, line.confidence) == (quantity, confidence))
        return Interval(*line.interval)

    def doubts(self, number: int) -> str:
        """Return nothing: the calls aren't in the record."""
        return ""

    def _next(self, kind: str, label: str) -> Any:
        """Return the next line; raises MlmsError where that has an error."""
        lines = self._lines[kind, label]
        self._check(bool(lines))
        line = lines.popleft()
        if isinstance(line, _Failed):
            raise MlmsError(line.error)
        return line

    def _check(self, is_so: bool) -> None:
        if not is_so:
            problem = "it is the record of another question"
            raise AnotherQuestion(f"{self._path}: {problem}; repeat the command that made it")


def _without_null(plain: Any) -> Any:
    """Return estimates with NaN for null, which infinity and NaN became in JSON."""
    if not isinstance(plain, dict) or not all(isinstance(each, dict) for each in plain.values()):
        return plain
    ends = dict.fromkeys(("value", "low", "high"), math.nan)
    return {
        name: {**each, **{key: nan for key, nan in ends.items() if each.get(key) is None}}
        for name, each in plain.items()
    }


_Amount = Annotated[float, Field(ge=0, allow_inf_nan=False)]
_Estimates = Annotated[dict[str, Estimate], BeforeValidator(_without_null)]


class Asked(NamedTuple):
    """The line of what was asked."""

    kind: Literal["question"]
    objective: str
    candidates: list[str]
    seed: int | None = None
    set_aside: Mapping[str, str] = {}
    candidate: str = ""


class _Prepared(NamedTuple):
    kind: Literal["prepared"]
    candidate: str


class _Failed(NamedTuple):
    kind: Literal["refused", "answers", "process"]
    candidate: str
    error: Annotated[str, Field(min_length=1)]


class _AnswersLine(NamedTuple):
    kind: Literal["answers"]
    candidate: str
    risk: float
    estimates: _Estimates
    wide: _Estimates
    seconds: _Amount


class _ProcessLine(NamedTuple):
    kind: Literal["process"]
    candidate: str
    values: dict[str, FiniteFloat]
    seconds: _Amount
    slack: dict[str, _Amount]


class _Calls(NamedTuple):
    kind: Literal["calls"]
    candidate: str
    quantity: str
    confidence: float
    interval: tuple[float, float]


_Line = Asked | _Prepared | _Failed | _AnswersLine | _ProcessLine | _Calls
_LINES: TypeAdapter[_Line] = TypeAdapter(_Line)


def recorded_question(path: Path) -> Asked | None:
    """Return the question of a record, None where it has none; raises as ``read_record``."""
    return next((line for line in read_record(path) if isinstance(line, Asked)), None)


def read_record(path: Path) -> list[_Line]:
    """Return the lines of a record. Raises MlmsError for a file that is none, or is damaged."""
    try:
        texts = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise MlmsError(f"{path} can't be read: {error}; name the record of an advice") from error
    found = []
    for number, text in enumerate(texts, 1):
        try:
            found.append(_LINES.validate_python(json.loads(text)))
        except (ValueError, RecursionError):
            problem = "this is no line of an advice, or a damaged one"
            raise MlmsError(f"{path}:{number}: {problem}; name its record") from None
    return found
