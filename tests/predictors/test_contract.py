"""The contract: what every predictor does, on the digits network in its framework's own format.

A framework runs in the stack of its name where that has been made (``bash ci/stacks NAME``), or
else here. A framework that is in neither is skipped. Those of servers have test_oip.py.
"""

from __future__ import annotations

import ast
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import psutil
import pytest
from mlms_predictors._run.options import serves_of
from onnx.reference import ReferenceEvaluator

from pytest_mlms.manifest import load
from pytest_mlms.measure.agent.load import Batcher, LoadPlan, request_fields, schedule_arrays
from pytest_mlms.measure.agent.process import Refused
from pytest_mlms.measure.structure.onnx_structure import describe_onnx
from pytest_mlms.provide.artifacts.fetch import default_cache, fetch_files
from tests.support.frameworks import (
    IMAGES,
    INPUT,
    OUTPUT,
    WRONG_IMAGES,
    Array,
    Framework,
    assert_close,
    check_profiles,
    cost,
    launch_of,
    layer_seconds,
    signature,
    stack_launch,
)
from tests.support.project import DIGITS, ROOT

PREDICTORS = sorted((ROOT / "predictors").glob("[a-z]*.py"))
CHOSEN = os.environ.get("MLMS_TEST_FRAMEWORKS", "").split()
FRAMEWORKS = CHOSEN or [path.stem for path in PREDICTORS if not serves_of(path)]
LAUNCHES = {name: launch_of(name) for name in FRAMEWORKS}
AVAILABLE = [name for name, launch in LAUNCHES.items() if launch]
DIGITS_MANIFEST = load(DIGITS / "digits.yaml")
MODELS = {model.name: model for model in DIGITS_MANIFEST.manifest.models}
OTHERS = {
    DIGITS / "digits_cnn.model",
    DIGITS / "digits_cnn-symbol.json",
    DIGITS / "digits_cnn.prototxt",
}
"""Models that few frameworks read."""

OPERATORS = {
    "caffe": (b"ReLU", b"ReXU"),
    "caffe2": (b"Relu", b"Rexu"),
    "mxnet": (b"Activation", b"Activatiox"),
    "onnxruntime": (b"Relu", b"Rexu"),
    "opencv": (b"Relu", b"Rexu"),
    "openvino": (b"Relu", b"Rexu"),
}
"""An operator in the bytes of a graph, and one that no framework has.

Frameworks whose graphs are not so plain are left out.
"""

FUSED_PEAKS = {"tflite": 4 * 4 * (16 + 32) * 64}
"""The bytes of activations at once of four images.

These frameworks put each Relu into its convolution as the file is made.
"""

LARGE_BATCH = 1024
RUNTIME_THREADS = {"tensorflow": 2, "jax": 3}  # at most, beside the pool for operators
"""Images whose layers take 16 MiB at least."""
LARGEST_GROWTH = 48 << 20
"""Bytes that six loads may add; six models with their layers would add twice that or more."""


class Subject:
    """An agent of one framework, and the model that it is asked to load."""

    def __init__(self, name: str, log: Path, threads: int | None = 1) -> None:
        self.name = name
        self.framework = Framework(stack_launch(name, threads), name, log)
        self.agent = self.framework.agent
        self.hello = self.framework.hello
        if not self.hello["devices"]:
            self.agent.close()
            pytest.skip(f"there is no device here that {name} runs on")
        self.device = self.hello["devices"][0]
        self.model = MODELS[name]
        fetched = fetch_files(DIGITS_MANIFEST, self.model, default_cache(), lambda *_: None)
        self.files = dict(fetched.model)

    def load(
        self,
        threads: int | None = 1,
        device: str = "",
        files: Mapping[str, Path] | None = None,
        **options: Any,
    ) -> dict[str, Any]:
        """Load the digits network, with other files or options where they are given."""
        return self.framework.load_files(
            files or self.files,
            device or self.device,
            threads,
            {**self.model.options, **options},
        )

    def predict(self, images: Array = IMAGES) -> Array:
        return self.framework.predict(images)


def marked(names: Iterable[str]) -> list[Any]:
    """Return parameters; those are slow that start agents of other environments than this."""
    found = []
    for name in names:
        launch = LAUNCHES[name]
        assert launch is not None
        is_slow = launch.command[0] != sys.executable
        found.append(pytest.param(name, marks=[pytest.mark.slow] if is_slow else []))
    return found


