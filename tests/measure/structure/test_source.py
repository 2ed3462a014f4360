"""The cost of the models of manifests, by the framework of tests/support/predictors/matrix.py."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path

import pytest

from pytest_mlms.core.errors import AgentError, MlmsError, OutputError
from pytest_mlms.core.records import Artifact, Place, Stack
from pytest_mlms.manifest.load import load
from pytest_mlms.measure.agent.registry import find_predictors
from pytest_mlms.measure.structure.cost import ModelCost
from pytest_mlms.measure.structure.onnx_structure import describe_onnx
from pytest_mlms.measure.structure.source import FrameworkSource, describe_case, is_onnx
from pytest_mlms.provide.cases import Case
from tests.support.project import DIGITS, PREDICTORS, write_matrix

FRAMEWORKS = find_predictors([PREDICTORS])
HERE = Place(Path("m.yaml"), 1)


@pytest.mark.parametrize(
    ("source", "member", "expected"),
    [
        ("/models/net.onnx", None, True),
        ("https://example.org/net.onnx", None, True),
        ("/models/net.zip", "in/net.onnx", True),
        ("/models/net.onnx.zip", "net.pt", False),
        ("/models/net.pt", None, False),
    ],
)
def test_onnx_files_are_known_by_their_suffix(
    source: str, member: str | None, expected: bool
) -> None:
    assert is_onnx(Artifact(source, None, HERE, member)) is expected


def describe(manifest: Path, batch_size: int, **axes: int) -> ModelCost:
    """Describe the first model of a manifest by this interpreter."""
    loaded = load(manifest, FRAMEWORKS)
    model = loaded.manifest.models[0]
    stack = Stack("here", model.name, interpreter="current")
    case = Case("trace", loaded, model, stack, "cpu", batch_size, None)
    source = FrameworkSource(
        predictor=FRAMEWORKS[model.name],
        cache=manifest.parent / "cache",
        allow_code=False,
        show=lambda step: None,
    )
    return describe_case(
        case, {name.replace("_", "."): size for name, size in axes.items()}, source
    )


def test_an_onnx_file_is_described_without_its_framework() -> None:
    cost = describe(DIGITS / "digits.yaml", 4)
    assert cost == describe_onnx(DIGITS / "digits_cnn.onnx", 4)


def test_another_model_is_described_by_its_framework(tmp_path: Path) -> None:
    cost = describe(write_matrix(tmp_path, "whole"), 4)
    assert cost.parameters == 3 * 5
    assert cost.flops == 2 * 4 * 3 * 5
    assert cost.layers[0].shape == (4, 5)
    assert cost.counter == "hand"


def test_free_axes_are_bound_by_their_sizes(tmp_path: Path) -> None:
    cost = describe(write_matrix(tmp_path, "free"), 1, x_1=3)
    assert cost.flops == 2 * 3 * 5


def test_a_free_axis_without_a_size_is_an_error_with_the_line(tmp_path: Path) -> None:
    message = r"m\.yaml:5: input 'x' has free axes; say --axis x\.1=SIZE"
    with pytest.raises(OutputError, match=message):
        describe(write_matrix(tmp_path, "free"), 1)


def test_an_input_without_a_shape_is_an_error_with_what_to_write(tmp_path: Path) -> None:
    message = (
        r"m\.yaml:5: the model doesn't say the shape of 'x'; "
        r"write it, as in: options: {inputs: 'x float32\[\?,"
    )
    with pytest.raises(OutputError, match=message):
        describe(write_matrix(tmp_path, "untold"), 1)


def test_a_framework_that_describes_no_models_is_an_error_with_advice(tmp_path: Path) -> None:
    message = (
        r"m\.yaml:5: matrix doesn't tell what its models are made of; "
        r"describe the network as ONNX, or name another --mlms-stack"
    )
    with pytest.raises(MlmsError, match=message):
        describe(write_matrix(tmp_path, "mute"), 1)


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of temporary files."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


def test_the_log_that_an_error_names_is_kept(tmp_path: Path, temporary: Path) -> None:
    message = r"ValueError: a shape that it can't follow \(log: (.*)\)"
    with pytest.raises(AgentError, match=message) as raised:
        describe(write_matrix(tmp_path, "fail"), 1)
    named = re.search(message, str(raised.value))
    assert named
    (log,) = temporary.rglob("*.log")
    assert str(log) == named[1]


def test_no_log_is_kept_of_a_model_that_was_described(tmp_path: Path, temporary: Path) -> None:
    describe(write_matrix(tmp_path, "whole"), 1)
    assert list(temporary.iterdir()) == []


@pytest.mark.parametrize("shape", ["mute", "untold"])
def test_no_log_is_kept_of_an_agent_that_did_not_fail(
    tmp_path: Path, temporary: Path, shape: str
) -> None:
    with pytest.raises(MlmsError):
        describe(write_matrix(tmp_path, shape), 1)
    assert list(temporary.iterdir()) == []
