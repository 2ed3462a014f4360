"""Tests of loading a model in an agent, and of the checks that it is what was asked for."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from mlms_predictors._run import protocol

from pytest_mlms.core.errors import AgentError, InvalidRun, MlmsError, OutputError, Unavailable
from pytest_mlms.core.records import Place, Stack
from pytest_mlms.measure.agent.opening import PredictorSpec, open_predictor
from pytest_mlms.provide.cases import Case
from tests.support.agents import faulty_spec, open_faulty, speaker
from tests.support.cases import faulty_case

HELLO = {
    "protocol": protocol.VERSION,
    "process": 1,
    "python": "3.11",
    "executable": "/bin/python",
    "versions": {"faulty": "1.2.3"},
    "devices": ["cpu"],
    "cores": None,
}


def with_threads(threads: int) -> Case:
    case = faulty_case()
    return replace(case, stack=replace(case.stack, threads=threads))


def with_element_type(name: str) -> Case:
    """Return a case whose manifest says another type for its input."""
    case = faulty_case()
    manifest = case.loaded.manifest
    inputs = [manifest.inputs[0].model_copy(update={"element_type": name})]
    changed = manifest.model_copy(update={"inputs": inputs})
    return replace(case, loaded=replace(case.loaded, manifest=changed))


def with_output(name: str) -> Case:
    """Return a case whose manifest gives its output another name."""
    case = faulty_case()
    manifest = case.loaded.manifest
    outputs = [manifest.outputs[0].model_copy(update={"name": name})]
    changed = manifest.model_copy(update={"outputs": outputs})
    return replace(case, loaded=replace(case.loaded, manifest=changed))


def opened(spec: PredictorSpec) -> None:
    with open_predictor(spec):
        pass


def test_a_loaded_model_tells_what_it_really_runs_on(tmp_path: Path) -> None:
    with open_faulty(tmp_path) as predictor:
        assert predictor.device == "cpu"
        assert predictor.versions["faulty"] == "1.2.3"
        assert predictor.threads is None
        assert predictor.inputs[0].name == "image"
        assert predictor.outputs[0].shape == (None, 10)
        assert predictor.start_seconds > 0
        assert predictor.load_seconds >= 0
        agent = predictor.agent
        assert agent.alive
    assert not agent.alive


@pytest.mark.parametrize(
    ("case", "model", "error", "message"),
    [
        (
            faulty_case("faulty <1"),
            {},
            Unavailable,
            "asks for faulty <1, and stack .* has faulty 1.2.3",
        ),
        (
            replace(faulty_case(), device="cuda:1"),
            {},
            Unavailable,
            "no device cuda:1: faulty 1.2.3 in stack here .* has cpu",
        ),
        (faulty_case(), {"device": "cpu:1"}, InvalidRun, "asked for cpu, faulty runs on cpu:1"),
        (with_threads(2), {"threads": 3}, InvalidRun, "asked for 2 threads, faulty runs with 3"),
        (with_threads(1), {"threads": None}, InvalidRun, "asked for 1 thread, .* its own choice"),
        (
            with_element_type("float64"),
            {},
            OutputError,
            r"other inputs than the manifest\n .*: image \(float64\)\n .*: +image \(float32",
        ),
        (
            with_output("scores"),
            {},
            OutputError,
            r"other outputs than the manifest\n .*: scores\n .*: +logits \(float32",
        ),
    ],
    ids=["version", "device", "fallback", "threads", "own-threads", "inputs", "outputs"],
)
def test_a_model_that_is_not_what_was_asked_for_is_refused(
    tmp_path: Path, case: Case, model: dict[str, Any], error: type[MlmsError], message: str
) -> None:
    with pytest.raises(error, match=message):
        opened(faulty_spec(tmp_path, case, **model))


def test_a_framework_that_can_not_be_imported_is_unavailable(tmp_path: Path) -> None:
    predictor = tmp_path / "absent.py"
    predictor.write_text("import a_framework_that_nobody_has\n")
    spec = replace(faulty_spec(tmp_path), predictor=predictor)
    with pytest.raises(Unavailable, match="faulty can't be imported in stack here .*; install it"):
        opened(spec)


@pytest.mark.parametrize(
    ("reason", "error"),
    [
        ("undefined symbol: parse", AgentError),
        ("libcuda.so.1: cannot open shared object file", Unavailable),
    ],
)
def test_what_was_installed_for_a_framework_is_broken_unless_a_driver_is_missing(
    tmp_path: Path, reason: str, error: type[MlmsError]
) -> None:
    predictor = tmp_path / "made.py"
    predictor.write_text(f"raise ImportError({reason!r})\n")
    spec = replace(faulty_spec(tmp_path), predictor=predictor)
    stack = Stack("made==1", "made", requirements=("made==1",), place=Place(Path("s.yaml"), 3))
    spec = replace(spec, case=replace(spec.case, stack=stack))
    with pytest.raises(error, match=f"change its requirements at s.yaml:3: .*{reason}"):
        opened(spec)


def test_a_package_that_only_has_the_name_of_a_framework_is_told(tmp_path: Path) -> None:
    predictor = tmp_path / "tflite.py"
    predictor.write_text("import tensorflow_that_is_not_there\n")
    spec = replace(faulty_spec(tmp_path), predictor=predictor)
    stack = Stack("tflite", "tflite", requirements=("tflite>=2",))
    spec = replace(spec, case=replace(spec.case, stack=stack))
    advice = "change its requirements: the package tflite is something else, write ai-edge-litert"
    with pytest.raises(AgentError, match=advice):
        opened(spec)


NUMPY_WARNING = "A module that was compiled using NumPy 1.x cannot be run in NumPy 2.3.1"
AD_HOC = Stack("old==1.0", "old", requirements=("old==1.0", "numpy"))


@pytest.mark.parametrize(
    ("stack", "advice"),
    [
        (AD_HOC, "ask for 'old==1.0 numpy<2'"),
        (replace(AD_HOC, place=Place(Path("stacks.yaml"), 3)), "numpy<2 into .* at stacks.yaml:3"),
        (Stack("here", "old", interpreter="current"), "pip install 'numpy<2' there"),
    ],
    ids=["ad-hoc", "declared", "interpreter"],
)
@pytest.mark.parametrize("error", ["ImportError()", "AttributeError('_ARRAY_API not found')"])
def test_a_framework_that_was_built_for_an_older_numpy_offers_the_constraint(
    tmp_path: Path, stack: Stack, advice: str, error: str
) -> None:
    predictor = tmp_path / "old.py"
    predictor.write_text(f"import sys\nprint({NUMPY_WARNING!r}, file=sys.stderr)\nraise {error}\n")
    spec = replace(faulty_spec(tmp_path), predictor=predictor)
    spec = replace(spec, case=replace(spec.case, stack=stack))
    message = f"old can't be imported in .*; it was built for numpy 1, .*{advice}"
    with pytest.raises(AgentError if stack.requirements else Unavailable, match=message):
        opened(spec)


def test_an_agent_of_another_version_of_the_protocol_is_refused(tmp_path: Path) -> None:
    spoken = protocol.VERSION + 1
    spec = replace(faulty_spec(tmp_path), launch=speaker({**HELLO, "protocol": spoken}))
    message = (
        f"the agent in stack here .* speaks version {spoken} of the protocol, and this "
        f"pytest-mlms version {protocol.VERSION}; .*install the same pytest-mlms on both sides"
    )
    with pytest.raises(AgentError, match=message):
        opened(spec)


def test_an_agent_that_tells_no_version_of_the_protocol_is_refused(tmp_path: Path) -> None:
    hello = {name: value for name, value in HELLO.items() if name != "protocol"}
    spec = replace(faulty_spec(tmp_path), launch=speaker(hello))
    with pytest.raises(AgentError, match="speaks version None of the protocol"):
        opened(spec)


def test_the_agent_ends_where_the_model_can_not_be_loaded(tmp_path: Path) -> None:
    with pytest.raises(AgentError, match="'load' raised SystemExit: this framework gives up"):
        opened(faulty_spec(tmp_path, at="load", fault="exit"))
    assert "Traceback" in (tmp_path / "agent.log").read_text()