def only_where(condition: Callable[[str], object]) -> pytest.MarkDecorator:
    """Run a test for some of the frameworks."""
    names = [name for name in AVAILABLE if condition(name)]
    return pytest.mark.parametrize("subject", marked(names), indirect=True)


def functions_of(path: Path) -> dict[str, ast.FunctionDef]:
    """Return the functions in a predictor's file, without importing its framework."""
    body = ast.parse(path.read_text()).body
    return {node.name: node for node in body if isinstance(node, ast.FunctionDef)}


def has(function: str) -> Callable[[str], object]:
    def condition(name: str) -> bool:
        path = ROOT / "predictors" / f"{name}.py"
        return function in functions_of(path)

    return condition


@pytest.fixture(scope="module")
def reference() -> dict[str, Array]:
    """The output of every node of the network, by onnx's own evaluator, which is plain numpy."""
    model = onnx.load(DIGITS / "digits_cnn.onnx")
    names = []
    for node in model.graph.node:
        names += node.output
    del model.graph.output[:]
    model.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
    outputs: Any = ReferenceEvaluator(model).run(None, {"image": IMAGES})
    return dict(zip(names, outputs, strict=True))


@pytest.fixture(scope="module", params=marked(AVAILABLE))
def subject(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Subject]:
    subject = Subject(request.param, tmp_path_factory.mktemp("agent") / "log")
    yield subject
    subject.agent.close()


def load_fields(batcher: Batcher | None, instances: int) -> tuple[dict[str, Any], Any]:
    """Return the request for 40 queries of single images, a millisecond apart."""
    scheduled = np.arange(40, dtype=np.int64) * 1_000_000
    samples = np.arange(40, dtype=np.int32) % len(IMAGES)
    plan = LoadPlan(samples, 60, scheduled, instances=instances, batcher=batcher)
    arrays = schedule_arrays(plan)
    for number in range(len(IMAGES)):
        arrays.append(("image", IMAGES[number : number + 1]))
    return request_fields(plan, len(IMAGES)), arrays


@pytest.mark.parametrize(("instances", "batcher"), [(1, None), (2, Batcher(3, 2_000_000))])
def test_instances_under_load_give_the_outputs_of_each_alone(
    model: Subject, instances: int, batcher: Batcher | None
) -> None:
    alone = model.predict()
    fields, arrays = load_fields(batcher, instances)
    parts: list[Any] = []
    model.agent.request("load_run", fields, arrays, 60, parts.append)
    count = len(model.agent.request("served", {"place": 0}).facts["samples"])
    assert count > 1
    for place in range(count):
        reply = model.agent.request("served", {"place": place})
        assert_close(reply.arrays["logits"], alone[reply.facts["samples"][place]])


@pytest.mark.parametrize("name", FRAMEWORKS)
def test_each_framework_has_a_model_and_a_stack_that_runs_it(name: str) -> None:
    assert name in MODELS
    if name not in AVAILABLE:
        stack_launch(name)


@pytest.fixture
def model(subject: Subject) -> Subject:
    """The agent with its model loaded."""
    subject.load()
    return subject


def test_hello_has_the_version_that_the_manifest_asks_for(
    subject: Subject, record_testsuite_property: Callable[[str, object], None]
) -> None:
    version = subject.hello["versions"].get(subject.name)
    record_testsuite_property(subject.name, version)
    assert version, "a predictor gives its framework's version under its own name"
    assert subject.model.versions.contains(version, prereleases=True)


def test_a_load_reports_what_it_really_uses(subject: Subject) -> None:
    facts = subject.load()
    assert facts["device"] == subject.device
    assert facts["threads"] == 1
    assert signature(facts) == ([INPUT], [OUTPUT])
    assert facts["seconds"] > 0


def test_outputs_agree_with_the_reference(model: Subject, reference: dict[str, Array]) -> None:
    assert_close(model.predict(), reference["logits"])


def test_the_same_inputs_give_the_same_outputs(model: Subject) -> None:
    assert np.array_equal(model.predict(), model.predict())


def test_a_batch_gives_what_its_rows_give_one_by_one(model: Subject) -> None:
    rows = [model.predict(image[None]) for image in IMAGES]
    assert_close(model.predict(), np.concatenate(rows))


