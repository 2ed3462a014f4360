"""ONNX files with weights beside them, written by onnx itself and loaded by ONNX Runtime."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

from pytest_mlms.core.errors import ArtifactError
from pytest_mlms.core.records import Artifact, Place
from pytest_mlms.provide.artifacts.external_data import (
    check_external_data,
    external_data,
    with_external_data,
)
from tests.support.archives import write_zip
from tests.support.project import DIGITS, Project, sha256

HERE = Place(Path("m.yaml"), 12)
ONNX = DIGITS / "digits_cnn.onnx"
WEIGHTS = "digits_cnn.onnx.data"


def digest(path: Path) -> str:
    return sha256(path.read_bytes())


def artifacts(*paths: Path) -> dict[str, Artifact]:
    roles = zip(("graph", "weights"), paths, strict=False)
    return {role: Artifact(str(path), digest(path), HERE) for role, path in roles}


def with_data_in(path: Path, *names: str) -> Path:
    """Write the digits network with its weights in these files, in turn."""
    model = onnx.load(ONNX)
    onnx.save(model, path, save_as_external_data=True, location=names[0], size_threshold=0)
    model = onnx.load(path, load_external_data=False)
    tensors = [tensor for tensor in model.graph.initializer if tensor.external_data]
    for number, tensor in enumerate(tensors):
        for entry in tensor.external_data:
            if entry.key == "location":
                entry.value = names[number % len(names)]
    path.write_bytes(model.SerializeToString())
    return path


@pytest.fixture
def graph(tmp_path: Path) -> Path:
    return with_data_in(tmp_path / "digits_cnn.onnx", WEIGHTS)


def test_the_files_that_an_onnx_file_names_are_found(graph: Path) -> None:
    assert external_data(graph) == (WEIGHTS,)
    assert external_data(ONNX) == ()


def test_those_in_functions_branches_and_attributes_are_found(tmp_path: Path) -> None:
    def named(name: str) -> onnx.TensorProto:
        tensor = onnx.TensorProto(name=name, data_location=onnx.TensorProto.EXTERNAL)
        tensor.external_data.add(key="location", value=name)
        return tensor

    helper = onnx.helper
    branch = helper.make_graph([], "branch", [], [], [named("branch")])
    sparse = onnx.SparseTensorProto(values=named("values"), indices=named("indices"))
    nodes = [
        helper.make_node("If", ["c"], ["y"], then_branch=branch),
        helper.make_node("Constant", [], ["z"], value=named("constant")),
        helper.make_node("Constant", [], ["s"], sparse_value=sparse),
    ]
    opsets = [helper.make_opsetid("", 18)]
    function = helper.make_function("f", "g", [], [], nodes[1:2], opsets)
    function.node[0].attribute[0].t.external_data[0].value = "function"
    graph = helper.make_graph(nodes, "graph", [], [], [named("weight")])
    model = helper.make_model(graph, functions=[function])
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
    expected = ("branch", "constant", "function", "indices", "values", "weight")
    assert external_data(tmp_path / "m.onnx") == expected


def test_weights_that_no_digest_covers_are_an_error_with_what_to_write(graph: Path) -> None:
    message = (
        f"^m.yaml:12: digits_cnn.onnx has weights in {WEIGHTS}, which no sha256 covers; "
        f"write 'weights: {WEIGHTS}' and its sha256"
    )
    with pytest.raises(ArtifactError, match=message):
        check_external_data("onnxruntime", artifacts(graph), graph)


def test_several_files_belong_into_an_archive(tmp_path: Path) -> None:
    graph = with_data_in(tmp_path / "m.onnx", "a.bin", "b.bin")
    weights = tmp_path / "a.bin"
    weights.write_bytes(b"")
    with pytest.raises(ArtifactError, match=r"weights in a\.bin, b\.bin.* into an archive"):
        check_external_data("onnxruntime", artifacts(graph, weights), graph)


@pytest.mark.parametrize(
    "name", ["/etc/passwd", "../w.bin", "in/../../w.bin", "*/_ORT_MEM_ADDR_/*"]
)
def test_a_place_outside_of_the_folder_is_refused(tmp_path: Path, name: str) -> None:
    graph = with_data_in(tmp_path / "m.onnx", "w.bin")
    content = graph.read_bytes()
    model = onnx.load_from_string(content)
    for tensor in model.graph.initializer:
        for entry in tensor.external_data:
            entry.value = name if entry.key == "location" else entry.value
    graph.write_bytes(model.SerializeToString())
    with pytest.raises(ArtifactError, match="^m.yaml:12: .*, which is no place beside it; export"):
        check_external_data("onnxruntime", artifacts(graph), graph)


@pytest.mark.parametrize("content", [b"", b"no model", ONNX.read_bytes()[:-100]])
def test_what_is_no_onnx_file_is_an_error(tmp_path: Path, content: bytes) -> None:
    graph = tmp_path / "m.onnx"
    graph.write_bytes(content)
    with pytest.raises(ArtifactError, match="is not an ONNX model: "):
        check_external_data("onnxruntime", artifacts(graph), graph)


def test_a_compiled_model_in_another_file_is_refused(tmp_path: Path) -> None:
    node = onnx.helper.make_node("EPContext", [], ["y"], ep_cache_context="engine.bin")
    model = onnx.helper.make_model(onnx.helper.make_graph([node], "g", [], []))
    graph = tmp_path / "m.onnx"
    graph.write_bytes(model.SerializeToString())
    with pytest.raises(ArtifactError, match="a node EPContext"):
        check_external_data("onnxruntime", artifacts(graph), graph)


def test_a_group_can_not_hide_the_files(graph: Path) -> None:
    beginning, end = bytes([9 << 3 | 3]), bytes([9 << 3 | 4])
    graph.write_bytes(beginning + end + graph.read_bytes())
    onnx.load(graph, load_external_data=False)  # protobuf's own reader passes over groups
    assert external_data(graph) == (WEIGHTS,)


def outputs(graph: Path) -> Any:
    image = np.ones((1, 1, 8, 8), np.float32)
    return onnxruntime.InferenceSession(graph).run(None, {"image": image})[0]


def test_weights_beside_the_file_are_used_where_they_are(graph: Path, tmp_path: Path) -> None:
    paths = {"graph": graph, "weights": tmp_path / WEIGHTS}
    found = with_external_data("onnxruntime", artifacts(*paths.values()), paths, tmp_path / "cache")
    assert found == paths
    assert not (tmp_path / "cache").exists()


def test_weights_of_another_place_or_name_are_put_beside_the_file(
    graph: Path, tmp_path: Path
) -> None:
    weights = tmp_path / "elsewhere.bin"
    (tmp_path / WEIGHTS).rename(weights)
    (tmp_path / WEIGHTS).write_bytes(bytes(weights.stat().st_size))  # what no digest covers
    paths = {"graph": graph, "weights": weights}
    for _ in range(2):
        found = with_external_data("onnxruntime", artifacts(*paths.values()), paths, tmp_path / "c")
        np.testing.assert_array_equal(outputs(found["graph"]), outputs(ONNX))
        assert found["weights"] == found["graph"].parent / WEIGHTS
        found["weights"].write_bytes(b"changed")  # and so made anew


def test_links_are_not_followed(graph: Path, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    link = tmp_path / "in" / "digits_cnn.onnx"
    link.symlink_to(graph)
    weights = tmp_path / "in" / WEIGHTS
    weights.write_bytes((tmp_path / WEIGHTS).read_bytes())
    paths = {"graph": link, "weights": weights}
    found = with_external_data("onnxruntime", artifacts(*paths.values()), paths, tmp_path / "cache")
    assert not found["graph"].is_symlink()
    assert found["weights"] == found["graph"].parent / WEIGHTS


def use_graph(project: Project, source: str, **digests: str) -> None:
    """Have the manifest name another graph, and weights where there is a digest of them."""
    old = f"graph: digits_cnn.onnx\n    sha256: {digest(ONNX)}"
    lines = [f"graph: {source}"]
    if "weights" in digests:
        lines.append(f"weights: {WEIGHTS}")
    pairs = ", ".join(f"{role}: {value!r}" for role, value in digests.items())
    lines.append(f"sha256: {{{pairs}}}")
    project.edit(old, "\n    ".join(lines))


@pytest.mark.slow
def test_a_model_whose_external_data_was_swapped_does_not_run(
    project: Project, tmp_path: Path
) -> None:
    folder = project.manifest.parent
    graph = with_data_in(folder / "model.onnx", WEIGHTS)
    weights = folder / WEIGHTS
    use_graph(project, "model.onnx", graph=digest(graph), weights=digest(weights))
    project.run("-k", "accuracy").assert_outcomes(passed=1)
    weights.write_bytes(bytes(weights.stat().st_size))
    result = project.run("-k", "accuracy")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines([f"*{WEIGHTS} has sha256 *, expected *"])


def test_external_data_in_an_archive_is_covered_by_its_digest(project: Project) -> None:
    folder = project.manifest.parent
    graph = with_data_in(folder / "model.onnx", "a.bin", "b.bin")
    content = (folder / "a.bin").read_bytes()
    members = {"in/model.onnx": graph.read_bytes(), "in/a.bin": content, "in/b.bin": content}
    archive = write_zip(folder / "model.zip", members)
    for path in (graph, folder / "a.bin"):
        path.unlink()
    use_graph(project, "model.zip#in/model.onnx", graph=digest(archive))
    project.run("-k", "accuracy").assert_outcomes(passed=1)


def test_an_archive_without_the_data_is_an_error(project: Project) -> None:
    folder = project.manifest.parent
    graph = with_data_in(folder / "model.onnx", WEIGHTS)
    archive = write_zip(folder / "model.zip", {"model.onnx": graph.read_bytes()})
    use_graph(project, "model.zip#model.onnx", graph=digest(archive))
    result = project.run("-k", "accuracy")
    result.stdout.fnmatch_lines([f"*model.onnx has weights in {WEIGHTS}, which the archive lacks*"])


def test_lint_finds_weights_that_no_digest_covers(project: Project) -> None:
    graph = with_data_in(project.manifest.parent / "model.onnx", WEIGHTS)
    use_graph(project, "model.onnx", graph=digest(graph))
    result = project.pytester.run(sys.executable, "-m", "pytest_mlms", "lint", project.manifest)
    assert result.ret == 1
    result.stdout.fnmatch_lines([f"*model.onnx has weights in {WEIGHTS}, which no sha256 covers*"])
