"""The contract: what every predictor must do, on the digits network in its framework's own format."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

from conftest import DIGITS, ROOT
from pytest_mlms.agent import Agent, Refused, start_agent
from pytest_mlms.manifest import load
from pytest_mlms.provision.predictors import find_predictors

PREDICTORS = sorted((ROOT / "predictors").glob("[a-z]*.py"))
IMAGES = (np.load(DIGITS / "digits_test.npz")["image"][:8, None] / 16).astype(np.float32)


@pytest.fixture(scope="module")
def reference() -> np.ndarray:
    """The logits by onnx's own evaluator, which is plain numpy."""
    model = onnx.load(DIGITS / "digits_cnn.onnx")
    return np.asarray(ReferenceEvaluator(model).run(None, {"image": IMAGES})[0])


@pytest.fixture(scope="module", params=PREDICTORS, ids=lambda path: path.stem)
def agent(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Agent]:
    path: Path = request.param
    log = tmp_path_factory.mktemp("agent") / "log"
    agent = start_agent([sys.executable, "-B"], path, log, 120)
    try:
        hello = agent.request("hello").facts
    except Refused as error:
        if error.error not in ("ImportError", "ModuleNotFoundError"):
            raise
        pytest.skip(f"{path.stem} is not installed here: {error}")
    assert path.stem in hello["versions"], "a predictor gives its framework's version under its own name"
    assert "cpu" in hello["devices"]
    manifest = load(DIGITS / "digits.yaml")
    model = next(model for model in manifest.manifest.models if model.name == path.stem)
    files = {role: artifact.source for role, artifact in manifest.model_files(model).items()}
    facts = agent.request("load", {"files": files, "device": "cpu", "threads": None}).facts
    assert facts["device"] == "cpu"
    assert facts["inputs"] == [["image", "float32", [None, 1, 8, 8]]]
    assert [name for name, _, _ in facts["outputs"]] == ["logits"]
    assert facts["seconds"] > 0
    yield agent
    agent.close()


def predict(agent: Agent, images: np.ndarray) -> np.ndarray:
    return agent.request("predict", arrays=[("image", images)]).arrays["logits"]


def test_outputs_agree_with_the_reference(agent: Agent, reference: np.ndarray) -> None:
    np.testing.assert_allclose(predict(agent, IMAGES), reference, rtol=1e-4, atol=1e-5)


def test_the_same_inputs_give_the_same_outputs(agent: Agent) -> None:
    assert np.array_equal(predict(agent, IMAGES), predict(agent, IMAGES))


def test_a_batch_is_its_rows_one_by_one(agent: Agent) -> None:
    rows = np.concatenate([predict(agent, image[None]) for image in IMAGES])
    np.testing.assert_allclose(predict(agent, IMAGES), rows, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "wrong", [IMAGES[:, :, :4], IMAGES[:, 0], IMAGES.astype(np.float64)], ids=["size", "rank", "dtype"]
)
def test_a_wrong_shape_or_type_is_refused_and_the_agent_lives_on(agent: Agent, wrong: np.ndarray) -> None:
    with pytest.raises(Refused):
        predict(agent, wrong)
    assert predict(agent, IMAGES).shape == (8, 10)


@pytest.mark.parametrize("scenario", ["single_stream", "offline"])
def test_a_run_gives_raw_times_and_the_right_outputs(agent: Agent, reference: np.ndarray, scenario: str) -> None:
    stop = {"seconds": 0.02, "least": 20, "longest": 10}
    fields = {"scenario": scenario, "batches": 2, "stop": stop}
    facts, arrays = agent.request("run", fields, [("image", IMAGES), ("image", IMAGES[::-1].copy())])
    start, end = arrays["start"], arrays["end"]
    assert len(start) == len(end) >= 20
    assert (end > start).all()
    assert (start[1:] >= end[:-1]).all()
    assert end[-1] - start[0] >= 0.02
    assert (np.diff(arrays["at"]) > 0).all()
    assert arrays["at"][0] == 0
    assert arrays["at"][-1] == len(start)
    assert (np.diff(arrays["cpu"]) >= 0).all()
    assert (np.diff(arrays["wait"]) >= 0).all()
    np.testing.assert_allclose(arrays["logits"], reference, rtol=1e-4, atol=1e-5)
    assert len(facts["output_sha256"]) == 64
    assert facts["peak_rss"] > 1 << 20


def test_one_call_is_one_sample_however_short_the_limit(agent: Agent) -> None:
    fields = {"scenario": "single_stream", "batches": 1, "stop": {"seconds": 0, "least": 1, "longest": 0}}
    _, arrays = agent.request("run", fields, [("image", IMAGES)])
    assert len(arrays["start"]) == 1


def test_a_model_that_is_none_is_refused(agent: Agent, tmp_path: Path) -> None:
    (tmp_path / "graph").write_bytes(b"no model")
    with pytest.raises(Refused):
        agent.request("load", {"files": {"graph": str(tmp_path / "graph")}, "device": "cpu", "threads": None})


@pytest.mark.parametrize("path", PREDICTORS, ids=lambda path: path.stem)
def test_a_predictor_says_what_it_supports_and_has_what_is_agreed(path: Path) -> None:
    module = ast.parse(path.read_text())
    functions = {node.name: node for node in module.body if isinstance(node, ast.FunctionDef)}
    assert {"versions", "devices", "load", "predict"} <= set(functions)
    assert all(ast.get_docstring(node) for name, node in functions.items() if not name.startswith("_"))
    text = ast.get_docstring(module) or ""
    assert "Versions:" in text
    assert "Devices:" in text
    assert "Synchronises:" in text


def test_threads_asked_for_are_threads_reported(tmp_path: Path) -> None:
    agent = start_agent([sys.executable, "-B"], ROOT / "predictors" / "onnxruntime.py", tmp_path / "log", 60)
    agent.request("hello")
    files = {"graph": str(DIGITS / "digits_cnn.onnx")}
    assert agent.request("load", {"files": files, "device": "cpu", "threads": 1}).facts["threads"] == 1
    agent.request("unload")
    with pytest.raises(Refused):
        predict(agent, IMAGES)
    agent.close()


def test_the_registry_is_the_file_names_and_folders_add_to_it(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("")
    (tmp_path / "onnxruntime.py").write_text("")
    (tmp_path / "_helper.py").write_text("")
    found = find_predictors([tmp_path])
    assert {"mine", "onnxruntime"} <= set(found)
    assert "_helper" not in found
    assert "__init__" not in found
    assert found["onnxruntime"] == tmp_path / "onnxruntime.py"
    assert find_predictors()["onnxruntime"].parent.name in ("predictors", "mlms_predictors")
