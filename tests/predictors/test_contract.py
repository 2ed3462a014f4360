"""The contract: what every predictor must do, on the digits network in its framework's own format,
in its own stack.

A framework runs in the stack of its name where that has been made (``bash ci/stacks NAME``), else
here; what is in neither is skipped.
"""

from __future__ import annotations

import ast
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import psutil
import pytest
from onnx.reference import ReferenceEvaluator

from pytest_mlms.agent.process import Agent, Refused, start_agent
from pytest_mlms.agent.registry import find_predictors
from pytest_mlms.artifacts.fetch import default_cache, fetch_files
from pytest_mlms.manifest import load
from pytest_mlms.structure.onnx_graph import describe_onnx
from tests.support.frameworks import IMAGES, cost, launch_of
from tests.support.project import DIGITS, ROOT

PREDICTORS = sorted((ROOT / "predictors").glob("[a-z]*.py"))
CHOSEN = os.environ.get("MLMS_TEST_FRAMEWORKS", "").split()
FRAMEWORKS = [path.stem for path in PREDICTORS if not CHOSEN or path.stem in CHOSEN]
LAUNCHES = {name: launch_of(name) for name in FRAMEWORKS}
THERE = [name for name, launch in LAUNCHES.items() if launch]
DIGITS_MANIFEST = load(DIGITS / "digits.yaml")
MODELS = {model.name: model for model in DIGITS_MANIFEST.manifest.models}
CLOSE = {"rtol": 1e-4, "atol": 1e-5}
OTHERS = ["digits_cnn.model", "digits_cnn-symbol.json", "digits_cnn.prototxt"]
"""Models that few frameworks read."""

OPERATORS = {
    **dict.fromkeys(("onnxruntime", "openvino", "opencv", "caffe2"), (b"Relu", b"Rexu")),
    "caffe": (b"ReLU", b"ReXU"),
    "mxnet": (b"Activation", b"Activatiox"),
}
"""An operator in the bytes of a graph, and one that no framework has.

Where graphs are not so plain it isn't here.
"""

FUSED_PEAKS = {"tflite": 4 * 4 * (16 + 32) * 64}
"""The bytes of activations at once of four images, where each Relu was put into its convolution as
the file was made.
"""


class Subject:
    """An agent of one framework, and what it is asked to load."""

    def __init__(self, name: str, log: Path, threads: int | None = 1) -> None:
        self.name = name
        launch = launch_of(name, threads)
        assert launch
        self.agent: Agent = start_agent(launch, ROOT / "predictors" / f"{name}.py", log, 600)
        self.hello = self.agent.request("hello").facts
        if not self.hello["devices"]:
            self.agent.close()
            pytest.skip(f"there is no device here that {name} runs on")
        self.device = "cpu" if "cpu" in self.hello["devices"] else self.hello["devices"][0]
        self.model = MODELS[name]
        self.files = dict(
            fetch_files(DIGITS_MANIFEST, self.model, default_cache(), lambda *_: None).model
        )

    def load(self, threads: int | None = 1, device: str = "", **changes: Any) -> dict[str, Any]:
        """Load the digits network, with other files or options where they are given."""
        files = {role: str(path) for role, path in changes.pop("files", self.files).items()}
        options = {**self.model.options, **changes}
        fields = {
            "files": files,
            "device": device or self.device,
            "threads": threads,
            "options": options,
        }
        return self.agent.request("load", fields).facts

    def predict(self, images: np.ndarray) -> np.ndarray:
        return self.agent.request("predict", arrays=[("image", images)]).arrays["logits"]


def marked(names: Iterable[str]) -> list[Any]:
    """Mark as slow what starts agents of other environments than this."""
    slow = {
        name for name in THERE if (launch := LAUNCHES[name]) and launch.command[0] != sys.executable
    }
    return [pytest.param(name, marks=[pytest.mark.slow] * (name in slow)) for name in names]


def only_where(condition: Callable[[str], object]) -> pytest.MarkDecorator:
    """Run a test for those frameworks alone that there is something to ask of."""
    return pytest.mark.parametrize(
        "subject", marked(name for name in THERE if condition(name)), indirect=True
    )


def has(function: str) -> Callable[[str], object]:
    return lambda name: f"\ndef {function}(" in (ROOT / "predictors" / f"{name}.py").read_text()


@pytest.fixture(scope="module")
def reference() -> dict[str, np.ndarray]:
    """What every node of the network gives, by onnx's own evaluator, which is plain numpy."""
    model = onnx.load(DIGITS / "digits_cnn.onnx")
    names = [name for node in model.graph.node for name in node.output]
    del model.graph.output[:]
    model.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
    return dict(zip(names, ReferenceEvaluator(model).run(None, {"image": IMAGES}), strict=True))


@pytest.fixture(scope="module", params=marked(THERE))
def subject(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Subject]:
    subject = Subject(request.param, tmp_path_factory.mktemp("agent") / "log")
    yield subject
    subject.agent.close()


