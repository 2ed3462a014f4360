"""The command ``mlms lint``."""

from __future__ import annotations

import io
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from pytest_mlms.cli.main import main
from pytest_mlms.core.files import write_arrays
from tests.support.archives import write_zip
from tests.support.project import PREDICTORS, copy_digits, sha256


@pytest.fixture
def manifest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The manifest of a folder ``manifests``."""
    monkeypatch.chdir(tmp_path)
    return copy_digits(tmp_path / "manifests")


def test_a_folder_without_errors_is_quiet(
    manifest: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["lint", "manifests"]) == 0
    output, summary = capsys.readouterr()
    assert output == ""
    assert summary == "1 manifest, 0 with errors\n"


def test_unpinned_files_are_checked_and_not_recorded(
    manifest: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = manifest.read_text()
    text = text.replace(sha256(manifest.with_name("digits_test.npz").read_bytes()), "unpinned")
    manifest.write_text(text)
    record = manifest.with_suffix(".sha256")
    assert main(["lint", "manifests"]) == 0
    assert not record.exists()
    record.write_text(f"{'0' * 64}  digits_test.npz\n")
    assert main(["lint", "manifests"]) == 1
    output, _ = capsys.readouterr()
    assert "remove its line from" in output


def test_each_error_is_printed_with_its_line(
    manifest: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = manifest.read_text()
    text = text.replace("5 ms", "5")
    text = text.replace("float32", "fp32")
    manifest.write_text(text)
    assert main(["lint", "manifests/digits.yaml"]) == 1
    output, summary = capsys.readouterr()
    places = [line.partition(": ")[0] for line in output.splitlines()]
    assert places == ["manifests/digits.yaml:16", "manifests/digits.yaml:44"]
    assert summary == "1 manifest, 1 with errors\n"


def test_local_files_are_checked_too(manifest: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (manifest.parent / "labels.txt").unlink()
    (manifest.parent / "digits_cnn.onnx").write_bytes(b"changed")
    assert main(["lint", "manifests"]) == 1
    output = capsys.readouterr().out
    assert "labels.txt does not exist" in output
    assert "digits_cnn.onnx has sha256" in output


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("nowhere", "mlms: there is no nowhere; name a manifest or a folder of them\n"),
        ("empty", "mlms: empty has no .yaml file; name a manifest or a folder of them\n"),
        (
            "model.onnx",
            "mlms: model.onnx is not a .yaml file; name a manifest or a folder of them\n",
        ),
    ],
)
def test_a_path_without_a_manifest_is_a_usage_error(
    manifest: Path, capsys: pytest.CaptureFixture[str], path: str, message: str
) -> None:
    Path("empty").mkdir()
    Path("model.onnx").touch()
    assert main(["lint", path]) == 2
    assert capsys.readouterr().err == message


@pytest.mark.parametrize(
    ("old", "new", "line", "message"),
    [
        ("name: image\n", "name: picture\n", 13, "the model has other inputs than the manifest"),
        ("name: logits", "name: scores", 22, "the model has other outputs than the manifest"),
        ("element_type: float32", "element_type: float64", 13, "image (float32 any x 1 x 8 x 8)"),
        ("size: [8, 8]", "size: [9, 8]", 14, "float32 1 x 1 x 9 x 8, and the model takes"),
        ("layout: NCHW", "layout: NHWC", 14, "float32 1 x 8 x 8 x 1, and the model takes"),
        ("color: L", "color: RGB", 14, "float32 1 x 3 x 8 x 8, and the model takes"),
    ],
)
def test_a_manifest_is_compared_with_its_onnx_file(
    manifest: Path,
    capsys: pytest.CaptureFixture[str],
    old: str,
    new: str,
    line: int,
    message: str,
) -> None:
    text = manifest.read_text()
    assert old in text
    manifest.write_text(text.replace(old, new))
    assert main(["lint", "manifests"]) == 1
    output = capsys.readouterr().out
    assert output.startswith(f"manifests/digits.yaml:{line}: ")
    assert message in output


def test_other_labels_than_classes_are_found(
    manifest: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    labels = manifest.parent / "labels.txt"
    labels.write_text("zero\none\n")
    assert main(["lint", "manifests"]) == 1
    assert "labels.txt has 2 labels, and the model 10 classes" in capsys.readouterr().out


def test_a_file_that_is_no_onnx_model_is_found(
    manifest: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    graph = manifest.parent / "digits_cnn.onnx"
    old = sha256(graph.read_bytes())
    graph.write_bytes(b"<html>")
    text = manifest.read_text()
    manifest.write_text(text.replace(old, sha256(b"<html>")))
    assert main(["lint", "manifests"]) == 1
    assert "digits_cnn.onnx is not an ONNX model" in capsys.readouterr().out


def replace_dataset(manifest: Path, name: str, arrays: dict[str, np.ndarray]) -> None:
    """Have a manifest name another dataset."""
    made = manifest.parent / name
    write_arrays(made, arrays)
    text = manifest.read_text()
    old = sha256((manifest.parent / "digits_test.npz").read_bytes())
    text = text.replace("digits_test.npz", name)
    manifest.write_text(text.replace(old, sha256(made.read_bytes())))


IMAGE = np.zeros((2, 8, 8), np.uint8)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"label": np.array([0, 10])}, "element 1: the label is 10, of labels from 0 to 10"),
        ({"label": np.array([0])}, "has 2 of 'image', 1 of 'label'"),
        (
            {"label": np.array([0, 1]), "image": IMAGE[:, 0]},
            "element 0: an image is height x width",
        ),
    ],
)
def test_a_dataset_is_read_and_its_first_element_prepared(
    manifest: Path,
    capsys: pytest.CaptureFixture[str],
    arrays: dict[str, np.ndarray],
    message: str,
) -> None:
    replace_dataset(manifest, "other.npz", {"image": IMAGE, **arrays})
    assert main(["lint", "manifests"]) == 1
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith("manifests/digits.yaml:30: other.npz")
    assert message in line


def test_labels_are_compared_with_the_classes_of_the_model(
    manifest: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    replace_dataset(manifest, "other.npz", {"image": IMAGE, "label": np.array([0, 10])})
    text = manifest.read_text()
    (names,) = [line for line in text.splitlines() if "labels.txt" in line]
    manifest.write_text(text.replace(names, "    steps: [softmax]"))
    assert main(["lint", "manifests"]) == 1
    assert "the label is 10, of labels from 0 to 10" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("label", "names", "error"),
    [
        ("three", "labels.txt", ""),
        ("thee", "labels.txt", "labels.csv:2: the label of 0.png is 'thee'; write the number"),
        ("thee", "https://example.org/labels.txt", ""),
    ],
)
def test_labels_that_are_names_are_those_of_the_file_of_names_if_it_is_here(
    manifest: Path, capsys: pytest.CaptureFixture[str], label: str, names: str, error: str
) -> None:
    picture = io.BytesIO()
    Image.new("L", (8, 8)).save(picture, "PNG")
    members = {"0.png": picture.getvalue(), "labels.csv": f"file,label\n0.png,{label}\n".encode()}
    path = write_zip(manifest.with_name("digits.zip"), members)
    manifest.with_name("labels.txt").write_text(
        "zero one two three four 5 6 7 8 9".replace(" ", "\n")
    )
    digest = sha256(manifest.with_name("digits_test.npz").read_bytes())
    text = manifest.read_text().replace(digest, sha256(path.read_bytes()))
    text = text.replace("digits_test.npz", "digits.zip")
    if names != "labels.txt":
        names = f"'{names}', sha256: '{'0' * 64}'"
    manifest.write_text(text.replace("labels: labels.txt", f"labels: {names}"))
    assert main(["lint", "manifests", "--mlms-cache=cache"]) == bool(error)
    assert error in capsys.readouterr().out


SOUNDS = """\
name: words
version: 1.0.0
task: keyword-spotting
license: MIT
models: [{{framework: tflite, graph: g, sha256: {graph}}}]
inputs: [{{name: x, type: audio, element_type: float32, sample_rate: 16000, steps: [mono]}}]
outputs: [{{name: y, type: classification}}]
dataset: {{name: d, version: 1.0.0, source: d.zip, sha256: {data}}}
"""


def test_elements_that_need_a_library_that_is_missing_are_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "soundfile", None)
    Path("g").write_bytes(b"g")
    with zipfile.ZipFile("d.zip", "w") as archive:
        archive.writestr("a.wav", b"RIFF")
        archive.writestr("labels.csv", "file,label\na.wav,0\n")
    digests = {"graph": sha256(b"g"), "data": sha256(Path("d.zip").read_bytes())}
    Path("m.yaml").write_text(SOUNDS.format(**digests))
    assert main(["lint", "m.yaml", "--mlms-cache=cache"]) == 0
    note, summary = capsys.readouterr().err.splitlines()
    assert note.startswith("m.yaml:8: the dataset's elements were not read; files of sound need")
    assert summary == "1 manifest, 0 with errors"


def test_corrupt_elements_that_are_allowed_are_no_errors(manifest: Path) -> None:
    labels = np.array([0, 1, 2, 3, 4, 5, 6, 7])
    replace_dataset(manifest, "other.npz", {"image": IMAGE[0, :, :1], "label": labels})
    text = manifest.read_text()
    manifest.write_text(text.replace("  source: other", "  skip_corrupt: 1\n  source: other"))
    assert main(["lint", "manifests"]) == 0


def test_files_of_arrivals_are_read(manifest: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = manifest.read_text()
    replay = "[{replay: {arrivals: trace.csv}}]"
    manifest.write_text(text.replace("[single_stream, offline]", replay))
    assert main(["lint", "manifests"]) == 1
    assert "manifests/trace.csv does not exist; correct the path" in capsys.readouterr().out
    (manifest.parent / "trace.csv").write_text("0\n2\n1\n")
    assert main(["lint", "manifests"]) == 1
    assert "trace.csv:3: 1 s is before the row above" in capsys.readouterr().out
    (manifest.parent / "trace.csv").write_text("0\n1\n2\n")
    assert main(["lint", "manifests"]) == 0


def test_predictors_of_another_folder_are_known(manifest: Path) -> None:
    text = manifest.read_text()
    text = text.replace("onnxruntime >=1.17", "faulty")
    text = text.replace("onnxruntime", "faulty")
    manifest.write_text(text)
    assert main(["lint", "manifests"]) == 1
    assert main(["lint", "--mlms-predictors", str(PREDICTORS), "manifests"]) == 0


def test_files_of_stacks_are_checked_but_are_no_manifests(
    manifest: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stacks = manifest.parent / "stacks.yaml"
    stacks.write_text("fine: {interpreter: current}\n")
    assert main(["lint", "manifests"]) == 0
    assert capsys.readouterr().err == "1 manifest, 0 with errors\n"


def test_a_stack_without_a_predictor_is_an_error(
    manifest: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stacks = manifest.parent / "stacks.yaml"
    stacks.write_text("odd: {framework: pytroch, requirements: [six]}\n")
    assert main(["lint", "manifests"]) == 1
    message = "manifests/stacks.yaml:1: no predictor for 'pytroch'; did you mean"
    assert capsys.readouterr().out.startswith(message)


def test_options_that_a_predictor_does_not_take_are_errors(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    manifest = copy_digits(tmp_path / "models")
    text = manifest.read_text()
    options = "    options: {optimisation: none, inter_op_threads: '2', config.session.x: 1}\n"
    manifest.write_text(text.replace("\ninputs:", f"{options}\ninputs:", 1))
    stack = "s: {framework: onnxruntime, interpreter: current, options: {execution_mode: quick}}\n"
    (tmp_path / "models" / "stacks.yaml").write_text(stack)
    assert main(["lint", str(tmp_path)]) == 1
    errors = capsys.readouterr().out
    assert "no option 'optimisation'; this predictor knows provider" in errors
    assert "inter_op_threads is '2'; write a whole number" in errors
    assert "stacks.yaml:1: execution_mode is 'quick'; write one of sequential, parallel" in errors
    assert "config.session.x" not in errors
