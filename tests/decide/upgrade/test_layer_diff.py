"""Differences between the layers of two stacks."""

from __future__ import annotations

from typing import Any

import pytest

from pytest_mlms.core.records import LayerChange
from pytest_mlms.core.serialization import to_plain
from pytest_mlms.decide.upgrade.layer_diff import changed_layers


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


def test_there_are_no_shares_of_changes_that_cancel_out() -> None:
    before = [profile(conv=5, pool=5, relu=5)]
    for change in (5.0, 5.0 - 1e-9, 4.5):
        after = [profile(conv=5 + 5, pool=5 - change, relu=5)]
        for layer in changed_layers(before, after):
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


def counted(*layers: tuple[str, int, float], first: int = 0) -> list[Any]:
    """Return the profile of a call whose layers are named by their number."""
    found = []
    now = 0.0
    for number, (kind, size, micros) in enumerate(layers, start=first):
        end = now + micros * 1e-6
        found.append([f"{kind}_{number}", kind, now, end, None, [size]])
        now = end
    return [0.0, 1.0, found]


BLOCKS = [("Conv", 8, 10.0), ("Relu", 8, 1.0), ("Conv", 4, 20.0), ("Relu", 4, 2.0)] * 3


def test_one_more_layer_in_front_renames_none() -> None:
    slower = [(kind, size, micros * 1.5) for kind, size, micros in BLOCKS]
    found = changed_layers([counted(*BLOCKS)], [counted(("Cast", 8, 3.0), *slower)], most=99)
    new = [layer for layer in found if layer.a is None]
    assert [layer.name for layer in new] == ["Cast_0"]
    assert new[0].change == pytest.approx(3e-6)
    assert not [layer for layer in found if layer.b is None]
    for layer in found[:-1]:
        if layer.a is not None:
            assert layer.b == pytest.approx(1.5 * layer.a)


def test_thousands_of_like_layers_are_matched_one_after_the_other() -> None:
    alike = [("Conv", 8, 1.0)] * 5000
    found = changed_layers([counted(*alike)], [counted(("Cast", 8, 3.0), *alike[1:])], most=1)
    assert [layer.name for layer in found] == ["Cast_0", "5000 others", "all layers"]
    assert [layer.change for layer in found] == pytest.approx([3e-6, -1e-6, 2e-6])


def test_layers_whose_names_stay_are_matched_by_name_where_one_is_gone() -> None:
    layers = [[f"block{n}.conv", "Conv", n, n + 0.1 * n, None, [8]] for n in (3, 1, 2)]
    gone, *_ = changed_layers([[0.0, 1.0, layers]], [[0.0, 1.0, [layers[0], layers[2]]]])
    assert (gone.name, gone.b) == ("block1.conv", None)


def test_a_loop_is_without_the_layers_in_it() -> None:
    body = [["add", "Add", 0.1 * n, 0.1 * n + 0.05, None, [1]] for n in range(1, 5)]
    call = [0.0, 1.0, [*body, ["loop", "Loop", 0.0, 0.6, None, [1]], ["out", "Add", 0.6, 0.7]]]
    found = {layer.name: layer.a for layer in changed_layers([call], [call])}
    assert found["add"] == pytest.approx(0.2)
    assert found["loop"] == pytest.approx(0.4)
    assert found["all layers"] == pytest.approx(0.7)


def test_there_are_no_changes_without_profiles() -> None:
    assert changed_layers([], []) == []


def test_a_change_is_a_list_in_json() -> None:
    change = LayerChange("conv", "Conv", None, 1.0, 1.0, None)
    assert to_plain(change) == ["conv", "Conv", None, 1.0, 1.0, None]
