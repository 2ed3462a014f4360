"""Series and points of items' lines."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_mlms.keep.history.series import Common, case_label, points_of
from tests.support.histories import item_line


def keys_of(line: dict[str, Any]) -> dict[str, str]:
    return {point.series.quantity: point.series.key for point in points_of(line)}


def with_field(path: str, value: Any) -> dict[str, Any]:
    """Return an item's line with one field changed; a dot is between the keys of its path."""
    line = item_line(0)
    fields = line
    *names, last = path.split(".")
    for name in names:
        fields = fields[name]
    fields[last] = value
    return line


def reference(**fields: Any) -> dict[str, Any]:
    base = {"stack": "caffe", "framework": "caffe", "device": "cpu", "sha256": {"graph": "a"}}
    return {**base, "versions": {"caffe": "1.0"}, **fields}


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("manifest.name", "other"),
        ("kind", "accuracy"),
        ("model.sha256", {"graph": "0" * 64}),
        ("dataset.sha256", "0" * 64),
        ("framework", "pytorch"),
        ("stack.name", "onnxruntime"),
        ("stack.threads", 4),
        ("stack.cores", [0, 1]),
        ("stack.declared", {"env": {"ORT_X": "1"}}),
        ("device", "cuda:0"),
        ("batch_size", 1),
        ("scenario", "single_stream"),
        ("options", {"providers": ["x"]}),
        ("method", 2),
        ("shape", "long"),
        ("variant", "int8"),
        ("definition", "0123456789abcdef"),
        ("load", {"rate": 200.0, "latency": 0.015, "percentile": 99.0}),
        ("caches", "warm"),
        ("machine.memory", 2**40),
        ("nodeid", "tests/test_own.py::test_performance[x]"),
        ("reference", reference()),
    ],
)
def test_the_subject_and_the_machine_are_in_the_key(path: str, value: Any) -> None:
    keys = keys_of(with_field(path, value))
    assert keys
    assert keys["latency_p50"] != keys_of(item_line(0))["latency_p50"]


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("versions", {"onnxruntime": "2.0"}),
        ("python", "3.13.0"),
        ("launch", {"command": ["x"], "lock": ["onnxruntime==2.0"]}),
        ("manifest.version", "2.0.0"),
        ("manifest.path", "elsewhere/digits.yaml"),
        ("nodeid", "elsewhere/renamed.yaml::test_performance[onnxruntime-cpu-b64-offline]"),
        ("machine.host", "other"),
        ("machine.frequency", 1.0),
        ("seed", 8),
        ("worker", "gw1"),
        ("verdict", "FAILED"),
    ],
)
def test_software_hosts_and_places_are_not_in_the_key(path: str, value: Any) -> None:
    assert keys_of(with_field(path, value)) == keys_of(item_line(0))


def test_the_versions_of_a_reference_are_not_in_the_key_but_its_model_is() -> None:
    plain = keys_of(item_line(0, reference=reference()))
    assert keys_of(item_line(0, reference=reference(versions={"caffe": "2"}))) == plain
    assert keys_of(item_line(0, reference=reference(sha256={"graph": "b"}))) != plain


@pytest.mark.parametrize(
    ("key", "value", "is_other"),
    [
        ("latency", 0.009, False),
        ("rate", 300.0, True),
        ("percentile", 90.0, True),
        ("instances", 2, True),
    ],
)
def test_the_limit_of_a_load_is_not_in_the_key(key: str, value: Any, is_other: bool) -> None:
    load = {"rate": 200.0, "latency": 0.015, "percentile": 99.0, "instances": 1}
    changed = keys_of(item_line(0, load={**load, key: value}))
    assert (changed != keys_of(item_line(0, load=load))) is is_other


def test_the_goodput_of_other_limits_is_another_series() -> None:
    load = {"rate": 200.0, "latency": 0.015, "percentile": 99.0, "instances": 1}
    one, other, again = (item_line(0, load={**load, "ttft": most}) for most in (0.1, 0.2, 0.1))
    for line in (one, other, again):
        line["estimates"]["goodput"] = {**line["estimates"]["throughput"], "unit": "/s"}
    changed = {name for name, key in keys_of(one).items() if keys_of(other)[name] != key}
    assert changed == {"goodput"}
    assert keys_of(one) == keys_of(again)


def test_a_load_is_the_same_series_whatever_ids_call_its_scenario() -> None:
    load = {"rate": 200.0, "latency": 0.015, "percentile": 99.0, "instances": 1, "batcher": None}
    lines = [
        item_line(0, load=load, scenario=f"server{keys}") for keys in ("", "-200", "-200-15ms")
    ]
    assert keys_of(lines[0]) == keys_of(lines[1]) == keys_of(lines[2])
    (point, *_) = points_of(lines[0])
    assert case_label(point.series.parts).endswith("-server-200")
    assert keys_of(lines[0]) != keys_of(item_line(0, load=load, scenario="replay"))


def test_the_limit_of_a_peak_is_what_is_searched_for() -> None:
    peak = {"latency": 0.015, "percentile": 99.0, "precision": 0.05}
    assert keys_of(item_line(0, load=peak)) != keys_of(item_line(0, load={**peak, "latency": 1.0}))


