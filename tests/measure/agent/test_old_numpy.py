"""Tests of a framework that was built for an older numpy, in real environments."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from pytest_mlms.core.errors import AgentError, StackError
from pytest_mlms.measure.agent.opening import PredictorSpec, open_predictor
from pytest_mlms.measure.agent.registry import find_predictors
from pytest_mlms.provide.artifacts.fetch import default_cache
from pytest_mlms.provide.stacks.declared import resolve
from pytest_mlms.provide.stacks.launch import prepare
from tests.support.cases import digits_case
from tests.support.project import DIGITS

OLD = "onnxruntime==1.17.0"


def spec_of(requirements: str, folder: Path) -> PredictorSpec:
    """Return what loads the digits model in an environment of these requirements."""
    predictors = find_predictors(())
    case = digits_case()
    stack = resolve(requirements, {}, predictors)
    try:
        launch = prepare(stack, default_cache())
    except StackError as error:
        pytest.skip(f"needs wheels for this Python: {error}")
    return PredictorSpec(
        case=replace(case, stack=stack),
        launch=launch,
        predictor=predictors[stack.framework],
        files={"graph": DIGITS / "digits_cnn.onnx"},
        log=folder / "agent.log",
        timeout=300,
    )


@pytest.mark.slow
def test_an_old_framework_with_a_new_numpy_offers_a_constraint_that_works(tmp_path: Path) -> None:
    spec = spec_of(OLD, tmp_path)
    advice = r"it was built for numpy 1, .*; ask for '(.*)': "
    with pytest.raises(AgentError, match=advice) as caught, open_predictor(spec):
        pass
    found = re.search(advice, str(caught.value))
    assert found
    with open_predictor(spec_of(found[1], tmp_path)) as predictor:
        assert predictor.versions["onnxruntime"] == "1.17.0"
