"""The moments between layers."""

from __future__ import annotations

import pytest
from mlms_predictors._run.steps import between, observed_by


def test_every_observer_is_called_while_it_observes() -> None:
    calls: list[str] = []
    between()
    with observed_by(lambda: calls.append("outer")):
        between()
        with observed_by(lambda: calls.append("inner")):
            between()
    between()
    assert calls == ["outer", "outer", "inner"]


def test_an_error_of_the_call_removes_the_observer() -> None:
    calls: list[bool] = []
    with pytest.raises(KeyError), observed_by(lambda: calls.append(True)):
        raise KeyError
    between()
    assert calls == []
