"""Differences between the layers of two stacks."""

from __future__ import annotations

from typing import Any

import pytest

from pytest_mlms.serialization import to_plain
from pytest_mlms.upgrade.layer_diff import LayerChange, changed_layers


def profile(**micros: float) -> list[Any]:
    """Return the profile of a call whose layers took so many microseconds."""
    layers = []
    for name, duration in micros.items():
        layers.append([name, "Conv", 0.0, duration * 1e-6, None, None])
    return [0.0, 1.0, layers]


USUAL = profile(first=10, fused=4)
BEFORE = [USUAL, USUAL, profile(first=99, fused=4)]
AFTER = [profile(first=16, apart=2)] * 3


def test_the_time_of_a_layer_is_its_median_over_the_calls() -> None:
    first = changed_layers(BEFORE, AFTER)[0]
    assert first.name == "first"
    assert first.a == pytest.approx(10e-6)
    assert first.b == pytest.approx(16e-6)
    assert first.change == pytest.approx(6e-6)


def test_a_layer_of_one_side_only_changes_by_all_of_its_time() -> None:
    _, fused, apart, _ = changed_layers(BEFORE, AFTER)
    assert fused.name == "fused"
    assert fused.b is None
    assert fused.change == pytest.approx(-4e-6)
    assert apart.name == "apart"
    assert apart.a is None
    assert apart.change == pytest.approx(2e-6)


def test_shares_are_of_the_change_of_all_layers() -> None:
    first, fused, apart, total = changed_layers(BEFORE, AFTER)
    assert first.share == pytest.approx(1.5)
    assert fused.share == pytest.approx(-1.0)
    assert apart.share == pytest.approx(0.5)
    assert total.name == "all layers"
    assert total.share == 1.0
    assert total.change == pytest.approx(4e-6)


def test_there_are_no_shares_of_no_change() -> None:
    same = [profile(conv=5)]
    for layer in changed_layers(same, same):
        assert layer.share is None


def test_a_layer_that_runs_several_times_in_a_call_is_the_sum_of_them() -> None:
    first = ["conv", "Conv", 0.0, 2e-6]
    second = ["conv", "Conv", 5e-6, 8e-6]
    twice = [0.0, 1.0, [first, second]]
    conv = changed_layers([twice], [profile(conv=5)])[0]
    assert conv.a == pytest.approx(5e-6)
    assert conv.change == pytest.approx(0)


def test_layers_beyond_the_most_are_summed_up() -> None:
    before = [profile(l1=10, l2=10, l3=10, l4=10)]
    after = [profile(l1=11, l2=12, l3=13, l4=14)]
    found = changed_layers(before, after, most=2)
    names = [layer.name for layer in found]
    assert names == ["l4", "l3", "2 others", "all layers"]
    changes = [layer.change for layer in found]
    assert changes == pytest.approx([4e-6, 3e-6, 3e-6, 10e-6])


def test_there_are_no_changes_without_profiles() -> None:
    assert changed_layers([], []) == []


def test_a_change_is_a_list_in_json() -> None:
    change = LayerChange("conv", "Conv", None, 1.0, 1.0, None)
    assert to_plain(change) == ["conv", "Conv", None, 1.0, 1.0, None]
