"""Bundles name neither the machine nor its user, and hold no variable of the environment."""

from __future__ import annotations

import socket
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from pytest_mlms.core.errors import MlmsError
from pytest_mlms.explain.repro.archive import write_bundle
from pytest_mlms.explain.repro.privacy import without_places
from pytest_mlms.measure.agent.registry import find_predictors
from tests.support.bundles import bundle_of_matrix

SECRET = "conspicuous-7f31"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A conspicuous home, user, host, cache and secret."""
    folder = tmp_path / SECRET
    folder.mkdir()
    for name in ("USER", "LOGNAME", "PASSWORD", "PIP_INDEX_URL", "HOSTNAME"):
        monkeypatch.setenv(name, SECRET)
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.setenv("MLMS_CACHE", str(folder / "cache"))
    monkeypatch.setattr(socket, "gethostname", lambda: SECRET)
    monkeypatch.chdir(folder)
    return folder


def contents(path: Path) -> Iterator[bytes]:
    with zipfile.ZipFile(path) as archive:
        for info in archive.infolist():
            yield info.filename.encode()
            yield archive.read(info)


def test_no_member_names_the_machine_or_its_user(home: Path) -> None:
    bundle = bundle_of_matrix(home)
    write_bundle(bundle, home / "repro.zip")
    assert bundle.files["graph"].is_relative_to(home)
    assert not [content for content in contents(home / "repro.zip") if SECRET.encode() in content]


def test_a_text_that_names_the_home_is_refused(home: Path) -> None:
    texts = np.array([["well"], [f"see {home}/notes"]])
    bundle = replace(bundle_of_matrix(home), inputs={"x": texts})
    with pytest.raises(MlmsError, match="input 'x' names this machine or its user"):
        write_bundle(bundle, home / "repro.zip")


def test_a_model_that_names_the_home_is_refused(home: Path) -> None:
    bundle = bundle_of_matrix(home)
    graph = bundle.files["graph"]
    graph.write_bytes(graph.read_bytes() + f'File "{home}/train.py"'.encode())
    with pytest.raises(MlmsError, match=r"model/graph\.npy names this machine or its user"):
        write_bundle(bundle, home / "repro.zip")
    assert not (home / "repro.zip").exists()
    write_bundle(bundle, home / "repro.zip", checked=False)


def test_a_host_in_the_title_is_refused(home: Path) -> None:
    bundle = bundle_of_matrix(home, title=f"seen on {SECRET}")
    with pytest.raises(MlmsError, match=r"README\.txt names this machine"):
        write_bundle(bundle, home / "repro.zip")


def onnx_with_stack_traces(folder: Path) -> Path:
    """Write a model as exporters do: each node has the source lines that it is of."""
    node = helper.make_node("Relu", ["x"], ["y"], doc_string=f"{folder}/train.py(7): forward")
    value = helper.make_tensor_value_info
    inputs = [value("x", TensorProto.FLOAT, [1, 3])]
    outputs = [value("y", TensorProto.FLOAT, [1, 3])]
    model = helper.make_model(helper.make_graph([node], "g", inputs, outputs))
    path = folder / "model.onnx"
    onnx.save(model, path)
    return path


def test_descriptions_of_nodes_are_removed_where_they_name_places(home: Path) -> None:
    bundle = bundle_of_matrix(
        home,
        predictor=find_predictors()["onnxruntime"],
        files={"graph": onnx_with_stack_traces(home)},
        inputs={"x": np.ones((1, 3), np.float32)},
    )
    (home / "made").mkdir()
    private = without_places(bundle, home / "made")
    write_bundle(private, home / "repro.zip")
    assert not [content for content in contents(home / "repro.zip") if SECRET.encode() in content]
    (node,) = onnx.load(private.files["graph"]).graph.node
    assert node.op_type == "Relu"
