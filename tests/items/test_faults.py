"""What can be wrong with files, models, machines and agents.

Each names the place, what was found, and what to do.
"""

from __future__ import annotations

import fnmatch
import hashlib
import io
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from tests.support.project import DIGITS, Project

DATA = np.load(DIGITS / "digits_test.npz")
DIGITS_MODEL = (DIGITS / "digits_cnn.onnx").read_bytes()


def npz(**arrays: Any) -> bytes:
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    return buffer.getvalue()


def model(
    name: str = "image",
    shape: Any = ("n", 1, 8, 8),
    kind: int = TensorProto.FLOAT,
    output: str = "logits",
) -> bytes:
    """A model that flattens, and multiplies by a matrix of NaN where ``output`` is ``nan``."""
    size = int(np.prod(shape[1:]))
    matrix = np.full((size, 10), np.nan if output == "nan" else 1.0, np.float32)
    nodes = [
        helper.make_node("Cast", [name], ["cast"], to=TensorProto.FLOAT),
        helper.make_node("Flatten", ["cast"], ["flat"], axis=1),
        helper.make_node("MatMul", ["flat", "matrix"], ["logits" if output == "nan" else output]),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info(name, kind, list(shape))],
        [
            helper.make_tensor_value_info(
                "logits" if output == "nan" else output, TensorProto.FLOAT, ["n", 10]
            )
        ],
        [onnx.numpy_helper.from_array(matrix, "matrix")],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    return bytes(made.SerializeToString())


def remove(name: str) -> Callable[[Project], None]:
    return lambda project: (project.folder / name).unlink()


def replace(name: str, data: Callable[[], bytes]) -> Callable[[Project], None]:
    return lambda project: project.replace_file(name, data())


def edit(old: str, new: str) -> Callable[[Project], None]:
    return lambda project: project.edit(old, new)