@pytest.mark.parametrize("name", FRAMEWORKS)
def test_there_is_a_model_for_each_framework_and_a_stack_that_runs_it(name: str) -> None:
    assert name in MODELS
    if name not in THERE:
        pytest.skip(
            f"{name} is neither here nor in a stack that is made; bash ci/stacks {name} makes it"
        )


@pytest.fixture
def model(subject: Subject) -> Subject:
    """The agent with its model loaded."""
    subject.load()
    return subject


def test_it_says_what_it_is_and_what_it_loaded(
    subject: Subject, record_testsuite_property: Any
) -> None:
    version = subject.hello["versions"].get(subject.name)
    record_testsuite_property(subject.name, version)
    assert version, "a predictor gives its framework's version under its own name"
    assert subject.model.versions.contains(version, prereleases=True)
    facts = subject.load()
    assert facts["device"] == subject.device
    assert facts["threads"] == 1
    assert facts["inputs"] == [["image", "float32", [None, 1, 8, 8]]]
    assert facts["outputs"] == [["logits", "float32", [None, 10]]]
    assert facts["seconds"] > 0


def test_outputs_agree_with_the_reference(model: Subject, reference: dict[str, np.ndarray]) -> None:
    np.testing.assert_allclose(model.predict(IMAGES), reference["logits"], **CLOSE)


def test_the_same_inputs_give_the_same_outputs(model: Subject) -> None:
    assert np.array_equal(model.predict(IMAGES), model.predict(IMAGES))


def test_a_batch_is_its_rows_one_by_one(model: Subject) -> None:
    rows = np.concatenate([model.predict(image[None]) for image in IMAGES])
    np.testing.assert_allclose(model.predict(IMAGES), rows, **CLOSE)


@pytest.mark.parametrize(
    "wrong",
    [IMAGES[:, :, :4], IMAGES[:, 0], IMAGES.astype(np.float64)],
    ids=["size", "rank", "dtype"],
)
def test_a_wrong_shape_or_type_is_refused_and_the_agent_lives_on(
    model: Subject, wrong: np.ndarray
) -> None:
    with pytest.raises(Refused, match=r"(?i)the model takes|invalid|expected"):
        model.predict(wrong)
    assert model.predict(IMAGES).shape == (8, 10)


@pytest.mark.parametrize("scenario", ["single_stream", "offline"])
def test_a_run_gives_raw_times_and_the_right_outputs(
    model: Subject, reference: dict[str, np.ndarray], scenario: str
) -> None:
    stop = {"seconds": 0.02, "least": 20, "longest": 600}
    fields = {"scenario": scenario, "batches": 2, "stop": stop}
    facts, arrays = model.agent.request(
        "run", fields, [("image", IMAGES), ("image", IMAGES[::-1].copy())]
    )
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
    np.testing.assert_allclose(arrays["logits"], reference["logits"], **CLOSE)
    assert len(facts["output_sha256"]) == 64
    assert facts["peak_rss"] > 1 << 20


def test_a_run_can_be_repeated_on_the_batches_that_were_sent(
    model: Subject, reference: dict[str, np.ndarray]
) -> None:
    """What else goes through the agent in between takes the memory that a predictor has let go of."""
    fields = {"scenario": "single_stream", "stop": {"seconds": 0, "least": 4, "longest": 600}}
    sent = [("image", IMAGES.copy()), ("image", IMAGES[::-1].copy())]
    first, arrays = model.agent.request("run", {**fields, "batches": 2}, sent)
    np.testing.assert_allclose(arrays["logits"], reference["logits"], **CLOSE)
    for _ in range(4):
        model.predict(IMAGES + 1)
    again, arrays = model.agent.request("run", fields)
    np.testing.assert_allclose(arrays["logits"], reference["logits"], **CLOSE)
    assert again["output_sha256"] == first["output_sha256"]


def test_one_call_is_one_sample_however_short_the_limit(model: Subject) -> None:
    fields = {
        "scenario": "single_stream",
        "batches": 1,
        "stop": {"seconds": 0, "least": 1, "longest": 0},
    }
    _, arrays = model.agent.request("run", fields, [("image", IMAGES)])
    assert len(arrays["start"]) == 1


@only_where(has("layers"))
def test_layers_are_named_and_lie_in_their_call_in_order(model: Subject) -> None:
    profiles = model.agent.request("profile", {"count": 2}, [("image", IMAGES)]).facts["profiles"]
    assert profiles[0][1] <= profiles[1][0], "the second call begins after the first"
    for start, end, layers in profiles:
        assert len(layers) >= 2
        assert all(start <= layer[2] <= layer[3] <= end for layer in layers)
        assert [layer[2] for layer in layers] == sorted(layer[2] for layer in layers)
        assert len({layer[0] for layer in layers}) == len(layers), "names are distinct"
        assert all(layer[0] and layer[1] for layer in layers)
        assert sum(layer[3] - layer[2] for layer in layers) > 0
    np.testing.assert_array_equal(
        [layer[0] for layer in profiles[0][2]], [layer[0] for layer in profiles[1][2]]
    )


