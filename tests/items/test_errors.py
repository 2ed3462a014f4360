"""Tests of errors in files and models, shown with place, finding and advice."""

from __future__ import annotations

import fnmatch
import hashlib
import io
import re
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from tests.support.project import DIGITS, Project

DATA = np.load(DIGITS / "digits_test.npz")
IMAGES = DATA["image"]
LABELS = DATA["label"]
DIGITS_MODEL = (DIGITS / "digits_cnn.onnx").read_bytes()


def npz(**arrays: Any) -> bytes:
    """Return the bytes of an .npz file."""
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    return buffer.getvalue()


def model(
    name: str = "image",
    shape: Sequence[Any] = ("n", 1, 8, 8),
    kind: int = TensorProto.FLOAT,
    output: str = "logits",
    weight: float = 1.0,
) -> bytes:
    """Return an ONNX model that multiplies its flattened input by a matrix."""
    size = int(np.prod(shape[1:]))
    matrix = np.full((size, 10), weight, np.float32)
    graph = helper.make_graph(
        [
            helper.make_node("Cast", [name], ["cast"], to=TensorProto.FLOAT),
            helper.make_node("Flatten", ["cast"], ["flat"], axis=1),
            helper.make_node("MatMul", ["flat", "matrix"], [output]),
        ],
        "g",
        [helper.make_tensor_value_info(name, kind, list(shape))],
        [helper.make_tensor_value_info(output, TensorProto.FLOAT, ["n", 10])],
        [onnx.numpy_helper.from_array(matrix, "matrix")],
    )
    opset = helper.make_opsetid("", 13)
    made = helper.make_model(graph, opset_imports=[opset], ir_version=8)
    return bytes(made.SerializeToString())


@dataclass(frozen=True)
class Change:
    """A change of the project that is an error, and the lines of the message.

    It removes a file, or writes one (``data``; with ``new_digest``, the manifest's digest too), or
    replaces a part of the manifest.
    """

    message: Sequence[str]
    remove: str = ""
    write: str = ""
    data: bytes = b""
    new_digest: bool = True
    edit: tuple[str, str] | None = None

    def apply(self, project: Project) -> None:
        """Make the change."""
        if self.remove:
            (project.folder / self.remove).unlink()
        if self.write and self.new_digest:
            project.replace_file(self.write, self.data)
        elif self.write:
            (project.folder / self.write).write_bytes(self.data)
        if self.edit:
            project.edit(*self.edit)


def dataset(message: str, **arrays: Any) -> Change:
    """Return a change of the dataset."""
    place = "manifests/digits.yaml:30: *digits_test.npz"
    return Change([f"{place}{message}"], write="digits_test.npz", data=npz(**arrays))


def other_model(message: Sequence[str], data: bytes) -> Change:
    """Return a change of the model."""
    return Change(message, write="digits_cnn.onnx", data=data)


STEPS = "manifests/digits.yaml:10: input 'image': the manifest's steps make"

