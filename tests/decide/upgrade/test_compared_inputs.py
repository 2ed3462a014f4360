"""Inputs of both sides of an upgrade, by stand-ins for their agents."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any, cast

import pytest

from pytest_mlms.decide.upgrade.agents import AgentPair
from pytest_mlms.decide.upgrade.compared_inputs import _predict_both
from pytest_mlms.measure.agent.predictor import Predictor


def test_an_interruption_of_one_side_ends_the_other_that_computes_beside_it() -> None:
    killed = threading.Event()

    def interrupted(batch: Any) -> Any:
        raise KeyboardInterrupt

    def endless(batch: Any) -> Any:
        assert killed.wait(60)
        return {}

    a = SimpleNamespace(predict=interrupted)
    b = SimpleNamespace(predict=endless, agent=SimpleNamespace(kill=killed.set))
    labels: Any = {"a": "baseline", "b": "candidate"}
    pair = AgentPair(cast(Predictor, a), cast(Predictor, b), labels, together=True)
    with pytest.raises(KeyboardInterrupt):
        _predict_both(pair, {"a": {}, "b": {}})
    assert killed.is_set()