ERRORS: dict[str, tuple[Callable[[Project], None], list[str]]] = {
    "missing model": (
        remove("digits_cnn.onnx"),
        [
            "manifests/digits.yaml:10: *digits_cnn.onnx does not exist; correct the path, or put the file there"
        ],
    ),
    "missing dataset": (
        remove("digits_test.npz"),
        ["manifests/digits.yaml:30: *digits_test.npz does not exist; *"],
    ),
    "missing labels": (
        remove("labels.txt"),
        ["manifests/digits.yaml:25: *labels.txt does not exist; *"],
    ),
    "wrong sha256": (
        lambda project: (project.folder / "digits_cnn.onnx").write_bytes(b"other") and None,
        [
            "manifests/digits.yaml:10: * has sha256 * expected 237cb7*; restore the file, or write its digest*"
        ],
    ),
    "labels too few": (
        lambda project: (project.folder / "labels.txt").write_text("zero\none\n") and None,
        [
            "manifests/digits.yaml:10: *labels.txt has 2 labels, and the model 10 classes; write one a line"
        ],
    ),
    "dataset labels too few": (
        replace("digits_test.npz", lambda: npz(image=DATA["image"], label=DATA["label"][:10])),
        [
            "manifests/digits.yaml:30: *digits_test.npz has 600 of 'image', 10 of 'label'; each input and 'label' must have the same number*"
        ],
    ),
    "dataset labels out of range": (
        replace(
            "digits_test.npz", lambda: npz(image=DATA["image"], label=DATA["label"].astype(int) + 5)
        ),
        [
            "manifests/digits.yaml:30: *digits_test.npz has labels from 5 to 14, and the model the classes 0 to 9"
        ],
    ),
    "dataset without labels": (
        replace("digits_test.npz", lambda: npz(image=DATA["image"])),
        ["manifests/digits.yaml:30: *digits_test.npz has no array 'label'; add it*"],
    ),
    "dataset of another shape": (
        replace(
            "digits_test.npz",
            lambda: npz(image=DATA["image"].reshape(600, 64), label=DATA["label"]),
        ),
        [
            "manifests/digits.yaml:30: *digits_test.npz: an image is height x width, or height x width x channels; the dataset has (64,)"
        ],
    ),
    "dataset that is a pickle": (
        replace("digits_test.npz", lambda: npz(image=np.array([print]), label=np.zeros(1, int))),
        [
            "manifests/digits.yaml:30: *is not an .npz file of plain arrays: Object arrays cannot be loaded*"
        ],
    ),
    "steps that make another shape": (
        edit("resize: {size: [8, 8]", "resize: {size: [9, 8]"),
        [
            "manifests/digits.yaml:10: input 'image': the manifest's steps make float32 64 x 1 x 9 x 8, and the model takes float32 any x 1 x 8 x 8; *"
        ],
    ),
    "model that does not load": (
        replace("digits_cnn.onnx", lambda: b"this is no model"),
        ["manifests/digits.yaml:10: 'load' raised InvalidProtobuf: *Protobuf parsing failed*"],
    ),
    "model with another input name": (
        replace("digits_cnn.onnx", lambda: model(name="pixels")),
        [
            "manifests/digits.yaml:13: the model has other inputs than the manifest",
            "  the manifest: image (float32)",
            "  the model:    pixels (float32 any x 1 x 8 x 8)",
        ],
    ),
    "model with another input type": (
        replace("digits_cnn.onnx", lambda: model(kind=TensorProto.DOUBLE)),
        ["  the manifest: image (float32)", "  the model:    image (float64 any x 1 x 8 x 8)"],
    ),
    "model with another shape": (
        replace("digits_cnn.onnx", lambda: model(shape=("n", 1, 28, 28))),
        [
            "manifests/digits.yaml:10: input 'image': the manifest's steps make float32 64 x 1 x 8 x 8, and the model takes float32 any x 1 x 28 x 28*"
        ],
    ),
    "model with a fixed batch": (
        replace("digits_cnn.onnx", lambda: model(shape=(1, 1, 8, 8))),
        [
            "*make float32 64 x 1 x 8 x 8, and the model takes float32 1 x 1 x 8 x 8; change the steps, layout, *batch_sizes"
        ],
    ),
    "model with another output name": (
        replace("digits_cnn.onnx", lambda: model(output="scores")),
        [
            "*: the model has other outputs than the manifest",
            "  the manifest: logits",
            "  the model:    scores (float32*",
        ],
    ),
    "outputs that are NaN": (
        replace("digits_cnn.onnx", lambda: model(output="nan")),
        [
            "manifests/digits.yaml:10: output 'logits' has NaN or infinity for 600 of 600 inputs, first for number 0; check the input's steps*"
        ],
    ),
}


def slug(name: str) -> str:
    return name.replace(" ", "-")


def broken(project: Project, changes: dict[str, Callable[[Project], object]]) -> None:
    """Put a manifest for each of ``changes`` below manifests/, in a folder of its name, and none
    above them.
    """
    for name, change in changes.items():
        change(project.fork(slug(name)))
    project.drop()


def of(project: Project) -> dict[str, dict[str, Any]]:
    """Return the items of the last run by the folder of their manifest."""
    return {item["nodeid"].split("/")[1]: item for item in project.items()}


def matches(message: str, name: str, expected: list[str]) -> bool:
    lines = message.replace(f"manifests/{slug(name)}/", "manifests/").splitlines()
    return all(any(fnmatch.fnmatchcase(line, pattern) for line in lines) for pattern in expected)


@pytest.mark.parametrize(
    "kinds", [("missing", "wrong", "labels", "dataset", "steps"), ("model", "outputs")]
)
def test_a_fault_of_the_users_is_named_without_a_traceback(
    project: Project, kinds: tuple[str, ...]
) -> None:
    chosen = {name: fault for name, fault in ERRORS.items() if name.startswith(kinds)}
    broken(project, {name: change for name, (change, _) in chosen.items()})
    result = project.run("-k", "accuracy")
    printed, items = result.stdout.str(), of(project)
    assert "Traceback" not in printed
    assert set(items) == set(map(slug, chosen))
    for name, (_, expected) in chosen.items():
        item = items[slug(name)]
        assert item["verdict"] == "ERROR"
        assert matches(item["message"], name, expected), item["message"]
        assert item["message"] in printed
        assert f"ERROR  {item['nodeid']}" in result.outlines