@pytest.mark.parametrize("wrong", WRONG_IMAGES.values(), ids=WRONG_IMAGES)
def test_a_wrong_shape_or_type_is_refused_and_the_agent_lives_on(
    model: Subject, wrong: Array
) -> None:
    with pytest.raises(Refused, match=r"(?i)the model takes|invalid|expected"):
        model.predict(wrong)
    assert model.predict().shape == (8, 10)


def run_request(batches: int = 0, **stop: float) -> dict[str, Any]:
    """Return the fields of a run; without batches it is over those that were sent before."""
    fields: dict[str, Any] = {"scenario": "single_stream"}
    fields["stop"] = {"seconds": 0, "least": 4, "longest": 600, **stop}
    if batches:
        fields["batches"] = batches
    return fields


def two_batches() -> list[tuple[str, Array]]:
    """Return new arrays, which nothing keeps but the agent."""
    return [("image", IMAGES.copy()), ("image", IMAGES[::-1].copy())]


@pytest.mark.parametrize("scenario", ["single_stream", "offline"])
def test_a_run_gives_raw_times_in_their_order(model: Subject, scenario: str) -> None:
    fields = {**run_request(2, seconds=0.02, least=20), "scenario": scenario}
    arrays = model.agent.request("run", fields, two_batches()).arrays
    start = arrays["time:start"]
    end = arrays["time:end"]
    assert len(start) == len(end) >= 20
    assert (end > start).all()
    assert (start[1:] >= end[:-1]).all()
    assert end[-1] - start[0] >= 0.02
    calls_at = arrays["time:at"]
    assert calls_at[0] == 0
    assert calls_at[-1] == len(start)
    assert (np.diff(calls_at) > 0).all()
    assert (np.diff(arrays["time:cpu"]) >= 0).all()
    assert (np.diff(arrays["time:wait"]) >= 0).all()


def test_a_run_gives_the_outputs_of_the_first_batch(
    model: Subject, reference: dict[str, Array]
) -> None:
    facts, arrays = model.agent.request("run", run_request(2), two_batches())
    assert_close(arrays["logits"], reference["logits"])
    assert facts["peak_rss"] > 1 << 20


def test_a_run_can_be_repeated_on_the_batches_that_were_sent(
    model: Subject, reference: dict[str, Array]
) -> None:
    """Other requests in between reuse the memory that a predictor no longer holds."""
    _, first = model.agent.request("run", run_request(2), two_batches())
    assert_close(first["logits"], reference["logits"])
    for _ in range(4):
        model.predict(IMAGES + 1)
    _, again = model.agent.request("run", run_request())
    assert again["logits"].tobytes() == first["logits"].tobytes()


def test_one_call_is_one_sample_however_short_the_limit(model: Subject) -> None:
    fields = run_request(1, least=1, longest=0)
    arrays = model.agent.request("run", fields, [("image", IMAGES)]).arrays
    assert len(arrays["time:start"]) == 1


@only_where(has("layers"))
def test_layers_are_named_and_inside_their_call_in_order(model: Subject) -> None:
    first, second = model.framework.profiles(2)
    check_profiles([first, second])
    for profile in (first, second):
        assert len(profile.layers) >= 2
        assert all(layer.name and layer.type for layer in profile.layers)
        assert layer_seconds(profile) > 0
    names = [layer.name for layer in first.layers]
    assert names == [layer.name for layer in second.layers]


@only_where(has("inner"))
def test_inner_outputs_are_those_of_the_reference_and_end_with_the_output(
    model: Subject, reference: dict[str, Array]
) -> None:
    inner = model.framework.inner()
    assert len(inner) >= 4
    assert_close(list(inner.values())[-1], model.predict())
    for name in set(inner) & set(reference):
        if inner[name].shape == reference[name].shape:
            assert_close(inner[name], reference[name], name)


@only_where(has("structure"))
def test_the_model_as_a_graph_costs_what_the_network_does(model: Subject) -> None:
    before = model.predict()
    found = cost(model.agent, image=(4, 1, 8, 8))
    own = describe_onnx(DIGITS / "digits_cnn.onnx", 4)
    assert found.flops == own.flops
    assert found.parameters == own.parameters
    assert found.unknown == ()
    assert found.peak_bytes == FUSED_PEAKS.get(model.name, own.peak_bytes)
    assert model.name in found.counter.lower()
    assert np.array_equal(model.predict(), before), "the loaded model is as it was"