ERRORS = {
    "missing model": Change(
        ["manifests/digits.yaml:10: *digits_cnn.onnx does not exist; correct the path, or put *"],
        remove="digits_cnn.onnx",
    ),
    "missing dataset": Change(
        ["manifests/digits.yaml:30: *digits_test.npz does not exist; *"],
        remove="digits_test.npz",
    ),
    "missing labels": Change(
        ["manifests/digits.yaml:25: *labels.txt does not exist; *"],
        remove="labels.txt",
    ),
    "wrong sha256": Change(
        ["manifests/digits.yaml:10: * has sha256 * expected 237cb7*; restore the file, or write *"],
        write="digits_cnn.onnx",
        data=b"other",
        new_digest=False,
    ),
    "labels too few": Change(
        ["manifests/digits.yaml:10: *labels.txt has 2 labels, and the model 10 classes; write *"],
        write="labels.txt",
        data=b"zero\none\n",
        new_digest=False,
    ),
    "dataset labels too few": dataset(
        " has 600 of 'image', 10 of 'label'; each input and 'label' must have the same number*",
        image=IMAGES,
        label=LABELS[:10],
    ),
    "dataset labels out of range": dataset(
        ": element * the label is 1?, of labels from 5 to 14; the model has the classes 0 to 9; *",
        image=IMAGES,
        label=LABELS.astype(int) + 5,
    ),
    "dataset without labels": dataset(
        " has no array 'label'; add it*",
        image=IMAGES,
    ),
    "dataset of another shape": dataset(
        ": element 0: an image is height x width, or height x width x channels; "
        "the dataset has (64,)*",
        image=IMAGES.reshape(600, 64),
        label=LABELS,
    ),
    "dataset that is a pickle": dataset(
        " has the array 'image' of objects, which would have to be unpickled; write it again*",
        image=np.array([print]),
        label=np.zeros(1, int),
    ),
    "steps that make another shape": Change(
        [f"{STEPS} float32 64 x 1 x 9 x 8, and the model takes float32 any x 1 x 8 x 8; *"],
        edit=("resize: {size: [8, 8]", "resize: {size: [9, 8]"),
    ),
    "model that does not load": other_model(
        ["manifests/digits.yaml:10: *digits_cnn.onnx is not an ONNX model: *; export it again"],
        b"this is no model",
    ),
    "model with another input name": other_model(
        [
            "manifests/digits.yaml:13: the model has other inputs than the manifest",
            "  the manifest: image (float32)",
            "  the model:    pixels (float32 any x 1 x 8 x 8)",
        ],
        model(name="pixels"),
    ),
    "model with another input type": other_model(
        ["  the manifest: image (float32)", "  the model:    image (float64 any x 1 x 8 x 8)"],
        model(kind=TensorProto.DOUBLE),
    ),
    "model with another shape": other_model(
        [f"{STEPS} float32 64 x 1 x 8 x 8, and the model takes float32 any x 1 x 28 x 28*"],
        model(shape=("n", 1, 28, 28)),
    ),
    "model with a fixed batch": other_model(
        [f"{STEPS} float32 64 x 1 x 8 x 8, and the model takes float32 1 x 1 x 8 x 8; *batch_*"],
        model(shape=(1, 1, 8, 8)),
    ),
    "model with another output name": other_model(
        [
            "*: the model has other outputs than the manifest",
            "  the manifest: logits",
            "  the model:    scores (float32*",
        ],
        model(output="scores"),
    ),
    "outputs that are NaN": other_model(
        ["manifests/digits.yaml:10: output 'logits' has NaN or infinity for 600 of 600 inputs, *"],
        model(weight=np.nan),
    ),
}


def folder_name(error: str) -> str:
    return error.replace(" ", "-")


def break_project(project: Project, changes: dict[str, Change]) -> None:
    """Replace the manifest by one for each change, in a folder that is named after it."""
    for name, change in changes.items():
        change.apply(project.fork(folder_name(name)))
    project.drop()


def items_by_folder(project: Project) -> dict[str, dict[str, Any]]:
    items = {}
    for item in project.items():
        _, folder, *_ = item["nodeid"].split("/")
        items[folder] = item
    return items


def check_message(message: str, error: str) -> None:
    """The message has every line that it should have, with the model and the case in the first."""
    first_line, *_ = message.splitlines()
    label = re.search(r"digits-cnn onnxruntime-cpu[\w-]*: ", first_line)
    assert label is not None
    message = message.replace(label[0], "")
    shown = message.replace(f"manifests/{folder_name(error)}/", "manifests/")
    for pattern in ERRORS[error].message:
        assert fnmatch.filter(shown.splitlines(), pattern), message


@pytest.mark.parametrize(
    "beginnings",
    [("missing", "wrong", "labels", "dataset", "steps"), ("model", "outputs")],
    ids=["files", "models"],
)
def test_an_error_of_the_users_is_shown_without_a_traceback(
    project: Project, beginnings: tuple[str, ...]
) -> None:
    errors = {name: change for name, change in ERRORS.items() if name.startswith(beginnings)}
    break_project(project, errors)
    result = project.run("-k", "accuracy")
    printed = result.stdout.str()
    items = items_by_folder(project)
    assert "Traceback" not in printed
    assert len(items) == len(errors)
    for name in errors:
        item = items[folder_name(name)]
        assert item["verdict"] == "ERROR"
        check_message(item["message"], name)
        assert item["message"] in printed
        assert f"ERROR  {item['nodeid']}" in result.outlines


def test_a_performance_item_shows_the_same_errors(project: Project) -> None:
    names = ["model with a fixed batch", "outputs that are NaN", "model that does not load"]
    break_project(project, {name: ERRORS[name] for name in names})
    result = project.run("-k", "b8-offline")
    result.assert_outcomes(failed=2, errors=1)
    assert "Traceback" not in result.stdout.str()
    item = items_by_folder(project)["model-that-does-not-load"]
    check_message(item["message"], "model that does not load")


def test_a_manifest_that_is_not_yaml_does_not_hide_the_errors_of_others(project: Project) -> None:
    project.fork("typo").edit("onnxruntime >=1.17", "onnxruntme")
    project.edit("inputs:", "inputs: [")
    result = project.run()
    unknown = "no predictor for 'onnxruntme'; did you mean 'onnxruntime'?*"
    result.stdout.fnmatch_lines_random(
        [
            "manifests/digits.yaml:*: is not YAML: *; check the quotes, brackets*",
            f"manifests/typo/digits.yaml:9: models?0?.framework: {unknown}",
        ]
    )


