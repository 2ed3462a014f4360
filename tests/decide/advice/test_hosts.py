"""Files of hosts and their prices: read as they are meant, or refused with the line."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from pathlib import Path

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pytest_mlms.core.errors import MlmsError
from pytest_mlms.decide.advice.hosts import (
    ALL_RUNS,
    LAST_RUNS,
    Host,
    read_hosts,
    runs_since_change,
)
from pytest_mlms.decide.advice.search import Advice, Goal, NoFurtherRun, Process, search

SHARED = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
names = st.text("abcdefghij-0123456789", min_size=1, max_size=8).filter(lambda name: name[0] > "9")
amounts = st.integers(1, 10**6).map(lambda cents: cents / 100)


@SHARED
@given(st.dictionaries(names, amounts, min_size=1), st.sampled_from(["USD", "€", "kr"]))
def test_prices_are_read_as_they_are_written(
    tmp_path: Path, prices: dict[str, float], currency: str
) -> None:
    content = {name: {"price": f"{price} {currency}/h"} for name, price in prices.items()}
    path = tmp_path / "hosts.yaml"
    path.write_text(yaml.safe_dump({"hosts": content}, allow_unicode=True), encoding="utf-8")
    assert {*read_hosts(path)} == {Host(name, prices[name], currency) for name in prices}


json_like = st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=8,
)


@SHARED
@given(json_like | st.fixed_dictionaries({"hosts": json_like}))
def test_any_other_content_is_refused_with_its_line(tmp_path: Path, content: object) -> None:
    path = tmp_path / "hosts.yaml"
    path.write_text(yaml.safe_dump(content, allow_unicode=True), encoding="utf-8")
    try:
        found = read_hosts(path)
    except MlmsError as error:
        assert re.search(r"hosts\.yaml:\d+: ", str(error))
    else:
        assert found
        assert all(host.price is None or host.price > 0 for host in found)


def test_the_price_of_a_million_inputs_is_that_of_their_time() -> None:
    host = Host("gpu1", 3.6, "USD")
    assert host.price_at(1000) == pytest.approx(1.0)  # 1,000 s at 0.001 USD


def test_a_price_that_is_no_number_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "hosts.yaml"
    for price in ("0.0 USD/h", f"{'9' * 400} USD/h", "-1 USD/h", "2.1", "2.1 USD", "USD/h", "null"):
        path.write_text(f"hosts:\n  gpu1: {{price: {price}}}\n")
        with pytest.raises(MlmsError, match=r"hosts\.yaml:2: .* is no price of an hour above 0"):
            read_hosts(path)


@given(st.lists(st.floats(1e-6, 1e6), max_size=LAST_RUNS))
def test_runs_since_a_change_are_all_above_or_below_those_before(values: list[float]) -> None:
    count = runs_since_change(values)
    assert count == len(values) or 1 <= count <= len(values) - 3
    if count == len(values):
        return
    before, since = values[:-count], values[-count:]
    assert max(before) < min(since) or max(since) < min(before)


def test_a_change_is_told_from_noise() -> None:
    assert runs_since_change([1.0, 1.01, 0.99, 1.0, 2.0, 2.02]) == 2
    assert runs_since_change([1.0, 1.01, 0.99, 1.0, 1.01, 2.0]) == 1
    assert runs_since_change([3.0, 3.1, 3.0, 1.0, 1.01, 1.02, 1.01]) == 4
    assert runs_since_change([1.0, 1.0, 1.0, 1.04, 1.04]) == 5  # less than a twentieth
    scatter = random.Random(5)
    noise = [[scatter.lognormvariate(0, 0.2) for _ in range(LAST_RUNS)] for _ in range(500)]
    assert sum(runs_since_change(values) < LAST_RUNS for values in noise) <= 0.05 * 500


def judged(runs: Sequence[Sequence[float]]) -> Advice:
    """Return what a search says of candidates whose runs are known."""
    left = [[*values] for values in runs]

    def measure(number: int) -> Process:
        if not left[number]:
            raise NoFurtherRun
        return Process({"price": left[number].pop(0)}, 0.0, {})

    return search(len(runs), Goal("price", 1, looks=ALL_RUNS), measure)


def test_hosts_that_cost_the_same_seldom_have_a_winner() -> None:
    scatter = random.Random(3)
    lost = 0
    for _ in range(300):
        runs = [
            [scatter.lognormvariate(0, 0.05) for _ in range(scatter.randint(2, 10))]
            for _ in range(3)
        ]
        lost += judged(runs).findings[0].standing == "worse"
    assert lost <= 0.025 * 300


def test_known_runs_are_all_used_and_hosts_may_have_different_numbers_of_them() -> None:
    advice = judged([[1.0, 1.01, 0.99, 1.0, 1.02, 0.98, 1.0], [3.0, 3.1, 2.9], [1.0]])
    assert advice.ended == "history"
    assert [finding.processes for finding in advice.findings] == [7, 3, 1]
    assert [finding.standing for finding in advice.findings] == ["best", "worse", "open"]
    assert not advice.is_sure


@given(st.lists(st.lists(st.floats(0.01, 1e6), min_size=2, max_size=10), min_size=1, max_size=5))
def test_of_known_runs_one_host_is_the_best_and_the_same_runs_say_the_same(
    runs: list[list[float]],
) -> None:
    advice = judged(runs)
    standings = [finding.standing for finding in advice.findings]
    assert standings.count("best") == 1
    assert {*standings} <= {"best", "alike", "worse", "open"}
    assert advice == judged(runs)
