"""Thresholds of a manifest: limits on quantities, and the cases that each limit judges.

The keys are made from the registry of quantities.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, TypeVar

from pydantic import Field, create_model

from pytest_mlms.core.quantities import QUANTITIES, Quantity, quantities_of
from pytest_mlms.core.records import Kind
from pytest_mlms.core.tasks import tasks
from pytest_mlms.core.units import UNITS
from pytest_mlms.manifest.scenarios import ScenarioName
from pytest_mlms.manifest.types import (
    Closed,
    Device,
    Fraction,
    NotNegative,
    Positive,
    Share,
    Short,
    value_type,
)

T = TypeVar("T")

tasks()  # those of other packages add quantities of their own


def _listed(value: Any) -> Any:
    return value if isinstance(value, list) else [value]


_MOST_LIMITS = 1000  # of a quantity

OneOrMore = Annotated[list[T], Field(max_length=_MOST_LIMITS), Short(_listed, {"items": True})]


class Threshold(Closed):
    """The cases that a limit judges: all that measure its quantity, less what these leave out."""

    devices: list[Device] = []
    frameworks: list[str] = []

    def judges(self, device: str, names: Collection[str]) -> bool:
        """Return whether it judges the cases on a device of a model that has these names."""
        is_of_model = not self.frameworks or any(name in self.frameworks for name in names)
        return is_of_model and device in (self.devices or [device])

    def filters(self) -> dict[str, Any]:
        """Return the fields of ``records.Limit`` that select cases."""
        found = {}
        for name in ("devices", "frameworks", "batch_sizes", "scenarios", "shapes"):
            if hasattr(self, name):
                found[name] = tuple(getattr(self, name))
        return found


class PerformanceThreshold(Threshold):
    """The cases of performance that a limit judges."""

    batch_sizes: list[Positive] = []
    scenarios: list[ScenarioName] = []
    shapes: list[str] = []


class SoakThreshold(Threshold):
    """The soaks that a limit judges."""

    batch_sizes: list[Positive] = []


_BASES: dict[Kind, type[Closed]] = {
    "accuracy": Threshold,
    "performance": PerformanceThreshold,
    "soak": SoakThreshold,
    "agreement": Closed,  # the entry of an agreement says which cases it judges
}


def _limit_model(quantity: Quantity) -> type[Closed]:
    """Return the model of a limit on a quantity."""
    title = quantity.name.title().replace("_", "")
    fields: dict[str, Any] = {quantity.bound: (value_type(quantity.unit, quantity.bound), ...)}
    return create_model(
        f"{quantity.kind.title()}{title}Limit",
        __base__=_BASES[quantity.kind],
        __doc__=f"Limit on the {quantity.description}: {_form(quantity.unit)}.",
        **fields,
    )


def _form(unit: str) -> str:
    """Return how a value in a unit is written."""
    if unit == "fraction":
        return "a share, as in 0.97 or 97 %"
    if unit in UNITS:
        return f"a number and one of {', '.join(UNITS[unit])}"
    return "a number, 0 or more"


def value_of(limit: Closed, quantity: Quantity) -> float:
    """Return the number of a limit on a quantity, in its base unit."""
    value: float = getattr(limit, quantity.bound)
    return value


def agreement_limits() -> dict[str, Quantity]:
    """Return the quantities of agreement that an entry may limit, by their keys there."""
    limited = [quantity for quantity in quantities_of("agreement") if quantity.limit_key]
    return {quantity.limit_key: quantity for quantity in limited}


def _described(quantity: Quantity, default: Any = None) -> Any:
    return Field(default=default, json_schema_extra={"description": quantity.description})


def _agreement_fields() -> dict[str, Any]:
    fields = {}
    for key, quantity in agreement_limits().items():
        model = _limit_model(quantity)
        fields[key] = (model | None, _described(quantity))
    return fields


def _upgrade_fields() -> dict[str, Any]:
    fields = {}
    for name, quantity in QUANTITIES.items():
        if quantity.upgrade:
            key = quantity.upgrade.key or name
            fields[key] = (Share | None, _described(quantity))
    return fields


def _threshold_fields() -> dict[str, Any]:
    fields = {}
    for quantity in QUANTITIES.values():
        if quantity.limit_key and quantity.kind != "agreement":
            limits: Any = OneOrMore[_limit_model(quantity)]  # type: ignore[misc]
            fields[quantity.limit_key] = (limits, _described(quantity, default=[]))
    return fields


if TYPE_CHECKING:  # mypy knows no models that are made at run time
    _AgreementLimits = Threshold
    _UpgradeTolerances = Closed
    _QuantityLimits = Closed
else:
    _AgreementLimits = create_model("AgreementLimits", __base__=Threshold, **_agreement_fields())
    _UpgradeTolerances = create_model("UpgradeTolerances", __base__=Closed, **_upgrade_fields())
    _QuantityLimits = create_model("QuantityLimits", __base__=Closed, **_threshold_fields())


class AgreementThreshold(_AgreementLimits):
    """Largest difference of every output from that of the reference, a framework.

    Everywhere |a - b| <= atol + rtol |b| must hold, of upgrades for this share of the ``inputs``
    at least. Further limits are on the classification: the
    share of inputs with the same best class, and divergences of the probabilities in nats.
    """

    reference: str
    rtol: NotNegative = 1e-4
    atol: NotNegative = 1e-5
    inputs: Fraction = 1.0

    def limits(self) -> dict[str, Closed]:
        """Return the further limits that are set, by their keys."""
        found = {}
        for key in agreement_limits():
            limit = getattr(self, key)
            if limit is not None:
                found[key] = limit
        return found


class UpgradeThresholds(_UpgradeTolerances):
    """How much worse a candidate stack may be than the baseline.

    Shares of the baseline; fractions such as top1 may lose as much of the whole. ``tolerance`` is
    that of latency. A quantity that is named here must be shown to be within its tolerance. Others,
    except latency, have defaults and fail only where they are surely worse.
    """

    def tolerances(self) -> dict[str, float]:
        """Return the tolerances that are set, by quantity."""
        found = {}
        for name, quantity in QUANTITIES.items():
            if quantity.upgrade:
                share = getattr(self, quantity.upgrade.key or name)
                if share is not None:
                    found[name] = share
        return found


class Entry(NamedTuple):
    """One limit or agreement: its key under ``thresholds``, and its place in the key's list."""

    key: str
    number: int
    threshold: Threshold


class Thresholds(_QuantityLimits):
    """Limits that items must meet: for each quantity one limit, or a list for different cases."""

    agreement: OneOrMore[AgreementThreshold] = []
    upgrade: UpgradeThresholds = UpgradeThresholds()

    def entries(self) -> Iterator[Entry]:
        """Yield all limits and agreements, in the order of the registry."""
        for key in type(self).model_fields:
            if key != "upgrade":
                for number, threshold in enumerate(getattr(self, key)):
                    yield Entry(key, number, threshold)
