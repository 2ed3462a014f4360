"""Inputs and outputs of a model by their positions."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mlms_predictors import Tensor

from pytest_mlms.core.errors import OutputError
from pytest_mlms.manifest import load
from pytest_mlms.measure.agent.tensor_names import NamedTensors, named_tensors
from tests.support.agents import open_faulty
from tests.support.cases import faulty_case
from tests.support.small_manifest import errors_of, small, write

A = Tensor("a", "float32", (None, 3))
B = Tensor("b", "int64", ())


def outputs_of(folder: Path, *outputs: tuple[str, int | None]) -> NamedTensors:
    """Return the tensors a and b by the names of a manifest with these outputs."""
    parts = []
    for name, position in outputs:
        place = {} if position is None else {"position": position}
        parts.append({"name": name, "type": "tensor", **place})
    loaded = load(write(folder, small(outputs=parts)))
    return named_tensors(loaded, "outputs", [A, B])


def test_a_position_gives_a_tensor_the_name_of_the_manifest(tmp_path: Path) -> None:
    tensors, own_names = outputs_of(tmp_path, ("second", 1))
    assert tensors == (A, B._replace(name="second"))
    assert own_names == {"second": "b"}


def test_names_may_be_exchanged(tmp_path: Path) -> None:
    tensors, own_names = outputs_of(tmp_path, ("a", 1), ("b", 0))
    assert [(tensor.name, tensor.dtype) for tensor in tensors] == [("b", "float32"), ("a", "int64")]
    assert own_names == {"a": "b", "b": "a"}


def test_a_name_that_is_right_stays(tmp_path: Path) -> None:
    assert outputs_of(tmp_path, ("a", 0), ("b", None)) == ((A, B), {})


def test_a_name_of_another_tensor_is_refused(tmp_path: Path) -> None:
    message = r"m\.yaml:\d+: the model has 'a' at another position of its outputs; choose another"
    with pytest.raises(OutputError, match=message):
        outputs_of(tmp_path, ("a", 1))


def test_a_position_that_the_model_does_not_have_is_an_error_of_its_line(tmp_path: Path) -> None:
    message = r"m\.yaml:\d+: the model has no 2 among its outputs; write one of 0 \(a\), 1 \(b\)"
    with pytest.raises(OutputError, match=message):
        outputs_of(tmp_path, ("c", 2))


@pytest.mark.parametrize(
    ("second", "message"),
    [(0, "'x' has this position, too; correct one of them"), (-1, "greater than or equal to 0")],
)
def test_positions_are_distinct_numbers_from_0(tmp_path: Path, second: int, message: str) -> None:
    form: dict[str, Any] = {"type": "tensor", "element_type": "float32"}
    inputs = [{"name": "x", "position": 0, **form}, {"name": "y", "position": second, **form}]
    (error,) = errors_of(tmp_path, small(inputs=inputs))
    assert message in error


def test_requests_have_the_names_of_the_model(tmp_path: Path) -> None:
    case = faulty_case()
    manifest = case.loaded.manifest
    changed = manifest.model_copy(
        update={
            "inputs": [manifest.inputs[0].model_copy(update={"name": "x", "position": 0})],
            "outputs": [manifest.outputs[0].model_copy(update={"name": "y", "position": 0})],
        }
    )
    case = replace(case, loaded=replace(case.loaded, manifest=changed))
    batch = {"x": np.zeros((4, 1, 8, 8), np.float32)}
    with open_faulty(tmp_path, case, answer=7, layers="stepwise", pages=1) as predictor:
        assert predictor.predict(batch)["y"].argmax(axis=1).tolist() == [7, 7, 7, 7]
        run = predictor.run("offline", [batch], seconds=0.0, least=2, longest=60.0)
        assert list(run.outputs) == ["y"]
        predictor.bind([batch])
        assert list(predictor.turn(outputs=True).outputs) == ["y"]
        assert [len(profile.layers) for profile in predictor.profile(batch, 2)] == [2, 2]