def test_a_performance_item_names_the_same_faults(project: Project) -> None:
    names = ["model with a fixed batch", "outputs that are NaN", "model that does not load"]
    broken(project, {name: ERRORS[name][0] for name in names})
    result = project.run("-k", "b8-offline")
    result.assert_outcomes(failed=3)
    assert "Traceback" not in result.stdout.str()
    assert matches(
        of(project)["model-that-does-not-load"]["message"], names[2], ERRORS[names[2]][1]
    )


def test_yaml_that_is_none_and_an_unknown_framework_are_named(project: Project) -> None:
    project.fork("typo").edit("onnxruntime >=1.17", "onnxruntme")
    project.edit("inputs:", "inputs: [")
    result = project.run()
    known = "no predictor for 'onnxruntme'; did you mean 'onnxruntime'?*"
    result.stdout.fnmatch_lines_random(
        [
            "manifests/digits.yaml:*: is not YAML: *; check the quotes, brackets*",
            f"manifests/typo/digits.yaml:9: models?0?.framework: {known}",
        ]
    )


SKIPS: dict[str, tuple[Callable[[Project], None], str]] = {
    "version": (
        edit("onnxruntime >=1.17", "onnxruntime <1.0"),
        "manifests/digits.yaml:9: asks for onnxruntime <1.0, and stack here (*) has onnxruntime 1.*",
    ),
    "device": (
        edit("devices: [cpu]", "devices: [cuda]"),
        "no device cuda: onnxruntime 1.* in stack here (*) has cpu",
    ),
}


def test_what_the_machine_lacks_is_a_skip_and_under_strict_a_failure(project: Project) -> None:
    broken(project, {name: change for name, (change, _) in SKIPS.items()})
    result = project.run("-k", "accuracy", "-rs")
    result.assert_outcomes(skipped=2)
    reasons = {
        name: reason.replace("manifests/", f"manifests/{name}/")
        for name, (_, reason) in SKIPS.items()
    }
    result.stdout.fnmatch_lines_random(
        [
            f"SKIPPED ?1? manifests/{name}/digits.yaml:9: {reason}"
            for name, reason in reasons.items()
        ]
    )
    assert {item["verdict"] for item in project.items()} == {"SKIPPED"}
    assert result.ret == 0
    nothing = "mlms: nothing was measured: all 2 items were skipped, -rs says why; --mlms-strict fails what can't run"
    result.stdout.fnmatch_lines([nothing])
    strict = project.run("-k", "b8-offline", "--mlms-strict")
    strict.assert_outcomes(failed=2)
    strict.stdout.fnmatch_lines_random(list(reasons.values()))


def test_a_framework_that_is_not_installed_is_a_skip_that_says_where(project: Project) -> None:
    folder = project.path / "predictors"
    folder.mkdir()
    (folder / "absent.py").write_text("import a_framework_that_nobody_has\n")
    project.use_faulty()
    project.edit("framework: faulty", "framework: absent")
    result = project.run("-k", "accuracy", f"--mlms-predictors={folder}", "-rs")
    result.assert_outcomes(skipped=1)
    result.stdout.fnmatch_lines(
        ["SKIPPED*absent can't be imported in stack here (*); install it there: *No module named*"]
    )


PLACE = "manifests/digits.yaml:10: "
AGENTS = {
    "segv": PLACE
    + "the agent (process *) ended while it did 'predict': killed by SIGSEGV; an error of the framework or "
    "its build: try another version",
    "killed": PLACE
    + "the agent (process *) ended *: killed by SIGKILL, as the kernel does when memory runs out*",
    "memory": PLACE
    + "'predict' raised *MemoryError: Unable to allocate 2.00 EiB for an array* (log: *)",
    "exit": PLACE + "'predict' raised SystemExit: this framework gives up (log: *)",
    "garbage": PLACE
    + "the agent (process *) can't exchange frames for 'predict': expected a frame, found b'this is no*",
}