def test_what_another_counter_tells_is_another_series_of_that_quantity_alone() -> None:
    memory = {"value": 1e9, "low": 1e9, "high": 1e9, "replicates": 3, "unit": "B"}
    lines = []
    for counter in ("pool", "NVML"):
        line = copy.deepcopy(item_line(0))
        line["estimates"] = {"device_memory": {**memory, "counter": counter}, **line["estimates"]}
        lines.append(keys_of(line))
    by_pool, by_nvml = lines
    assert by_pool.pop("device_memory") != by_nvml.pop("device_memory")
    assert by_pool == by_nvml == keys_of(item_line(0))


def test_the_seed_counts_where_it_makes_the_inputs() -> None:
    one, other = item_line(0, dataset=None, seed=1), item_line(0, dataset=None, seed=2)
    assert keys_of(one) != keys_of(other)


def test_the_number_of_cores_counts_and_not_which_ones() -> None:
    assert keys_of(with_field("stack.cores", [0, 1])) == keys_of(with_field("stack.cores", [2, 3]))


def test_fast_and_slow_cores_are_told_apart_and_not_those_of_one_kind() -> None:
    kinds = {"cpu_core": [0, 1, 2, 3], "cpu_atom": [4, 5, 6, 7]}

    def key(*cores: int) -> str:
        line = with_field("stack.cores", list(cores))
        line["machine"]["core_kinds"] = kinds
        return keys_of(line)["latency_p50"]

    assert key(0, 1) == key(2, 3)
    assert len({key(0, 1), key(4, 5), key(0, 4)}) == 3


@given(st.randoms())
def test_the_order_of_fields_does_not_change_the_key(random: Any) -> None:
    line = item_line(0)
    for name in ("options", "model", "machine", "stack"):
        entries = list(line[name].items())
        random.shuffle(entries)
        line[name] = dict(entries)
    assert keys_of(line) == keys_of(item_line(0))


def test_a_key_stays_the_same_when_the_parts_were_written_and_read() -> None:
    for point in points_of(item_line(0)):
        series = point.series
        read = json.loads(json.dumps(series.parts))
        quantity = read.pop("quantity")
        assert Common(read).key(quantity) == series.key
        assert json.loads(series.text) == series.parts


def test_a_point_has_the_value_and_the_interval_of_an_estimate() -> None:
    line = item_line(0)
    points = {point.series.quantity: point for point in points_of(line)}
    estimate = line["estimates"]["latency_p50"]
    point = points["latency_p50"]
    assert set(points) == set(line["estimates"])
    assert (point.value, point.low, point.high) == tuple(
        estimate[name] for name in ("value", "low", "high")
    )
    assert (point.series.unit, point.series.better) == ("s", "lower")
    assert points["throughput"].series.better == "higher"


def test_an_estimate_of_too_few_replicates_is_a_point_without_an_interval() -> None:
    line = item_line(0)
    line["estimates"]["latency_p50"].update(low=0.0, high=None, lacking="too few calls")
    line["estimates"]["latency_p90"]["value"] = None
    points = {point.series.quantity: point for point in points_of(line)}
    assert (points["latency_p50"].low, points["latency_p50"].high) == (None, None)
    assert "latency_p90" not in points


def test_a_tail_of_too_few_calls_is_no_point() -> None:
    line = item_line(0)
    line["estimates"]["latency_p99"].update(high=None, lacking="needs 459 calls, had 12")
    points = {point.series.quantity for point in points_of(line)}
    assert points == set(line["estimates"]) - {"latency_p99"}


@pytest.mark.parametrize(
    "fields", [{"kind": "upgrade"}, {"kind": "trace"}, {"verdict": "ERROR"}, {"verdict": "SKIPPED"}]
)
def test_upgrades_traces_and_what_failed_to_run_give_no_points(fields: dict[str, Any]) -> None:
    assert list(points_of(item_line(0, **fields))) == []


def test_quantities_of_a_users_test_are_series_of_that_test() -> None:
    own = {"fairness": {"value": 0.9, "unit": "share", "better": "higher"}}
    nodeid = "tests/test_own.py::test_fair[onnxruntime-cpu]"
    line = item_line(0, quantities=own, estimates={}, nodeid=nodeid, scenario=None)
    (point,) = points_of(line)
    assert (point.value, point.low, point.replicates) == (0.9, None, None)
    assert (point.series.unit, point.series.better) == ("share", "higher")
    assert case_label(point.series.parts) == "test_fair[onnxruntime-cpu]"
    renamed = {**copy.deepcopy(line), "nodeid": nodeid.replace("test_fair", "test_other")}
    assert keys_of(renamed) != keys_of(line)


@pytest.mark.parametrize("other", [{"unit": "%"}, {"better": "lower"}])
def test_a_users_quantity_in_another_unit_or_direction_begins_a_series(
    other: dict[str, str],
) -> None:
    """Its values were steps of the old series, and a loss stayed a gain for ever."""
    own = {"value": 0.9, "unit": "share", "better": "higher"}
    before, after = (
        keys_of(item_line(0, quantities={"fairness": quantity}, estimates={}))
        for quantity in (own, {**own, **other})
    )
    assert before != after


def test_an_own_quantity_that_is_no_number_is_no_point() -> None:
    own = {"fairness": {"value": None, "unit": "", "better": "higher"}}
    assert list(points_of(item_line(0, quantities=own, estimates={}))) == []


def test_the_label_of_a_case_is_that_of_its_item() -> None:
    (point, *_) = points_of(item_line(0))
    assert case_label(point.series.parts) == "onnxruntime-cpu-b64-offline"
