"""Scenarios of a manifest: how requests arrive, as MLPerf Inference defines it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Annotated, Any, ClassVar, Literal, get_args

from pydantic import AfterValidator, Field

from pytest_mlms.manifest.sources import is_remote
from pytest_mlms.manifest.types import Closed, Fraction, OneKey, PerSecond, Positive, Seconds

LOWEST_RATE = 0.001
HIGHEST_RATE = 1_000_000.0
"""Queries a second."""

_MOST_PER_QUERY = 65_536
_FINEST = 0.01
_COARSEST = 0.5
_LONGEST = 3600  # seconds of a time that somebody may mean

ScenarioName = Literal["single_stream", "offline", "multi_stream", "server", "replay"]


def _checked_rate(rate: float) -> float:
    if not LOWEST_RATE <= rate <= HIGHEST_RATE:
        advice = f"write {LOWEST_RATE:g} /s to {HIGHEST_RATE:,.0f} /s"
        raise ValueError(f"a rate of {rate:g} /s can't be generated; {advice}")
    return rate


def _checked_latency(seconds: float) -> float:
    if not 0 < seconds <= _LONGEST:
        raise ValueError("a latency is more than 0 s, and at most 60 min; write it, as in '15 ms'")
    return seconds


def _checked_delay(seconds: float) -> float:
    if seconds > _LONGEST:
        raise ValueError("a delay is at most 60 min; write it, as in '2 ms'")
    return seconds


def _checked_precision(share: float) -> float:
    if not _FINEST <= share <= _COARSEST:
        raise ValueError(f"a precision is {_FINEST:.0%} to {_COARSEST:.0%}; write it, as in '5 %'")
    return share


def _checked_arrivals(source: str) -> str:
    if is_remote(source):
        raise ValueError(f"{source!r} is no local file; write the path of a CSV file")
    return source


Rate = Annotated[PerSecond, AfterValidator(_checked_rate), Field(description="as in '200 /s'")]
Latency = Annotated[Seconds, AfterValidator(_checked_latency), Field(description="as in '15 ms'")]
Delay = Annotated[Seconds, AfterValidator(_checked_delay), Field(description="as in '2 ms'")]
Percentile = Annotated[
    float, Field(gt=0, lt=100, description="a percentile above 0 and below 100, as in 99")
]
Speed = Annotated[float, Field(ge=1e-3, le=1e6, description="a number from 0.001 to 1,000,000")]
Precision = Annotated[Fraction, AfterValidator(_checked_precision)]
PerQuery = Annotated[
    int, Field(ge=1, le=_MOST_PER_QUERY, description="a whole number from 1 to 65,536")
]
ArrivalsFile = Annotated[
    str,
    Field(min_length=1, description="a CSV file beside the manifest, with a time on each row"),
    AfterValidator(_checked_arrivals),
]


class SingleStream(Closed):
    """The next request is sent when the last one is done."""


class Offline(Closed):
    """All requests are there at once; they are made one after the other."""


class MultiStream(Closed):
    """The next query is sent when the last one is done; it has several samples, as one batch."""

    samples_per_query: PerQuery = 8


class OpenLoad(Closed):
    """Queries arrive when they are scheduled, however busy the model is.

    ``percentile`` of their latencies, counted from the scheduled time, must be within ``latency``
    where there is one.
    """

    latency: Latency | None = None
    percentile: Percentile = 99.0

    @property
    def share(self) -> float:
        """The percentile as a share, rounded once: 99.9 is 0.999."""
        return float(Decimal(repr(self.percentile)) / 100)


class Server(OpenLoad):
    """Queries arrive at random, at a ``rate``, as a Poisson process."""

    rate: Rate
    latency: Latency


class Replay(OpenLoad):
    """Queries arrive as a file says, ``speed`` times as fast."""

    arrivals: ArrivalsFile
    speed: Speed = 1.0


class Peak(OpenLoad):
    """The highest rate at which the percentile is within the latency, to a ``precision``."""

    latency: Latency
    precision: Precision = 0.05


Load = MultiStream | Server | Replay | Peak
"""A scenario whose queries are recorded one by one."""


class ScenarioEntry(OneKey):
    """A scenario: its name, or the name with its keys."""

    WORD: ClassVar[str] = "scenario"

    single_stream: SingleStream | None = None
    offline: Offline | None = None
    multi_stream: MultiStream | None = None
    server: Server | None = None
    replay: Replay | None = None
    peak: Peak | None = None

    def __repr__(self) -> str:
        """Return the name in quotes, as messages show it."""
        return repr(self.name)

    @property
    def load(self) -> Load | None:
        """Its keys where queries are recorded one by one, else None."""
        parameters: Any = self.parameters
        return parameters if isinstance(parameters, get_args(Load)) else None


class Batcher(Closed):
    """A dynamic batcher: queries that wait are joined to one call.

    A call has at most ``max_batch`` queries, and waits for them for ``max_delay`` at most from the
    arrival of the first one.
    """

    max_batch: Positive
    max_delay: Delay = 0.0


_WORDS = {
    "samples_per_query": "{}",
    "rate": "{}",
    "arrivals": "{}",
    "speed": "x{}",
    "latency": "{}ms",
    "percentile": "p{}",
    "precision": "{}",
}
"""How ids write the keys of a load, in this order."""

_DEFAULTS = {
    key: each.default for load in get_args(Load) for key, each in load.model_fields.items()
}


def labels_of(entries: Sequence[ScenarioEntry]) -> list[str]:
    """Return what ids call each scenario: its name and its keys, but for defaults.

    So the other scenarios don't change it, unless files of arrivals have one name but for signs.
    """
    labels = [label_of(entry.name, dict(entry.load or {})) for entry in entries]
    numbers = [labels[:index].count(label) + 1 for index, label in enumerate(labels)]
    pairs = zip(labels, numbers, strict=True)
    return [label if number == 1 else f"{label}-{number}" for label, number in pairs]


def label_of(name: str, keys: Mapping[str, Any]) -> str:
    """Return what ids call a scenario of this name with some keys of its load."""
    words = [name]
    for key, form in _WORDS.items():
        value = keys.get(key)
        if value is not None and value != _DEFAULTS[key]:
            number = value * 1e3 if key == "latency" else value
            words.append(form.format(f"{number:.12g}" if isinstance(value, float) else value))
    return re.sub(r"[^\w.-]+", "_", "-".join(words), flags=re.ASCII)