def test_an_agent_that_fails_fails_its_item_and_the_next_gets_a_fresh_one(project: Project) -> None:
    for fault in (*AGENTS, "stdout", "flood"):
        project.fork(fault).use_faulty(at="predict", fault=fault)
    project.fork("fallback").use_faulty(device="cpu:1")
    project.fork("sound").use_faulty()
    project.drop()
    result = project.run("-k", "accuracy")
    result.assert_outcomes(passed=3, failed=len(AGENTS), errors=1)
    assert "Traceback" not in result.stdout.str()
    items = of(project)
    assert [name for name in items if items[name]["verdict"] == "PASSED"] == [
        "flood",
        "sound",
        "stdout",
    ]
    for fault, expected in AGENTS.items():
        assert matches(items[fault]["message"], fault, [expected]), items[fault]["message"]
        assert all(
            (project.path / "mlms-results" / "latest" / log).exists()
            for log in items[fault]["logs"]
        )
    fell_back = (
        PLACE
        + "asked for cpu, faulty runs on cpu:1: it fell back silently; repair its installation*"
    )
    assert matches(items["fallback"]["message"], "fallback", [fell_back])
    result.stdout.fnmatch_lines(["  its log, *mlms-results/*/agents/faulty-main-*.log, ends:"])
    result.stdout.fnmatch_lines(["*Segmentation fault*"])


def test_an_agent_that_hangs_is_killed_after_the_timeout(project: Project) -> None:
    folder = project.path / "predictors"
    folder.mkdir()
    (folder / "asleep.py").write_text("import time\ntime.sleep(600)\n")
    project.use_faulty()
    project.edit("framework: faulty", "framework: asleep")
    result = project.run("-k", "accuracy", "--mlms-timeout=1", f"--mlms-predictors={folder}")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(
        [
            "*gave no reply to 'hello' in 1 s and was killed; if it is only slow, raise --mlms-timeout"
        ]
    )


def test_processes_that_disagree_are_an_error(project: Project) -> None:
    project.use_faulty(fault="drift")
    result = project.run("-k", "performance", "--mlms-processes=2")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            PLACE
            + "process 2 computed another 'logits' than process 1 from the same inputs, up to 1 off; *"
        ]
    )


class _Web(BaseHTTPRequestHandler):
    asked: list[str]

    def do_GET(self) -> None:
        self.asked.append(self.path)
        page = self.path == "/page"
        data = b"<html>" if page else DIGITS_MODEL
        self.send_response(404 if self.path == "/gone.onnx" else 200)
        self.send_header("Content-Length", str(len(data)))
        if page:
            self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:
        pass


def test_a_model_is_fetched_once_for_all_items_and_workers_or_says_why_not(
    project: Project, tmp_path: Path
) -> None:
    handler = type("Handler", (_Web,), {"asked": []})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url, digest = (
            f"http://127.0.0.1:{server.server_port}",
            hashlib.sha256(DIGITS_MODEL).hexdigest(),
        )
        for folder, path in {"page": "page", "gone": "gone.onnx", "other": "other.onnx"}.items():
            fork = project.fork(folder)
            fork.edit("graph: digits_cnn.onnx", f"graph: {url}/{path}")
            fork.edit(digest, ("f" if folder == "other" else "e") * 64)
        project.edit("graph: digits_cnn.onnx", f"graph: {url}/digits_cnn.onnx")
        project.set_thresholds()
        result = project.run(
            "-n", "2", f"--mlms-cache={tmp_path / 'cache'}", "-k", "accuracy or b8-offline"
        )
        server.shutdown()
    result.assert_outcomes(passed=2, errors=6)
    assert handler.asked.count("/digits_cnn.onnx") == 1  # type: ignore[attr-defined]
    result.stdout.fnmatch_lines_random(
        [
            "manifests/page/digits.yaml:10: http://*: the server sent a web page instead of the file; *",
            "manifests/gone/digits.yaml:10: http://*: the server answered 404 Not Found; correct the address",
            "manifests/other/digits.yaml:10: http://*expected sha256:ffff* but got *Correct the manifest's sha256 *",
        ]
    )
