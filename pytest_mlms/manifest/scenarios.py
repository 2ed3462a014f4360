"""Scenarios of a manifest, as MLPerf Inference defines them, and the points of its cases."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, NamedTuple, get_args

from pydantic import AfterValidator, Field, model_validator

from pytest_mlms.core.quantities import QUANTITIES
from pytest_mlms.core.records import Kind, Limit
from pytest_mlms.manifest.sources import is_remote
from pytest_mlms.manifest.types import Closed, Fraction, OneKey, PerSecond, Positive, Seconds

if TYPE_CHECKING:
    from pytest_mlms.manifest.schema import Manifest, Model

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
    where there is one. Of generations that of the times to the first token must be within ``ttft``,
    and that of the times for each further token within ``tpot``.
    """

    latency: Latency | None = None
    ttft: Latency | None = None
    tpot: Latency | None = None
    percentile: Percentile = 99.0

    @property
    def limits(self) -> dict[str, float]:
        """The limits in seconds, by the quantity that each is on."""
        named = {"query_latency": self.latency, "query_ttft": self.ttft, "query_tpot": self.tpot}
        return {name: limit for name, limit in named.items() if limit is not None}

    @property
    def share(self) -> float:
        """The percentile as a share, rounded once: 99.9 is 0.999."""
        return float(Decimal(repr(self.percentile)) / 100)


class LimitedLoad(OpenLoad):
    """Queries that have one limit at least."""

    @model_validator(mode="after")
    def _check_limits(self) -> LimitedLoad:
        if not self.limits:
            advice = "write 'latency: …', as in '15 ms'"
            tokens = "'ttft: …' and 'tpot: …' of a model that generates"
            raise ValueError(f"'latency' is missing; {advice}, or {tokens}")
        return self


class Server(LimitedLoad):
    """Queries arrive at random, at a ``rate``, as a Poisson process."""

    rate: Rate


class Replay(OpenLoad):
    """Queries arrive as a file says, ``speed`` times as fast."""

    arrivals: ArrivalsFile
    speed: Speed = 1.0


class Peak(LimitedLoad):
    """The highest rate at which the percentile is within each limit, to a ``precision``.

    One of them is on what waits: an answer that waited has its tokens as fast as any other.
    """

    precision: Precision = 0.05

    @model_validator(mode="after")
    def _check_wait(self) -> Peak:
        if self.latency is None and self.ttft is None:
            reason = "tpot alone has no peak, as it doesn't grow with the wait of queries"
            raise ValueError(f"{reason}; write 'ttft: …' or 'latency: …' beside it")
        return self


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


_TIMES = ("latency", "ttft", "tpot")

_WORDS = {
    "samples_per_query": "{}",
    "rate": "{}",
    "arrivals": "{}",
    "speed": "x{}",
    "latency": "{}ms",
    "ttft": "ttft{}ms",
    "tpot": "tpot{}ms",
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
            number = value * 1e3 if key in _TIMES else value
            words.append(form.format(f"{number:.12g}" if isinstance(value, float) else value))
    return re.sub(r"[^\w.-]+", "_", "-".join(words), flags=re.ASCII)


class Point(NamedTuple):
    """A batch size, for performance the label of a scenario, and a shape where there are some."""

    batch_size: int
    scenario: str | None
    shape: str | None = None


def points_of(kind: Kind, manifest: Manifest) -> list[Point]:
    """Return the points of one kind: of those that are timed, each with each shape.

    A dataset is one of the shapes: inputs are drawn for the others.
    """
    points = _points_of_a_shape(kind, manifest)
    named = manifest.evaluate.named_shapes
    if kind not in ("performance", "upgrade", "soak") or not named:
        return points
    shapes = [*([None] if manifest.dataset else []), *named]
    return [point._replace(shape=shape) for point in points for shape in shapes]


def _points_of_a_shape(kind: Kind, manifest: Manifest) -> list[Point]:
    evaluate = manifest.evaluate
    if kind == "performance":
        points = []
        for label, entry in evaluate.scenario_labels.items():
            sizes = [min(evaluate.batch_sizes)] if entry.load else evaluate.batch_sizes
            points += [Point(size, label) for size in sizes]
        return points
    if kind in ("upgrade", "trace", "soak"):
        points = [Point(size, None) for size in evaluate.batch_sizes]
        return points + _compared_loads(manifest) if kind == "upgrade" else points
    if manifest.has_state:  # a batch of N goes through N sequences side by side
        return [Point(min(evaluate.batch_sizes), None)]
    return [Point(max(evaluate.batch_sizes), None)]


def _compared_loads(manifest: Manifest) -> list[Point]:
    """Return the loads that an upgrade compares."""
    evaluate = manifest.evaluate
    size = min(evaluate.batch_sizes)
    labels = evaluate.scenario_labels.items()
    return [Point(size, label) for label, entry in labels if entry.load]


def measures(kind: Kind, quantity: str, load: Load | None, device: str) -> bool:
    """Return whether a case measures a quantity, as far as its load and its device decide that.

    A peak is searched by queries alone, and each round of an upgrade has calls beside its load.
    """
    known = QUANTITIES.get(quantity)
    if known is not None and known.of_gpu and device == "cpu":
        return False
    if quantity == "goodput" and not (isinstance(load, OpenLoad) and load.limits):
        return False
    if known is not None and known.under_load:
        return load is not None and isinstance(load, Peak) == (quantity == "peak_rate")
    if kind == "upgrade" or load is None:
        return True
    return not isinstance(load, Peak) and quantity not in _OF_FURTHER_CALLS


_OF_FURTHER_CALLS = ("memory_growth", "batch_agreement", "device_time")
"""Quantities that take further calls one after the other, which loads don't make."""


def is_judged(
    limit: Limit, kind: Kind, manifest: Manifest, model: Model, device: str, point: Point
) -> bool:
    """Return whether a limit judges a case of a kind."""
    load, name = None, None
    if point.scenario is not None:
        entry = manifest.evaluate.scenario_labels[point.scenario]
        load, name = entry.load, entry.name
    return (
        measures(kind, limit.quantity, load, device)
        and _selects(limit.batch_sizes, point.batch_size)
        and _selects(limit.scenarios, name)
        and _selects(limit.shapes, point.shape)
        and _selects(limit.devices, device)
        and (not limit.frameworks or not model.names.isdisjoint(limit.frameworks))
    )


def _selects(selected: Collection[Any], value: Any) -> bool:
    """Return whether a limit's filter selects a value; an empty filter selects all."""
    return not selected or value in selected


def idle_text(limit: Limit, manifest: Manifest) -> str:
    """Return what is wrong with a limit that judges no case; "" where it judges one."""
    quantity = QUANTITIES[limit.quantity]
    for point in points_of(quantity.kind, manifest):
        for model in manifest.models:
            for device in manifest.evaluate.devices:
                if is_judged(limit, quantity.kind, manifest, model, device, point):
                    return ""
    names = ("batch_sizes", "scenarios", "shapes", "devices")
    filters = {name: getattr(limit, name) for name in names}
    named = [f"{name} {', '.join(map(str, each))}" for name, each in filters.items() if each]
    if not named:
        return f"{quantity.limit_key} judges nothing; no scenario here measures it: add another"
    least = min(manifest.evaluate.batch_sizes)
    return (
        f"{quantity.limit_key} judges nothing; no case that measures it has {' and '.join(named)} "
        f"(under load the batch size is {least}): correct these"
    )
