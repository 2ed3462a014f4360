"""Tests of the thresholds, whose keys are made from the registry of quantities."""

from __future__ import annotations

import pytest

from pytest_mlms.core.quantities import QUANTITIES, Quantity
from pytest_mlms.manifest.thresholds import (
    AgreementThreshold,
    Entry,
    Threshold,
    Thresholds,
    UpgradeThresholds,
    agreement_limits,
    value_of,
)

LIMITED = [quantity for name, quantity in QUANTITIES.items() if quantity.limit_key == name]
EXAMPLES = {
    "fraction": "50 %",
    "s": "1 ms",
    "B": "1 MiB",
    "J": "2 J",
    "/s": "1 /s",
    "dB": "28 dB",
    "": 3,
}
VALUES = {"fraction": 0.5, "s": 0.001, "B": 2.0**20, "J": 2.0, "/s": 1.0, "dB": 28.0, "": 3.0}


def test_thresholds_have_a_key_for_every_quantity_that_is_limited() -> None:
    keys = {quantity.limit_key for quantity in LIMITED}
    assert set(Thresholds.model_fields) == {*keys, "agreement", "upgrade"}


@pytest.mark.parametrize("quantity", LIMITED, ids=lambda quantity: quantity.name)
def test_a_limit_is_read_in_the_base_unit(quantity: Quantity) -> None:
    limit = {quantity.bound: EXAMPLES[quantity.unit]}
    thresholds = Thresholds.model_validate({quantity.name: limit})
    (entry,) = thresholds.entries()
    assert entry.key == quantity.name
    assert value_of(entry.threshold, quantity) == VALUES[quantity.unit]


@pytest.mark.parametrize("quantity", LIMITED, ids=lambda quantity: quantity.name)
def test_a_limit_on_the_other_side_is_an_error(quantity: Quantity) -> None:
    wrong = {"min": "max", "max": "min"}[quantity.bound]
    with pytest.raises(ValueError, match="Field required"):
        Thresholds.model_validate({quantity.name: {wrong: EXAMPLES[quantity.unit]}})


def test_only_limits_on_performance_select_sizes_and_scenarios() -> None:
    Thresholds.model_validate({"latency_p50": {"max": "1 s", "batch_sizes": [1]}})
    with pytest.raises(ValueError, match="Extra inputs are not permitted"):
        Thresholds.model_validate({"top1": {"min": 0.5, "batch_sizes": [1]}})


def test_entries_are_numbered_within_their_key() -> None:
    limits = [{"max": "1 s", "devices": ["cpu"]}, {"max": "2 s"}]
    entries = list(Thresholds.model_validate({"latency_p50": limits}).entries())
    assert [(entry.key, entry.number) for entry in entries] == [
        ("latency_p50", 0),
        ("latency_p50", 1),
    ]
    assert isinstance(entries[0], Entry)
    assert entries[0].threshold.filters()["devices"] == ("cpu",)


def test_a_threshold_without_filters_judges_all_cases() -> None:
    assert Threshold().judges("cpu", ["mxnet", "mxnet-int8"])


def test_a_threshold_judges_the_devices_and_frameworks_that_it_names() -> None:
    threshold = Threshold(devices=["cpu"], frameworks=["mxnet"])
    assert threshold.judges("cpu", ["mxnet", "mxnet-int8"])
    assert not threshold.judges("cuda", ["mxnet"])
    assert not threshold.judges("cpu", ["onnxruntime"])


def test_an_agreement_has_a_key_for_every_quantity_that_it_may_limit() -> None:
    assert set(agreement_limits()) == {"top1", "kl", "js", "hellinger"}
    assert set(agreement_limits()) <= set(AgreementThreshold.model_fields)


def test_an_agreement_tells_the_limits_that_are_set() -> None:
    agreement = AgreementThreshold.model_validate({"reference": "mxnet", "kl": {"max": 0.1}})
    assert list(agreement.limits()) == ["kl"]


def test_an_upgrade_tells_the_tolerances_that_are_set_by_quantity() -> None:
    upgrade = UpgradeThresholds.model_validate({"tolerance": "2 %", "top1": 0.005})
    assert upgrade.tolerances() == {"latency": 0.02, "top1": 0.005}


def test_every_quantity_of_an_upgrade_may_have_a_tolerance() -> None:
    names = {name for name, quantity in QUANTITIES.items() if quantity.upgrade}
    keys = set(UpgradeThresholds.model_fields)
    assert keys == (names - {"latency"}) | {"tolerance"}