@pytest.mark.parametrize("threads", [None, 2])
def test_the_threads_that_are_asked_for_are_reported(
    subject: Subject, tmp_path: Path, threads: int | None
) -> None:
    if threads and threads > len(os.sched_getaffinity(0)):
        pytest.skip("one core only")
    fresh = Subject(subject.name, tmp_path / "log", threads)
    reported = fresh.load(threads)["threads"]
    if threads is not None:
        assert reported == threads
    assert reported is None or reported >= 1
    assert fresh.predict().shape == (8, 10)
    fresh.agent.close()


def test_threads_that_take_cpu_time_are_counted(subject: Subject, tmp_path: Path) -> None:
    """The pool for operators, the thread that calls, and what a framework's runtime has beside."""
    images = np.resize(IMAGES, (LARGE_BATCH, 1, 8, 8))
    for threads in (1, 2):
        fresh = Subject(subject.name, tmp_path / f"log{threads}", threads)
        fresh.load(threads)
        fresh.agent.request("run", run_request(1), [("image", images)])
        busy = fresh.agent.request("run", run_request()).facts["busy"]
        assert 1 <= busy <= threads + 1 + RUNTIME_THREADS.get(subject.name, 0)
        fresh.agent.close()


def test_an_unknown_option_is_refused(subject: Subject) -> None:
    with pytest.raises(Refused, match="no_such_option"):
        subject.load(no_such_option=1)


def test_a_device_that_is_not_there_is_refused(subject: Subject) -> None:
    for device in ("cuda:0", "cuda:7"):
        if device not in subject.hello["devices"]:
            with pytest.raises(Refused):
                subject.load(device=device)


def test_a_file_that_is_no_model_is_refused(subject: Subject, tmp_path: Path) -> None:
    (tmp_path / "none").write_bytes(b"no model")
    for role in subject.files:
        with pytest.raises(Refused):
            subject.load(files={**subject.files, role: tmp_path / "none"})
    assert subject.load()["device"] == subject.device


def test_a_model_of_another_framework_is_refused(subject: Subject) -> None:
    for other in OTHERS - set(subject.files.values()):
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
    original = subject.files["graph"]
    assert old in original.read_bytes()
    graph = tmp_path / original.name
    graph.write_bytes(original.read_bytes().replace(old, new))
    with pytest.raises(Refused, match=new.decode()):
        subject.load(files={**subject.files, "graph": graph})


def test_a_model_can_be_loaded_again_and_again(
    subject: Subject, reference: dict[str, Array]
) -> None:
    """Each load closes the model before, and bound calls and layers of that must not matter."""
    for _ in range(3):
        subject.load()
        subject.agent.request("run", run_request(1), [("image", IMAGES)])
        if has("layers")(subject.name):
            subject.framework.profiles(1)
        if has("inner")(subject.name):
            subject.framework.inner()
        assert_close(subject.predict(), reference["logits"])


def test_loading_again_and_again_frees_the_models_before(subject: Subject) -> None:
    images = np.resize(IMAGES, (LARGE_BATCH, 1, 8, 8))

    def load_and_run(times: int) -> int:
        """Return the resident memory in bytes."""
        for _ in range(times):
            subject.load()
            subject.predict(images)
        return psutil.Process(subject.agent.pid).memory_info().rss

    before = load_and_run(3)
    assert load_and_run(6) - before < LARGEST_GROWTH


def test_a_model_is_gone_where_another_can_not_be_loaded(subject: Subject) -> None:
    subject.load()
    with pytest.raises(Refused):
        subject.load(no_such_option=1)
    with pytest.raises(Refused, match="no model is loaded"):
        subject.predict()


@pytest.mark.parametrize("path", PREDICTORS, ids=lambda path: path.stem)
def test_a_predictors_docstrings_say_what_it_supports(path: Path) -> None:
    for name, function in functions_of(path).items():
        if not name.startswith("_"):
            assert ast.get_docstring(function), name
    text = ast.get_docstring(ast.parse(path.read_text())) or ""
    for paragraph in ("Versions:", "Devices:", "Synchronises:", "Layer times:"):
        assert paragraph in text