@only_where(has("inner"))
def test_inner_outputs_are_the_references_and_end_with_the_output(
    model: Subject, reference: dict[str, np.ndarray]
) -> None:
    inner = model.agent.request("inner", arrays=[("image", IMAGES)]).arrays
    assert len(inner) >= 4
    np.testing.assert_allclose(list(inner.values())[-1], model.predict(IMAGES), **CLOSE)
    for name in set(inner) & set(reference):
        if inner[name].shape == reference[name].shape:
            np.testing.assert_allclose(inner[name], reference[name], **CLOSE, err_msg=name)


@only_where(has("structure"))
def test_the_model_as_a_graph_costs_what_the_network_does(model: Subject) -> None:
    before = model.predict(IMAGES)
    found, own = cost(model.agent, image=(4, 1, 8, 8)), describe_onnx(DIGITS / "digits_cnn.onnx", 4)
    assert (found.flops, found.parameters, found.unknown) == (own.flops, own.parameters, ())
    assert found.peak_bytes == FUSED_PEAKS.get(model.name, own.peak_bytes)
    assert model.name in found.counter.lower()
    assert np.array_equal(model.predict(IMAGES), before), "the loaded model is as it was"


@pytest.mark.parametrize("threads", [None, 2])
def test_threads_asked_for_are_threads_reported(
    subject: Subject, tmp_path: Path, threads: int | None
) -> None:
    if threads and threads > len(os.sched_getaffinity(0)):
        pytest.skip("one core only")
    fresh = Subject(subject.name, tmp_path / "log", threads)
    found = fresh.load(threads)["threads"]
    assert found == threads or threads is None
    assert found is None or found >= 1
    assert fresh.predict(IMAGES).shape == (8, 10)
    fresh.agent.close()


def test_an_unknown_option_is_refused(subject: Subject) -> None:
    with pytest.raises(Refused, match="no_such_option"):
        subject.load(no_such_option=1)


def test_a_device_that_is_not_there_is_refused(subject: Subject) -> None:
    for device in ("cuda:0", "cuda:7"):
        if device not in subject.hello["devices"]:
            with pytest.raises(Refused):
                subject.load(device=device)


def test_a_model_that_is_none_is_refused(subject: Subject, tmp_path: Path) -> None:
    (tmp_path / "none").write_bytes(b"no model")
    for role in subject.files:
        with pytest.raises(Refused):
            subject.load(files={**subject.files, role: tmp_path / "none"})
    assert subject.load()["device"] == subject.device


def test_a_model_of_another_framework_is_refused(subject: Subject) -> None:
    for other in {DIGITS / name for name in OTHERS} - set(subject.files.values()):
        for role in subject.files:
            with pytest.raises(Refused):
                subject.load(files={**subject.files, role: other})
    assert subject.load()["device"] == subject.device


@only_where(lambda name: MODELS[name].weights)
def test_missing_weights_are_refused(subject: Subject) -> None:
    with pytest.raises(Refused, match="weights"):
        subject.load(files={"graph": subject.files["graph"]})


@only_where(OPERATORS.get)
def test_an_operator_that_the_framework_lacks_is_named(subject: Subject, tmp_path: Path) -> None:
    old, new = OPERATORS[subject.name]
    graph = tmp_path / subject.files["graph"].name
    assert old in subject.files["graph"].read_bytes()
    graph.write_bytes(subject.files["graph"].read_bytes().replace(old, new))
    with pytest.raises(Refused, match=new.decode()):
        subject.load(files={**subject.files, "graph": graph})


def test_loading_again_and_again_frees_what_was_there(subject: Subject) -> None:
    """A batch's layers take 16 MiB at least.

    Were they kept, six rounds would add twice the bound or more.
    """
    images = np.resize(IMAGES, (1024, 1, 8, 8))

    def rounds(count: int) -> int:
        for _ in range(count):
            subject.load()
            subject.predict(images)
        return psutil.Process(subject.agent.process.pid).memory_info().rss

    before = rounds(3)
    assert rounds(6) - before < 48 << 20


def test_a_model_is_gone_where_another_can_not_be_loaded(subject: Subject) -> None:
    subject.load()
    with pytest.raises(Refused):
        subject.load(no_such_option=1)
    with pytest.raises(Refused, match="no model is loaded"):
        subject.predict(IMAGES)


@pytest.mark.parametrize("path", PREDICTORS, ids=lambda path: path.stem)
def test_a_predictor_says_what_it_supports_and_has_what_is_agreed(path: Path) -> None:
    module = ast.parse(path.read_text())
    functions = {node.name: node for node in module.body if isinstance(node, ast.FunctionDef)}
    assert {"versions", "devices", "load", "predict"} <= set(functions)
    assert all(
        ast.get_docstring(node) for name, node in functions.items() if not name.startswith("_")
    )
    text = ast.get_docstring(module) or ""
    assert "Versions:" in text
    assert "Devices:" in text
    assert "Synchronises:" in text
    assert "Layer times:" in text or "layers" not in functions


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