MISSING = {
    "version": Change(
        ["manifests/version/digits.yaml:9: asks for onnxruntime <1.0, and stack here * has onn*"],
        edit=("onnxruntime >=1.17", "onnxruntime <1.0"),
    ),
    "device": Change(
        ["no device cuda: onnxruntime 1.* in stack here (*) has cpu"],
        edit=("devices: [cpu]", "devices: [cuda]"),
    ),
}


def test_what_the_machine_does_not_have_is_a_skip(project: Project) -> None:
    break_project(project, MISSING)
    result = project.run("-k", "accuracy", "-rs")
    result.assert_outcomes(skipped=2)
    assert result.ret == 0
    assert {item["verdict"] for item in project.items()} == {"SKIPPED"}
    for name, change in MISSING.items():
        (reason,) = change.message
        result.stdout.fnmatch_lines_random(
            [f"SKIPPED ?1? manifests/{name}/digits.yaml:9: {reason}"]
        )
    skipped = "all 2 items were skipped, -rs says why; --mlms-strict fails what can't run"
    result.stdout.fnmatch_lines([f"mlms: nothing was measured: {skipped}"])


def test_what_the_machine_does_not_have_is_a_failure_under_strict(project: Project) -> None:
    break_project(project, MISSING)
    result = project.run("-k", "b8-offline", "--mlms-strict")
    result.assert_outcomes(failed=2)
    for change in MISSING.values():
        named = [
            re.sub("^(manifests/.*?: )?", r"\1digits-cnn *: ", line) for line in change.message
        ]
        result.stdout.fnmatch_lines_random(named)


class _Web(BaseHTTPRequestHandler):
    """Serves the model under any name but /page, a web page, and /gone.onnx, which is not there."""

    requested: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        self.requested.append(self.path)
        data = DIGITS_MODEL
        status = 404 if self.path == "/gone.onnx" else 200
        self.send_response(status)
        if self.path == "/page":
            data = b"<html>"
            self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextmanager
def web_server() -> Iterator[str]:
    """Serve on a free port; give the address."""
    _Web.requested.clear()
    with ThreadingHTTPServer(("127.0.0.1", 0), _Web) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def use_url(project: Project, url: str, digest: str) -> None:
    """Have the manifest name a model in the web, with this digest."""
    project.edit("graph: digits_cnn.onnx", f"graph: {url}")
    project.edit(hashlib.sha256(DIGITS_MODEL).hexdigest(), digest)


def test_a_model_is_fetched_once_for_all_items_and_workers(
    project: Project, tmp_path: Path
) -> None:
    project.set_thresholds()
    cache = f"--mlms-cache={tmp_path / 'cache'}"
    with web_server() as address:
        use_url(project, f"{address}/digits_cnn.onnx", hashlib.sha256(DIGITS_MODEL).hexdigest())
        result = project.run("-n", "2", cache, "-k", "accuracy or b8-offline")
    result.assert_outcomes(passed=2)
    assert _Web.requested == ["/digits_cnn.onnx"]


def test_a_model_that_can_not_be_fetched_is_shown_with_the_servers_answer(
    project: Project, tmp_path: Path
) -> None:
    with web_server() as address:
        use_url(project.fork("page"), f"{address}/page", "e" * 64)
        use_url(project.fork("gone"), f"{address}/gone.onnx", "e" * 64)
        use_url(project.fork("other"), f"{address}/other.onnx", "f" * 64)
        project.drop()
        result = project.run(f"--mlms-cache={tmp_path / 'cache'}", "-k", "accuracy")
    result.assert_outcomes(errors=3)
    result.stdout.fnmatch_lines_random(
        [
            "manifests/page/digits.yaml:10: *: http://*: the server sent a web page instead of *",
            "manifests/gone/digits.yaml:10: *: http://*: the server answered 404 Not Found; *",
            "manifests/other/digits.yaml:10: *: http://*expected sha256:ffff* but got *Correct the *",
        ]
    )


@pytest.mark.parametrize("option", ["--mlms-trace=model", "--mlms-aa"])
def test_a_batch_that_memory_does_not_have_is_an_error_of_each_item(
    project: Project, option: str
) -> None:
    project.edit("batch_sizes: [1, 8, 64]", "batch_sizes: [1000000000]")
    result = project.run(option)
    assert "Traceback" not in result.stdout.str()
    items = project.items()
    assert {item["kind"] for item in items} & {"trace", "upgrade"}
    for item in items:
        assert item["verdict"] == "ERROR"
        assert "a batch of 1,000,000,000 takes 477 GiB of memory, and " in item["message"]
        assert "are free; write smaller batch_sizes" in item["message"]
